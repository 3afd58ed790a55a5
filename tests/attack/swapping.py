"""Change paths beneath a directory as fast as possible, in a process of its own."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Steps: TypeAlias = Sequence[Sequence[str]]
"""The name of each step and its arguments; paths are relative to the directory."""
_HERE, _EXCHANGE, _PARENT_DEATH_SIGNAL = -100, 2, 1
_LIBC = ctypes.CDLL(None)


@contextmanager
def swapper(place: Path, steps: Steps) -> Iterator[None]:
    """Another process takes all steps again and again; at the end it has taken all of them equally often."""
    ready, tells = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            _swap(place, steps, tells)
        finally:
            os._exit(0)
    try:
        os.close(tells)
        os.read(ready, 1)
        os.close(ready)
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def _swap(place: Path, steps: Steps, tells: int) -> None:
    _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: asked.append(signum))
    os.chdir(place)
    _take(steps)
    os.write(tells, b"!")
    while not asked:
        _take(steps)
        time.sleep(
            random.choice((0, 0, 0.0001, 0.0002))
        )  # each state lasts for some jobs, and for parts of one


def _take(steps: Steps) -> None:
    """What cannot be done at a moment is left out."""
    for name, *arguments in steps:
        try:
            _STEPS[name](*arguments)
        except OSError:
            continue


def _exchange(one: str, other: str) -> None:
    _LIBC.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)


def _fresh(path: str, content: str) -> None:
    new = Path(f"{path}.fresh")
    new.write_text(content, encoding="utf-8")
    new.replace(path)


_STEPS: dict[str, Callable[..., object]] = {
    "exchange": _exchange,
    "rename": os.rename,
    "link": os.link,
    "symlink": os.symlink,
    "unlink": os.unlink,
    "fifo": os.mkfifo,
    "mkdir": os.mkdir,
    "rmtree": shutil.rmtree,
    "fresh": _fresh,
}
