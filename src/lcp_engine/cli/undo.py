"""Look at file effects and take them back (`lcp changes`, `lcp undo`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import last_cell, make_table, print_json, print_out, print_wide
from lcp_engine.core.safe_text import one_line
from lcp_engine.core.summaries import size
from lcp_engine.store.db.json_text import JsonObject

if TYPE_CHECKING:
    from lcp_engine.runner.undo import Undo


@click.command("changes", cls=LcpCommand, examples=("lcp changes 3", "lcp changes 3 --json"))
@click.argument("mission", type=int, metavar="M")
@pass_invocation
def changes_command(invocation: Invocation, mission: int) -> int:
    """List what mission M did to files, in order: by which job, to which size, and what became of it.

    An intent is a change that was begun and not confirmed; one that is void never happened; one in conflict met a file
    that somebody else had changed.
    """
    with invocation.engine() as engine:
        engine.mission(mission)
        found = engine.changes(mission)
    if invocation.json:
        print_json([*found])
    elif found:
        _print_changes(found)
    else:
        print_out(f"mission {mission} has changed no file")
    return Exit.DONE


@click.command("undo", cls=LcpCommand, examples=("lcp undo 3 --dry-run", "lcp undo 3", "lcp undo --job 14"))
@click.argument("mission", type=int, metavar="[M]", required=False)
@click.option("--job", type=int, metavar="J", help="Take back what job J did, instead of a whole mission.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be done; do nothing.")
@pass_invocation
def undo_command(invocation: Invocation, mission: int | None, job: int | None, dry_run: bool) -> int:
    """Bring files back to what they were before mission M, or before job J.

    All files or none: where one is not what the last change left, or a later job has changed it, nothing is done, and
    the exit code is 5. An undo is a job itself: `lcp undo --job` of it takes it back.
    """
    if (mission is None) == (job is None):
        raise click.UsageError("exactly one of M and --job J is expected", click.get_current_context())
    with invocation.engine() as engine:
        done = engine.undo(mission, job_id=job, dry_run=dry_run)
    if invocation.json:
        print_json(done.json)
    else:
        _print_undo(done, f"mission {mission}" if job is None else f"job {job}")
    return Exit.DONE


_WORDS = {"created": "put back", "changed": "restored", "removed": "removed"}


def _print_undo(done: Undo, name: str) -> None:
    if done.resumed is not None and not done.dry_run:
        print_out(f"job {done.resumed}, an undo that was interrupted, is finished")
    for file in done.files:
        word = _WORDS[str(file["change"])]
        print_out(f"{one_line(str(file['path']))} {f'would be {word}' if done.dry_run else word}")
    if not done.files:
        print_out(f"{name} has nothing to undo")
    elif not done.dry_run:
        print_out(f"`lcp undo --job {done.job_id}` takes that back")


def _print_changes(changes: list[JsonObject]) -> None:
    table = make_table("job", "change", "size", "state", "path", numbers=("job", "size"))
    for change in changes:
        table.add_row(
            str(change["job_id"]),
            str(change["change"]),
            _sizes(change),
            _state(change),
            last_cell(one_line(str(change["path"]))),
        )
    print_wide(table)


def _sizes(change: Mapping[str, JsonValue]) -> str:
    """The size before, where there was a file, and after, where there is one."""
    both = (
        change["size_before"],
        None if change["sha256_after"] is None else change["size_bytes"],
    )
    return " → ".join(size(one) if isinstance(one, int) else "-" for one in both)


def _state(change: Mapping[str, JsonValue]) -> str:
    state = str(change["state"])
    if change["undone_by"] is not None:
        return f"undone by job {change['undone_by']}"
    if change["undoes"] is not None:
        state = f"{state}, an undo"
    return state if change["has_pre_image"] else f"{state}, cannot be undone"
