"""Look at file effects (`lcp changes`)."""

from __future__ import annotations

from collections.abc import Mapping

import click
from pydantic import JsonValue

from lcp_engine.cli.command import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exits import Exit
from lcp_engine.cli.screen import last_cell, make_table, print_json, print_out, print_wide
from lcp_engine.store.text import JsonObject
from lcp_engine.visible import one_line
from lcp_engine.wording import size


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
