"""List the decisions of people over all missions (`lcp decisions`)."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, length_of, pass_invocation
from lcp_engine.cli.commands.completion import mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, when
from lcp_engine.cli.tables import Table, fact_column, id_column, print_table, text_column
from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.decisions.calls import Decision

DEFAULT_LIMIT = 50
_DATE = re.compile(r"\d{4}-\d\d-\d\d.*")


@click.command(
    "decisions",
    cls=LcpCommand,
    examples=("lcp decisions --since 7d", "lcp decisions --by alice --kind write_file --json"),
)
@click.option("--by", metavar="PERSON", help="Only those of this person.")
@click.option("--kind", metavar="KIND", help="Only those on jobs of this kind.")
@click.option(
    "--mission", type=int, shell_complete=mission_ids, metavar="M", help="Only those of this mission."
)
@click.option("--since", metavar="WHEN", help="Only those of the last 12h or 7d, or since 2026-11-20.")
@click.option("--until", metavar="WHEN", help="Only those before, given like --since.")
@click.option("--behind", metavar="PLACE", help="Older ones, from the place that a list says it ends at.")
@click.option(
    "--limit", type=Count(1), metavar="N", default=DEFAULT_LIMIT, show_default=True, help="At most N."
)
@pass_invocation
def decisions_command(
    invocation: Invocation, *, by: str | None, kind: str | None, mission: int | None, since: str | None,
    until: str | None, behind: str | None, limit: int,
) -> int:  # fmt: skip
    """List what people have approved, rejected and answered, the newest first, with their words.

    `consent` is an approval that did not let the job run yet, since others are needed. *shown* is the file that the
    approval was about, and how much of it had not been on the person's screen, as far as that is known.
    """
    with invocation.history() as history:
        found = history.decisions(
            by=by, kind=kind, mission_id=mission, since=_time("--since", since), until=_time("--until", until),
            behind=behind, limit=limit,
        )  # fmt: skip
    if invocation.json:
        print_json({"decisions": [one.json for one in found.rows], "behind": found.behind})
        return Exit.DONE
    print_table(_table(found.rows), sys.stdout)
    if not invocation.quiet:
        if not found.rows:
            print_err("No decisions.")
        if found.behind is not None:
            print_err(f"older ones: --behind {found.behind}")
    return Exit.DONE


def _table(rows: Sequence[Decision]) -> Table:
    columns = (
        fact_column("WHEN"), text_column("BY"), fact_column("DECISION"), id_column("JOB"), text_column("ABOUT"),
        text_column("WORDS"), text_column("SHOWN", spare=1), id_column("MISSION"),
    )  # fmt: skip
    table = Table(columns)
    for one in rows:
        how = f"{one.decision}, edited" if one.other_params else one.decision
        table.add(
            when(one.at), one_line(one.by), how, "-" if one.job_id is None else str(one.job_id),
            one_line(f"{one.kind} {one.about}"), one_line(" ".join(one.words.split())) or "-", _shown(one) or "-",
            str(one.mission_id),
        )  # fmt: skip
    return table


def _shown(one: Decision) -> str:
    unseen = "" if not one.unseen else f"{one.unseen:,} of {one.lines or 0:,} lines not seen"
    return one_line("; ".join(filter(None, (one.path, unseen))))


def _time(option: str, text: str | None) -> Micros | None:
    """The time that an option names: a length of time before now, or a date in the zone of this process."""
    if text is None:
        return None
    try:
        if _DATE.fullmatch(text):
            at = datetime.fromisoformat(text).astimezone(UTC)
        else:
            at = datetime.now(UTC) - length_of(option, text, "12h or 7d")
    except (LcpError, ValueError, OverflowError) as refused:
        message = f"{option} {text!r} is neither a length of time, such as 12h or 7d, nor a date, such as 2026-11-20"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    return int(at.timestamp() * SECOND)
