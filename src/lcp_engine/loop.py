"""Decide what a plan does after a reply. Pure: no clock, no database, no randomness, no kind names."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from lcp_engine.errors import ErrorCode
from lcp_engine.gating import Judgement, NewJob, Room, place
from lcp_engine.jobs import State
from lcp_engine.mission import Limits
from lcp_engine.protocol.actions import (
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
class Usage:
    """What a mission has used so far; seconds are of running time."""

    turns: int = 0
    seconds: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class PlanState:
    """All that `decide` looks at besides the reply.

    `judgements` belong to the requested jobs in order; a job without one is held. `jobs_left` and `bytes_left` are
    what the caps still allow. `clarifications` counts the rounds of questions to a person. `unmet` are acceptance
    checks that do not pass now, `refused` how often that already sent the planner back (R9). `last_turn` names the
    limit that made this turn the last (R6). `unheard`: a person has said something that this turn did not hear (R14).
    """

    limits: Limits
    judgements: tuple[Judgement, ...] = ()
    jobs_left: int = 0
    bytes_left: int | None = None
    corrections: int = 0
    stalled: int = 0
    clarifications: int = 0
    unmet: tuple[str, ...] = ()
    refused: int = 0
    last_turn: str | None = None
    unheard: bool = False


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
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correct:
    """Ask the same question again, with the reply and its errors (R4)."""

    malformed: Malformed


@dataclass(frozen=True)
class End:
    """The plan is over; `limit` made this turn the last, whatever its reply ended it with (R6).

    `code` says what went wrong where the outcome alone does not.
    """

    outcome: str
    succeeded: bool
    message: str | None = None
    limit: str | None = None
    code: ErrorCode | None = None


Decision: TypeAlias = Continue | Wait | AskAgain | Correct | End

MAX_REFUSED = 3
MAX_CLARIFICATIONS = 5


def decide(state: PlanState, reply: Action | Malformed) -> Decision:
    """What follows from `reply`. Total: every state and every reply gives a decision (the table in DESIGN.md)."""
    match reply:
        case Malformed():
            return _correct(state, reply)
        case ErrorAction():
            return End(Outcome.ERROR, succeeded=False, message=reply.error, limit=state.last_turn)
        case AnalysisResult() | MissionComplete():
            return _finish(state, Outcome(reply.action), reply.summary)
        case CreateFollowupJobs() | WriteFile() if state.last_turn is not None:
            return _end_on_limit(state.last_turn, f"the planner asked for {reply.action} in its last turn")
        case CreateFollowupJobs() | WriteFile() if not reply.requested:
            return _finish(state, Outcome.NO_FOLLOWUP_JOBS, reply.commentary)
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


def _correct(state: PlanState, malformed: Malformed) -> Decision:
    first = malformed.errors[0].message if malformed.errors else "it is not one LCP action"
    if state.last_turn is not None:
        return _end_on_limit(state.last_turn, f"the reply of its last turn is not valid: {first}")
    if state.corrections >= state.limits.max_corrections:
        return End(Outcome.INVALID_REPLY, succeeded=False, message=f"the last reply is not valid: {first}")
    return Correct(malformed)


def _finish(state: PlanState, outcome: Outcome, message: str | None) -> Decision:
    """The planner says that it is done: that counts when the acceptance checks pass (R9)."""
    if not state.unmet and state.unheard and state.last_turn is None:
        return AskAgain((), stalled=state.stalled)
    if not state.unmet:
        return End(outcome, succeeded=True, message=message, limit=state.last_turn)
    unmet = f"acceptance checks do not pass: {'; '.join(state.unmet)}"
    if state.last_turn is not None:
        return _end_on_limit(state.last_turn, unmet)
    if state.refused < MAX_REFUSED:
        return AskAgain((), stalled=state.stalled, unmet=state.unmet)
    return End(Outcome.NO_PROGRESS, succeeded=False, message=unmet)


def _go_on(state: PlanState, reply: CreateFollowupJobs | WriteFile) -> Decision:
    limits, requested = state.limits, reply.requested
    manner = reply.manner if isinstance(reply, CreateFollowupJobs) else Manner.PLAIN
    if manner is Manner.CLARIFICATION and state.clarifications >= MAX_CLARIFICATIONS:
        message = f"a plan may ask {MAX_CLARIFICATIONS} times for clarification; the planner asked once more"
        return End(Outcome.ERROR, succeeded=False, message=message, code=ErrorCode.CLARIFICATION_EXHAUSTED)
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


def _end_on_limit(name: str, fact: str) -> End:
    message = f"the mission reached {name}, and its last turn did not end it: {fact}"
    return End(f"limit:{name}", succeeded=False, message=message, limit=name)
