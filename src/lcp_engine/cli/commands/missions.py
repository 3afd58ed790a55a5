"""List, show, follow and report on missions (`lcp missions`, `show`, `watch`, `report`)."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.text import Text
from rich.tree import Tree

from lcp_engine import Job, Mission
from lcp_engine.cli.base import Count, Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.commands.completion import mission_ids, schedule_names
from lcp_engine.cli.commands.events import EventFormatter, Follower, message_line, warning_lines
from lcp_engine.cli.console.exits import Exit, exit_of_mission, held_effects
from lcp_engine.cli.console.idle import IdleWatch, note_idle
from lcp_engine.cli.console.output import (
    coloured,
    make_console,
    print_err,
    print_json,
    print_json_line,
    print_out,
    print_tree,
    wait_line,
    when,
)
from lcp_engine.cli.job_tables import summarize
from lcp_engine.cli.tables import (
    Table,
    fact_column,
    id_column,
    mark_of,
    number_column,
    print_table,
    text_column,
)
from lcp_engine.core.job_states import SETTLED, State
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.kinds import TURN
from lcp_engine.core.limits.money import told_cost
from lcp_engine.core.safe_text import block, json_line, one_line, sentence, shortened
from lcp_engine.core.summaries import size, status_of, subject, unfulfilled_note
from lcp_engine.features.reports.progress import Measure

if TYPE_CHECKING:
    from lcp_engine.api.history import History
    from lcp_engine.core.mission.parse import Variable
    from lcp_engine.shipped_missions import Offer

POLL_SECONDS = 0.2
FORMATS = ("text", "json", "structured", "agent")
MOST_LINES = 20
"""Rows of a list in the text."""


@click.command("missions", cls=LcpCommand)
@click.option(
    "--limit", type=Count(1), metavar="N", help="List at most N.  [default: 50 in a table, all in JSON]"
)
@click.option(
    "--schedule",
    shell_complete=schedule_names,
    metavar="NAME",
    help="Only missions launched by this schedule.",
)
@click.option("--session", metavar="ID", help="Only missions launched for requests of this session.")
@click.option("--shipped", is_flag=True, help="List the shipped missions, for `lcp run NAME`.")
@pass_invocation
def missions_command(
    invocation: Invocation, limit: int | None, schedule: str | None, session: str | None, shipped: bool
) -> int:
    """List missions, newest first."""
    if shipped:
        from lcp_engine.shipped_missions import offers

        print_offers(offers(), as_json=invocation.json)
        return Exit.DONE
    with invocation.history() as history:
        most = limit or (None if invocation.json else 50)
        found = history.missions(limit=most, schedule=schedule, session=session)
        if schedule is not None and not found:
            with invocation.engine() as engine:
                engine.schedule(schedule)  # raises if it does not exist
        if invocation.json:
            print_json([mission.json for mission in found])
            return Exit.DONE
        print_table(missions_table(found), sys.stdout)
        note_idle(invocation, history, found)
    if not (found or invocation.quiet):
        of = f" of schedule {schedule}" if schedule is not None else ""
        of += f" of session {one_line(session)}" if session is not None else ""
        print_err(f"No missions{of}.")
    return Exit.DONE


@click.command("show", cls=LcpCommand)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@pass_invocation
def show_command(invocation: Invocation, mission: int) -> int:
    """Show mission M with its turns and jobs as a tree."""
    from lcp_engine.features.programs.wall.layers.layer import kept_output
    from lcp_engine.features.reports.reports import disk_note, error_lines

    with invocation.history() as history:
        found = history.mission(mission)
        output = kept_output(invocation.database_url, mission)
        warnings = history.warnings(mission)
        settings, stage = history.kind_settings(mission), history.stage(mission)
        noted, note_lines = history.launch_notes(mission)
        if invocation.json:
            kinds = {"kinds": {**settings}} if settings else {}
            staged = {} if stage is None else {"stage": {**stage}}
            kept = {} if output is None else {"output": {"bytes": output.bytes, "files": output.files}}
            more = {"warnings": [*warnings]} if warnings else {}
            print_json({**found.json, **kinds, **staged, **kept, **more, **noted})
            return Exit.DONE
        jobs, steps = history.jobs(mission_id=mission), history.steps(mission)
        files = history.facts(mission).files.rows
        astray = [
            Text(f"{one_line(file.path)}{disk_note(file.disk)}", style="yellow")
            for file in files
            if disk_note(file.disk)
        ]
        said = [message_line(event) for event in history.events(mission, event="said")]
        undone = unfulfilled_lines(history, found) if found.status.has_ended else []
        seen = {turn["job_id"]: warning_lines(turn["warnings"]) for turn in warnings}
        tree = _tree(found, settings, jobs, steps, notes=seen, stage=stage)
        for note in note_lines:
            tree.add(Text(sentence(note), style="dim"))
        if output is not None:
            room = f"{size(output.bytes)} in {output.files:,} files and directories, removed with the mission"
            tree.add(Text(f"caches and ignored output of its commands: {room}", style="dim"))
        wrong = [Text(sentence(line), style="red") for line in error_lines(found.error)]
        for line in [*wrong, *said]:
            tree.add(line)
        _add_findings(tree, found)
        for line in [*astray, *(Text(line, style="yellow") for line in undone)]:
            tree.add(line)
        print_tree(tree)
        note_idle(invocation, history, [found])
    return Exit.DONE


@click.command("report", cls=LcpCommand)
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
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
    help="With structured: report what is new and which milestones were reached since this event.  "
    "[default: the last question]",
)
@pass_invocation
def report_command(invocation: Invocation, mission: int, form: str | None, since: int | None) -> int:
    """Report on mission M: jobs done, files written, limits reached, held and failed jobs, messages.

    text is Markdown, formatted on a terminal; json is the same as data; structured is for programs that show it to a
    person and take decisions: blocks, forms for held jobs, progress; agent is the answer to a request: an
    AgentResponse, or the AgentError that the mission failed with. Everything but the planner's own words comes from the
    history of jobs.
    """
    if since is not None and form != "structured":
        raise click.UsageError("--since needs --format structured", click.get_current_context())
    if form == "agent":  # what an action is depends on the role of its kind
        invocation.load_workers()
    with invocation.history() as history:
        print_report(history, mission, form or ("json" if invocation.json else "text"), since)
    return Exit.DONE


def missions_table(missions: Sequence[Mission]) -> Table:
    """Missions with their status, what ended them and their jobs by state."""
    has_costs = any(mission.cost.get("amount") is not None for mission in missions)
    table = Table([
        id_column("id"),
        text_column("name"),
        fact_column("status"),
        text_column("outcome"),
        number_column("turns", spare=0),
        *([fact_column("cost", spare=2)] if has_costs else []),
        text_column("jobs"),
        fact_column("created", spare=1),
        text_column("goal"),
    ])  # fmt: skip
    for mission in missions:
        table.add(
            str(mission.id),
            mission.name,
            status_of(mission.json),
            mission.outcome or "-",
            str(mission.turns),
            *([_cost(mission)] if has_costs else []),
            _counts(mission),
            when(str(mission.json["created_at"])),
            mission.goal,
        )
    return table


def _cost(mission: Mission) -> str:
    """The cost in short; a + where some of it is not known."""
    told = told_cost({**mission.cost, "unpriced": 0})
    return "-" if told is None else f"{told}{'+' * bool(mission.cost.get('unpriced'))}"


def _counts(mission: Mission) -> str:
    return ", ".join(f"{count} {state}" for state, count in mission.jobs.items() if count) or "-"


def asked_by(mission: Mission) -> str:
    """User who asked for a mission, and the session."""
    by = f" by {one_line(mission.user)}" if mission.user else ""
    within = f" in session {mission.session}" if mission.session else ""
    return f"requested{by}{within}"


def _tree(
    mission: Mission,
    settings: Mapping[str, JsonObject],
    jobs: Sequence[Job],
    steps: Mapping[int, int],
    *,
    notes: Mapping[JsonValue, Sequence[Text]],
    stage: JsonObject | None,
) -> Tree:
    """Turns in order, each with the jobs it requested; the turns of a sub-plan are under its step.

    `notes` are lines about jobs, by job.
    """
    title = Text.assemble(
        (f"mission {mission.id} {one_line(mission.name)}", "bold"), "  ", coloured(status_of(mission.json))
    )
    title.append(f" {one_line(mission.outcome or '')}  {one_line(mission.root or '')}", style="dim")
    tree = Tree(title, guide_style="dim")
    tree.add(Text(sentence(shortened(mission.goal, 200)), style="italic"))
    tree.add(Text(_used(mission), style="dim"))
    if mission.waits_for:
        tree.add(Text(wait_line(mission.waits_for), style="yellow"))
    if stage is not None:
        tree.add(Text(one_line(_stage_line(stage, has_ended=mission.status.has_ended)), style="dim"))
    if mission.user or mission.session:
        tree.add(Text(asked_by(mission), style="dim"))
    for kind, stated in settings.items():
        tree.add(Text(f"kinds.{one_line(kind)}: {_settings(stated)}", style="dim"))
    children: Mapping[int | None, list[Job]] = defaultdict(list)
    known = {job.id for job in jobs}
    for job in sorted(jobs, key=_place):
        parent = steps.get(job.id) or job.json["parent_id"]
        children[parent if isinstance(parent, int) and parent in known else None].append(job)
    pending = [(tree, job) for job in children[None]]
    while pending:
        place, job = pending.pop(0)
        branch = place.add(_line(job))
        for note in notes.get(job.id, ()):
            branch.add(note)
        pending += [(branch, child) for child in children.get(job.id, [])]
    return tree


def _used(mission: Mission) -> str:
    """Use that a mission has made of its limits."""
    tokens, limits = sum(mission.tokens.values()), mission.limits
    parts = [f"{mission.turns:,} turn{'s' * (mission.turns != 1)}{_at_most(limits.get('max_turns'))}"]
    if tokens or limits.get("max_tokens") is not None:
        parts.append(f"{tokens:,} tokens{_at_most(limits.get('max_tokens'))}")
    if (spent := told_cost(mission.cost)) is not None:
        parts.append(f"cost {spent}{_at_most(limits.get('max_cost'))}")
    return f"used {', '.join(parts)}"


def _at_most(limit: JsonValue) -> str:
    if limit is None:
        return ""
    return f" of {limit:,}" if isinstance(limit, int) else f" of {limit}"


def _stage_line(stage: JsonObject, *, has_ended: bool) -> str:
    """Where the stage of a mission is."""
    if stage["path"] is None:
        return "stage: removed" if has_ended else "stage: none now; the next job makes one"
    return f"stage {stage['path']}"


def _settings(stated: Mapping[str, JsonValue]) -> str:
    """Settings of a mission for a kind, by the keys of its file: `timeout 5, retry.max_attempts 2`."""
    return ", ".join(f"{key} {value:g}" for key, value in _figures(stated)) or "nothing"


def _figures(stated: Mapping[str, JsonValue], above: str = "") -> Iterator[tuple[str, float]]:
    for key, value in stated.items():
        if isinstance(value, dict):
            yield from _figures(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            yield f"{above}{key}", value


def _add_findings(tree: Tree, mission: Mission) -> None:
    """Add what the mission has found, as far as there is room; `lcp report` has more of it."""
    if mission.result is not None:
        branch = tree.add(Text("result", style="bold"))
        lines = json.dumps(mission.result, ensure_ascii=False, indent=2).splitlines()
        branch.add(Text("\n".join(block(line) for line in lines[:MOST_LINES])))
        _add_more(branch, len(lines), "lines", mission)
    for name, found in (("issues", mission.issues), ("recommendations", mission.recommendations)):
        if found:
            branch = tree.add(Text(name, style="bold"))
            for entry in found[:MOST_LINES]:
                branch.add(
                    Text(sentence(shortened(entry if isinstance(entry, str) else json_line(entry), 300)))
                )
            _add_more(branch, len(found), name, mission)


def _add_more(branch: Tree, count: int, what: str, mission: Mission) -> None:
    if count > MOST_LINES:
        text = f"… and {count - MOST_LINES:,} more {what} (lcp --json show {mission.id})"
        branch.add(Text(text, style="dim"))


def _place(job: Job) -> tuple[float, bool, int]:
    """By turn; a turn not asked yet is the last."""
    turn = job.json["turn"]
    return (turn if isinstance(turn, int) else math.inf, job.kind != TURN, job.id)


def _line(job: Job) -> Text:
    number = job.json["turn"]
    turn = "" if not _is_turn(job) else f"turn {number}  " if number else "next turn  "
    text = Text.assemble(
        (f"{job.id} ", "dim"), turn, f"{one_line(job.kind)} {subject(job.json)}  ", coloured(job.state)
    )
    why = summarize(job.json)
    return text.append(f"  {sentence(shortened(why, 120))}", style="dim") if why else text


def _is_turn(job: Job) -> bool:
    """True if a job asks the planner, has asked it or will; one that represents a planner's whole plan never does."""
    is_left_out = job.state in SETTLED or (job.state is State.BLOCKED and job.json["reason"] is None)
    return job.kind == TURN and (bool(job.json["attempt"]) or not is_left_out)


@click.command("watch", cls=LcpCommand)
@click.argument("mission", type=int, required=False, shell_complete=mission_ids, metavar="[M]")
@pass_invocation
def watch_command(invocation: Invocation, mission: int | None) -> int:
    """Print the events of mission M from its start until it ends or waits; without M, new events of all missions.

    The exit code is that of `lcp run`; without M it runs until it is interrupted.
    """
    with invocation.history() as history:
        follower = Follower(history, mission, past=mission is not None)
        formatter = EventFormatter(
            history,
            verbose=invocation.verbose,
            names_mission=mission is None,
            measure=None if mission is None or invocation.quiet else Measure(),
        )
        idle = IdleWatch(invocation, history)
        while True:
            # Read before the events, so that they include everything up to the end.
            end = None if mission is None else _at_rest(history, mission)
            for event in follower.new_events():
                _print(event, None if invocation.json else formatter)
            if end is not None:
                if end.status.has_ended and not invocation.json:
                    for line in unfulfilled_lines(history, end):
                        print_out(line)
                return exit_of_mission(history, end)
            idle.look(mission)
            time.sleep(POLL_SECONDS)


def _at_rest(history: History, mission_id: int) -> Mission | None:
    """The mission, if it is at rest; None while jobs are queued or running."""
    mission = history.mission(mission_id)
    counts = mission.jobs
    if mission.status == "running" or counts.get("queued", 0) + counts.get("running", 0):
        return None
    return mission


def note_unfulfilled(history: History, mission: Mission) -> None:
    """Name on stderr the jobs of a mission whose effect did not happen, if there are any."""
    for line in unfulfilled_lines(history, mission):
        print_err(line)


def unfulfilled_lines(history: History, mission: Mission) -> list[str]:
    """A line that names the jobs of a mission whose effect did not happen, if there are any."""
    ids = mission.unfulfilled
    return [unfulfilled_note(ids, held_effects(history, mission), mission.id)] if ids else []


def _print(event: JsonObject, formatter: EventFormatter | None) -> None:
    if formatter is None:
        print_json_line(event)
        return
    if (text := formatter.line(event)) is not None:
        from lcp_engine.cli.commands.events import hung

        console, mark = make_console(sys.stdout), mark_of(sys.stdout)
        for line in text.split("\n"):
            for part in hung(line, console, mark) if sys.stdout.isatty() else [line]:
                console.print(part)
        sys.stdout.flush()


def print_report(history: History, mission_id: int, form: str = "text", since: int | None = None) -> None:
    """Print the report on stdout. `since` is the event after which a structured report begins."""
    if form == "json":
        from lcp_engine.features.reports.reports import make_report

        print_json(make_report(history.facts(mission_id)))
    elif form == "structured":
        from lcp_engine.features.universal.structured import respond

        facts, course = history.standing(mission_id, since=since, most=MOST_LINES)
        print_json(respond(facts, course).as_json())
    elif form == "agent":
        from lcp_engine.features.universal.agent_response import acting_kinds, respond_as_agent
        from lcp_engine.kinds import find_workers

        roles = {kind: worker.role for kind, worker in find_workers().items()}
        standing = history.standing(mission_id, acting=acting_kinds(roles))
        print_json(respond_as_agent(*standing, roles).as_json())
    else:
        from lcp_engine.features.reports.reports import as_markdown

        _print_text(as_markdown(history.facts(mission_id, most=MOST_LINES)))


def _print_text(markdown: str) -> None:
    """Print Markdown, formatted on a terminal."""
    shown = block(markdown)
    if not sys.stdout.isatty():
        print_out(shown)
        return
    from rich.markdown import Markdown

    # Without hyperlinks the target of each link is visible: text and target may differ.
    make_console(sys.stdout).print(Markdown(shown, hyperlinks=False), soft_wrap=False)


def print_offers(offers: Sequence[Offer], *, as_json: bool) -> None:
    """Print each shipped mission with its description, planner and variables."""
    if as_json:
        print_json([_shown(offer) for offer in offers])
        return
    print_out("\n\n".join("\n".join(_lines(offer)) for offer in offers))


def _lines(offer: Offer) -> Iterator[str]:
    planner = offer.outline.planner
    yield f"{offer.name}  {offer.outline.description}"
    yield f"    {_command(offer)}"
    if planner is not None:
        yield f"    planned by {planner}"
    for name, variable in offer.outline.variables.items():
        yield f"    {name}: {variable.description}{_usual(variable)}"


def _command(offer: Offer) -> str:
    needed = (name for name, variable in offer.outline.variables.items() if variable.default is None)
    given = "".join(f" --var {name}={name.upper()}" for name in needed)
    planner = "" if offer.outline.planner else " --planner NAME"
    return f"lcp run {offer.name} --root DIR{given}{planner}"


def _usual(variable: Variable) -> str:
    return "" if variable.default is None else f"  [default: {variable.default}]"


def _shown(offer: Offer) -> dict[str, object]:
    outline = offer.outline
    variables = {name: variable.model_dump() for name, variable in outline.variables.items()}
    return {
        "name": offer.name, "description": outline.description, "planner": outline.planner, "variables": variables,
    }  # fmt: skip
