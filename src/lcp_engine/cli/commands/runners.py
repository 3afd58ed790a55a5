"""List the processes that execute jobs (`lcp runners`)."""

from __future__ import annotations

import sys

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, when
from lcp_engine.cli.tables import (
    Table,
    fact_column,
    id_column,
    name_column,
    number_column,
    print_table,
    text_column,
)


@click.command("runners", cls=LcpCommand, examples=("lcp runners", "lcp runners --json"))
@pass_invocation
def runners_command(invocation: Invocation) -> int:
    """List the processes that execute jobs of this database, on all machines.

    A root whose file system does not answer is named; its missions wait, the others go on.
    """
    with invocation.history() as history:
        found = history.runners()
    if invocation.json:
        print_json([runner.json for runner in found])
        return Exit.DONE
    if not found:
        if not invocation.quiet:
            print_err("No runners; `lcp work` starts one.")
        return Exit.DONE
    table = Table([
        id_column("runner"),
        number_column("jobs"),
        fact_column("started"),
        number_column("pid", spare=1),
        name_column("host"),
        text_column("does not answer", least=20),
    ])  # fmt: skip
    for runner in found:
        table.add(
            str(runner.id),
            f"{runner.running:,}",
            when(str(runner.json["started_at"])),
            str(runner.pid),
            runner.host,
            ", ".join(runner.silent_roots) or "-",
        )
    print_table(table, sys.stdout)
    return Exit.DONE
