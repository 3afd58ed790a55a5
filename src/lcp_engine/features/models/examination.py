"""Examine the planner of a mission before it is relied on, with ten short questions to its model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from lcp_engine.core.health import Finding, broken, well
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from pydantic import JsonValue

    from lcp_engine import Workers
    from lcp_engine.core.protocol.read_reply import Dialect
    from lcp_engine.core.protocol.result_schema import ResultSchema
    from lcp_engine.planners.base import Question
    from lcp_engine.planners.environment import PlannerEnvironment
    from lcp_engine.settings import Settings

MOST_REMEMBERED = 20
"""Models whose mode is looked up, the newest."""
SECONDS = 150.0
"""The time limit for testing a model, approximately."""
_GOALS = (
    "Describe this project.",
    "List the Python files.",
    "Find out what README.md says.",
    "Say which files could be removed.",
    "Write NOTES.md with one sentence about this project.",
)


@runtime_checkable
class ExaminesItself(Protocol):
    """A planner that finds out itself whether it can answer here."""

    def examined(self) -> Iterator[Finding]: ...


def examine_planner(
    spec: PlannerSpec, planner_environment: PlannerEnvironment, result: ResultSchema | None
) -> Iterator[Finding]:
    """Check a planner; one that uses no model is only constructed. `result` is what its mission is to find."""
    from lcp_engine.core.protocol.actions import Malformed
    from lcp_engine.core.protocol.read_reply import reader_of
    from lcp_engine.features.models.endpoints.probe import examine
    from lcp_engine.features.models.factories import Placed
    from lcp_engine.planners.registry import make_planner
    from lcp_engine.workers.registry import find_workers

    workers = find_workers()
    read, params = reader_of(spec.dialect), {kind: worker.params for kind, worker in workers.items()}

    def is_valid(text: str) -> bool:
        return not isinstance(read(text, params, result), Malformed)

    try:
        planner = make_planner(spec, planner_environment)
        if isinstance(planner, Placed):
            yield well("planner", spec.type)
            questions = _questions(spec.dialect, workers, None if result is None else result.schema)
            yield from examine(planner.model_planner, questions, is_valid, seconds=SECONDS)
        elif isinstance(planner, ExaminesItself):
            yield from planner.examined()
        else:
            yield well("planner", f"{spec.type}, which uses no model")
    except LcpError as error:
        yield broken("planner", error.failed)


def _questions(dialect: Dialect, workers: Workers, result: Mapping[str, JsonValue] | None) -> list[Question]:
    """Ten short questions: five first turns, and five last turns, which may only end the mission."""
    from lcp_engine.engine.admission import kind_of
    from lcp_engine.planners.base import Question

    kinds = tuple(
        kind_of(worker, is_held=worker.has_effects)
        for _, worker in sorted(workers.items())
        if worker.command is None
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
            result=result,
        )
        for last in (None, "max_turns")
        for goal in _GOALS
    ]


def examine_probes(url: str, settings: Settings, is_current: bool) -> Iterator[Finding]:
    """Ways to ask models whose servers refused a part of a request in the last days."""
    from lcp_engine.features.models.prompts.output_modes import Rung, Step, described, read_probe
    from lcp_engine.features.models.store import newest_probes
    from lcp_engine.store.db.open import opened

    if not is_current:
        return
    with opened(url, settings.busy_seconds) as database:
        found = database.read(lambda tx: newest_probes(tx, MOST_REMEMBERED))
    steps = [Step(rung, in_envelope=enveloped) for rung in Rung for enveloped in (False, True)]
    for endpoint, model, text in found:
        probe = read_probe(endpoint, model, text, steps)
        if probe is not None and probe.without:
            yield well("remembered", f"{model} at {endpoint} is asked by {described(probe)}")
