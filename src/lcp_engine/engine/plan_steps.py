"""Make jobs of the steps that a mission states: check them against the kinds, store them, resolve their references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pydantic import BaseModel, ConfigDict, JsonValue

from lcp_engine.core.job_states import Need, Role, State
from lcp_engine.core.mission.plan import OnFailure, StatedPlan, StatedStep, Terms, awaited_by, terms_of
from lcp_engine.core.mission.spec import NO_PLANNER, MissionSpec, spec_of
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.references import Missing, TooLong, references_in, resolve
from lcp_engine.core.reasons import Reason
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.admission import Admission, canonical, effect_of, ruling_on
from lcp_engine.engine.turn_queue import STEP_ORDER, TURN_ORDER, TURN_PRIORITY
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.edges import Edge, connect
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import Sight, see
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.stated_plans import RESOLVED, steps_before, store_resolved
from lcp_engine.workers.base import ExecutedBy, Worker, Workers

MAIN = "main"
"""The name of a plan that states no id."""
_MOST_SAID = 3


class PlannedStep(BaseModel):
    """A step as its job is stored; `after` are the steps it waits for, by their index, and what it needs of each."""

    model_config = ConfigDict(frozen=True)

    name: str | None
    kind: str
    params: dict[str, JsonValue]
    role: Role
    max_attempts: int
    fingerprint: str | None
    effect: str | None
    terms: Terms
    after: tuple[tuple[int, Need], ...]


class PlannedPlan(BaseModel):
    """A plan as it is stored with its mission: each step after those that it waits for."""

    model_config = ConfigDict(frozen=True)

    name: str
    on_failure: OnFailure
    fallback: str | None
    steps: tuple[PlannedStep, ...]


def check_plans(spec: MissionSpec, workers: Workers, *, source: str = "mission") -> None:
    """Raise `INVALID_MISSION` for steps whose kind or params are not valid here; `source` names the mission."""
    faults = [
        f"{place}.steps[{nth}].{fault}"
        for place, plan in plans_of(spec)
        for nth, step in enumerate(plan.steps)
        for fault in _faults_of(step, spec, workers)
    ]
    if faults:
        more = f"; and {len(faults) - _MOST_SAID} more" if len(faults) > _MOST_SAID else ""
        message = f"{source}: {'; '.join(faults[:_MOST_SAID])}{more}"
        raise LcpError(ErrorCode.INVALID_MISSION, message, {"problems": [*faults]})


def asks_planner(spec: MissionSpec, workers: Workers) -> bool:
    """Whether a step of the mission's plans is answered by its planner."""
    kinds = {step.tool for _, plan in plans_of(spec) for step in plan.steps}
    return any(kind in workers and workers[kind].executed_by is ExecutedBy.PLANNER for kind in kinds)


def prepare_plans(spec: MissionSpec, workers: Workers, root: str | None) -> list[PlannedPlan]:
    """The plans of a mission over `root` as they are stored; empty for a mission that states none."""
    return [
        PlannedPlan(
            name=plan.id or MAIN,
            on_failure=plan.on_failure,
            fallback=plan.fallback,
            steps=tuple(_prepare(plan, spec, workers, root)),
        )
        for _, plan in plans_of(spec)
    ]


def store_plan(
    ledger: Ledger, mission: MissionRow, planned: PlannedPlan, parent: PlanRow | None = None
) -> PlanRow:
    """Store a plan that is the mission's own from now on, with the jobs of its steps; what may begin is queued."""
    plan = ledger.new_plan(
        mission.id, job_id=None, parent_id=None if parent is None else parent.id, depth=0,
        stated=planned.name, on_failure=planned.on_failure,
    )  # fmt: skip
    mission.root_plan = plan.id
    followers = Counter(index for step in planned.steps for index, _ in step.after)
    ids = [
        _store_step(ledger, mission, plan, step, followers[index]) for index, step in enumerate(planned.steps)
    ]
    connect(
        ledger.tx,
        [
            Edge(ids[before], ids[index], needs)
            for index, step in enumerate(planned.steps)
            for before, needs in step.after
        ],
    )
    return plan


@dataclass(frozen=True)
class Admitted:
    """What is found about a step that a runner is about to execute: its job, and why it may not run yet, or at all."""

    params: dict[str, JsonValue]
    read: BaseModel
    refusal: Failed | None
    hold: Reason | None


def admit(
    tx: Tx, admission: Admission, mission_root: str | None, spec: MissionSpec, job: JobRow
) -> Admitted | Failed:
    """Resolve the references of a step, validate its params and check policy (R27). Raises `INVALID_PARAMS`."""
    worker, params = admission.workers[job.kind], from_json(job.params)
    if job.terms is not None and terms_of(job.terms).has_references:
        found = resolved_params(tx, job)
        if isinstance(found, Failed):
            return found
        params = found
    read = worker.read(params, _label(job))
    verdict, reason, code = ruling_on(admission.policy(spec, mission_root), worker, read, spec)
    refusal = None
    if verdict is Verdict.DENY:
        refusal = Failed(code, f"{_label(job)} is not allowed: {reason}", advice=reason.advice)
    return Admitted(params, read, refusal, reason if verdict is Verdict.HOLD and not job.approved else None)


def resolved_params(tx: Tx, job: JobRow) -> dict[str, JsonValue] | Failed:
    """The params of a step without references."""
    given = {one.step: one.result for one in steps_before(tx, job.id) if one.state is State.SUCCEEDED}
    try:
        resolved = resolve(from_json(job.params), given)
    except Missing as missing:
        return Failed(ErrorCode.OUTPUT_NOT_FOUND, f"{_label(job)}: {missing}")
    except TooLong as refused:
        advice = "Refer to a part of the output, or let the step read the file itself."
        return Failed(ErrorCode.TOO_LARGE, f"{_label(job)}: {refused}", advice=advice)
    assert isinstance(resolved, dict)
    return resolved


def keep_resolved(
    ledger: Ledger, worker: Worker[BaseModel], job: JobRow, params: dict[str, JsonValue]
) -> JobRow:
    """Store a step's params without their references; the job with them."""
    assert job.terms is not None
    mission = ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    terms = replace(terms_of(job.terms), has_references=False).text
    mark, effect = _marks(worker, params, mission.root, spec)
    text = to_json(params)
    store_resolved(ledger.tx, job.id, params=text, fingerprint=mark, effect=effect, terms=terms)
    ledger.note(mission, RESOLVED, job.id, {"before": from_json(job.params)})
    return replace(job, params=text, terms=terms, fingerprint=mark)


def show_as_held(ledger: Ledger, job: JobRow, sight: Sight) -> None:
    """Store what a step that is to be held would change now: an approval binds to it if nobody has viewed it since."""
    if ledger.is_leased(job):
        see(
            ledger.tx,
            job.id,
            NO_PERSON,
            replace(sight, fingerprint=fingerprint(job.kind, from_json(job.params))),
        )


def plans_of(spec: MissionSpec) -> Iterator[tuple[str, StatedPlan]]:
    """The plans of a mission, each with its place."""
    if spec.plan is not None:
        yield "plan", spec.plan
        yield from ((f"fallback_plans[{nth}]", plan) for nth, plan in enumerate(spec.fallback_plans))


def _faults_of(step: StatedStep, spec: MissionSpec, workers: Workers) -> Iterator[str]:
    worker = workers.get(step.tool)
    if worker is None or worker.executed_by is ExecutedBy.ENGINE:
        known = [name for name, one in workers.items() if one.executed_by is not ExecutedBy.ENGINE]
        yield f"tool: no worker executes the kind {step.tool!r}; {nearest(step.tool, known)}"
        return
    if worker.executed_by is ExecutedBy.PLANNER and spec.planner.type == NO_PLANNER:
        yield f"tool: {step.tool} asks the mission's planner, and it names none (`planner:`)"
    if any(references_in(step.parameters)):
        return
    try:
        worker.read(_params(step, worker))
    except LcpError as refused:
        yield f"parameters{str(refused).removeprefix('params')}"


def _params(step: StatedStep, worker: Worker[BaseModel]) -> dict[str, JsonValue]:
    """The params of the job; a step that asks the planner is always a plan of its own (R12)."""
    is_asked = worker.executed_by is ExecutedBy.PLANNER
    return {**step.parameters, "scope": "step"} if is_asked else step.parameters


def _prepare(
    plan: StatedPlan, spec: MissionSpec, workers: Workers, root: str | None
) -> Iterator[PlannedStep]:
    ordered = plan.in_order
    place = {step.id: index for index, step in enumerate(ordered)}
    for step in ordered:
        if step.tool not in workers:
            raise LcpError(
                ErrorCode.NO_WORKER,
                f"{step.id}: no worker executes the kind {step.tool!r}",
                advice="Correct the name, or name the file with this kind: --workers FILE.",
            )
        worker = workers[step.tool].under(spec.kinds.get(step.tool))
        params, retry = _params(step, worker), step.retry
        terms = Terms(
            step=step.id,
            condition=step.condition.expression if step.condition is not None else None,
            has_references=any(references_in(params)),
            retries=retry is not None,
            delay_ms=None if retry is None else retry.delay_ms,
            timeout_ms=step.timeout_ms or None,
        )
        marks = (None, None) if terms.has_references else _marks(worker, params, root, spec)
        stated = None if retry is None else retry.max_attempts
        yield PlannedStep(
            name=step.name,
            kind=step.tool,
            params=params,
            role=Role.STEP if worker.executed_by is ExecutedBy.PLANNER else Role.WORK,
            max_attempts=worker.max_attempts if stated is None else stated,
            fingerprint=marks[0],
            effect=marks[1],
            terms=terms,
            after=tuple((place[step_id], awaited.need) for step_id, awaited in awaited_by(step).items()),
        )


def _marks(
    worker: Worker[BaseModel], params: dict[str, JsonValue], root: str | None, spec: MissionSpec
) -> tuple[str, str | None]:
    """The fingerprint of a job and what it has an effect on."""
    read = worker.read(params)
    mark = fingerprint(worker.kind, canonical(read, root, spec))
    return mark, effect_of(worker, read, mark, root, spec)


def _store_step(ledger: Ledger, mission: MissionRow, plan: PlanRow, step: PlannedStep, followers: int) -> int:
    asks, reason = step.role is not Role.WORK, None
    if step.after:
        reason = STEP_ORDER
    elif asks and mission.asking is not None:
        reason = TURN_ORDER
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            name=step.name,
            kind=step.kind,
            params=to_json(step.params),
            role=step.role,
            state=State.QUEUED if reason is None else State.BLOCKED,
            reason=reason,
            priority=TURN_PRIORITY if asks else 0,
            depth=int(asks),
            fingerprint=step.fingerprint,
            effect=step.effect,
            max_attempts=step.max_attempts,
            waits_for=len(step.after) or None,
            followers=followers or None,
            terms=step.terms.text,
        ),
    )
    if asks and reason is None:
        mission.asking = job_id
    return job_id


def _label(job: JobRow) -> str:
    return f"job {job.id} ({job.kind})"


def as_text(plan: PlannedPlan) -> str:
    """The plan as it is stored."""
    return plan.model_dump_json()


def from_text(text: str) -> PlannedPlan:
    return PlannedPlan.model_validate_json(text)
