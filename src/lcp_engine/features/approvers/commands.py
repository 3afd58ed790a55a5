"""Name the people who decide from afar (`lcp approvers`)."""

from __future__ import annotations

import os
import re
import secrets
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, LcpGroup, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_out
from lcp_engine.core.safe_text import one_line

if TYPE_CHECKING:
    from pathlib import Path

    from lcp_engine.config_file import ConfigFile

KEY = "approvers"


@click.group(
    "approvers",
    cls=LcpGroup,
    examples=("lcp approvers add anna", "lcp approvers list", "lcp approvers remove anna"),
)
def approvers_command() -> None:
    """Name the people who decide from afar, each known by a token.

    They are in config.yaml, each with a hash of the token. Once there is one, signed links need a token.
    """


@approvers_command.command("add", cls=LcpCommand)
@click.argument("name")
@pass_invocation
def add_command(invocation: Invocation, name: str) -> int:
    """Add NAME to config.yaml and print the person's token, once: nothing keeps it.

    A token for a name that is there already is refused; remove the name first.
    """
    from lcp_engine.errors import ErrorCode, LcpError
    from lcp_engine.features.approvers.rules import PREFIX, hash_of
    from lcp_engine.features.approvers.settings import check_name
    from lcp_engine.features.rules.config_text import add_entry

    try:
        check_name(name)
    except ValueError as wrong:
        raise click.UsageError(str(wrong), click.get_current_context()) from None
    path, stated, known = _configuration(invocation)
    if name in known:
        advice = f"`lcp approvers remove {name}` ends that token."
        raise LcpError(ErrorCode.WRONG_STATE, f"{name!r} has a token already", advice=advice)
    token = f"{PREFIX}{secrets.token_urlsafe(32)}"
    kept = hash_of(token)
    entry = f'"{name}": {kept}' if not re.fullmatch(r"[A-Za-z][\w.]*", name) else f"{name}: {kept}"
    expected = stated.model_copy(update={KEY: {**known, name: kept}})
    add_entry(path, KEY, entry, expected)
    if invocation.json:
        print_json({"name": name, "token": token})
        return Exit.DONE
    print_out(token)
    if not invocation.quiet:
        print_err(f"this is the token of {name}, shown once; {one_line(str(path))} has a hash of it")
    return Exit.DONE


@approvers_command.command("list", cls=LcpCommand)
@pass_invocation
def list_command(invocation: Invocation) -> int:
    """List the names."""
    *_, known = _configuration(invocation)
    names = sorted(known)
    if invocation.json:
        print_json([*names])
    elif names:
        print_out("\n".join(names))
    elif not invocation.quiet:
        print_err("No approvers; `lcp approvers add NAME` adds one.")
    return Exit.DONE


@approvers_command.command("remove", cls=LcpCommand)
@click.argument("name")
@pass_invocation
def remove_command(invocation: Invocation, name: str) -> int:
    """Take NAME out of config.yaml: the person's token and links decide nothing any more."""
    from lcp_engine.core.summaries import nearest
    from lcp_engine.errors import ErrorCode, LcpError
    from lcp_engine.features.rules.config_text import remove_entry

    path, stated, known = _configuration(invocation)
    if name not in known:
        raise LcpError(ErrorCode.NOT_FOUND, f"no approver is called {name!r}; {nearest(name, [*known])}")
    kept = known[name]
    left = {other: token for other, token in known.items() if other != name}
    line = re.compile(rf"[\"']?{re.escape(name)}[\"']?\s*:\s*[\"']?{re.escape(kept)}[\"']?\s*(#.*)?")
    remove_entry(path, line, stated.model_copy(update={KEY: left}))
    if not (invocation.json or invocation.quiet):
        print_out(f"{name} is removed")
    return Exit.DONE


def approver(invocation: Invocation, name: str) -> str:
    """The name, once the person has shown their token (LCP_APPROVER_TOKEN, or typed at a terminal).

    Raises `INVALID_ARGUMENT` for a token that is not this person's.
    """
    from lcp_engine.core.summaries import nearest
    from lcp_engine.errors import ErrorCode, LcpError
    from lcp_engine.features.approvers.rules import person_with
    from lcp_engine.features.approvers.settings import ApproverSettings

    known = invocation.settings.of(ApproverSettings).approvers
    if name not in known:
        message = f"--as {name!r} should be one of the approvers in config.yaml; {nearest(name, [*known])}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    token = os.environ.get("LCP_APPROVER_TOKEN", "")
    if not token and sys.stdin.isatty() and sys.stderr.isatty():
        token = click.prompt(f"token of {name}", hide_input=True, err=True)
    if person_with(known, token) != name:
        fact = "another one was given" if token else "LCP_APPROVER_TOKEN is not set"
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            f"--as {name!r} needs the token of that person; {fact}",
            advice="Set LCP_APPROVER_TOKEN to the token that `lcp approvers add` printed.",
        )
    return name


def _configuration(invocation: Invocation) -> tuple[Path, ConfigFile, Mapping[str, str]]:
    """The file, what it states, and the approvers among that."""
    from lcp_engine.config_file import config_model
    from lcp_engine.features.approvers.settings import ApproverSettings
    from lcp_engine.settings import config_path

    stated = invocation.settings.stated or config_model()()
    return config_path(), stated, invocation.settings.of(ApproverSettings).approvers
