"""Write a mission file by asking (`lcp init`)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import planner_names
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.keyboard import Closed
from lcp_engine.cli.console.output import print_err, print_json, print_out
from lcp_engine.cli.console.terminal import print_line, read_line
from lcp_engine.core.safe_text import json_line, one_line
from lcp_engine.errors import ErrorCode, LcpError, system_advice

if TYPE_CHECKING:
    from pydantic import JsonValue

ASKED = ("human", "openai", "anthropic", "local")
"""The planners that are offered; any other that is installed is taken as well."""
_PLAIN = re.compile(r"[A-Za-z][\w.-]*")
_NOT_TEXT = {"true", "false", "null"}
_ESCAPE = re.compile(r"\\(?:(ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|.)")


@runtime_checkable
class SuggestsKeys(Protocol):
    """A planner that says which further keys the missions with it have."""

    def suggested(self) -> Mapping[str, JsonValue]: ...


@dataclass(frozen=True)
class Draft:
    """Parts of a mission file; without a planner, the environment chooses one at each launch."""

    goal: str
    root: str
    planner: Mapping[str, JsonValue] | None
    writes: Sequence[str]
    more: Mapping[str, JsonValue] = field(default_factory=dict)


@click.command(
    "init",
    cls=LcpCommand,
    examples=(
        "lcp init",
        'lcp init notes.yaml --goal "Write NOTES.md." --root ~/src/shop --planner human',
        'lcp init docs.yaml --goal "Write docs/API.md." --write "docs/**"',
        'lcp init fix.yaml --goal "Make the tests pass." --agent codex',
    ),
)
@click.argument("file", type=click.Path(path_type=Path), default=Path("mission.yaml"), metavar="[FILE]")
@click.option("--goal", metavar="TEXT", help="What the mission should achieve, in words for the planner.")
@click.option("--root", metavar="DIR", help="The directory that the mission is confined to.  [default: .]")
@click.option("--planner", shell_complete=planner_names, metavar="NAME", help="Who answers.")
@click.option("--agent", metavar="NAME", help="An agent that you have, at work in a stage (docs/agents.md).")
@click.option(
    "--write",
    "writes",
    multiple=True,
    metavar="PATTERN",
    help="Files that it may write without asking you, as in a .gitignore; may be repeated.",
)
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@pass_invocation
def init_command(
    invocation: Invocation,
    *,
    file: Path,
    goal: str | None,
    root: str | None,
    planner: str | None,
    agent: str | None,
    writes: Sequence[str],
    force: bool,
) -> int:
    """Write a mission to FILE (mission.yaml). On a terminal you are asked for what the options leave out.

    Nothing is launched. Without a terminal --goal is required; the root is then the current directory, the planner the
    one of the environment, or you (human), and every write waits for you.
    """
    if agent is not None and planner is not None:
        raise click.UsageError("--agent names the planner, too; leave out --planner")
    _check_target(file, force=force)
    named = None if agent is None else _with_agent(agent, invocation)
    usual = _usual(planner) if named is None else named.planner
    stated = None if goal is None else Draft(goal.strip(), root or ".", usual, writes)
    draft = stated or _ask(root, planner, writes, named)
    draft = draft if named is None else replace(draft, more=named.more)
    text = text_of(draft, file.stem)
    _check(text, str(file), invocation)
    _write(file, text, force=force)
    if invocation.json:
        print_json({"file": str(file)})
    elif not invocation.quiet:
        name = one_line(str(file))
        print_out(f"{name} is written")
        print_err(f"`lcp validate {name}` prints what it would do, `lcp run {name}` runs it")
    return Exit.DONE


def _check_target(file: Path, *, force: bool) -> None:
    """Refuse before anything is asked."""
    if not file.parent.is_dir():
        message = f"mission {str(file)!r} needs its directory {str(file.parent)!r}, which does not exist"
        raise LcpError(ErrorCode.PATH_NOT_FOUND, message)
    if file.is_dir():
        raise LcpError(ErrorCode.NOT_A_FILE, f"mission {str(file)!r} is a directory; a file is expected")
    if os.path.lexists(file) and not force:
        raise _there_already(file)


def _there_already(file: Path) -> LcpError:
    return LcpError(
        ErrorCode.WRONG_STATE,
        f"mission {str(file)!r} exists already (--force replaces it)",
        advice="Name another file, or replace it with --force.",
    )


def _with_agent(agent: str, invocation: Invocation) -> Draft:
    """The planner of an agent, and what its missions need. Raises `INVALID_MISSION` for one that is not known."""
    from lcp_engine.core.mission.spec import PlannerSpec
    from lcp_engine.planners.registry import make_planner

    stated: dict[str, JsonValue] = {"type": "program", "agent": agent}
    made = make_planner(PlannerSpec.model_validate(stated), invocation.planner_environment)
    return Draft("", "", stated, (), made.suggested() if isinstance(made, SuggestsKeys) else {})


def _ask(root: str | None, planner: str | None, writes: Sequence[str], named: Draft | None) -> Draft:
    """Ask for what the options leave out. Raises `click.UsageError` without a terminal, or if the person leaves."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("--goal TEXT is required where there is no terminal to ask on")
    try:
        print_line("Enter takes what is in brackets; Ctrl-D leaves, and writes nothing.")
        goal = ""
        while not goal:
            goal = read_line("What should the mission achieve? ", may_be_early=True)
        return Draft(
            goal,
            _text("Directory that it is confined to", ".") if root is None else root,
            named.planner if named else _ask_for_planner() if planner is None else {"type": planner},
            writes or _text("Files that it may write without asking you, such as docs/**", "none").split(),
        )
    except Closed:
        raise click.UsageError("nothing was written") from None


def _text(question: str, default: str) -> str:
    answer = read_line(f"{question} [{default}]: ", may_be_early=True)
    return answer or ("" if default == "none" else default)


def _usual(planner: str | None) -> Mapping[str, JsonValue] | None:
    """The planner if one is named; else None, for the one of the environment, or a person where that names none."""
    if planner is None and _of_environment() is not None:
        return None
    return {"type": planner or ASKED[0]}


def _of_environment() -> str | None:
    from lcp_engine.planners.registry import usual_planner

    try:
        return usual_planner(os.environ)
    except LcpError:
        return None


def _ask_for_planner() -> Mapping[str, JsonValue] | None:
    """The planner with what it needs; None leaves it to the environment, if that names one."""
    from lcp_engine.planners.registry import planner_names as known

    usual = _of_environment()
    default = ASKED[0] if usual is None else f"{usual}, as the environment says"
    while True:
        answer = read_line(f"Planner: {', '.join(ASKED)} [{default}]: ", may_be_early=True)
        if not answer and usual is not None:
            return None
        if (name := answer or ASKED[0]) in known():
            return {"type": name, **_ask_for_model(name)}
        print_line(one_line(f"  no planner is named {name!r}; known: {', '.join(known())}"))


def _ask_for_model(planner: str) -> Mapping[str, JsonValue]:
    """Server and model, for the planners that are reached over a network."""
    from lcp_engine.features.models.options import SERVERS

    asked: dict[str, JsonValue] = {}
    if planner == "openai":
        server = _text(f"Server: {', '.join(SERVERS)}, or a URL", next(iter(SERVERS)))
        asked["base_url" if "://" in server else "server"] = server
    if planner in ("openai", "anthropic"):
        needs_one = planner == "anthropic" or asked.get("server") == "openai"
        while not (model := _text("Model", "none" if needs_one else "the one it serves")):
            pass
        if model != "the one it serves":
            asked["model"] = model
    return asked


def text_of(draft: Draft, name: str) -> str:
    """The mission file, in YAML (pure)."""
    lines = [
        "# docs/missions.md explains the keys, docs/reference.md lists them all.",
        f"name: {yaml_value(name)}",
        *goal_lines(draft.goal.replace("${", "$${")),
        f"root: {yaml_value(draft.root)}  # relative to this file; nothing outside it is touched",
    ]
    if draft.planner is not None:
        lines.append(f"planner: {yaml_value({**draft.planner})}")
    lines += [f"{key}: {yaml_value(value)}" for key, value in draft.more.items()]
    lines.append("limits: {max_turns: 20, max_jobs: 100, max_seconds: 1800}")
    if draft.writes:
        patterns = ", ".join(map(json_line, draft.writes))
        lines.append("policy:  # the first rule that matches decides; other writes wait for you")
        lines.append(f"  - {{kinds: [write_file], paths: [{patterns}], do: auto}}")
    return "\n".join(lines) + "\n"


def goal_lines(goal: str) -> list[str]:
    """The key `goal` in YAML: as a block if that keeps every character, else quoted."""
    lines = goal.split("\n")
    is_plain = all(line.isprintable() and line == line.rstrip() for line in lines) and lines[-1]
    if is_plain and not lines[0].startswith(" "):
        return ["goal: |-", *(f"  {line}".rstrip() for line in lines)]
    return [f"goal: {_quoted(goal)}"]


def yaml_value(value: JsonValue) -> str:
    """A value in YAML, on one line; what could be read as anything else than its text is quoted."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{yaml_value(key)}: {yaml_value(inner)}" for key, inner in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(yaml_value, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
        return value
    return _quoted(value)


def _quoted(value: JsonValue) -> str:
    """A scalar as JSON; YAML names a character beyond U+FFFF by one number, JSON by two."""

    def named(found: re.Match[str]) -> str:
        return found[0] if found[1] is None else f"\\U{ord(json.loads(chr(34) + found[0] + chr(34))):08x}"

    return _ESCAPE.sub(named, json_line(value))


def _check(text: str, source: str, invocation: Invocation) -> None:
    """Refuse what `lcp run` would refuse: the goal, the planner, the patterns."""
    from lcp_engine.core.mission.parse import outline_mission, parse_mission
    from lcp_engine.core.policy import Policy
    from lcp_engine.planners.registry import make_planner

    named = outline_mission(text, source=source).planner is not None
    spec = parse_mission(text, source=source, settings=() if named else ('planner={"type": "human"}',))
    Policy(spec.policy)
    if named:
        make_planner(spec.planner, invocation.planner_environment)


def _write(file: Path, text: str, *, force: bool) -> None:
    try:
        with file.open("w" if force else "x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        raise _there_already(file) from None
    except OSError as error:
        message = f"mission {str(file)!r} cannot be written: {error.strerror}"
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=system_advice(error)) from error
