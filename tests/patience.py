"""Wait for what has to happen, and fail with a sentence where it does not: no test hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

PATIENCE_SECONDS = 60
"""Only what hangs takes this long, also on a busy machine."""


def wait_until(holds: Callable[[], object], otherwise: str = "it has not come true") -> None:
    """Ask again and again until it holds; `otherwise` begins the message if it does not."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends, f"{otherwise} within {PATIENCE_SECONDS} s"
        time.sleep(0.02)


@contextmanager
def in_thread(run: Callable[[], object], stop: Callable[[], object]) -> Iterator[None]:
    """Run something in a thread, stop it at the end, and wait until it has ended."""
    # A daemon: one that hangs fails its test and does not keep the interpreter from ending.
    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop()
        join(thread)


def join(thread: Thread) -> None:
    """Wait until a thread has ended."""
    thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive(), f"{thread.name} has not ended within {PATIENCE_SECONDS} s"
