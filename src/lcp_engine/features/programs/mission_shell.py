"""Run a program of a person in the view that a command of a mission would have, at a terminal or not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lcp_engine.core.programs.walls import Step
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.command_places import remove_walls
from lcp_engine.features.programs.execution import Commands
from lcp_engine.features.programs.programs import PROGRAMS, ended_of
from lcp_engine.features.programs.run_command import run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.runner.confined.channel import Disconnected, Duty, Request, TimedOut
from lcp_engine.runner.confined.process import spawner
from lcp_engine.runner.open_missions import OpenMissions
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root import Root

_END_SECONDS = 10.0
_PLACES = "/usr/bin:/bin:/run/current-system/sw/bin"
"""The system's programs, not those of a project."""


@dataclass(frozen=True)
class Seat:
    """The place from which a person uses a program: its stdin, stdout and stderr, and variables.

    If these are a terminal, it becomes the program's own. `begins` is called before it starts with the number
    of paths that are hidden from it, None if these are not counted; `follow` while it runs, with a descriptor that can
    be read when it has ended; it may return before that, which ends the program.
    """

    standard: tuple[int, int, int]
    is_terminal: bool
    environment: Mapping[str, str]
    begins: Callable[[int | None], object]
    follow: Callable[[int], object]


def run_in_view(instance: Instance, mission_id: int, command: Sequence[str], seat: Seat) -> Ended:
    """Run a command in the view of a mission's commands, without network; what it changes is dropped.

    Raises `NOT_ISOLATED` where there are no namespaces for it, and `LcpError` for a mission without a root here.
    """
    missions = OpenMissions(instance, instance.roots())
    commands = Commands(instance, missions, confined_threads(instance.isolation))
    found: list[Ended] = []

    def run(root: Root, program: Program) -> Ended:
        found.append(_run(root, _for_person(program, seat), seat))
        return found[0]

    around = commands.surroundings_of_person(mission_id, run)
    ground = around.access.ground
    if ground is None or ground.found.step not in {Step.OVERLAY, Step.COPY}:
        found_reasons = () if ground is None else ground.found.reasons
        reasons = "; ".join(found_reasons) or "nothing is kept for commands here"
        message = f"a shell needs namespaces, which it cannot have here: {reasons}"
        advice = ground.found.advice if ground is not None else ""
        raise LcpError(
            ErrorCode.NOT_ISOLATED, message, advice=advice or "`lcp doctor` shows the wall that holds here."
        )
    try:
        run_behind_wall(command, replace(around, begins=seat.begins))
    finally:
        remove_walls(instance.database, instance.walls)  # of a mission that has ended
    return found[0]


def _for_person(program: Program, seat: Seat) -> Program:
    kept = {name: text for name, text in program.environment.items() if name != "NO_COLOR"}
    freed = replace(
        program,
        environment={**kept, **seat.environment},
        bounds=replace(program.bounds, seconds=None),
    )
    # Only within the namespaces can it be made the leader of a session whose numbers a shell understands.
    leader = shutil.which("setsid", path=_PLACES) if seat.is_terminal else None
    if leader is None:
        return freed
    return replace(freed, path=leader, arguments=(leader, "-c", program.path, *program.arguments[1:]))


def _run(root: Root, program: Program, seat: Seat) -> Ended:
    process = spawner().spawn(root, Duty.RUN, program.bounds.memory, confined=False)
    try:
        channel = process.connect(*seat.standard)
        try:
            channel.send({"do": Request.RUN, "program": PROGRAMS.dump_python(program, mode="json")})
            if seat.is_terminal:
                for one in set(seat.standard):
                    os.close(one)  # so that its end is seen at the other side of the terminal
            seat.follow(channel.fileno())
            return ended_of(*channel.receive(), program)
        finally:
            channel.close()
    except (Disconnected, TimedOut) as error:
        message = f"the process that runs {program.arguments[0]} died: {error}"
        raise LcpError(ErrorCode.WORKER_DIED, message) from error
    finally:
        process.wait_for_end(_END_SECONDS)  # it ends what the program has started first
        process.kill()
