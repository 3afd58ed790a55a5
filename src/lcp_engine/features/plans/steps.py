"""Make jobs of the steps that a mission states: check them against the kinds, store them, resolve their references."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from lcp_engine.core.job_states import Need, Role, State
from lcp_engine.core.kinds import TURN, TURN_PRIORITY, kind_named
from lcp_engine.core.limits.terms import Terms, terms_of
from lcp_engine.core.mission.parse import dotted
from lcp_engine.core.mission.spec import NO_PLANNER, MissionSpec, spec_of
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.actions import CreateFollowupJobs
from lcp_engine.core.reasons import Reason, ReasonCode
from lcp_engine.core.refused_values import Fault, details_of
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.admission import Admission, canonical, effect_of, params_of, refuse_step, ruling_on
from lcp_engine.engine.points import Begin, Look
from lcp_engine.errors import Code, ErrorCode, ErrorType, Failed, InvalidInput, LcpError, Meaning
from lcp_engine.features.plans.answered_plan import ExecutePlan
from lcp_engine.features.plans.references import Missing, TooLong, references_in, resolve
from lcp_engine.features.plans.stated_plan import (
    MAIN,
    OnFailure,
    PlanKeys,
    StatedPlan,
    StatedStep,
    awaited_by,
)
from lcp_engine.features.plans.store.stated_plans import (
    RESOLVED,
    Before,
    StatedText,
    keep_plans,
    steps_before,
    store_resolved,
)
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.edges import Edge, connect
from lcp_engine.store.ledger import Ledger, NewJobRow, ledger_of
from lcp_engine.store.people import see
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.turns import MEMORIES
from lcp_engine.workers.base import ExecutedBy, Hold, Worker, Workers
from lcp_engine.workers.params import Result
from lcp_engine.workers.registry import BUILT_IN

OUTPUT_NOT_FOUND = Code(Meaning(
    "OUTPUT_NOT_FOUND", InvalidInput, ErrorType.INPUT,
    "A reference of a plan's step names an output that the step before does not have.",
    "Correct the reference; `lcp job J` shows what the step before gave.", is_executed=False,
))  # fmt: skip
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


def check_plans(spec: MissionSpec, workers: Workers, source: str) -> None:
    """Raise `INVALID_MISSION` for steps whose kind or params are not valid here; `source` names the mission."""
    faults = [
        Fault(f"{dotted((*place, 'steps', nth))}.{said}", (*place, "steps", nth, key))
        for place, plan in plans_of(spec)
        for nth, step in enumerate(plan.steps)
        for key, said in _faults_of(step, spec, workers)
    ]
    if faults:
        more = f"; and {len(faults) - _MOST_SAID} more" if len(faults) > _MOST_SAID else ""
        message = f"{source}: {'; '.join(fault.line for fault in faults[:_MOST_SAID])}{more}"
        raise LcpError(ErrorCode.INVALID_MISSION, message, details_of(faults))


def asks_planner(spec: MissionSpec, workers: Workers) -> bool:
    """True if a step of the mission's plans is answered by its planner."""
    kinds = {kind_named(step.tool, workers) for _, plan in plans_of(spec) for step in plan.steps}
    return any(kind in workers and workers[kind].executed_by is ExecutedBy.PLANNER for kind in kinds)


def prepare_plans(spec: MissionSpec, workers: Workers, root: str | None) -> Begin | None:
    """Make the jobs of the plans of a mission over `root`; None for a mission that states none."""
    return begin_with(
        [
            PlannedPlan(
                name=plan.id or MAIN,
                on_failure=plan.on_failure,
                fallback=plan.fallback,
                steps=tuple(_prepare(plan, spec, workers, root)),
            )
            for _, plan in plans_of(spec)
        ]
    )


def begin_with(plans: Sequence[PlannedPlan]) -> Begin | None:
    """Store the plans of a mission, and begin the first one; None if there is none."""

    def begin(ledger: Ledger, mission: MissionRow) -> None:
        texts = [StatedText(plan.name, place, plan.model_dump_json()) for place, plan in enumerate(plans)]
        keep_plans(ledger.tx, mission.id, texts)
        store_plan(ledger, mission, plans[0])

    return begin if plans else None


def begin_answered(
    ledger: Ledger, workers: Workers, within: PlanRow, asked: JobRow, reply: CreateFollowupJobs
) -> None:
    """Store the plan that the turn `asked` was answered with; its end is the end of a job of the plan `within`.

    What it says of attempts and times holds only as far as the kinds of its steps allow.
    """
    assert isinstance(reply, ExecutePlan)
    answered, mission = reply.plan, ledger.mission(asked.mission_id)
    spec = spec_of(mission.spec)
    prepared = _prepare(answered, spec, workers, mission.root)
    steps = tuple(_bounded(step, workers, mission.root, spec) for step in prepared)
    name = answered.id or MAIN
    owner = ledger.create(
        mission,
        NewJobRow(
            plan_id=within.id,
            turn=asked.turn,
            parent_id=asked.id,
            name=f"Execute the plan {name}",
            kind=TURN,
            params=to_json({"user_prompt": f"Execute {len(steps):,} steps.", "scope": "step"}),
            role=Role.STEP,
            state=State.BLOCKED,
            reason=None,
            priority=TURN_PRIORITY,
            depth=asked.depth,
            max_attempts=1,
        ),
    )
    mission.requested += len(steps)
    plan = ledger.new_plan(
        mission.id, job_id=owner, parent_id=within.id, depth=asked.depth,
        stated=name, on_failure=answered.on_failure,
    )  # fmt: skip
    _store_steps(ledger, plan, steps, asked)


def _bounded(step: PlannedStep, workers: Workers, root: str | None, spec: MissionSpec) -> PlannedStep:
    """The step of a planner, with no more attempts and time than its kind gives it, and no shorter delay."""
    worker, terms = workers[step.kind].under(spec.kinds.get(step.kind)), step.terms
    mark, effect = step.fingerprint, step.effect
    if mark is None:
        mark, effect = _unresolved_marks(worker, step.params, root, spec)
    delay = None if terms.delay_ms is None else max(terms.delay_ms, int(worker.backoff * 1000))
    time = None if terms.timeout_ms is None else min(terms.timeout_ms, int(worker.timeout * 1000))
    return step.model_copy(
        update={
            "max_attempts": min(step.max_attempts, worker.max_attempts),
            "fingerprint": mark,
            "effect": effect,
            "terms": replace(terms, retries=False, delay_ms=delay, timeout_ms=time),
        }
    )


def store_plan(
    ledger: Ledger, mission: MissionRow, planned: PlannedPlan, parent: PlanRow | None = None
) -> PlanRow:
    """Store a plan that is the mission's own from now on, with the jobs of its steps; what may begin is queued."""
    plan = ledger.new_plan(
        mission.id, job_id=None, parent_id=None if parent is None else parent.id, depth=0,
        stated=planned.name, on_failure=planned.on_failure,
    )  # fmt: skip
    mission.root_plan = plan.id
    _store_steps(ledger, plan, planned.steps)
    return plan


def _store_steps(
    ledger: Ledger, plan: PlanRow, steps: Sequence[PlannedStep], asked: JobRow | None = None
) -> None:
    """Store the jobs of a plan's steps with their edges; `asked` is the turn that was answered with them."""
    followers = Counter(index for step in steps for index, _ in step.after)
    ids = [_store_step(ledger, plan, step, followers[index], asked) for index, step in enumerate(steps)]
    connect(
        ledger.tx,
        [
            Edge(ids[before], ids[index], needs)
            for index, step in enumerate(steps)
            for before, needs in step.after
        ],
    )


def admit(
    database: Database, admission: Admission, job: JobRow, under: tuple[MissionSpec, str | None], look: Look
) -> JobRow | Failed | Hold:
    """Resolve the references of a step, validate its params and check policy (R27). Raises `INVALID_PARAMS`.

    The step is returned with its params resolved, if it may run; one that is held is stored as `look` sees it now.
    """
    if job.terms is None or (job.role is Role.STEP and job.turn is not None):  # its planner was asked before
        return job
    found = database.read(lambda tx: _judge(tx, admission, job, *under))
    if isinstance(found, Failed):
        return found
    params, refusal, hold = found
    if terms_of(job.terms).has_references:
        leased = job.copy()
        entered = database.write(lambda tx: _enter(ledger_of(tx), admission, leased, params))
        if isinstance(entered, Failed):
            return refusal or entered
        job = entered
    if refusal is not None:
        return refusal
    if hold is None:
        return job
    # An approval binds to it if nobody has viewed the step since.
    mark, held = fingerprint(job.kind, from_json(job.params)), job.copy()
    sight = replace(look(job, params), fingerprint=mark)
    database.write(lambda tx: see(tx, held.id, NO_PERSON, sight) if ledger_of(tx).is_leased(held) else None)
    return Hold(hold)


def _judge(
    tx: Tx, admission: Admission, job: JobRow, spec: MissionSpec, root: str | None
) -> tuple[dict[str, JsonValue], Failed | None, Reason | None] | Failed:
    """The params of a step that is about to run, and why it may not run at all, or not yet."""
    worker = admission.workers[job.kind]
    params = {name: value for name, value in from_json(job.params).items() if name != MEMORIES}
    if job.terms is not None and terms_of(job.terms).has_references:
        found = resolved_params(tx, job)
        if isinstance(found, Failed):
            return found
        params = found
    read = worker.read(params, _label(job))
    policy = admission.policy_now(tx, job.mission_id, spec, root)
    verdict, reason, code = ruling_on(policy, worker, read, spec)
    refusal = None
    if verdict is Verdict.DENY:
        refusal = Failed(code, f"{_label(job)} is not allowed: {reason}", advice=reason.advice)
    return params, refusal, reason if verdict is Verdict.HOLD and not job.approved else None


def resolved_params(tx: Tx, job: JobRow) -> dict[str, JsonValue] | Failed:
    """The params of a step without references."""
    given = {one.step: one.result for one in whole_steps_before(tx, job.id) if one.state is State.SUCCEEDED}
    try:
        resolved = resolve(from_json(job.params), given)
    except Missing as missing:
        return Failed(OUTPUT_NOT_FOUND, f"{_label(job)}: {missing}")
    except TooLong as refused:
        advice = "Refer to a part of the output, or let the step read the file itself."
        return Failed(ErrorCode.TOO_LARGE, f"{_label(job)}: {refused}", advice=advice)
    assert isinstance(resolved, dict)
    return resolved


def is_of_planner(job: JobRow) -> bool:
    """True if a step belongs to the plan of a planner; the operator's steps are counted by no cap."""
    return job.parent_id is not None


def _enter(
    ledger: Ledger, admission: Admission, job: JobRow, params: dict[str, JsonValue]
) -> JobRow | Failed:
    """The job of a step that is about to run, stored with `params`, those without references, if its lease is valid.

    Or why it may not run: what holds for jobs that a planner requests holds for its steps, too.
    """
    if not ledger.is_leased(job):
        return job
    worker, mission = admission.workers[job.kind], ledger.mission(job.mission_id)
    if is_of_planner(job):
        mark, _ = _marks(worker, worker.read(params), mission.root, spec_of(mission.spec))
        refusal = refuse_step(ledger, admission, replace(job, params=to_json(params), fingerprint=mark))
        if refusal is not None:
            return refusal
    return keep_resolved(ledger, worker, job, params)


def keep_resolved(
    ledger: Ledger, worker: Worker[BaseModel], job: JobRow, params: dict[str, JsonValue]
) -> JobRow:
    """Store a step's params without their references; the job with them."""
    assert job.terms is not None
    mission = ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    terms = replace(terms_of(job.terms), has_references=False).text
    read = worker.read(params)
    mark, effect = _marks(worker, read, mission.root, spec)
    text = to_json(worker.normal(params, read))
    store_resolved(ledger.tx, job.id, params=text, fingerprint=mark, effect=effect, terms=terms)
    before: dict[str, JsonValue] = {"before": from_json(job.params)}
    if is_of_planner(job):
        marks = _unresolved_marks(worker, from_json(job.params), mission.root, spec)
        before |= {"fingerprint": marks[0], "effect": marks[1]}
    ledger.note(mission, RESOLVED, job.id, before)
    return replace(job, params=text, terms=terms, fingerprint=mark)


def plans_of(spec: MissionSpec) -> Iterator[tuple[tuple[str | int, ...], StatedPlan]]:
    """The plans of a mission, each with its place."""
    keys = PlanKeys.of(spec)
    if keys.plan is not None:
        yield ("plan",), keys.plan
    for nth, plan in enumerate(keys.fallback_plans):
        yield ("fallback_plans", nth), plan


def _faults_of(step: StatedStep, spec: MissionSpec, workers: Workers) -> Iterator[tuple[str, str]]:
    """The keys of a step that are not valid, each with what is wrong, which begins with the key."""
    worker = workers.get(kind_named(step.tool, workers))
    if worker is None or worker.executed_by is ExecutedBy.ENGINE:
        known = [name for name, one in workers.items() if one.executed_by is not ExecutedBy.ENGINE]
        yield "tool", f"tool: no worker executes the kind {step.tool!r}; {nearest(step.tool, known)}"
        return
    if worker.executed_by is ExecutedBy.PLANNER and spec.planner.type == NO_PLANNER:
        yield "tool", f"tool: {step.tool} asks the mission's planner, and it names none (`planner:`)"
    if any(references_in(step.parameters)):
        return
    try:
        worker.read(_params(step, worker))
    except LcpError as refused:
        yield "parameters", f"parameters{str(refused).removeprefix('params')}"


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
        kind = kind_named(step.tool, workers)
        if kind not in workers:
            raise LcpError(
                ErrorCode.NO_WORKER,
                f"{step.id}: no worker executes the kind {step.tool!r}",
                advice="Correct the name, or name the file with this kind: --workers FILE.",
            )
        worker = workers[kind].under(spec.kinds.get(kind))
        params, retry = _params(step, worker), step.retry
        terms = Terms(
            step=step.id,
            condition=step.condition.expression if step.condition is not None else None,
            has_references=any(references_in(params)),
            retries=retry is not None,
            delay_ms=None if retry is None else retry.delay_ms,
            timeout_ms=step.timeout_ms or None,
        )
        marks: tuple[str | None, str | None] = (None, None)
        if not terms.has_references:
            read = worker.read(params)
            marks, params = _marks(worker, read, root, spec), worker.normal(params, read)
        stated = None if retry is None else retry.max_attempts
        yield PlannedStep(
            name=step.name,
            kind=kind,
            params=params,
            role=Role.STEP if worker.executed_by is ExecutedBy.PLANNER else Role.WORK,
            max_attempts=worker.max_attempts if stated is None else stated,
            fingerprint=marks[0],
            effect=marks[1],
            terms=terms,
            after=tuple((place[step_id], awaited.need) for step_id, awaited in awaited_by(step).items()),
        )


def _marks(
    worker: Worker[BaseModel], read: BaseModel, root: str | None, spec: MissionSpec
) -> tuple[str, str | None]:
    """The fingerprint of a job and what it has an effect on."""
    mark = fingerprint(worker.kind, canonical(read, root, spec))
    return mark, effect_of(worker, read, mark, root, spec)


def _unresolved_marks(
    worker: Worker[BaseModel], params: dict[str, JsonValue], root: str | None, spec: MissionSpec
) -> tuple[str, str | None]:
    """The marks of a planner's step whose params hold references; its files count if none of them is one (R26)."""
    mark, read = fingerprint(worker.kind, params), params_of(worker, params)
    if read is not None and any("$output." in path for path in worker.paths(read)):
        read = None
    return mark, effect_of(worker, read, mark, root, spec)


def _store_step(
    ledger: Ledger, plan: PlanRow, step: PlannedStep, followers: int, asked: JobRow | None
) -> int:
    mission = ledger.mission(plan.mission_id)
    asks, reason = step.role is not Role.WORK, None
    if step.after:
        reason = ReasonCode.STEP_ORDER
    elif asks and mission.asking is not None:
        reason = ReasonCode.TURN_ORDER
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            turn=None if asked is None or asks else asked.turn,
            parent_id=None if asked is None else asked.id,
            name=step.name,
            kind=step.kind,
            params=to_json(step.params),
            role=step.role,
            state=State.QUEUED if reason is None else State.BLOCKED,
            reason=reason,
            priority=TURN_PRIORITY if asks else 0,
            depth=plan.depth + asks,
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


def from_text(text: str) -> PlannedPlan:
    return PlannedPlan.model_validate_json(text)


def whole_steps_before(tx: Tx, job_id: int, most: int = 2**31 - 1) -> list[Before]:
    """Like `steps_before`, with the keys that results of the engine's own kinds leave out (`Result.whole`)."""
    return [one._replace(result=_whole(one)) for one in steps_before(tx, job_id, most)]


def _whole(one: Before) -> JsonValue:
    worker = BUILT_IN.get(one.kind)
    if worker is None or not issubclass(worker.result, Result) or one.result is None:
        return one.result
    try:
        return worker.result.model_validate(one.result).whole()
    except ValidationError:  # of another version of the engine
        return one.result
