"""List the notices of the webhook and what became of them (`lcp deliveries`)."""

from __future__ import annotations

import sys

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exits import Exit
from lcp_engine.cli.output import print_err, print_json, when
from lcp_engine.cli.tables import Table, fact_column, id_column, number_column, print_table, text_column


@click.command("deliveries", cls=LcpCommand, examples=("lcp deliveries", "lcp deliveries --limit 5 --json"))
@click.option(
    "--limit", type=Count(1), metavar="N", default=20, show_default=True, help="The newest N notices."
)
@pass_invocation
def deliveries_command(invocation: Invocation, limit: int) -> int:
    """List the notices for the webhook of the configuration, newest first, and what became of each.

    unsent: it is sent now, or again after a failure. delivered: the server took it. outdated: its mission did not wait
    any more, or waited anew, when its turn came. given_up: the server did not take it for a day.
    """
    with invocation.history() as history:
        found = history.deliveries(limit=limit)
    if invocation.json:
        print_json(found)
        return Exit.DONE
    if not found:
        if not invocation.quiet:
            print_err("No notices; `webhook` in config.yaml says where they are sent.")
        return Exit.DONE
    table = Table([
        id_column("notice"),
        id_column("mission"),
        fact_column("state"),
        number_column("tries"),
        fact_column("since"),
        text_column("answer", least=20),
    ])  # fmt: skip
    for one in found:
        table.add(
            str(one["id"]),
            str(one["mission_id"]),
            str(one["state"]),
            f"{one['attempts']}",
            when(str(one["created_at"])),
            str(one["error"] or one["http_status"] or "-"),
        )
    print_table(table, sys.stdout)
    return Exit.DONE
