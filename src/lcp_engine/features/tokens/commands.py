"""Let programs in by tokens (`lcp tokens`)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from lcp_engine.cli.base import Count, Invocation, LcpGroup, length_of, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_out, until
from lcp_engine.cli.tables import Table, fact_column, name_column, number_column, print_table, text_column

_SCOPES = ("look", "launch", "decide", "admin")
_NEVER = "never"


@click.group(
    "tokens",
    cls=LcpGroup,
    examples=("lcp tokens add dashboard", "lcp tokens add ci --scope look,launch --expires 30d"),
)
def tokens_command() -> None:
    """Let programs in by tokens, each with scopes, an end, and a limit of requests.

    The database has a hash of each; programs send theirs as `Authorization: Bearer TOKEN`.
    """


@tokens_command.command(
    "add",
    examples=(
        "lcp tokens add dashboard --scope look --expires 90d",
        "lcp tokens add phone --scope look,decide --as anna",
    ),
)
@click.argument("name", metavar="NAME")
@click.option("--scope", "scopes", metavar="SCOPE,…", default="look", show_default=True,
              help=f"Which of {', '.join(_SCOPES)} it may; none includes another.")  # fmt: skip
@click.option("--expires", metavar="LENGTH", default="30d", show_default=True,
              help="It ends after 12h, 30d or 8w; `never` keeps it.")  # fmt: skip
@click.option("--as", "person", metavar="PERSON",
              help="Decide by it as this approver, whose token is in LCP_APPROVER_TOKEN, or is asked for; without it, "
              "as the user of this process.")  # fmt: skip
@click.option("--limit", type=Count(1, 1_000_000), metavar="N", default=600, show_default=True,
              help="Requests that it may make in a minute.")  # fmt: skip
@pass_invocation
def add_command(
    invocation: Invocation, *, name: str, scopes: str, expires: str, person: str | None, limit: int
) -> int:
    """Add token NAME and print it, once: only a hash of it is kept.

    A name that is in use is refused; remove that token first.
    """
    from lcp_engine.features.approvers.commands import approver
    from lcp_engine.features.tokens.calls import Scope

    stated = [scope.strip() for scope in scopes.split(",")]
    for scope in stated:
        if scope not in _SCOPES:
            message = f"--scope {scope!r}: one of {', '.join(_SCOPES)} is expected"
            raise click.UsageError(message, click.get_current_context())
    lasts = None if expires == _NEVER else length_of("--expires", expires, "12h, 30d or 8w, or `never`")
    by = None if person is None else approver(invocation, person)
    with invocation.engine() as engine:
        text = engine.tokens.add(
            name, {Scope(scope) for scope in stated}, lasts=lasts, person=by, is_approver=by is not None,
            per_minute=limit,
        )  # fmt: skip
    if invocation.json:
        print_json({"name": name, "token": text})
        return Exit.DONE
    print_out(text)
    if not invocation.quiet:
        print_err(f"this is token {name}, shown once; the database has a hash of it")
    return Exit.DONE


@tokens_command.command("list")
@pass_invocation
def list_command(invocation: Invocation) -> int:
    """List the tokens: what each may, for whom it decides, when it ends."""
    with invocation.engine() as engine:
        found = engine.tokens.all()
    if invocation.json:
        print_json([token.json for token in found])
        return Exit.DONE
    table = Table([
        name_column("name"), text_column("scopes"), text_column("person"), fact_column("ends"),
        number_column("a minute", spare=0),
    ])  # fmt: skip
    for token in found:
        ends = "never" if token.expires_at is None else until(str(token.json["expires_at"]))
        has_ended = token.expires_at is not None and token.expires_at <= datetime.now(UTC)
        table.add(
            token.name,
            ", ".join(token.scopes),
            token.person,
            "ended" if has_ended else ends,
            f"{token.per_minute:,}",
        )
    print_table(table, sys.stdout)
    if not (found or invocation.quiet):
        print_err("No tokens; `lcp tokens add NAME` adds one.")
    return Exit.DONE


@tokens_command.command("remove")
@click.argument("name", metavar="NAME")
@pass_invocation
def remove_command(invocation: Invocation, name: str) -> int:
    """Remove token NAME: it lets nothing in from now on."""
    with invocation.engine() as engine:
        engine.tokens.remove(name)
    if invocation.json:
        print_json({"removed": name})
    else:
        print_out(f"token {name} removed")
    return Exit.DONE
