"""Hear at once that a runner of this host is gone; the watch's look once a second is the fallback.

When a process dies, the kernel closes its lock file (store/host/liveness.py) and tells whoever watches the directory
(inotify(7)).
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lcp_engine.store.host.liveness import LOCK

_CLOSE_WRITE = 0x08  # sys/inotify.h
_EVENT = struct.Struct("@iIII")  # wd, mask, cookie, the length of the name that follows
_PAUSES = (0.001, 0.05)
"""The kernel tells of a close and then gives up the lock; the second look is for a machine that is busy just then."""


def listen_for_departures(directory: Path, heard: Callable[[], None]) -> Callable[[], None]:
    """Call `heard` from another thread, twice, whenever a runner's lock is closed; what is returned ends that.

    Where the kernel has no inotify, or no more of it, nothing is heard.
    """
    watch = _watch(directory)
    if watch < 0:
        return lambda: None
    try:
        awake, ender = os.pipe()
    except OSError:
        os.close(watch)
        raise
    poll = select.poll()
    poll.register(watch, select.POLLIN)
    poll.register(awake)

    def wait() -> None:
        while all(ready != awake for ready, _ in poll.poll()):
            if any(name.endswith(LOCK) for name in _names(os.read(watch, 65536))):
                for pause in _PAUSES:
                    time.sleep(pause)
                    heard()

    thread = threading.Thread(target=wait, name="lcp-departures", daemon=True)
    thread.start()

    def end() -> None:
        os.close(ender)
        thread.join()
        os.close(awake)
        os.close(watch)

    return end


def _watch(directory: Path) -> int:
    """A descriptor to read events from; -1 where there is none."""
    if sys.platform != "linux":
        return -1
    libc = ctypes.CDLL(None)
    watch: int = libc.inotify_init1(os.O_CLOEXEC)
    if watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(directory), _CLOSE_WRITE) < 0:
        os.close(watch)
        return -1
    return watch


def _names(events: bytes) -> Iterator[str]:
    at = 0
    while at < len(events):
        *_, length = _EVENT.unpack_from(events, at)
        at += _EVENT.size + length
        yield os.fsdecode(events[at - length : at].rstrip(b"\0"))
