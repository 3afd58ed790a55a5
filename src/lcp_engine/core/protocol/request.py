"""A request of a user to an agent (AgentRequest): a goal, who asks, and in which session. Pure."""

from __future__ import annotations

from pydantic import Field, JsonValue

from lcp_engine.core.protocol.envelopes import UUID, Envelope, RequestId, Time


class RequestProject(Envelope):
    """The project that the user works on."""

    root_directory: str | None = Field(
        default=None,
        description="Its directory, which has to be the mission's root; it never chooses the root.",
    )


class RequestMetadata(Envelope):
    """What a request says about its context."""

    project: RequestProject = RequestProject()


class AgentRequest(Envelope):
    """A request, which a mission is launched for once."""

    id: RequestId = Field(description="Its id: a mission is launched once for it.")
    timestamp: Time = Field(description="When it was made.")
    input: str = Field(min_length=1, pattern=r"\S", description="What the user wants, in words: the goal.")
    session_id: str | None = Field(
        default=None, pattern=f"^sess-{UUID}$", description="The session that groups missions."
    )
    user_id: str | None = Field(default=None, description="Who asks.")
    metadata: RequestMetadata = RequestMetadata()


def is_request(stated: JsonValue) -> bool:
    """True if a document is meant as a request rather than as a mission."""
    return isinstance(stated, dict) and "input" in stated and "goal" not in stated
