"""Answer the requests of an editor: a conversation is the missions that were launched in it."""

from __future__ import annotations

import asyncio
import hashlib
import signal
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from acp import PROTOCOL_VERSION, RequestError, run_agent
from acp.helpers import start_tool_call, update_available_commands
from acp.schema import (
    AgentCapabilities,
    AvailableCommand,
    ClientCapabilities,
    CloseSessionResponse,
    EmbeddedResourceContentBlock,
    Implementation,
    InitializeResponse,
    ListSessionsResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptCapabilities,
    PromptResponse,
    ResourceContentBlock,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionInfo,
    SessionListCapabilities,
    SessionResumeCapabilities,
    TextContentBlock,
    TextResourceContents,
)

from lcp_engine import Engine, ErrorCode, LcpError, MissionSpec, NotFound
from lcp_engine.api.user import user_name
from lcp_engine.cli.commands.load_mission import MissionOptions, load, load_goal
from lcp_engine.cli.json_rpc import Stdio
from lcp_engine.core.mission.spec import Background
from lcp_engine.core.safe_text import fenced, is_storable, one_line, shortened
from lcp_engine.errors import GENERAL
from lcp_engine.features.editors.session import Session, StopReason
from lcp_engine.features.editors.shown import content_of_diffs, places_of_diffs
from lcp_engine.inbox import Diff, Undo
from lcp_engine.settings import resolve_root

if TYPE_CHECKING:
    from acp.connection import StreamEvent
    from acp.interfaces import Client

    from lcp_engine.planners.environment import PlannerEnvironment

MOST_PROMPTS = 32
"""Missions that one editor has executed at the same time."""
MOST_SESSIONS = 100
_LOOKED_THROUGH = 1000
"""Sessions of a list, and missions that are looked through for it; its cursor is where the next one begins."""
_NOT_FOUND, _INVALID = -32002, -32602
_MOST_EARLIER = 5
_LONGEST_NAME, _LONGEST_SAID, _LONGEST_RESOURCE = 40, 500, 20_000
_COMMANDS = (
    AvailableCommand(
        name="undo", description="Take back what the newest mission changed, or one job: /undo 12."
    ),
    AvailableCommand(
        name="continue", description="Go on with the newest mission, and ask about its held jobs."
    ),
)


@dataclass(frozen=True)
class Prompt:
    """A message of the person, as the request that a mission is launched for."""

    id: str
    session_id: str
    user_id: str
    goal: str
    background: Background


@dataclass
class EditorAgent:
    """Answers an editor. Its methods are those that the SDK calls by name."""

    engine: Engine
    options: MissionOptions
    environment: PlannerEnvironment
    threads: int

    def __post_init__(self) -> None:
        self._sessions = dict[str, Session]()
        self._runners = ThreadPoolExecutor(MOST_PROMPTS, thread_name_prefix="lcp-acp-runner")
        self._client: Client | None = None
        self._editor = ""
        self._takes_forms = False

    def on_connect(self, client: Client) -> None:
        self._client = client

    # -- Sessions

    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: ClientCapabilities | None = None,
        client_info: Implementation | None = None,
        **_: object,
    ) -> InitializeResponse:
        if client_info is not None:
            self._editor = f"{client_info.title or client_info.name} {client_info.version}"
        takes = None if client_capabilities is None else client_capabilities.elicitation
        self._takes_forms = takes is not None and takes.form is not None
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_info=Implementation(name="lcp-engine", title="LCP engine", version=version("lcp-engine")),
            agent_capabilities=AgentCapabilities(
                load_session=True,
                prompt_capabilities=PromptCapabilities(embedded_context=True),
                session_capabilities=SessionCapabilities(
                    list=SessionListCapabilities(),
                    resume=SessionResumeCapabilities(),
                    close=SessionCloseCapabilities(),
                ),
            ),
            auth_methods=[],
        )

    async def new_session(
        self, cwd: str, mcp_servers: Sequence[object] | None = None, **_: object
    ) -> NewSessionResponse:
        with in_words():
            loaded = await asyncio.to_thread(self._spec, cwd)
        session = self._open(f"sess-{uuid4()}", loaded[1])
        if mcp_servers:
            session.notice = "The MCP servers of the editor are not used: those of the mission file are."
        return NewSessionResponse(session_id=session.id)

    async def load_session(self, cwd: str, session_id: str, **_: object) -> LoadSessionResponse:
        await self._load(cwd, session_id, silently=False)
        return LoadSessionResponse()

    async def resume_session(self, cwd: str, session_id: str, **_: object) -> ResumeSessionResponse:
        await self._load(cwd, session_id, silently=True)
        return ResumeSessionResponse()

    async def list_sessions(
        self, cwd: str | None = None, cursor: str | None = None, **_: object
    ) -> ListSessionsResponse:
        with in_words():
            return await asyncio.to_thread(self._listed, cwd, cursor)

    def _listed(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """Sessions of missions before the one that the cursor names, each in the place of its newest mission."""
        if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
            message = f"cursor is {shortened(cursor, 40)}; one that a list of sessions had is expected"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        root = None if cwd is None else str(_absolute(cwd).resolve())
        before = None if cursor is None else int(cursor)
        page = self.engine.missions(before=before, limit=_LOOKED_THROUGH)
        found = dict[str, SessionInfo]()
        behind = page[-1].id if len(page) == _LOOKED_THROUGH else None
        for mission in page:
            id_ = mission.session
            if not id_ or not mission.root or root not in (None, mission.root) or id_ in found:
                continue
            if len(found) == MOST_SESSIONS:
                behind = mission.id + 1
                break
            if before is not None and self.engine.missions(session=id_, limit=1)[0].id >= before:
                continue  # it was listed
            last = (mission.ended_at or mission.started_at or mission.created_at).isoformat()
            found[id_] = SessionInfo(session_id=id_, cwd=mission.root, title=mission.name, updated_at=last)
        following = None if behind is None else str(behind)
        return ListSessionsResponse(sessions=[*found.values()], next_cursor=following)

    async def close_session(self, session_id: str, **_: object) -> CloseSessionResponse:
        session = self._sessions.pop(session_id, None)
        if session is not None and session.following is not None:
            session.following.cancel()
        return CloseSessionResponse()

    def _open(self, session_id: str, root: Path) -> Session:
        assert self._client is not None
        session = Session(
            session_id, root, self.engine, self._client, self._runners, self.threads, self._takes_forms
        )
        self._sessions[session_id] = session
        return session

    async def _load(self, cwd: str, session_id: str, *, silently: bool) -> None:
        with in_words():
            root = await asyncio.to_thread(self._directory, cwd)
            if not is_storable(session_id):
                raise _unknown(session_id)
            missions = (await asyncio.to_thread(self.engine.missions, session=session_id))[::-1]
            if not missions:
                raise _unknown(session_id)
            if any(mission.root != str(root) for mission in missions):
                message = f"session {session_id} is about {missions[0].root}, not about {root}"
                raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
            await self.close_session(session_id)
            session = self._open(session_id, root)
            await session.replay(missions, silently=silently)
        await self._offer_commands(session_id)

    def sent(self, event: StreamEvent) -> Coroutine[object, object, None] | None:
        """Offer the commands of a session once the editor knows its id."""
        result = event.message.get("result")
        started = (
            result.get("sessionId") if isinstance(result, dict) and event.direction == "outgoing" else None
        )
        return None if started is None else self._offer_commands(str(started))

    async def _offer_commands(self, session_id: str) -> None:
        assert self._client is not None
        await self._client.session_update(session_id=session_id, update=update_available_commands(_COMMANDS))

    # -- Messages

    async def prompt(self, session_id: str, prompt: Sequence[object], **_: object) -> PromptResponse:
        session = self._known(session_id)
        with in_words():
            message = await asyncio.to_thread(self._message, session, prompt)
        if (following := session.following) is None:
            session.is_cancelled = False
            session.following = following = asyncio.create_task(self._answer(session, message))
        elif session.mission_id is None or message.goal.startswith(
            tuple(f"/{one.name}" for one in _COMMANDS)
        ):
            raise RequestError(_INVALID, "the message before is still being answered")
        else:
            with in_words():
                await asyncio.to_thread(self._take, session, session.mission_id, message.goal)
        await asyncio.wait([following])  # it goes on if this request is withdrawn
        return PromptResponse(stop_reason="cancelled" if following.cancelled() else following.result())

    async def cancel(self, session_id: str, **_: object) -> None:
        session = self._sessions.get(session_id)
        if session is not None and session.following is not None:
            session.cancel()

    def close(self) -> None:
        """Stop following; what is held stays so, and what is queued is left to other runners."""
        for session in self._sessions.values():
            if session.following is not None:
                session.following.cancel()
        self._runners.shutdown(wait=False, cancel_futures=True)

    def _known(self, session_id: str) -> Session:
        if (session := self._sessions.get(session_id)) is None:
            with in_words():
                raise _unknown(session_id)
        return session

    async def _answer(self, session: Session, message: Prompt) -> StopReason:
        try:
            if session.notice:
                await session.think(session.notice)
                session.notice = ""
            return await self._carry_out(session, message)
        except LcpError as refused:
            await session.say(f"{refused}. {refused.failed.recommendation}")
            return "end_turn"
        except ConnectionError:  # the editor has gone
            return "cancelled"
        finally:
            session.following = None

    async def _carry_out(self, session: Session, message: Prompt) -> StopReason:
        word, _, rest = message.goal.partition(" ")
        if word == "/undo":
            await self._undo(session, rest.strip())
            return "end_turn"
        mission_id = session.mission_id
        if word == "/continue":
            session.rejecting = session.asking = None
            if mission_id is None:
                raise LcpError(
                    ErrorCode.WRONG_STATE, "no mission was launched in this conversation", advice=GENERAL
                )
        elif (
            mission_id is None or (await asyncio.to_thread(self.engine.mission, mission_id)).status.has_ended
        ):
            session.begin(await asyncio.to_thread(self._launch, session, message))
        else:
            await asyncio.to_thread(self._take, session, mission_id, message.goal)
        return await session.follow()

    def _launch(self, session: Session, message: Prompt) -> int:
        spec, root = self._spec(str(session.root))
        words = " ".join(message.goal.split())
        name = words if len(words) <= _LONGEST_NAME else f"{words[: _LONGEST_NAME - 1]}…"
        spec = spec.model_copy(update={"goal": message.goal, "name": name})
        return self.engine.launch(spec, root=root, request=message).id

    def _take(self, session: Session, mission_id: int, words: str) -> None:
        """Take what the person says while the mission is not over: a reason, an answer, a reply, else a message."""
        rejecting, session.rejecting = session.rejecting, None
        if rejecting is not None:
            self.engine.reject(rejecting, words)
            return
        asking, session.asking = session.asking, None
        if asking is None:
            self.engine.say(mission_id, words)
        else:
            asking.answer(self.engine, words)

    async def _undo(self, session: Session, words: str) -> None:
        made, diffs = await asyncio.to_thread(self._take_back, session, words)
        if made.job_id is None:
            await session.say("There is nothing to undo.")
            return
        root = str(session.root)
        shown = start_tool_call(
            f"undo-{made.job_id}", f"undo {words}".strip(), kind="edit", status="completed",
            content=content_of_diffs(diffs, root), locations=places_of_diffs(diffs, root),
        )  # fmt: skip
        await session.show(shown)
        count = len(made.files)
        await session.say(
            f"{count:,} file{'s are' if count != 1 else ' is'} as before mission {made.mission_id}."
        )
        if made.mission_id == session.mission_id:
            await session.replay([self.engine.mission(made.mission_id)], silently=True)

    def _take_back(self, session: Session, words: str) -> tuple[Undo, Sequence[Diff]]:
        missions = [mission.id for mission in self.engine.missions(session=session.id)]
        job = self.engine.job(int(words)) if words.isdecimal() and len(words) < 19 else None
        if words and (job is None or job.mission_id not in missions):
            message = f"{words!r} is no job of this conversation; the number of one is expected"
            raise LcpError(ErrorCode.NOT_FOUND, message, advice=GENERAL)
        if not missions:
            message = "no mission was launched in this conversation"
            raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
        mission, number = (missions[0], None) if job is None else (None, job.id)
        shown = self.engine.undo(mission, job_id=number, dry_run=True).shown
        diffs = self.engine.undo_diffs(mission, job_id=number, shown=shown)
        return self.engine.undo(mission, job_id=number, shown=shown), diffs

    # -- What a message and a directory state

    def _message(self, session: Session, blocks: Sequence[object]) -> Prompt:
        words, files, resources = list[str](), list[str](), list[str]()
        for block in blocks:
            match block:
                case TextContentBlock():
                    words.append(block.text)
                case ResourceContentBlock():
                    files.append(_named(block.uri, session.root))
                    words.append(f"`{files[-1]}`")
                case EmbeddedResourceContentBlock(resource=TextResourceContents() as resource):
                    files.append(_named(resource.uri, session.root))
                    words.append(f"`{files[-1]}`")
                    resources.append(f"{files[-1]}:\n{fenced(shortened(resource.text, _LONGEST_RESOURCE))}")
                case _:
                    raise RequestError(_INVALID, "a message is text, with links to files and texts of files")
        goal = "".join(words).strip()
        if not goal or not is_storable(goal):
            raise RequestError(_INVALID, "the message has no text, or characters that are none")
        facts = [f"The user's editor is {one_line(self._editor)}."] if self._editor else []
        text = "\n\n".join([*facts, *resources, *self._earlier(session)])
        content = hashlib.sha256(f"{goal}\0{text}".encode()).hexdigest()
        background = Background(text=text, files=tuple(dict.fromkeys(files)), content=content)
        return Prompt(f"req-{uuid4()}", session.id, user_name(), goal, background)

    def _earlier(self, session: Session) -> Iterator[str]:
        """Results of the missions before, so that a message can be about them."""
        if session.mission_id is None:
            return
        yield "Earlier in this conversation, the oldest first:"
        for mission in self.engine.missions(session=session.id, limit=_MOST_EARLIER)[::-1]:
            came = mission.summary or str(mission.error.get("user_message") or mission.status)
            yield f"- {shortened(mission.goal, _LONGEST_SAID)}: {shortened(came, _LONGEST_SAID)}"

    def _spec(self, cwd: str) -> tuple[MissionSpec, Path]:
        """The mission that is launched over a directory, but for its goal. Raises like `load`."""
        options = replace(self.options, root=self._directory(cwd))
        if options.mission:
            spec, root, _ = load(options, self.environment)
        else:
            spec, root, _ = load_goal(replace(options, mission="To be said."), self.environment)
        return spec, root

    def _directory(self, cwd: str) -> Path:
        path = _absolute(cwd)
        return resolve_root(None, path, path)


async def serve(
    engine: Engine,
    options: MissionOptions,
    environment: PlannerEnvironment,
    threads: int,
    streams: tuple[BinaryIO, BinaryIO],
) -> None:
    """Answer an editor until it goes, or a signal says so."""
    agent, transport = EditorAgent(engine, options, environment, threads), Stdio(*streams)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, transport.end)
    try:
        # Not a subclass of the SDK's protocol, whose stubs would answer for what is not there.
        await run_agent(agent, transport, observers=[agent.sent], use_unstable_protocol=True)  # type: ignore[arg-type]
    finally:
        agent.close()
        await transport.close()


@contextmanager
def in_words() -> Iterator[None]:
    """Refuse a request with the sentence, the code and the advice of an error."""
    try:
        yield
    except LcpError as refused:
        code = _NOT_FOUND if isinstance(refused, NotFound) else _INVALID
        about = {"error_code": str(refused.code), "advice": refused.failed.recommendation}
        raise RequestError(code, str(refused), about) from refused


def _absolute(cwd: str) -> Path:
    path = Path(cwd)
    if not is_storable(cwd) or not path.is_absolute():
        message = f"cwd is {cwd!r}; the absolute path of a directory is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return path


def _unknown(session_id: str) -> LcpError:
    message = f"session {shortened(session_id, 100)} is unknown: no mission was launched in it"
    return LcpError(ErrorCode.NOT_FOUND, message, advice="Begin a new conversation.")


def _named(uri: str, root: Path) -> str:
    """A file as a mission names it: relative to its root, if it is below it."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return one_line(uri)
    path = Path(unquote(parts.path))
    return one_line(str(path.relative_to(root) if path.is_relative_to(root) else path))
