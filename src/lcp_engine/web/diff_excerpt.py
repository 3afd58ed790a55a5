"""Cut diffs to what a page shows at once (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lcp_engine.changes.unified_diff import Diff
from lcp_engine.core.safe_text import block, shortened

IN_A_LIST = 120
"""Lines of a diff beside others; the rest is on a page of its own."""
ALONE = 2_000
LONGEST_LINE = 2_000
FOLDED_ABOVE = 30

_CLASSES: Mapping[str, str] = MappingProxyType({"+": "add", "-": "del", "@": "hunk", "\\": "mark"})


@dataclass(frozen=True)
class Line:
    """A line as it is read, sign first; `look` is its class in the style sheet."""

    text: str
    look: str


@dataclass(frozen=True)
class Drawn:
    """A diff on a page. `omitted` lines are not in it."""

    path: str
    note: str | None
    added: int
    removed: int
    lines: Sequence[Line]
    omitted: int

    @property
    def is_long(self) -> bool:
        return len(self.lines) > FOLDED_ABOVE


def drawn(diff: Diff, most: int = IN_A_LIST) -> Drawn:
    """The first `most` lines of a diff without its two headers, which the page says in words."""
    body = diff.lines[2:]
    lines = [Line(_text(line), _CLASSES.get(line[:1], "same")) for line in body[:most]]
    return Drawn(diff.path, diff.note, diff.added, diff.removed, lines, max(0, len(body) - most))


def patch(diffs: Sequence[Diff]) -> str:
    """Diffs as text, however long."""
    return "".join(diff.text or f"# {block(diff.path)}: {block(diff.note or '')}\n" for diff in diffs)


def _text(line: str) -> str:
    return shortened(line, LONGEST_LINE)
