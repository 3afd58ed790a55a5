"""An execution plan: steps with their tools, what each waits for, and what a failure does (ExecutionPlan). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal, NamedTuple, Self, TypeAlias, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from lcp_engine.core.protocol.actions import RULE
from lcp_engine.core.protocol.envelope import UUID, Envelope, RequestId, Time
from lcp_engine.core.summaries import nearest

StepId: TypeAlias = Annotated[str, Field(pattern="^step-[0-9]{3}$")]


class Condition(Envelope):
    """When a step is executed at all. `step_success` and `step_failure` need the step, `expression` its text."""

    type: Literal["step_success", "step_failure", "expression"] | None = Field(
        default=None, description="What the condition is about."
    )
    step_id: str | None = Field(default=None, description="The step whose end decides.")
    expression: str | None = Field(default=None, description="What has to be true.")


class Retry(Envelope):
    """How often a step that fails is tried again."""

    max_attempts: int | None = Field(default=None, ge=1, description="The most executions.")
    delay_ms: int | None = Field(default=None, ge=0, description="Milliseconds between two attempts.")


class PlanStep(Envelope):
    """One step: a tool with its parameters."""

    id: StepId
    name: str | None = Field(default=None, description="A name for people.")
    tool: str = Field(description="The tool that executes it.")
    parameters: dict[str, JsonValue] = Field(description="What the tool is given.")
    dependencies: list[StepId] = Field(default=[], description="The steps that have to be complete before.")
    condition: Condition | None = Field(default=None, description="When it is executed at all.")
    retry: Retry | None = Field(default=None, description="How often it is tried.")
    timeout_ms: int | None = Field(default=None, ge=0, description="The most milliseconds that it may take.")


Step = TypeVar("Step", bound=PlanStep)
MOST_COMPARED = 1000
MOST_SHOWN = 20
"""Steps of a circle that a message names."""


class ErrorHandling(Envelope):
    """What a step that has failed does to the plan. `execute_fallback` needs `fallback_plan_id`."""

    on_step_failure: Literal["abort_plan", "continue_plan", "execute_fallback"] | None = Field(
        default=None, description="What follows from the failure of a step."
    )
    fallback_plan_id: str | None = Field(default=None, description="The plan that is executed instead.")


Place: TypeAlias = tuple[str | int, ...]


class Fault(NamedTuple):
    """Why the parts of a plan do not fit together: the place of one of them, and a sentence about it."""

    place: Place
    found: JsonValue
    said: str


class ExecutionPlan(Envelope):
    """Steps in an order that their dependencies and conditions restrict.

    The ids of steps are unique, and each that a step names is one of them; no step waits for itself, not even by way of
    others.
    """

    id: str = Field(pattern=f"^plan-{UUID}$")
    request_id: RequestId = Field(description="The request that the plan is for.")
    created_at: Time | None = None
    steps: list[PlanStep] = Field(min_length=1)
    error_handling: ErrorHandling | None = None
    metadata: dict[str, JsonValue] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        faults = [*faults_in_names(self.steps), *_conditions(self.steps), *_fallback(self)]
        refuse(self, faults or [*find_circle(self.steps, _awaited)])
        return self


def refuse(plan: BaseModel, faults: Sequence[Fault]) -> None:
    """Raise `ValidationError` for faults of a plan, if there are any."""
    if faults:
        raise ValidationError.from_exception_data(type(plan).__name__, [_detail(fault) for fault in faults])


def _detail(fault: Fault) -> InitErrorDetails:
    said = PydanticCustomError(RULE, "{said}", {"said": fault.said})
    return InitErrorDetails(type=said, loc=fault.place, input=fault.found)


def faults_in_names(steps: Sequence[PlanStep]) -> Iterator[Fault]:
    """Ids that two steps have, and ids in dependencies that no step has."""
    first: dict[str, int] = {}
    for index, step in enumerate(steps):
        if first.setdefault(step.id, index) != index:
            yield Fault(
                ("steps", index, "id"), step.id, f"{step.id} is the id of steps[{first[step.id]}], too"
            )
    for index, step in enumerate(steps):
        for nth, needed in enumerate(step.dependencies):
            yield from unknown_step(needed, first, ("steps", index, "dependencies", nth))


def unknown_step(step_id: str, known: Collection[str], place: Place) -> Iterator[Fault]:
    """The fault of naming a step that is not in the plan."""
    if step_id not in known:
        # Of 10,000 names none is searched for the nearest.
        hint = nearest(step_id, [*known]) if len(known) <= MOST_COMPARED else f"there are {len(known):,}"
        yield Fault(place, step_id, f"{step_id} is not a step; {hint}")


def _conditions(steps: Sequence[PlanStep]) -> Iterator[Fault]:
    known = {step.id for step in steps}
    for index, step in enumerate(steps):
        condition, place = step.condition, ("steps", index, "condition")
        if condition is None:
            continue
        if condition.type is None:
            yield Fault(
                (*place, "type"),
                None,
                "type is step_success, step_failure or expression; it is missing",
            )
        elif condition.type == "expression":
            if not (condition.expression or "").strip():
                yield Fault(
                    (*place, "expression"),
                    condition.expression,
                    "a condition of type expression needs its text",
                )
        elif condition.step_id is None:
            yield Fault((*place, "step_id"), None, f"a condition of type {condition.type} needs its step")
        else:
            yield from unknown_step(condition.step_id, known, (*place, "step_id"))


def _fallback(plan: ExecutionPlan) -> Iterator[Fault]:
    handling, place = plan.error_handling, ("error_handling", "fallback_plan_id")
    if handling is None:
        return
    if handling.on_step_failure == "execute_fallback" and not handling.fallback_plan_id:
        yield Fault(place, handling.fallback_plan_id, "execute_fallback needs the id of the plan to execute")
    if handling.fallback_plan_id == plan.id:
        yield Fault(place, plan.id, f"{plan.id} is this plan; a fallback is another one")


def find_circle(steps: Sequence[Step], awaited_by: Callable[[Step], Mapping[str, Place]]) -> Iterator[Fault]:
    """The first circle of steps that wait for each other, at the step where it begins."""
    waits = {step.id: awaited_by(step) for step in steps}
    try:
        TopologicalSorter({step_id: [*places] for step_id, places in waits.items()}).prepare()
    except CycleError as found:
        circle: list[str] = found.args[1][::-1]
        begin, awaited = circle[0], circle[1]
        index = next(nth for nth, step in enumerate(steps) if step.id == begin)
        shown = (
            circle
            if len(circle) <= MOST_SHOWN
            else [*circle[:MOST_SHOWN], f"{len(circle) - MOST_SHOWN} more"]
        )
        said = f"these steps wait for each other: {' -> '.join(shown)}"
        if begin == awaited:
            said = f"{begin} waits for itself"
        yield Fault(("steps", index, *waits[begin][awaited]), awaited, said)


def _awaited(step: PlanStep) -> Mapping[str, Place]:
    """The steps that have to end before this one can begin, each with the place that says so."""
    awaited: dict[str, Place] = {}
    if step.condition is not None and step.condition.step_id is not None:
        awaited[step.condition.step_id] = ("condition", "step_id")
    return awaited | {needed: ("dependencies", nth) for nth, needed in enumerate(step.dependencies)}
