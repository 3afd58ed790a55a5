"""Hold the work of one caller until its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Generic, TypeVar  # noqa: TID251 -- units of every type wait in one queue

from lcp_engine.store.db.transaction import Tx

T = TypeVar("T")

LOOK_SECONDS = 1.0


class Unit(Generic[T]):
    """Work that waits for its commit. It is woken once it is done, or its caller has to lead (see `Database`)."""

    __slots__ = ("_bell", "_error", "_next", "_value", "is_done", "is_woken", "work")

    def __init__(self, work: Callable[[Tx], T]) -> None:
        self.work = work
        self.is_woken = False
        self._bell: threading.Lock | None = None
        self._next: Unit[Any] | None = None
        self.is_done = False
        self._value: list[T] = []
        self._error: BaseException | None = None

    def expect(self) -> None:
        """Make ready to `wait`, before anybody may `wake`. A lock: an Event takes longer than the whole hand-over."""
        self._bell = threading.Lock()
        self._bell.acquire()

    def wait(self) -> None:
        """Return once it is woken, and wake the one behind it."""
        assert self._bell is not None
        # A caller that is interrupted wakes nobody: the one behind it finds out by itself.
        while not self._bell.acquire(timeout=LOOK_SECONDS) and not self.is_done:
            pass
        if self._next is not None:
            self._next.wake()

    @property
    def waits(self) -> bool:
        return self._bell is not None and not self.is_woken

    def is_before(self, following: Unit[Any]) -> None:
        self._next = following

    def wake(self) -> None:
        if self._bell is not None and not self.is_woken:
            self.is_woken = True
            self._bell.release()

    def perform(self, tx: Tx) -> None:
        self._value = [self.work(tx)]

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.is_done = True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]


def wake_all(units: Iterable[Unit[Any]]) -> None:
    """Wake those that wait, each when the one before it goes on: all at once, they would wait for the interpreter."""
    waiting = [unit for unit in units if unit.waits]
    for unit, following in pairwise(waiting):
        unit.is_before(following)
    if waiting:
        waiting[0].wake()
