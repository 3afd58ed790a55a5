"""Follow what happens (`lcp watch`)."""

from __future__ import annotations

import time

import click

from lcp_engine.api import Engine
from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.event_lines import Narrator
from lcp_engine.cli.event_stream import Follower
from lcp_engine.cli.exit_codes import Exit, exit_of_mission
from lcp_engine.cli.output import make_console, print_json_line
from lcp_engine.store.db.json_text import JsonObject

LOOK_SECONDS = 0.2


@click.command("watch", cls=LcpCommand)
@click.argument("mission", type=int, required=False, metavar="[M]")
@pass_invocation
def watch_command(invocation: Invocation, mission: int | None) -> int:
    """Print what happens in mission M from its start, until it ends or waits; without M, in all from now on.

    The exit code is that of `lcp run`; without M it goes on until it is interrupted.
    """
    with invocation.engine() as engine:
        follower = Follower(engine, mission, past=mission is not None)
        narrator = Narrator(engine, verbose=invocation.verbose, names_mission=mission is None)
        while True:
            # Asked before the events are read: what happened until then is among them.
            end = None if mission is None else _exit_at_rest(engine, mission)
            for event in follower.news():
                _print(event, None if invocation.json else narrator)
            if end is not None:
                return end
            time.sleep(LOOK_SECONDS)


def _exit_at_rest(engine: Engine, mission_id: int) -> Exit | None:
    """The exit code of a mission that has ended and has nothing running, or that waits."""
    mission = engine.mission(mission_id)
    counts = mission.jobs
    if mission.status == "running" or counts.get("queued", 0) + counts.get("running", 0):
        return None
    return exit_of_mission(mission.status, mission.outcome)


def _print(event: JsonObject, narrator: Narrator | None) -> None:
    import sys

    if narrator is None:
        print_json_line(event)
        return
    line = narrator.line(event)
    if line is not None:
        make_console(sys.stdout).print(line)
        sys.stdout.flush()
