#ifndef PEBBLE_H
#define PEBBLE_H

#define PEBBLE_MAGIC 0x5045424cu
#define PEBBLE_BLOCK 4096
#define PEBBLE_NAME_MAX 60

struct pebble_inode {
    unsigned mode;
    unsigned size;
    unsigned blocks[12];
};

int pebble_mount(const char *image, int readonly);

#endif
