"""Ask a plan's questions, keep the replies, do what was decided (R4, R6, R12, R18, R21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue
from sqlalchemy import bindparam, update

from lcp_engine.engine.judging import Bench, Requested, agent_error, judge, store
from lcp_engine.engine.plans import (
    acting_plan,
    after_settling,
    cancel_sub_plans,
    end_plan,
    queue_turn,
    refresh,
    spec_of,
    unblock_turn,
    usage_of,
)
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.jobs import CANCEL, DELEGATE, FAIL, SUCCEED, State
from lcp_engine.loop import AskAgain, Continue, Correct, Decision, End, PlanState, Usage, Wait, decide, limit_reached
from lcp_engine.mission import MissionSpec
from lcp_engine.planners.base import JobResult
from lcp_engine.protocol.actions import Action, CreateFollowupJobs, Malformed, WriteFile
from lcp_engine.store.database import Row, Statement, Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.records import JobRow, MissionRow, PlanRow, TurnRow
from lcp_engine.store.schema import jobs
from lcp_engine.store.text import from_json, to_json
from lcp_engine.store.turns import (
    StoredReply,
    ask,
    conclude,
    question,
    question_of,
    settled_jobs,
    store_reply,
    waiting_jobs,
)

_NUMBER_JOB = Statement(update(jobs).where(jobs.c.id == bindparam("job")).values(turn=bindparam("number")))


@dataclass(frozen=True)
class Asked:
    """A stored question with what a planner needs to answer it; `turn.reply` is there if it was answered before."""

    turn: TurnRow
    mission: MissionRow
    prompt: str
    context: str | None
    notices: tuple[str, ...]
    results: tuple[JobResult, ...]
    waiting: tuple[JobResult, ...]
    corrected: TurnRow | None


def open_question(ledger: Ledger, job: JobRow) -> Asked | None:
    """Store the question of a turn, or find it where an earlier attempt did; None where it is moot by now."""
    mission = ledger.mission(job.mission_id)
    plan = acting_plan(ledger, job)
    if mission.has_ended or plan.outcome is not None:
        _drop(ledger, job, mission)
        return None
    params = from_json(job.params)
    turn = question_of(ledger.tx, job.id)
    if turn is None:
        turn = _new_question(ledger, job, mission, plan, params)
    if turn is None:
        return None
    corrects = question(ledger.tx, mission.id, turn.corrects) if turn.corrects is not None else None
    notices = params.get("notices")
    return Asked(
        turn=turn,
        mission=mission,
        prompt=_prompt(ledger, job, mission, plan),
        context=_text(params.get("context")),
        notices=tuple(str(notice) for notice in notices) if isinstance(notices, list) else (),
        results=tuple(job_result(row) for row in settled_jobs(ledger.tx, plan.id, turn.after_seq, turn.until_seq)),
        waiting=tuple(job_result(row) for row in waiting_jobs(ledger.tx, mission.id, plan.id)),
        corrected=corrects,
    )


def keep_reply(ledger: Ledger, turn: TurnRow, reply: StoredReply) -> TurnRow:
    """Store the reply before anybody reads it, whether or not the lease still stands; the one that counts (R21)."""
    mission = ledger.mission(turn.mission_id)
    if store_reply(ledger.tx, turn.mission_id, turn.number, reply):
        mission.input_tokens += reply.input_tokens or 0
        mission.output_tokens += reply.output_tokens or 0
        ledger.note(mission, "replied", turn.job_id, {"question": turn.number})
    kept = question(ledger.tx, turn.mission_id, turn.number)
    assert kept is not None
    return kept


def conclude_turn(
    ledger: Ledger, bench: Bench, lease: JobRow, reply: Action | Malformed, unmet: tuple[str, ...] = ()
) -> bool:
    """Decide on a reply and do it, all in this transaction (R18). False where the lease was lost: nothing is done."""
    job = ledger.job(lease.id)
    if job.state is not State.RUNNING or job.attempt != lease.attempt:
        return False
    mission = ledger.mission(job.mission_id)
    plan = acting_plan(ledger, job)
    if mission.has_ended or plan.outcome is not None:
        _drop(ledger, job, mission)
        return True
    turn = question_of(ledger.tx, job.id)
    assert turn is not None
    spec = spec_of(mission.spec)
    requested: list[Requested] = []
    if isinstance(reply, CreateFollowupJobs | WriteFile):
        requested = judge(ledger, bench, mission, spec, job.depth, reply.requested)
    decision = decide(_state(mission, plan, spec, turn, requested, unmet), reply)
    _note_reading(ledger, turn, reply, decision)
    _settle_turn(ledger, job, mission, reply, decision)
    _apply(ledger, plan, mission, turn, requested, decision, parent_id=job.id)
    if job.role == "step" and isinstance(decision, End):
        after_settling(ledger, job)
    refresh(ledger, mission)
    return True


def job_result(row: Row) -> JobResult:
    """A row of `settled_jobs` or `waiting_jobs` as the planner sees it."""
    job_id, name, kind, params, state, reason, result, error = row
    return JobResult(
        job_id=job_id,
        name=name,
        kind=kind,
        params=from_json(params),
        state=state,
        reason=reason,
        result=None if result is None else from_json(result),
        error=None if error is None else from_json(error),
    )


def history(tx: Tx, plan_id: int) -> Sequence[JobResult]:
    """Every settled job of a plan, oldest first."""
    return [job_result(row) for row in settled_jobs(tx, plan_id, 0, 2**31 - 1)]


def _new_question(
    ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, params: Mapping[str, JsonValue]
) -> TurnRow | None:
    spec = spec_of(mission.spec)
    corrects = params.get("corrects")
    corrected = question(ledger.tx, mission.id, corrects) if isinstance(corrects, int) else None
    usage = usage_of(mission, ledger.tx.now)
    if corrected is not None:
        usage = Usage(usage.turns - 1, usage.seconds, usage.tokens)
    limit = limit_reached(spec.limits, usage)
    if limit is not None and plan.job_id is not None:
        _drop(ledger, job, mission)
        cancel_sub_plans(ledger, mission, limit)
        return None
    mission.questions += 1
    if corrected is None:
        mission.turns += 1
    after = plan.asked_seq if spec.continue_ == "per_batch" else 0
    turn = TurnRow(
        mission_id=mission.id,
        number=mission.questions,
        turn=mission.turns,
        plan_id=plan.id,
        job_id=job.id,
        corrects=None if corrected is None else corrected.number,
        last_turn=limit,
        after_seq=after if corrected is None else corrected.after_seq,
        until_seq=mission.events,
        asked_at=ledger.tx.now,
        prompt=None,
        reply=None,
        input_tokens=None,
        output_tokens=None,
    )
    plan.asked_seq = mission.events
    ask(ledger.tx, turn)
    ledger.tx.run(_NUMBER_JOB, job=job.id, number=turn.turn)
    data: dict[str, JsonValue] = {"question": turn.number, "turn": turn.turn}
    ledger.note(mission, "asked", job.id, data if limit is None else {**data, "last_turn": limit})
    return turn


def _drop(ledger: Ledger, job: JobRow, mission: MissionRow) -> None:
    """A turn that nobody needs any more."""
    ledger.attempted(job, CANCEL.event)
    ledger.move(job, CANCEL, reason="the plan has ended", is_leased=True)
    if mission.asking == job.id:
        mission.asking = None
    refresh(ledger, mission)


def _prompt(ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow) -> str:
    """What this turn is about: its own prompt, else that of the step which began the plan, else the goal."""
    own = _text(from_json(job.params).get("user_prompt"))
    if own is not None:
        return own
    if plan.job_id is not None:
        return _text(from_json(ledger.job(plan.job_id).params).get("user_prompt")) or mission.goal
    return mission.goal


def _state(
    mission: MissionRow, plan: PlanRow, spec: MissionSpec, turn: TurnRow, requested: Sequence[Requested],
    unmet: tuple[str, ...],
) -> PlanState:  # fmt: skip
    limits = spec.limits
    most = limits.max_bytes_written
    return PlanState(
        limits=limits,
        judgements=tuple(request.judgement for request in requested),
        jobs_left=limits.max_jobs - mission.requested,
        bytes_left=None if most is None else most - mission.bytes_written,
        corrections=plan.corrections,
        stalled=plan.stalled,
        unmet=unmet if plan.job_id is None else (),
        refused=plan.refused,
        last_turn=turn.last_turn,
    )


def _note_reading(ledger: Ledger, turn: TurnRow, reply: Action | Malformed, decision: Decision) -> None:
    malformed = decision.malformed if isinstance(decision, Correct) else reply if isinstance(reply, Malformed) else None
    action = None if isinstance(reply, Malformed) else reply.action
    errors = None
    if malformed is not None:
        errors = to_json([{"path": error.path, "message": error.message} for error in malformed.errors])
    conclude(ledger.tx, turn.mission_id, turn.number, action=action, errors=errors)


def _settle_turn(
    ledger: Ledger, job: JobRow, mission: MissionRow, reply: Action | Malformed, decision: Decision
) -> None:
    """Settle the job that asked, or block it where it began a plan that goes on."""
    mission.asking = None
    error = _error(reply, decision, mission, ledger.tx.now)
    transition = SUCCEED
    if job.role == "step" and not isinstance(decision, End):
        transition = DELEGATE
    elif job.role == "step" and isinstance(decision, End):
        transition = SUCCEED if decision.succeeded else FAIL
    elif error is not None:
        transition = FAIL
    ledger.attempted(job, transition.event, error)
    result = None if isinstance(reply, Malformed) else to_json(_shown(reply))
    ledger.move(
        job, transition, is_leased=True,
        result=None if transition is DELEGATE else result, error=None if transition is DELEGATE else error,
    )  # fmt: skip


def _apply(
    ledger: Ledger, plan: PlanRow, mission: MissionRow, turn: TurnRow, requested: Sequence[Requested],
    decision: Decision, *, parent_id: int,
) -> None:  # fmt: skip
    unblock_turn(ledger, mission)
    plan.corrections = plan.corrections + 1 if isinstance(decision, Correct) else 0
    match decision:
        case Continue() | Wait():
            plan.stalled = decision.stalled
            store(ledger, mission, plan, requested, decision.jobs, turn=turn.turn, parent_id=parent_id)
        case AskAgain():
            plan.stalled = decision.stalled
            plan.refused += bool(decision.unmet)
            store(ledger, mission, plan, requested, decision.jobs, turn=turn.turn, parent_id=parent_id)
            notices = [f"an acceptance check does not pass: {unmet}" for unmet in decision.unmet]
            queue_turn(ledger, plan, notices=notices or ["every requested job was rejected; see the reasons"])
        case Correct():
            queue_turn(ledger, plan, corrects=turn.number)
        case End():
            error = None
            if not decision.succeeded:
                error = agent_error(_failure(decision), mission.uid, ledger.tx.now)
            end_plan(ledger, plan, decision, error)


def _error(reply: Action | Malformed, decision: Decision, mission: MissionRow, now: int) -> str | None:
    malformed = decision.malformed if isinstance(decision, Correct) else reply if isinstance(reply, Malformed) else None
    if malformed is None:
        return None
    problems: list[JsonValue] = [{"path": error.path, "message": error.message} for error in malformed.errors]
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    failed = Failed(ErrorCode.INVALID_REPLY, f"the reply is not valid: {first}", {"errors": problems})  # type: ignore[dict-item]  # list is invariant
    return agent_error(failed, mission.uid, now)


_CODES = {"error": ErrorCode.PLANNER_FAILED, "invalid_reply": ErrorCode.INVALID_REPLY}


def _failure(end: End) -> Failed:
    code = _CODES.get(end.outcome, ErrorCode.LIMIT_REACHED)
    return Failed(code, end.message or end.outcome, {"outcome": end.outcome})


def _shown(reply: Action) -> dict[str, JsonValue]:
    """The action as a job's result: without contents and params, which are in the reply and in the jobs."""
    shown: dict[str, JsonValue] = reply.model_dump(mode="json", exclude_none=True, exclude={"new_jobs", "content"})
    if isinstance(reply, CreateFollowupJobs):
        shown["jobs"] = len(reply.new_jobs)
    return shown


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None
