"""Say in which order the processes that use one database write."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol


class Order(Protocol):
    """Inside `with` no other process that keeps the order writes."""

    def __enter__(self) -> None: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
    @property
    def is_wanted(self) -> bool:
        """Inside `with`: whether somebody waits for its end."""

    def let_pass(self) -> None:
        """Outside `with`: wait until those who are inside or wait now have come to their end, a moment at most."""

    def another(self) -> Order:
        """The same order for one more thread."""

    def close(self) -> None: ...


class NoOrder:
    """The database's own."""

    def __enter__(self) -> None:
        """Go on."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Go on."""

    @property
    def is_wanted(self) -> bool:
        return False

    def let_pass(self) -> None:
        """Nobody can be told from another."""

    def another(self) -> NoOrder:
        return self

    def close(self) -> None:
        """Nothing is open."""
