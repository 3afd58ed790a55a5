"""Say what the steps of a mission's plans wait for, and what policy makes of them, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from lcp_engine.core.job_states import Need
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.kinds import kind_named
from lcp_engine.core.mission.parse import dotted
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.policy import Verdict
from lcp_engine.engine.admission import Admission, ruling_on
from lcp_engine.features.plans.references import references_in
from lcp_engine.features.plans.stated_plan import StatedPlan, StatedStep, awaited_by
from lcp_engine.features.plans.steps import plans_of

_WORDS = {Verdict.AUTO: "runs", Verdict.HOLD: "held", Verdict.DENY: "denied"}


@dataclass(frozen=True)
class StepOutlook:
    """A step before it runs; `verdict` is what policy says of it, in words."""

    step: str
    kind: str
    wave: int
    after: tuple[tuple[str, Need], ...]
    verdict: str

    @property
    def json(self) -> JsonObject:
        return {
            "step": self.step,
            "kind": self.kind,
            "wave": self.wave,
            "after": [{"step": step, "needs": need.value} for step, need in self.after],
            "policy": self.verdict,
        }


def outlook(spec: MissionSpec, admission: Admission) -> dict[str, list[StepOutlook]]:
    """The steps of each plan of a mission in an order in which they may run, by the plan's place in the file."""
    return {dotted(place): _steps(plan, spec, admission) for place, plan in plans_of(spec)}


def _steps(plan: StatedPlan, spec: MissionSpec, admission: Admission) -> list[StepOutlook]:
    waves: dict[str, int] = {}
    found: list[StepOutlook] = []
    for step in plan.in_order:
        awaited = awaited_by(step)
        waves[step.id] = 1 + max((waves[before] for before in awaited), default=0)
        after = tuple((before, needed.need) for before, needed in awaited.items())
        kind = kind_named(step.tool, admission.workers)
        found.append(StepOutlook(step.id, kind, waves[step.id], after, _verdict(step, spec, admission)))
    return found


def _verdict(step: StatedStep, spec: MissionSpec, admission: Admission) -> str:
    if any(references_in(step.parameters)):
        return "when its references are known"
    worker = admission.workers[kind_named(step.tool, admission.workers)]
    verdict, reason, _ = ruling_on(admission.policy(spec, None), worker, worker.read(step.parameters), spec)
    return _WORDS[verdict] if verdict is Verdict.AUTO else f"{_WORDS[verdict]}: {reason}"
