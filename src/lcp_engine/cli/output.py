"""Put things on the terminal: nothing that a file or a planner names can steer it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

from lcp_engine.core.safe_text import Printable, json_block, json_line, one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text
    from rich.tree import Tree

COLOURS = {
    "held": "yellow", "blocked": "yellow", "queued": "cyan", "running": "cyan", "succeeded": "green", "failed": "red",
    "rejected": "red", "skipped": "dim", "cancelled": "dim", "waiting": "yellow", "completed": "green",
}  # fmt: skip


def print_json(value: Printable) -> None:
    """Print the one value of `--json`: for eyes on a terminal, on one line for programs."""
    print_out(json_block(value) if sys.stdout.isatty() else json_line(value))


def print_json_line(value: Printable) -> None:
    """Print one of many objects, at once."""
    print_out(json_line(value))
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


def print_wide(shown: Table | Tree) -> None:
    """Print a table or a tree as wide as the terminal, or as wide as it needs to be where nobody looks."""
    console = make_console(sys.stdout)
    if not sys.stdout.isatty():
        console.width = 1000
    with console.capture() as captured:
        console.print(shown, soft_wrap=False)
    print_out("\n".join(line.rstrip(" ") for line in captured.get().split("\n")))


def until(at: str | None) -> str:
    """How long it is until then on a terminal; the time itself for programs."""
    if at is None or not sys.stdout.isatty():
        return at or "-"
    from lcp_engine.core.summaries import duration

    seconds = seconds_until(at, datetime.now(UTC))
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def seconds_until(at: str, now: datetime) -> float:
    """Seconds from `now` to a time in ISO 8601; negative where it has passed."""
    return (datetime.fromisoformat(at) - now).total_seconds()


def when(at: str | None) -> str:
    """An age on a terminal; the time itself for programs."""
    if at is None or not sys.stdout.isatty():
        return at or "-"
    from lcp_engine.core.summaries import age

    return age(at, datetime.now(UTC))
