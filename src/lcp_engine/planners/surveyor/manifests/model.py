"""Hold what any manifest says, in one shape."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Manifest:
    """What one manifest says. `dependencies` are names by group, `entries` and `commands` are (name, target)."""

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

    @property
    def dependency_names(self) -> set[str]:
        return {name.lower() for names in self.dependencies.values() for name in names}


def first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else ""


def pair(line: str) -> tuple[str, str]:
    name, _, target = line.partition("=")
    return name.strip(), target.strip()


def prefixed(tool: str, version: str) -> str:
    return f"{tool} {version}" if version else ""


def requirements(lines: Iterable[str]) -> list[str]:
    """Names of PEP 508 requirements; options, comments and addresses are no names."""
    found = (re.match(r"\s*([A-Za-z0-9][\w.-]*)", line) for line in lines)
    return [match[1] for match in found if match]


def grouped(groups: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
    unique = {group: tuple(dict.fromkeys(names)) for group, names in groups.items()}
    return {group: names for group, names in unique.items() if names}
