"""Change paths beneath a directory as fast as possible: a separate program.

Its arguments are the directory and a list of steps in JSON. What cannot be done at a moment is left out. It says a line
once all steps have been taken, and ends on SIGTERM when all have been taken again.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

_HERE, _EXCHANGE, _PARENT_DEATH_SIGNAL = -100, 2, 1
_LIBC = ctypes.CDLL(None)


def _exchange(one: str, other: str) -> None:
    _LIBC.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)


def _fresh(path: str, content: str) -> None:
    new = Path(f"{path}.fresh")
    new.write_text(content, encoding="utf-8")
    new.replace(path)


STEPS: dict[str, Callable[..., object]] = {
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


def main() -> None:
    _LIBC.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    place, steps = sys.argv[1], json.loads(sys.argv[2])
    os.chdir(place)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda signum, frame: asked.append(signum))
    _take(steps)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not asked:
        _take(steps)
        time.sleep(
            random.choice((0, 0, 0.0001, 0.0002))
        )  # each state lasts for some jobs, and for parts of one


def _take(steps: list[list[str]]) -> None:
    for name, *arguments in steps:
        try:
            STEPS[name](*arguments)
        except OSError:
            continue


if __name__ == "__main__":
    main()
