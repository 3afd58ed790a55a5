"""Name what can follow from a reply: one value for each decision of the loop. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from lcp_engine.core.gating import NewJob
from lcp_engine.core.protocol.actions import Malformed
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
