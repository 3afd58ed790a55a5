"""Back up and prune the database (`lcp db`), and say when upkeep was done last, and is next."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Count, Invocation, LcpCommand, naming, pass_invocation
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import Fact, local_time, print_err, print_json, print_out
from lcp_engine.clock import SECOND
from lcp_engine.core.health import Finding, broken, doubtful, well
from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.safe_text import one_line
from lcp_engine.core.summaries import size
from lcp_engine.errors import ErrorCode, Failed

if TYPE_CHECKING:
    from lcp_engine.settings import Settings


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def age_in_micros(text: str) -> int:
    """Parse an age such as `30d` into microseconds. Raises a usage error for anything else."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdigit() and len(number) < 7 and unit in _UNITS):
        raise click.UsageError(
            f"--older-than expects a number with s, m, h, d or w, such as 30d, not {text!r}"
        )
    return int(number) * _UNITS[unit] * SECOND


@click.command(
    "backup",
    cls=LcpCommand,
    examples=("lcp db backup lcp-backup.db", "lcp db backup --force /backups/lcp.dump"),
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


@click.command(
    "prune",
    cls=LcpCommand,
    examples=("lcp db prune --older-than 30d --dry-run", "lcp db prune --older-than 12w --keep 100"),
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


def upkeep_facts(url: str, settings: Settings, busy_seconds: float) -> Iterator[Fact]:
    """Every duty that the configuration states. The database is at the newest version."""
    from lcp_engine.features.upkeep.chores import rhythms
    from lcp_engine.features.upkeep.settings import Upkeep
    from lcp_engine.features.upkeep.store.upkeep import duties
    from lcp_engine.store.db.open import opened

    stated = rhythms(settings.of(Upkeep))
    if not stated:
        return
    with opened(url, busy_seconds) as database:
        known = database.read(duties)
    for duty, every in stated.items():
        row = known.get(duty)
        if row is None:
            yield Fact(duty, "not done yet: a runner for all missions (`lcp work`) does it", True, None)
            continue
        shown = row.json(every)
        found = shown["found"]
        about = found if isinstance(found, dict) else {}
        last = f"last {local_time(_text(shown['last_at']))}{_said(about)}" if found else "not done yet"
        text = f"{last}; next {local_time(_text(shown['next_at']))}"
        if row.error:
            text = f"failed {local_time(_text(shown['failed_at']))}: {row.error}; {text}"
        yield Fact(duty, text, not (row.error or about.get("faults")), shown)


def left_over_lines(url: str, busy_seconds: float) -> Iterator[tuple[str, str]]:
    """Stages and places of commands on this machine that nothing needs, and how each is removed.

    The database is at the newest version.
    """
    from lcp_engine.features.programs.command_places import left_over_walls
    from lcp_engine.features.stages.stages import left_over_stages
    from lcp_engine.store.db.open import opened
    from lcp_engine.store.host.liveness import stages_directory, wall_directory

    with opened(url, busy_seconds) as database:
        for left in left_over_stages(database, stages_directory(url)):
            what = "stages" if left.mission_id is None else f"a stage of mission {left.mission_id},"
            fact = f"{what} {left.why}: {size(left.bytes)} in {left.path}"
            way = "" if left.mission_id is None else "`lcp work --until-idle` removes it when it is done, or "
            yield fact, f"{way}`rm -r {shlex.quote(str(left.path))}` removes {'them' if not way else 'it'}"
        for mission_id, place, why in left_over_walls(database, wall_directory(url)):
            fact = f"a place of commands of mission {mission_id}, {why}: {place}"
            yield fact, "`lcp work --until-idle` removes it when it is done"


def _said(found: Mapping[str, JsonValue]) -> str:
    """Finding of the last time."""
    match found:
        case {"file": str(file), "bytes": int(count)}:
            return f", {file} has {size(count)}"
        case {"missions": int(count)}:
            return f", {count:,} missions removed"
        case {"faults": int(count), "first": first}:
            return f", {count:,} faults, such as: {first}" if count else ", no faults"
        case _:
            return ""


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def examine_upkeep(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """The directory of backups, what was done last, and what is left over on this machine."""
    from lcp_engine.features.upkeep.settings import Upkeep

    backup = settings.of(Upkeep).backup
    if backup is not None and backup.to is not None and not os.access(backup.to, os.W_OK | os.X_OK):
        fact = "is not writable" if Path(backup.to).is_dir() else "is not a directory"
        yield broken(
            "backup",
            Failed(
                ErrorCode.FILE_SYSTEM,
                f"backup.to {backup.to} {fact}; an existing, writable directory is expected",
                advice="Create it, or name another one in config.yaml.",
            ),
        )
    if not is_current:
        return
    for one in upkeep_facts(url, settings, settings.busy_seconds):
        if one.is_well:
            yield well(one.duty, one.text)
        else:
            yield doubtful(one.duty, one.text, "Correct what it names; runners try again by themselves.")
    for fact, way in left_over_lines(url, settings.busy_seconds):
        yield doubtful("stages", fact, f"{way}.")
