"""Decide what a plan does after a reply, and the state of each requested job (R5, R6).

Pure: no clock, no database, no randomness, no kind names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import TypeAlias, assert_never

from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import Limits
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.actions import (
    MAX_PROBLEMS,
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    Malformed,
    Manner,
    MissionComplete,
    Problem,
    WriteFile,
)
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.errors import Code, ErrorCode


class Outcome(StrEnum):
    """Reason for which a plan ended. A plan that a limit ended has `limit:<name>` instead."""

    MISSION_COMPLETE = "mission_complete"
    ANALYSIS_RESULT = "analysis_result"
    NO_FOLLOWUP_JOBS = "no_followup_jobs"
    ERROR = "error"
    NO_PROGRESS = "no_progress"
    INVALID_REPLY = "invalid_reply"
    JOB_FAILED = "job_failed"
    CANCELLED = "cancelled"
    PLAN_COMPLETE = "plan_complete"
    PLAN_INCOMPLETE = "plan_incomplete"


@dataclass(frozen=True)
class FailedCheck:
    """An acceptance check that does not pass: its index in the mission's `accept`, and the fact as a sentence."""

    check: int
    fact: str
    is_undecided: bool = False
    """True if its time ran out: neither passed nor failed."""


@dataclass(frozen=True)
class Continue:
    """Store the jobs; at least one of them runs."""

    jobs: tuple[NewJob, ...]
    stalled: int


@dataclass(frozen=True)
class Begin:
    """Begin the plan that the planner answered with: a job stands for it, and succeeds or fails with it."""

    reply: CreateFollowupJobs
    stalled: int


@dataclass(frozen=True)
class Wait:
    """Store the jobs; none of them runs until a person decides."""

    jobs: tuple[NewJob, ...]
    stalled: int


@dataclass(frozen=True)
class AskAgain:
    """Ask the next turn at once: every job was rejected, checks failed, or a person has sent a message."""

    jobs: tuple[NewJob, ...]
    stalled: int
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """End that the planner states, if its work is accepted."""

    outcome: Outcome
    message: str | None = None


@dataclass(frozen=True)
class Verify:
    """Ask the planner these questions; the claim counts if it answers all of them with yes (R9)."""

    claim: Claim
    questions: tuple[str, ...]


@dataclass(frozen=True)
class AskPerson:
    """Ask a person in the engine's own name; the plan waits for the answer, which the planner then reads.

    Where there is a `claim`, the person may also accept it; where `failed_checks` refused it, also give up
    (`end_by_person`).
    """

    question: str
    options: tuple[str, ...]
    claim: Claim | None = None
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correct:
    """Ask the same question again, with the reply and its errors (R4)."""

    malformed: Malformed


@dataclass(frozen=True)
class End:
    """End the plan. `limit` is the one that made this turn the last, whatever its reply says (R6).

    `code` is the error if the outcome alone does not name it; `failed_checks` are those that a person accepted or, if
    it `is_declined`, whose file a person did not let a job write.
    """

    outcome: str
    succeeded: bool
    message: str | None = None
    limit: str | None = None
    code: Code | None = None
    failed_checks: tuple[str, ...] = ()
    is_declined: bool = False


Decision: TypeAlias = Continue | Begin | Wait | AskAgain | Verify | AskPerson | Correct | End


@dataclass(frozen=True)
class Usage:
    """Use that a mission has made of its limits so far; seconds are of running time."""

    turns: int = 0
    seconds: float = 0.0
    tokens: int = 0
    cost: Decimal = Decimal(0)


@dataclass(frozen=True)
class PlanState:
    """All that `decide` needs besides the reply.

    `evaluations` are those of the requested jobs, in order; a job without one is held. `jobs_left` and `bytes_left` are
    what the caps still allow. `clarifications` counts the rounds of questions to a person, `verifications` those of
    checks that did not pass. `last_turn` names the limit that made this turn the last (R6). `unheard`: a
    person has sent a message since this turn was asked (R14). `may_ask`: policy lets the mission ask a person.
    `merges`: equal jobs of the reply are one (R11); histories from before that rule have each of them.

    Acceptance (R9): `failed_checks` do not pass now; `to_verify` are questions that the planner is asked before its
    plan may end; `refused` counts how often either sent it back. In the turn that answers these questions, `claim` is
    the end that the planner claims. `is_declined`: every failed check is about a file that a person did not let a job
    write, so that no further turn would change it. `is_undecided`: the time of each failed check ran out, which the
    planner is not sent back for.
    """

    limits: Limits
    evaluations: tuple[Evaluation, ...] = ()
    jobs_left: int = 0
    bytes_left: int | None = None
    corrections: int = 0
    stalled: int = 0
    clarifications: int = 0
    verifications: int = 0
    failed_checks: tuple[str, ...] = ()
    to_verify: tuple[str, ...] = ()
    refused: int = 0
    claim: Claim | None = None
    last_turn: str | None = None
    unheard: bool = False
    is_declined: bool = False
    is_undecided: bool = False
    may_ask: bool = True
    merges: bool = True


MAX_REFUSED = 3
MAX_CLARIFICATIONS = 5
MAX_VERIFICATIONS = 3
_OPTIONS = ("accept as it is", "try again", "give up")
_FOLLOW_UPS = ("this is enough", "follow it up")


class Choice(IntEnum):
    """Choice of a person about the end that a planner claims: the index of the option."""

    ACCEPT = 0
    TRY_AGAIN = 1
    GIVE_UP = 2


def decide(state: PlanState, reply: Action | Malformed) -> Decision:
    """The decision on `reply`. Total: there is one for every state and every reply (the table in docs/rules.md)."""
    if state.claim is not None and not isinstance(reply, Malformed):
        return _finish_verified(state, state.claim, reply)
    match reply:
        case Malformed():
            return _correct(state, reply)
        case ErrorAction():
            return End(Outcome.ERROR, succeeded=False, message=reply.error, limit=state.last_turn)
        case AnalysisResult() | MissionComplete():
            claim = Claim(Outcome(reply.action), reply.summary)
            return _follow_up(claim) if _needs_follow_up(state, reply) else _finish(state, claim)
        case CreateFollowupJobs() | WriteFile() if state.last_turn is not None:
            return end_on_limit(state.last_turn, f"the planner asked for {reply.action} in its last turn")
        case CreateFollowupJobs() | WriteFile() if not reply.requested:
            return _finish(state, Claim(Outcome.NO_FOLLOWUP_JOBS, reply.commentary))
        case CreateFollowupJobs() | WriteFile():
            return _go_on(state, reply)
        case _:
            assert_never(reply)


def limit_reached(limits: Limits, usage: Usage) -> str | None:
    """The name of the first cap that is used up, so that the next turn is the last (R6)."""
    if usage.turns >= limits.max_turns:
        return "max_turns"
    if limits.max_seconds is not None and usage.seconds >= limits.max_seconds:
        return "max_seconds"
    if limits.max_tokens is not None and usage.tokens >= limits.max_tokens:
        return "max_tokens"
    if limits.max_cost is not None and usage.cost >= limits.max_cost:
        return "max_cost"
    return None


def end_by_person(claim: Claim, failed_checks: tuple[str, ...], choice: int) -> End | None:
    """End of a plan with an unaccepted claim by a person's choice; None if the planner continues."""
    if choice == Choice.ACCEPT:
        return End(claim.outcome, succeeded=True, message=claim.message, failed_checks=failed_checks)
    if choice == Choice.GIVE_UP:
        message = f"a person gave up because acceptance checks do not pass: {'; '.join(failed_checks)}"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    return None


def _correct(state: PlanState, malformed: Malformed) -> Decision:
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    if state.last_turn is not None:
        return end_on_limit(state.last_turn, f"the reply of its last turn is not valid: {first}")
    if state.corrections >= state.limits.max_corrections:
        message = f"the last reply is not valid: {first}"
        return End(Outcome.INVALID_REPLY, succeeded=False, message=message, code=malformed.code)
    return Correct(malformed)


def _needs_follow_up(state: PlanState, reply: AnalysisResult | MissionComplete) -> bool:
    """True if a person is asked before the answer ends the plan; where nobody may be asked, it ends the plan."""
    may_ask = state.may_ask and state.last_turn is None and state.clarifications < MAX_CLARIFICATIONS
    return reply.manner is Manner.FOLLOW_UP and may_ask and not state.failed_checks and not state.unheard


def _follow_up(claim: Claim) -> AskPerson:
    said = f"{claim.message}\n\n" if claim.message else ""
    question = f"{said}The planner says that this answer needs a follow-up. What should it do?"
    return AskPerson(question, _FOLLOW_UPS, claim)


def _finish(state: PlanState, claim: Claim) -> Decision:
    """The planner claims to be done: that counts if the acceptance checks pass (R9)."""
    if state.failed_checks:
        return _refuse(state, claim, state.failed_checks)
    if not state.to_verify:
        return _end(state, claim)
    if state.last_turn is not None:
        fact = f"no turn is left to verify that it is done: {'; '.join(state.to_verify)}"
        return end_on_limit(state.last_turn, fact)
    return Verify(claim, state.to_verify)


def _finish_verified(state: PlanState, claim: Claim, reply: Action) -> Decision:
    """The planner has verified its claim: the plan ends as claimed, or the next turn is asked."""
    match reply:
        case AnalysisResult() | MissionComplete():
            failed_checks = state.failed_checks
        case ErrorAction():
            failed_checks = (*state.failed_checks, f"verification: {reply.error}")
        case CreateFollowupJobs() | WriteFile():
            found = reply.commentary or "the planner asked for jobs instead"
            failed_checks = (*state.failed_checks, f"verification: {found}")
        case _:
            assert_never(reply)
    return _refuse(state, claim, failed_checks) if failed_checks else _end(state, claim)


def _end(state: PlanState, claim: Claim) -> Decision:
    if state.unheard and state.last_turn is None:
        return AskAgain((), stalled=state.stalled)
    return _ended(state, claim)


def _ended(state: PlanState, claim: Claim) -> End:
    return End(claim.outcome, succeeded=True, message=claim.message, limit=state.last_turn)


def _refuse(state: PlanState, claim: Claim, failed_checks: tuple[str, ...]) -> Decision:
    if state.is_declined and failed_checks == state.failed_checks:
        return replace(_ended(state, claim), failed_checks=failed_checks, is_declined=True)
    listed = "; ".join(failed_checks)
    if state.last_turn is not None:
        return end_on_limit(state.last_turn, f"acceptance checks do not pass: {listed}")
    if state.refused < MAX_REFUSED and not state.is_undecided:
        return AskAgain((), stalled=state.stalled, failed_checks=failed_checks)
    question = f"The planner says that it is done, but acceptance checks do not pass: {listed}. How should it continue?"
    return AskPerson(question, _OPTIONS, claim, failed_checks)


def _go_on(state: PlanState, reply: CreateFollowupJobs | WriteFile) -> Decision:
    if isinstance(reply, CreateFollowupJobs) and reply.is_plan:
        return _begin(state, reply)
    limits, requested = state.limits, reply.requested
    manner = reply.manner
    if manner is Manner.CLARIFICATION and state.clarifications >= MAX_CLARIFICATIONS:
        message = f"a plan may ask {MAX_CLARIFICATIONS} times for clarification; the planner asked once more"
        return End(Outcome.ERROR, succeeded=False, message=message, code=ErrorCode.CLARIFICATION_EXHAUSTED)
    if manner is Manner.VERIFICATION and state.verifications >= MAX_VERIFICATIONS:
        return _ask_about_verification(reply)
    are_steps = manner is Manner.STEPS
    if len(requested) > limits.max_followups and limits.overflow == "refuse" and not are_steps:
        message = f"at most {limits.max_followups} jobs in one reply; this one has {len(requested)}"
        return _correct(state, Malformed(errors=(Problem(path="new_jobs", message=message),)))
    room = Room(state.jobs_left, state.bytes_left)
    jobs = place(
        limits, room, requested, state.evaluations, in_order=are_steps, merges=state.merges and not are_steps
    )
    stored = sum(1 + len(job.merged) for job in jobs)
    refused = stored == len(requested) and all(job.state is State.REJECTED for job in jobs)
    known = state.evaluations[: len(requested)]
    repeated = len(known) == len(requested) and all(one.is_repeated or one.is_held_already for one in known)
    stalled = state.stalled + 1 if refused or repeated else 0
    if stalled >= limits.max_stalled:
        message = f"{stalled} replies in a row requested nothing new"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    if any(job.state is State.QUEUED for job in jobs):
        return Continue(jobs, stalled)
    if refused:
        return AskAgain(jobs, stalled)
    return Wait(jobs, stalled)


def _begin(state: PlanState, reply: CreateFollowupJobs) -> Decision:
    """Begin a planner's plan if each of its steps is allowed and within the caps; it is refused as a whole."""
    limits, known = state.limits, _known(state.evaluations, len(reply.requested))
    problems = [*_refused_steps(state, reply.jobs_at, known)]
    if problems:
        return _correct(state, Malformed(errors=tuple(problems[:MAX_PROBLEMS])))
    stalled = state.stalled + 1 if all(one.is_repeated for one in known) else 0
    if stalled >= limits.max_stalled:
        message = f"{stalled} replies in a row requested nothing new"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    return Begin(reply, stalled)


def _refused_steps(state: PlanState, place: str, known: Sequence[Evaluation]) -> Iterator[Problem]:
    if len(known) > state.jobs_left:
        room = f"max_jobs = {state.limits.max_jobs:,} leaves {max(state.jobs_left, 0):,}"
        yield Problem(path=place, message=f"the plan has {len(known):,} steps, and {room}")
    bytes_left = state.bytes_left
    for index, one in enumerate(known):
        is_denied = one.verdict is Verdict.DENY
        refused = one.reason if is_denied else _exceeded(state.limits, one, Room(1, bytes_left))
        if one.is_held_already or refused is not None:
            said = "an equal job is held already" if refused is None else f"it is not allowed: {refused}"
            yield Problem(path=f"{place}[{index}]", message=said)
        elif bytes_left is not None:
            bytes_left -= one.written_bytes


def _ask_about_verification(reply: CreateFollowupJobs | WriteFile) -> AskPerson:
    found = [str(job.params.get("user_prompt") or job.name or job.kind) for job in reply.requested]
    told = "\n".join([reply.commentary or "", *found]).strip()
    question = (
        f"The work was verified {MAX_VERIFICATIONS + 1} times and did not pass. What is the planner to do?"
    )
    return AskPerson(f"{question}\n{told}", ("verify again", "finish as it is"))


def end_on_limit(name: str, fact: str) -> End:
    """The end of a plan whose last turn did not end it (R6)."""
    message = f"the mission reached {name}, and its last turn did not end it: {fact}"
    return End(f"limit:{name}", succeeded=False, message=message, limit=name)


@dataclass(frozen=True)
class Evaluation:
    """Facts about a requested job before it is stored.

    `verdict` is the strictest of policy and permission; `refusal` is the code of a denial. `is_repeated`: the same
    job was requested before and no file has changed since; `is_held_already`: an equal one is held now (R11). Equal
    jobs share `key`. `depth` counts plans within plans, `written_bytes` what the job would write.
    """

    verdict: Verdict
    reason: Reason | None = None
    refusal: Code = ErrorCode.PATH_DENIED
    is_repeated: bool = False
    is_held_already: bool = False
    key: str | None = None
    depth: int = 0
    written_bytes: int = 0


@dataclass(frozen=True)
class NewJob:
    """A job to store: the index of the requested one, its state, and why.

    `after` is the index of the job that must succeed first; the job is blocked while that one is open. `merged` are the
    indexes of later jobs of the reply that are equal to it: it is each of them (R11).
    """

    index: int
    state: State
    reason: Reason | None = None
    refusal: Code | None = None
    after: int | None = None
    merged: tuple[int, ...] = ()


@dataclass(frozen=True)
class Room:
    """Room that the limits of a mission still leave."""

    jobs: int = 0
    bytes: int | None = None


def place(
    limits: Limits,
    room: Room,
    requested: Sequence[JobSpec],
    evaluations: Sequence[Evaluation],
    *,
    in_order: bool,
    merges: bool,
) -> tuple[NewJob, ...]:
    """The state of each job, without those that are held already (R11); a job without an evaluation is held.

    `in_order`: each waits for the one before it, and those after a refused one are refused. Otherwise those above
    `max_followups` are held at least. `merges`: of equal ones the first stands for all, held if one of them asks for
    review.
    """
    known = _known(evaluations, len(requested))
    if not in_order:
        most = limits.max_followups
        known = (*known[:most], *(_at_least_held(evaluation, most) for evaluation in known[most:]))
    placed: list[NewJob] = []
    held: set[str | None] = set()
    for gated in _gate_all(requested, known, merges=merges):
        job, evaluation = gated, known[gated.index]
        if job.state is not State.REJECTED and (evaluation.is_held_already or evaluation.key in held):
            if in_order:
                break  # what comes after it has been asked for with it
            continue
        if job.state is not State.REJECTED:
            exceeded = _exceeded(limits, evaluation, room)
            if exceeded is not None:
                refusal = ErrorCode.LIMIT_REACHED
                job = replace(gated, state=State.REJECTED, reason=exceeded, refusal=refusal)
        if in_order and placed:
            job = _behind(placed[-1], job)
        if job.state is not State.REJECTED:
            left = None if room.bytes is None else room.bytes - evaluation.written_bytes
            room = Room(room.jobs - 1, left)
        if job.state is State.HELD and evaluation.key is not None:
            held.add(evaluation.key)
        placed.append(job)
    return tuple(placed)


def _known(evaluations: Sequence[Evaluation], count: int) -> tuple[Evaluation, ...]:
    unjudged = Evaluation(Verdict.HOLD, reason=because(ReasonCode.NOT_JUDGED))
    return (*evaluations[:count], *[unjudged] * (count - len(evaluations)))


def _at_least_held(evaluation: Evaluation, most: int) -> Evaluation:
    if evaluation.verdict is Verdict.DENY:
        return evaluation
    return replace(evaluation, verdict=Verdict.HOLD, reason=because(ReasonCode.MAX_FOLLOWUPS, most=most))


def _gate_all(requested: Sequence[JobSpec], known: Sequence[Evaluation], *, merges: bool) -> Iterator[NewJob]:
    """Each job as policy and planner let it be; of equal ones, if it `merges` them, the first."""
    equal = _equal(known) if merges else {}
    merged = {index for later in equal.values() for index in later}
    for index, evaluation in enumerate(known):
        if index not in merged:
            alike = equal.get(index, ())
            is_for_review = any(requested[each].auto_dispatch is False for each in (index, *alike))
            yield replace(_gate(index, evaluation, is_for_review=is_for_review), merged=alike)


def _equal(known: Sequence[Evaluation]) -> Mapping[int, tuple[int, ...]]:
    """The later jobs that are equal to a first one, by its index."""
    first: dict[str, int] = {}
    equal: dict[int, tuple[int, ...]] = {}
    for index, evaluation in enumerate(known):
        if evaluation.key is not None and (found := first.setdefault(evaluation.key, index)) != index:
            equal[found] = (*equal.get(found, ()), index)
    return equal


def _gate(index: int, evaluation: Evaluation, *, is_for_review: bool) -> NewJob:
    match evaluation.verdict:
        case Verdict.DENY:
            return NewJob(index, State.REJECTED, evaluation.reason, evaluation.refusal)
        case Verdict.HOLD:
            return NewJob(index, State.HELD, evaluation.reason)
        case Verdict.AUTO if is_for_review:
            return NewJob(index, State.HELD, because(ReasonCode.PLANNER_REVIEW))
        case Verdict.AUTO:
            return NewJob(index, State.QUEUED)
        case _:
            assert_never(evaluation.verdict)


def _behind(before: NewJob, job: NewJob) -> NewJob:
    if job.state is State.REJECTED:
        return job
    if before.state is State.REJECTED:
        return NewJob(job.index, State.REJECTED, because(ReasonCode.STEP_REFUSED), before.refusal)
    state = State.BLOCKED if job.state is State.QUEUED else job.state
    return replace(job, state=state, after=before.index)


def _exceeded(limits: Limits, evaluation: Evaluation, room: Room) -> Reason | None:
    if room.jobs < 1:
        return because(ReasonCode.MAX_JOBS, most=limits.max_jobs)
    if evaluation.depth > limits.max_depth:
        return because(ReasonCode.MAX_DEPTH, most=limits.max_depth, depth=evaluation.depth)
    if room.bytes is not None and evaluation.written_bytes > room.bytes:
        most, needed = limits.max_bytes_written, evaluation.written_bytes
        return because(ReasonCode.MAX_BYTES_WRITTEN, most=most, left=room.bytes, needed=needed)
    return None
