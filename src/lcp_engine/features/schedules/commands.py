"""Launch missions regularly (`lcp schedule`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from lcp_engine.cli.base import Invocation, LcpGroup, pass_invocation
from lcp_engine.cli.commands.completion import schedule_names
from lcp_engine.cli.commands.load_mission import MissionOptions, load, mission_options
from lcp_engine.cli.commands.run import print_outlook
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.idle import note_idle
from lcp_engine.cli.console.output import print_err, print_json, print_out, until, when
from lcp_engine.cli.tables import (
    Table,
    fact_column,
    id_column,
    name_column,
    number_column,
    print_table,
    text_column,
)
from lcp_engine.clock import system_clock
from lcp_engine.core.times.local_times import is_timezone
from lcp_engine.core.times.recurrence import Every, read_recurrence
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.schedules import Overlap, Schedule

OVERDUE_SECONDS = 10
LOCALTIME = Path("/etc/localtime")


@click.group("schedule", cls=LcpGroup)
def schedule_command() -> None:
    """Launch a mission regularly; runners (`lcp work`) launch it when it is due.

    Each due time launches one mission, however many runners there are. After a time without runners, one mission is
    launched for all the due times missed.
    """


@schedule_command.command(
    "add",
    examples=(
        "lcp schedule add hourly survey --root . --every 1h",
        'lcp schedule add briefing briefing.yaml --cron "0 7 * * 1-5" --timezone Europe/Zurich',
        "lcp schedule add accounts accounts.yaml --every 1month --at 2026-12-31T09:00",
        "lcp schedule add release release.yaml --at 2026-12-01T09:00",
    ),
)
@click.argument("name", metavar="NAME")
@mission_options
@click.option(
    "--every",
    metavar="LENGTH",
    help="Due at intervals of 30s, 15m, 1h30m, 1d, 2w; by the calendar, at the same local time: 1day, 2weeks, 1month, "
    "1year.",
)
@click.option(
    "--cron", metavar="EXPRESSION", help="Due at these times: minute, hour, day of month, month, day of week."
)
@click.option(
    "--at",
    metavar="TIME",
    help="Due once, or with --every first, at 2026-12-01T09:00, perhaps with an offset such as +01:00, or at the next "
    "09:00.",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="The timezone of --cron, --at and calendar intervals.  [default: this machine's]",
)
@click.option(
    "--overlap",
    type=click.Choice(["skip", "allow"]),
    default="skip",
    show_default=True,
    help="If the last mission still runs or waits: skip the due time, or launch anyway.",
)
@click.option("--replace", is_flag=True, help="Replace the schedule if it exists.")
@pass_invocation
def add_command(
    invocation: Invocation,
    *,
    name: str,
    options: MissionOptions,
    every: str | None,
    cron: str | None,
    at: str | None,
    timezone: str | None,
    overlap: Overlap,
    replace: bool,
) -> int:
    """Add schedule NAME, which launches MISSION whenever it is due.

    The mission is read, checked and stored now; later changes of the file have no effect. Prints the first due time.
    """
    context = click.get_current_context()
    if (cron is None) == (every is None and at is None):
        expected = "--cron, --every or --at is expected, and only --every and --at together"
        raise click.UsageError(expected, context)
    zone = timezone if timezone is not None else here(os.environ)
    # Before the mission is read, which may be stdin.
    planned = read_recurrence(every=every, cron=cron, at=at, timezone=zone, now=system_clock())
    if timezone is not None and at is None and isinstance(planned.recurrence, Every):
        raise click.UsageError("--timezone belongs to --cron, --at and calendar intervals", context)
    spec, directory, request = load(options, invocation.planner_environment)
    if request is not None:
        raise LcpError(
            ErrorCode.INVALID_MISSION,
            f"{options.mission} is a request, which a mission is launched for once; a schedule needs a mission file",
            advice="Write a mission file with the goal of the request.",
        )
    with invocation.engine() as engine:
        added = engine.add_schedule(
            name,
            spec,
            root=directory,
            every=every,
            cron=cron,
            at=at,
            timezone=zone,
            overlap=overlap,
            replace=replace,
            allow_admin=options.allow_admin,
        )
        print_outlook(invocation, engine, spec, directory)
    if invocation.json:
        print_json(added.json)
        return Exit.DONE
    print_out(f"schedule {added.name} is {_when_due(added)}")
    if not invocation.quiet:
        print_err("a runner (`lcp work`) will launch it then")
    return Exit.DONE


@schedule_command.command("list")
@pass_invocation
def list_command(invocation: Invocation) -> int:
    """List schedules with their due times and last missions."""
    with invocation.engine() as engine:
        found = engine.schedules()
    if invocation.json:
        print_json([schedule.json for schedule in found])
        return Exit.DONE
    print_table(schedules_table(found), sys.stdout)
    if not (found or invocation.quiet):
        print_err("No schedules; `lcp schedule add` creates one.")
    if not invocation.quiet:
        _tell_overdue(found)
    return Exit.DONE


@schedule_command.command("remove")
@click.argument("name", shell_complete=schedule_names, metavar="NAME")
@pass_invocation
def remove_command(invocation: Invocation, name: str) -> int:
    """Remove schedule NAME. Its missions stay and continue."""
    with invocation.engine() as engine:
        engine.remove_schedule(name)
    if invocation.json:
        print_json({"removed": name})
    else:
        print_out(f"schedule {name} removed")
    return Exit.DONE


@schedule_command.command("run-now")
@click.argument("name", shell_complete=schedule_names, metavar="NAME")
@pass_invocation
def run_now_command(invocation: Invocation, name: str) -> int:
    """Launch the mission of schedule NAME now, and print its id. The next due time does not change."""
    with invocation.engine() as engine:
        launched = engine.launch_scheduled(name)
        if invocation.json:
            print_json({"id": launched.id})
        else:
            print_out(str(launched.id))
            note_idle(invocation, engine, [launched])
    return Exit.DONE


def schedules_table(schedules: Sequence[Schedule]) -> Table:
    """Schedules with their newest missions, due times, and what happened at the last one."""
    table = Table([
        name_column("name"),
        id_column("mission"),
        text_column("due"),
        fact_column("next due"),
        number_column("missed", spare=1),
        number_column("skipped", spare=0),
        text_column("last", least=32),
    ])  # fmt: skip
    for one in schedules:
        table.add(
            one.name,
            str(one.mission_id or "-"),
            one.rule,
            "done" if one.next_due_at is None else until(str(one.json["next_due_at"])),
            f"{one.missed:,}",
            f"{one.skipped:,}",
            _last(one),
        )
    return table


def here(environment: Mapping[str, str], localtime: Path = LOCALTIME) -> str:
    """The timezone of this machine: TZ, else the target of the link /etc/localtime, else UTC."""
    for name in (
        environment.get("TZ", "").removeprefix(":"),
        str(localtime.resolve()).partition("zoneinfo/")[2],
    ):
        if is_timezone(name):
            return name
    return "UTC"


def _tell_overdue(found: Sequence[Schedule]) -> None:
    """Warn that no runner launches what is due."""
    latest = datetime.now(UTC) - timedelta(seconds=OVERDUE_SECONDS)
    overdue = [one.name for one in found if one.next_due_at and one.next_due_at < latest and not one.error]
    if overdue:
        named = f"schedule {overdue[0]} is" if len(overdue) == 1 else f"{len(overdue)} schedules are"
        print_err(f"{named} overdue because no runner is started: start `lcp work`")


def _when_due(schedule: Schedule) -> str:
    """The next due time in the schedule's timezone."""
    if schedule.next_due_at is None:
        return "done"
    zone = schedule.json["timezone"]
    at = schedule.next_due_at.astimezone(ZoneInfo(str(zone)) if zone else None)
    return f"next due at {at.isoformat(timespec='seconds')}"


def _last(schedule: Schedule) -> str:
    """The outcome of the last due time, and the status of the newest mission."""
    if schedule.error:
        return f"cannot be launched: {schedule.error}"
    mission, last = schedule.json["mission"], schedule.json["last"]
    status = str(mission["status"]) if isinstance(mission, dict) else "-"
    if not isinstance(last, dict):
        return status
    outcome, at = last["outcome"], datetime.fromisoformat(str(last["at"]))
    late = f", {last['missed']:,} missed" if last["missed"] else ""
    return f"{outcome} {when(at.isoformat())}{late}: {status}"
