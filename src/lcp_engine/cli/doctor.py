"""Examine the installation, a root and a planner (`lcp doctor`)."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lcp_engine.cli.base import Invocation, LcpCommand, pass_invocation
from lcp_engine.cli.exit_codes import Exit
from lcp_engine.cli.load_mission import Wish, load
from lcp_engine.cli.output import print_json, print_out
from lcp_engine.core.health import Finding, broken, is_sound, well
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from lcp_engine.core.protocol.dialects import Dialect
    from lcp_engine.planners.base import Question
    from lcp_engine.planners.environment import Surroundings
    from lcp_engine.workers.base import Workers

SECONDS = 150.0
"""About how long a model is examined at most."""
_GOALS = (
    "Describe this project.",
    "List the Python files.",
    "Find out what README.md says.",
    "Say which files could be removed.",
    "Write NOTES.md with one sentence about this project.",
)


@click.command(
    "doctor",
    cls=LcpCommand,
    examples=("lcp doctor", "lcp doctor --planner local", "lcp doctor --mission mission.yaml --root DIR"),
)
@click.option("--planner", metavar="NAME", help="Examine this planner, as the settings describe it.")
@click.option("--mission", metavar="MISSION", help="Examine the planner and the root of this mission.")
@click.option("--root", type=click.Path(path_type=Path), metavar="DIR", help="Examine this root.")
@pass_invocation
def doctor_command(
    invocation: Invocation, planner: str | None, mission: str | None, root: Path | None
) -> int:
    """Examine the installation, and with --planner or --mission what answers and how well.

    Each line is ok, warn or fail, with what to do. A model is asked ten short questions, which costs their tokens.
    Exit code 1: something does not work.
    """
    found: list[Finding] = []
    for finding in _examine(invocation, planner, mission, root):
        found.append(finding)
        if not invocation.json:
            _print(finding)
    if invocation.json:
        print_json({"ok": is_sound(found), "checks": [finding.json for finding in found]})
    return Exit.DONE if is_sound(found) else Exit.FAILED


def _print(finding: Finding) -> None:
    print_out(f"{finding.grade.value:<4}  {finding.about:<17}  {one_line(finding.fact)}")
    if finding.advice:
        print_out(f"{'':<25}→ {finding.advice}")
    sys.stdout.flush()


def _examine(
    invocation: Invocation, planner: str | None, mission: str | None, root: Path | None
) -> Iterator[Finding]:
    from lcp_engine.cli.installation_checks import examine_installation, examine_root
    from lcp_engine.planners.environment import Surroundings
    from lcp_engine.sandbox.isolation_mode import examine_isolation
    from lcp_engine.settings import config_path, make_room, shown_url

    yield well("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    try:
        settings, url = invocation.settings, invocation.database_url
        make_room(url)
    except LcpError as error:
        yield broken("settings", error.failed)
        return
    yield well(
        "settings", f"{config_path()}{'' if config_path().exists() else ' (not there; defaults hold)'}"
    )
    yield from examine_installation(url, shown_url(url), os.environ)
    yield examine_isolation(settings.isolation)
    spec = None if planner is None else PlannerSpec(type=planner)
    if mission is not None:
        try:
            loaded, root = load(Wish(mission, root, planner), Surroundings(settings.planners))
        except LcpError as error:
            yield broken("mission", error.failed)
            return
        yield well("mission", f"{mission} can be launched")
        spec = loaded.planner
    yield from examine_root(root or Path.cwd())
    if spec is not None:
        yield from _examine_planner(spec, Surroundings(settings.planners))


def _examine_planner(spec: PlannerSpec, surroundings: Surroundings) -> Iterator[Finding]:
    """What is found about a planner; one that asks no model cannot be examined further."""
    from lcp_engine.core.protocol.actions import Malformed
    from lcp_engine.core.protocol.dialects import reader_of
    from lcp_engine.planners.llm.factories import Placed
    from lcp_engine.planners.llm.probe import examine
    from lcp_engine.planners.registry import make_planner
    from lcp_engine.workers.registry import find_workers

    workers = find_workers()
    read, params = reader_of(spec.dialect), {kind: worker.params for kind, worker in workers.items()}

    def is_valid(text: str) -> bool:
        return not isinstance(read(text, params), Malformed)

    try:
        planner = make_planner(spec, surroundings)
        if isinstance(planner, Placed):
            yield well("planner", spec.type)
            questions = _questions(spec.dialect, workers)
            yield from examine(planner.model_planner, questions, is_valid, seconds=SECONDS)
        else:
            yield well("planner", f"{spec.type}, which asks no model")
    except LcpError as error:
        yield broken("planner", error.failed)


def _questions(dialect: Dialect, workers: Workers) -> list[Question]:
    """Ten short questions: five first turns, and five last ones, in which only an end is allowed."""
    from lcp_engine.planners.base import Kind, Question

    kinds = tuple(
        Kind(kind, worker.description, worker.params, is_held=worker.has_effects)
        for kind, worker in sorted(workers.items())
    )
    return [
        Question(
            mission_id=0,
            number=1,
            turn=1,
            goal=goal,
            root="/",
            prompt=goal,
            kinds=kinds,
            last_turn=last,
            dialect=dialect,
        )
        for last in (None, "max_turns")
        for goal in _GOALS
    ]
