"""Load the mission that the options of a command name: a file, stdin, or a shipped mission."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import NamedTuple, TypeAlias

import click

from lcp_engine.api.arguments import asks_planner, check_kinds
from lcp_engine.cli.base import pairs
from lcp_engine.cli.commands.completion import mission_files, planner_names
from lcp_engine.core.mission.parse import NotFilled, outline_mission, parse_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import ErrorCode, LcpError, system_advice
from lcp_engine.features.programs.suites.found_suites import with_found
from lcp_engine.features.universal.request import AgentRequest, mission_of, parse_request
from lcp_engine.kinds import find_workers
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, PlannerEnvironment
from lcp_engine.planners.registry import make_planner, usual_planner
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import shipped_missions

MOST_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True)
class MissionOptions:
    """The options of the command line that name a mission."""

    mission: str
    root: Path | None = None
    planner: str | None = None
    settings: Sequence[str] = ()
    variables: Mapping[str, str] | None = None
    allow_admin: bool = False
    stage: bool = False
    branch: str | None = None
    commit: str | None = None


class Loaded(NamedTuple):
    """A mission, its root, and the request that it is for."""

    spec: MissionSpec
    root: Path
    request: AgentRequest | None


def load(options: MissionOptions, planner_environment: PlannerEnvironment = EMPTY_ENVIRONMENT) -> Loaded:
    """The mission that a file, an ExecutionPlan or a request (AgentRequest) states.

    Raises `NOT_FOUND`, `INVALID_MISSION`, `INVALID_ARGUMENT`, `PATH_NOT_FOUND`, `NO_PLANNER`.
    """
    text, source, base = _read(options.mission)
    request = parse_request(text, source=source)
    loaded = _loaded(
        options, text if request is None else mission_of(request), source, base, planner_environment
    )
    if request is not None:
        _check_root(request, loaded.root, source)
    return loaded._replace(request=request)


def load_goal(options: MissionOptions, planner_environment: PlannerEnvironment = EMPTY_ENVIRONMENT) -> Loaded:
    """The mission with the goal that the options name, or `-` for stdin; its root is stated in full.

    Raises like `load`, and `INVALID_ARGUMENT` for whatever the command line states wrongly.
    """
    stated = options.mission
    goal = (_decoded(sys.stdin.buffer.read(MOST_BYTES + 1), "stdin") if stated == "-" else stated).strip()
    if not goal:
        fact = "stdin is empty" if stated == "-" else "it is blank"
        message = f"lcp do: a goal in words for the planner is expected; {fact}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if goal.endswith((".yaml", ".yml", ".json")) and len(goal.split()) == 1 and Path(goal).is_file():
        message = f"lcp do: a goal in words is expected; {goal!r} is a file, which `lcp run {goal}` runs"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    try:
        spec, root, _ = _loaded(options, json_line({"goal": goal}), "lcp do", Path.cwd(), planner_environment)
    except LcpError as refused:
        if refused.code is not ErrorCode.INVALID_MISSION:
            raise
        raise LcpError(ErrorCode.INVALID_ARGUMENT, str(refused), refused.failed.details) from refused
    name = spec.name if "name" in spec.model_fields_set else _name_of(spec.goal)
    return Loaded(spec.model_copy(update={"name": name, "root": str(root)}), root, None)


_LONGEST_NAME = 40


def _name_of(goal: str) -> str:
    """The first words of a goal, on one line."""
    words = " ".join(goal.split())
    if len(words) <= _LONGEST_NAME:
        return words
    begun = words[:_LONGEST_NAME]
    return f"{begun.rpartition(' ')[0] or begun}…"


def _loaded(
    options: MissionOptions, text: str, source: str, base: Path, planner_environment: PlannerEnvironment
) -> Loaded:
    if options.planner is None and not _set_planner(options.settings) and planner_environment.own:
        options = _with_own_planner(options, text, source, [*planner_environment.own])
    parsed = _spec(options, text, source, base, lambda: usual_planner(os.environ))
    spec = parsed.model_copy(update={"allow_admin": options.allow_admin})
    # Before a database is created.
    planner = make_planner(spec.planner, planner_environment)
    spec = check_kinds(spec, planner, find_workers(), source=source)
    return Loaded(spec, resolve_root(spec.root, base, options.root), None)


def _with_own_planner(options: MissionOptions, text: str, source: str, own: Sequence[str]) -> MissionOptions:
    """The options, with the last planner of the operator's files, unless the mission names one of them."""
    is_named = outline_mission(text, source=source).planner in own
    return options if is_named else replace(options, planner=own[-1])


def load_spec(options: MissionOptions) -> MissionSpec:
    """The mission that a file states, whatever its root and its planner are. Raises like `load`."""
    text, source, base = _read(options.mission)
    return _spec(options, text, source, base, lambda: "human")


def _spec(
    options: MissionOptions, text: str, source: str, base: Path, usual: Callable[[], str]
) -> MissionSpec:
    """The mission; `usual` names the planner of one that names none."""
    outline = outline_mission(text, source=source)
    found = with_found(
        outline, options.variables or {}, lambda: resolve_root(outline.root, base, options.root)
    )
    options = replace(options, variables=found)
    stated = {"stage": options.stage and "true", "git.branch": options.branch, "git.commit": options.commit}
    settings = [*(f"{key}={value}" for key, value in stated.items() if value), *options.settings]
    if options.planner is not None:
        settings.insert(0, f"planner={json_line({'type': options.planner})}")
    elif not _set_planner(settings) and _needs_planner(options, text, source, base):
        settings.insert(0, f"planner={json_line({'type': usual()})}")
    return _parse(text, source, options.variables or {}, settings, base=base, given=len(options.settings))


def _needs_planner(options: MissionOptions, text: str, source: str, base: Path) -> bool:
    """True if a mission names no planner and needs one; one with a plan needs it for steps that ask it."""
    outline, settings = outline_mission(text, source=source), options.settings
    if outline.planner is not None or not outline.has_plan:
        return outline.planner is None
    parsed = _parse(text, source, options.variables or {}, settings, base=base, given=len(settings))
    return asks_planner(parsed, find_workers())


def _check_root(request: AgentRequest, root: Path, source: str) -> None:
    """A request may name the root, but never chooses it."""
    named = request.metadata.project.root_directory
    if named is not None and Path(named).resolve() != root:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"{source}: metadata.project.root_directory is {named!r}, but the mission's root is {str(root)!r}",
            advice="Name the root with --root if the request is right; a request does not choose it.",
        )


def _parse(
    text: str, source: str, variables: Mapping[str, str], settings: Sequence[str], *, base: Path, given: int
) -> MissionSpec:
    """The mission; `given` of the settings, the last ones, are those of the command line.

    Raises `INVALID_MISSION`, or `INVALID_ARGUMENT` where the mission would be valid without `--set` or `--var`.
    """
    parse = partial(parse_mission, text, source=source, read_file=partial(_text_beside, base))
    try:
        return parse(variables=variables, settings=settings)
    except LcpError as refused:
        ours = settings[: len(settings) - given]
        if any(
            _is_valid(partial(parse, variables=named, settings=rest))
            for named in (variables, {})
            for rest in (ours, settings)
        ):
            raise LcpError(ErrorCode.INVALID_ARGUMENT, str(refused), refused.failed.details) from refused
        raise


def _is_valid(parse: Callable[[], MissionSpec]) -> bool:
    try:
        parse()
    except LcpError:
        return False
    return True


def _text_beside(base: Path, name: str) -> str:
    """The text of a file that a mission names, relative to `base`. Raises `NotFilled`."""
    try:
        path = base / name
        if not path.is_file():
            fact = "it is not a file" if path.exists() else "it does not exist"
            raise NotFilled(f"a file in {base} is expected; {fact}")
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as refused:
        if isinstance(refused, NotFilled):
            raise
        raise NotFilled(f"it cannot be read: {getattr(refused, 'strerror', None) or refused}") from refused
    if len(data) > MOST_BYTES:
        raise NotFilled(f"it is larger than {MOST_BYTES:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        raise NotFilled(f"byte {refused.start} is not UTF-8") from refused


def _set_planner(settings: Sequence[str]) -> bool:
    return any(setting.startswith(("planner=", "planner.")) for setting in settings)


def _read(mission: str) -> tuple[str, str, Path]:
    """The text, its name in messages, and the directory that its root is relative to."""
    here = Path.cwd()
    if mission == "-":
        return _decoded(sys.stdin.buffer.read(MOST_BYTES + 1), "stdin"), "stdin", here
    names = ", ".join(shipped_missions())
    expected = f"a file or the name of a shipped mission ({names}) is expected"
    if not mission.strip():
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"the name of the mission is blank; {expected}")
    path = Path(mission)
    try:
        is_file, is_directory = path.is_file(), path.is_dir()
    except OSError as refused:
        raise _not_readable(path, refused) from refused
    if is_file:
        return _decoded(_bytes(path), mission), mission, path.resolve().parent
    shipped = shipped_missions()
    if mission in shipped:
        return _decoded(_bytes(shipped[mission]), mission), mission, here
    fact = "is a directory" if is_directory else "does not exist"
    words = "; `lcp do` takes a goal in words" if len(mission.split()) > 1 else ""
    raise LcpError(ErrorCode.NOT_FOUND, f"mission {mission!r} {fact}; {expected}{words}")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as refused:
        raise _not_readable(path, refused) from refused


def _not_readable(path: Path, refused: OSError) -> LcpError:
    return LcpError(
        ErrorCode.INVALID_MISSION,
        f"mission {str(path)!r} cannot be read: {refused.strerror}",
        advice=system_advice(refused),
    )


def _decoded(data: bytes, source: str) -> str:
    if len(data) > MOST_BYTES:
        raise LcpError(
            ErrorCode.INVALID_MISSION,
            f"{source} is larger than {MOST_BYTES:,} bytes, the limit of a mission",
            advice="Name a mission file.",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as refused:
        message = f"{source}: byte {refused.start} is not UTF-8"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="Save the file as UTF-8.") from refused


def mission_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options that name a mission; the command gets them as one `MissionOptions`."""
    return _with_options(command, [
        click.argument("mission", shell_complete=mission_files, metavar="MISSION"),
        *_common_options(
            root="[default: root of the file]", planner="Use this planner instead of the file's.",
            settings="Override a key of the file", variables="the file",
        ),
        click.option("--allow-admin", is_flag=True,
                     help="Let it request jobs of the level admin; they are held for a person."),
        *_change_options,
    ])  # fmt: skip


def goal_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of a mission without a file; the command gets them as one `MissionOptions` with its goal."""
    return _with_options(command, [
        click.argument("mission", metavar="GOAL", nargs=-1, required=True, callback=_one_goal),
        *_common_options(
            root="[default: .]", planner="Who answers.  [env: LCP_PLANNER]",
            settings="Set any key of a mission file", variables="the goal",
        ),
        *_change_options,
    ])  # fmt: skip


_Option: TypeAlias = Callable[[Callable[..., int]], Callable[..., int]]


def _common_options(*, root: str, planner: str, settings: str, variables: str) -> Sequence[_Option]:
    """The options of both, with the words that differ."""
    return (
        click.option("--root", type=click.Path(path_type=Path), metavar="DIR",
                     help=f"The directory the mission is confined to.  {root}"),
        click.option("--planner", shell_complete=planner_names, metavar="NAME", help=planner),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
                     help=f"{settings}, e.g. limits.max_turns=5."),
        click.option("--var", "variables", multiple=True, metavar="NAME=VALUE",
                     help=f"Set the variable ${{NAME}} of {variables}."),
    )  # fmt: skip


def _one_goal(context: click.Context, _: click.Parameter, words: Sequence[str]) -> str:
    if len(words) > 1:
        raise click.UsageError(
            f'one goal is expected, in quotes: {context.command_path} "{" ".join(words)}"', context
        )
    return "".join(words)


_change_options = (
    click.option("--stage", is_flag=True,
                 help="Let it work in a private copy of the root, and ask you once what is merged."),
    click.option("--branch", metavar="NAME", help="Commit what it changed on this new branch, e.g. lcp/{name}-{id}."),
    click.option("--commit", type=click.Choice(["mission", "merge", "off"]),
                 help="Commit what it changed when it completes, or its merge."),
)  # fmt: skip


def _with_options(command: Callable[..., int], options: Sequence[_Option]) -> Callable[..., int]:
    @wraps(command)
    def with_options(
        *,
        mission: str,
        root: Path | None,
        planner: str | None,
        settings: Sequence[str],
        variables: Sequence[str],
        stage: bool,
        branch: str | None,
        commit: str | None,
        allow_admin: bool = False,
        **others: object,
    ) -> int:
        pairs(settings, "--set")
        return command(
            options=MissionOptions(
                mission,
                root,
                planner,
                settings,
                pairs(variables, "--var"),
                allow_admin=allow_admin,
                stage=stage,
                branch=branch,
                commit=commit,
            ),
            **others,
        )

    stated: Callable[..., int] = with_options
    for option in reversed(options):
        stated = option(stated)
    return stated
