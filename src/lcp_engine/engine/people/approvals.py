"""Decisions of people on held jobs: approve, reject, answer; what happens if they take too long (R5, R13)."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel, JsonValue

from lcp_engine.core.job_states import ANSWER, APPROVE, APPROVE_BLOCKED, REJECT, Role, State
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import USUAL, Consent, Policy, Verdict
from lcp_engine.core.protocol.question_form import Filled, Unfilled, as_words, fill_in, pick, slip
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.core.safe_text import shortened
from lcp_engine.engine.admission import Admission, effect_of, ruling_on
from lcp_engine.engine.failure import agent_error
from lcp_engine.engine.limit_holds import MORE, check_more, is_about_limit
from lcp_engine.engine.people.messages import say, spoken
from lcp_engine.engine.points import Decider, decision_gate, observers
from lcp_engine.engine.progress import after_rejecting, after_settling, refresh
from lcp_engine.engine.question import bring_reply, refuse_relayed, was_relayed
from lcp_engine.engine.turn_queue import is_early
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.sandbox.paths import names_of
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import (
    Sight,
    approved_sight,
    due_holds,
    hold_seconds,
    is_led_to,
    keep_approval,
    last_decision,
    see,
    seen,
    set_params,
    still_leads_to,
)
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.ask_user import KIND, AskUserResult, fields_of
from lcp_engine.workers.base import ExecutedBy, Worker, Workers
from lcp_engine.workers.engine_kinds import engine_workers
from lcp_engine.workers.params import FileParams

BY = "hold_timeout"


def approve(
    ledger: Ledger, admission: Admission, job_id: int, *, by: str, now: Sight | None,
    params: dict[str, JsonValue] | None = None, shown: Sight | None = None, is_known: bool = True,
    words: str | None = None,
) -> bool:  # fmt: skip
    """Let a held job run, with other params if given. False if it was approved before, which is harmless.

    A job that needs the approvals of several people stays held until the last of them. `words` are sent to the planner
    with the approval, about the job; raises like `messages.say` for them.

    `now` is what the job, with those params, would change at this moment, `shown` what the person decides on (see
    `bind`); `is_known`: `by` was checked, and is not just the name of a user. Raises `CONFLICT` if someone decided
    otherwise, or the job is not what this person was shown; `WRONG_STATE` for a job that is not held; `NO_WORKER`;
    `INVALID_PARAMS`; `PATH_DENIED` and `NOT_ALLOWED` for a job that policy, or its kind's permission level, denies now.
    """
    job = locked_job(ledger, job_id)
    if job.state is not State.HELD:
        if job.approved and job.state is not State.REJECTED and params in (None, from_json(job.params)):
            return False
        raise _decided(ledger, job, "approved")
    worker = worker_of(admission.workers, job)
    refuse_relayed(ledger, job)
    if worker.executed_by is ExecutedBy.PERSON:
        message = f"job {job_id} is a question; it is answered, not approved: `lcp answer {job_id} TEXT`"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    before = from_json(job.params)
    revised = None if params is None or params == before else params
    read = worker.read(before if revised is None else revised, f"job {job.id}")
    # A past decision was everybody's that it needed.
    consent = USUAL if now is None else consent_to(ledger, admission, worker, job, read)
    _check_policy(ledger, admission, worker, job, read)
    gate = decision_gate()
    gate.check(ledger, job, consent, Decider(by, admission.settings, is_known, revised is not None))
    if revised is not None:
        _check_path(ledger, job, read)
    bound = bind(ledger, job, now, by, is_revised=revised is not None, shown=shown)
    sight = replace(bound, unseen=None if shown is None else shown.unseen)
    missing = gate.gather(ledger, job, consent, by, sight)
    if missing and words is not None:
        say(ledger, job.mission_id, words, by=by, job_id=job.id)
    if missing != 0:
        return missing is not None
    _let_run(ledger, job)
    keep_approval(ledger.tx, job.id, job.approved, by, sight)
    data: dict[str, JsonValue] = {"by": by, "decision": "approve", "params": revised}
    if revised is not None:
        set_params(ledger.tx, job.id, revised, _effect_of(ledger, worker, job, revised, read))
        data["before"] = before
    if sight.unseen is not None:
        data["unseen"] = sight.unseen.json
    mission = ledger.mission(job.mission_id)
    ledger.note(mission, "decided", job.id, data)
    refresh(ledger, mission)
    if words is not None:
        say(ledger, mission.id, words, by=by, job_id=job.id)
    return True


def _effect_of(
    ledger: Ledger, worker: Worker[BaseModel], job: JobRow, params: dict[str, JsonValue], read: BaseModel
) -> str | None:
    """Effect of the job with revised params; None for one that no planner requested."""
    if job.fingerprint is None:
        return None
    mission = ledger.mission(job.mission_id)
    return effect_of(worker, read, fingerprint(job.kind, params), mission.root, spec_of(mission.spec))


def reject(ledger: Ledger, job_id: int, reason: str, *, by: str) -> bool:
    """Refuse a held job; the planner reads the reason. False if it was rejected before.

    Raises `CONFLICT` if someone decided otherwise, `WRONG_STATE` for a job that is not held.
    """
    job = locked_job(ledger, job_id)
    if job.state is State.REJECTED:
        return False
    mission = ledger.mission(job.mission_id)
    why = because(ReasonCode.REJECTED, words=reason)
    if not ledger.move(job, REJECT, reason=why, error=_rejection(ledger, job, why)):
        raise _decided(ledger, job, "rejected")
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "reject", "reason": reason})
    for one in observers():
        one.rejected(ledger, job, reason, by)
    after_rejecting(ledger, job)
    return True


def locked_job(ledger: Ledger, job_id: int) -> JobRow:
    """The job, its mission locked first: with one order of locks no two transactions wait for each other."""
    ledger.lock(job.mission_id for job in find_jobs(ledger.tx, [job_id]))
    return ledger.job(job_id)


def worker_of(workers: Workers, job: JobRow) -> Worker[BaseModel]:
    """Worker that executes the job. Raises `NO_WORKER`."""
    own = engine_workers().get(job.kind) if job.fingerprint is None else None  # else a planner requested it
    worker = own or workers.get(job.kind)
    if worker is None:
        message = f"job {job.id} has kind {job.kind!r}; no worker for it is installed"
        raise LcpError(ErrorCode.NO_WORKER, message, advice=GENERAL)
    return worker


def _let_run(ledger: Ledger, job: JobRow) -> None:
    mission = ledger.mission(job.mission_id)
    job.approved = job.attempt + 1
    if is_early(job):
        ledger.move(job, APPROVE_BLOCKED, reason=ReasonCode.STEP_ORDER)
        return
    if job.role is not Role.WORK and mission.asking is not None:
        ledger.move(job, APPROVE_BLOCKED, reason=ReasonCode.TURN_ORDER)
        return
    ledger.move(job, APPROVE)
    if job.role is not Role.WORK:
        mission.asking = job.id


def _check_policy(
    ledger: Ledger, admission: Admission, worker: Worker[BaseModel], job: JobRow, params: BaseModel
) -> None:
    """Check policy again: an approval lifts a hold, never a denial, and policy may not have known the job before."""
    policy, spec = _policy_now(ledger, admission, job), spec_of(ledger.mission(job.mission_id).spec)
    verdict, reason, code = ruling_on(policy, worker, params, spec)
    if verdict is Verdict.DENY:
        raise LcpError(code, f"job {job.id} may not run: {reason}", advice=reason.advice)


def consent_to(
    ledger: Ledger, admission: Admission, worker: Worker[BaseModel], job: JobRow, params: BaseModel
) -> Consent:
    """Return whose approvals the job needs with these params."""
    policy = _policy_now(ledger, admission, job)
    return consent_by(ledger.tx, job.mission_id, policy, worker, params, workers=admission.workers)


def _policy_now(ledger: Ledger, admission: Admission, job: JobRow) -> Policy:
    mission = ledger.mission(job.mission_id)
    return admission.policy_now(ledger.tx, mission.id, spec_of(mission.spec), mission.root)


def consent_by(
    tx: Tx, mission_id: int, policy: Policy, worker: Worker[BaseModel], params: BaseModel, *, workers: Workers
) -> Consent:
    """Return whose approvals policy asks for, for a job with these params."""
    names = decision_gate().names(tx, mission_id, worker, workers)
    return policy.consent(
        names, has_effects=worker.has_effects, writes=worker.writes, paths=worker.paths(params)
    )


def _check_path(ledger: Ledger, job: JobRow, params: BaseModel) -> None:
    """Raise `PATH_OUTSIDE_ROOT` for a person's params that name a file which cannot lie in the root."""
    mission = ledger.mission(job.mission_id)
    if isinstance(params, FileParams) and mission.root is not None:
        names = names_of((mission.root,), spec_of(mission.spec).root_aliases)
        names.place(root=params.root, rel_path=params.rel_path, path=params.path)


def _decided(ledger: Ledger, job: JobRow, word: str) -> LcpError:
    """Like `decided_before`, also for a decision of this very transaction, which another person may share."""
    ledger.write_events()
    return decided_before(ledger.tx, job, word)


def decided_before(tx: Tx, job: JobRow, word: str) -> LcpError:
    """The error for a decision on a job that is not held: it says who has decided it."""
    decision = last_decision(tx, job)
    message = f"job {job.id} is {job.state}; only held jobs can be {word}"
    if decision is None:
        return LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    return LcpError(
        ErrorCode.CONFLICT, f"{message}: {decision}", advice="Nothing is left to decide about it."
    )


def _rejection(ledger: Ledger, job: JobRow, reason: Reason) -> str:
    message = f"job {job.id} ({job.kind}) was rejected by a person: {reason}"
    failed = Failed(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)
    return agent_error(failed, ledger.mission(job.mission_id).uid, ledger.tx.now)


def answer(
    ledger: Ledger,
    job_id: int,
    text: str,
    *,
    by: str,
    words: bool = False,
    form: Mapping[str, JsonValue] | None = None,
    shown: str | None = None,
) -> bool:
    """Complete a question with a person's answer, or take the reply of a planner that is a person (R21).

    False if it was given the same answer before, which is harmless. The number of an option, or the beginning of
    exactly one, selects it; with `words` only its whole text does, and any other answer is in the person's own words
    (R14). `form` is what was entered in the question's form, by the ids of its fields; `text` is then what the person
    adds, perhaps nothing. `shown` is the fingerprint of the question that the person saw.

    Raises `NOT_FOUND`; `INVALID_ARGUMENT` for a blank or too long answer, for a number or a beginning that selects no
    option, and for a form that is not filled in; `WRONG_STATE` for a job that is not a question, or that was decided
    otherwise; `CONFLICT` if the question is not the one that was shown.
    """
    ledger.lock(job.mission_id for job in find_jobs(ledger.tx, [job_id]))
    job = ledger.job(job_id)
    if job.role is not Role.WORK and was_relayed(ledger, job):
        return bring_reply(ledger, job, text, by=by)
    if job.kind != KIND:
        message = f"job {job_id} is a {job.state} {job.kind}; only questions can be answered"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if shown is not None and shown != question_shown(from_json(job.params)):
        message = f"the question of job {job_id} is not the one that was shown; nothing was answered"
        advice = f"Look at the question again (`lcp job {job_id}`), then answer it."
        raise LcpError(ErrorCode.CONFLICT, message, advice=advice)
    if job.state is State.HELD and is_about_limit(ledger, job):
        return _settle_limit(
            ledger, job, {MORE: text} if form is None else form, "" if form is None else text, by
        )
    if form is not None:
        return _settle_question(ledger, job, _filled(job, form, text, by))
    said = spoken(text, f"the answer to job {job_id}")
    options = _options(job)
    number = pick(options, said, is_whole=words)
    if number is None and not words and (problem := slip(options, said)):
        listed = ", ".join(f"{place}) {shortened(option, 40)}" for place, option in enumerate(options, 1))
        way = f"`lcp answer {job_id} --words {shlex.quote(said)}` answers in your own words"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"job {job_id} {problem}; the options are {listed}; {way}")
    chosen = said if number is None else options[number - 1].strip()
    return _settle_question(ledger, job, AskUserResult(answer=chosen, option=number, by=by))


def _settle_limit(ledger: Ledger, job: JobRow, form: Mapping[str, JsonValue], text: str, by: str) -> bool:
    """Complete the question about a limit; a number is its answer also without the form."""
    result = _filled(job, form, text, by)
    check_more(ledger, job, result.values or {})
    return _settle_question(ledger, job, result)


def question_shown(params: Mapping[str, JsonValue]) -> str:
    """The fingerprint of a question, to which an answer is bound."""
    return fingerprint(KIND, params)


def _filled(job: JobRow, form: Mapping[str, JsonValue], text: str, by: str) -> AskUserResult:
    """The answer with the values of a form. Raises `INVALID_ARGUMENT`."""
    fields = fields_of(from_json(job.params))
    if not fields:
        message = f"job {job.id} has no form; it is answered with `lcp answer {job.id} TEXT`"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    match fill_in(fields, form):
        case Unfilled(problems):
            lines = [f"{problem.path}: {problem.message}" for problem in problems]
            more = f"; and {len(lines) - _MOST_NAMED} more" if len(lines) > _MOST_NAMED else ""
            message = f"job {job.id}: {'; '.join(lines[:_MOST_NAMED])}{more}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, {"problems": [*lines]})
        case Filled(values):
            words = spoken(text, f"the answer to job {job.id}") if text.strip() else None
            told = "\n".join(part for part in (as_words(fields, values), words) if part)
            return AskUserResult(answer=told or "nothing was entered", values={**values}, words=words, by=by)


_MOST_NAMED = 3


def _settle_question(ledger: Ledger, job: JobRow, result: AskUserResult) -> bool:
    """Complete the question; False if it was completed in the same way before."""
    if job.state is not State.HELD:
        return _is_known(ledger, job, result)
    of_form = {"values", "words"} if result.values is None else set[str]()
    ledger.move(job, ANSWER, result=to_json(result.model_dump(exclude=of_form)))
    data: dict[str, JsonValue] = {"by": result.by, "decision": "answer", "option": result.option}
    ledger.note(ledger.mission(job.mission_id), "decided", job.id, data)
    for one in observers():
        one.answered(ledger, job, result.answer, result.by)
    after_settling(ledger, job)
    return True


def _options(job: JobRow) -> list[str]:
    options = from_json(job.params).get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def _is_known(ledger: Ledger, job: JobRow, answer: AskUserResult) -> bool:
    """False if the answer is the one that was given before. Raises `WRONG_STATE` for any other."""
    result = ledger.result(job.id)
    if job.state is not State.SUCCEEDED or result is None:
        message = f"job {job.id} is {job.state}; only held jobs can be answered"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    before = from_json(result)
    if (before.get("answer"), before.get("values")) == (answer.answer, answer.values):
        return False
    message = f"job {job.id} is {job.state}; {before.get('by')} has given another answer"
    raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)


def expire(ledger: Ledger, due: Sequence[tuple[int, int]]) -> None:
    """Reject those of these jobs (id and mission id) that are still due; the planner reads the reason."""
    ledger.lock(mission_id for _, mission_id in due)
    still = {job_id for job_id, _ in due_holds(ledger.tx, ledger.tx.now)}
    for job_id in sorted(still.intersection(job_id for job_id, _ in due)):
        _reject_expired(ledger, job_id)


def _reject_expired(ledger: Ledger, job_id: int) -> None:
    job = ledger.job(job_id)
    mission = ledger.mission(job.mission_id)
    reason = because(ReasonCode.HOLD_TIMEOUT, seconds=hold_seconds(mission.spec))
    message = f"job {job.id} ({job.kind}) was rejected: {reason}"
    failed = Failed(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)
    if ledger.move(job, REJECT, reason=reason, error=agent_error(failed, mission.uid, ledger.tx.now)):
        ledger.note(mission, "decided", job.id, {"by": BY, "decision": "reject", "reason": reason.text})
        after_rejecting(ledger, job)


class Drifted(Exception):
    """The file that an approved job would change is not the one approved; `found` is what it is now."""

    def __init__(self, approved: Sight, found: str | None) -> None:
        super().__init__(approved.path)
        self.approved = approved
        self.found = found


def bind(
    ledger: Ledger, job: JobRow, now: Sight | None, by: str, *, is_revised: bool, shown: Sight | None = None
) -> Sight:
    """Sight that an approval by this person binds to: that `shown`, else what they last saw, else the file as it was
    when the job was held, else `now`.

    `now` is what the job would change at this moment; None when a past decision is replayed, which binds to nothing.
    Raises `CONFLICT` if the job or its file has changed since, other than by jobs of the same mission.
    """
    shown = shown or seen(ledger.tx, job.id, by) or seen(ledger.tx, job.id, NO_PERSON)
    current = fingerprint(job.kind, from_json(job.params))
    if now is None:
        return Sight(current, None, None, ledger.tx.now)
    if not is_revised and now.fingerprint != current:
        raise _conflict(job, "its params have just been changed")
    if shown is None:
        return now
    if shown.job_id not in (None, job.id):
        raise _conflict(job, f"job {shown.job_id} was shown")
    is_of_revised = is_revised and shown.fingerprint == now.fingerprint
    if shown.fingerprint != current and not is_of_revised:
        raise _conflict(job, "its params are not those that were shown")
    if shown.path != now.path:
        if (is_revised and not is_of_revised) or shown.path is None:
            return now
        would = f"it would change {now.path!r}" if now.path else "it is not known what it would change"
        raise _conflict(job, f"{would} now, and {shown.path!r} was shown")
    if not still_leads_to(ledger.tx, job.mission_id, shown, now.found):
        was, is_now = state_of(shown.found), state_of(now.found)
        raise _conflict(job, f"{shown.path!r} was {was} when it was shown, and is {is_now}")
    if (
        (not is_revised or is_of_revised)
        and shown.found == now.found
        and shown.after not in (None, now.after)
    ):
        raise _conflict(job, f"what it would make of {shown.path!r} is not what was shown")
    return Sight(now.fingerprint, shown.path, shown.found, shown.at)


def drift_of(tx: Tx, job: JobRow, file: str, path: str, found: str | None) -> Drifted | None:
    """The reason not to let an approved job change `file` (absolute; `path` in its root), which is now `found`.

    None for a job that runs by policy, for a kind whose approval names no file, and if everything is as approved.
    """
    approved = approved_sight(tx, job.id, job.approved) if job.approved else None
    if approved is None or approved.path is None:
        return None
    if approved.path == path and is_led_to(tx, job.mission_id, file, approved, found, approved=job.id):
        return None
    return Drifted(approved, found)


def note_drift(ledger: Ledger, job: JobRow, drifted: Drifted) -> None:
    """Record what was approved and what was found; the job is held again for the file as it is now."""
    if not ledger.is_leased(job):
        return
    was = drifted.approved
    data = {"path": was.path, "approved": was.found, "found": drifted.found}
    ledger.note(ledger.mission(job.mission_id), "drifted", job.id, {**data})
    see(ledger.tx, job.id, NO_PERSON, Sight(was.fingerprint, was.path, drifted.found, ledger.tx.now))


def state_of(found: str | None) -> str:
    """A file's hash, or what is in its place, in words."""
    if found is None:
        return "not there"
    return f"not a file that can be written ({found})" if found in set(ErrorCode) else f"{found[:12]}…"


def _conflict(job: JobRow, fact: str) -> LcpError:
    statement = f"job {job.id} is not what was shown; {fact}"
    message = f"{statement}: check it again with `lcp diff {job.id}`"
    return LcpError(ErrorCode.CONFLICT, message, {"statement": statement}, advice=GENERAL)
