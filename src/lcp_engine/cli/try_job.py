"""Run one job outside any mission (`lcp try`)."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation, read_object
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import print_json
from lcp_engine.errors import ErrorCode, LcpError


@click.command(
    "try",
    cls=LcpCommand,
    examples=(
        'lcp try list_files \'{"patterns": ["**/*.py"]}\' --root .',
        "lcp try write_file @params.json --root DIR",
    ),
)
@click.argument("kind")
@click.argument("params")
@click.option(
    "--root",
    required=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="What the job is confined to.",
)
@pass_invocation
def try_command(invocation: Invocation, kind: str, params: str, root: Path) -> int:
    """Run one job of KIND with PARAMS now and print its result: {"ok", "result", "error"}.

    PARAMS is a JSON object, @FILE or - for stdin. What policy would hold runs, what it denies is denied; nothing is
    stored. Exit code 1: not ok.
    """
    from lcp_engine.core.policy import Policy
    from lcp_engine.engine.run_job import run_job

    given = read_object(_text(params), "PARAMS")
    settings = invocation.settings
    done = run_job(kind, given, root, policy=Policy(user_rules=settings.policy), caps=settings.caps)
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
        fact = refused.strerror
    except UnicodeDecodeError as refused:
        fact = f"byte {refused.start} is not UTF-8"
    raise LcpError(ErrorCode.INVALID_ARGUMENT, f"PARAMS {stated} has to be a readable file: {fact}")
