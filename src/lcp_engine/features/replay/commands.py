"""Replay a mission, or fork it at a turn or a step (`lcp replay`, `lcp fork`)."""

from __future__ import annotations

from pathlib import Path

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import mission_ids, planner_names
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_out
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.safe_text import sentence
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.replay.fork import Forked
from lcp_engine.features.replay.replay import Replayed

MOST_BYTES = 4 * 1024 * 1024
MOST_SHOWN = 20


@click.command(
    "replay",
    cls=LcpCommand,
    examples=(
        "lcp replay 3",
        "lcp replay 3 --keep again; lcp show 1 --db sqlite:///again/replay.db",
    ),
)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Keep the scratch database and root in DIR, which must be empty.")  # fmt: skip
@pass_invocation
def replay_command(invocation: Invocation, mission: int, keep: Path | None) -> int:
    """Run the finished mission M again from its stored replies and results, and compare the jobs.

    No model is called and nothing outside a scratch directory is touched. Exit code 5: there are differences.
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


@click.command(
    "fork",
    cls=LcpCommand,
    examples=(
        "lcp fork 3 --turn 2 --planner openai",
        "lcp fork 3 --turn 2 --reply edited.json; lcp work --until-idle",
        "lcp fork 3 --step step-002",
    ),
)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@click.option("--turn", type=int, metavar="N", help="The turn to ask again.")
@click.option("--step", metavar="STEP", help="The step of a plan to begin again: its id, or its job.")
@click.option("--reply", type=click.Path(path_type=Path), metavar="FILE",
              help="Use the text of FILE as the reply instead of asking.")  # fmt: skip
@click.option(
    "--planner", shell_complete=planner_names, metavar="NAME", help="Use this planner from there on."
)
@pass_invocation
def fork_command(
    invocation: Invocation,
    *,
    mission: int,
    turn: int | None,
    step: str | None,
    reply: Path | None,
    planner: str | None,
) -> int:
    """Start a new mission from turn N or STEP of mission M, and print its id; a runner (`lcp work`) continues it.

    It has the history of M up to the question of turn N, or the first start of STEP, and works on the root as it is
    now: what had not ended by then is done again. Files that have changed since are listed on stderr.
    """
    if (turn is None) == (step is None):
        raise click.UsageError(
            "exactly one of --turn N and --step STEP is expected", click.get_current_context()
        )
    text = None if reply is None else _text(reply)
    spec = None if planner is None else PlannerSpec(type=planner)
    with invocation.engine() as engine:
        forked = engine.fork(mission, turn=turn, step=step, reply=text, planner=spec)
    if invocation.json:
        print_json(forked.as_json())
        return Exit.DONE
    print_out(str(forked.id))
    _print_changes(forked)
    if not invocation.quiet:
        point = f"turn {turn}" if step is None else f"job {step}" if step.isdigit() else step
        print_err(f"mission {forked.id} continues from {point} of mission {mission}: `lcp work --until-idle`")
    return Exit.DONE


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as refused:
        message = f"reply {str(file)!r} cannot be read: {refused.strerror}"
        code = ErrorCode.PATH_NOT_FOUND if isinstance(refused, FileNotFoundError) else ErrorCode.NOT_A_FILE
        raise LcpError(code, message, advice=GENERAL) from refused
    if len(data) > MOST_BYTES:
        message = f"reply {str(file)!r} is larger than {MOST_BYTES:,} bytes"
        raise LcpError(ErrorCode.TOO_LARGE, message, advice="Name a file with one reply.")
    # Like a planner's reply: one that is not UTF-8 is not valid, and leads to a corrective turn.
    return data.decode("utf-8", errors="backslashreplace")


def _print_changes(forked: Forked) -> None:
    for drift in forked.changed[:MOST_SHOWN]:
        print_err(sentence(str(drift)))
    if len(forked.changed) > MOST_SHOWN:
        print_err(f"and {len(forked.changed) - MOST_SHOWN} more")
    if forked.unknown:
        jobs = ", ".join(map(str, forked.unknown[:MOST_SHOWN]))
        print_err(f"these jobs saw things that cannot be compared: {jobs}")
