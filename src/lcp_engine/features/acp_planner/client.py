"""Talk to an agent as its client: one session, one prompt, and what it says, does and asks for meanwhile."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from typing import BinaryIO, Self

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent
from acp.client.connection import ClientSideConnection
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    Implementation,
    InitializeResponse,
    PermissionOption,
    PromptResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCall,
    ToolCallUpdate,
)
from pydantic import BaseModel

from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.acp_planner.calls import Calls, Decision

_LOOK_SECONDS = 0.2
"""Seconds between two looks for a decision."""
_AUTH_REQUIRED = -32000
_MOST_SAID = 100_000
"""Characters of the last message of an agent that are kept."""
_CANCEL_SECONDS = 2.0
"""Seconds that an agent may take to end a prompt that is cancelled."""


MOST_LINE = 16 * 1024 * 1024
"""Bytes of a message of an agent; one that sends more is ended."""


@dataclass(frozen=True)
class Terms:
    """Terms of a conversation: how it is to begin, and the most seconds that each part of it may take."""

    agent: str
    directory: str
    session: str | None
    """The session of an earlier turn."""
    auth: str | None
    mode: str | None
    seconds: float
    silence: float
    decision: float
    """How long a held call may keep the agent waiting."""
    opened: Callable[[str], object]
    """Called with the session once it is there."""


@dataclass(frozen=True)
class Said:
    """End of a turn: the reason that the agent gives, its last message, and what it says of tokens."""

    stop_reason: str
    message: str
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass
class Conversation:
    """Answers an agent. Its methods without a line of their own are those that the SDK calls by name."""

    terms: Terms
    calls: Calls
    hear: Callable[[str], object]
    _session: str = ""
    _is_replayed: bool = False
    _heard: float = field(default_factory=time.monotonic)
    _asking: int = 0
    _parts: list[str] = field(default_factory=list)
    _size: int = 0

    def __post_init__(self) -> None:
        self._fault: asyncio.Future[None] | None = None

    async def session_update(self, session_id: str, update: BaseModel, **_: object) -> None:
        self._heard = time.monotonic()
        if self._is_replayed or session_id != self._session:
            return
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=said)):
                self._say(said)
                self.hear(said)
            case AgentThoughtChunk(content=TextContentBlock(text=said)):
                self.hear(said)
            case AgentPlanUpdate():
                self.hear("\n".join(["", *(f"- {one.content}" for one in update.entries), ""]))
            case ToolCall() | ToolCallUpdate():
                if isinstance(update, ToolCall):
                    self._parts.clear()
                    self._size = 0
                    self.hear(f"\n[{one_line(update.title)}]\n")
                with self._failing():
                    self.calls.update(update)
            case _:
                pass

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: Sequence[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        self._heard = time.monotonic()
        decided = Decision.CANCEL
        if session_id == self._session:
            with self._failing():
                decided, held = self.calls.ask(tool_call)
                if held is not None:
                    decided = await self._decided(held)
        wanted = {Decision.ALLOW: "allow_once", Decision.REJECT: "reject_once"}.get(decided)
        chosen = next((one for one in options if one.kind == wanted), None)
        if chosen is None and decided is Decision.ALLOW:
            chosen = next((one for one in options if one.kind == "reject_once"), None)
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id)
        )

    def converse(self, prompt: str, source: BinaryIO, sink: BinaryIO) -> Said:
        """Have the agent answer a prompt. Raises `PLANNER_FAILED`, `PLANNER_REFUSED`, and what `Calls` raises."""
        return asyncio.run(self._converse(prompt, source, sink))

    async def _converse(self, prompt: str, source: BinaryIO, sink: BinaryIO) -> Said:
        self._fault = asyncio.get_running_loop().create_future()
        pipes = await _Pipes.opened(source, sink)
        # Not a subclass of the SDK's protocol, whose stubs would answer for what is not there.
        agent = connect_to_agent(self, pipes)  # type: ignore[arg-type]
        turn = asyncio.ensure_future(self._turn(agent, pipes, prompt))
        try:
            until = time.monotonic() + self.terms.seconds
            while not turn.done() and not self._fault.done():
                await asyncio.wait((turn, self._fault), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                self._check_time(until)
            if self._fault.done():
                self._fault.result()
            return turn.result()
        except (LcpError, TimeoutError):
            await self._cancel(agent, turn)
            raise
        finally:
            turn.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await turn
            if not self._fault.done():
                self._fault.cancel()
            with suppress(ConnectionError):
                await agent.close()

    async def _turn(self, agent: ClientSideConnection, pipes: _Pipes, prompt: str) -> Said:
        try:
            begun = await self._begin(agent)
            await self._open(agent, begun)
            answer = await agent.prompt(
                session_id=self._session, prompt=[TextContentBlock(type="text", text=prompt)]
            )
        except RequestError as error:
            raise self._refusal(error) from error
        except ConnectionError as error:
            fact = (
                f"it sent a line of more than {MOST_LINE:,} bytes"
                if pipes.is_too_long
                else "it ended before it answered"
            )
            raise self._failed(fact) from error
        return self._said(answer)

    async def _begin(self, agent: ClientSideConnection) -> InitializeResponse:
        begun = await agent.initialize(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(read_text_file=False, write_text_file=False), terminal=False
            ),
            client_info=Implementation(name="lcp-engine", title="LCP engine", version=version("lcp-engine")),
        )
        if begun.protocol_version != PROTOCOL_VERSION:
            fact = (
                f"it speaks version {begun.protocol_version} of the protocol, {PROTOCOL_VERSION} is expected"
            )
            advice = "Install a version of it that does: docs/agents.md names those that were tried."
            raise LcpError(ErrorCode.PLANNER_REFUSED, f"{self.terms.agent}: {fact}", advice=advice)
        if self.terms.auth is not None:
            await agent.authenticate(method_id=self.terms.auth)
        return begun

    async def _open(self, agent: ClientSideConnection, begun: InitializeResponse) -> None:
        """Load the session of the turn before, else begin one."""
        known, able = self.terms.session, begun.agent_capabilities
        if known is not None and able is not None and able.load_session:
            self._is_replayed = True
            with suppress(RequestError):  # a new one then
                await agent.load_session(cwd=self.terms.directory, session_id=known, mcp_servers=[])
                self._session = known
            self._is_replayed = False
        if not self._session:
            self._session = (await agent.new_session(cwd=self.terms.directory, mcp_servers=[])).session_id
        self.calls.session = self._session
        self.terms.opened(self._session)
        if self.terms.mode is not None:
            await agent.set_session_mode(session_id=self._session, mode_id=self.terms.mode)

    async def _cancel(self, agent: ClientSideConnection, turn: asyncio.Future[Said]) -> None:
        if self._session and not turn.done():
            with suppress(ConnectionError, RequestError, TimeoutError):
                await agent.cancel(session_id=self._session)
                await asyncio.wait((turn,), timeout=_CANCEL_SECONDS)

    async def _decided(self, job_id: int) -> Decision:
        """Decision of people on a held call, for which the agent waits."""
        until = time.monotonic() + self.terms.decision
        self._asking += 1
        try:
            while (decided := self.calls.decision(job_id)) is None:
                if time.monotonic() > until:
                    return Decision.CANCEL
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._asking -= 1
            self._heard = time.monotonic()
        return decided

    def _failing(self) -> _Failing:
        return _Failing(self)

    def fail(self, error: LcpError) -> None:
        """End the conversation with an error."""
        if self._fault is not None and not self._fault.done():
            self._fault.set_exception(error)

    def _check_time(self, until: float) -> None:
        now = time.monotonic()
        if now > until:
            raise self._failed(f"it did not end its turn within {self.terms.seconds:g} s")
        if not self._asking and now - self._heard > self.terms.silence:
            raise self._failed(f"it said nothing for {self.terms.silence:g} s")

    def _say(self, said: str) -> None:
        if self._size < _MOST_SAID:
            self._parts.append(said)
            self._size += len(said)

    def _said(self, answer: PromptResponse) -> Said:
        message, used = "".join(self._parts).strip()[:_MOST_SAID], answer.usage
        if used is None:
            return Said(answer.stop_reason, message)
        return Said(answer.stop_reason, message, used.input_tokens, used.output_tokens)

    def _failed(self, fact: str) -> LcpError:
        return LcpError(ErrorCode.PLANNER_FAILED, f"{self.terms.agent}: {fact}", advice=GENERAL)

    def _refusal(self, error: RequestError) -> LcpError:
        said = shortened(one_line(f"{error} {error.data or ''}".strip()), 500)
        if error.code == _AUTH_REQUIRED:
            advice = "Log in, or name its method with planner.auth and its key (docs/agents.md)."
            return LcpError(ErrorCode.PLANNER_REFUSED, f"{self.terms.agent}: {said}", advice=advice)
        return self._failed(said)


class _Pipes:
    """The transport of a connection, a message on each line; what is none is left out."""

    def __init__(
        self, reader: asyncio.StreamReader, ends: tuple[asyncio.BaseTransport, asyncio.WriteTransport]
    ) -> None:
        self._reader = reader
        self._ends = ends
        self.is_too_long = False

    @classmethod
    async def opened(cls, source: BinaryIO, sink: BinaryIO) -> Self:
        """The transport over two pipes that do not block."""
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(MOST_LINE)
        read_end, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        write_end, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sink)
        return cls(reader, (read_end, write_end))

    async def receive(self) -> JsonObject | None:
        """The next message; None at the end, and after a line that is too long."""
        try:
            while True:
                await asyncio.sleep(0)  # what came before may run, however much the agent sends
                if (message := _message_in(await self._reader.readuntil(b"\n"))) is not None:
                    return message
        except asyncio.LimitOverrunError:
            self.is_too_long = True
        except (asyncio.IncompleteReadError, OSError):
            pass
        return None

    async def send(self, message: JsonObject) -> None:
        self._ends[1].write(f"{json.dumps(message, default=str)}\n".encode())

    async def close(self) -> None:
        for one in self._ends:
            one.close()


def _message_in(line: bytes) -> JsonObject | None:
    try:
        message: JsonValue = json.loads(line, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or not isinstance(message.get("method", ""), str):
        return None
    return message if isinstance(message.get("id", 0), str | int | None) else None


def _finite(number: str) -> float | None:
    """None for what JSON cannot state: jobs are read as JSON."""
    return value if isfinite(value := float(number)) else None


class _Failing:
    """Ends a conversation with what is raised within it: the SDK would only log it."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, LcpError):
            self._conversation.fail(error)
            return True
        return False
