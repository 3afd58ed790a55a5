"""Missions, jobs and schedules as values, each read once from the object that is published as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self

from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject, JsonValue, int_in, list_in, object_in


class MissionStatus(StrEnum):
    """Status of a mission. It waits if nothing of it is queued or running and a job is held."""

    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        return self not in (MissionStatus.RUNNING, MissionStatus.WAITING)


@dataclass(frozen=True, kw_only=True)
class Mission:
    """A mission as it was when it was read."""

    id: int
    """Its number in the database, from 1."""
    uid: str
    """Its id in every database: `req-` and a UUID."""
    name: str
    goal: str
    """What the planner is asked to achieve."""
    root: str | None
    """The absolute path of its directory; None for a mission that only holds jobs."""
    planner: str
    """The type of its planner."""
    status: MissionStatus
    outcome: str | None
    """What ended it: an action, `limit:<name>`, `no_progress`, `invalid_reply`, `job_failed` or `cancelled`."""
    summary: str | None
    """The planner's summary; of a mission whose plan ended by rule, how it ended."""
    deliverables: list[JsonValue]
    """Paths that the mission has written, relative to its root."""
    metrics: JsonObject
    """Counters of a mission that has ended; else empty."""
    error: JsonObject
    """The `AgentError` that it ended with; empty if there is none."""
    limits: JsonObject
    """The most that it may use, by the name of the limit."""
    turns: int
    """How many turns were asked."""
    jobs: dict[str, int]
    """How many jobs are in each state."""
    unfulfilled: list[int]
    """The jobs whose effect was refused, failed or waits for a person, and that no later job made good (R26)."""
    open: int
    """Number of jobs that it left unfulfilled or held when it ended; 0 before."""
    tokens: dict[str, int]
    """Tokens used by the planner: `input` and `output`."""
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    session: str | None
    """The session of the request that it was launched for."""
    user: str | None
    """Who made that request."""
    result: JsonValue
    """What it was to find, in the form that the mission states (`result:`); None until it is complete."""
    target_file: str | None
    """The file that an `analysis_result` is about."""
    issues: list[JsonValue]
    """What an `analysis_result` found."""
    recommendations: list[JsonValue]
    """What an `analysis_result` recommends."""
    assessment: JsonObject
    """Checks, confidence, sources and scores of the universal response that completed it; else empty."""
    cost: JsonObject
    """What the planner's model cost: `amount`, an exact decimal as text, or null, in `currency`; `unpriced` counts the
    questions that had no price."""
    waits_for: JsonObject
    """What its question waits for, without a person: `code`, and `until` when; empty if it does not wait (R34)."""
    json: JsonObject = field(repr=False)
    """The whole object, as `lcp show --json` prints it."""

    @classmethod
    def read(cls, json: JsonObject) -> Self:
        """Read an object of the view `mission_overview`."""
        return cls(
            id=int_in(json["id"]),
            uid=str(json["uid"]),
            name=str(json["name"]),
            goal=str(json["goal"]),
            root=_text(json["root"]),
            planner=str(json["planner"]),
            status=MissionStatus(str(json["status"])),
            outcome=_text(json["outcome"]),
            summary=_text(json["summary"]),
            deliverables=list_in(json["deliverables"]),
            metrics=object_in(json["metrics"]),
            error=object_in(json["error"]),
            limits=object_in(json["limits"]),
            turns=int_in(json["turns"]),
            jobs=_counts(json["jobs"]),
            unfulfilled=[int_in(number) for number in list_in(json["unfulfilled"])],
            open=int_in(json["open"]),
            tokens=_counts(json["tokens"]),
            created_at=datetime.fromisoformat(str(json["created_at"])),
            started_at=_time(json["started_at"]),
            ended_at=_time(json["ended_at"]),
            session=_text(json["session_id"]),
            user=_text(json["user_id"]),
            result=json["result"],
            target_file=_text(json["target_file"]),
            issues=list_in(json["issues"]),
            recommendations=list_in(json["recommendations"]),
            assessment=object_in(json["assessment"]),
            cost=object_in(json["cost"]),
            waits_for=object_in(json["waits_for"]),
            json=json,
        )


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it was when it was read."""

    id: int
    """Its number in the database, from 1."""
    mission_id: int
    turn: int | None
    """The turn whose reply asked for it; None for a job without a planner."""
    parent_id: int | None
    """The job that asked for it."""
    name: str | None
    """The planner's name for it."""
    kind: str
    """Which worker executes it."""
    params: JsonObject
    auto_dispatch: bool | None
    """Whether the planner asked for it to run at once; None if it did not say."""
    state: State
    reason: str | None
    """Why it is held, blocked, rejected, skipped or waits for a retry or a permit."""
    priority: int
    """Higher priorities run first."""
    attempt: int
    """How many attempts have begun."""
    max_attempts: int
    run_after: datetime | None
    """It does not run before this time."""
    limited_by: str | None
    """The limit that has no permit for it yet, such as `kind:look_up`."""
    created_at: datetime
    started_at: datetime | None
    """When its last attempt began."""
    ended_at: datetime | None
    result: JsonObject | None
    """What its worker returned; None until it has succeeded."""
    error: JsonObject | None
    """The `AgentError` of a job that failed, was rejected or could not run."""
    attempts: list[JsonValue]
    """Attempts that have ended, in order: number, outcome, runner, tokens, error, times."""
    json: JsonObject = field(repr=False)
    """The whole object, as `lcp job --json` prints it."""

    @classmethod
    def read(cls, json: JsonObject) -> Self:
        """Read an object of the view `job_history`."""
        return cls(
            id=int_in(json["id"]),
            mission_id=int_in(json["mission_id"]),
            turn=_number(json["turn"]),
            parent_id=_number(json["parent_id"]),
            name=_text(json["name"]),
            kind=str(json["kind"]),
            params=object_in(json["params"]),
            auto_dispatch=None if json["auto_dispatch"] is None else bool(json["auto_dispatch"]),
            state=State(str(json["state"])),
            reason=_text(json["reason"]),
            priority=int_in(json["priority"]),
            attempt=int_in(json["attempt"]),
            max_attempts=int_in(json["max_attempts"]),
            run_after=_time(json["run_after"]),
            limited_by=_text(json["limited_by"]),
            created_at=datetime.fromisoformat(str(json["created_at"])),
            started_at=_time(json["started_at"]),
            ended_at=_time(json["ended_at"]),
            result=None if json["result"] is None else object_in(json["result"]),
            error=None if json["error"] is None else object_in(json["error"]),
            attempts=list_in(json["attempts"]),
            json=json,
        )


@dataclass(frozen=True, kw_only=True)
class ActiveRunner:
    """A process that executes jobs of a database, as it was when it was read."""

    id: int
    host: str
    pid: int
    started_at: datetime
    running: int
    """How many jobs it executes."""
    silent_roots: tuple[str, ...]
    """Directories whose file systems do not answer it: their missions wait."""
    json: JsonObject = field(repr=False)
    """The whole object, as `lcp runners --json` prints it."""

    @classmethod
    def read(cls, json: JsonObject) -> Self:
        """Read an object of `find_runners`."""
        return cls(
            id=int_in(json["id"]),
            host=str(json["host"]),
            pid=int_in(json["pid"]),
            started_at=datetime.fromisoformat(str(json["started_at"])),
            running=int_in(json["running"]),
            silent_roots=tuple(map(str, list_in(json["silent_roots"]))),
            json=json,
        )


def _text(value: JsonValue) -> str | None:
    return None if value is None else str(value)


def _number(value: JsonValue) -> int | None:
    return value if isinstance(value, int) else None


def _time(value: JsonValue) -> datetime | None:
    return datetime.fromisoformat(value) if isinstance(value, str) else None


def _counts(value: JsonValue) -> dict[str, int]:
    return {name: count for name, count in object_in(value).items() if isinstance(count, int)}
