"""The tables of jobs, from the objects that `--json` prints: it does not matter who has read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from posixpath import dirname
from typing import TypeAlias

from lcp_engine.cli.console.output import until, when
from lcp_engine.cli.tables import Table, fact_column, id_column, number_column, text_column, whole_column
from lcp_engine.core.json_values import JsonValue, int_in, object_in
from lcp_engine.core.kinds import TURN
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.summaries import OF_ENDED, gist, subject

JobObject: TypeAlias = Mapping[str, JsonValue]
"""A job as `lcp jobs --json` prints it."""

MOST_GROUPS = 10
LONGEST = 4096
"""Characters of what a job is about: any path, but not any question."""
_WHY = 20
"""Terminal cells of the reason that stay, however narrow the terminal is."""


def jobs_table(jobs: Sequence[JobObject]) -> Table:
    """Jobs with their state and why they are in it, or their result."""
    table = Table([
        id_column("id"),
        id_column("mission"),
        number_column("turn", spare=0),
        text_column("kind"),
        text_column("about"),
        fact_column("state"),
        fact_column("created", spare=1),
        text_column("why or what", least=_WHY),
    ])  # fmt: skip
    for job in jobs:
        table.add(
            str(job["id"]),
            str(job["mission_id"]),
            str(job["turn"] or "-"),
            str(job["kind"]),
            subject(job, most=LONGEST),
            str(job["state"]),
            when(str(job["created_at"])),
            summarize(job),
        )
    return table


def held_table(
    jobs: Sequence[JobObject],
    expiries: Mapping[int, str],
    *,
    of_one_mission: bool,
    about: Callable[[JobObject], str] = subject,
    ended: Collection[int] = (),
) -> Table:
    """Held jobs with since when and why, and the mission unless it is named.

    `expiries` are times by job id, `ended` the missions that have.

    What a job is `about` stays whole: a person decides on it.
    """
    has_missions = not of_one_mission
    has_expiries = any(int_in(job["id"]) in expiries for job in jobs)
    table = Table([
        id_column("id"),
        *([id_column("mission")] if has_missions else []),
        text_column("kind"),
        whole_column("about"),
        fact_column("held since", spare=0),
        *([fact_column("expires", spare=1)] if has_expiries else []),
        text_column("why", least=_WHY),
    ])  # fmt: skip
    for job in jobs:
        table.add(
            str(job["id"]),
            *([str(job["mission_id"])] if has_missions else []),
            str(job["kind"]),
            about(job),
            when(str(job["created_at"])),
            *([until(expiries.get(int_in(job["id"])))] if has_expiries else []),
            explain_reason(str(job["reason"] or "")) + f"; {OF_ENDED}" * (job["mission_id"] in ended),
        )
    return table


def overview(jobs: Sequence[JobObject]) -> Table:
    """A row for each kind and directory, the largest group first."""
    groups = count_groups(jobs)
    table = Table([number_column("jobs"), text_column("kind"), text_column("where")])
    for kind, where, count in groups[:MOST_GROUPS]:
        table.add(f"{count:,}", kind, where)
    left = groups[MOST_GROUPS:]
    if left:
        table.add(f"{sum(count for _, _, count in left):,}", "…", f"in {len(left):,} other places")
    return table


def count_groups(jobs: Sequence[JobObject]) -> list[tuple[str, str, int]]:
    """Kind, directory and count; many directories are grouped by those at the top of the root."""
    paths = [(str(job["kind"]), _path(object_in(job["params"]))) for job in jobs]
    counts = Counter((kind, _directory(path)) for kind, path in paths)
    if len(counts) > MOST_GROUPS:
        counts = Counter((kind, _top(path)) for kind, path in paths)
    return [(kind, where, count) for (kind, where), count in counts.most_common()]


def summarize(job: JobObject) -> str:
    """Reason why a job is in its state, or its result, in short."""
    if job["error"] is not None:
        error = object_in(job["error"])
        return f"{error.get('error_code')}: {error.get('user_message', '')}"
    if job["reason"]:
        return explain_reason(str(job["reason"]))
    result = None if job["result"] is None else object_in(job["result"])
    if job["kind"] == TURN and result is not None:
        return words_of(result) or gist(result)
    return gist(result)


def words_of(result: Mapping[str, JsonValue]) -> str:
    """The first line of the planner's own words."""
    said = result.get("commentary") or result.get("summary") or result.get("error") or ""
    return str(said).strip().partition("\n")[0]


def _path(params: Mapping[str, JsonValue]) -> str | None:
    return next((path for key in ("rel_path", "path") if isinstance(path := params.get(key), str)), None)


def _directory(path: str | None) -> str:
    return "" if path is None else f"{dirname(path) or '.'}/"


def _top(path: str | None) -> str:
    top, slash, rest = (path or "").partition("/")
    return f"{top}/{'…' if '/' in rest else ''}" if slash else _directory(path)
