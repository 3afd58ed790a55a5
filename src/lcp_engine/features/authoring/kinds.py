"""List, describe and check the installed kinds of jobs (`lcp kinds`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import kind_names
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import agent_error, fail, print_json, print_out
from lcp_engine.cli.tables import Table, fact_column, name_column, print_table, text_column
from lcp_engine.core.json_values import object_in
from lcp_engine.core.kinds import kind_named
from lcp_engine.core.safe_text import json_line, one_line
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from lcp_engine import Workers
    from lcp_engine.features.programs.servers.mcp import McpServer, ServerTools


@click.command(
    "kinds",
    cls=LcpCommand,
    examples=(
        "lcp kinds",
        "lcp kinds read_file",
        "lcp kinds --check",
        "lcp kinds --tools",
        "lcp kinds --update --workers kinds.yaml",
    ),
)
@click.argument("kind", required=False, shell_complete=kind_names)
@click.option(
    "--check", "checks", is_flag=True, help="Run the examples, each in an empty directory of its own."
)
@click.option(
    "--update",
    "updates",
    is_flag=True,
    help="Ask the MCP servers of files of kinds for their tools, and accept them.",
)
@click.option("--tools", is_flag=True, help="Print ToolDefinitions (`lcp schema tool_definition`), in JSON.")
@pass_invocation
def kinds_command(
    invocation: Invocation, *, kind: str | None, checks: bool, updates: bool, tools: bool
) -> int:
    """List the kinds of jobs that are installed, or describe KIND: its params, its result, and what it may do.

    Exit code 1: an example failed, or one of several MCP servers did not answer; the tools of the others are accepted.
    """
    if checks + updates + tools > 1:
        raise click.UsageError("--check, --update and --tools are three commands; name one of them")
    if updates:
        if kind is not None:
            raise click.UsageError("--update asks all servers; it takes no KIND")
        return _update(invocation)
    from lcp_engine.features.authoring.describe_kinds import describe, tool_definitions

    workers = invocation.known_workers()
    kind = None if kind is None else kind_named(kind, workers)
    if kind is not None and kind not in workers:
        raise LcpError(ErrorCode.NOT_FOUND, f"kind {kind!r} is not installed; {nearest(kind, list(workers))}")
    chosen = [worker for name, worker in workers.items() if kind in (None, name)]
    if checks:
        return _check(invocation, [worker.kind for worker in chosen], workers)
    if tools:
        definitions = tool_definitions(workers.values())
        defined = [definitions[worker.kind].as_json() for worker in chosen]
        print_json(defined[0] if kind is not None else {"tools": [*defined]})
        return Exit.DONE
    described = [describe(worker) for worker in chosen]
    if invocation.json:
        print_json(described[0] if kind is not None else {"kinds": [*described]})
    elif kind is not None:
        print_out("\n".join(_details(described[0])))
    else:
        _print_table(described)
    return Exit.DONE


def _check(invocation: Invocation, kinds: Sequence[str], workers: Workers) -> int:
    from lcp_engine.features.authoring.describe_kinds import failed_examples

    found = {kind: list(failed_examples(workers[kind], workers)) for kind in kinds}
    if invocation.json:
        print_json(
            {"kinds": [{"kind": kind, "ok": not wrong, "wrong": wrong} for kind, wrong in found.items()]}
        )
    else:
        for kind, wrong in found.items():
            count = len(workers[kind].examples)
            said = "; ".join(wrong) or ("has no examples" if not count else "ok")
            print_out(f"{one_line(kind)}: {one_line(said)}")
    return Exit.FAILED if any(found.values()) else Exit.DONE


def _update(invocation: Invocation) -> int:
    """Ask the servers of each file, show what has become of their tools, and keep it."""
    from lcp_engine.features.programs.servers.load_files import read_servers

    files = [file.expanduser().resolve() for file in invocation.worker_files]
    stated = {file: read_servers(file) for file in files}
    if not any(stated.values()):
        fact = "no file of kinds states an MCP server"
        advice = "Name one with --workers FILE; docs/kinds.md has an example."
        raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice=advice)
    answers = {file: _asked(file, servers) for file, servers in stated.items() if servers}
    if sum(map(len, stated.values())) == 1:
        for found in answers.values():
            for answer in found.values():
                if isinstance(answer, LcpError):
                    raise answer
    updated = [_updated(invocation, file, stated[file], found) for file, found in answers.items()]
    if invocation.json:
        print_json({"files": updated})
    return Exit.FAILED if any("failed" in one for one in updated) else Exit.DONE


def _asked(file: Path, servers: Mapping[str, McpServer]) -> dict[str, ServerTools | LcpError]:
    """Answers of the servers of a file, or why there is none."""
    from lcp_engine.features.programs.servers.mcp_tools import ask_for_tools

    found: dict[str, ServerTools | LcpError] = {}
    for name, server in servers.items():
        try:
            found[name] = ask_for_tools(name, server, file.parent)
        except LcpError as error:
            found[name] = error
    return found


def _updated(
    invocation: Invocation,
    file: Path,
    servers: Mapping[str, McpServer],
    answers: Mapping[str, ServerTools | LcpError],
) -> dict[str, object]:
    """Keep the tools of the servers that answered; what has become of them, and which servers failed."""
    from lcp_engine.features.programs.servers.mcp import tools_file
    from lcp_engine.features.programs.servers.mcp_tools import keep_tools, known_tools

    known = known_tools(file)
    failed = {name: answer for name, answer in answers.items() if isinstance(answer, LcpError)}
    found = {name: answer for name, answer in answers.items() if not isinstance(answer, LcpError)}
    told = [
        one for name, tools in found.items() for one in _told(name, servers[name], known.get(name), tools)
    ]
    place = keep_tools(file, servers, found) if found else tools_file(file)
    if not invocation.json:
        _print_update(told, found, place)
        for error in failed.values():
            fail(error.failed, as_json=False)
    errors = {name: agent_error(error.failed).as_json() for name, error in failed.items()}
    return {"file": str(place), "tools": told, **({"failed": errors} if errors else {})}


def _told(
    name: str, server: McpServer, known: ServerTools | None, found: ServerTools
) -> Iterator[dict[str, JsonValue]]:
    """Changes of the tools of a server since it was asked before, and those that are left out."""
    from lcp_engine.features.programs.servers.mcp import is_stated, kind_of, left_out
    from lcp_engine.features.programs.servers.mcp_tools import changes_of

    reasons = left_out(name, server, found.tools)
    changes = {change.tool.name: change for change in changes_of(known, found)}
    gone = [change.tool for change in changes.values() if change.after is None]
    for tool in (*found.tools, *(one for one in gone if one.name not in found.refused)):
        change, reason = changes.get(tool.name), reasons.get(tool.name)
        if change is None and (reason is None or not is_stated(server, tool)):
            continue
        yield {
            "kind": kind_of(name, tool),
            "change": "same" if change is None else change.how,
            "changed": [] if change is None else [*change.changed],
            "left_out": reason,
            "description": tool.summary,
        }
    for refused, reason in found.refused.items():
        kind = f"{name}.{refused}"
        yield {"kind": kind, "change": "refused", "changed": [], "left_out": reason, "description": ""}


def _print_update(
    told: Sequence[Mapping[str, JsonValue]], found: Mapping[str, ServerTools], place: Path
) -> None:
    table = Table([name_column("kind"), fact_column("change"), text_column("description")])
    for one in told:
        left_out, changed = one["left_out"], one["changed"]
        keys = f": {', '.join(map(str, changed))}" if isinstance(changed, list) and changed else ""
        change = "left out" if left_out is not None else f"{one['change']}{keys}"
        table.add(str(one["kind"]), change, str(left_out or one["description"]))
    if told:
        print_table(table, sys.stdout)
    if not found:
        return
    is_new = any(one["change"] not in ("same", "refused") for one in told)
    for name, tools in found.items():
        said = f" ({one_line(tools.server)})" if tools.server else ""
        print_out(f"{name}{said}: {len(tools.tools):,} tools")
    print_out(f"{one_line(str(place))} has {'them' if is_new else 'the same as before'}.")


def _print_table(described: Sequence[Mapping[str, JsonValue]]) -> None:
    table = Table(
        [name_column("kind"), fact_column("role"), fact_column("default"), text_column("description")]
    )
    for one in described:
        table.add(str(one["kind"]), str(one["role"]), _default(one), str(one["description"]))
    print_table(table, sys.stdout)


def _default(one: Mapping[str, JsonValue]) -> str:
    return "held" if one["is_held"] else "runs"


def _details(one: Mapping[str, JsonValue]) -> Iterator[str]:
    from lcp_engine.features.authoring.describe_kinds import effects_in_words, executed_in_words

    yield f"{one['kind']}: {one_line(str(one['description']))}"
    held = "held for a person" if one["is_held"] else "run without asking"
    yield f"  role        {one['role']}; it {effects_in_words(one)}"
    yield f"  by default  {held}; permission level {one['permission']}"
    yield f"  executed    {executed_in_words(one)}"
    yield from _program(one["program"])
    yield (
        f"  limits      {one['timeout_seconds']:g} s an attempt, {one['max_attempts']} attempts, "
        f"{one['backoff_seconds']:g} s before the second"
    )
    if together := [*_together(one)]:
        yield f"  together    {', '.join(together)}, on all runners"
    for name in ("params", "result"):
        yield f"  {name}"
        yield from _fields(one[name])
    examples = one["examples"]
    for example in examples if isinstance(examples, list) else []:
        if isinstance(example, dict):
            yield f"  example     {json_line(example['params'])}"


def _together(one: Mapping[str, JsonValue]) -> Iterator[str]:
    """Limits of the jobs of a kind together."""
    if one["rate_limit"] is not None:
        rate = object_in(one["rate_limit"])
        burst = "" if rate["burst"] is None else f" and {rate['burst']} at once"
        yield f"{rate['requests_per_minute']:g} starts a minute{burst}"
    if one["max_running"] is not None:
        yield f"{one['max_running']} running at once"


def _program(program: JsonValue) -> Iterator[str]:
    """The program that executes the jobs, and what is there for it."""
    if not isinstance(program, dict):
        return
    from lcp_engine.features.authoring.describe_kinds import needs_in_words

    lives = "for many jobs" if program["long_lived"] else "for each job"
    most = f", at most {program['concurrency']} at once" if program["concurrency"] is not None else ""
    yield f"  program     {one_line(str(program['name']))}, started {lives}{most}"
    yield f"  needs       {one_line(needs_in_words(program['needs']))}"
    if program["claims"] is not None:
        yield f"  claims      {one_line(str(program['claims']))} (as the server says; not trusted)"


def _fields(schema: JsonValue) -> Iterator[str]:
    from lcp_engine.features.authoring.describe_kinds import NO_FIELDS, NO_SCHEMA, fields_of

    fields = list(fields_of(schema))
    if not fields:
        yield f"    {NO_FIELDS if schema else NO_SCHEMA}"
    for field in fields:
        said = f": {one_line(field.description)}" if field.description else ""
        yield f"    {one_line(field.name)} ({field.type}{'' if field.is_required else ', optional'}){said}"
