#include "pebble.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int pebble_mount(const char *image, int readonly)
{
    unsigned magic = 0;
    int fd = open(image, readonly ? O_RDONLY : O_RDWR);
    if (fd < 0)
        return -errno;
    if (read(fd, &magic, sizeof magic) != sizeof magic || magic != PEBBLE_MAGIC) {
        close(fd);
        return -EINVAL;
    }
    return fd;
}

int main(int argc, char **argv)
{
    return argc == 2 ? pebble_mount(argv[1], 1) < 0 : 2;
}
