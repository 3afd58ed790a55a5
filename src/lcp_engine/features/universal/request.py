"""A request of a user to an agent (AgentRequest): a goal, who asks, and in which session. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator

from pydantic import Field, JsonValue, ValidationError

from lcp_engine.core.mission.parse import faults_of, read_stated, refuse_all, without_variables
from lcp_engine.core.mission.spec import Background
from lcp_engine.core.protocol.envelope import UUID, Envelope, RequestId, Time
from lcp_engine.core.safe_text import one_line, shortened

MOST_FILES = 50
"""Open files that a turn is shown."""
_LONGEST = 300


class CursorPosition(Envelope):
    """The place in a file where the user is."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


class RequestEnvironment(Envelope):
    """The editor of the user; each turn is shown it, and memory about its files is chosen first."""

    editor: str | None = Field(default=None, description="Its name.")
    open_files: list[str] | None = Field(default=None, description="The files that are open.")
    cursor_position: CursorPosition | None = Field(default=None, description="Where the user is.")


class RequestProject(Envelope):
    """The project that the user works on; each turn is shown its name, language and framework."""

    name: str | None = None
    language: str | None = None
    framework: str | None = None
    root_directory: str | None = Field(
        default=None,
        description="Its directory, which has to be the mission's root; it never chooses the root.",
    )


class RequestMetadata(Envelope):
    """What a request says about its context."""

    environment: RequestEnvironment = RequestEnvironment()
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

    @property
    def background(self) -> Background:
        """The facts that a mission for it keeps besides its goal."""
        environment, content = self.metadata.environment, {**self.as_json(), "timestamp": None}
        cursor = environment.cursor_position
        opened = dict.fromkeys([*(environment.open_files or ()), (cursor and cursor.file) or ""])
        facts = [f"- {name}: {shortened(one_line(fact), _LONGEST)}" for name, fact in self._facts()]
        said = "The user's editor and project, as the request states them:"
        return Background(
            text="\n".join((said, *facts)) if facts else "",
            files=tuple(filter(None, opened)),
            content=hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest(),
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        environment, project = self.metadata.environment, self.metadata.project
        stated = {
            "project": project.name, "language": project.language, "framework": project.framework,
            "editor": environment.editor,
        }  # fmt: skip
        yield from ((name, fact) for name, fact in stated.items() if fact)
        opened = environment.open_files or []
        yield from (("open file", file) for file in opened[:MOST_FILES])
        if len(opened) > MOST_FILES:
            yield "open files that are not listed", f"{len(opened) - MOST_FILES:,}"
        cursor = environment.cursor_position or CursorPosition()
        places = {"line": cursor.line, "column": cursor.column}
        place = [cursor.file or "", *(f"{name} {at}" for name, at in places.items() if at is not None)]
        if any(place):
            yield "cursor", ", ".join(filter(None, place))


def parse_request(text: str, *, source: str) -> AgentRequest | None:
    """The request that `text` (JSON or YAML) states; None if it is a mission. Raises `INVALID_MISSION`."""
    stated = read_stated(text, source)
    if not _is_request(stated):
        return None
    try:
        return AgentRequest.model_validate(stated)
    except ValidationError as refused:
        refuse_all(faults_of(refused, AgentRequest), source)


def mission_of(request: AgentRequest) -> str:
    """The text of a mission file with the goal of a request."""
    return json.dumps(without_variables({"name": "request", "goal": request.input}))


def _is_request(stated: JsonValue) -> bool:
    """True if a document is meant as a request rather than as a mission."""
    return isinstance(stated, dict) and "input" in stated and "goal" not in stated
