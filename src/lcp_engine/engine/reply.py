"""Carry out what follows from a planner's reply: settle the turn, store jobs, end the plan (R4, R9, R12, R18)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os.path import normpath
from typing import assert_never

from pydantic import JsonValue

from lcp_engine.core.decide import (
    AskAgain,
    AskPerson,
    Begin,
    Claim,
    Continue,
    Correct,
    Decision,
    End,
    FailedCheck,
    NewJob,
    PlanState,
    Verify,
    Wait,
    decide,
)
from lcp_engine.core.job_states import DELEGATE, FAIL, SUCCEED, Need, Role, State
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    Malformed,
    Manner,
    MissionComplete,
    Problem,
    WriteFile,
    bounded,
)
from lcp_engine.core.protocol.read_reply import Reader, reader_of
from lcp_engine.core.protocol.result_schema import RESULT
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.core.safe_text import fenced, quoted
from lcp_engine.engine.admission import (
    Admission,
    Requested,
    allowed_kinds,
    evaluate_jobs,
    reserved_bytes,
    store,
)
from lcp_engine.engine.failure import agent_error, failure_of, malformed_error
from lcp_engine.engine.people.messages import seen_job
from lcp_engine.engine.points import observers, steps
from lcp_engine.engine.progress import (
    after_holding,
    after_settling,
    ask_person,
    end_plan,
    has_new_message,
    refresh,
    said_in,
)
from lcp_engine.engine.question import drop_turn, unseen_jobs
from lcp_engine.engine.turn_queue import (
    VERIFIES,
    acting_plan,
    claim_in,
    queue_correction,
    queue_question,
    queue_turn,
    record_of,
    unblock_turn,
)
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.edges import Edge, connect
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import Sight, declined_effects, rejected_effects
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow, TurnRow
from lcp_engine.store.turns import question_of, settled_jobs, store_reading

MERGED = "merged"
"""The event of a job that equal ones of the same reply were merged into."""


@dataclass(frozen=True)
class FinishedTurn:
    """A leased turn and its planner's reply.

    `failed_checks` are the acceptance checks that do not pass now, `previews` what each requested job would change: the
    state that an approval is compared with if nobody has viewed the job before. `merges`: equal jobs of the reply are
    one (R11), as they are except in older histories. `objection` says why a model's words are not an answer.
    """

    job: JobRow
    reply: Action | Malformed
    admission: Admission
    failed_checks: tuple[FailedCheck, ...] = ()
    previews: tuple[Sight, ...] = ()
    merges: bool = True
    objection: Problem | None = None


def apply_reply(ledger: Ledger, finished: FinishedTurn) -> bool:
    """Decide on a reply and carry out the decision in this transaction (R18). False if the lease was lost."""
    lease, admission = finished.job, finished.admission
    mission = ledger.mission(lease.mission_id)
    if not ledger.is_leased(lease):
        return False
    job = ledger.job(lease.id)
    plan = acting_plan(ledger, job)
    if mission.has_ended or plan.outcome is not None:
        drop_turn(ledger, job, mission, because(ReasonCode.PLAN_ENDED))
        return True
    turn = question_of(ledger.tx, job.id)
    assert turn is not None
    spec, claimed = spec_of(mission.spec), claim_in(from_json(job.params).get(VERIFIES))
    claim = None if claimed is None else claimed[0]
    reply = _as_read(finished.reply, spec, plan, claim, finished.objection)
    requested = _evaluated(ledger, admission, mission, job, turn, reply=reply)
    if finished.previews:
        pairs = zip(requested, finished.previews, strict=True)
        requested = [replace(one, sight=sight) for one, sight in pairs]
    state = replace(_state(mission, plan, turn, requested), claim=claim, merges=finished.merges)
    if plan.job_id is None:
        state = _with_checks(state, ledger, admission, mission, finished.failed_checks)
    if not requested:
        state = replace(
            state,
            unheard=has_new_message(ledger, plan, turn.until_seq),
            may_ask=any(kind.role is KindRole.ASKS for kind in allowed_kinds(admission, spec, mission.root)),
        )
    if state.bytes_left is not None and any(request.evaluation.written_bytes for request in requested):
        state = replace(state, bytes_left=state.bytes_left - reserved_bytes(ledger, admission, mission))
    decision = decide(state, reply)
    error = _error(reply, decision, mission, ledger.tx.now)
    _DecidedTurn(ledger, mission, plan, job, turn, reply, requested, decision, error, finished).carry_out()
    return True


def _evaluated(
    ledger: Ledger,
    admission: Admission,
    mission: MissionRow,
    job: JobRow,
    turn: TurnRow,
    *,
    reply: Action | Malformed,
) -> list[Requested]:
    """The requested jobs with their evaluations; one whose equal the planner has not seen yet is not a repetition."""
    if not isinstance(reply, CreateFollowupJobs | WriteFile):
        return []
    requested = evaluate_jobs(ledger, admission, mission, job.depth, reply)
    if any(one.repeats for one in requested):
        unseen = unseen_jobs(ledger.tx, turn)
        return [one.anew() if one.repeats and max(one.repeats) in unseen else one for one in requested]
    return requested


def _with_checks(
    state: PlanState, ledger: Ledger, admission: Admission, mission: MissionRow, failed: Sequence[FailedCheck]
) -> PlanState:
    """The state with the mission's acceptance checks (R9)."""
    spec = spec_of(mission.spec)
    return replace(
        state,
        failed_checks=tuple(check.fact for check in failed),
        to_verify=tuple(check.verify for check in spec.accept if check.verify is not None),
        is_declined=_is_declined(ledger, admission, mission, spec, failed),
        is_undecided=bool(failed) and all(check.is_undecided for check in failed),
    )


def _is_declined(
    ledger: Ledger,
    admission: Admission,
    mission: MissionRow,
    spec: MissionSpec,
    failed_checks: Sequence[FailedCheck],
) -> bool:
    """True if each failed check is about a file that a person or policy does not let the mission write.

    Only files that a job was to write, and that no later one has written or may still write.
    """
    if not failed_checks or mission.rejected == 0:
        return False
    ledger.write_events()
    declined = declined_effects(ledger.tx, mission.id)
    refused = rejected_effects(ledger.tx, mission.id)
    paths = [spec.accept[failed.check].path for failed in failed_checks]
    return all(
        path is not None
        and (
            (name := normpath(f"/{path}")) in declined
            or (name in refused and _is_denied(admission, mission, spec, path))
        )
        for path in paths
    )


def _is_denied(admission: Admission, mission: MissionRow, spec: MissionSpec, path: str) -> bool:
    """True if policy denies the file to every kind that writes."""
    policy = admission.policy(spec, mission.root)
    verdicts = {
        policy.judge(worker.named, has_effects=worker.has_effects, writes=True, paths=(path,)).verdict
        for worker in admission.workers.values()
        if worker.writes
    }
    return verdicts == {Verdict.DENY}


def _state(mission: MissionRow, plan: PlanRow, turn: TurnRow, requested: Sequence[Requested]) -> PlanState:
    limits = spec_of(mission.spec).limits
    most = limits.max_bytes_written
    return PlanState(
        limits=limits,
        evaluations=tuple(request.evaluation for request in requested),
        jobs_left=limits.max_jobs - mission.requested,
        bytes_left=None if most is None else most - mission.bytes_written,
        corrections=plan.corrections,
        stalled=plan.stalled,
        clarifications=plan.clarifications,
        verifications=plan.verifications,
        refused=plan.refused,
        last_turn=turn.last_turn,
    )


@dataclass(frozen=True)
class _DecidedTurn:
    """A turn with the decision on its reply. `error`: why the plan has failed, else what is wrong with the reply."""

    ledger: Ledger
    mission: MissionRow
    plan: PlanRow
    job: JobRow
    turn: TurnRow
    reply: Action | Malformed
    requested: Sequence[Requested]
    decision: Decision
    error: str | None
    finished: FinishedTurn

    def carry_out(self) -> None:
        self._store_reading()
        self._settle_turn()
        if not isinstance(self.decision, End):  # an end may unblock an older step
            unblock_turn(self.ledger, self.mission)
        self._move_on()
        if self.job.role is Role.STEP and isinstance(self.decision, End):
            after_settling(self.ledger, self.job, self.error)
        refresh(self.ledger, self.mission)

    def _store_reading(self) -> None:
        malformed = _malformed(self.reply, self.decision)
        action = None if isinstance(self.reply, Malformed) else self.reply.action
        problems: list[JsonValue] = [] if malformed is None else [{**one.record} for one in malformed.errors]
        store_reading(
            self.ledger.tx,
            self.turn.mission_id,
            self.turn.number,
            action=action,
            errors=None if malformed is None else to_json(problems),
            warnings=to_json([*bounded(self._warnings())]) if self._warnings() else None,
        )

    def _warnings(self) -> tuple[str, ...]:
        """Notes on what was ignored in the reply: unknown keys, and jobs that it requests more than once."""
        match self.decision:
            case Continue(jobs) | Wait(jobs) | AskAgain(jobs):
                return (*self.reply.warnings, *(_merging(new) for new in jobs if new.merged))
            case _:
                return self.reply.warnings

    def _settle_turn(self) -> None:
        """Settle the job that asked; a step whose plan continues is blocked until that plan ends."""
        ledger, job, error = self.ledger, self.job, self.error
        self.mission.asking = None
        if job.role is Role.STEP and not isinstance(self.decision, End):
            ledger.attempted(job, DELEGATE.event, error)
            ledger.move(job, DELEGATE, is_leased=True, note=self._note())
            return
        if job.role is Role.STEP:
            transition = SUCCEED if error is None else FAIL
        else:
            # A turn succeeds if its reply can be read, whatever the reply leads to.
            transition = SUCCEED if _malformed(self.reply, self.decision) is None else FAIL
            error = None if transition is SUCCEED else error
        ledger.attempted(job, transition.event, error)
        ledger.move(
            job,
            transition,
            is_leased=True,
            result=_result(self.reply, is_excerpt=self.job.role is not Role.STEP),
            error=error,
            note=self._note(),
        )

    def _note(self) -> dict[str, JsonValue] | None:
        """Data of the turn's event: warnings, and what a replay does not find out again: failed checks, an echo."""
        note: dict[str, JsonValue] = {}
        if (objection := self.finished.objection) is not None:
            note[ECHO] = {**objection.record}
        if failed_checks := self.finished.failed_checks:
            note["failed_checks"] = [_recorded_check(failed) for failed in failed_checks]
        if self._warnings():
            note["warnings"] = [*bounded(self._warnings())]
        return note or None

    def _move_on(self) -> None:
        ledger, plan, decision = self.ledger, self.plan, self.decision
        plan.corrections = plan.corrections + 1 if isinstance(decision, Correct) else 0
        match decision:
            case Continue(jobs, stalled):
                self._store(jobs, stalled)
            case Begin(answered, stalled):
                plan.stalled = stalled
                steps().answer(ledger, self.finished.admission.workers, plan, self.job, answered)
            case Wait(jobs, stalled):
                self._store(jobs, stalled)
                after_holding(ledger, plan)
            case AskAgain(jobs, stalled, failed_checks):
                self._store(jobs, stalled)
                plan.refused += bool(failed_checks)
                notices = [f"an acceptance check does not pass: {check}" for check in failed_checks]
                if jobs:
                    notices.append("every requested job was rejected; see the reasons")
                queue_turn(ledger, plan, notices=notices)
            case Verify():
                reader, shown = reader_of(spec_of(self.mission.spec).planner.dialect), self._shown_claim()
                _queue_verification(ledger, plan, decision, reader, shown, claimed_in=self.turn.number)
            case AskPerson():
                # Whatever the answer is, the counters of the planner start again.
                plan.refused = plan.verifications = 0
                plan.clarifications += self._manner() is Manner.FOLLOW_UP
                ask_person(ledger, self.mission, plan, self.job, decision, claimed_in=self._claimed_in())
            case Correct():
                queue_correction(ledger, plan, self.job, self.turn.number)
            case End():
                self._end(decision)
            case _:
                assert_never(decision)

    def _end(self, end: End) -> None:
        for one in observers():
            one.replied(self.ledger, self.job, self.reply, end)
        end_plan(self.ledger, self.plan, end, self.error, self._ending(), claimed_in=self._claimed_in())

    def _shown_claim(self) -> str:
        """The claim, and what was written, for who verifies it: neither is among the results of jobs."""
        assert not isinstance(self.reply, Malformed)
        claim = to_json(_summarized(self.reply))
        parts = [f"You claim this:\n{fenced(_beginning(claim, _MOST_CLAIM))}"]
        workers, written = self.finished.admission.workers, dict[str, str]()
        for job in map(seen_job, settled_jobs(self.ledger.tx, self.plan.id, 0, self.turn.until_seq)):
            worker, path, content = (
                workers.get(job.kind),
                job.params.get("rel_path"),
                job.params.get("content"),
            )
            writes = worker is not None and worker.role is KindRole.WRITES
            is_written = writes and job.state == State.SUCCEEDED
            if is_written and isinstance(path, str) and isinstance(content, str):
                written[path] = content
        for path, content in list(written.items())[-_MOST_WRITTEN:]:
            parts.append(f"It was written to {quoted(path)}:\n{fenced(_beginning(content, _MOST_CONTENT))}")
        return "\n".join(parts)

    def _manner(self) -> Manner:
        return Manner.PLAIN if isinstance(self.reply, Malformed) else self.reply.manner

    def _claimed_in(self) -> int:
        """The question whose reply claims that the mission is complete: another one if this one verifies it."""
        claimed = claim_in(from_json(self.job.params).get(VERIFIES))
        return self.turn.number if claimed is None or claimed[1] is None else claimed[1]

    def _ending(self) -> str | None:
        """The action that ends the plan, as a job's result."""
        number = self._claimed_in()
        if number == self.turn.number:
            return _result(self.reply)
        return said_in(self.ledger, self.mission, number)

    def _store(self, jobs: Sequence[NewJob], stalled: int) -> None:
        self.plan.stalled = stalled
        manner = self._manner()
        self.plan.clarifications += manner is Manner.CLARIFICATION
        self.plan.verifications += manner is Manner.VERIFICATION and bool(jobs)
        stored: dict[int, int] = {}
        followers = Counter(new.after for new in jobs)
        for new in jobs:
            stored[new.index] = store(
                self.ledger, self.mission, self.plan, self.requested[new.index], new, asked=self.job,
                waits_for=None if new.after is None else 1, followers=followers[new.index] or None,
            )  # fmt: skip
            if new.merged:
                reason = because(ReasonCode.SAME_REPLY, times=1 + len(new.merged))
                self.ledger.note(self.mission, MERGED, stored[new.index], reason.record)
        behind = ((stored[new.after], stored[new.index]) for new in jobs if new.after is not None)
        connect(self.ledger.tx, [Edge(after, job, Need.SUCCESS) for after, job in behind])


def _merging(job: NewJob) -> str:
    """A sentence about the jobs of a reply that are one with `job`."""
    places = ", ".join(f"new_jobs[{index}]" for index in job.merged)
    are = "equals" if len(job.merged) == 1 else "equal"
    return f"{places}: {are} new_jobs[{job.index}], and they are one job"


def _malformed(reply: Action | Malformed, decision: Decision) -> Malformed | None:
    """Faults of the reply: it cannot be read, or `decide` refuses it."""
    if isinstance(decision, Correct):
        return decision.malformed
    return reply if isinstance(reply, Malformed) else None


def _error(reply: Action | Malformed, decision: Decision, mission: MissionRow, now: int) -> str | None:
    """Reason why the plan has failed, or else what is wrong with the reply."""
    if isinstance(decision, End):
        failed = None if decision.succeeded else failure_of(decision, mission.id, reply)
    else:
        malformed = _malformed(reply, decision)
        failed = None if malformed is None else malformed_error(malformed)
    return None if failed is None else agent_error(failed, mission.uid, now)


_MOST_CLAIM, _MOST_WRITTEN, _MOST_CONTENT = 3000, 3, 1500
"""Of a claim that is verified: characters, files that were written, and characters of each."""
ECHO = "echo"
"""The key of a turn's event with the reason why its words are not an answer."""
MOST_WORDS = 16_000
"""Characters of one text of a reply that the turn's result repeats."""


def _result(reply: Action | Malformed, *, is_excerpt: bool = False) -> str | None:
    """The result of a job that asked, or for `is_excerpt` the one of a turn, whose whole reply is stored beside it."""
    if isinstance(reply, Malformed):
        return None
    result = _summarized(reply)
    if not is_excerpt:
        return to_json(result)
    return to_json({key: value if key == RESULT else _cut(value) for key, value in result.items()})


def _cut(value: JsonValue) -> JsonValue:
    if not isinstance(value, str) or len(value) <= MOST_WORDS:
        return value
    return f"{value[:MOST_WORDS]}<{len(value) - MOST_WORDS:,} more characters in the reply>"


def _summarized(reply: Action) -> dict[str, JsonValue]:
    """The action as a job's result, without contents and params: those are in the reply and in the jobs."""
    shown: dict[str, JsonValue] = reply.model_dump(
        mode="json", exclude_none=True, exclude={"new_jobs", "content", "plan"}
    )
    if isinstance(reply, CreateFollowupJobs):
        shown["jobs"] = len(reply.new_jobs)
    if reply.assessment:
        shown["assessment"] = dict(reply.assessment)
    return shown


def _beginning(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}\n[cut: {len(text) - most:,} more characters]"


def _queue_verification(
    ledger: Ledger, plan: PlanRow, verify: Verify, reader: Reader, shown: str, *, claimed_in: int
) -> int:
    """Queue the turn in which the planner verifies its claim (R9); its params carry the claim. Returns the job id.

    `claimed_in` is the question whose reply made the claim, `shown` what of it the planner is shown.
    """
    params: dict[str, JsonValue] = {
        "user_prompt": _verification_prompt(verify, reader), "context": shown,
        VERIFIES: record_of(verify.claim, claimed_in),
    }  # fmt: skip
    return queue_question(ledger, plan, params, depth=plan.depth)


def _as_read(
    reply: Action | Malformed,
    spec: MissionSpec,
    plan: PlanRow,
    claim: Claim | None,
    objection: Problem | None,
) -> Action | Malformed:
    """The reply as it counts in its turn."""
    if objection is not None:
        return Malformed(errors=(objection,), recovered=reply.recovered, warnings=reply.warnings)
    if claim is not None:
        return _as_verdict(reply, reader_of(spec.planner.dialect))
    return _as_allowed(reply, spec) if plan.job_id is None else reply


def _as_verdict(reply: Action | Malformed, reader: Reader) -> Action | Malformed:
    """The reply of a verifying turn; in a dialect with a response type for verdicts, other types are malformed."""
    if reader.verdict is None or not isinstance(reply, AnalysisResult | MissionComplete):
        return reply
    if reply.manner is Manner.VERIFICATION:
        return reply
    message = f"this turn verifies: reply with a response of the type {reader.verdict}"
    return Malformed(errors=(Problem(path=reader.key, message=message),), recovered=reply.recovered)


def _as_allowed(reply: Action | Malformed, spec: MissionSpec) -> Action | Malformed:
    """The reply, unless it completes the mission by an action that is not among its `endings`."""
    claims = isinstance(reply, AnalysisResult | MissionComplete)
    claims = claims or (isinstance(reply, CreateFollowupJobs) and not reply.requested)
    if isinstance(reply, Malformed) or not claims or reply.action in (spec.endings or (reply.action,)):
        return reply
    reader = reader_of(spec.planner.dialect)
    allowed, ends = " or ".join(reader.ends[name] for name in spec.endings), reader.ends
    message = (
        f"this mission is completed by {allowed}; {ends.get(reply.action, reply.action)} does not complete it"
    )
    problem = Problem(path=reader.key, message=message)
    return Malformed(errors=(problem,), recovered=reply.recovered, warnings=reply.warnings)


def _recorded_check(failed: FailedCheck) -> dict[str, JsonValue]:
    return {
        "check": failed.check,
        "fact": failed.fact,
        **({"undecided": True} if failed.is_undecided else {}),
    }


def _verification_prompt(verify: Verify, reader: Reader) -> str:
    asked = "\n".join(f"- {question}" for question in verify.questions)
    return (
        "You say that the goal is reached. Verify your claim, question by question, by what was read and written, and "
        f"request no jobs:\n{asked}\n{reader.to_verify}"
    )
