"""Find the lines of a mission file that its errors are about, to mark them in the text. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import yaml

from lcp_engine.errors import LcpError

_LINE = re.compile(r"\bline (\d+)\b")
_PATH = re.compile(r"([\w-]+(?:\.[\w-]+)*): ")
AROUND = 2
"""Lines that are shown above and below a marked one."""


@dataclass(frozen=True)
class Fault:
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


def faults_in(text: str, refused: LcpError) -> list[Fault]:
    """Every error of a mission that was refused, with its line."""
    stated = refused.failed.details.get("problems")
    problems = [str(problem) for problem in stated] if isinstance(stated, list) else []
    if not problems:
        line = _LINE.search(str(refused))
        return [Fault(str(refused), int(line[1]) if line else None)]
    lines = _lines_by_path(text)
    return [Fault(problem, _line_of(problem, lines)) for problem in problems]


def marked_lines(text: str, faults: Sequence[Fault]) -> list[Line]:
    """The lines that are marked, with some around each; those without a line mark nothing."""
    lines = text.split("\n")
    marked = {fault.line for fault in faults if fault.line is not None}
    shown = sorted({at for line in marked for at in range(line - AROUND, line + AROUND + 1)})
    kept = [at for at in shown if 1 <= at <= len(lines)]
    return [
        Line(at, lines[at - 1], at in marked, gap=before is not None and at != before + 1)
        for before, at in zip([None, *kept], kept, strict=False)
    ]


def _line_of(problem: str, lines: dict[str, int]) -> int | None:
    """The line of the path that the problem begins with, or of what it would lie in."""
    named = _PATH.match(problem)
    path = named[1] if named else ""
    while path and path not in lines:
        path = path.rpartition(".")[0]
    return lines.get(path)


def _lines_by_path(text: str) -> dict[str, int]:
    """The line of each key and item, by its path; empty if the text is not YAML, or nested too deeply."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        return dict(_walk(root, "")) if root is not None else {}
    except (yaml.YAMLError, RecursionError):
        return {}


def _walk(node: yaml.Node, path: str) -> Iterator[tuple[str, int]]:
    inner: list[tuple[str, yaml.Node, yaml.Node]] = []
    if isinstance(node, yaml.MappingNode):
        inner = [
            (str(key.value), key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)
        ]
    elif isinstance(node, yaml.SequenceNode):
        inner = [(str(place), item, item) for place, item in enumerate(node.value)]
    for name, at, value in inner:
        below = f"{path}.{name}" if path else name
        yield below, at.start_mark.line + 1
        yield from _walk(value, below)
