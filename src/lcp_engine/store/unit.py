"""Hold the work of one caller until its commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from lcp_engine.store.transaction import Tx

T = TypeVar("T")


class Unit(Generic[T]):
    """Work that waits for its commit. `woken` is set once it is done, or its caller has to lead (see `Database`)."""

    def __init__(self, work: Callable[[Tx], T]) -> None:
        self.work = work
        self.woken = threading.Event()
        self.is_done = False
        self._value: list[T] = []
        self._error: BaseException | None = None

    def perform(self, tx: Tx) -> None:
        self._value = [self.work(tx)]

    def fail(self, error: BaseException) -> None:
        self._error = error
        self.is_done = True

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value[0]
