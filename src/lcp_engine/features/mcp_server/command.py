"""Serve missions to MCP clients (`lcp mcp`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pairs, pass_invocation
from lcp_engine.cli.commands.completion import mission_files, planner_names
from lcp_engine.cli.commands.serve import Work, announce_token, run_together, stop_together
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json_line, print_out
from lcp_engine.cli.console.signals import catching_interrupts
from lcp_engine.cli.json_rpc import protocol_streams
from lcp_engine.errors import ErrorCode, LcpError, install
from lcp_engine.features.mcp_server.settings import ClientSettings, McpSettings
from lcp_engine.features.tokens.offers import Offers

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.features.mcp_server.http import PageDoor
    from lcp_engine.features.mcp_server.listed import Listed
    from lcp_engine.features.tokens.calls import Gate
    from lcp_engine.planners.environment import PlannerEnvironment

HIGHEST_PORT = 65_535


@click.command(
    "mcp",
    cls=LcpCommand,
    examples=(
        "lcp mcp                                   look at missions, and answer their questions",
        "lcp mcp --root ~/src/shop --threads 2     also launch missions there, and execute them",
        "lcp mcp --root . --mission survey         launch this mission alone",
    ),
)
@click.option("--root", "roots", multiple=True, metavar="DIR",
              help="A directory over which clients may launch missions; may be repeated.")  # fmt: skip
@click.option("--mission", "missions", multiple=True, metavar="MISSION", shell_complete=mission_files,
              help="A mission that they may launch there; may be repeated.  [default: any goal in words]")  # fmt: skip
@click.option("--planner", shell_complete=planner_names, metavar="NAME",
              help="Who answers in what they launch.  [env: LCP_PLANNER]")  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="Set any key of what they launch, e.g. limits.max_turns=5.")  # fmt: skip
@click.option("--stage", is_flag=True,
              help="Let what they launch work in a private copy of the root, and ask once what is merged.")  # fmt: skip
@click.option("--approve-for", "approvers", multiple=True, metavar="CLIENT",
              help="Let the client of this name approve and undo what it was shown; may be repeated.")  # fmt: skip
@click.option("--http", "address", metavar="HOST:PORT",
              help="Serve clients with a token over HTTP instead, see `lcp tokens`; port 0: any free one.")  # fmt: skip
@click.option("--threads", type=Count(0, 256), metavar="N", default=0, show_default=True,
              help="Also execute jobs, N at a time; with 0 only runners elsewhere (`lcp work`) do.")  # fmt: skip
@pass_invocation
def mcp_command(
    invocation: Invocation,
    *,
    roots: Sequence[str],
    missions: Sequence[str],
    planner: str | None,
    settings: Sequence[str],
    stage: bool,
    approvers: Sequence[str],
    address: str | None,
    threads: int,
) -> int:
    """Serve missions over stdin and stdout to a client of the Model Context Protocol, such as an agent or an editor.

    The client starts it. It can look at the missions of the database, launch those that are listed here, and answer
    questions. It approves nothing, unless --approve-for has its name: that is what it calls itself, and proves nothing.
    It ends when the client closes stdin, and what it began stays in the database.
    Over HTTP a client is known by its token.
    """
    try:
        from lcp_engine.features.mcp_server.door import McpDoor
        from lcp_engine.features.mcp_server.stdio import StdioServer
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from missing
    pairs(settings, "--set")
    stated = invocation.settings.of(McpSettings).mcp
    if missions and not (roots or stated.roots):
        raise click.UsageError("--mission needs --root", click.get_current_context())
    added = {
        "roots": roots, "missions": missions, "set": settings, "approve_for": approvers,
    }  # fmt: skip
    stated = stated.model_copy(
        update={key: (*getattr(stated, key), *given) for key, given in added.items()}
        | {"planner": planner or stated.planner, "stage": stage or stated.stage}
    )
    listed = _listed(stated, invocation.planner_environment)
    with ExitStack() as stack:
        streams = stack.enter_context(protocol_streams()) if address is None else None
        engine = stack.enter_context(invocation.engine())
        interrupts = stack.enter_context(catching_interrupts())
        door = McpDoor(engine, listed, stated.approve_for)
        if streams is not None:
            works: list[Work] = [StdioServer(door.lowlevel, *streams)]
            if sys.stdin.isatty() and not invocation.quiet:
                print_err("this speaks MCP on stdin and stdout: a client starts it; Ctrl-C stops it")
        else:
            assert address is not None
            from lcp_engine.features.mcp_server.http import HttpServer  # slow to import

            works = [server := HttpServer(door, *_host_and_port(address))]
            if invocation.json:
                print_json_line({"url": server.url})
            else:
                print_out(server.url)
                sys.stdout.flush()
            announce_token(invocation, server.token)
        if threads:
            works.append(engine.runner(threads=threads))
        with interrupts.draining(lambda: stop_together(works)):
            run_together(works)
    return Exit.DONE


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port[:6]) > HIGHEST_PORT:
        raise click.UsageError(f"--http expects HOST:PORT, not {address!r}", click.get_current_context())
    return host.strip("[]"), int(port)


def open_mcp(engine: Engine, _: object, gate: Gate) -> PageDoor:
    """MCP as `lcp serve` opens it. Raises like `Offers.of`, and `INVALID_ARGUMENT` without the extra."""
    try:
        from lcp_engine.features.mcp_server.door import McpDoor
        from lcp_engine.features.mcp_server.http import PageDoor
    except ModuleNotFoundError as missing:
        raise _not_installed(missing) from missing
    stated = engine.instance.settings(McpSettings).mcp
    listed = _listed(stated, engine.instance.planner_environment)
    return PageDoor(McpDoor(engine, listed, stated.approve_for), gate)


def _listed(stated: ClientSettings, environment: PlannerEnvironment) -> Listed:
    from lcp_engine.features.mcp_server.listed import Listed

    offers = Offers.of(stated)
    return Listed(
        offers.roots, offers.missions, planner=stated.planner, settings=stated.set, stage=stated.stage,
        environment=environment,
    )  # fmt: skip


def _not_installed(missing: ModuleNotFoundError) -> Exception:
    if (missing.name or "").startswith("lcp_engine"):
        return missing
    message = f"lcp mcp needs the extra 'mcp' ({missing.name} is missing): {install('mcp')}"
    return LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"{install('mcp')}.")
