"""A mission at one moment as the response of an agent to a request (pure)."""

from __future__ import annotations

from typing import Literal
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from lcp_engine.engine.reports.markdown import as_markdown
from lcp_engine.store.queries.mission_facts import Course, Facts, FileFact

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
_DATE_TIME: dict[str, JsonValue] = {"format": "date-time"}


class TakenAction(BaseModel):
    """A file that the mission made or changed."""

    model_config = ConfigDict(frozen=True)

    action_type: Literal["file_edit", "file_create", "command_execution", "search", "visualization"]
    timestamp: str = Field(description="When it was last changed", json_schema_extra=_DATE_TIME)
    details: dict[str, JsonValue] = Field(default_factory=dict)


class ResponseMetadata(BaseModel):
    """What it took; `error` is the AgentError that the mission ended with."""

    model_config = ConfigDict(frozen=True)

    execution_time_ms: int = Field(default=0, description="For how long at least one job was running")
    tools_used: list[str] = Field(default_factory=list, description="The kinds of jobs that succeeded")
    status: str = ""
    outcome: str | None = None
    error: dict[str, JsonValue] | None = None
    omitted_actions: int = 0
    unfulfilled: list[int] = Field(
        default_factory=list, description="The jobs whose effect was refused, failed or waits for a person"
    )


class AgentResponse(BaseModel):
    """A mission at one moment, as the answer to the request that launched it."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(pattern=f"^resp-{_UUID}")
    request_id: str = Field(pattern=f"^req-{_UUID}")
    timestamp: str = Field(description="The time of the mission's newest event", json_schema_extra=_DATE_TIME)
    content: str = Field(description="The report in Markdown")
    actions: list[TakenAction] = Field(default_factory=list)
    metadata: ResponseMetadata = ResponseMetadata()


def respond_as_agent(facts: Facts, course: Course) -> AgentResponse:
    """The mission as `facts` and `course` describe it; the id follows from the mission and its newest event."""
    mission = facts.mission
    return AgentResponse(
        id=f"resp-{uuid5(UUID(mission.uid.removeprefix('req-')), str(course.event))}",
        request_id=mission.uid,
        timestamp=course.at,
        content=as_markdown(facts),
        actions=[_action(file) for file in facts.files.rows],
        metadata=ResponseMetadata(
            execution_time_ms=round(course.seconds * 1000),
            tools_used=list(facts.done),
            status=mission.status,
            outcome=mission.outcome,
            error=mission.error or None,
            omitted_actions=facts.files.omitted,
            unfulfilled=mission.unfulfilled,
        ),
    )


def _action(file: FileFact) -> TakenAction:
    return TakenAction(
        action_type="file_create" if file.created else "file_edit",
        timestamp=file.changed_at,
        details={
            "path": file.path, "job_id": file.job_id, "changes": file.changes, "size_bytes": file.size_bytes,
            "sha256": file.sha256, **({"deleted": True} if file.sha256 is None else {}),
        },
    )  # fmt: skip
