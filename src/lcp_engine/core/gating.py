"""Give requested jobs their states, most restrictive first, within the caps of the mission (R5, R6). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import Limits
from lcp_engine.core.policy import Verdict
from lcp_engine.core.protocol.actions import JobSpec
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.errors import ErrorCode


@dataclass(frozen=True)
class Judgement:
    """What is known of one requested job before it is stored.

    `verdict` is the strictest of policy and permission; `refusal` is the code of a denial. `seen`: the same job was
    requested before and no file has changed since; `twin`: an equal one is held right now (R11). Equal jobs share
    `key`. `depth` counts plans within plans, `written_bytes` what the job would write.
    """

    verdict: Verdict
    reason: Reason | None = None
    refusal: ErrorCode = ErrorCode.PATH_DENIED
    seen: bool = False
    twin: bool = False
    key: str | None = None
    depth: int = 0
    written_bytes: int = 0


@dataclass(frozen=True)
class NewJob:
    """A job to store: which of the requested ones, queued, held, blocked or rejected, and why.

    `after` is the one of the requested jobs that has to succeed first; only where that is still open is it blocked.
    """

    index: int
    state: State
    reason: Reason | None = None
    refusal: ErrorCode | None = None
    after: int | None = None


@dataclass(frozen=True)
class Room:
    """What the caps of a mission still allow."""

    jobs: int = 0
    bytes: int | None = None


def place(
    limits: Limits,
    room: Room,
    requested: Sequence[JobSpec],
    judgements: Sequence[Judgement],
    *,
    in_order: bool,
) -> tuple[NewJob, ...]:
    """A state for every job but those that are held already (R11); a job that nobody judged is held.

    `in_order`: each waits for the one before it, and what comes after a refused one is refused. Otherwise what is above
    `max_followups` is held at least.
    """
    known = _known(judgements, len(requested))
    if not in_order:
        most = limits.max_followups
        known = (*known[:most], *(_at_least_held(judgement, most) for judgement in known[most:]))
    placed: list[NewJob] = []
    held: set[str | None] = set()
    for index, (spec, judgement) in enumerate(zip(requested, known, strict=True)):
        job = _gate(index, spec, judgement)
        if job.state is not State.REJECTED and (judgement.twin or judgement.key in held):
            if in_order:
                break  # what comes after it has been asked for with it
            continue
        if job.state is not State.REJECTED:
            exceeded = _exceeded(limits, judgement, room)
            if exceeded is not None:
                job = NewJob(index, State.REJECTED, exceeded, ErrorCode.LIMIT_REACHED)
        if in_order and placed:
            job = _behind(placed[-1], job)
        if job.state is not State.REJECTED:
            left = None if room.bytes is None else room.bytes - judgement.written_bytes
            room = Room(room.jobs - 1, left)
        if job.state is State.HELD and judgement.key is not None:
            held.add(judgement.key)
        placed.append(job)
    return tuple(placed)


def _known(judgements: Sequence[Judgement], count: int) -> tuple[Judgement, ...]:
    unjudged = Judgement(Verdict.HOLD, reason=because(ReasonCode.NOT_JUDGED))
    return (*judgements[:count], *[unjudged] * (count - len(judgements)))


def _at_least_held(judgement: Judgement, most: int) -> Judgement:
    if judgement.verdict is Verdict.DENY:
        return judgement
    return replace(judgement, verdict=Verdict.HOLD, reason=because(ReasonCode.MAX_FOLLOWUPS, most=most))


def _gate(index: int, spec: JobSpec, judgement: Judgement) -> NewJob:
    match judgement.verdict:
        case Verdict.DENY:
            return NewJob(index, State.REJECTED, judgement.reason, judgement.refusal)
        case Verdict.HOLD:
            return NewJob(index, State.HELD, judgement.reason)
        case Verdict.AUTO if spec.auto_dispatch is False:
            return NewJob(index, State.HELD, because(ReasonCode.PLANNER_REVIEW))
        case Verdict.AUTO:
            return NewJob(index, State.QUEUED)
        case _:
            assert_never(judgement.verdict)


def _behind(before: NewJob, job: NewJob) -> NewJob:
    if job.state is State.REJECTED:
        return job
    if before.state is State.REJECTED:
        return NewJob(job.index, State.REJECTED, because(ReasonCode.STEP_REFUSED), before.refusal)
    state = State.BLOCKED if job.state is State.QUEUED else job.state
    return replace(job, state=state, after=before.index)


def _exceeded(limits: Limits, judgement: Judgement, room: Room) -> Reason | None:
    if room.jobs < 1:
        return because(ReasonCode.MAX_JOBS, most=limits.max_jobs)
    if judgement.depth > limits.max_depth:
        return because(ReasonCode.MAX_DEPTH, most=limits.max_depth, depth=judgement.depth)
    if room.bytes is not None and judgement.written_bytes > room.bytes:
        most, needed = limits.max_bytes_written, judgement.written_bytes
        return because(ReasonCode.MAX_BYTES_WRITTEN, most=most, left=room.bytes, needed=needed)
    return None
