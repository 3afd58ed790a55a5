"""An editor is the person: it launches missions, decides on held jobs, answers, cancels and undoes."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import pytest
from acp import RequestError, connect_to_agent, spawn_agent_process
from acp.helpers import text_block
from acp.schema import (
    AcceptElicitationResponse,
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    AvailableCommandsUpdate,
    ClientCapabilities,
    DeniedOutcome,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    FileEditToolCallContent,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    UserMessageChunk,
)
from tests.engine.replies import DONE, ask, write
from tests.tables import table

from lcp_engine import Engine
from lcp_engine.changes.unified_diff import MAX_LINES, diff_bytes
from lcp_engine.cli.commands.load_mission import MissionOptions
from lcp_engine.cli.json_rpc import MOST_BYTES, MOST_REQUESTS, OVERLOADED, Stdio
from lcp_engine.core.json_values import object_in
from lcp_engine.core.mission.spec import Background
from lcp_engine.features.editors import agent
from lcp_engine.features.editors.agent import serve
from lcp_engine.features.editors.session import MOST_ASKED
from lcp_engine.features.editors.shown import content_of_diffs
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT

if TYPE_CHECKING:
    from acp.client.connection import ClientSideConnection
    from pydantic import JsonValue
    from tests.engine.conftest import Object

Decide = Callable[[ToolCallUpdate, Sequence[PermissionOption]], Awaitable[str | None]]
RECORDED = sorted(Path(__file__).with_name("recorded").glob("*.jsonl"))
"""Sessions of the TypeScript SDK and of acpx."""
Words = AgentMessageChunk | AgentThoughtChunk | UserMessageChunk
OTHER = ask({"kind": "ask_user", "params": {"question": "Which?", "options": ["red", "blue"]}})


@dataclass
class Editor:
    """A client of the SDK that records what it is shown, and decides as the test says: an option, or None for none."""

    decide: Decide
    updates: list[object] = field(default_factory=list)
    asked: list[ToolCallUpdate] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    withdrawn: int = 0
    forms: list[dict[str, object]] | None = None
    """What is entered in forms, one after another; None if it has none."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: object
    ) -> RequestPermissionResponse:
        self.asked.append(tool_call)
        self.options = [option.option_id for option in options]
        try:
            chosen = await self.decide(tool_call, options)
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise
        if chosen is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen))

    async def create_elicitation(self, message: str, mode: object, **_: object) -> AcceptElicitationResponse:
        assert self.forms
        return AcceptElicitationResponse(action="accept", content=self.forms.pop(0))

    async def session_update(self, session_id: str, update: object, **_: object) -> None:
        self.updates.append(update)

    def said(self, kind: type[Words] = AgentMessageChunk) -> str:
        """The words that it was shown."""
        chunks = [one.content for one in self.updates if isinstance(one, kind)]
        return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextContentBlock))

    def statuses(self, call: str) -> list[str | None]:
        """The statuses of a tool call, in the order in which they came."""
        calls = [one for one in self.updates if isinstance(one, ToolCallStart | ToolCallProgress)]
        return [one.status for one in calls if one.tool_call_id == call]


def choosing(*options: str | None) -> Decide:
    """Choose these options one after another, and then none."""
    left = [*options]

    async def decide(_: ToolCallUpdate, __: Sequence[PermissionOption]) -> str | None:
        return left.pop(0) if left else None

    return decide


@dataclass
class Place:
    """The root of missions, their file, and their database."""

    root: Path
    file: Path
    url: str

    def script(self, *replies: JsonValue, **more: JsonValue) -> None:
        stated: dict[str, JsonValue] = {
            "goal": "Said in the editor.",
            "planner": {"type": "script", "replies": [*replies]},
            **more,
        }
        self.file.write_text(json.dumps(stated))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[tuple[BinaryIO, BinaryIO, Engine]]:
        """What an editor writes and reads, and the engine behind it; the editor may close the first."""
        to_agent, to_editor = os.pipe(), os.pipe()
        with (
            os.fdopen(to_agent[0], "rb") as source, os.fdopen(to_editor[1], "wb", buffering=0) as sink,
            os.fdopen(to_editor[0], "rb") as shown, os.fdopen(to_agent[1], "wb", buffering=0) as sent,
            Engine(self.url, isolation="off") as engine,
        ):  # fmt: skip
            options = MissionOptions(str(self.file))
            serving = asyncio.create_task(serve(engine, options, EMPTY_ENVIRONMENT, 2, (source, sink)))
            try:
                yield sent, shown, engine
            finally:
                sent.close()
                await serving
                sink.close()

    @asynccontextmanager
    async def editing(
        self, editor: Editor
    ) -> AsyncIterator[tuple[ClientSideConnection, Engine, Callable[[], None]]]:
        """A connection of the editor, the engine behind it, and what lets the editor vanish."""
        async with self.serving() as (sent, shown, engine):
            transport = Stdio(shown, sent)
            connection = connect_to_agent(editor, transport, None, use_unstable_protocol=True)  # type: ignore[arg-type]
            forms = (
                None if editor.forms is None else ElicitationCapabilities(form=ElicitationFormCapabilities())
            )
            await connection.initialize(
                protocol_version=1, client_capabilities=ClientCapabilities(elicitation=forms)
            )

            def vanish() -> None:
                transport.end()
                sent.close()

            try:
                yield connection, engine, vanish
            finally:
                vanish()


@pytest.fixture
def place(tmp_path: Path, emptied_database_url: str) -> Place:
    root = tmp_path / "root"
    root.mkdir()
    return Place(root, tmp_path / "mission.json", emptied_database_url)


async def say(connection: ClientSideConnection, session: str, words: str) -> str:
    """The reason why the turn ended that a message began."""
    return (await connection.prompt(session_id=session, prompt=[text_block(words)])).stop_reason


async def opened(connection: ClientSideConnection, place: Place) -> str:
    return (await connection.new_session(cwd=str(place.root), mcp_servers=[])).session_id


def test_an_editor_launches_a_mission_approves_a_write_and_undoes_it(place: Place) -> None:
    place.script(ask(write("a.md", "one\ntwo\n")) | {"commentary": "I write."}, DONE)
    editor = Editor(choosing("allow"))
    command = ("-m", "lcp_engine", "--db", place.url, "acp", "--mission", str(place.file))

    async def talk() -> None:
        async with spawn_agent_process(editor, sys.executable, *command) as (connection, _):  # type: ignore[arg-type]
            started = await connection.initialize(protocol_version=1)
            assert started.agent_capabilities is not None
            assert started.agent_capabilities.load_session
            session = await opened(connection, place)
            assert await say(connection, session, "Write a.md.") == "end_turn"
            assert (place.root / "a.md").read_text() == "one\ntwo\n"
            assert await say(connection, session, "/undo") == "end_turn"
            assert not (place.root / "a.md").exists()

    asyncio.run(talk())
    (call,) = editor.asked
    (diff,) = [one for one in call.content or () if isinstance(one, FileEditToolCallContent)]
    assert (diff.path, diff.old_text, diff.new_text) == (str(place.root / "a.md"), None, "one\ntwo\n")
    assert editor.options == ["allow", "always-0", "reject", "words"]
    assert editor.statuses(call.tool_call_id)[-1] == "completed"
    assert "I write." in editor.said(AgentThoughtChunk)
    assert editor.said().startswith("all done\n")
    assert "1 file is as before mission 1." in editor.said()
    assert any(isinstance(one, AvailableCommandsUpdate) for one in editor.updates)


def test_a_yes_is_for_what_was_shown_and_another_content_is_asked_about_again(place: Place) -> None:
    place.script(ask(write("a.md", "mine\n")), DONE)
    (place.root / "a.md").write_text("first\n")

    async def decide(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> str:
        if len(editor.asked) == 1:
            (place.root / "a.md").write_text("second\n")
        return "allow"

    editor = Editor(decide)

    async def talk() -> None:
        async with place.editing(editor) as (connection, _, _):
            await say(connection, await opened(connection, place), "Go.")

    asyncio.run(talk())
    shown = [part.old_text for call in editor.asked for part in call.content or () if part.type == "diff"]
    assert shown == ["first\n", "second\n"]
    assert (place.root / "a.md").read_text() == "mine\n"


@pytest.mark.both
def test_a_request_is_withdrawn_when_the_job_is_decided_elsewhere(place: Place) -> None:
    place.script(ask(write("a.md", "mine\n")), DONE)
    never = asyncio.Event

    async def decide(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> None:
        (job,) = elsewhere.jobs(states=["held"])
        elsewhere.reject(job.id, "not here", by="anna")
        await never().wait()

    editor = Editor(decide)

    async def talk() -> None:
        async with place.editing(editor) as (connection, _, _):
            assert await say(connection, await opened(connection, place), "Go.") == "end_turn"

    with Engine(place.url) as elsewhere:
        asyncio.run(talk())
    assert editor.withdrawn == 1
    assert "was decided elsewhere by anna" in editor.said()


def test_a_job_stays_held_when_the_editor_vanishes_and_a_loaded_session_asks_again(place: Place) -> None:
    place.script(ask(write("a.md", "mine\n")), DONE)
    vanished = asyncio.Event()

    async def leave(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> None:
        vanished.set()
        await asyncio.Event().wait()

    async def vanish_while_asked() -> str:
        async with place.editing(Editor(leave)) as (connection, _, vanish):
            session = await opened(connection, place)
            saying = asyncio.create_task(say(connection, session, "Go."))
            await vanished.wait()
            vanish()
            with pytest.raises(ConnectionError):
                await saying
            return session

    session = asyncio.run(vanish_while_asked())
    with Engine(place.url) as engine:
        assert [job.state for job in engine.jobs(kinds=["write_file"])] == ["held"]
    editor = Editor(choosing("allow"))

    async def load() -> None:
        async with place.editing(editor) as (connection, _, _):
            (place.root.parent / "link").symlink_to(place.root)
            (listed,) = (await connection.list_sessions(cwd=str(place.root.parent / "link"))).sessions
            assert (await connection.list_sessions()).sessions == [listed]
            assert (await connection.list_sessions(cwd="/")).sessions == []
            assert (listed.session_id, listed.cwd, listed.title) == (session, str(place.root), "Go.")
            await connection.load_session(cwd=str(place.root), session_id=session, mcp_servers=[])
            assert editor.said(UserMessageChunk) == "Go."
            assert await say(connection, session, "/continue") == "end_turn"

    asyncio.run(load())
    assert (place.root / "a.md").read_text() == "mine\n"
    assert editor.said().endswith("all done\n")


def test_sessions_are_listed_once_over_all_pages(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MOST_SESSIONS", 2)
    monkeypatch.setattr(agent, "_LOOKED_THROUGH", 3)
    with Engine(place.url) as engine:
        for number, session in enumerate("abcadb"):
            request = agent.Prompt(
                f"{number}", session, "ada", "Go.", Background(text="", files=(), content="")
            )
            engine.launch({"goal": "Go.", "planner": {"type": "human"}}, root=place.root, request=request)
        editors = agent.EditorAgent(engine, MissionOptions(""), EMPTY_ENVIRONMENT, 0)
        pages, cursor = list[list[str]](), None
        while not pages or cursor is not None:
            page = asyncio.run(editors.list_sessions(cursor=cursor))
            pages.append([one.session_id for one in page.sessions])
            cursor = page.next_cursor
        assert pages == [["b", "d"], ["a", "c"], []]
        with pytest.raises(RequestError, match="one that a list of sessions had is expected"):
            asyncio.run(editors.list_sessions(cursor="x"))


DIFFS = (
    ("a new file", None, b"one\n", [(None, "one\n")]),
    ("a removed file", b"one\n", None, [("one\n", "")]),
    ("no line end", b"one\ntwo", b"one\ntwo\n", [("one\ntwo", "one\ntwo\n")]),
    ("lines like headers", b"@@ a\n-- b\n", b"@@ a\n++ c\n", [("@@ a\n-- b\n", "@@ a\n++ c\n")]),
    ("two hunks", b"1\n" + b"=\n" * 9 + b"2\n", b"3\n" + b"=\n" * 9 + b"4\n",
     [("1\n=\n=\n=\n", "3\n=\n=\n=\n"), ("=\n=\n=\n2\n", "=\n=\n=\n4\n")]),
    ("nothing", b"one\n", b"one\n", ["a.md: nothing changes"]),
    ("hidden", b"", "a\u202eb\n".encode(), [("", "a\u202eb\n"), "<U+202E>"]),
)  # fmt: skip


@table(("before", "after", "shown"), [row[1:] for row in DIFFS], ids=[row[0] for row in DIFFS])
def test_a_diff_is_shown_whole(
    before: bytes | None, after: bytes | None, shown: list[str | tuple[str | None, str]]
) -> None:
    content = content_of_diffs([diff_bytes("a.md", before, after)], "/root")
    for part, expected in zip(content, shown, strict=True):
        if isinstance(expected, tuple):
            assert isinstance(part, FileEditToolCallContent)
            assert (part.path, part.old_text, part.new_text) == ("/root/a.md", *expected)
        else:
            assert expected in part.model_dump_json()


def test_a_person_is_asked_about_eight_jobs_at_a_time(place: Place) -> None:
    jobs = [write(f"{number}.md", "1\n") for number in range(MOST_ASKED + 3)]
    place.script(ask(*jobs), DONE, limits={"max_followups": len(jobs)})
    waiting, most, full = set[str](), list[int](), asyncio.Event()

    async def decide(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> str:
        waiting.add(call.tool_call_id)
        most.append(len(waiting))
        if len(waiting) == MOST_ASKED:
            full.set()
        await full.wait()
        waiting.remove(call.tool_call_id)
        return "reject"

    async def talk() -> None:
        async with place.editing(Editor(decide)) as (connection, _, _):
            assert await say(connection, await opened(connection, place), "Go.") == "end_turn"

    asyncio.run(talk())
    assert (max(most), len(most)) == (MOST_ASKED, len(jobs))


def test_always_is_a_rule_of_the_mission(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), ask(write("a.md", "2\n")), DONE)
    editor = Editor(choosing("always-0"))

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            await say(connection, await opened(connection, place), "Go.")
            assert [str(rule) for rule in engine.rules(1)] == ["write_file /a.md"]

    asyncio.run(talk())
    assert len(editor.asked) == 1
    assert (place.root / "a.md").read_text() == "2\n"


def test_the_message_after_a_rejection_with_words_is_its_reason(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), DONE)
    editor = Editor(choosing("words"))

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            session = await opened(connection, place)
            assert await say(connection, session, "Go.") == "end_turn"
            await say(connection, session, "Not in this file.")
            (job,) = engine.jobs(kinds=["write_file"])
            assert job.state == "rejected"
            assert "Not in this file." in str(job.reason)

    asyncio.run(talk())


def test_a_reason_reaches_its_job_while_another_is_still_asked_about(place: Place) -> None:
    place.script(ask(write("a.md", "1\n"), write("b.md", "2\n")), DONE)
    left, explained = ["words"], asyncio.Event()

    async def decide(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> str:
        if left:
            return left.pop()
        await explained.wait()
        return "allow"

    editor = Editor(decide)

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            session = await opened(connection, place)
            saying = asyncio.create_task(say(connection, session, "Go."))
            while "rejected?" not in editor.said():  # noqa: ASYNC110  # of what the agent sends
                await asyncio.sleep(0.02)
            reason = asyncio.create_task(say(connection, session, "Not in this file."))
            while not (rejected := engine.jobs(states=["rejected"])):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            explained.set()
            assert {*await asyncio.gather(saying, reason)} == {"end_turn"}
            assert ["Not in this file." in str(job.reason) for job in rejected] == [True]

    asyncio.run(talk())


def test_a_message_is_no_reason_for_a_job_of_the_mission_before(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), DONE)
    editor = Editor(choosing("words"))

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            session = await opened(connection, place)
            await say(connection, session, "Go.")
            engine.cancel(1)
            await say(connection, session, "Another.")
            assert await say(connection, session, "And more.") == "end_turn"
            assert "And more." in str(engine.events(2))

    asyncio.run(talk())


def test_a_message_is_answered_when_its_session_is_closed(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), DONE)
    asked = asyncio.Event()

    async def wait(_: ToolCallUpdate, __: Sequence[PermissionOption]) -> None:
        asked.set()
        await asyncio.Event().wait()

    async def talk() -> None:
        async with place.editing(Editor(wait)) as (connection, engine, _):
            session = await opened(connection, place)
            saying = asyncio.create_task(say(connection, session, "Go."))
            await asked.wait()
            await connection.close_session(session_id=session)
            assert await saying == "cancelled"
            assert [job.state for job in engine.jobs(kinds=["write_file"])] == ["held"]

    asyncio.run(talk())


def test_what_is_shown_in_part_is_not_approved(place: Place) -> None:
    place.script(ask(write("a.md", "\n" * (MAX_LINES + 1))), DONE)
    editor = Editor(choosing(None))

    async def talk() -> None:
        async with place.editing(editor) as (connection, _, _):
            await say(connection, await opened(connection, place), "Go.")

    asyncio.run(talk())
    assert editor.options == ["reject", "words"]


def test_the_message_after_a_question_is_its_answer(place: Place) -> None:
    place.script(OTHER, DONE)
    editor = Editor(choosing())

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            session = await opened(connection, place)
            assert await say(connection, session, "Go.") == "end_turn"
            assert "Which?\n  1) red\n  2) blue" in editor.said()
            assert await say(connection, session, "2") == "end_turn"
            (job,) = engine.jobs(kinds=["ask_user"])
            assert job.result is not None
            assert job.result["answer"] == "blue"

    asyncio.run(talk())


def test_a_question_and_a_reason_are_asked_with_forms_where_the_editor_has_them(place: Place) -> None:
    question: JsonValue = {
        "question": "Where to?",
        "fields": [
            {"id": "due", "label": "Due", "type": "number", "required": True, "min": 1},
            {"id": "sure", "label": "Sure", "type": "checkbox"},
        ],
    }
    place.script(OTHER, ask({"kind": "ask_user", "params": question}), ask(write("a.md", "1\n")), DONE)
    editor = Editor(
        choosing("words"), forms=[{"answer": "blue"}, {"due": 0}, {"due": 2}, {"answer": "Not now."}]
    )

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            assert await say(connection, await opened(connection, place), "Go.") == "end_turn"
            first, second = (job.result or {} for job in engine.jobs(kinds=["ask_user"]))
            assert first["answer"] == "blue"
            assert object_in(second["values"])["due"] == 2
            (job,) = engine.jobs(kinds=["write_file"])
            assert (job.state, "Not now." in str(job.reason)) == ("rejected", True)

    asyncio.run(talk())
    assert editor.forms == []
    assert "due" in editor.said()


def test_a_merge_is_approved_as_one_and_a_resumed_session_undoes_it(place: Place) -> None:
    place.script(ask(write("a.md", "1\n"), write("b.md", "2\n")), DONE, stage=True)
    editor, later = Editor(choosing("allow")), Editor(choosing())

    async def talk() -> str:
        async with place.editing(editor) as (connection, _, _):
            session = await opened(connection, place)
            assert await say(connection, session, "Go.") == "end_turn"
            return session

    async def resume(session: str) -> None:
        async with place.editing(later) as (connection, _, _):
            await connection.resume_session(cwd=str(place.root), session_id=session, mcp_servers=[])
            assert not later.said(UserMessageChunk)
            assert (place.root / "b.md").exists()
            await say(connection, session, "/undo")

    session = asyncio.run(talk())
    (call,) = editor.asked
    assert call.kind == "edit"
    assert [one.path for one in call.locations or ()] == [str(place.root / name) for name in ("a.md", "b.md")]
    asyncio.run(resume(session))
    assert [*place.root.iterdir()] == []
    assert "2 files are as before mission 1." in later.said()


def test_a_cancelled_mission_is_followed_by_another_one(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), DONE)
    asked = asyncio.Event()

    async def wait(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> str:
        asked.set()
        if len(editor.asked) == 1:
            await asyncio.Event().wait()
        return "allow"

    editor = Editor(wait)

    async def talk() -> None:
        async with place.editing(editor) as (connection, engine, _):
            session = await opened(connection, place)
            saying = asyncio.create_task(say(connection, session, "Go."))
            await asked.wait()
            await connection.cancel(session_id=session)
            assert await saying == "cancelled"
            assert engine.mission(1).status == "cancelled"
            assert await say(connection, session, "Once more.") == "end_turn"
            assert engine.mission(2).session == session

    asyncio.run(talk())
    assert (place.root / "a.md").read_text() == "1\n"


@pytest.mark.both
def test_a_second_message_reaches_the_planner_of_the_running_mission(place: Place) -> None:
    place.script(ask(write("a.md", "1\n")), DONE)
    asked, go = asyncio.Event(), asyncio.Event()

    async def wait(call: ToolCallUpdate, _: Sequence[PermissionOption]) -> str:
        asked.set()
        await go.wait()
        return "reject"

    async def talk() -> None:
        async with place.editing(Editor(wait)) as (connection, engine, _):
            session = await opened(connection, place)
            saying = [asyncio.create_task(say(connection, session, "Go."))]
            await asked.wait()
            saying.append(asyncio.create_task(say(connection, session, "Be brief.")))
            while not engine.events(1, event="said"):  # noqa: ASYNC110 -- another thread writes it
                await asyncio.sleep(0.01)
            go.set()
            assert await asyncio.gather(*saying) == ["end_turn", "end_turn"]

    asyncio.run(talk())


def test_the_steps_of_a_plan_are_a_plan(place: Place) -> None:
    step: JsonValue = {"id": "first", "tool": "list_files", "parameters": {}}
    place.file.write_text(json.dumps({"goal": "By plan.", "plan": {"id": "p", "steps": [step]}}))
    editor = Editor(choosing())

    async def talk() -> None:
        async with place.editing(editor) as (connection, _, _):
            await say(connection, await opened(connection, place), "Go.")

    asyncio.run(talk())
    plans = [one for one in editor.updates if isinstance(one, AgentPlanUpdate)]
    assert [entry.status for entry in plans[-1].entries] == ["completed"]


def test_what_cannot_be_done_is_refused_in_words(place: Place) -> None:
    place.script(DONE)
    (place.root / "file").touch()

    async def talk() -> None:
        async with place.editing(Editor(choosing())) as (connection, _, _):
            for cwd, words in (
                ("here", "the absolute path of a directory is expected"),
                ("/\ud800", "the absolute path of a directory is expected"),
                (str(place.root / "gone"), "does not exist; a directory is expected"),
                (str(place.root / "file"), "is a file; a directory is expected"),
            ):
                with pytest.raises(RequestError, match=words):
                    await connection.new_session(cwd=cwd, mcp_servers=[])
            with pytest.raises(RequestError, match="session nobody is unknown"):
                await say(connection, "nobody", "Go.")
            for nobody in ("nobody", "\ud800", "a\0b"):
                with pytest.raises(RequestError, match="is unknown"):
                    await connection.load_session(cwd=str(place.root), session_id=nobody, mcp_servers=[])
            session = await opened(connection, place)
            for words in (" ", "a\0b"):
                with pytest.raises(RequestError, match="the message has no text"):
                    await say(connection, session, words)

    asyncio.run(talk())


async def answer_to(sent: BinaryIO, shown: BinaryIO, line: bytes) -> Object:
    """The answer to a line, past what the agent sends besides."""
    await asyncio.to_thread(sent.write, line + b"\n")
    while True:
        message: Object = json.loads(await asyncio.to_thread(shown.readline))
        if "method" not in message:
            return message


BAD = (
    (b"{", -32700, None),
    (b"nope", -32700, None),
    (b"\xff", -32700, None),
    (b"[" * 100_000, -32700, None),
    (b"[]", -32600, None),
    (b"null", -32600, None),
    (b"{}", -32600, None),
    (b'{"id": [1], "method": "initialize"}', -32600, None),
    (b'{"id": true, "result": null}', -32600, None),
    (b'{"id": 1, "method": 7}', -32600, 1),
    (b'{"id": 2, "method": "session/nope"}', -32601, 2),
    (b'{"id": "3", "method": "session/prompt", "params": {}}', -32602, "3"),
    (b'{"id": 4, "method": "session/prompt", "params": [1]}', -32602, 4),
    (b'{"id": 5, "method": "session/new", "params": {"cwd": 7, "mcpServers": []}}', -32602, 5),
    (b'{"id": 6, "text": "%s"}' % (b"a" * MOST_BYTES), -32600, None),
)


def test_what_is_no_message_is_answered_with_an_error_and_the_connection_goes_on(place: Place) -> None:
    place.script(DONE)

    async def talk() -> None:
        async with place.serving() as (sent, shown, _):
            for line, code, id_ in BAD:
                answer = await answer_to(sent, shown, line)
                assert (object_in(answer["error"])["code"], answer["id"]) == (code, id_), line[:60]
            hello = b'{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}'
            assert "result" in await answer_to(sent, shown, hello)

    asyncio.run(talk())


def test_an_editor_that_sends_too_many_requests_is_told() -> None:
    request = b'{"id": %d, "method": "session/list"}\n'

    async def talk() -> None:
        (to_agent, sent), (shown, to_editor) = os.pipe(), os.pipe()
        source, sink = os.fdopen(to_agent, "rb"), os.fdopen(to_editor, "wb", buffering=0)
        transport = Stdio(source, sink)
        os.write(sent, b"".join(request % id_ for id_ in range(MOST_REQUESTS + 1)))
        os.close(sent)
        received = [await transport.receive() for _ in range(MOST_REQUESTS)]
        assert [message and message["id"] for message in received] == [*range(MOST_REQUESTS)]
        assert await transport.receive() is None
        refused = json.loads(os.read(shown, 1000))
        assert (refused["id"], refused["error"]["code"]) == (MOST_REQUESTS, OVERLOADED)
        await transport.send({"id": 0, "result": {}})
        assert json.loads(os.read(shown, 1000)) == {"id": 0, "result": {}}
        await transport.close()
        os.close(shown)
        source.close()
        sink.close()

    asyncio.run(talk())


@pytest.mark.parametrize("client", RECORDED, ids=lambda file: file.stem)
def test_what_another_client_sent_launches_and_approves(place: Place, client: Path) -> None:
    """The messages that a client sent, recorded line by line: requests in order, and its answers to requests."""
    place.script(ask(write("a.md", "one\n")), DONE)
    sent_by_client = [json.loads(line) for line in client.read_text().splitlines()]
    answers = [message for message in sent_by_client if "method" not in message]

    async def talk() -> None:
        async with place.serving() as (sent, shown, engine):
            session, written = "", False
            for message in [one for one in sent_by_client if "method" in one]:
                stated = json.dumps(message).replace("$ROOT", str(place.root)).replace("$SESSION", session)
                await asyncio.to_thread(sent.write, f"{stated}\n".encode())
                while "id" in message:
                    came: Object = json.loads(await asyncio.to_thread(shown.readline))
                    if came.get("id") == message["id"] and "method" not in came:
                        assert "error" not in came
                        session = str(object_in(came["result"]).get("sessionId", session))
                        break
                    if "id" in came:
                        answer = json.dumps({**answers.pop(0), "id": came["id"]}).encode()
                        await asyncio.to_thread(sent.write, answer + b"\n")
                written = written or (place.root / "a.md").exists()
            assert written
            assert (place.root / "a.md").exists() != any("/undo" in str(one) for one in sent_by_client)
            assert engine.mission(1).session == session

    asyncio.run(talk())
    assert answers == []
