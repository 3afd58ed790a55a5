"""Put things on the terminal: nothing that a file or a planner names can steer it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Printable: TypeAlias = Mapping[str, object] | Sequence[object]

# Controls, and what reorders or hides text: escape sequences, bidirectional overrides, lone surrogates.
_UNSEEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_BLOCK = re.compile(f"[{_UNSEEN}]")
_IN_LINE = re.compile(f"[\t\n{_UNSEEN}]")
_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

COLOURS = {
    "held": "yellow", "blocked": "yellow", "queued": "cyan", "running": "cyan", "succeeded": "green", "failed": "red",
    "rejected": "red", "skipped": "dim", "cancelled": "dim", "waiting": "yellow", "completed": "green",
}  # fmt: skip


def one_line(text: str) -> str:
    """`text` on one line, with everything that is no visible character escaped."""
    return _IN_LINE.sub(_escape, text)


def block(text: str) -> str:
    """`text` with its lines, and everything else that is no visible character escaped."""
    return _IN_BLOCK.sub(_escape, text)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _escape(found: re.Match[str]) -> str:
    known = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}
    code = ord(found[0])
    return known.get(found[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def dump(value: Printable, *, pretty: bool = False) -> str:
    """`value` as JSON that a terminal may show."""
    separators = None if pretty else (",", ":")
    text = json.dumps(
        value, ensure_ascii=False, indent=2 if pretty else None, separators=separators, default=list
    )
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def print_json(value: Printable) -> None:
    """Print the one value of `--json`: for eyes on a terminal, on one line for programs."""
    print_out(dump(value, pretty=sys.stdout.isatty()))


def print_json_line(value: Printable) -> None:
    """Print one of many objects, at once."""
    print_out(dump(value))
    sys.stdout.flush()


def print_out(text: str) -> None:
    """Print data."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")


def make_console(stream: TextIO) -> Console:
    """A console that takes nothing in a text for an order: no markup, no emoji names, no highlighting."""
    from rich.console import Console

    return Console(file=stream, markup=False, emoji=False, highlight=False, soft_wrap=True)


def coloured(word: str) -> Text:
    """A state or status in its colour."""
    from rich.text import Text

    return Text(word, style=COLOURS.get(word, ""))


def make_table(*columns: str, numbers: Sequence[str] = ()) -> Table:
    """An open table; the columns of `numbers` are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify = "right" if column in numbers else "left"
        table.add_column(column, justify=justify, no_wrap=column != columns[-1])  # type: ignore[arg-type]  # rich wants the literals
    return table


def last_cell(text: str) -> Text:
    """The text of a last column, which is cut where the terminal ends."""
    from rich.text import Text

    return Text(one_line(text), no_wrap=True, overflow="ellipsis")


def print_table(table: Table) -> None:
    """Print a table as wide as the terminal, or as wide as it needs to be where nobody looks."""
    console = make_console(sys.stdout)
    if not sys.stdout.isatty():
        console.width = 1000
    console.print(table, soft_wrap=False)


def age(at: str | None, *, now: datetime | None = None) -> str:
    """How long ago that was, in the largest unit."""
    if at is None:
        return "-"
    seconds = max(0, int(((now or datetime.now(UTC)) - datetime.fromisoformat(at)).total_seconds()))
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def when(at: str | None) -> str:
    """An age on a terminal; the time itself for programs."""
    return age(at) if sys.stdout.isatty() else (at or "-")


def size(count: int) -> str:
    """Bytes for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
