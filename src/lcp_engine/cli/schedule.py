"""Launch missions again and again (`lcp schedule`)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import click

from lcp_engine.cli.base import Exit, Invocation, LcpGroup, pass_invocation
from lcp_engine.cli.load_mission import Wish, load
from lcp_engine.cli.output import last_cell, make_table, print_json, print_out, print_wide, tell, until, when
from lcp_engine.cli.run import mission_options, tell_worst_case
from lcp_engine.core.recurrence import is_timezone, read_recurrence
from lcp_engine.core.safe_text import one_line
from lcp_engine.engine.schedules import Overlap
from lcp_engine.planners.environment import Surroundings
from lcp_engine.store.queries.records import Schedule

OVERDUE_SECONDS = 10
LOCALTIME = Path("/etc/localtime")


@click.group("schedule", cls=LcpGroup)
def schedule_command() -> None:
    """Launch a mission again and again; runners (lcp work) do it when it is due.

    Each due time launches once, however many runners there are. What was due while none was there is launched once,
    late.
    """


@schedule_command.command(
    "add",
    examples=(
        "lcp schedule add hourly survey --root . --every 1h",
        'lcp schedule add briefing briefing.yaml --cron "0 7 * * 1-5" --timezone Europe/Zurich',
    ),
)
@click.argument("name", metavar="NAME")
@mission_options
@click.option("--every", metavar="LENGTH", help="Due after each length of time: 30s, 15m, 1h30m, 1d, 2w.")
@click.option(
    "--cron", metavar="EXPRESSION", help="Due by the clock: minute, hour, day of month, month, day of week."
)
@click.option("--timezone", metavar="ZONE", help="Where the clock of --cron is.  [default: here]")
@click.option(
    "--overlap",
    type=click.Choice(["skip", "allow"]),
    default="skip",
    show_default=True,
    help="When a mission of it runs or waits still: skip what is due, or launch it all the same.",
)
@click.option("--replace", is_flag=True, help="Give a schedule that is there these settings.")
@pass_invocation
def add_command(
    invocation: Invocation,
    *,
    name: str,
    wish: Wish,
    every: str | None,
    cron: str | None,
    timezone: str | None,
    overlap: Overlap,
    replace: bool,
) -> int:
    """Launch MISSION whenever it is due, as schedule NAME; print when that is first.

    The mission is read and checked now, like lcp launch does, and kept: a file that changes later changes nothing.
    """
    context = click.get_current_context()
    if (every is None) == (cron is None):
        raise click.UsageError("exactly one of --every and --cron is expected", context)
    if timezone is not None and cron is None:
        raise click.UsageError("--timezone belongs to --cron", context)
    zone = timezone if timezone is not None else here(os.environ)
    read_recurrence(every=every, cron=cron, timezone=zone)  # before the mission is read, which may be stdin
    spec, directory = load(wish, Surroundings(invocation.settings.planners))
    with invocation.engine() as engine:
        added = engine.add_schedule(
            name,
            spec,
            root=directory,
            every=every,
            cron=cron,
            timezone=zone,
            overlap=overlap,
            replace=replace,
        )
        tell_worst_case(invocation, engine, spec)
    if invocation.json:
        print_json(added.json)
        return Exit.DONE
    print_out(f"schedule {added.name} is due next at {_on_the_wall(added)}")
    if not invocation.quiet:
        tell("a runner (`lcp work`) launches it then")
    return Exit.DONE


@schedule_command.command("list")
@pass_invocation
def list_command(invocation: Invocation) -> int:
    """List schedules: when they are due, what was missed or skipped, what became of the last mission."""
    with invocation.engine() as engine:
        found = engine.schedules()
    if invocation.json:
        print_json([schedule.json for schedule in found])
        return Exit.DONE
    table = make_table("name", "due", "next due", "missed", "skipped", "last", numbers=("missed", "skipped"))
    for one in found:
        table.add_row(
            one.name,
            one_line(one.rule),
            until(str(one.json["next_due_at"])),
            f"{one.missed:,}",
            f"{one.skipped:,}",
            last_cell(_last(one)),
        )
    print_wide(table)
    if not (found or invocation.quiet):
        tell("there is no schedule; `lcp schedule add` makes one")
    _tell_overdue(found)
    return Exit.DONE


@schedule_command.command("remove")
@click.argument("name", metavar="NAME")
@pass_invocation
def remove_command(invocation: Invocation, name: str) -> int:
    """Remove schedule NAME. Its missions stay, and go on."""
    with invocation.engine() as engine:
        engine.remove_schedule(name)
    if invocation.json:
        print_json({"removed": name})
    else:
        print_out(f"schedule {name} removed")
    return Exit.DONE


@schedule_command.command("run-now")
@click.argument("name", metavar="NAME")
@pass_invocation
def run_now_command(invocation: Invocation, name: str) -> int:
    """Launch the mission of schedule NAME now, and print its id. When it is due next does not change."""
    with invocation.engine() as engine:
        launched = engine.launch_scheduled(name)
    if invocation.json:
        print_json({"id": launched.id})
    else:
        print_out(str(launched.id))
    return Exit.DONE


def here(environment: Mapping[str, str], localtime: Path = LOCALTIME) -> str:
    """The timezone of this machine: TZ, else where its clock is linked to, else UTC."""
    for name in (
        environment.get("TZ", "").removeprefix(":"),
        str(localtime.resolve()).partition("zoneinfo/")[2],
    ):
        if is_timezone(name):
            return name
    return "UTC"


def _tell_overdue(found: Sequence[Schedule]) -> None:
    """Say that nobody launches what is due: runners would have looked long ago."""
    latest = datetime.now(UTC) - timedelta(seconds=OVERDUE_SECONDS)
    overdue = [one.name for one in found if one.next_due_at < latest and not one.error]
    if overdue:
        named = f"schedule {overdue[0]} is" if len(overdue) == 1 else f"{len(overdue)} schedules are"
        tell(f"{named} overdue, and no runner launches anything: start `lcp work`")


def _on_the_wall(schedule: Schedule) -> str:
    """When it is due next, by the clock that it goes by."""
    zone = schedule.json["timezone"]
    at = schedule.next_due_at.astimezone(ZoneInfo(str(zone)) if zone else None)
    return at.isoformat(timespec="seconds")


def _last(schedule: Schedule) -> str:
    """What became of the last due time, and of the newest mission."""
    if schedule.error:
        return f"cannot be launched: {schedule.error}"
    mission, last = schedule.json["mission"], schedule.json["last"]
    told = f"mission {mission['id']} {mission['status']}" if isinstance(mission, dict) else ""
    if not isinstance(last, dict):
        return told or "-"
    outcome, at = last["outcome"], datetime.fromisoformat(str(last["at"]))
    late = f", {last['missed']:,} missed" if last["missed"] else ""
    return f"{outcome} {when(at.isoformat())}{late}: {told}"
