"""Stop a runner by signals: the first one drains it, a second SIGINT exits at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType

from lcp_engine import Runner
from lcp_engine.cli.console.exits import Exit
from lcp_engine.sandbox.file_access import Shortage, start_thread

POLL_SECONDS = 0.1
MOST_POLL_SECONDS = 1.0
"""The longest pause between polls while nothing happens."""
_TELL_SECONDS = 60.0
"""Pause between notes that no thread can be started."""
SHOW_CURSOR = b"\x1b[?25h\n"


class Interrupts:
    """The signal received, if any. Outside `draining`, a signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._stop: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        return self.received is not None

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT and SIGTERM."""
        if self._stop is None:
            raise KeyboardInterrupt
        if self.received is None:
            self.received = signal.Signals(number)
            self._stop()
        elif number == signal.SIGINT:
            if os.isatty(2):
                os.write(2, SHOW_CURSOR)  # the live progress line hides it
            os._exit(Exit.INTERRUPTED)

    @contextmanager
    def draining(self, stop: Callable[[], None]) -> Iterator[None]:
        """Let the first signal call `stop`."""
        self._stop = stop
        try:
            yield
        finally:
            self._stop = None


@contextmanager
def catching_interrupts() -> Iterator[Interrupts]:
    """Handle SIGINT and SIGTERM; restore the handlers afterwards."""
    interrupts = Interrupts()
    before = {number: signal.signal(number, interrupts.receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def work(
    runner: Runner, interrupts: Interrupts, poll: Callable[[], bool], note: Callable[[str], None]
) -> None:
    """Run `runner` in a thread until it ends, and call `poll` meanwhile. Raises what ended the runner.

    `poll` returns whether anything happened. A signal to stop is acknowledged with `note`, and so is a thread that the
    system does not start yet. After a signal, `poll` does not wait for a database that is away either, whether the
    runner has ended before or not.
    """
    with interrupts.draining(runner.stop), runner.outage.unless(lambda: bool(interrupts)):
        done = _begun(runner.run, interrupts, note)
        try:
            _poll_until(done, interrupts, poll, note)
        except BaseException:  # also an interrupt: the runner must stop before its end can be waited for
            runner.stop()
            wait((done,))
            raise
        poll()
    done.result()


def _begun(run: Callable[[], None], interrupts: Interrupts, note: Callable[[str], None]) -> Future[None]:
    """The outcome of `run` in a thread, begun as soon as the system starts one, unless a signal comes before."""
    done, told = Future[None](), -float("inf")

    def work() -> None:
        try:
            run()
        except BaseException as error:  # noqa: BLE001 -- it is raised again in the thread that waits
            done.set_exception(error)
        else:
            done.set_result(None)

    while not interrupts:
        # A daemon: `work` waits for its end, unless a second signal ends all at once.
        thread = threading.Thread(target=work, name="lcp-runner", daemon=True)
        try:
            start_thread(thread)
        except Shortage as shortage:
            if time.monotonic() - told > _TELL_SECONDS:
                told = time.monotonic()
                note(shortage.waiting)
            time.sleep(MOST_POLL_SECONDS)
        else:
            return done
    done.set_result(None)
    return done


def _poll_until(
    done: Future[None], interrupts: Interrupts, poll: Callable[[], bool], note: Callable[[str], None]
) -> None:
    answered, pause = False, POLL_SECONDS
    while not done.done():
        wait((done,), timeout=pause)
        pause = POLL_SECONDS if poll() else min(2 * pause, MOST_POLL_SECONDS)
        if interrupts and not answered and not done.done():
            note("stopping: running jobs are finished first; Ctrl-C again exits at once, and nothing is lost")
            answered = True
