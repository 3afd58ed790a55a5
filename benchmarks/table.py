"""Show figures: a table on a terminal, a page of Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import Figure

HEADS = ("what", "unit", "engine", "peer", "peer's", "value", "goal", "", "note")
METHOD = """\
Contenders take turns in {rounds} rounds of about {seconds:g} s each, all in one run on one machine; who begins changes
with each round. What the engine and a peer reached is a median over the rounds, a ratio the median of the rounds'
ratios. SQLite runs in WAL mode with `synchronous=FULL`, for the peers as for the engine, and PostgreSQL as the table
says; only beside a history do commits wait for no disk, so that an fsync hides nothing. Every drain checks that all its
jobs are done and all of its rows are there. Absolute figures belong to this machine at this hour; ratios count.
"""


def as_text(figures: Sequence[Figure]) -> str:
    """Columns, as wide as they have to be."""
    rows = [HEADS, *map(_cells, figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_page(figures: Sequence[Figure], machine: Mapping[str, str], rounds: int, seconds: float) -> str:
    """The table with what it was measured on, and how."""
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
