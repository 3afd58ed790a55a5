"""Find the lines of a mission file that its errors are about, to mark them in the text. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import yaml

from lcp_engine.errors import Json, LcpError

AROUND = 2
"""Lines that are shown above and below a marked one."""


@dataclass(frozen=True)
class FaultLine:
    """An error, and the number of the line that it is about; None if it is about none."""

    message: str
    line: int | None


@dataclass(frozen=True)
class Line:
    """A line of the text; `gap` says that lines before it are left out."""

    number: int
    text: str
    is_marked: bool
    gap: bool


def faults_in(text: str, refused: LcpError) -> list[FaultLine]:
    """Every error of a mission that was refused, with its line."""
    details = refused.failed.details
    problems, places = details.get("problems"), details.get("places")
    if not isinstance(problems, list) or not isinstance(places, list):
        line = details.get("line")
        return [FaultLine(str(refused), line if isinstance(line, int) else None)]
    lines = _lines_by_place(text)
    return [
        FaultLine(str(problem), _line_of(place, lines))
        for problem, place in zip(problems, places, strict=True)
    ]


def marked_lines(text: str, faults: Sequence[FaultLine]) -> list[Line]:
    """The lines that are marked, with some around each; those without a line mark nothing."""
    lines = text.split("\n")
    marked = {fault.line for fault in faults if fault.line is not None}
    shown = sorted({at for line in marked for at in range(line - AROUND, line + AROUND + 1)})
    kept = [at for at in shown if 1 <= at <= len(lines)]
    return [
        Line(at, lines[at - 1], at in marked, gap=before is not None and at != before + 1)
        for before, at in zip([None, *kept], kept, strict=False)
    ]


_Place: TypeAlias = tuple[str, ...]
"""Keys and indexes, as texts."""


def _line_of(place: Json, lines: Mapping[_Place, int]) -> int | None:
    """The line of a place, or of what it would lie in."""
    parts = tuple(map(str, place)) if isinstance(place, list) else ()
    return next((lines[parts[:end]] for end in range(len(parts), 0, -1) if parts[:end] in lines), None)


def _lines_by_place(text: str) -> dict[_Place, int]:
    """The line of each key and item; empty if the text is not YAML, or nested too deeply."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        lines = dict(_walk(root, ())) if root is not None else {}
    except (yaml.YAMLError, RecursionError):
        return {}
    # A plan that stands alone is read as the plan of a mission.
    return {("plan", *place): line for place, line in lines.items()} if ("steps",) in lines else lines


def _walk(node: yaml.Node, place: _Place) -> Iterator[tuple[_Place, int]]:
    inner: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inner = [
            (str(key.value), key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        inner = [(str(nth), item, item) for nth, item in enumerate(node.value)]
    for name, at, value in inner:
        below = (*place, name)
        yield below, at.start_mark.line + 1
        yield from _walk(value, below)
