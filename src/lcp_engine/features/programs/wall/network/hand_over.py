"""Begin a program that has a proxy: listen on its own loopback, give that to the proxy, become the program.

Run inside the wall as a script: `python -I -S hand_over.py SOCKET PORT,… PROGRAM NAME ARGUMENT…`. It imports nothing of
the package, and leaves no process behind: the proxy, outside, accepts what the program connects to here.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import ExitStack
from pathlib import Path


def listen_for_proxy(place: str, ports: list[int]) -> None:
    """Have the proxy behind a Unix socket accept connections to ports of this network's loopback."""
    with ExitStack() as stack:
        listeners = [
            stack.enter_context(socket.create_server(("127.0.0.1", port), backlog=128)) for port in ports
        ]
        proxy = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        proxy.connect(place)
        socket.send_fds(proxy, [b"."], [one.fileno() for one in listeners])
        proxy.recv(1)


def main() -> None:
    """Do both steps; says why on stderr, with exit code 126 or 127, if one fails."""
    place, ports, path, *arguments = sys.argv[1:]
    try:
        listen_for_proxy(place, [*map(int, ports.split(","))])
    except OSError as error:
        sys.exit(_failed("the proxy cannot be reached", error, 126))
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    # Python may have changed its own environment for its locale.
    stated = Path("/proc/self/environ").read_bytes().split(b"\0")
    environment = dict(one.split(b"=", 1) for one in stated if b"=" in one)
    try:
        os.execve(path, arguments, environment)  # noqa: S606 -- inside the wall
    except OSError as error:
        sys.exit(_failed(path, error, 127))


def _failed(what: str, error: OSError, code: int) -> int:
    sys.stderr.write(f"{what}: {error.strerror}\n")
    return code


if __name__ == "__main__":
    main()
