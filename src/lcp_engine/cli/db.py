"""Check, back up, prune and measure the database (`lcp db`)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Count, Invocation, LcpGroup, naming, pass_invocation
from lcp_engine.cli.exits import Exit
from lcp_engine.cli.output import Fact, print_err, print_json, print_out, when
from lcp_engine.cli.tables import Table, fact_column, number_column, print_table
from lcp_engine.clock import SECOND
from lcp_engine.core.safe_text import one_line
from lcp_engine.core.summaries import size
from lcp_engine.feature import added, load
from lcp_engine.settings import Settings, make_room, shown_url

if TYPE_CHECKING:
    from lcp_engine.store.maintenance.stats import Overview

_SMALL = 16 * 1024 * 1024
"""Databases up to this many bytes are measured without --sizes."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def age_in_micros(text: str) -> int:
    """Parse an age such as `30d` into microseconds. Raises a usage error for anything else."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 7 and unit in _UNITS):
        raise click.UsageError(
            f"--older-than expects a number with s, m, h, d or w, such as 30d, not {text!r}"
        )
    return int(number) * _UNITS[unit] * SECOND


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
    from lcp_engine.store.db.open import open_database
    from lcp_engine.store.maintenance.check import find_version
    from lcp_engine.store.version import HEAD

    url = invocation.database_url
    make_room(url)
    busy = invocation.settings.busy_seconds
    with naming(url):
        before = find_version(url, busy)
        open_database(url, busy_seconds=busy, force=force).close()
    if invocation.json:
        print_json({"before": before, "after": HEAD})
    else:
        how = (
            "is"
            if before == HEAD
            else "was created"
            if before is None
            else f"was upgraded from {before} and is"
        )
        print_out(f"{one_line(shown_url(url))} {how} at version {HEAD}")
    return Exit.DONE


@db_command.command("check")
@pass_invocation
def check_command(invocation: Invocation) -> int:
    """Check that the database is consistent.

    Checks the file and its references, the numbers of events, each job against its history, attempts, approvals,
    leases, counters, and each stored content against its hash. Changes nothing. Exit code 1: faults were found; they
    are listed. Settings and places that may lose commits are warnings, and so are stages that are left over.
    """
    from lcp_engine.store.maintenance.check import check_database
    from lcp_engine.store.maintenance.durability import weaknesses

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


@db_command.command(
    "backup", examples=("lcp db backup lcp-backup.db", "lcp db backup --force /backups/lcp.dump")
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@pass_invocation
def backup_command(invocation: Invocation, file: Path, force: bool) -> int:
    """Copy the database to FILE while it is in use.

    Others are not blocked. The copy is one consistent state, complete or not there at all, and readable by this user
    alone. SQLite gives a database that --db opens, PostgreSQL an archive of pg_dump for pg_restore.
    """
    from lcp_engine.features.upkeep.store.backup import back_up

    url = invocation.database_url
    with naming(url):
        count = back_up(url, file, force=force, busy_seconds=invocation.settings.busy_seconds)
    if invocation.json:
        print_json({"file": str(file), "bytes": count})
    elif not invocation.quiet:
        print_out(f"{one_line(str(file))} has {size(count)}")
    return Exit.DONE


@db_command.command(
    "prune", examples=("lcp db prune --older-than 30d --dry-run", "lcp db prune --older-than 12w --keep 100")
)
@click.option(
    "--older-than",
    required=True,
    metavar="AGE",
    help="Only missions that ended at least this long ago: 30d, 12w, 36h.",
)
@click.option(
    "--keep", type=Count(min=0), default=0, metavar="N", help="Keep the N missions that ended most recently."
)
@click.option(
    "--preimages", is_flag=True, help="Also remove missions whose file changes could still be undone."
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@pass_invocation
def prune_command(invocation: Invocation, older_than: str, keep: int, preimages: bool, dry_run: bool) -> int:
    """Remove missions that ended long ago.

    Contents and runners that nothing else refers to are removed as well, and entries of memory that have expired.
    Missions with held jobs, and those whose file changes could be undone, stay. Short transactions leave room for
    runners. The space is reused; with SQLite, `lcp db backup` makes a smaller file.
    """
    from lcp_engine.features.upkeep.store.prune import prune

    age = age_in_micros(older_than)
    with invocation.engine() as engine:
        database = engine.instance.database
        done = prune(
            database, ended_before=database.now() - age, keep=keep, preimages=preimages, dry_run=dry_run
        )
    if invocation.json:
        print_json({**asdict(done), "dry_run": dry_run})
        return Exit.DONE
    if dry_run:
        print_out(f"missions to remove: {done.missions:,}")
    else:
        gone = f"rows: {done.rows:,}, contents: {done.contents:,}, runners: {done.runners:,}"
        expired = f", expired memories: {done.memories:,}" if done.memories else ""
        print_out(f"missions removed: {done.missions:,} ({gone}{expired})")
    if done.kept_for_undo and not invocation.quiet:
        print_err(
            f"{done.kept_for_undo} more stay because their changes can be undone; --preimages removes them too"
        )
    return Exit.DONE


@db_command.command("stats")
@click.option("--sizes", is_flag=True, help="Measure each table; this reads the whole database.")
@pass_invocation
def stats_command(invocation: Invocation, sizes: bool) -> int:
    """Print the size of the database and what it holds.

    Rows and bytes of each table, with its indexes, are printed for a small database, or with --sizes for any.
    """
    from lcp_engine.store.maintenance.check import measure, opened
    from lcp_engine.store.maintenance.stats import overview

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
