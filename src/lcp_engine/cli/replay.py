"""Run a mission again from its history (`lcp replay`)."""

from __future__ import annotations

from pathlib import Path

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import print_json, print_out
from lcp_engine.replay.replay import Replayed


@click.command(
    "replay",
    cls=LcpCommand,
    examples=(
        "lcp replay 3",
        "lcp replay 3 --keep /tmp/again; lcp show 1 --db sqlite:////tmp/again/replay.db",
    ),
)
@click.argument("mission", type=int, metavar="M")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Leave the scratch database and root in DIR, which has to be empty.")  # fmt: skip
@pass_invocation
def replay_command(invocation: Invocation, mission: int, keep: Path | None) -> int:
    """Run the finished mission M again from its stored replies and results, and compare the jobs.

    No model is asked and nothing outside a scratch directory is touched. Exit code 5: something came out differently.
    """
    with invocation.engine() as engine:
        replayed = engine.replay(mission, keep=keep)
    if invocation.json:
        print_json(replayed.as_json())
    else:
        print_out(_shown(replayed))
    return Exit.DONE if replayed.is_same else Exit.CONFLICT


def _shown(replayed: Replayed) -> str:
    size = f"{_count(replayed.jobs, 'job')}, {_count(replayed.questions, 'question')}"
    name = f"mission {replayed.mission_id}"
    if replayed.is_same:
        return f"{name} replays the same: {size}"
    lines = [f"  {difference}" for difference in replayed.differences]
    if replayed.stopped is not None:
        lines.append(f"  {replayed.stopped}")
    return "\n".join([f"{name} does not replay the same ({size}):", *lines])


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
