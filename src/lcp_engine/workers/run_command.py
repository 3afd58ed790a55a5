"""The kind `run_command`: run a program that the mission allows, on a copy of the root."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from lcp_engine.core.commands import allows, as_entry
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.spec import Commands
from lcp_engine.core.network import NO_NETWORK_GRANTED, NetworkGrant
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.core.verdicts import verdict_of
from lcp_engine.core.wall_words import named_as_walls
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.own_places import own_places
from lcp_engine.sandbox.root import Root, refusal
from lcp_engine.wall.bubblewrap import HOME
from lcp_engine.wall.installed_programs import environment_of, found_program, is_in, places_of
from lcp_engine.wall.programs import Bounds, Ended, Program
from lcp_engine.wall.steps import Step
from lcp_engine.wall.toolchains import toolchain_of
from lcp_engine.wall.working_copy import WorkingCopy, working_copy
from lcp_engine.wall.workspace import Ground, Workspace, workspace
from lcp_engine.workers.base import Example, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, Result

MOST_SECONDS = 3600.0
_MOST_CHANGED = 100
_MOST_TOLD = 1000
"""Characters of output that a check which does not pass tells the planner."""


class RunCommandParams(Params):
    """The program with its arguments, one by one; there is no shell. It runs in the root, or in a copy of it."""

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
    """Files that it changed in its copy; the root is as it was."""

    @property
    def how(self) -> str:
        """How it ended, with its verdict and the end of what it wrote, for people and planners."""
        end = (self.stdout + self.stderr).strip()[-_MOST_TOLD:]
        how = self.ended or f"exit code {self.exit_code}"
        return ": ".join(filter(None, (how, self.verdict, *self.wall, end)))


@dataclass(frozen=True)
class Surroundings:
    """What a command is run with: the root, which of its files may be copied, what the mission says of commands."""

    root: Root
    may_read: Callable[[str], bool]
    commands: Commands
    readable: Sequence[str]
    """What may be read and executed beside the system's programs."""
    run: Callable[[Root, Program], Ended]
    texts: Mapping[str, str] = field(default_factory=dict)
    """What the program finds in files, each named by a variable of its environment."""
    network: NetworkGrant = NO_NETWORK_GRANTED
    """What it may reach of the network."""
    ground: Ground | None = None
    """Where the wall keeps what it needs; without, a copy is made."""


def run_allowed(command: Sequence[str], around: Surroundings) -> RunCommandResult:
    """Run a command of a job.

    Raises `NOT_ALLOWED` if the mission does not allow it, and what `run_behind_wall` raises.
    """
    if not allows(around.commands.allow, command):
        reason = because(ReasonCode.COMMAND, entry=as_entry(command))
        message = f"{command[0]} is not allowed: {reason}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)
    return run_behind_wall(command, around)


def run_behind_wall(command: Sequence[str], around: Surroundings) -> RunCommandResult:
    """Run a command over the root, or on a copy where that is all that the wall can do; what it changes is dropped.

    Raises `PATH_NOT_FOUND` if there is no such program, `TOO_LARGE`, `FILE_SYSTEM`, `NOT_ISOLATED`, and what
    `Surroundings.run` raises.
    """
    if around.network.hosts:
        raise LcpError(
            ErrorCode.NOT_ISOLATED,
            f"{command[0]} may reach some hosts alone, and nothing here can hold it to that",
            advice="Remove commands.network from the mission; `host` allows every host, if the user does.",
        )
    ground = around.ground
    if ground is None or ground.found.step is not Step.OVERLAY:
        return _run_in_copy(command, around)
    try:
        with workspace(around.root, ground, around.may_read) as place:
            ended = around.run(around.root, _over_root(command, place, around, ground.found.bubblewrap))
            changed = sorted(place.changed())[:_MOST_CHANGED]
            masked = sorted(place.masks.masked)
            return _result(command, ended, changed, masked, lambda text: text)
    except OSError as error:
        raise refusal(error, str(ground.directory)) from error


def _over_root(command: Sequence[str], place: Workspace, around: Surroundings, bubblewrap: str) -> Program:
    path = found_program(command[0], Path(place.path))
    foreign = around.root.places
    installed = [one for one in places_of(path, foreign=foreign) if not is_in(foreign, one)]
    return Program(
        path=path,
        arguments=tuple(command),
        directory=place.path,
        environment={
            **environment_of(Path(HOME)),
            "TMPDIR": "/tmp",  # noqa: S108 -- it has its own
            **around.commands.environment,
            **_files_with(around.texts, place.home, Path(HOME)),
        },
        owned=(),
        readable=(*installed, *around.readable),
        hidden=(*own_places(), str(Path.home()), *around.root.places),
        bounds=Bounds(seconds=min(around.commands.seconds, MOST_SECONDS)),
        view=replace(place.view, host_network=around.network.is_host),
        bubblewrap=bubblewrap,
    )


def _run_in_copy(command: Sequence[str], around: Surroundings) -> RunCommandResult:
    with working_copy(around.root, around.may_read) as copy:
        path = found_program(command[0], copy.files)
        ended = around.run(around.root, _program(path, command, copy, around))
        return _result(command, ended, copy.changed()[:_MOST_CHANGED], (), copy.told)


def _result(
    command: Sequence[str],
    ended: Ended,
    changed: Sequence[str],
    masked: Sequence[str],
    told: Callable[[str], str],
) -> RunCommandResult:
    stdout, stderr = (told(_text(each)) for each in (ended.stdout, ended.stderr))
    return RunCommandResult(
        exit_code=ended.exit_code,
        ended=_why(ended),
        verdict=verdict_of(command, ended.exit_code, stdout, stderr),
        wall=[*named_as_walls(stdout, stderr, ended.exit_code, masked=masked)],
        stdout=stdout,
        stderr=stderr,
        cpu_seconds=ended.cpu_seconds,
        changed=[*changed],
    )


def _program(path: str, command: Sequence[str], copy: WorkingCopy, around: Surroundings) -> Program:
    commands, foreign = around.commands, (str(copy.files.parent), *around.root.places)
    # What lies in the root is in the copy as far as it may be read.
    installed = [place for place in places_of(path, foreign=foreign) if not is_in(foreign, place)]
    toolchain = toolchain_of(path, Path.home(), os.environ, foreign=foreign, can_write=False)
    return Program(
        path=path,
        arguments=tuple(command),
        directory=str(copy.files),
        environment={
            **environment_of(copy.home),
            **toolchain.variables,
            **commands.environment,
            **_files_with(around.texts, copy.home, copy.home),
        },
        owned=(str(copy.files), str(copy.home)),
        readable=(*installed, *(part for one in toolchain.places for part in one.parts), *around.readable),
        packages=copy.shared,
        listed=copy.listed,
        hidden=(*own_places(), str(Path.home()), *around.root.places),
        bounds=Bounds(seconds=min(commands.seconds, MOST_SECONDS)),
        network=around.network.is_host,
    )


def _files_with(texts: Mapping[str, str], place: Path, seen_at: Path) -> dict[str, str]:
    """Write each text into a file of its own in `place`; the files as they are seen, by the variables that name them."""
    for name, text in texts.items():
        (place / name.lower()).write_text(text, encoding="utf-8")
    return {name: str(seen_at / name.lower()) for name in texts}


def _why(ended: Ended) -> str | None:
    if ended.stopped is not None:
        return f"{ended.stopped}, and was stopped"
    return None if ended.signal is None else f"signal {ended.signal}"


def _text(output: bytes) -> str:
    return output.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


WORKER = Worker(
    kind="run_command",
    params=RunCommandParams,
    result=RunCommandResult,
    execute=refuse_to_execute("a command is run by the runner, in a mission that allows it"),
    description="Run a program, such as the tests, on a copy of the root: what it writes there is not kept.",
    role=KindRole.RUNS,
    timeout=MOST_SECONDS + 300,
    command=lambda params: tuple(params.command),
    denied_as=("read_file", "list_files"),
    examples=(
        Example(
            params={"command": ["pytest", "-q"]},
            result={"exit_code": 0, "stdout": "1 passed", "stderr": ""},
            is_run=False,
        ),
    ),
)
