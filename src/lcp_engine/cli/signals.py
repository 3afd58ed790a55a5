"""Stop a runner by signals: the first one drains it, a second SIGINT leaves at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from types import FrameType

from lcp_engine.cli.base import Exit
from lcp_engine.runner.runner import Runner

LOOK_SECONDS = 0.1
IDLE_SECONDS = 1.0
"""How long a look is put off at most while there is no news: a runner that has nothing to do costs nothing."""
SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupts:
    """Which signal asked to stop, if any. While nothing is to be drained, signals interrupt at once."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._stop: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self.received is not None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of SIGINT and SIGTERM."""
        if self._stop is None:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
            self._stop()
        elif number == signal.SIGINT:
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)  # the live line has hidden it
            os._exit(Exit.INTERRUPTED)

    @contextmanager
    def draining(self, stop: Callable[[], None]) -> Iterator[None]:
        """Within, the first signal calls `stop`."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None


@contextmanager
def catching_interrupts() -> Iterator[Interrupts]:
    """Receive SIGINT and SIGTERM within."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def work(
    runner: Runner, interrupts: Interrupts, look: Callable[[], bool], say: Callable[[str], None]
) -> None:
    """Run `runner` in a thread until it ends, and `look` meanwhile from here. Raises what ended the runner.

    `look` tells whether there was news. A signal that asks to stop is answered through `say`.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="lcp-runner") as pool, interrupts.draining(runner.stop):
        done = pool.submit(runner.run)
        try:
            _look_until(done, interrupts, look, say)
        except BaseException:
            runner.stop()
            raise
    look()
    done.result()


def _look_until(
    done: Future[None], interrupts: Interrupts, look: Callable[[], bool], say: Callable[[str], None]
) -> None:
    answered, pause = False, LOOK_SECONDS
    while not done.done():
        wait((done,), timeout=pause)
        pause = LOOK_SECONDS if look() else min(2 * pause, IDLE_SECONDS)
        if interrupts and not answered and not done.done():
            say("stopping: what runs is finished first; Ctrl-C again leaves at once, and nothing is lost")
            answered = True
