"""Format figures as a table for a terminal or as a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure

HEADS = ("what", "unit", "engine", "peer", "peer's", "value", "goal", "", "note")
METHOD = """\
Contenders take turns in {rounds} rounds of about {seconds:g} s each, all in one run on one machine; a different one
starts each round. The figures of the engine and of a peer are medians over the rounds, a ratio is the median of the
rounds' ratios. SQLite runs in WAL mode with `synchronous=FULL` for the peers and the engine alike, PostgreSQL as the
table says; only the cases about history commit without waiting for the disk, so that an fsync hides nothing. Every
drain checks that all jobs are done and all rows are stored. Absolute figures hold for this machine at this time; the
ratios are what counts.
"""


def as_text(figures: Sequence[Figure]) -> str:
    """Columns as wide as their contents."""
    rows = [HEADS, *map(_cells, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_page(figures: Sequence[Figure], machine: Mapping[str, str], rounds: int, seconds: float) -> str:
    """The table, the machine that was measured, and the method."""
    rows = [HEADS, tuple("---" for _ in HEADS), *map(_cells, figures)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    about = "\n".join(f"| {name} | {value} |" for name, value in machine.items())
    method = METHOD.format(rounds=rounds, seconds=seconds)
    return (
        "# Figures\n\nWritten by `make bench`.\n\n"
        f"{table}\n\n## Machine\n\n| | |\n| --- | --- |\n{about}\n\n## Method\n\n{method}"
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.what,
        figure.unit,
        _number(figure.ours),
        figure.peer,
        _number(figure.theirs),
        "" if figure.value is None else f"{figure.value:.2f}",
        "" if figure.goal is None else str(figure.goal),
        figure.verdict,
        figure.note,
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
