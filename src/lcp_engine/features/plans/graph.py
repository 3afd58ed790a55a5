"""The steps of a plan as a graph: waves, the path that takes the longest, what each step waits for. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lcp_engine.core.job_states import Need, State, fulfils
from lcp_engine.core.json_values import JsonObject

_NEVER = (State.SKIPPED, State.CANCELLED, State.REJECTED)


class Link(NamedTuple):
    """A step before another one, by its job, and what is needed of it."""

    job: int
    needs: Need


@dataclass(frozen=True)
class GraphStep:
    """A step of a plan with its job; `seconds` is how long it took or has run so far, None before it begins."""

    step: str
    job: int
    kind: str
    about: str
    state: State
    reason: str | None
    seconds: float | None
    after: tuple[Link, ...]
    name: str | None = None
    """A name for people."""


@dataclass(frozen=True)
class PlanGraph:
    """A plan of a mission. The steps are in the order of their jobs, so that each comes after those it waits for.

    `name` and `on_failure` are None for the steps that a planner asked for one after another. `job` stands for a plan
    that a planner answered with.
    """

    name: str | None
    on_failure: str | None
    outcome: str | None
    steps: tuple[GraphStep, ...]
    job: int | None = None

    @property
    def title(self) -> str:
        """What people call it."""
        if self.name is None:
            return "steps of a planner"
        return f"plan {self.name}" if self.job is None else f"plan {self.name} of job {self.job}"

    @cached_property
    def waves(self) -> dict[int, int]:
        """The wave of each job: 1 for a step that waits for nothing, else one more than the last that it waits for."""
        waves: dict[int, int] = {}
        for step in self.steps:
            waves[step.job] = 1 + max((waves.get(link.job, 0) for link in step.after), default=0)
        return waves

    @cached_property
    def critical_path(self) -> tuple[GraphStep, ...]:
        """The steps behind each other that took the longest together; of equal ones those with the most steps.

        It ends where the plan ended: steps that will never begin are on no path.
        """
        best: dict[int, tuple[float, int]] = {}
        came: dict[int, int] = {}
        known = {step.job: step for step in self.steps}
        for step in self.steps:
            if step.state in _NEVER and step.seconds is None:
                continue
            before = max(
                (link.job for link in step.after if link.job in best), key=best.__getitem__, default=None
            )
            seconds, length = (0.0, 0) if before is None else best[before]
            best[step.job] = (seconds + (step.seconds or 0.0), length + 1)
            if before is not None:
                came[step.job] = before
        path: list[GraphStep] = []
        at = max(best, key=best.__getitem__, default=None)
        while at is not None:
            path.append(known[at])
            at = came.get(at)
        return tuple(reversed(path))

    @cached_property
    def labels(self) -> dict[int, str]:
        """The name of each step, by its job."""
        return {step.job: step.step for step in self.steps}

    def awaited(self, step: GraphStep) -> list[str]:
        """What a step that has not begun still waits for."""
        states = {one.job: one.state for one in self.steps}
        unmet = [
            link.job for link in step.after if link.needs not in fulfils(states.get(link.job, State.BLOCKED))
        ]
        return [self.labels.get(job, f"job {job}") for job in unmet]

    @property
    def json(self) -> JsonObject:
        """The graph as `lcp plan show` prints it."""
        return {
            "plan": self.name,
            "job": self.job,
            "on_failure": self.on_failure,
            "outcome": self.outcome,
            "critical_path": [step.step for step in self.critical_path],
            "steps": [self._step(step) for step in self.steps],
        }

    def _step(self, step: GraphStep) -> JsonObject:
        return {
            "step": step.step,
            "job": step.job,
            "kind": step.kind,
            "wave": self.waves[step.job],
            "state": step.state.value,
            "reason": step.reason,
            "seconds": step.seconds,
            "after": [
                {"step": self.labels.get(link.job, str(link.job)), "job": link.job, "needs": link.needs.value}
                for link in step.after
            ],
        }


def in_waves(graph: PlanGraph) -> Sequence[GraphStep]:
    """The steps by wave."""
    return sorted(graph.steps, key=lambda step: (graph.waves[step.job], step.job))
