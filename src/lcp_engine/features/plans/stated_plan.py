"""The plan of a mission file: an ExecutionPlan that is checked as a whole, down to its references. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from heapq import heappop, heappush
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.job_states import Need
from lcp_engine.core.mission.spec import NO_PLANNER, MissionKeys, MissionSpec
from lcp_engine.core.protocol.actions import RULE
from lcp_engine.core.protocol.envelope import Envelope, Time
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import UnexpectedValue
from lcp_engine.features.plans.execution_plan import (
    Condition,
    ErrorHandling,
    Fault,
    Place,
    PlanStep,
    Retry,
    faults_in_names,
    find_circle,
    refuse,
    unknown_step,
)
from lcp_engine.features.plans.expression import NotAnExpression, parse_expression, steps_of
from lcp_engine.features.plans.references import FORM, NAME, Misspelt, references_in

MOST_STEPS = 10_000
MAIN = "main"
"""The name of a plan that states no id."""


def _is_referable(name: str) -> str:
    """A reference ends after `step-` and three to six digits."""
    if re.match("step-[0-9]{3}", name) and not re.fullmatch("step-[0-9]{3,6}", name):
        raise UnexpectedValue("should end after `step-` and three to six digits")
    return name


StepId: TypeAlias = Annotated[str, Field(pattern=f"^{NAME}$"), AfterValidator(_is_referable)]
PlanId: TypeAlias = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_.-]{0,99}$")]
OnFailure: TypeAlias = Literal["abort_plan", "continue_plan", "execute_fallback"]
_CLOSED = ConfigDict(extra="forbid")


class StatedCondition(Condition):
    """When a step is executed at all: `step_success` and `step_failure` name a step, `expression` is a text."""

    model_config = _CLOSED


class StatedRetry(Retry):
    """How often a step is tried, and after which delay; it holds for failures of every kind."""

    model_config = _CLOSED

    max_attempts: int | None = Field(
        default=None, ge=1, le=100, description="Executions, the first one included."
    )
    delay_ms: int | None = Field(
        default=None, ge=0, le=3_600_000, description="Milliseconds between two executions."
    )


class StatedStep(PlanStep):
    """One step: a kind of job (`tool`) with its params, and what it waits for."""

    model_config = _CLOSED

    id: StepId = Field(description="A name, such as `step-001` or `build`.")
    dependencies: list[StepId] = Field(default=[], description="The steps that have to succeed before.")
    condition: StatedCondition | None = Field(default=None, description="When it is executed at all.")
    retry: StatedRetry | None = Field(default=None, description="How often it is tried, and when.")
    timeout_ms: int | None = Field(
        default=None,
        ge=0,
        le=86_400_000,
        description="The most milliseconds of an execution; 0 is what the kind has.",
    )


class Awaited(NamedTuple):
    """What a step needs of another one, and the place within the step that says so."""

    need: Need
    place: Place


class StatedErrorHandling(ErrorHandling):
    """What a step that has failed does to the plan; nothing stated means `abort_plan`."""

    model_config = _CLOSED


class StatedPlan(Envelope):
    """Steps with what each waits for. `id` names a plan that another one falls back to."""

    model_config = _CLOSED

    id: PlanId | None = Field(default=None, description="Its name, `main` if it states none.")
    request_id: str | None = Field(default=None, description="The request that the plan is for.")
    created_at: Time | None = Field(default=None, description="When it was made.")
    steps: list[StatedStep] = Field(min_length=1, max_length=MOST_STEPS, description="What is to be done.")
    error_handling: StatedErrorHandling | None = Field(
        default=None, description="What a step that has failed does to the plan."
    )
    metadata: dict[str, JsonValue] | None = Field(default=None, description="Anything; it is not read.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        known = {step.id for step in self.steps}
        faults = [*faults_in_names(self.steps)]
        for index, step in enumerate(self.steps):
            faults += [
                fault._replace(place=("steps", index, *fault.place)) for fault in _faults_of(step, known)
            ]
        refuse(self, faults or [*find_circle(self.steps, _places)])
        return self

    @property
    def on_failure(self) -> OnFailure:
        handling = self.error_handling
        return (
            "abort_plan" if handling is None or handling.on_step_failure is None else handling.on_step_failure
        )

    @property
    def fallback(self) -> str | None:
        """The id of the plan that this one falls back to."""
        handling = self.error_handling
        return None if handling is None else handling.fallback_plan_id

    @property
    def in_order(self) -> list[StatedStep]:
        """The steps, each after those that it waits for, otherwise as they are listed."""
        steps = {step.id: step for step in self.steps}
        place = {step_id: nth for nth, step_id in enumerate(steps)}
        waiting = TopologicalSorter({step.id: [*awaited_by(step)] for step in self.steps})
        waiting.prepare()
        ordered: list[StatedStep] = []
        ready: list[int] = []
        names = [*steps]
        while waiting.is_active():
            for step_id in waiting.get_ready():
                heappush(ready, place[step_id])
            step_id = names[heappop(ready)]
            ordered.append(steps[step_id])
            waiting.done(step_id)
        return ordered

    def misfit(self, fallbacks: Sequence[Self]) -> str | None:
        ids, main = [other.id for other in fallbacks], self.id or MAIN
        for nth, other in enumerate(fallbacks):
            place = f"fallback_plans[{nth}]"
            if other.id is None:
                return f"{place}.id: is required: error_handling.fallback_plan_id of the plan names it"
            if other.id == main or other.id in ids[:nth]:
                return f"{place}.id: {other.id} is the id of another plan, too"
            if other.on_failure == "execute_fallback":
                return f"{place}.error_handling.on_step_failure: a fallback has none; abort_plan or continue_plan"
        if self.on_failure != "execute_fallback":
            return None
        place = "plan.error_handling.fallback_plan_id"
        if self.fallback is None:
            return f"{place}: execute_fallback needs the id of the plan to execute"
        if self.fallback == main:
            return f"{place}: {main} is this plan; a fallback is another one"
        if self.fallback in ids:
            return None
        hint = "there are none; a mission states them beside its plan"
        if ids:
            hint = nearest(self.fallback, [name for name in ids if name is not None])
        return f"{place}: {self.fallback} is not one of fallback_plans; {hint}"


def awaited_by(step: StatedStep) -> dict[str, Awaited]:
    """What a step needs of others, each with the place that says so; a condition says more than the rest."""
    found = {
        reference.step: Awaited(Need.SUCCESS, ("parameters", *place))
        for place, reference in references_in(step.parameters)
        if not isinstance(reference, Misspelt)
    }
    found |= {
        needed: Awaited(Need.SUCCESS, ("dependencies", nth)) for nth, needed in enumerate(step.dependencies)
    }
    return found if step.condition is None else found | _awaited_for(step.condition)


def _awaited_for(condition: StatedCondition) -> dict[str, Awaited]:
    if condition.type == "expression":
        try:
            named = [*steps_of(parse_expression(condition.expression or ""))]
        except NotAnExpression:
            return {}
        return {step: Awaited(Need.END, ("condition", "expression")) for step in named}
    need = Need.FAILURE if condition.type == "step_failure" else Need.SUCCESS
    return {} if condition.step_id is None else {condition.step_id: Awaited(need, ("condition", "step_id"))}


def _places(step: StatedStep) -> Mapping[str, Place]:
    return {step_id: awaited.place for step_id, awaited in awaited_by(step).items()}


def _faults_of(step: StatedStep, known: set[str]) -> Iterator[Fault]:
    """What is wrong with a step's condition and its references."""
    for place, reference in references_in(step.parameters):
        where = ("parameters", *place)
        if isinstance(reference, Misspelt):
            said = (
                f"{reference.text!r} is not a reference such as {FORM}; $$output. stands for the characters"
            )
            yield Fault(where, reference.text, said)
        else:
            for fault in unknown_step(reference.step, known, where):
                yield fault._replace(said=f"{fault.said}; $$output. stands for the characters")
            if awaited_by(step)[reference.step].need is Need.FAILURE:
                said = f"{reference.step} has no output if it fails, and only then this step is executed"
                yield Fault(where, reference.text, said)
    if step.condition is not None:
        yield from _faults_of_condition(step.condition, known)


def _faults_of_condition(condition: StatedCondition, known: set[str]) -> Iterator[Fault]:
    place: Place = ("condition",)
    if condition.type is None:
        yield Fault(
            (*place, "type"), None, "step_success, step_failure or expression is expected; it is missing"
        )
    elif condition.type == "expression":
        place = (*place, "expression")
        try:
            named = [*steps_of(parse_expression(condition.expression or ""))]
        except NotAnExpression as refused:
            yield Fault(place, None, str(refused))
            return
        for step_id in dict.fromkeys(named):
            yield from unknown_step(step_id, known, place)
        if not named:
            yield Fault(place, None, "it names no step, so it is always the same")
    elif condition.step_id is None:
        yield Fault((*place, "step_id"), None, f"a condition of type {condition.type} needs its step")
    else:
        yield from unknown_step(condition.step_id, known, (*place, "step_id"))


class PlanKeys(MissionKeys):
    """The keys `plan` and `fallback_plans`."""

    plan: StatedPlan | None = Field(
        default=None,
        description="The steps of the mission, in place of what a planner would decide (plans.md).",
    )
    fallback_plans: tuple[StatedPlan, ...] = Field(
        default=(), description="Plans that the plan may fall back to, by their `id`."
    )

    @model_validator(mode="before")
    @classmethod
    def _needs_no_planner_for_a_plan(cls, value: JsonValue) -> JsonValue:
        if isinstance(value, dict) and value.get("plan") is not None and value.get("planner") is None:
            return {**value, "planner": {"type": NO_PLANNER}}
        return value

    @model_validator(mode="after")
    def _falls_back_to_its_plans(self) -> Self:
        others = self.fallback_plans
        fault = "fallback_plans: there is no plan that could fall back to them" if others else None
        if self.plan is not None:
            fault = self.plan.misfit(others)
            spec: object = self
            if isinstance(spec, MissionSpec) and (spec.accept or spec.result is not None or spec.endings):
                name = "accept" if spec.accept else "result" if spec.result is not None else "endings"
                fault = f"{name}: is about a planner's last reply, and a plan ends without one; state a step instead"
        if fault is not None:
            raise PydanticCustomError(RULE, "{said}", {"said": fault})
        return self
