"""Envelopes around an agent's work: its response, its error, its tools, memories and files. Pure but for the codes.

Fields beyond those that the reference schemas name are the engine's own. What a reader does not know, it ignores.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field, JsonValue, RootModel

from lcp_engine.core.protocol.envelope import UUID, Envelope, RequestId, Time
from lcp_engine.feature import all_codes


class TakenAction(Envelope):
    """Something that was done to answer a request."""

    action_type: Literal["file_edit", "file_create", "command_execution", "search", "visualization"]
    timestamp: Time = Field(description="When it was done; of a file, when it was last changed.")
    details: dict[str, JsonValue] = Field(default={}, description="What depends on the type.")


class ResponseMetadata(Envelope):
    """What an answer took, and how the mission stands."""

    execution_time_ms: int = Field(default=0, description="For how long at least one job was running.")
    tools_used: list[str] = Field(default=[], description="The kinds of jobs that succeeded.")
    status: str | None = Field(default=None, description="The status of the mission.")
    outcome: str | None = Field(default=None, description="What ended the mission.")
    omitted_actions: int = Field(default=0, description="How many actions are left out of the list.")
    unfulfilled: list[int] = Field(
        default=[], description="The jobs whose effect was refused, failed or waits for a person."
    )
    result: JsonValue = Field(
        default=None, description="The result of a mission that states its schema (`result:`)."
    )


class AgentResponse(Envelope):
    """The answer to a request."""

    id: str = Field(pattern=f"^resp-{UUID}$")
    request_id: RequestId = Field(description="The request that it answers.")
    timestamp: Time = Field(description="When it was made; of a mission, the time of its newest event.")
    content: str = Field(description="The answer, in Markdown.")
    actions: list[TakenAction] = Field(default=[], description="What was done, in the order of time.")
    metadata: ResponseMetadata = ResponseMetadata()


class RecommendedAction(Envelope):
    """What may help after an error."""

    description: str
    action_type: Literal["user_action", "system_retry", "alternative_approach", "contact_support"]
    details: dict[str, JsonValue] = Field(default={}, description="`command`: the command that does it.")


def _describe_codes(schema: dict[str, JsonValue]) -> None:
    schema["examples"] = [str(code) for code in all_codes()]


class ErrorEnvelope(Envelope):
    """Why a request was not answered."""

    model_config = ConfigDict(title="AgentError")

    error_id: str = Field(pattern=f"^err-{UUID}$")
    request_id: RequestId = Field(description="The request that led to it.")
    timestamp: Time = Field(description="When it happened.")
    error_type: Literal[
        "input_error", "execution_error", "resource_error", "permission_error", "timeout_error",
        "system_error",
    ]  # fmt: skip
    error_code: str | None = Field(
        default=None,
        description="A stable name, as docs/errors.md lists them.",
        json_schema_extra=_describe_codes,
    )
    user_message: str = Field(description="What is wrong, in a sentence.")
    technical_details: dict[str, JsonValue] = Field(default={}, description="More about it, for programs.")
    recommended_actions: list[RecommendedAction] = Field(default=[])


class AgentAnswer(RootModel[AgentResponse | ErrorEnvelope]):
    """The answer to a request, or why there is none."""


class ToolParameter(Envelope):
    """One parameter of a tool."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"]
    description: str
    required: bool = False
    default: JsonValue = Field(default=None, description="Its value if it is not given.")
    enum: list[JsonValue] | None = Field(default=None, description="The values that it may have.")


class ToolExample(Envelope):
    """What a tool returned for an input."""

    input: dict[str, JsonValue]
    output: JsonValue


class RateLimit(Envelope):
    """How often a tool may be used."""

    requests_per_minute: int | None = None
    burst: int | None = None


class ToolDefinition(Envelope):
    """A tool: what it is for, what it takes and what it returns."""

    id: str = Field(pattern="^tool-[a-z0-9-]+$")
    name: str
    description: str = Field(description="What it does, and when to use it.")
    parameters: dict[str, ToolParameter]
    result_schema: dict[str, JsonValue] = Field(description="The JSON Schema of its result.")
    examples: list[ToolExample] | None = None
    permission_level: Literal["user", "system", "admin"] = "user"
    rate_limit: RateLimit | None = None


MemoryId: TypeAlias = Annotated[str, Field(pattern=f"^mem-{UUID}$")]


class MemoryMetadata(Envelope):
    """Where a memory comes from, and how much it matters."""

    source: str | None = Field(default=None, description="Such as user_statement or system_observation.")
    associated_files: list[str] | None = None
    importance: int | None = Field(default=None, ge=1, le=10, description="From 1, low, to 10, high.")
    root: str | None = Field(default=None, description="The directory that it is about.")
    author: str | None = Field(default=None, description="The person who said it.")
    mission_id: int | None = Field(default=None, description="The mission that found it out.")
    job_id: int | None = Field(default=None, description="The job of that mission.")
    expires_at: Time | None = Field(default=None, description="When it is forgotten.")


class MemoryEntry(Envelope):
    """Something to be remembered beyond the request in which it was found out."""

    id: MemoryId
    number: int | None = Field(default=None, description="Its number in a database.")
    title: str = Field(description="What it is about, in short.")
    content: str
    created_at: Time
    updated_at: Time | None = None
    tags: list[str] = Field(min_length=1)
    metadata: MemoryMetadata | None = None
    related_memories: list[MemoryId] | None = None


class FileOperation(Envelope):
    """An operation on files; a `bulk_operation` has those that belong together in its parameters."""

    operation: str = Field(
        pattern="^[a-z_]+$",
        examples=["read_file", "write_file", "find_files", "apply_edits", "create_directory", "copy_file"],
    )
    id: str = Field(min_length=1)
    timestamp: Time | None = None
    parameters: dict[str, JsonValue]
    options: dict[str, JsonValue] | None = None
