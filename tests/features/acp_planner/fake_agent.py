# ruff: noqa: ASYNC240 -- it has nothing else to do meanwhile
"""An agent that plays the steps of a JSON file, a list for each prompt; it keeps its session in its home.

`python fake_agent.py STEPS`: a step is a list of its name and arguments, as the methods of `Player` take them. Sessions
remember how many prompts they had; steps of prompts beyond the last list are those of the last.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from acp import RequestError, run_agent
from acp.helpers import update_agent_message_text, update_agent_thought_text
from acp.interfaces import Client
from acp.schema import (
    AgentCapabilities,
    AgentMessageChunk,
    AgentThoughtChunk,
    ContentToolCallContent,
    FileEditToolCallContent,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    StopReason,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
    ToolKind,
    Usage,
)

Content = list[ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent]
HOME = Path(os.environ["HOME"])
OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Player:
    """An agent; its methods before the steps are those that the SDK calls by name."""

    def __init__(self, steps: list[list[list[object]]]) -> None:
        self.steps = steps
        self.session, self.allowed = "", True
        self.stop: StopReason = "end_turn"
        self.client: Client

    def on_connect(self, client: Client) -> None:
        self.client = client

    async def initialize(self, protocol_version: int, **_: object) -> InitializeResponse:
        return InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities(load_session=True))

    async def new_session(self, cwd: str, **_: object) -> NewSessionResponse:
        self.session = f"s{len(list(HOME.glob('s*.json'))) + 1}"
        self.store([])
        return NewSessionResponse(session_id=self.session)

    async def load_session(self, cwd: str, session_id: str, **_: object) -> LoadSessionResponse:
        if not self.place(session_id).exists():
            raise RequestError(-32602, "unknown session")
        self.session = session_id
        for said in json.loads(self.place(session_id).read_text()):  # what was said is said again
            await self.say(said)
            await self.call("call_1", "edit", "an old call", {})
            await self.done("call_1")
        return LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[TextContentBlock], **_: object) -> PromptResponse:
        said = [*json.loads(self.place(session_id).read_text()), prompt[0].text]
        self.store(said)
        for name, *given in self.steps[min(len(said), len(self.steps)) - 1]:
            await getattr(self, str(name))(*given)
        usage = Usage(total_tokens=110, input_tokens=100, output_tokens=10)
        return PromptResponse(stop_reason=self.stop, usage=usage)

    async def cancel(self, session_id: str, **_: object) -> None:
        pass

    def place(self, session: str) -> Path:
        return HOME / f"{session}.json"

    def store(self, said: list[str]) -> None:
        self.place(self.session).write_text(json.dumps(said))

    async def send(
        self, update: ToolCallStart | ToolCallProgress | AgentMessageChunk | AgentThoughtChunk
    ) -> None:
        await self.client.session_update(session_id=self.session, update=update)

    # -- steps

    async def say(self, words: str) -> None:
        await self.send(update_agent_message_text(words))

    async def think(self, words: str) -> None:
        await self.send(update_agent_thought_text(words))

    async def call(
        self, call: str, kind: ToolKind, title: str, given: object, path: str | None = None
    ) -> None:
        places = [ToolCallLocation(path=path)] if path else None
        await self.send(
            ToolCallStart(
                session_update="tool_call", tool_call_id=call, kind=kind, title=title, raw_input=given,
                status="in_progress", locations=places,
            )
        )  # fmt: skip

    async def done(self, call: str, said: str = "", status: ToolCallStatus = "completed") -> None:
        content: Content = [
            ContentToolCallContent(type="content", content=TextContentBlock(type="text", text=said))
        ]
        await self.send(
            ToolCallProgress(
                session_update="tool_call_update", tool_call_id=call, status=status, content=content
            )
        )

    async def write(self, path: str, text: str) -> None:
        """Write a file, if what was asked for last is allowed."""
        if self.allowed:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text)

    async def ask(  # noqa: PLR0917 -- steps have no names for their arguments
        self, call: str, kind: ToolKind, title: str, given: object, path: str = "", text: str | None = None
    ) -> None:
        """Ask for permission of a call, and tell how it went."""
        content: Content | None = None
        if text is not None:
            old = Path(path).read_text() if Path(path).exists() else None
            content = [FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=text)]
        update = ToolCallUpdate(tool_call_id=call, kind=kind, title=title, raw_input=given, content=content)
        answer = await self.client.request_permission(
            session_id=self.session, tool_call=update, options=OPTIONS
        )
        chosen = answer.outcome.option_id if answer.outcome.outcome == "selected" else "cancelled"
        self.allowed = chosen == "yes"
        with (HOME / "answers").open("a") as file:
            file.write(f"{chosen}\n")

    async def answers(self) -> None:
        """Say what was answered until now."""
        await self.say(" ".join((HOME / "answers").read_text().split()))

    async def settle(self, call: str) -> None:
        await self.done(call, "" if self.allowed else "refused", "completed" if self.allowed else "failed")

    async def raw(self, line: str) -> None:
        sys.stdout.write(line)
        sys.stdout.flush()

    async def flood(self, times: int) -> None:
        for _ in range(times):
            await self.say("")
            await self.think("again")

    async def endless(self) -> None:
        os.set_blocking(1, True)
        for _ in range(400):
            os.write(1, b"x" * 65536)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def die(self) -> None:
        """Die the first time."""
        mark = HOME / "died"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    async def end(self, reason: StopReason) -> None:
        self.stop = reason

    async def fail(self, code: int, words: str) -> None:
        raise RequestError(code, words)


if __name__ == "__main__":
    player = Player(json.loads(Path(sys.argv[1]).read_text()))
    asyncio.run(run_agent(player, use_unstable_protocol=True))  # type: ignore[arg-type]  # it has some methods
