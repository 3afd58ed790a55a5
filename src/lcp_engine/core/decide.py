"""Decide what a plan does after a reply. Pure: no clock, no database, no randomness, no kind names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TypeAlias, assert_never

from lcp_engine.core.gating import Judgement, NewJob, Room, place
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import Limits
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    Malformed,
    Manner,
    MissionComplete,
    Problem,
    WriteFile,
)
from lcp_engine.errors import ErrorCode


class Outcome(StrEnum):
    """What ended a plan; a limit that did is `limit:<name>` instead."""

    MISSION_COMPLETE = "mission_complete"
    ANALYSIS_RESULT = "analysis_result"
    NO_FOLLOWUP_JOBS = "no_followup_jobs"
    ERROR = "error"
    NO_PROGRESS = "no_progress"
    INVALID_REPLY = "invalid_reply"
    JOB_FAILED = "job_failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class FailedCheck:
    """An acceptance check that does not pass: its index in the mission's `accept`, and the fact as a sentence."""

    check: int
    fact: str


@dataclass(frozen=True)
class Continue:
    """Store the jobs; at least one of them runs."""

    jobs: tuple[NewJob, ...]
    stalled: int


@dataclass(frozen=True)
class Wait:
    """Store the jobs; none of them runs before a person says so."""

    jobs: tuple[NewJob, ...]
    stalled: int


@dataclass(frozen=True)
class AskAgain:
    """Ask the next turn at once: every job was rejected, acceptance checks do not pass, or a person has spoken."""

    jobs: tuple[NewJob, ...]
    stalled: int
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What the planner would end the plan with, if it is done."""

    outcome: Outcome
    message: str | None = None


@dataclass(frozen=True)
class Verify:
    """Ask the planner whether these questions can be answered with yes; the claim counts when they can (R9)."""

    claim: Claim
    questions: tuple[str, ...]


@dataclass(frozen=True)
class AskPerson:
    """Put a question to a person, in the engine's own name; the plan waits for the answer, which the planner reads.

    Where a `claim` was refused for `failed_checks` checks, the person may also accept it or give up (`end_by_person`).
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
    """The plan is over; `limit` made this turn the last, whatever its reply ended it with (R6).

    `code` is the error if the outcome alone does not name it; `failed_checks` are those that a person accepted.
    """

    outcome: str
    succeeded: bool
    message: str | None = None
    limit: str | None = None
    code: ErrorCode | None = None
    failed_checks: tuple[str, ...] = ()


Decision: TypeAlias = Continue | Wait | AskAgain | Verify | AskPerson | Correct | End


@dataclass(frozen=True)
class Usage:
    """What a mission has used so far; seconds are of running time."""

    turns: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class PlanState:
    """All that `decide` looks at besides the reply.

    `judgements` belong to the requested jobs in order; a job without one is held. `jobs_left` and `bytes_left` are
    what the caps still allow. `clarifications` counts the rounds of questions to a person, `verifications` those of
    checks that did not pass. `last_turn` names the limit that made this turn the last (R6). `unheard`: a
    person has said something that this turn did not hear (R14).

    Acceptance (R9): `failed_checks` do not pass now; `to_verify` are questions that the planner is asked before its
    plan may end; `refused` counts how often either sent it back. In the turn that answers these questions, `claim` is
    the end that the planner claims.
    """

    limits: Limits
    judgements: tuple[Judgement, ...] = ()
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


MAX_REFUSED = 3
MAX_CLARIFICATIONS = 5
MAX_VERIFICATIONS = 3
_OPTIONS = ("accept as it is", "try again", "give up")


class Choice(IntEnum):
    """What a person chooses after `MAX_REFUSED` refusals: the index of the option."""

    ACCEPT = 0
    TRY_AGAIN = 1
    GIVE_UP = 2


def decide(state: PlanState, reply: Action | Malformed) -> Decision:
    """What follows from `reply`. Total: every state and every reply gives a decision (the table in DESIGN.md)."""
    if state.claim is not None and not isinstance(reply, Malformed):
        return _finish_verified(state, state.claim, reply)
    match reply:
        case Malformed():
            return _correct(state, reply)
        case ErrorAction():
            return End(Outcome.ERROR, succeeded=False, message=reply.error, limit=state.last_turn)
        case AnalysisResult() | MissionComplete():
            return _finish(state, Claim(Outcome(reply.action), reply.summary))
        case CreateFollowupJobs() | WriteFile() if state.last_turn is not None:
            return _end_on_limit(state.last_turn, f"the planner asked for {reply.action} in its last turn")
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
    return None


def end_by_person(claim: Claim, failed_checks: tuple[str, ...], choice: int) -> End | None:
    """How the choice of a person ends a plan whose claim was refused; None if the planner continues."""
    if choice == Choice.ACCEPT:
        return End(claim.outcome, succeeded=True, message=claim.message, failed_checks=failed_checks)
    if choice == Choice.GIVE_UP:
        message = f"a person gave up because acceptance checks do not pass: {'; '.join(failed_checks)}"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    return None


def _correct(state: PlanState, malformed: Malformed) -> Decision:
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    if state.last_turn is not None:
        return _end_on_limit(state.last_turn, f"the reply of its last turn is not valid: {first}")
    if state.corrections >= state.limits.max_corrections:
        return End(Outcome.INVALID_REPLY, succeeded=False, message=f"the last reply is not valid: {first}")
    return Correct(malformed)


def _finish(state: PlanState, claim: Claim) -> Decision:
    """The planner says that it is done: that counts when the acceptance checks pass (R9)."""
    if state.failed_checks:
        return _refuse(state, claim, state.failed_checks)
    if not state.to_verify:
        return _end(state, claim)
    if state.last_turn is not None:
        fact = f"it leaves no turn to verify that it is done: {'; '.join(state.to_verify)}"
        return _end_on_limit(state.last_turn, fact)
    return Verify(claim, state.to_verify)


def _finish_verified(state: PlanState, claim: Claim, reply: Action) -> Decision:
    """The planner has verified what it claimed: nothing but the end that it claimed follows, or the next turn."""
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
    return End(claim.outcome, succeeded=True, message=claim.message, limit=state.last_turn)


def _refuse(state: PlanState, claim: Claim, failed_checks: tuple[str, ...]) -> Decision:
    listed = "; ".join(failed_checks)
    if state.last_turn is not None:
        return _end_on_limit(state.last_turn, f"acceptance checks do not pass: {listed}")
    if state.refused < MAX_REFUSED:
        return AskAgain((), stalled=state.stalled, failed_checks=failed_checks)
    question = f"The planner says that it is done, but acceptance checks do not pass: {listed}. How should it continue?"
    return AskPerson(question, _OPTIONS, claim, failed_checks)


def _go_on(state: PlanState, reply: CreateFollowupJobs | WriteFile) -> Decision:
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
    jobs = place(limits, room, requested, state.judgements, in_order=are_steps)
    refused = len(jobs) == len(requested) and all(job.state is State.REJECTED for job in jobs)
    known = state.judgements[: len(requested)]
    repeated = len(known) == len(requested) and all(one.seen or one.twin for one in known)
    stalled = state.stalled + 1 if refused or repeated else 0
    if stalled >= limits.max_stalled:
        message = f"{stalled} replies in a row asked for nothing new"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    if any(job.state is State.QUEUED for job in jobs):
        return Continue(jobs, stalled)
    if refused:
        return AskAgain(jobs, stalled)
    return Wait(jobs, stalled)


def _ask_about_verification(reply: CreateFollowupJobs | WriteFile) -> AskPerson:
    found = [str(job.params.get("user_prompt") or job.name or job.kind) for job in reply.requested]
    told = "\n".join([reply.commentary or "", *found]).strip()
    question = (
        f"The work was verified {MAX_VERIFICATIONS + 1} times and did not pass. What is the planner to do?"
    )
    return AskPerson(f"{question}\n{told}", ("verify again", "finish as it is"))


def _end_on_limit(name: str, fact: str) -> End:
    message = f"the mission reached {name}, and its last turn did not end it: {fact}"
    return End(f"limit:{name}", succeeded=False, message=message, limit=name)
