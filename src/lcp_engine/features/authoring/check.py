"""Check a reply or run one job, outside any mission (`lcp check`, `lcp try`)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import BaseModel, JsonValue

from lcp_engine.cli.base import Invocation, LcpCommand, pairs, pass_invocation, read_object
from lcp_engine.cli.commands.completion import kind_names
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_json, print_out
from lcp_engine.errors import GENERAL, ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine.core.mission.spec import MissionSpec


@click.command(
    "check",
    cls=LcpCommand,
    examples=(
        "lcp check reply.txt",
        "lcp check --dialect universal reply.txt",
        "lcp check --mission mission.yaml reply.txt",
        "lcp check --jsonl < replies.jsonl",
    ),
)
@click.argument("file", default="-", metavar="[FILE|-]")
@click.option(
    "--dialect",
    type=click.Choice(["lcp", "universal"]),
    help="The dialect of FILE; universal is translated into the equivalent action.  [default: that of the mission, "
    "or lcp]",
)
@click.option(
    "--mission",
    metavar="MISSION",
    help="Check against this mission file, or shipped mission: its dialect, its limit of jobs, and the result that a "
    "reply has to carry which completes it.",
)
@click.option(
    "--var", "variables", multiple=True, metavar="NAME=VALUE", help="Set the variable ${NAME} of MISSION."
)
@click.option(
    "--jsonl", is_flag=True, help='Read {"id", "text"} a line; print a check with its id a line, in order.'
)
@pass_invocation
def check_command(
    invocation: Invocation,
    *,
    file: str,
    dialect: str | None,
    mission: str | None,
    variables: Sequence[str],
    jsonl: bool,
) -> int:
    """Check whether FILE (- or nothing: stdin) is a valid reply; execute nothing.

    Prints a check object: valid, action, errors, recovered, warnings. Without --mission the default limit applies: a
    reply with more than 5 jobs is not valid. Exit code 0: valid, with --jsonl all of them; 1: not.
    """
    invocation.load_workers()
    spec = None if mission is None else _spec(mission, variables)
    dialect = dialect or (spec.planner.dialect if spec is not None else "lcp")
    data = _read(file)
    if not jsonl:
        found = check(data.decode("utf-8", errors="surrogateescape"), dialect, spec)
        print_json(found)
        return Exit.DONE if found["valid"] else Exit.FAILED
    valid = True
    for key, text in _lines(data, file):
        found = check(text, dialect, spec)
        valid = valid and found["valid"] is True
        print_out(json.dumps({"id": key, **found}, separators=(",", ":")), is_exact=True)
    return Exit.DONE if valid else Exit.FAILED


def check(text: str, dialect: str = "lcp", spec: MissionSpec | None = None) -> dict[str, JsonValue]:
    """The check object of one reply to a turn of the mission `spec`, as `lcp check` prints it."""
    from lcp_engine.core.decide import Correct, PlanState, decide
    from lcp_engine.core.mission.spec import Limits, expected_result
    from lcp_engine.core.protocol.actions import Malformed
    from lcp_engine.core.protocol.read_reply import reader_of
    from lcp_engine.workers.registry import find_workers

    kinds: dict[str, type[BaseModel]] = {kind: worker.params for kind, worker in find_workers().items()}
    reply = reader_of(dialect)(text, kinds, None if spec is None else expected_result(spec))
    limits = Limits() if spec is None else spec.limits
    over = (
        None if isinstance(reply, Malformed) else decide(PlanState(limits, jobs_left=limits.max_jobs), reply)
    )
    errors = reply.errors if isinstance(reply, Malformed) else ()
    if isinstance(over, Correct):
        errors = over.malformed.errors
    return {
        "valid": not errors,
        "action": None
        if errors or isinstance(reply, Malformed)
        else reply.model_dump(mode="json", exclude_none=True),
        "errors": [{**problem.record} for problem in errors],
        "recovered": list(reply.recovered),
        "warnings": list(reply.warnings),
    }


def _spec(mission: str, variables: Sequence[str]) -> MissionSpec:
    from lcp_engine.cli.commands.load_mission import MissionOptions, load_spec

    return load_spec(MissionOptions(mission, variables=pairs(variables, "--var")))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as refused:
        code = ErrorCode.PATH_NOT_FOUND if isinstance(refused, FileNotFoundError) else ErrorCode.NOT_A_FILE
        raise LcpError(code, f"{file!r} cannot be read: {refused.strerror}", advice=GENERAL) from refused


def _lines(data: bytes, file: str) -> Iterator[tuple[JsonValue, str]]:
    source = "stdin" if file == "-" else file
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        entry = read_object(line, f"{source}: line {number}")
        text = entry.get("text")
        if not isinstance(text, str):
            message = f'{source}: line {number} needs an "id" and a "text" that is a string'
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        yield entry.get("id"), text


@click.command(
    "try",
    cls=LcpCommand,
    examples=(
        'lcp try list_files \'{"patterns": ["**/*.py"]}\' --root .',
        "lcp try write_file @params.json --root DIR",
    ),
)
@click.argument("kind", shell_complete=kind_names)
@click.argument("params")
@click.option(
    "--root",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The directory the job is confined to.",
)
@pass_invocation
def try_command(invocation: Invocation, kind: str, params: str, root: Path) -> int:
    """Run one job of KIND with PARAMS now and print its result: {"ok", "result", "error"}.

    PARAMS is a JSON object, @FILE or - for stdin. A job that policy would hold runs; one that it denies is denied.
    Nothing is stored. Exit code 1: not ok.
    """
    invocation.load_workers()
    from lcp_engine.core.policy import Policy
    from lcp_engine.engine.admission import with_kinds
    from lcp_engine.features.authoring.run_job import run_job
    from lcp_engine.sandbox.system.own_places import beneath, own_places
    from lcp_engine.workers.registry import find_workers

    given = read_object(_text(params), "PARAMS")
    settings = invocation.settings
    rules = with_kinds(settings.policy, find_workers()) if settings.policy else ()
    policy = Policy(user_rules=rules, engine_paths=beneath(own_places(), root.resolve()))
    done = run_job(kind, given, root, policy=policy, caps=settings.caps)
    print_json({"ok": done.ok, "result": done.result, "error": done.error and done.error.as_json()})
    return Exit.DONE if done.ok else Exit.FAILED


def _text(stated: str) -> str:
    if stated == "-":
        return sys.stdin.read()
    if not stated.startswith("@"):
        return stated
    try:
        return Path(stated[1:]).read_text(encoding="utf-8")
    except OSError as refused:
        code, fact = ErrorCode.PATH_NOT_FOUND, refused.strerror
    except UnicodeDecodeError as refused:
        code, fact = ErrorCode.BINARY, f"byte {refused.start} is not UTF-8"
    raise LcpError(code, f"PARAMS {stated} cannot be read: {fact}", advice=GENERAL)
