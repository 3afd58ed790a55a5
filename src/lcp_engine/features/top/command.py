"""Watch missions and decide on held jobs, full screen (`lcp top`)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.errors import ErrorCode, LcpError, install

if TYPE_CHECKING:
    from lcp_engine.features.top.app import Top

AWAY_SECONDS = 2.0
"""A database that is away is said so soon; the screen goes on, and shows it when it is back."""


@click.command("top", cls=LcpCommand, examples=("lcp top",))
@pass_invocation
def top_command(invocation: Invocation) -> int:
    """Show missions and the jobs that wait for you, full screen, and decide from the keyboard.

    It executes nothing: a runner does (`lcp work`). The keys are shown on the last line; q quits.
    """
    top_type = _load()
    if invocation.json:
        raise click.UsageError(
            "it is for people; `lcp missions --json` and `lcp held --json` are for programs"
        )
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise click.UsageError("a terminal is needed; `lcp missions` and `lcp held` print lists")
    with invocation.engine(away_seconds=AWAY_SECONDS) as engine:
        top = top_type(engine)
        code = top.run(mouse=False)
    if top.defect is not None:
        raise top.defect
    return 1 if code is None else code


def _load() -> type[Top]:
    try:
        from lcp_engine.features.top.app import Top
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("lcp_engine"):
            raise
        message = f"lcp top needs the extra 'tui' ({missing.name} is missing): {install('tui')}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=f"{install('tui')}.") from missing
    return Top
