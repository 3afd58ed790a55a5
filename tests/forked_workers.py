"""Start test processes as forks of one that has collected the tests: most of what they begin with is the same for all.

pytest-xdist starts the interpreter that it is told. Here that is this file, which asks the process that has collected
for a fork with its own streams, and ends as the fork does. A fork collects again, with all modules loaded.
"""

from __future__ import annotations

import gc
import os
import selectors
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NoReturn

_MESSAGE = 64


@contextmanager
def forked_workers(selected: Sequence[str]) -> Iterator[str]:
    """Collect these tests; the command that is the interpreter of each worker, until the context ends."""
    with TemporaryDirectory() as place:
        address = str(Path(place, "socket"))
        command = [sys.executable, __file__, "collect", address, *selected]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as collected:
            assert collected.stdin is not None
            assert collected.stdout is not None
            collected.stdout.read()  # it closes its output once it listens
            yield f"{sys.executable} -I -S {__file__} ask {address}"
            collected.stdin.close()


def _ask(address: str) -> int:
    """Have a fork take the streams of this process; its exit code, or 1 if there is nobody to ask."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.connect(address)
        socket.send_fds(connection, [b"fork"], [0, 1, 2])
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1):  # pytest-xdist finds at the end of the output that a worker has crashed
            os.dup2(nothing, stream)
        return int(connection.recv(_MESSAGE) or b"1")
    return 1


def _collect(address: str, selected: Sequence[str]) -> None:
    """Collect the tests, then serve."""
    import pytest

    nothing = os.open(os.devnull, os.O_WRONLY)
    output = os.dup(1)
    os.dup2(nothing, 1)
    # What cannot be collected is said by the workers.
    pytest.main(["--collect-only", "-qq", "-p", "no:cacheprovider", "-p", "no:xdist", *selected])
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening, selectors.DefaultSelector() as selector:
        listening.bind(address)
        listening.listen()
        os.close(output)
        selector.register(listening, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        _serve(listening, selector)


def _serve(listening: socket.socket, selector: selectors.BaseSelector) -> None:
    """Fork for each connection, and answer with how the fork ended, until the standard input ends."""
    while True:
        for key, _ in selector.select():
            if key.fd == 0:
                return
            if key.fileobj is listening:
                connection, _ = listening.accept()
                _, streams, _, _ = socket.recv_fds(connection, _MESSAGE, 3)
                worker = os.fork()
                if worker == 0:
                    selector.close()
                    listening.close()
                    connection.close()
                    _work(streams)
                for stream in streams:
                    os.close(stream)
                selector.register(os.pidfd_open(worker), selectors.EVENT_READ, (worker, connection))
            else:
                worker, connection = key.data
                _, status = os.waitpid(worker, 0)
                with connection, suppress(OSError):
                    connection.send(b"%d" % (os.waitstatus_to_exitcode(status) & 0xFF))
                selector.unregister(key.fd)
                os.close(key.fd)


def _work(streams: Sequence[int]) -> NoReturn:
    """Do what pytest-xdist has its interpreters do: execute what stands in the first line of the input."""
    from tests.loaded_python import end, take_streams

    take_streams(streams)
    sys.argv[:] = ["-c"]
    sys.modules["__main__"] = main = ModuleType("__main__")
    exec(eval(sys.stdin.readline()), vars(main))  # that is what it is asked for
    end(0)
    raise SystemExit


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["ask", address, *_]:  # and what an interpreter is given
            sys.exit(_ask(address))
        case ["collect", address, *selected]:
            _collect(address, selected)
