"""Ask the questions of a plan and store the replies; hold a turn whose reply a person brings (R4, R6, R13, R21)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from pydantic import JsonValue, TypeAdapter, ValidationError

from lcp_engine.clock import SECOND, Micros, iso
from lcp_engine.core.decide import Usage, limit_reached
from lcp_engine.core.job_states import BRING, CANCEL, HOLD_AGAIN, Role, State
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.limits.money import Cost, add_amounts
from lcp_engine.core.mission.spec import Limits, MissionSpec, expected_result, seconds_of_last_turn, spec_of
from lcp_engine.core.protocol.actions import Problem
from lcp_engine.core.protocol.result_schema import ResultSchema
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.admission import Admission
from lcp_engine.engine.limit_holds import ask_for_more
from lcp_engine.engine.people.messages import new_messages, seen_job
from lcp_engine.engine.points import sections
from lcp_engine.engine.progress import after_settling, cancel_sub_plans, refresh, usage_of
from lcp_engine.engine.turn_queue import RESUMED, VERIFIES, acting_plan
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.planners.base import PromptRecord, Said, SeenJob, SeenMemory
from lcp_engine.store.db.json_text import from_json, storable, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import has_event
from lcp_engine.store.queue import release
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow, TurnRow
from lcp_engine.store.server_waits import keep_wait, waits_until
from lcp_engine.store.turns import (
    MEMORIES,
    NOTHING,
    PROMPT,
    REPLIED,
    StoredReply,
    add_cost,
    add_spent,
    ask,
    keep_memories,
    keep_prompt,
    last_warnings,
    make_last,
    note_wait,
    number_job,
    numbered_jobs,
    prompt_records,
    question,
    question_of,
    relayed_record,
    settled_jobs,
    shown_job,
    steps_before,
    store_reply,
    waiting_jobs,
)
from lcp_engine.workers.base import EarlierJob, Workers

MAX_REPLY = 16 * 1024 * 1024
"""Characters of a reply that a person brings."""


@dataclass(frozen=True)
class Asked:
    """A stored question with what a planner needs to answer it; `turn.reply` is set if it was answered before."""

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
    resumed: bool
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]
    memories: tuple[SeenMemory, ...]

    @property
    def of_step(self) -> bool:
        """True if a step of a plan asks, not the mission's own plan."""
        return self.turn.plan_id != self.mission.root_plan

    @property
    def expected(self) -> ResultSchema | None:
        """The schema of the result that the reply has to carry if it completes the mission; None if it cannot."""
        if self.verifies or self.of_step:
            return None
        return expected_result(spec_of(self.mission.spec))


def open_question(ledger: Ledger, job: JobRow, admission: Admission | None = None) -> Asked | None:
    """Store the question of a turn, or find the one that an earlier attempt stored.

    None if the lease was lost, or if the turn is no longer needed: it is settled then. `admission` says which files
    memory may be about.
    """
    mission = ledger.mission(job.mission_id)
    if not ledger.is_leased(job):
        return None
    plan = acting_plan(ledger, job)
    if mission.has_ended or plan.outcome is not None:
        drop_turn(ledger, job, mission, because(ReasonCode.PLAN_ENDED))
        return None
    params = from_json(job.params)
    turn = question_of(ledger.tx, job.id)
    is_new = turn is None
    if turn is None:
        turn = new_question(ledger, job, mission, plan, params)
    elif turn.reply is None and turn.last_turn is None:
        turn = _asked_again(ledger, job, mission, plan, turn)
    if turn is None:
        return None
    corrects = question(ledger.tx, mission.id, turn.corrects) if turn.corrects is not None else None
    ledger.write_results()
    asked = Asked(
        turn=turn,
        mission=mission,
        prompt=_own_text(ledger, job, plan, "user_prompt") or mission.goal,
        context=_context(ledger, job, plan, mission),
        memories=seen(turn.memories),
        notices=_notices(params, plan, spec_of(mission.spec)),
        results=tuple(
            seen_job(row) for row in settled_jobs(ledger.tx, plan.id, turn.after_seq, turn.until_seq)
        ),
        waiting=tuple(seen_job(row) for row in waiting_jobs(ledger.tx, mission.id, plan.id)),
        said=tuple(new_messages(ledger.tx, turn)),
        corrected=corrects,
        stalled=plan.stalled,
        verifies=VERIFIES in params,
        resumed=RESUMED in params,
        problems=_problems(corrects),
        warnings=_warnings(ledger.tx, turn),
    )
    return _with_memories(ledger, asked, params, admission) if is_new else asked


def _with_memories(
    ledger: Ledger, asked: Asked, params: Mapping[str, JsonValue], admission: Admission | None
) -> Asked:
    """A new question with what is remembered of the root; what is chosen once is stored, whatever becomes of it."""
    if asked.corrected is not None:
        chosen = asked.corrected.memories
    elif MEMORIES in params:
        given = params[MEMORIES]
        chosen = given if isinstance(given, str) else None
    else:
        shown = [asdict(one) for section in sections() for one in section.choose(ledger, asked, admission)]
        chosen = to_json(shown) if shown else None
    if chosen is None:
        return asked
    keep_memories(ledger.tx, asked.mission.id, asked.turn.number, chosen)
    return replace(asked, memories=seen(chosen))


def seen(chosen: str | None) -> tuple[SeenMemory, ...]:
    """Entries as a question is stored with them."""
    return () if chosen is None else tuple(TypeAdapter(list[SeenMemory]).validate_json(chosen))


def keep_reply(ledger: Ledger, turn: TurnRow, reply: StoredReply) -> TurnRow:
    """Store a reply before it is read, even if the lease was lost. The turn with the reply that counts (R21).

    Its tokens count in any case: a reply that came too late was paid for as well (R6).
    """
    mission = ledger.mission(turn.mission_id)
    mission.input_tokens += reply.input_tokens or 0
    mission.output_tokens += reply.output_tokens or 0
    if store_reply(ledger.tx, turn.mission_id, turn.number, reply):
        about: dict[str, JsonValue] = {"question": turn.number}
        noted = about if reply.record is None else {**about, PROMPT: {**reply.record}}
        ledger.note(mission, REPLIED, turn.job_id, noted)
    elif reply.input_tokens or reply.output_tokens:
        add_cost(ledger.tx, turn.mission_id, turn.number, reply)
    _count_cost(ledger, mission, turn, reply.spent)
    kept = question(ledger.tx, turn.mission_id, turn.number)
    assert kept is not None
    return kept


def _count_cost(ledger: Ledger, mission: MissionRow, turn: TurnRow, spent: Cost) -> None:
    is_other = spent.amount is not None and mission.currency not in (None, spent.currency)
    mission.unpriced += spent.has_unpriced or is_other
    if spent.amount is not None and not is_other:
        mission.cost, mission.currency = add_amounts(mission.cost, spent.amount), spent.currency
    if spent.completions:
        add_spent(ledger.tx, turn.mission_id, turn.number, spent)


def keep_cost(ledger: Ledger, turn: TurnRow, tokens: tuple[int, int], spent: Cost = NOTHING) -> None:
    """Count the tokens of a question that got no reply, even if the lease was lost (R6)."""
    mission = ledger.mission(turn.mission_id)
    mission.input_tokens += tokens[0]
    mission.output_tokens += tokens[1]
    _count_cost(ledger, mission, turn, spent)


def drop_turn(ledger: Ledger, job: JobRow, mission: MissionRow, reason: Reason) -> None:
    """Settle a turn that is no longer needed; the plan that requested a step continues without it (R7)."""
    _cancel_turn(ledger, job, mission, reason)
    if job.role is Role.STEP:
        after_settling(ledger, job)
    refresh(ledger, mission)


def _cancel_turn(ledger: Ledger, job: JobRow, mission: MissionRow, reason: Reason) -> None:
    if ledger.move(job, CANCEL, reason=reason, is_leased=True):
        ledger.attempted(job, CANCEL.event)
    if mission.asking == job.id:
        mission.asking = None


def history(tx: Tx, plan_id: int) -> Sequence[SeenJob]:
    """Every settled job of a plan, oldest first, after the steps before the one that began it."""
    rows = (*steps_before(tx, plan_id), *settled_jobs(tx, plan_id, 0, 2**31 - 1))
    return [seen_job(row) for row in rows]


_RECORD = TypeAdapter(PromptRecord)


def record_json(record: PromptRecord) -> dict[str, JsonValue] | None:
    """A record of a prompt as it is stored; None if it has values of other types than it declares."""
    try:
        checked = _RECORD.validate_python(record, strict=True)
    except ValidationError:
        return None
    stored: dict[str, JsonValue] = _RECORD.dump_python(checked, mode="json")
    return stored


def prompts(tx: Tx, turn: TurnRow) -> list[PromptRecord]:
    """Records of what the earlier prompts of the plan of `turn` showed and left out, in their order."""
    return [
        _RECORD.validate_python(record) for number, record in prompt_records(tx, turn) if number < turn.number
    ]


def unseen_jobs(tx: Tx, turn: TurnRow) -> frozenset[int]:
    """The jobs of which the prompt of `turn` showed nothing: to ask for them again is not a repetition (R11)."""
    own = [
        _RECORD.validate_python(record)
        for number, record in prompt_records(tx, turn)
        if number == turn.number
    ]
    left_out = {part.number for record in own for part in record.left_out if part.is_whole}
    known = numbers(tx, turn.mission_id) if left_out else {}
    return frozenset(job for job, number in known.items() if number in left_out)


def numbers(tx: Tx, mission_id: int) -> dict[int, int]:
    """The number of each job of a mission, by its id."""
    return {job_id: number for number, job_id in enumerate(numbered_jobs(tx, mission_id), 1)}


def readings(tx: Tx, mission_id: int, workers: Workers) -> dict[str, str]:
    """The files that jobs of a mission have read, with what they have read of each."""
    found: dict[str, str] = {}
    for job in (
        seen_job(row) for row in map(partial(shown_job, tx), numbered_jobs(tx, mission_id)) if row is not None
    ):
        worker, result = workers.get(job.kind), job.result
        if (
            worker is None
            or worker.role is not KindRole.READS
            or result is None
            or job.state != State.SUCCEEDED
        ):
            continue
        path, text = result.get("path"), result.get(worker.shows or "")
        if isinstance(path, str) and isinstance(text, str):
            found[path] = f"{found.get(path, '')}\n{text}"
    return found


def earlier_job(
    tx: Tx, mission_id: int, number: int, shows: Callable[[str], str | None]
) -> EarlierJob | Failed:
    """The job of a mission that has a number; `shows` says which part of the result of a kind prompts show."""
    ids = numbered_jobs(tx, mission_id)
    row = shown_job(tx, ids[number - 1]) if 1 <= number <= len(ids) else None
    if row is None:
        message = f"the mission has no job with the number {number}; it has 1 to {len(ids)}"
        return Failed(ErrorCode.NOT_FOUND, message, advice="Use a number that the prompt names.")
    job = seen_job(row)
    return EarlierJob(number, job.kind, State(job.state), job.reason, job.result, job.error, shows(job.kind))


def new_question(
    ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, params: Mapping[str, JsonValue]
) -> TurnRow | None:
    """Store the question of a turn; None for the turn of a sub-plan once a limit is reached."""
    spec = spec_of(mission.spec)
    corrects = params.get("corrects")
    corrected = question(ledger.tx, mission.id, corrects) if isinstance(corrects, int) else None
    usage = usage_of(mission, ledger.tx.now)
    if corrected is not None:
        usage = replace(usage, turns=usage.turns - 1)
    limit = limit_reached(spec.limits, usage)
    if limit is not None and not _takes_last_turn(ledger, job, plan, limit, usage):
        return None
    mission.questions += 1
    if corrected is None:
        mission.turns += 1
    # A verifying turn sees everything that was done.
    after = plan.asked_seq if spec.continue_ != "per_result" and VERIFIES not in params else 0
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
        until_ran=None if limit is None else _until_ran(spec.limits, usage),
        prompt=None,
        reply=None,
        errors=None,
        input_tokens=None,
        output_tokens=None,
    )
    plan.asked_seq = mission.events
    ask(ledger.tx, turn)
    number_job(ledger.tx, job.id, turn.turn)
    data: dict[str, JsonValue] = {"question": turn.number, "turn": turn.turn}
    ledger.note(mission, "asked", job.id, data if limit is None else {**data, "last_turn": limit})
    return turn


def _asked_again(
    ledger: Ledger, job: JobRow, mission: MissionRow, plan: PlanRow, turn: TurnRow
) -> TurnRow | None:
    """The question of an attempt that got no reply; its tokens may have used up a limit since (R6)."""
    used = usage_of(mission, ledger.tx.now)
    limit = limit_reached(spec_of(mission.spec).limits, replace(used, turns=used.turns - 1))
    if limit is None:
        return turn
    if not _takes_last_turn(ledger, job, plan, limit, used):
        return None
    until = _until_ran(spec_of(mission.spec).limits, used)
    make_last(ledger.tx, turn.mission_id, turn.number, limit, until)
    ledger.note(mission, "asked", job.id, {"question": turn.number, "turn": turn.turn, "last_turn": limit})
    return question_of(ledger.tx, job.id)


def _until_ran(limits: Limits, usage: Usage) -> int | None:
    """Running time that the mission may reach when the reply of its last turn comes; None without a limit of time."""
    if limits.max_seconds is None:
        return None
    most = max(limits.max_seconds, usage.seconds) + seconds_of_last_turn(limits.max_seconds)
    return int(most * SECOND)


def seconds_left(mission: MissionRow, turn: TurnRow, now: Micros) -> float | None:
    """Running time that is left for the reply to a question; None without a limit, and 0 if none is left (R6)."""
    used, most = usage_of(mission, now).seconds, spec_of(mission.spec).limits.max_seconds
    if turn.last_turn is not None:
        most = None if turn.until_ran is None else turn.until_ran / SECOND
    return None if most is None else max(most - used, 0.0)


def _takes_last_turn(ledger: Ledger, job: JobRow, plan: PlanRow, limit: str, usage: Usage) -> bool:
    """Cancel the sub-plans of a mission that reached a limit. True for a turn of the root plan: it is the last (R6).

    Unless a person is asked for more: the turn then waits.
    """
    mission = ledger.mission(job.mission_id)
    if spec_of(mission.spec).on_limit == "hold":
        ask_for_more(ledger, plan, job, limit, usage)
        refresh(ledger, mission)
        return False
    if plan.job_id is not None:
        _cancel_turn(ledger, job, mission, because(ReasonCode.LIMIT_REACHED, limit=limit))
    cancel_sub_plans(ledger, mission, limit, job)
    return plan.job_id is None


def _context(ledger: Ledger, job: JobRow, plan: PlanRow, mission: MissionRow) -> str | None:
    """The context of the turn, or of the step that began its plan, after what the mission's request states."""
    background, own = spec_of(mission.spec).background, _own_text(ledger, job, plan, "context")
    parts = [part for part in (background.text if background else "", own) if part]
    return "\n\n".join(parts) or own


def _own_text(ledger: Ledger, job: JobRow, plan: PlanRow, name: str) -> str | None:
    """A param of the turn, else of the step that began the plan."""
    own = from_json(job.params).get(name)
    if own is None and plan.job_id is not None:
        own = from_json(ledger.job(plan.job_id).params).get(name)
    return own if isinstance(own, str) else None


def _problems(corrected: TurnRow | None) -> tuple[Problem, ...]:
    """The problems that were found in the reply to correct."""
    if corrected is None or corrected.errors is None:
        return ()
    return tuple(TypeAdapter(list[Problem]).validate_json(corrected.errors))


def _warnings(tx: Tx, turn: TurnRow) -> tuple[str, ...]:
    """Notes on what was ignored in the plan's last reply."""
    stored = last_warnings(tx, turn) if turn.number > 1 else None
    return () if stored is None else tuple(TypeAdapter(list[str]).validate_json(stored))


def _notices(params: Mapping[str, JsonValue], plan: PlanRow, spec: MissionSpec) -> tuple[str, ...]:
    """Messages of the engine to the planner, with a warning for a plan that makes no progress (R11)."""
    given = params.get("notices")
    notices = [str(notice) for notice in given] if isinstance(given, list) else []
    if plan.stalled:
        most = spec.limits.max_stalled
        notices.append(f"nothing new was requested {plan.stalled} times in a row; at {most} the plan fails")
    return tuple(notices)


def hold_turn(
    ledger: Ledger,
    lease: JobRow,
    turn: TurnRow,
    prompt: str,
    record: Mapping[str, JsonValue] | None = None,
) -> None:
    """Store the prompt and hold the turn, which keeps its position among the turns of its mission.

    `record`, what the prompt shows and leaves out, is noted with the reason, and again with the reply.

    A turn that is no longer needed is dropped. Nothing is done if the lease was lost.
    """
    mission = ledger.mission(lease.mission_id)
    if not ledger.is_leased(lease):
        return
    if mission.has_ended or acting_plan(ledger, lease).outcome is not None:
        drop_turn(ledger, lease, mission, because(ReasonCode.PLAN_ENDED))
        return
    keep_prompt(ledger.tx, turn.mission_id, turn.number, prompt)
    ledger.attempted(lease, HOLD_AGAIN.event)
    about: dict[str, JsonValue] = {} if record is None else {PROMPT: {**record}}
    ledger.move(lease, HOLD_AGAIN, reason=because(ReasonCode.REPLY_WANTED, **about), is_leased=True)
    refresh(ledger, mission)


LEAST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
"""Seconds, between two questions to a server that asks to wait and does not say how long."""


def pause_of(asked: float | None, waited: float, chance: random.Random) -> float:
    """Seconds that a question waits that has waited so long already: as its server asked, or about twice as long.

    A server that asks for less than a second asks the same of all its callers, again and again.
    """
    if asked is not None and LEAST_PAUSE <= asked < float("inf"):
        return asked
    return min(max(waited, LEAST_PAUSE), LONGEST_PAUSE) * chance.uniform(0.5, 1)


@dataclass(frozen=True)
class Server:
    """A planner's server, by the `name` that its waits belong to, and the most seconds a question waits for it."""

    name: str
    most: float


def put_off(
    ledger: Ledger,
    lease: JobRow,
    turn: TurnRow,
    server: Server,
    *,
    asked: float | None,
    chance: random.Random,
) -> bool:
    """Queue a turn again whose server has asked to wait, for `asked` seconds if it said so (R34).

    No attempt is charged, and other questions to the server wait, too. False if it has waited as long as it may.
    """
    since = ledger.tx.now if turn.waits_since is None else turn.waits_since
    waited = max(0, ledger.tx.now - since) / SECOND
    pause = min(pause_of(asked, waited, chance), server.most)
    until = _wait(ledger, lease, turn, server, ledger.tx.now + int(pause * SECOND))
    if until is not None and server.name:
        keep_wait(ledger.tx, server.name, until)
    return until is not None


def wait_with_others(ledger: Ledger, lease: JobRow, asked: Asked, server: Server) -> bool:
    """Queue a turn again if its server has asked another question to wait, and still does. Whether it has.

    One that a person began by resuming the mission is asked once in any case: they may know better.
    """
    until = waits_until(ledger.tx, server.name)
    if until <= ledger.tx.now or (asked.resumed and asked.turn.waits_since is None):
        return False
    return _wait(ledger, lease, asked.turn, server, until) is not None


def _wait(ledger: Ledger, lease: JobRow, turn: TurnRow, server: Server, until: Micros) -> Micros | None:
    """Release a turn until then, or until it has waited as long as it may; None if it has.

    A turn that is no longer needed is dropped. Nothing is done if the lease was lost.
    """
    mission, now = ledger.mission(lease.mission_id), ledger.tx.now
    since = now if turn.waits_since is None else min(turn.waits_since, now)
    end = since + int(server.most * SECOND)
    if now >= end:
        return None
    until = min(until, end)
    if not ledger.is_leased(lease):
        return until
    if mission.has_ended or acting_plan(ledger, lease).outcome is not None:
        drop_turn(ledger, lease, mission, because(ReasonCode.PLAN_ENDED))
        return until
    release(ledger, lease, because(ReasonCode.ASKED_TO_WAIT, until=iso(until)), run_after=until)
    note_wait(ledger.tx, turn, since, until)
    return until


def is_relayed(ledger: Ledger, job: JobRow) -> bool:
    """True if the job is a turn that waits for a person to bring its reply."""
    is_asked = job.state is State.HELD and job.role is not Role.WORK
    return is_asked and ledger.mission(job.mission_id).asking == job.id


def bring_reply(ledger: Ledger, job: JobRow, text: str, *, by: str) -> bool:
    """Store the reply that a person brings, and queue the turn. False if the same reply was brought before.

    Raises `WRONG_STATE` if another reply was brought or the turn was decided otherwise, `INVALID_ARGUMENT` for a reply
    that is blank or too long.
    """
    _check_reply(job, text)
    turn = question_of(ledger.tx, job.id)
    assert turn is not None
    if not is_relayed(ledger, job):
        if turn.reply == storable(text):
            return False
        fact = f"it is {job.state}" if turn.reply is None else "it has another reply"
        raise LcpError(
            ErrorCode.WRONG_STATE,
            f"job {job.id} cannot be answered: {fact}; only held jobs can be answered",
            advice=GENERAL,
        )
    seconds = max(0, ledger.tx.now - turn.asked_at) / SECOND
    record = relayed_record(ledger.tx, turn)
    keep_reply(ledger, turn, StoredReply(text, turn.prompt, None, None, seconds, record))
    mission = ledger.mission(job.mission_id)
    ledger.move(job, BRING)
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "reply", "question": turn.number})
    refresh(ledger, mission)
    return True


def was_relayed(ledger: Ledger, job: JobRow) -> bool:
    """True if a person is asked for the reply to this turn, or has brought it."""
    return is_relayed(ledger, job) or has_event(ledger.tx, job, BRING.event)


def refuse_relayed(ledger: Ledger, job: JobRow) -> None:
    """Raise `WRONG_STATE` for a turn that waits for its reply: it is answered, not approved."""
    if is_relayed(ledger, job):
        message = f"job {job.id} is a turn that waits for its reply; answer it with `lcp answer {job.id} --file REPLY`"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)


def _check_reply(job: JobRow, text: str) -> None:
    if not text.strip():
        message = f"the reply to job {job.id} is blank; text is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    if len(text) > MAX_REPLY:
        message = f"the reply to job {job.id} has {len(text)} characters; at most {MAX_REPLY} are accepted"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
