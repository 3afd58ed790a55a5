"""Describe kinds whose jobs an external program executes, in any language: what a file of kinds says of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.limits.permits import MOST_RUNNING, RateLimit
from lcp_engine.core.programs.commands import split_command
from lcp_engine.core.protocol.schema_model import schema_model
from lcp_engine.core.refused_values import explain_first
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.programs import EXECUTION
from lcp_engine.features.programs.wall.layers.upper import Changes
from lcp_engine.features.programs.wall.workspace import Workspace
from lcp_engine.plug_ins import import_paths
from lcp_engine.sandbox.system.installed_programs import found_program, readable_place
from lcp_engine.workers.base import Example, Kept, Permission, Worker, refuse_to_execute

MOST_SECONDS = 86_400.0
EnvironmentName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
NonEmpty = Annotated[str, Field(min_length=1)]
_OPEN: dict[str, JsonValue] = {"type": "object"}


class _Stated(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _known_root(stated: JsonValue) -> JsonValue:
    """Raises ValueError."""
    if not isinstance(stated, bool) and stated not in ("true", "false", "read", "write"):
        raise ValueError(f"should be true, false, read or write, not {json.dumps(stated)}")
    return stated


class Needs(_Stated):
    """What a program needs beside the system's programs; nothing else is there for it."""

    root: Annotated[bool | Literal["read", "write"], BeforeValidator(_known_root)] = Field(
        default=False,
        description="The mission's root, as its directory, behind the wall of commands. `write` has its changes kept "
        "or held like those of a command, `read` lets them be dropped, `true` fails jobs that change something.",
    )
    network: bool = Field(default=False, description="Connections over IP, to any server.")
    environment: tuple[EnvironmentName, ...] = Field(
        default=(), description="Variables of the runner's environment."
    )
    read: tuple[NonEmpty, ...] = Field(
        default=(), description="Further files and directories to read, relative to the file of kinds."
    )

    def execution_of(self, function: Callable[..., object], kind: str) -> ExternalProgram:
        """Like `python_program`."""
        return python_program(function, kind, self)


class ProgramExample(_Stated):
    """A job of the kind."""

    params: dict[str, JsonValue]
    result: dict[str, JsonValue] = {}
    files: dict[str, str] = {}
    run: bool = Field(default=True, description="Whether `lcp kinds --check` runs it.")


class ProgramLimits(_Stated):
    """What a file of kinds states of the processes of a program, and of the attempts of its jobs."""

    timeout: Annotated[float, Field(gt=0, le=MOST_SECONDS)] = 60.0
    max_attempts: Annotated[int, Field(ge=1, le=100)] = 3
    backoff: Annotated[float, Field(ge=0, le=3600)] = 1.0
    rate_limit: RateLimit | None = Field(
        default=None, description="How often jobs of a kind may start, of all missions and runners together."
    )
    max_running: Annotated[int, Field(ge=1, le=MOST_RUNNING)] | None = Field(
        default=None,
        description="How many jobs of a kind may run at once, of all missions and runners together.",
    )
    concurrency: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="How many of the program run at once in one runner."
    )
    memory: Annotated[int, Field(ge=64 * 1024 * 1024)] = Field(
        default=2 * 1024**3, description="Bytes of memory for the program and all that it starts."
    )
    needs: Needs = Needs()


class ProgramKind(ProgramLimits):
    """What a file of kinds states of one kind."""

    command: Annotated[tuple[NonEmpty, ...], BeforeValidator(split_command)] = Field(min_length=1)
    description: str = ""
    params: dict[str, JsonValue] = _OPEN
    result: dict[str, JsonValue] = _OPEN
    role: KindRole = KindRole.OTHER
    shows: str | None = None
    has_effects: bool = True
    permission: Permission = Permission.USER
    long_lived: bool = Field(default=False, description="Whether the program answers many jobs, a line each.")
    examples: tuple[ProgramExample, ...] = ()


Keep: TypeAlias = Callable[[Workspace, Changes, BaseModel], Kept]
"""Keeps what a program changed, before its workspace is removed; its result then names what was not kept."""
MOST_LEFT_OUT = 100


def with_left_out(result: BaseModel, left_out: Sequence[str]) -> BaseModel:
    """The result with changes that were not kept, if its model has room for them: a list `left_out`."""
    stated = result.model_dump(mode="json")
    known = stated.get("left_out", [])
    with suppress(ValidationError):
        if left_out and isinstance(known, list):
            more = len(left_out) - MOST_LEFT_OUT
            said = [*left_out[:MOST_LEFT_OUT], *([f"{more:,} more"] if more > 0 else [])]
            return type(result).model_validate({**stated, "left_out": [*known, *said]})
    return result


def with_output(kept: Kept, place: Workspace, changes: Changes, *, keeps_caches: bool = True) -> Kept:
    """End of a program's changes, once its output and caches are kept, or named as left out for want of room."""
    why = place.keep_output(changes, is_whole=kept.is_whole, keeps_caches=keeps_caches)
    return replace(kept, result=with_left_out(kept.result, [why])) if why else kept


@dataclass(frozen=True)
class BehindWall:
    """States that the jobs of a kind are executed behind the wall of commands."""

    place: ClassVar[str] = EXECUTION


@dataclass(frozen=True)
class ExternalProgram(BehindWall):
    """The program that executes the jobs of a kind: it reads a line of JSON for each, and answers with one."""

    path: str
    arguments: tuple[str, ...]
    """Its own name first."""
    files: tuple[str, ...] = ()
    """The files among `path` and `arguments` that the user named by their paths."""
    installed: tuple[str, ...] = ()
    """Further places that it is installed in."""
    starts: tuple[str, ...] = ()
    """The paths of further programs that it starts, each installed like the program itself."""
    long_lived: bool = False
    concurrency: int | None = None
    memory: int = 2 * 1024**3
    needs: Needs = field(default_factory=Needs)
    """Paths in it are absolute."""
    name: str | None = None
    """What people are told in place of the command."""
    shared: str | None = None
    """What the kinds have in common that use the same processes; None if no other kind uses them."""
    claims: str | None = None
    """What others say of it, for people; it is not trusted."""
    call: tuple[str, ...] = ()
    """A module of ours and the arguments for its `main`: a fork of an interpreter that has loaded it is the program."""

    def must_be_alone(self, *, has_effects: bool) -> bool:
        """True if jobs go one by one. What has no effects and cannot see the root follows from the params alone."""
        return bool(self.needs.root) or has_effects


def program_of(worker: Worker[BaseModel]) -> ExternalProgram | None:
    """The program that executes the jobs of a kind; None if something else does."""
    return worker.execution if isinstance(worker.execution, ExternalProgram) else None


def worker_of(kind: str, stated: ProgramKind, base: Path) -> Worker[BaseModel]:
    """The worker of a kind; `base` is the directory that relative paths begin at.

    Raises `INVALID_ARGUMENT` for schemas that are none, roles that only the engine's kinds have, and a program that is
    missing or cannot be executed.
    """
    if stated.role not in _ROLES:
        fact = f"role {stated.role.value} is for kinds of the engine; expected is one of {', '.join(_ROLES)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"kind {kind!r}: {fact}")
    if stated.long_lived and stated.needs.root:
        fact = "each of its jobs needs the root for itself; a program with needs.root cannot be long_lived"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"kind {kind!r}: {fact}")
    subject = f"kind {kind!r}"
    found = found_command(subject, stated.command, base)
    program = ExternalProgram(
        path=found.path,
        arguments=(stated.command[0], *found.arguments),
        files=found.files,
        long_lived=stated.long_lived,
        concurrency=stated.concurrency,
        memory=stated.memory,
        needs=readable_needs(subject, stated.needs, base),
    )
    name = "".join(part.capitalize() for part in kind.replace("-", "_").replace(".", "_").split("_"))
    return Worker[BaseModel](
        kind=kind,
        params=_model(kind, f"{name}Params", "params", stated.params, fills_defaults=True),
        result=_model(kind, f"{name}Result", "result", stated.result),
        execute=refuse_to_execute("a program is run by a runner, or by `lcp try`"),
        description=stated.description or f"Runs the program {Path(program.path).name}.",
        has_effects=stated.has_effects,
        permission=stated.permission,
        timeout=stated.timeout,
        max_attempts=stated.max_attempts,
        backoff=stated.backoff,
        rate_limit=stated.rate_limit,
        max_running=stated.max_running,
        reads_files=program.must_be_alone(has_effects=stated.has_effects),
        role=stated.role,
        shows=stated.shows,
        examples=tuple(Example(one.params, one.result, one.files, is_run=one.run) for one in stated.examples),
        execution=program,
    )


def python_program(function: Callable[..., object], kind: str, needs: Needs) -> ExternalProgram:
    """A confined process that executes the jobs of a kind in Python, with what it `needs`; it stays, if it can.

    Raises `INVALID_ARGUMENT` for a function that no other process could find.
    """
    module = function.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or module == "__main__":
        fact = f"kind {kind!r} has needs, so that a process of its own executes it: its function is expected in a file"
        advice = "Name the file with --workers, or install it as a package."
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=advice)
    is_file = module.startswith(MODULE_OF_FILE)
    origin = f"file:{file}" if is_file else f"module:{module}"
    # The current directory may be a root: it is there only for a module that was found in it.
    is_here = not is_file and Path(file).is_relative_to(Path.cwd())
    python = python_process(_MAIN_OF_PYTHON, origin, kind, needs_here=is_here)
    return replace(
        python,
        files=(file,),
        long_lived=not needs.root,
        needs=readable_needs(f"kind {kind!r}", needs, Path(file).parent),
        name=f"{function.__name__} of {file}",
    )


def python_process(module: str, *arguments: str, needs_here: bool = False) -> ExternalProgram:
    """A process that calls `main(*arguments)` of a module, with what this interpreter can import.

    The current directory is not among it, unless it `needs_here`.
    """
    paths = import_paths(needs_here=needs_here)
    installed = (sys.prefix, sys.base_prefix, *paths)
    options = ("-I", "-S", "-X", "utf8", "-c", _START)
    return ExternalProgram(
        path=sys.executable,
        arguments=(sys.executable, *options, json.dumps(paths), module, *arguments),
        installed=tuple(dict.fromkeys(place for place in installed if Path(place).exists())),
    )


MODULE_OF_FILE = "lcp_workers_"
"""How the names of modules begin that files of kinds become."""
_START = (
    "import sys, json; _, paths, module, *arguments = sys.argv; sys.path[:] = json.loads(paths); "
    "from importlib import import_module; import_module(module).main(*arguments)"
)
_MAIN_OF_PYTHON = "lcp_engine.features.programs.servers.python_kind"
_ROLES = (KindRole.SEARCHES, KindRole.RUNS, KindRole.OTHER)


def kinds_in(value: JsonValue, base: Path) -> Iterator[Worker[BaseModel]]:
    """The workers that a file of kinds describes; `base` is its directory. Raises what `worker_of` raises."""
    if not isinstance(value, Mapping) or not value:
        fact = "a mapping is expected, from the name of each kind to what it is"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=GENERAL)
    for kind, stated in value.items():
        try:
            read = ProgramKind.model_validate(stated)
        except ValidationError as refused:
            fault = explain_first(refused, ProgramKind, kind)
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fault) from refused
        yield worker_of(kind, read, base)


@dataclass(frozen=True)
class FoundCommand:
    """Where a command was found."""

    path: str
    arguments: tuple[str, ...]
    """Without its name; those that begin like a path are absolute."""
    files: tuple[str, ...]
    """The files among them, and the program's own if the command names it by its path."""


def found_command(subject: str, command: Sequence[str], base: Path) -> FoundCommand:
    """The program of a command whose relative paths begin at `base`. Raises `INVALID_ARGUMENT`, about `subject`."""
    words = tuple(_absolute(word, base) for word in command)
    path = _path(subject, words[0], base)
    named = (path if "/" in command[0] else "", *words[1:])
    return FoundCommand(path, words[1:], tuple(word for word in named if _is_file(word)))


def readable_needs(subject: str, needs: Needs, base: Path) -> Needs:
    """`needs` with absolute paths. Raises `INVALID_ARGUMENT`, about `subject`."""
    return needs.model_copy(update={"read": tuple(_readable(subject, one, base) for one in needs.read)})


def _absolute(word: str, base: Path) -> str:
    """A word of a command; one that begins like a path is relative to `base`, or to the home directory."""
    if word.startswith(("./", "../")):
        return os.path.normpath(base / word)
    return str(Path(word).expanduser()) if word.startswith("~/") else word


def _is_file(word: str) -> bool:
    return Path(word).is_absolute() and Path(word).is_file()


def _readable(subject: str, name: str, base: Path) -> str:
    """The absolute path of what a program needs to read. Raises `INVALID_ARGUMENT`."""
    path = readable_place(base / Path(name).expanduser(), f"{subject}: needs.read")
    if not Path(path).exists():
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{subject}: needs.read: there is no {path}")
    return path


def _path(subject: str, name: str, base: Path) -> str:
    """The program's absolute path. Raises `INVALID_ARGUMENT`."""
    try:
        path = Path(os.path.normpath(found_program(name, base)))
    except LcpError as error:
        message = f"{subject}: {error.failed.message}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=_PROGRAM) from error
    if not path.is_file() or not os.access(path, os.X_OK):
        fact = "it cannot be executed" if path.exists() else "there is no such file"
        message = f"{subject}: its program {path} is expected to be an executable file; {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=_PROGRAM)
    return str(path)


_PROGRAM = "Correct the path, install the program, or make the file executable: chmod +x."


def _model(
    kind: str, name: str, what: str, schema: Mapping[str, JsonValue], *, fills_defaults: bool = False
) -> type[BaseModel]:
    try:
        return schema_model(name, schema, fills_defaults=fills_defaults)
    except LcpError as error:
        raise LcpError(
            error.code, f"kind {kind!r}: {what}: {error.failed.message}", advice=GENERAL
        ) from error
