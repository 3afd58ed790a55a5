"""A worker that does, by name, what code would try that has taken a confined process over."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import threading
from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel

from lcp_engine.workers.base import Context, Outcome, Worker


class Attack(BaseModel):
    """What to try, and a directory outside the root."""

    name: str
    outside: str


class Ended(BaseModel):
    """The name of the error, None if the attack succeeded."""

    ok: Literal[True] = True
    error: str | None


_CALL = ctypes.CDLL(None, use_errno=True).syscall
_COLUMN = 0 if platform.machine() == "x86_64" else 1
_BUFFER = ctypes.create_string_buffer(256)


def _call(numbers: tuple[int, int] | int, *arguments: int | str | None) -> int:
    """A system call by its numbers on x86_64 and aarch64; None is passed as the address of zeros."""
    number = numbers if isinstance(numbers, int) else numbers[_COLUMN]
    passed: list[object] = [ctypes.c_long(number)]
    for one in arguments:
        if one is None:
            passed.append(_BUFFER)
        else:
            passed.append(ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one.encode()))
    found: int = _CALL(*passed)
    if found < 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason))
    return found


def _fork(make: Callable[[], int]) -> None:
    child = make()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _socket(family: int, kind: int, protocol: int = 0) -> None:
    socket.socket(family, kind, protocol).close()


def _connect(outside: str) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(f"{outside}/s")


def _send_datagram(outside: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", ("127.0.0.1", 9))


def _open(outside: str) -> int:
    """A file that may be opened: the root is the only descriptor of a directory."""
    for number in range(3, 64):
        try:
            return os.open("a.txt", os.O_RDONLY, dir_fd=number)
        except OSError:
            continue
    raise AssertionError


def _set_flags(outside: str) -> None:
    fcntl.ioctl(_open(outside), 0x40086602, b"\0" * 8)  # FS_IOC_SETFLAGS


ATTACKS: dict[str, Callable[[str], object]] = {
    "connect to a Unix socket by its path": _connect,
    "send a UDP datagram": _send_datagram,
    "make a TCP socket": lambda outside: _socket(socket.AF_INET, socket.SOCK_STREAM),
    "make an MPTCP socket": lambda outside: _socket(socket.AF_INET, socket.SOCK_STREAM, 262),
    "make a netlink socket": lambda outside: _socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "make a pair of sockets": lambda outside: socket.socketpair(),
    "fork": lambda outside: _fork(os.fork),
    "clone": lambda outside: _fork(lambda: _call((56, 220), signal.SIGCHLD, 0, 0, 0, 0)),
    "clone into a user namespace": lambda outside: _fork(
        lambda: _call((56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    ),
    "start a program": lambda outside: os.posix_spawn("/proc/self/exe", ["python", "-c", ""], {}),
    "execute a program": lambda outside: os.execve("/proc/self/exe", ["python", "-c", ""], {}),
    "make a file in memory to execute": lambda outside: os.memfd_create("x"),
    "enter a user namespace": lambda outside: _call((272, 97), 0x10000000),
    "enter a mount namespace": lambda outside: _call((272, 97), 0x00020000),
    "change the root directory": os.chroot,
    "mount": lambda outside: _call((165, 40), "none", outside, "tmpfs", 0, 0),
    "open a tree to mount": lambda outside: _call(428, -100, outside, 0),
    "change an owner": lambda outside: os.chown(f"{outside}/secret.txt", -1, -1),
    "change the owner of a link": lambda outside: os.lchown(f"{outside}/secret.txt", -1, -1),
    "change the owner of an open file": lambda outside: os.fchown(_open(outside), -1, -1),
    "change a mode": lambda outside: os.chmod(f"{outside}/secret.txt", 0o666),  # noqa: PTH101 -- the call itself
    "change a mode, with flags": lambda outside: _call(452, -100, f"{outside}/secret.txt", 0o666, 0),
    "change the mode of an open file": lambda outside: os.fchmod(_open(outside), 0o666),
    "change times": lambda outside: os.utime(f"{outside}/secret.txt", (1, 1)),
    "change the times of an open file": lambda outside: os.utime(_open(outside), (1, 1)),
    "set an attribute": lambda outside: os.setxattr(f"{outside}/secret.txt", "user.a", b"x"),
    "read an attribute": lambda outside: os.getxattr(f"{outside}/secret.txt", "user.seen"),
    "list attributes": lambda outside: os.listxattr(f"{outside}/secret.txt"),
    "set the flags of an open file": _set_flags,
    "truncate": lambda outside: os.truncate(f"{outside}/secret.txt", 0),
    "make a pipe with a name": lambda outside: os.mkfifo(f"{outside}/pipe"),
    "watch a directory": lambda outside: _call((254, 27), _call((294, 26), 0), outside, 0x2),
    "signal its parent": lambda outside: os.kill(os.getppid(), 0),
    "signal its group": lambda outside: os.kill(0, 0),
    "signal its parent's thread": lambda outside: _call((234, 131), os.getppid(), os.getppid(), 0),
    "hold its parent": lambda outside: os.pidfd_open(os.getppid()),
    "trace its parent": lambda outside: _call((101, 117), 0x4206, os.getppid(), 0, 0),
    "read its parent's memory": lambda outside: _call((310, 270), os.getppid(), None, 0, None, 0, 0),
    "limit its parent": lambda outside: resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE),
    "make its parent slow": lambda outside: os.setpriority(os.PRIO_PROCESS, os.getppid(), 1),
    "move its parent": lambda outside: os.sched_setaffinity(os.getppid(), {0}),
    "outlive its parent": lambda outside: _call((157, 167), 1, 0, 0, 0, 0),
    "be told by signals": lambda outside: fcntl.fcntl(_open(outside), 8, os.getppid()),
    "take a lease": lambda outside: fcntl.fcntl(_open(outside), 1024, 0),
    "make a ring of calls": lambda outside: _call(425, 1, None),
    "load a program into the kernel": lambda outside: _call((321, 280), 0, None, 0),
    "measure the kernel": lambda outside: _call((298, 241), None, 0, -1, -1, 0),
    "handle page faults": lambda outside: _call((323, 282), 0),
    "read its keys": lambda outside: _call((250, 219), 0, -3, 0),
    "share memory": lambda outside: _call((29, 194), 0, 4096, 0o1600),
    "make a queue of messages": lambda outside: _call((68, 186), 0, 0o1600),
    "make a semaphore": lambda outside: _call((64, 190), 0, 1, 0o1600),
    "take a handle of a file": lambda outside: _call((303, 264), -100, outside, None, None, 0),
    "become another machine": lambda outside: _call((135, 92), 0x0008),
    "make a call of a newer kernel": lambda outside: _call(470, 0, 0, 0, 0),
    "make a call of the ABI x32": lambda outside: _call(0x40000000 + 39),
    "clone by a structure": lambda outside: _call(435, None, 88),
}


def attack(params: Attack, context: Context) -> Outcome:
    """Tries it, and reports the error."""
    if params.name == "nothing":
        found: list[int] = []
        thread = threading.Thread(target=found.append, args=(1,))
        thread.start()
        thread.join()
        return Ended(error=None if found else "no thread")
    try:
        ATTACKS[params.name](params.outside)
    except OSError as error:
        return Ended(error=errno.errorcode[error.errno or 0])
    return Ended(error=None)


WORKER = Worker(kind="attacks", params=Attack, result=Ended, execute=attack, timeout=20)
