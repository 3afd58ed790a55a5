"""Build what is known about a mission, as the queries would."""

from __future__ import annotations

from typing import TypeVar

from pydantic import JsonValue

from lcp_engine.core.job_states import State
from lcp_engine.features.reports.facts import Excerpt, FileFact, JobFact
from lcp_engine.store.queries.records import Mission

RowT = TypeVar("RowT")
AT = "2025-01-01T00:00:00+00:00"


def a_mission(**more: JsonValue) -> Mission:
    return Mission.read({
        "id": 1, "uid": "req-1", "name": "m", "goal": "Do it.", "root": "/r", "planner": "human", "status": "completed",
        "outcome": "mission_complete", "summary": None, "deliverables": None, "metrics": None, "error": None,
        "limits": {"max_turns": 25}, "turns": 1,
        "jobs": {"held": 0, "blocked": 0, "queued": 1, "running": 0, "succeeded": 2}, "tokens": {},
        "unfulfilled": [],
        "open": 0,
        "created_at": AT, "started_at": None, "ended_at": None, "session_id": None, "user_id": None,
        "result": None, "target_file": None, "issues": None, "recommendations": None, "cost": None,
        "waits_for": None, "assessment": None,
        **more,
    })  # fmt: skip


def a_job(
    number: int, kind: str, state: str = "held", reason: str | None = None,
    error: dict[str, JsonValue] | None = None, **params: JsonValue,
) -> JobFact:  # fmt: skip
    return JobFact(
        id=number, kind=kind, name=None, state=State(state), reason=reason, error=error, params=params
    )


def a_file(path: str, *, created: bool, changes: int = 1) -> FileFact:
    return FileFact(
        path=path, created=created, changes=changes, size_bytes=3, sha256="1", job_id=2, changed_at=AT
    )


def all_of(*rows: RowT) -> Excerpt[RowT]:
    return Excerpt(rows, len(rows))
