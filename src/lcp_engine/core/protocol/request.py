"""A request of a user to an agent (AgentRequest): a goal, who asks, and in which session. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


def _is_time(text: str) -> str:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("should be a time in ISO 8601, such as 2026-01-31T12:00:00Z") from None
    return text


class _Stated(BaseModel):
    """Requests have more keys than the engine knows; they are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RequestProject(_Stated):
    """The project that the user works on."""

    root_directory: str | None = Field(
        default=None,
        description="Its directory, which has to be the mission's root; it never chooses the root.",
    )


class RequestMetadata(_Stated):
    """What a request says about its context."""

    project: RequestProject = RequestProject()


class AgentRequest(_Stated):
    """A request, which a mission is launched for once."""

    id: str = Field(pattern=f"^req-{_UUID}$", description="Its id: a mission is launched once for it.")
    timestamp: Annotated[str, AfterValidator(_is_time)] = Field(
        description="When it was made.", json_schema_extra={"format": "date-time"}
    )
    input: str = Field(min_length=1, pattern=r"\S", description="What the user wants, in words: the goal.")
    session_id: str | None = Field(
        default=None, pattern=f"^sess-{_UUID}$", description="The session that groups missions."
    )
    user_id: str | None = Field(default=None, description="Who asks.")
    metadata: RequestMetadata = RequestMetadata()


def is_request(stated: JsonValue) -> bool:
    """Whether a document is meant as a request rather than as a mission."""
    return isinstance(stated, dict) and "input" in stated and "goal" not in stated
