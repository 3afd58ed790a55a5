"""Find and upgrade the database (`lcp db`), for which features add further commands."""

from __future__ import annotations

import click

from lcp_engine.cli.base import Invocation, LcpGroup, naming, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_json, print_out
from lcp_engine.core.safe_text import one_line
from lcp_engine.settings import make_room, shown_url


@click.group("db", cls=LcpGroup)
def db_command() -> None:
    """Manage the database: --db, else LCP_DATABASE_URL, else a file in your data directory."""


@db_command.command("path")
@pass_invocation
def path_command(invocation: Invocation) -> int:
    """Print the path of the database, or its URL without the password."""
    url = invocation.database_url
    if invocation.json:
        print_json({"url": shown_url(url)})
    else:
        print_out(one_line(shown_url(url).removeprefix("sqlite:///")), is_exact=True)
    return Exit.DONE


@db_command.command("upgrade")
@click.option("--force", is_flag=True, help="Upgrade although runners of the older version are working.")
@pass_invocation
def upgrade_command(invocation: Invocation, force: bool) -> int:
    """Upgrade the database to the newest schema, or create it. Other commands do so automatically.

    Refused while a runner of the older version is working; one that is upgraded all the same stops by itself.
    """
    from lcp_engine.api.history import upgrade_database

    url = invocation.database_url
    make_room(url)
    with naming(url):
        before, after = upgrade_database(url, invocation.settings.busy_seconds, force=force)
    if invocation.json:
        print_json({"before": before, "after": after})
    else:
        how = (
            "is"
            if before == after
            else "was created"
            if before is None
            else f"was upgraded from {before} and is"
        )
        print_out(f"{one_line(shown_url(url))} {how} at version {after}")
    return Exit.DONE
