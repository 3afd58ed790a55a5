"""Serve an editor over stdin and stdout (`lcp acp`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pairs, pass_invocation
from lcp_engine.cli.commands.completion import mission_files, planner_names
from lcp_engine.cli.commands.load_mission import MissionOptions, load_spec
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.json_rpc import protocol_streams
from lcp_engine.errors import ErrorCode, InvalidInput, LcpError, install


@click.command(
    "acp",
    cls=LcpCommand,
    examples=("lcp acp", "lcp acp --planner local", "lcp acp --mission editor.yaml --set stage=true"),
)
@click.option(
    "--mission", metavar="FILE", shell_complete=mission_files,
    help="Launch missions like the one of this file, each with what you write as its goal.",
)  # fmt: skip
@click.option(
    "--planner", shell_complete=planner_names, metavar="NAME", help="Who answers.  [env: LCP_PLANNER]"
)
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="Set a key of the missions, e.g. limits.max_turns=5.",
)  # fmt: skip
@click.option(
    "--threads", type=Count(0, 256), metavar="N", default=4, show_default=True,
    help="Jobs to run at a time; 0 leaves them to other runners.",
)  # fmt: skip
@pass_invocation
def acp_command(
    invocation: Invocation, *, mission: str | None, planner: str | None, settings: Sequence[str], threads: int
) -> int:
    """Speak the Agent Client Protocol on stdin and stdout; an editor starts it.

    Each first message of a conversation launches a mission over the editor's directory. See docs/editors.md.
    """
    pairs(settings, "--set")
    if mission == "-":
        raise click.UsageError("--mission: a file is expected; stdin belongs to the editor")
    options = MissionOptions(mission or "", planner=planner, settings=settings)
    if mission is not None:
        with suppress(InvalidInput):  # that depends on the directory, and the editor is told
            load_spec(options)
    serve = _load()
    with protocol_streams() as streams, invocation.engine() as engine:
        asyncio.run(serve(engine, options, invocation.planner_environment, threads, streams))
    return Exit.DONE


def _load() -> Callable[..., Coroutine[object, object, None]]:
    try:
        from lcp_engine.features.editors.agent import serve
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("lcp_engine"):
            raise
        message = f"lcp acp needs the extra 'acp' ({missing.name} is missing): {install('acp')}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"{install('acp')}.") from missing
    return serve
