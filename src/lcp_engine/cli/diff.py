"""Show what is changed (`lcp diff`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

import click
from rich.console import Console
from rich.text import Text

from lcp_engine.changes.unified_diff import Diff
from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.error_output import tell
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import make_console, print_json
from lcp_engine.cli.prompt_io import page
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.engine.reports.markdown import TURN_KIND

_STYLES = {"-": "red", "+": "green", "@": "cyan", "\\": "dim"}


@click.command(
    "diff",
    cls=LcpCommand,
    examples=(
        "lcp diff 12            what held job 12 would change now, or what job 12 has changed",
        "lcp diff --mission 3   what mission 3 has changed, each file from its first content to its last",
    ),
)
@click.argument("job", type=int, metavar="[J]", required=False)
@click.option("--mission", type=int, metavar="M", help="Everything that mission M has changed.")
@pass_invocation
def diff_command(invocation: Invocation, job: int | None, mission: int | None) -> int:
    """Show what job J would change, or has changed, as a unified diff.

    What you see of a held job is what your approval of it binds to. A turn changes no file: where job J is one, J is
    read as the number of a mission.
    """
    if (job is None) == (mission is None):
        raise click.UsageError(
            "exactly one of a job and --mission M is expected", click.get_current_context()
        )
    with invocation.engine() as engine:
        found = None if job is None else engine.job(job)
        if found is not None and found.kind == TURN_KIND:
            mission = engine.mission(found.id).id
            if not (invocation.quiet or invocation.json):
                tell(f"job {mission} is a turn, which changes no file; this is mission {mission}")
            found = None
        if found is not None:
            diffs = engine.diff(found.id)
            of = {"job_id": found.id, "mission_id": found.mission_id, "state": found.state}
        else:
            of = {"job_id": None, "mission_id": mission, "state": None}
            diffs = engine.mission_diff(mission or 0)
    if invocation.json:
        print_json({**of, "files": [diff.json for diff in diffs]})
    elif diffs:
        print_diffs(diffs)
    elif not invocation.quiet:
        tell(f"job {job} changes no file" if found is not None else f"mission {mission} has changed no file")
    return Exit.DONE


def print_diffs(diffs: Sequence[Diff]) -> None:
    """Diffs on stdout: coloured on a terminal, and in a pager where they are longer than it."""
    console = make_console(sys.stdout)
    if not (sys.stdout.isatty() and sys.stdin.isatty()):
        show_diffs(console, diffs)
        return
    page(lambda shown: show_diffs(shown, diffs))


def show_diffs(console: Console, diffs: Sequence[Diff]) -> None:
    """Diffs on any console; what a path or a file holds cannot steer it."""
    for diff in diffs:
        if not diff.lines:
            console.print(Text(f"{one_line(diff.path)}: {one_line(diff.note or '')}".removeprefix(": ")))
            continue
        for number, line in enumerate(diff.lines):
            style = "bold" if number < 2 else _STYLES.get(line[:1], "")
            console.print(Text(_visible(line), style=style))
        if diff.note is not None:
            console.print(Text(f"({one_line(diff.note)})", style="yellow"))


def show_excerpt(console: Console, diffs: Sequence[Diff], most: int) -> int:
    """The first lines of diffs, each at most three lines of the terminal long; how many are left out."""
    room, width = most, 3 * console.width
    for diff in diffs:
        lines = tuple(shortened(line, width) for line in diff.lines[:room])
        room -= len(lines)
        show_diffs(console, [replace(diff, lines=lines)])
    return sum(len(diff.lines) for diff in diffs) - (most - room)


def _visible(line: str) -> str:
    """A line with its tabs, and everything else that is no visible character escaped."""
    return "\t".join(map(one_line, line.split("\t")))
