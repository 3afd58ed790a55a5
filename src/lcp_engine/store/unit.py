"""Hold the work of one caller until its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from lcp_engine.store.transaction import Tx

T = TypeVar("T")


class Unit(Generic[T]):
    """Work that waits for its commit. It is woken once it is done, or its caller has to lead (see `Database`)."""

    __slots__ = ("_bell", "_error", "_value", "is_done", "is_woken", "work")

    def __init__(self, work: Callable[[Tx], T]) -> None:
        self.work = work
        self.is_woken = False
        self._bell: threading.Lock | None = None
        self.is_done = False
        self._value: list[T] = []
        self._error: BaseException | None = None

    def expect(self) -> None:
        """Make ready to `wait`, before anybody may `wake`. A lock: an Event takes longer than the whole hand-over."""
        self._bell = threading.Lock()
        self._bell.acquire()

    def wait(self) -> None:
        assert self._bell is not None
        self._bell.acquire()

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
