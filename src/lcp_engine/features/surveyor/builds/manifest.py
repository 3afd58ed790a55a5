"""Contents of one manifest, and how its values are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Manifest:
    """Contents of one manifest. `dependencies` are names by group, `entries` and `commands` are (name, target).

    What is needed to run has the group ``""``.
    """

    ecosystem: str
    path: str = ""
    name: str = ""
    version: str = ""
    description: str = ""
    licence: str = ""
    needs: str = ""
    dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    entries: tuple[tuple[str, str], ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    cut: bool = False
    """Whether only its beginning was looked at: it may name more than is here."""
    broken: bool = False
    """Whether it cannot be parsed, and tells nothing."""

    @property
    def directory(self) -> str:
        """Where it lies, with `/` at the end; empty at the top."""
        return self.path[: self.path.rfind("/") + 1]

    @property
    def dependency_names(self) -> set[str]:
        return {name.lower() for names in self.dependencies.values() for name in names}


class NotAManifestError(Exception):
    """The file is called like a manifest and is something else."""


def prefixed(tool: str, version: str) -> str:
    return f"{tool} {version}" if version else ""


def requirements(lines: Iterable[str]) -> list[str]:
    """Names of PEP 508 requirements; options, comments and addresses are not names."""
    found = (re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:$|[\[<>=!~;@#,(\\])", line) for line in lines)
    return [match[1] for match in found if match]


def grouped(groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    unique = {group: tuple(dict.fromkeys(names)) for group, names in groups.items()}
    return {group: names for group, names in unique.items() if names}


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""


def pair(line: str) -> tuple[str, str]:
    name, _, target = line.partition("=")
    return name.strip(), target.strip()


def table(value: object) -> Table:
    return Table({str(key): item for key, item in value.items()} if isinstance(value, dict) else {})


def text_of(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def texts_of(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


@dataclass(frozen=True)
class Table:
    """A table of unknown shape: what is missing or of another type reads as empty."""

    value: dict[str, object]

    def table(self, key: str) -> Table:
        return table(self.value.get(key))

    def text(self, key: str) -> str:
        return text_of(self.value.get(key))

    def texts(self, key: str) -> list[str]:
        return texts_of(self.value.get(key))

    def list_of_tables(self, key: str) -> list[Table]:
        found = self.value.get(key)
        return [table(item) for item in found] if isinstance(found, list) else []

    def tables(self) -> list[Table]:
        return [table(item) for item in self.value.values()]

    def items(self) -> Iterator[tuple[str, object]]:
        yield from self.value.items()

    def names(self, *without: str) -> list[str]:
        return [key for key in self.value if key not in without]

    def as_texts(self) -> dict[str, str]:
        """The entries that are text."""
        return {key: item for key, item in self.value.items() if isinstance(item, str)}
