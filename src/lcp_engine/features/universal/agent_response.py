"""A mission at one moment as the envelope that answers its request: a response, or the error it failed with (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias
from uuid import UUID, uuid5

from pydantic import JsonValue

from lcp_engine.core.kinds import KindRole
from lcp_engine.features.reports.facts import Course, Facts, FileFact, JobFact
from lcp_engine.features.reports.markdown import as_markdown
from lcp_engine.features.universal.envelopes import (
    AgentResponse,
    ErrorEnvelope,
    RecommendedAction,
    ResponseMetadata,
    TakenAction,
)
from lcp_engine.store.queries.records import MissionStatus

_Performed: TypeAlias = Literal["search", "command_execution"]
_PERFORMED: Mapping[KindRole, _Performed] = {
    KindRole.LISTS: "search",
    KindRole.FINDS: "search",
    KindRole.SEARCHES: "search",
    KindRole.RUNS: "command_execution",
}


def acting_kinds(roles: Mapping[str, KindRole]) -> list[str]:
    """The kinds whose jobs are actions of a response even though they change no file."""
    return [kind for kind, role in roles.items() if role in _PERFORMED]


def respond_as_agent(
    facts: Facts, course: Course, roles: Mapping[str, KindRole]
) -> AgentResponse | ErrorEnvelope:
    """The mission as `facts` and `course` describe it: an error if it has failed, else a response.

    `roles` are those of the installed kinds. Equal history gives an equal envelope.
    """
    mission = facts.mission
    if mission.status is MissionStatus.FAILED and mission.error:
        return _error(facts, course, roles)
    return AgentResponse(
        id=f"resp-{uuid5(UUID(mission.uid.removeprefix('req-')), str(course.event))}",
        request_id=mission.uid,
        timestamp=course.at,
        content=as_markdown(facts),
        actions=_actions(facts, roles),
        metadata=_metadata(facts, course),
    )


def _error(facts: Facts, course: Course, roles: Mapping[str, KindRole]) -> ErrorEnvelope:
    """The error that the mission ended with; what it did until then is in the details."""
    stated = ErrorEnvelope.model_validate(facts.mission.error)
    actions: list[JsonValue] = [action.as_json() for action in _actions(facts, roles)]
    details: dict[str, JsonValue] = {
        **stated.technical_details,
        **_metadata(facts, course).as_json(),
        "actions": actions,
        "report": as_markdown(facts),
    }
    recommended = [*stated.recommended_actions, *_further(facts)]
    return stated.model_copy(update={"technical_details": details, "recommended_actions": recommended})


def _further(facts: Facts) -> Iterator[RecommendedAction]:
    """Actions that a person can take after any mission that has failed."""
    number = facts.mission.id
    if facts.mission.outcome == "error":
        yield RecommendedAction(
            description="Resume the mission once that is done.",
            action_type="user_action",
            details={"command": f"lcp resume {number}"},
        )
    yield RecommendedAction(
        description="Look at what was asked, done and refused.",
        action_type="user_action",
        details={"command": f"lcp show {number}"},
    )
    if facts.files.total:
        yield RecommendedAction(
            description="Take back the changes that it made, after a look at what that would do.",
            action_type="alternative_approach",
            details={"command": f"lcp undo {number} --dry-run"},
        )


def _metadata(facts: Facts, course: Course) -> ResponseMetadata:
    mission = facts.mission
    return ResponseMetadata(
        execution_time_ms=round(course.seconds * 1000),
        tools_used=list(facts.done),
        status=mission.status,
        outcome=mission.outcome,
        omitted_actions=facts.files.omitted + facts.acted.omitted,
        unfulfilled=mission.unfulfilled,
        result=mission.result,
    )


def _actions(facts: Facts, roles: Mapping[str, KindRole]) -> list[TakenAction]:
    """Searches and commands, and each file that was written and not undone once; in the order of time."""
    actions = [_changed(file) for file in facts.files.rows]
    for job in facts.acted.rows:
        performed = _PERFORMED.get(roles.get(job.kind, KindRole.OTHER))
        if performed is not None and job.ended_at is not None:
            actions.append(_performed(job, performed, job.ended_at))
    return sorted(actions, key=lambda action: action.timestamp)


def _performed(job: JobFact, performed: _Performed, at: str) -> TakenAction:
    details: dict[str, JsonValue] = {"kind": job.kind, "job_id": job.id, "params": job.params}
    return TakenAction(action_type=performed, timestamp=at, details=details)


def _changed(file: FileFact) -> TakenAction:
    return TakenAction(
        action_type="file_create" if file.created else "file_edit",
        timestamp=file.changed_at,
        details={
            "path": file.path, "job_id": file.job_id, "changes": file.changes, "size_bytes": file.size_bytes,
            "sha256": file.sha256, **({"deleted": True} if file.sha256 is None else {}),
        },
    )  # fmt: skip
