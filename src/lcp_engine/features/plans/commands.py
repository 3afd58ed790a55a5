"""Check the plan of a mission file, and show the plan of a mission as a graph (`lcp plan`)."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from lcp_engine.cli.base import Invocation, LcpGroup, pass_invocation
from lcp_engine.cli.commands.completion import mission_files, mission_ids
from lcp_engine.cli.console.exits import Exit
from lcp_engine.cli.console.output import print_err, print_json, print_out
from lcp_engine.cli.tables import (
    Table,
    fact_column,
    id_column,
    name_column,
    number_column,
    print_table,
    text_column,
)
from lcp_engine.core.job_states import SETTLED, Need, State
from lcp_engine.core.summaries import duration
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.plans.graph import GraphStep, PlanGraph, in_waves

if TYPE_CHECKING:
    from lcp_engine.core.mission.spec import MissionSpec
    from lcp_engine.features.plans.outlook import StepOutlook

MOST_SHOWN = 200
"""Steps that a person is shown; --json has all."""
_MOST_NAMED = 8
_AFTER = {Need.SUCCESS: "", Need.FAILURE: " fails", Need.END: " ends"}


@click.group("plan", cls=LcpGroup)
def plan_command() -> None:
    """Check and show plans: missions that state their steps."""


@plan_command.command("check", examples=("lcp plan check mission.yaml", "lcp plan check plan.json --json"))
@click.argument("file", metavar="FILE", shell_complete=mission_files)
@pass_invocation
def check_command(invocation: Invocation, *, file: str) -> int:
    """Check the plan of FILE, a mission file or an ExecutionPlan, and print what each step waits for and may do.

    Nothing is launched. A step whose params hold references is judged when they are known. Exit code 0: valid; 1: not.
    """
    from lcp_engine.engine.instance import admission_for
    from lcp_engine.features.plans.outlook import outlook

    invocation.load_workers()
    try:
        spec = _load(file)
    except LcpError as refused:
        if refused.code is not ErrorCode.INVALID_MISSION or not invocation.json:
            raise
        problems = refused.failed.details.get("problems") or [str(refused)]
        print_json({"valid": False, "errors": _texts(problems), "plans": []})
        return Exit.FAILED
    plans = outlook(spec, admission_for(None, invocation.settings.policy))
    if invocation.json:
        listed: list[JsonValue] = [
            {"place": place, "steps": [step.json for step in steps]} for place, steps in plans.items()
        ]
        print_json({"valid": True, "errors": [], "plans": listed})
        return Exit.DONE
    for place, steps in plans.items():
        print_out(f"{place}: {len(steps):,} steps in {max(step.wave for step in steps):,} waves")
        _print_outlook(steps[:MOST_SHOWN])
        _say_rest(len(steps))
    print_out("valid")
    return Exit.DONE


def _load(file: str) -> MissionSpec:
    """The mission that a file with a plan states, or an ExecutionPlan as a mission. Raises like `load_spec`."""
    from lcp_engine.cli.commands.load_mission import MissionOptions, load_spec
    from lcp_engine.features.plans.stated_plan import PlanKeys
    from lcp_engine.features.plans.steps import check_plans
    from lcp_engine.workers.registry import find_workers

    source, spec = "stdin" if file == "-" else file, load_spec(MissionOptions(file))
    if PlanKeys.of(spec).plan is None:
        message = f"{source}: plan: is missing"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="docs/plans.md shows how to state one.")
    check_plans(spec, find_workers(), source)
    return spec


def _texts(problems: object) -> list[JsonValue]:
    return [str(problem) for problem in problems] if isinstance(problems, list) else [str(problems)]


def _print_outlook(steps: Sequence[StepOutlook]) -> None:
    table = Table(
        [
            number_column("wave"),
            name_column("step"),
            fact_column("kind"),
            text_column("after"),
            text_column("policy"),
        ]
    )
    for step in steps:
        after = ", ".join(f"{one}{_AFTER[need]}" for one, need in step.after)
        table.add(str(step.wave), step.step, step.kind, after or "-", step.verdict)
    print_table(table, sys.stdout)


@plan_command.command("show", examples=("lcp plan show 3", "lcp plan show 3 --json"))
@click.argument("mission", type=int, shell_complete=mission_ids, metavar="M")
@pass_invocation
def show_command(invocation: Invocation, *, mission: int) -> int:
    """Show the steps of mission M by wave, with what each waits for, and the path that takes the longest."""
    with invocation.history() as history:
        graphs = history.plan_graphs(mission)
    if invocation.json:
        print_json([graph.json for graph in graphs])
        return Exit.DONE
    if not graphs:
        print_err(f"Mission {mission} has no plan.")
    for graph in graphs:
        for line in _head(graph):
            print_out(line)
        table = Table([
            number_column("wave", spare=2), name_column("step"), id_column("job"), fact_column("kind", spare=1),
            text_column("about"), fact_column("state"), fact_column("took", spare=3), text_column("after"),
        ])  # fmt: skip
        for step in in_waves(graph)[:MOST_SHOWN]:
            took = "" if step.seconds is None else duration(step.seconds)
            wave = str(graph.waves[step.job])
            cells = (step.step, str(step.job), step.kind, step.about, step.state.value, took or "-")
            table.add(wave, *cells, _after(graph, step))
        print_table(table, sys.stdout)
        _say_rest(len(graph.steps))
    return Exit.DONE


def _head(graph: PlanGraph) -> Iterator[str]:
    counts = Counter(step.state for step in graph.steps)
    done = f"{counts[State.SUCCEEDED]:,} of {len(graph.steps):,} steps succeeded"
    rest = [f"{count:,} {state}" for state, count in counts.items() if state is not State.SUCCEEDED]
    handling = "" if graph.on_failure is None else f" ({graph.on_failure})"
    yield f"{graph.title}{handling}: {', '.join([done, *rest])}"
    path = graph.critical_path
    if len(path) > 1:
        steps = [step.step for step in path]
        shown = (
            steps if len(steps) <= _MOST_NAMED else [*steps[:_MOST_NAMED], f"{len(steps) - _MOST_NAMED} more"]
        )
        seconds = sum(step.seconds or 0.0 for step in path)
        yield f"longest path: {' > '.join(shown)}{f', {duration(seconds)}' if seconds else ''}"


def _after(graph: PlanGraph, step: GraphStep) -> str:
    """Steps that the step waits for, or came after."""
    if step.state not in SETTLED and (waits := graph.awaited(step)):
        return f"waits for {', '.join(waits)}"
    named = [f"{graph.labels.get(link.job, f'job {link.job}')}{_AFTER[link.needs]}" for link in step.after]
    return ", ".join(named) or "-"


def _say_rest(count: int) -> None:
    if count > MOST_SHOWN:
        print_out(f"and {count - MOST_SHOWN:,} more steps; --json lists all")
