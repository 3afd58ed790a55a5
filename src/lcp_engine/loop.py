"""Decide what a plan does after a reply. Pure: no clock, no database, no randomness, no kind names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias, assert_never

from lcp_engine.errors import ErrorCode
from lcp_engine.jobs import State
from lcp_engine.mission import Limits
from lcp_engine.policy import Verdict
from lcp_engine.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    JobSpec,
    Malformed,
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
class Judgement:
    """What is known of one requested job before it is stored.

    `verdict` is the strictest of policy and permission; `refusal` is the code of a denial. `seen`: the same job was
    requested before and no file has changed since; `twin`: an equal one is held right now (R11). Equal jobs share
    `key`. `depth` counts plans within plans, `written_bytes` what the job would write.
    """

    verdict: Verdict
    reason: str | None = None
    refusal: ErrorCode = ErrorCode.PATH_DENIED
    seen: bool = False
    twin: bool = False
    key: str | None = None
    depth: int = 0
    written_bytes: int = 0


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
    what the caps still allow. `unmet` are acceptance checks that do not pass now, `refused` how often that already
    sent the planner back (R9). `last_turn` names the limit that made this turn the last (R6).
    """

    limits: Limits
    judgements: tuple[Judgement, ...] = ()
    jobs_left: int = 0
    bytes_left: int | None = None
    corrections: int = 0
    stalled: int = 0
    unmet: tuple[str, ...] = ()
    refused: int = 0
    last_turn: str | None = None


@dataclass(frozen=True)
class NewJob:
    """A job to store: which of the requested ones, queued, held or rejected, and why."""

    index: int
    state: State
    reason: str | None = None
    refusal: ErrorCode | None = None


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
    """Ask the next turn at once: every job was rejected, or the acceptance checks do not pass."""

    jobs: tuple[NewJob, ...]
    stalled: int
    unmet: tuple[str, ...] = ()


@dataclass(frozen=True)
class Correct:
    """Ask the same question again, with the reply and its errors (R4)."""

    malformed: Malformed


@dataclass(frozen=True)
class End:
    """The plan is over; `limit` made this turn the last, whatever its reply ended it with (R6)."""

    outcome: str
    succeeded: bool
    message: str | None = None
    limit: str | None = None


Decision: TypeAlias = Continue | Wait | AskAgain | Correct | End

MAX_REFUSED = 3


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
            return _go_on(state, reply.requested)
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
    if not state.unmet:
        return End(outcome, succeeded=True, message=message, limit=state.last_turn)
    unmet = f"acceptance checks do not pass: {'; '.join(state.unmet)}"
    if state.last_turn is not None:
        return _end_on_limit(state.last_turn, unmet)
    if state.refused < MAX_REFUSED:
        return AskAgain((), stalled=state.stalled, unmet=state.unmet)
    return End(Outcome.NO_PROGRESS, succeeded=False, message=unmet)


def _go_on(state: PlanState, requested: tuple[JobSpec, ...]) -> Decision:
    limits = state.limits
    if len(requested) > limits.max_followups and limits.overflow == "refuse":
        message = f"at most {limits.max_followups} jobs in one reply; this one has {len(requested)}"
        return _correct(state, Malformed(errors=(Problem(path="new_jobs", message=message),)))
    judgements = _judgements(state, len(requested))
    jobs = _place(state, requested, judgements)
    refused = len(jobs) == len(requested) and all(job.state is State.REJECTED for job in jobs)
    repeated = all(judgement.seen or judgement.twin for judgement in judgements)
    stalled = state.stalled + 1 if refused or repeated else 0
    if stalled >= limits.max_stalled:
        message = f"{stalled} replies in a row asked for nothing new"
        return End(Outcome.NO_PROGRESS, succeeded=False, message=message)
    if any(job.state is State.QUEUED for job in jobs):
        return Continue(jobs, stalled)
    if refused:
        return AskAgain(jobs, stalled)
    return Wait(jobs, stalled)


def _judgements(state: PlanState, count: int) -> tuple[Judgement, ...]:
    """One for each job; what nobody judged is held, and what exceeds `max_followups` is held at least."""
    unjudged = Judgement(Verdict.HOLD, reason="nobody judged it")
    known = (*state.judgements[:count], *[unjudged] * (count - len(state.judgements)))
    most = state.limits.max_followups
    return (*known[:most], *(_at_least_held(judgement, most) for judgement in known[most:]))


def _at_least_held(judgement: Judgement, most: int) -> Judgement:
    if judgement.verdict is Verdict.DENY:
        return judgement
    return replace(judgement, verdict=Verdict.HOLD, reason=f"more than max_followups ({most}) in one reply")


def _place(
    state: PlanState, requested: tuple[JobSpec, ...], judgements: tuple[Judgement, ...]
) -> tuple[NewJob, ...]:
    """Give every job its state, most restrictive first (R5), and keep the caps of the mission (R6)."""
    placed: list[NewJob] = []
    held: set[str | None] = set()
    jobs_left, bytes_left = state.jobs_left, state.bytes_left
    for index, (spec, judgement) in enumerate(zip(requested, judgements, strict=True)):
        job = _gate(index, spec, judgement)
        if job.state is not State.REJECTED and (judgement.twin or judgement.key in held):
            continue
        if job.state is not State.REJECTED:
            exceeded = _exceeded(state.limits, judgement, jobs_left, bytes_left)
            if exceeded is not None:
                job = NewJob(index, State.REJECTED, exceeded, ErrorCode.LIMIT_REACHED)
            else:
                jobs_left -= 1
                bytes_left = None if bytes_left is None else bytes_left - judgement.written_bytes
        if job.state is State.HELD and judgement.key is not None:
            held.add(judgement.key)
        placed.append(job)
    return tuple(placed)


def _gate(index: int, spec: JobSpec, judgement: Judgement) -> NewJob:
    match judgement.verdict:
        case Verdict.DENY:
            return NewJob(index, State.REJECTED, judgement.reason, judgement.refusal)
        case Verdict.HOLD:
            return NewJob(index, State.HELD, judgement.reason)
        case Verdict.AUTO if spec.auto_dispatch is False:
            return NewJob(index, State.HELD, "the planner asked for review (auto_dispatch: false)")
        case Verdict.AUTO:
            return NewJob(index, State.QUEUED)
        case _:
            assert_never(judgement.verdict)


def _exceeded(limits: Limits, judgement: Judgement, jobs_left: int, bytes_left: int | None) -> str | None:
    if jobs_left < 1:
        return f"the mission may have max_jobs = {limits.max_jobs} jobs, and has them"
    if judgement.depth > limits.max_depth:
        return f"plans may nest max_depth = {limits.max_depth} deep; this one is {judgement.depth} deep"
    if bytes_left is not None and judgement.written_bytes > bytes_left:
        return (
            f"the mission may write max_bytes_written = {limits.max_bytes_written} bytes, has {bytes_left} left "
            f"and this job needs {judgement.written_bytes}"
        )
    return None


def _end_on_limit(name: str, fact: str) -> End:
    message = f"the mission reached {name}, and its last turn did not end it: {fact}"
    return End(f"limit:{name}", succeeded=False, message=message, limit=name)
