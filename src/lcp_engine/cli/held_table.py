"""Show many held jobs at a glance: how many of which kind, and where (pure but for the table)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from posixpath import dirname

from rich.table import Table

from lcp_engine.api.records import Job
from lcp_engine.cli.output import last_cell, make_table, until, when
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.core.summaries import subject
from lcp_engine.engine.reports.markdown import explain_reason

MANY = 10
"""From so many held jobs on, an overview comes first."""
MOST_GROUPS = 10


def overview(jobs: Sequence[Job]) -> Table:
    """A line for each kind and directory, the largest first."""
    groups = count_groups(jobs)
    table = make_table("jobs", "kind", "where", numbers=("jobs",))
    for kind, where, count in groups[:MOST_GROUPS]:
        table.add_row(f"{count:,}", one_line(shortened(kind, 30)), one_line(shortened(where, 60)))
    left = groups[MOST_GROUPS:]
    if left:
        table.add_row(f"{sum(count for _, _, count in left):,}", "…", f"in {len(left):,} other places")
    return table


def held_table(jobs: Sequence[Job], expiries: Mapping[int, str], *, of_one_mission: bool) -> Table:
    """Held jobs with how long they wait and why; nothing that is the same for all of them."""
    columns = ["id", "kind", "about", "held since", "why"]
    if not of_one_mission:
        columns.insert(1, "mission")
    if expires := any(job.id in expiries for job in jobs):
        columns.insert(-1, "expires")
    table = make_table(*columns, numbers=("id", "mission"))
    for job in jobs:
        table.add_row(
            str(job.id),
            *([] if of_one_mission else [str(job.mission_id)]),
            one_line(shortened(job.kind, 30)),
            shortened(subject(job.json), 50),
            when(str(job.json["created_at"])),
            *([until(expiries.get(job.id))] if expires else []),
            last_cell(shortened(explain_reason(job.reason or ""), 90)),
        )
    return table


def count_groups(jobs: Sequence[Job]) -> list[tuple[str, str, int]]:
    """Kind, directory, how many. Where directories are many, those at the top of the root stand for them."""
    paths = [(job.kind, _path(job)) for job in jobs]
    counts = Counter((kind, _directory(path)) for kind, path in paths)
    if len(counts) > MOST_GROUPS:
        counts = Counter((kind, _top(path)) for kind, path in paths)
    return [(kind, where, count) for (kind, where), count in counts.most_common()]


def _path(job: Job) -> str | None:
    return next((path for key in ("rel_path", "path") if isinstance(path := job.params.get(key), str)), None)


def _directory(path: str | None) -> str:
    return "" if path is None else f"{dirname(path) or '.'}/"


def _top(path: str | None) -> str:
    top, slash, rest = (path or "").partition("/")
    return f"{top}/{'…' if '/' in rest else ''}" if slash else _directory(path)
