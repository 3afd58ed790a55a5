"""Check and measure the database (`lcp db check`, `lcp db stats`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from types import FunctionType
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, naming, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import Fact, print_err, print_json, print_out, when
from lcp_engine.cli.tables import Table, fact_column, number_column, print_table
from lcp_engine.core.safe_text import one_line
from lcp_engine.core.summaries import size
from lcp_engine.feature import added, load

if TYPE_CHECKING:
    from lcp_engine.settings import Settings
    from lcp_engine.store.queries.stats import Overview

_SMALL = 16 * 1024 * 1024
"""Databases up to this many bytes are measured without --sizes."""


@click.command("check", cls=LcpCommand)
@pass_invocation
def check_command(invocation: Invocation) -> int:
    """Check that the database is consistent.

    Checks the file and its references, the numbers of events, each job against its history, attempts, approvals,
    leases, counters, and each stored content against its hash. Changes nothing. Exit code 1: faults were found; they
    are listed. Settings and places that may lose commits are warnings, and so are stages that are left over.
    """
    from lcp_engine.features.check.store.durability import weaknesses
    from lcp_engine.features.check.store.examination import check_database

    url = invocation.database_url
    with naming(url):
        settings = invocation.settings
        faults = check_database(url, settings.busy_seconds, kept_bytes=settings.caps.preimage_bytes)
        found = [f"{one.fact}. {one.advice}" for one in weaknesses(url, settings.busy_seconds)]
        found += [f"{fact}; {way}" for fact, way in left_overs(url, settings.busy_seconds)]
    if invocation.json:
        print_json({"ok": not faults, "faults": [*faults], "warnings": [*found]})
    else:
        for warning in found:
            print_err(one_line(f"warning: {warning}"))
        for fault in faults:
            print_err(one_line(fault))
        if not faults:
            print_out("ok")
    return Exit.FAILED if faults else Exit.DONE


@click.command("stats", cls=LcpCommand)
@click.option("--sizes", is_flag=True, help="Measure each table; this reads the whole database.")
@pass_invocation
def stats_command(invocation: Invocation, sizes: bool) -> int:
    """Print the size of the database and what it holds.

    Rows and bytes of each table, with its indexes, are printed for a small database, or with --sizes for any.
    """
    from lcp_engine.features.check.store.examination import measure
    from lcp_engine.store.db.open import opened
    from lcp_engine.store.queries.stats import overview

    url, busy = invocation.database_url, invocation.settings.busy_seconds
    with naming(url):
        with opened(url, busy) as database:
            held = overview(database)
        found = measure(url, busy) if sizes or held.bytes <= _SMALL else None
        upkeep = [*duties(url, invocation.settings, busy)]
    if invocation.json:
        tables = found and {table.name: {"rows": table.rows, "bytes": table.bytes} for table in found}
        print_json({**asdict(held), "tables": tables, "upkeep": {fact.duty: fact.json for fact in upkeep}})
        return Exit.DONE
    _print_overview(held)
    for fact in upkeep:
        print_out(f"{fact.duty:<9} {one_line(fact.text)}")
    if found is None:
        if not invocation.quiet:
            print_err("--sizes measures its tables, which reads the whole database")
        return Exit.DONE
    print_out("")
    shown = Table([fact_column("table"), number_column("rows"), number_column("size")])
    for table in found:
        shown.add(table.name, f"{table.rows:,}", "-" if table.bytes is None else size(table.bytes))
    print_table(shown, sys.stdout)
    return Exit.DONE


def _print_overview(held: Overview) -> None:
    pruned = f", {held.pruned:,} pruned" if held.pruned else ""
    print_out(f"missions  {_counted(held.missions)}{pruned}")
    print_out(f"jobs      {_counted(held.jobs)}")
    for limit, count in held.waiting.items():
        print_out(f"waiting   {count:,} for a permit of {one_line(limit)}")
    saved = f"{size(held.content_bytes)}, stored as {size(held.stored_bytes)}"
    print_out(f"contents  {held.contents:,}: {saved}")
    free = f", {size(held.free_bytes)} of it free" if held.free_bytes else ""
    print_out(f"size      {size(held.bytes)}{free}")
    if held.oldest_mission is not None:
        print_out(f"oldest    {when(held.oldest_mission)}")
    if held.wal_bytes is not None:
        print_out(f"WAL       {size(held.wal_bytes)}")


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in counts.items()) or "none"


def left_overs(url: str, busy_seconds: float) -> Iterator[tuple[str, str]]:
    """Facts about what is left over on this machine, each with how it is removed; at the newest version."""
    for place in added().left_overs:
        yield from load(place, FunctionType)(url, busy_seconds)


def duties(url: str, settings: Settings, busy_seconds: float) -> Iterator[Fact]:
    """Facts about the duties of the configuration for the database, which is at the newest version."""
    for place in added().duties:
        yield from load(place, FunctionType)(url, settings, busy_seconds)
