"""Look at missions (`lcp missions`, `lcp show`, `lcp report`)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import click
from rich.text import Text
from rich.tree import Tree

from lcp_engine.api.records import Job, Mission
from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.error_output import tell
from lcp_engine.cli.event_lines import said_line, told
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.output import coloured, last_cell, make_table, print_json, print_wide, when
from lcp_engine.cli.report import FORMATS, print_report
from lcp_engine.cli.shipped_list import print_offers
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.core.summaries import subject
from lcp_engine.engine.reports.markdown import TURN_KIND, fate
from lcp_engine.shipped_missions import offers


@click.command("missions", cls=LcpCommand)
@click.option("--limit", type=Count(1), help="At most so many.  [default: 50 in a table, all in JSON]")
@click.option("--schedule", metavar="NAME", help="Only those that this schedule launched.")
@click.option("--shipped", is_flag=True, help="The missions that come with the engine, for `lcp run NAME`.")
@pass_invocation
def missions_command(invocation: Invocation, limit: int | None, schedule: str | None, shipped: bool) -> int:
    """List missions, the newest first."""
    if shipped:
        print_offers(offers(), as_json=invocation.json)
        return Exit.DONE
    with invocation.engine() as engine:
        most = limit or (None if invocation.json else 50)
        found = engine.missions(limit=most, schedule=schedule)
        if schedule is not None and not found:
            engine.schedule(schedule)  # it launched nothing yet, or is not there
    if invocation.json:
        print_json([mission.json for mission in found])
        return Exit.DONE
    table = make_table(
        "id", "name", "status", "outcome", "turns", "jobs", "created", "goal", numbers=("id", "turns")
    )
    for mission in found:
        table.add_row(
            str(mission.id),
            one_line(shortened(mission.name, 30)),
            coloured(mission.status),
            one_line(mission.outcome or "-"),
            str(mission.turns),
            _counts(mission),
            when(str(mission.json["created_at"])),
            last_cell(shortened(mission.goal, 60)),
        )
    print_wide(table)
    if not (found or invocation.quiet):
        tell("there is no mission" if schedule is None else f"schedule {schedule} has launched no mission")
    return Exit.DONE


@click.command("show", cls=LcpCommand)
@click.argument("mission", type=int, metavar="M")
@pass_invocation
def show_command(invocation: Invocation, mission: int) -> int:
    """Show mission M with its turns and jobs as a tree."""
    with invocation.engine() as engine:
        found = engine.mission(mission)
        if invocation.json:
            print_json(found.json)
            return Exit.DONE
        jobs, steps = engine.jobs(mission_id=mission), engine.steps(mission)
        files = engine.facts(mission).files.rows
        astray = [
            Text(f"{one_line(str(file['path']))}{fate(file)}", style="yellow") for file in files if fate(file)
        ]
        said = [said_line(event) for event in engine.events(mission, event="said")]
    tree = _tree(found, jobs, steps)
    for line in [*said, *astray]:
        tree.add(line)
    print_wide(tree)
    return Exit.DONE


@click.command("report", cls=LcpCommand)
@click.argument("mission", type=int, metavar="M")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="The form of the report.  [default: text, or json with --json]",
)
@click.option(
    "--since",
    type=Count(0),
    metavar="EVENT",
    help="With structured: what is new and which milestone was reached since that event.  [default: the last question]",
)
@pass_invocation
def report_command(invocation: Invocation, mission: int, form: str | None, since: int | None) -> int:
    """Report on mission M: what was done, files written, limits reached, what waits, what failed, what was said.

    text is Markdown, set on a terminal; json is the same as data; structured is for a program that shows it to a person
    and takes decisions: blocks, forms for what waits, progress; agent is the answer to a request. Everything but the
    planner's words is taken from the history of jobs.
    """
    if since is not None and form != "structured":
        raise click.UsageError("--since belongs to --format structured", click.get_current_context())
    with invocation.engine() as engine:
        print_report(engine, mission, form or ("json" if invocation.json else "text"), since)
    return Exit.DONE


def _counts(mission: Mission) -> str:
    return ", ".join(f"{count} {state}" for state, count in mission.jobs.items() if count) or "-"


def _tree(mission: Mission, jobs: Sequence[Job], steps: Mapping[int, int]) -> Tree:
    """Turns in order, each with the jobs that it asked for; a sub-plan's turns stand under its step."""
    title = Text.assemble(
        (f"mission {mission.id} {one_line(mission.name)}", "bold"), "  ", coloured(mission.status)
    )
    title.append(f" {one_line(mission.outcome or '')}  {one_line(mission.root or '')}", style="dim")
    tree = Tree(title, guide_style="dim")
    tree.add(Text(one_line(shortened(mission.goal, 200)), style="italic"))
    children: Mapping[int | None, list[Job]] = defaultdict(list)
    known = {job.id for job in jobs}
    for job in sorted(jobs, key=_place):
        parent = job.json["parent_id"] or steps.get(job.id)
        children[parent if isinstance(parent, int) and parent in known else None].append(job)
    pending = [(tree, job) for job in children[None]]
    while pending:
        place, job = pending.pop(0)
        branch = place.add(_line(job))
        pending += [(branch, child) for child in children.get(job.id, [])]
    return tree


def _place(job: Job) -> tuple[float, bool, int]:
    """By turn; a turn that was not asked yet is the last."""
    turn = job.json["turn"]
    return (turn if isinstance(turn, int) else math.inf, job.kind != TURN_KIND, job.id)


def _line(job: Job) -> Text:
    number = job.json["turn"]
    turn = "" if job.kind != TURN_KIND else f"turn {number}  " if number else "next turn  "
    text = Text.assemble(
        (f"{job.id} ", "dim"), turn, f"{one_line(job.kind)} {subject(job.json)}  ", coloured(job.state)
    )
    why = told(job)
    return text.append(f"  {one_line(shortened(why, 120))}", style="dim") if why else text
