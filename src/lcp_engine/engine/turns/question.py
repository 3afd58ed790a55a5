"""Ask a plan's questions and keep the replies (R4, R6, R21)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter
from sqlalchemy import bindparam, update

from lcp_engine.core.decide import Usage, limit_reached
from lcp_engine.core.job_states import CANCEL
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.core.protocol.actions import Problem
from lcp_engine.engine.plans.job_view import seen_job
from lcp_engine.engine.plans.operator_messages import heard
from lcp_engine.engine.plans.progress import after_settling, cancel_sub_plans, refresh, usage_of
from lcp_engine.engine.plans.turn_queue import VERIFIES, acting_plan
from lcp_engine.planners.base import Said, SeenJob
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow, TurnRow
from lcp_engine.store.schema import jobs
from lcp_engine.store.turns import (
    StoredReply,
    ask,
    make_last,
    question,
    question_of,
    settled_jobs,
    store_reply,
    waiting_jobs,
)

PLAN_ENDED = "the plan has ended"
_NUMBER_JOB = Statement(update(jobs).where(jobs.c.id == bindparam("job")).values(turn=bindparam("number")))


@dataclass(frozen=True)
class Asked:
    """A stored question with what a planner needs to answer it; `turn.reply` is there if it was answered before."""

    turn: TurnRow
    mission: MissionRow
    prompt: str
    context: str | None
    notices: tuple[str, ...]
    results: tuple[SeenJob, ...]
    waiting: tuple[SeenJob, ...]
    said: tuple[Said, ...]
    corrected: TurnRow | None
    stalled: int
    verifies: bool
    problems: tuple[Problem, ...]


def open_question(ledger: Ledger, job: JobRow) -> Asked | None:
    """Store the question of a turn, or find it where an earlier attempt did.

    None where the lease was lost, or where nobody needs the turn any more: it is settled then.
    """
    mission = ledger.mission(job.mission_id)
    if not ledger.is_leased(job):
        return None
    plan = acting_plan(ledger, job)
    if mission.has_ended or plan.outcome is not None:
        drop_turn(ledger, job, mission, PLAN_ENDED)
        return None
    params = from_json(job.params)
    turn = question_of(ledger.tx, job.id)
    if turn is None:
        turn = new_question(ledger, job, mission, plan, params)
    elif turn.reply is None and turn.last_turn is None:
        turn = _asked_again(ledger, job, mission, plan, turn)
    if turn is None:
        return None
    corrects = question(ledger.tx, mission.id, turn.corrects) if turn.corrects is not None else None
    ledger.keep_results()
    return Asked(
        turn=turn,
        mission=mission,
        prompt=_own_text(ledger, job, plan, "user_prompt") or mission.goal,
        context=_own_text(ledger, job, plan, "context"),
        notices=_notices(params, plan, spec_of(mission.spec)),
        results=tuple(
            seen_job(row) for row in settled_jobs(ledger.tx, plan.id, turn.after_seq, turn.until_seq)
        ),
        waiting=tuple(seen_job(row) for row in waiting_jobs(ledger.tx, mission.id, plan.id)),
        said=tuple(heard(ledger.tx, turn)),
        corrected=corrects,
        stalled=plan.stalled,
        verifies=VERIFIES in params,
        problems=_problems(corrects),
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


def keep_cost(ledger: Ledger, turn: TurnRow, tokens: tuple[int, int]) -> None:
    """Count what a question cost that got no reply, whether or not the lease still stands (R6)."""
    mission = ledger.mission(turn.mission_id)
    mission.input_tokens += tokens[0]
    mission.output_tokens += tokens[1]


def drop_turn(ledger: Ledger, job: JobRow, mission: MissionRow, reason: str) -> None:
    """Settle a turn that nobody needs any more; the plan that a step belongs to goes on without it (R7)."""
    _cancel_turn(ledger, job, mission, reason)
    if job.role == "step":
        after_settling(ledger, job)
    refresh(ledger, mission)


def _cancel_turn(ledger: Ledger, job: JobRow, mission: MissionRow, reason: str) -> None:
    if ledger.move(job, CANCEL, reason=reason, is_leased=True):
        ledger.attempted(job, CANCEL.event)
    if mission.asking == job.id:
        mission.asking = None


def history(tx: Tx, plan_id: int) -> Sequence[SeenJob]:
    """Every settled job of a plan, oldest first."""
    return [seen_job(row) for row in settled_jobs(tx, plan_id, 0, 2**31 - 1)]


def new_question(
    ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, params: Mapping[str, JsonValue]
) -> TurnRow | None:
    """Store the question of a turn; None where a limit leaves the turn of a sub-plan none."""
    spec = spec_of(mission.spec)
    corrects = params.get("corrects")
    corrected = question(ledger.tx, mission.id, corrects) if isinstance(corrects, int) else None
    usage = usage_of(mission, ledger.tx.now)
    if corrected is not None:
        usage = Usage(usage.turns - 1, usage.seconds, usage.tokens)
    limit = limit_reached(spec.limits, usage)
    if limit is not None and not _takes_last_turn(ledger, job, mission, plan, limit):
        return None
    mission.questions += 1
    if corrected is None:
        mission.turns += 1
    # Who verifies looks at everything that was done.
    after = plan.asked_seq if spec.continue_ == "per_batch" and VERIFIES not in params else 0
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
        errors=None,
        input_tokens=None,
        output_tokens=None,
    )
    plan.asked_seq = mission.events
    ask(ledger.tx, turn)
    ledger.tx.run(_NUMBER_JOB, job=job.id, number=turn.turn)
    data: dict[str, JsonValue] = {"question": turn.number, "turn": turn.turn}
    ledger.note(mission, "asked", job.id, data if limit is None else {**data, "last_turn": limit})
    return turn


def _asked_again(
    ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, turn: TurnRow
) -> TurnRow | None:
    """The question of an attempt that got no reply; what was paid for nothing may have used up a limit (R6)."""
    used = usage_of(mission, ledger.tx.now)
    limit = limit_reached(spec_of(mission.spec).limits, Usage(used.turns - 1, used.seconds, used.tokens))
    if limit is None:
        return turn
    if not _takes_last_turn(ledger, job, mission, plan, limit):
        return None
    make_last(ledger.tx, turn.mission_id, turn.number, limit)
    ledger.note(mission, "asked", job.id, {"question": turn.number, "turn": turn.turn, "last_turn": limit})
    return question_of(ledger.tx, job.id)


def _takes_last_turn(ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, limit: str) -> bool:
    """Cancel the sub-plans of a mission that reached a limit; whether the turn is one of the root plan (R6)."""
    if plan.job_id is not None:
        _cancel_turn(ledger, job, mission, f"the mission reached {limit}")
    cancel_sub_plans(ledger, mission, limit)
    return plan.job_id is None


def _own_text(ledger: Ledger, job: JobRow, plan: PlanRow, name: str) -> str | None:
    """A param of the turn, or else of the step which began the plan."""
    own = from_json(job.params).get(name)
    if own is None and plan.job_id is not None:
        own = from_json(ledger.job(plan.job_id).params).get(name)
    return own if isinstance(own, str) else None


def _problems(corrected: TurnRow | None) -> tuple[Problem, ...]:
    """What was wrong with the reply that is to be corrected, as it was found then."""
    if corrected is None or corrected.errors is None:
        return ()
    return tuple(TypeAdapter(list[Problem]).validate_json(corrected.errors))


def _notices(params: Mapping[str, JsonValue], plan: PlanRow, spec: MissionSpec) -> tuple[str, ...]:
    """What the engine has to say; a plan that does not get on is told so (R11)."""
    given = params.get("notices")
    notices = [str(notice) for notice in given] if isinstance(given, list) else []
    if plan.stalled:
        most = spec.limits.max_stalled
        notices.append(
            f"nothing new was asked for {plan.stalled} times in a row; at {most} the plan has failed"
        )
    return tuple(notices)
