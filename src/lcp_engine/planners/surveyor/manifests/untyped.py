"""Look into data of unknown shape: what is missing or of another type reads as empty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


def table(value: object) -> Loose:
    return Loose({str(key): item for key, item in value.items()} if isinstance(value, dict) else {})


def text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Loose:
    """A table of which nothing is known."""

    value: dict[str, object]

    def table(self, key: str) -> Loose:
        return table(self.value.get(key))

    def text(self, key: str) -> str:
        return text(self.value.get(key))

    def texts(self, key: str) -> list[str]:
        return texts(self.value.get(key))

    def list_of_tables(self, key: str) -> list[Loose]:
        found = self.value.get(key)
        return [table(item) for item in found] if isinstance(found, list) else []

    def tables(self) -> list[Loose]:
        return [table(item) for item in self.value.values()]

    def items(self) -> Iterator[tuple[str, object]]:
        yield from self.value.items()

    def names(self, *without: str) -> list[str]:
        return [key for key in self.value if key not in without]

    def as_texts(self) -> dict[str, str]:
        """The entries that are text."""
        return {key: item for key, item in self.value.items() if isinstance(item, str)}
