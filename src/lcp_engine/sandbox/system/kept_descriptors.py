"""Keep descriptors out of forked children, those that hold locks above all.

A lock of an open file lasts until the last process that shares the file has closed it. `O_CLOEXEC` is enough for a
child that executes a program; one that goes on without, such as those of a worker's process pool, would keep every lock
until it ends, also when the runner is long dead.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_KEPT: set[int] = set()


def keep_from_children(descriptor: int) -> int:
    """`descriptor`, which every later fork of this process closes in the child. Call it before a lock is taken."""
    _KEPT.add(descriptor)
    return descriptor


def unlock_and_close(descriptor: int) -> None:
    """Release the lock of a descriptor that is kept from children, and close it; in a child it is closed already."""
    if descriptor not in _KEPT:
        return
    # A child that was forked past Python, or a moment before `keep_from_children`, has the descriptor open.
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    _KEPT.discard(descriptor)  # first: a fork in between would close whatever has the number by then
    os.close(descriptor)


@contextmanager
def no_forks() -> Iterator[None]:
    """Let other threads wait with a fork: a child would share what is open for a moment only.

    `subprocess` learns from the end of a pipe that its program runs; a child would keep that pipe open until it ends.
    """
    with _FORK:
        yield


def close_all_but(*kept: int) -> None:
    """Close all other descriptors of this process."""
    first = 0
    for one in sorted(kept):
        if first < one:  # an empty range at 0 would be all there are
            os.closerange(first, one)
        first = one + 1
    os.closerange(first, os.sysconf("SC_OPEN_MAX"))


# An RLock, which only its owner can release: a fork that was under way when this module was imported has not taken it.
_FORK = threading.RLock()


def _close_all() -> None:
    _FORK._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001 -- as concurrent.futures does it
    for descriptor in _KEPT:
        with suppress(OSError):
            os.close(descriptor)
    _KEPT.clear()


# At import, so that it happens once: two threads that came at the same time would register twice. And methods in C:
# Ctrl-C in a function would be lost, and the lock with it.
os.register_at_fork(before=_FORK.acquire, after_in_parent=_FORK.release, after_in_child=_close_all)
