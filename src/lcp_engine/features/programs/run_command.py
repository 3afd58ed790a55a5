"""The kind `run_command`: run a program that the mission allows, behind the wall."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.spec import Commands, MissionSpec
from lcp_engine.core.programs.commands import allows, as_entry
from lcp_engine.core.programs.network import NO_NETWORK_GRANTED, NetworkGrant, granted
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.servers.external_worker import BehindWall, Keep, with_output
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.suites.verdicts import verdict_of
from lcp_engine.features.programs.wall.network.proxy import Proxy, Route, route_through
from lcp_engine.features.programs.wall.programs import Bounds, Ended, Program
from lcp_engine.features.programs.wall.toolchains import installed_place, joined_variables, toolchain_of
from lcp_engine.features.programs.wall.views.seen_root import ON_A_COPY, RootAccess, SeenRoot, seen_root
from lcp_engine.features.programs.wall_words import named_as_walls, said_of_commands
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.installed_programs import environment_of, found_program, is_in, places_of
from lcp_engine.sandbox.system.own_places import own_places
from lcp_engine.workers.base import Example, Kept, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, Result

if TYPE_CHECKING:
    from lcp_engine.engine.instance import Instance

MOST_SECONDS = 3600.0
_MOST_CHANGED = 100
_STOPPED = "nothing is kept of a command that was stopped"
_MOST_TOLD = 1000
"""Characters of output that a check which does not pass tells the planner."""


class RunCommandParams(Params):
    """The program with its arguments, one by one; there is no shell. It runs in the root."""

    command: list[Annotated[ContentText, Field(max_length=10_000)]] = Field(
        min_length=1, max_length=1000, description="The program and its arguments, such as [pytest, -q]."
    )


class RunCommandResult(Result):
    """How the program ended, and what it wrote: of long output the beginning and the end."""

    action: Literal["run_command_result"] = "run_command_result"
    exit_code: int | None
    """None if it did not end by itself."""
    ended: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """Why it has no exit code."""
    verdict: str | None = Field(default=None, exclude_if=lambda value: value is None)
    """The verdict of the tests or compilers that it ran, such as `1 failed, 12 passed`."""
    wall: list[str] = Field(default=[], exclude_if=lambda value: not value)
    """Reasons of a failure that are not the program's, but those of what confines it."""
    cpu_seconds: float | None = Field(default=None, exclude_if=lambda value: value is None)
    """Processor time of the program and all that it started."""
    stdout: str
    stderr: str
    changed: list[str] = Field(default=[], exclude_if=lambda value: not value)
    """Files that it changed; outside of a stage the root is as it was."""
    total_changed: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """The number of its changes, if they are more than those that are named."""
    left_out: list[str] = Field(default=[], exclude_if=lambda value: not value)
    """Those of its changes that are neither kept nor held, each with the reason."""
    held_as_job: int | None = Field(default=None, exclude_if=lambda value: value is None)
    """The job that brings its changes into the root, once a person approves it; commands do not see them before."""

    @property
    def how(self) -> str:
        """How it ended, with its verdict and the end of what it wrote, for people and planners."""
        end = (self.stdout + self.stderr).strip()[-_MOST_TOLD:]
        how = self.ended or f"exit code {self.exit_code}"
        return ": ".join(filter(None, (how, self.verdict, *self.wall, end)))


@dataclass(frozen=True)
class Surroundings:
    """Surroundings of a command: what it may see of the root, and what the mission says of commands."""

    access: RootAccess
    commands: Commands
    readable: Sequence[str]
    """What may be read and executed beside the system's programs."""
    run: Callable[[Root, Program], Ended]
    texts: Mapping[str, str] = field(default_factory=dict)
    """What the program finds in files, each named by a variable of its environment."""
    network: NetworkGrant = NO_NETWORK_GRANTED
    """What it may reach of the network."""
    begins: Callable[[int | None], object] = lambda masked: None
    """Called before it runs with the number of paths that are hidden from it, None if that is not known."""

    @property
    def root(self) -> Root:
        return self.access.root


def refuse_unallowed(command: Sequence[str], commands: Commands) -> None:
    """Raises `NOT_ALLOWED` for a command of a job that its mission does not allow."""
    if not allows(commands.allow, command):
        reason = because(ReasonCode.COMMAND, entry=as_entry(command))
        message = f"{command[0]} is not allowed: {reason}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)


def run_behind_wall(command: Sequence[str], around: Surroundings) -> RunCommandResult:
    """Run a command over the root, or on a copy where that is all that the wall can do; what it changes is dropped.

    Raises `PATH_NOT_FOUND` if there is no such program, `TOO_LARGE`, `FILE_SYSTEM`, `NOT_ISOLATED`, and what
    `Surroundings.run` raises.
    """
    result = run_and_keep(command, around, None).result
    assert isinstance(result, RunCommandResult)
    return result


def run_and_keep(command: Sequence[str], around: Surroundings, keep: Keep | None) -> Kept:
    """Like `run_behind_wall`, but `keep` is called if it runs over the root and ends by itself.

    Raises what `keep` raises, too.
    """
    with seen_root(around.access, command[0]) as seen:
        around.begins(None if seen.place is None else len(seen.masked))
        ended, refused = _run(command, seen, around)
        result = _result(command, ended, refused, seen, around)
        if seen.place is None:
            assert seen.copy is not None
            result = _naming(result, *seen.copy.changed())
            return Kept(result if keep is None else _dropped(result, ON_A_COPY))
        changes = seen.place.changes()
        result = _naming(result, [one.path for one in changes.changes], changes.more)
        if ended.stopped is not None:
            return Kept(result if keep is None else _dropped(result, _STOPPED), is_whole=False)
        dropped = Kept(result, is_whole=not changes.changes)
        kept = dropped if keep is None else keep(seen.place, changes, result)
        return with_output(kept, seen.place, changes, keeps_caches=ended.signal is None)


def _naming(result: RunCommandResult, changed: Sequence[str], more: int) -> RunCommandResult:
    """The result with what the command changed; there are more changes than these."""
    total = len(changed) + more if len(changed) > _MOST_CHANGED else None
    return result.model_copy(update={"changed": [*changed[:_MOST_CHANGED]], "total_changed": total})


def _dropped(result: RunCommandResult, why: str) -> RunCommandResult:
    more = (result.total_changed or 0) - len(result.changed)
    named = [*result.changed, *([f"{more:,} more"] if more > 0 else [])]
    return result.model_copy(update={"left_out": [f"{one}: {why}" for one in named]})


def _run(command: Sequence[str], seen: SeenRoot, around: Surroundings) -> tuple[Ended, Sequence[str]]:
    """The end of a command, and the hosts that it was refused."""
    program = program_in(command, seen, around)
    if not around.network.hosts:
        return around.run(around.root, program), ()
    if program.view is None:
        message = f"{command[0]} may reach some hosts alone, and the wall here cannot hold it to that"
        helps = around.access.ground.found.advice if around.access.ground is not None else ""
        advice = f"{helps} Or remove commands.network from the mission.".strip()
        raise LcpError(ErrorCode.NOT_ISOLATED, message, advice=advice)
    with Proxy(around.network.hosts, seen.home.parent / "proxy") as proxy:
        if program.view.user is not None:
            os.chown(proxy.place, *program.view.user)
        return around.run(around.root, routed(program, route_through(proxy))), proxy.refused


def routed(program: Program, route: Route) -> Program:
    """The program behind one that leads it to its proxy."""
    assert program.view is not None
    return replace(
        program,
        path=route.prefix[0],
        arguments=(*route.prefix, program.path, *program.arguments),
        environment=joined_variables(route.environment, program.environment),
        view=replace(program.view, binds=(*program.view.binds, *route.binds)),
    )


def program_in(
    command: Sequence[str], seen: SeenRoot, around: Surroundings, *, runs_others: bool = False
) -> Program:
    """A command as the program that it is in what it sees; one that `runs_others` finds all that PATH has.

    Raises `PATH_NOT_FOUND`.
    """
    path = found_program(command[0], Path(seen.directory))
    foreign = (*seen.owned, *around.root.places)
    # What lies in the root is in the copy, or above it, as far as it may be read.
    installed = [place for place in places_of(path, foreign=foreign) if not is_in(foreign, place)]
    toolchain = toolchain_of(
        path,
        Path.home(),
        os.environ,
        foreign=foreign,
        own_home=seen.home_path,
        can_write=seen.place is not None,
        runs_others=runs_others,
    )
    is_shown = is_in(foreign, path) or any(Path(path).is_relative_to(one) for one in installed)
    itself = () if is_shown else (path,)  # such as a link in a directory of links
    installed_parts = (part for one in installed for part in installed_place(one).parts)
    toolchain_parts = (part for one in toolchain.places for part in one.parts if seen.view is None)
    hidden = (*own_places(), str(Path.home()), *around.root.places)
    temporary = seen.home_path if seen.view is None else "/tmp"  # noqa: S108 -- it has its own
    return Program(
        path=path,
        arguments=tuple(command),
        directory=seen.directory,
        environment=joined_variables(
            environment_of(Path(seen.home_path)),
            {"TMPDIR": temporary},
            toolchain.variables,
            around.commands.environment,
            _files_with(around.texts, seen.home, Path(seen.home_path)),
        ),
        owned=seen.owned,
        readable=(*itself, *installed_parts, *toolchain_parts, *around.readable),
        packages=seen.packages,
        listed=seen.listed,
        hidden=seen.hidden(hidden),
        bounds=Bounds(seconds=min(around.commands.seconds, MOST_SECONDS)),
        network=around.network.is_host,
        tool=seen.tool,
        view=seen.with_toolchain(toolchain, is_host=around.network.is_host),
    )


def _result(
    command: Sequence[str], ended: Ended, refused: Sequence[str], seen: SeenRoot, around: Surroundings
) -> RunCommandResult:
    """The result of a command, which does not name yet what it changed."""
    stdout, stderr = (seen.told(_text(each)) for each in (ended.stdout, ended.stderr))
    of_wall = named_as_walls(
        stdout, stderr, ended.exit_code, step=seen.step, masked=seen.masked, network=around.network.is_host
    )
    of_git = [seen.without_git] if seen.without_git and re.search(r"\bgit\b", stderr) else []
    return RunCommandResult(
        exit_code=ended.exit_code,
        ended=_why(ended),
        verdict=verdict_of(command, ended.exit_code, stdout, stderr),
        wall=[*of_wall, *(f"{one}: refused; the mission may not reach it" for one in refused), *of_git],
        stdout=stdout,
        stderr=stderr,
        cpu_seconds=ended.cpu_seconds,
    )


def _files_with(texts: Mapping[str, str], place: Path, seen_at: Path) -> dict[str, str]:
    """Write each text into a file in `place`; the files as they are seen, by the variables that name them."""
    for name, text in texts.items():
        (place / name.lower()).write_text(text, encoding="utf-8")
    return {name: str(seen_at / name.lower()) for name in texts}


def _why(ended: Ended) -> str | None:
    if ended.stopped is not None:
        return f"{ended.stopped}, and was stopped"
    return None if ended.signal is None else f"signal {ended.signal}"


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _in_mission(spec: MissionSpec) -> str:
    from lcp_engine.engine.points import root_provider  # who only looks for kinds loads no SQL

    network = spec.commands.network
    said = said_of_commands(
        "stage" if root_provider().is_private(spec) else spec.commands.changes,
        "host" if network.is_host else network.hosts,
    )
    return f"{said} Allowed: {'; '.join(map(as_entry, spec.commands.allow))}"


WORKER = Worker(
    kind="run_command",
    params=RunCommandParams,
    result=RunCommandResult,
    execute=refuse_to_execute("a command is run by the runner, in a mission that allows it"),
    description="Run a program, such as the tests, in the root.",
    role=KindRole.RUNS,
    timeout=MOST_SECONDS + 300,
    execution=BehindWall(),
    command=lambda params: tuple(params.command),
    in_mission=_in_mission,
    denied_as=("read_file", "list_files"),
    examples=(
        Example(
            params={"command": ["pytest", "-q"]},
            result={"exit_code": 0, "stdout": "1 passed", "stderr": ""},
            is_run=False,
        ),
    ),
)


def check_mission(instance: Instance, spec: MissionSpec) -> None:
    """Raise `NOT_ALLOWED` for a network that the user does not allow."""
    granted(spec.commands.network, instance.settings(ProgramSettings).commands_network)
