"""Missions offered to MCP clients, driven by the SDK's own client in both eras of the protocol."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
import pytest
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    TextContent,
    TextResourceContents,
)
from tests.engine.replies import DONE, ask, write

from lcp_engine import Engine
from lcp_engine.features.mcp_server.door import McpDoor
from lcp_engine.features.mcp_server.listed import Listed
from lcp_engine.features.mcp_server.values import MOST_LONG

if TYPE_CHECKING:
    from mcp.client import ClientRequestContext
    from pydantic import JsonValue

Object: TypeAlias = "dict[str, JsonValue]"
Era: TypeAlias = Literal["legacy", "auto"]
Steps: TypeAlias = Callable[[Client], Awaitable[None]]
Person: TypeAlias = Callable[[ElicitRequestFormParams], ElicitResult]
ERAS: tuple[Era, ...] = ("legacy", "auto")
SECRET = "sk-" + "a1B2" * 8
QUESTION: Object = {"kind": "ask_user", "params": {"question": "Which?", "options": ["red", "blue"]}}


@pytest.fixture
def engine(emptied_database_url: str) -> Iterator[Engine]:
    with Engine(emptied_database_url) as engine:
        yield engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("old\n")
    return root


def launched(engine: Engine, root: Path, *replies: JsonValue, goal: str = "write") -> int:
    mission = engine.launch({"goal": goal, "planner": {"type": "script", "replies": [*replies]}}, root=root)
    engine.work(until_idle=True)
    return mission.id


def run(
    door: McpDoor, steps: Steps, *, era: Era = "legacy", name: str = "tester", asks: Person | None = None
) -> None:
    """Take the steps with a client of that name, whose person answers with `asks`."""

    async def person(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestFormParams)
        assert asks is not None
        return asks(params)

    async def act() -> None:
        info = Implementation(name=name, version="1")
        callback = person if asks is not None else None
        async with Client(door.server, mode=era, client_info=info, elicitation_callback=callback) as client:
            await steps(client)

    anyio.run(act)


def value(result: CallToolResult) -> SimpleNamespace:
    """The value of a tool, which its text states, too."""
    (text,) = result.content
    assert isinstance(text, TextContent)
    assert not result.is_error, text.text
    assert json.loads(text.text) == result.structured_content
    return read(text.text)


def read(text: str) -> SimpleNamespace:
    """JSON with its keys as attributes."""
    found = json.loads(text, object_hook=lambda value: SimpleNamespace(**value))
    assert isinstance(found, SimpleNamespace)
    return found


def refusal(result: CallToolResult) -> tuple[str, str]:
    """The code and the text of a tool error."""
    (text,) = result.content
    assert result.is_error
    assert isinstance(text, TextContent)
    code = (result.structured_content or {}).get("error", {}).get("error_code", "")
    return code, text.text


@pytest.mark.parametrize("era", ERAS)
def test_a_client_launches_follows_and_reports_a_mission(engine: Engine, root: Path, era: Era) -> None:
    (root.parent / "notes.yaml").write_text(
        json.dumps({"goal": "${what}", "planner": {"type": "script", "replies": [ask(write("a.md", "new\n")), DONE]}})
    )  # fmt: skip
    listed = Listed(roots=(root,), missions={"notes": root.parent / "notes.yaml"})

    async def steps(client: Client) -> None:
        order = {"mission": "notes", "variables": {"what": "Write it."}, "key": "once"}
        state = value(await client.call_tool("launch", order))
        assert (state.status, state.runners) == ("running", 0)
        assert value(await client.call_tool("launch", order)).mission == state.mission
        engine.work(until_idle=True)
        state = value(await client.call_tool("show", {"mission": state.mission, "wait_seconds": 60}))
        assert state.status == "waiting"
        assert (state.goal.untrusted, state.goal.left_out) == ("Write it.", 0)
        (held,) = value(await client.call_tool("held")).held
        assert (held.kind, held.awaits, held.about.untrusted) == (
            "write_file",
            "approval",
            "a.md",
        )
        changes = value(await client.call_tool("diff", {"job": held.job}))
        assert "-old\n+new\n" in changes.files[0].diff.untrusted
        (shown,) = (await client.read_resource(f"lcp://jobs/{held.job}/changes")).contents
        assert isinstance(shown, TextResourceContents)
        assert read(shown.text) == changes
        engine.approve(held.job)
        engine.work(until_idle=True)
        report = value(await client.call_tool("report", {"mission": state.mission}))
        assert report.status == "completed"
        assert "a.md" in report.report.untrusted
        (shown,) = (await client.read_resource(f"lcp://missions/{state.mission}/report")).contents
        assert isinstance(shown, TextResourceContents)
        assert (shown.text, shown.mime_type) == (report.report.untrusted, "text/markdown")
        changes = value(await client.call_tool("diff", {"mission": state.mission}))
        assert [one.path.untrusted for one in changes.files] == ["a.md"]
        listed = value(await client.call_tool("missions", {"limit": 1}))
        assert [one.mission for one in listed.missions] == [state.mission]

    run(McpDoor(engine, listed), steps, era=era)
    assert (root / "a.md").read_text() == "new\n"


ORDERS: dict[str, tuple[Object, str]] = {
    "a mission that is not listed": ({"mission": "survey"}, "NOT_ALLOWED"),
    "a mission by its file": ({"mission": "/etc/passwd"}, "NOT_ALLOWED"),
    "another root": ({"mission": "notes", "root": "/tmp"}, "NOT_ALLOWED"),
    "a directory in a root": ({"mission": "notes", "root": "ROOT/sub"}, "NOT_ALLOWED"),
    "a goal where missions are listed": ({"goal": "Do it all."}, "NOT_ALLOWED"),
    "a goal and a mission": ({"goal": "Do it.", "mission": "notes"}, "INVALID_ARGUMENT"),
    "neither": ({}, "INVALID_ARGUMENT"),
    "an unknown variable": ({"mission": "notes", "variables": {"root": "/"}}, "INVALID_ARGUMENT"),
}


def test_nothing_is_launched_that_is_not_listed(engine: Engine, root: Path) -> None:
    (root.parent / "notes.yaml").write_text(json.dumps({"goal": "write", "planner": {"type": "none"}}))
    listed = Listed(roots=(root,), missions={"notes": root.parent / "notes.yaml"})

    async def steps(client: Client) -> None:
        for name, (order, code) in ORDERS.items():
            asked = json.loads(json.dumps(order).replace("ROOT", str(root)))
            assert refusal(await client.call_tool("launch", asked))[0] == code, name
        assert not engine.missions()

    run(McpDoor(engine, listed), steps)


def test_a_goal_in_words_is_launched_where_roots_alone_are_listed(engine: Engine, root: Path) -> None:
    async def steps(client: Client) -> None:
        for goal in ("", "-", "/etc/mission.yaml"):
            assert refusal(await client.call_tool("launch", {"goal": goal}))[0] == "INVALID_ARGUMENT"
        state = value(await client.call_tool("launch", {"goal": "Say hello."}))
        assert (state.planner, state.root) == ("human", str(root))

    run(McpDoor(engine, Listed(roots=(root,), planner="human")), steps)


def test_without_roots_there_is_nothing_to_launch_and_nothing_to_approve(engine: Engine) -> None:
    async def steps(client: Client) -> None:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {"missions", "show", "report", "held", "diff", "search_memory", "answer"}
        assert {
            tool.name for tool in (await client.list_tools()).tools if tool.output_schema is None
        } == set()

    run(McpDoor(engine, Listed()), steps)


@pytest.mark.parametrize("era", ERAS)
def test_a_question_is_put_to_the_person_at_the_client(engine: Engine, root: Path, era: Era) -> None:
    launched(engine, root, ask(QUESTION), DONE)
    (job,) = engine.jobs(states=["held"])

    def person(asked: ElicitRequestFormParams) -> ElicitResult:
        assert asked.message.endswith("Which?")
        assert asked.requested_schema["properties"]["option"]["enum"] == ["red", "blue"]
        return ElicitResult(action="accept", content={"option": "blue"})

    async def steps(client: Client) -> None:
        done = value(await client.call_tool("answer", {"job": job.id}))
        assert (done.state, done.changed) == ("succeeded", True)

    run(McpDoor(engine, Listed()), steps, era=era, asks=person)
    assert (engine.job(job.id).result or {})["answer"] == "blue"
    (event,) = engine.events(job.mission_id, event="decided")
    assert str(event["data"]).find("through tester") > 0


@pytest.mark.parametrize("era", ERAS)
def test_a_question_stays_held_while_nobody_answers(engine: Engine, root: Path, era: Era) -> None:
    launched(engine, root, ask(QUESTION), DONE)
    (job,) = engine.jobs(states=["held"])

    async def declined(client: Client) -> None:
        assert refusal(await client.call_tool("answer", {"job": job.id}))[0] == "NOT_ALLOWED"

    async def unable(client: Client) -> None:
        assert "cannot ask its person" in refusal(await client.call_tool("answer", {"job": job.id}))[1]
        assert "NOT_FOUND" in refusal(await client.call_tool("answer", {"job": 99}))[1]
        assert (
            refusal(await client.call_tool("answer", {"job": job.id, "text": "7"}))[0] == "INVALID_ARGUMENT"
        )

    run(McpDoor(engine, Listed()), declined, era=era, asks=lambda _: ElicitResult(action="decline"))
    run(McpDoor(engine, Listed()), unable, era=era)
    assert engine.job(job.id).state == "held"


def test_a_form_is_filled_in_by_a_person_or_by_the_client(engine: Engine, root: Path) -> None:
    fields: JsonValue = [
        {"id": "json", "type": "number", "label": "How many?", "required": True},
        {"id": "kinds", "type": "multi_select", "label": "Which?", "options": ["a"]},
        {"id": "sure", "type": "checkbox", "label": "Sure?"},
    ]
    question: Object = {"kind": "ask_user", "params": {"question": "Fill it in.", "fields": fields}}
    launched(engine, root, ask(question), DONE)
    launched(engine, root, ask(question), DONE)
    first, second = engine.jobs(states=["held"])
    values: dict[str, str | int | float | bool | list[str] | None] = {"json": 3, "kinds": ["a"], "sure": True}

    async def steps(client: Client) -> None:
        listed = value(await client.call_tool("held", {"mission": first.mission_id})).held
        assert [field.id for field in listed[0].question.fields] == ["json", "kinds", "sure"]
        value(await client.call_tool("answer", {"job": first.id}))
        value(await client.call_tool("answer", {"job": second.id, "form": values}))

    run(McpDoor(engine, Listed()), steps, asks=lambda _: ElicitResult(action="accept", content=values))
    for job in (first, second):
        assert (engine.job(job.id).result or {})["values"] == values


def test_what_models_and_files_say_is_marked_bounded_and_without_secrets(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_TOKEN", "correct-horse-battery-staple")
    content = f"{SECRET}\ncorrect-horse-battery-staple\n\u202eevil\n" + "x" * 2 * MOST_LONG
    mission = launched(engine, root, ask(write("a.md", content)), DONE, goal=f"Use {SECRET}. \u202e")
    (job,) = engine.jobs(states=["held"])

    async def steps(client: Client) -> None:
        state = value(await client.call_tool("show", {"mission": mission}))
        assert SECRET not in str(state)
        assert "<U+202E>" in state.goal.untrusted
        result = await client.call_tool("diff", {"job": job.id})
        changes = value(result)
        assert SECRET not in str(changes)
        assert "battery" not in str(changes)
        diff = changes.files[0].diff
        assert "<U+202E>evil" in diff.untrusted
        assert len(diff.untrusted) == MOST_LONG
        assert diff.left_out > MOST_LONG
        assert len(str(result)) < 8 * MOST_LONG

    run(McpDoor(engine, Listed()), steps)


def test_memory_is_searched(engine: Engine, root: Path) -> None:
    engine.memory.add("Tests", "They run with make.", root=root)
    engine.memory.add("Docs", "They are in docs.", root=root)

    async def steps(client: Client) -> None:
        found = value(await client.call_tool("search_memory", {"text": "make", "root": str(root)}))
        assert [entry.title.untrusted for entry in found.entries] == ["Tests"]
        assert value(await client.call_tool("search_memory", {"limit": 1})).more is True
        assert refusal(await client.call_tool("search_memory", {"root": "/nowhere"}))[0] == "NOT_FOUND"

    run(McpDoor(engine, Listed()), steps)


WRONG: dict[str, tuple[str, Object, str]] = {
    "a mission that is not there": ("show", {"mission": 9}, "NOT_FOUND: "),
    "a number beyond any": ("show", {"mission": 10**40}, "NOT_FOUND: "),
    "no number": ("show", {"mission": "one"}, "validation error"),
    "too long a wait": ("show", {"mission": 1, "wait_seconds": 10**6}, "validation error"),
    "no argument": ("report", {}, "validation error"),
    "neither job nor mission": ("diff", {}, "INVALID_ARGUMENT: "),
    "job and mission": ("diff", {"job": 1, "mission": 1}, "INVALID_ARGUMENT: "),
    "too many": ("held", {"limit": 10**9}, "validation error"),
    "another type": ("held", {"mission": {"a": []}}, "validation error"),
    "an unknown tool": ("approve_all", {}, "Unknown tool"),
}


def test_what_cannot_be_called_is_a_tool_error(engine: Engine) -> None:
    async def steps(client: Client) -> None:
        for name, (tool, arguments, text) in WRONG.items():
            assert text in refusal(await client.call_tool(tool, arguments))[1], name

    run(McpDoor(engine, Listed()), steps)


def test_a_resource_that_is_not_there_is_said(engine: Engine) -> None:
    async def steps(client: Client) -> None:
        for address in ("missions/1/report", "missions/one/changes", "jobs/7/changes", "jobs/../changes"):
            with pytest.raises(MCPError):
                await client.read_resource(f"lcp://{address}")

    run(McpDoor(engine, Listed()), steps)


def waiting(engine: Engine, root: Path, *paths: str) -> list[int]:
    """Held writes of one mission."""
    launched(engine, root, ask(*(write(path, "new\n") for path in paths)), DONE)
    return [job.id for job in engine.jobs(states=["held"])]


def approving(engine: Engine) -> McpDoor:
    return McpDoor(engine, Listed(), approve_for=["tester"])


@pytest.mark.parametrize("era", ERAS)
def test_a_named_client_approves_what_it_was_shown_and_undoes_it(
    engine: Engine, root: Path, era: Era
) -> None:
    (job,) = waiting(engine, root, "a.md")

    async def steps(client: Client) -> None:
        mark = value(await client.call_tool("diff", {"job": job})).mark
        done = value(await client.call_tool("approve", {"job": job, "mark": mark}))
        assert (done.state, done.changed) == ("queued", True)
        engine.work(until_idle=True)
        assert (root / "a.md").read_text() == "new\n"
        shown = value(await client.call_tool("undo_preview", {"mission": done.mission}))
        assert "-new\n+old\n" in shown.files[0].diff.untrusted
        undone = value(await client.call_tool("undo", {"mission": done.mission, "mark": shown.mark}))
        assert [file.path.untrusted for file in undone.files] == ["a.md"]
        assert (root / "a.md").read_text() == "old\n"
        again = {"mission": done.mission, "mark": shown.mark}
        assert refusal(await client.call_tool("undo", again))[0] == "CONFLICT"

    run(approving(engine), steps, era=era)
    assert "through tester" in str(engine.events(engine.job(job).mission_id, event="decided"))


def test_only_the_last_mark_of_this_job_decides_and_only_once(engine: Engine, root: Path) -> None:
    first, second = waiting(engine, root, "a.md", "b.md")

    async def steps(client: Client) -> None:
        older = value(await client.call_tool("diff", {"job": first})).mark
        other = value(await client.call_tool("diff", {"job": second})).mark
        (text,) = (await client.read_resource(f"lcp://jobs/{first}/changes")).contents
        assert isinstance(text, TextResourceContents)
        mark = read(text.text).mark
        for wrong in (older, other, "", mark[:-1], mark.upper(), "\N{SNOWMAN}"):
            order = {"job": first, "mark": wrong}
            if wrong != mark:
                assert refusal(await client.call_tool("approve", order))[0] == "CONFLICT"
        assert engine.job(first).state == "held"
        value(await client.call_tool("approve", {"job": first, "mark": mark}))
        assert refusal(await client.call_tool("approve", {"job": first, "mark": mark}))[0] == "CONFLICT"

    run(approving(engine), steps)


def test_a_file_that_has_changed_since_it_was_shown_is_not_approved(engine: Engine, root: Path) -> None:
    (job,) = waiting(engine, root, "a.md")

    async def steps(client: Client) -> None:
        mark = value(await client.call_tool("diff", {"job": job})).mark
        (root / "a.md").write_text("other\n")
        assert refusal(await client.call_tool("approve", {"job": job, "mark": mark}))[0] == "CONFLICT"
        assert engine.job(job).state == "held"
        rejected = value(await client.call_tool("reject", {"job": job, "reason": "Leave it."}))
        assert rejected.state == "rejected"

    run(approving(engine), steps)


def test_another_client_gets_no_mark_and_decides_nothing(engine: Engine, root: Path) -> None:
    (job,) = waiting(engine, root, "a.md")
    door = approving(engine)
    marks: list[JsonValue] = []

    async def look(client: Client) -> None:
        marks.append(value(await client.call_tool("diff", {"job": job})).mark)

    async def steps(client: Client) -> None:
        assert value(await client.call_tool("diff", {"job": job})).mark is None
        for tool, more in (
            ("approve", {"mark": marks[0]}),
            ("reject", {"reason": "no"}),
            ("undo", {"mark": "x"}),
        ):
            code, text = refusal(await client.call_tool(tool, {"job": job, **more}))
            assert code == "NOT_ALLOWED"
            assert "stranger" in text

    run(door, look)
    run(door, steps, name="stranger")
    assert engine.job(job).state == "held"


def test_what_is_not_shown_in_full_has_no_mark(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = "".join(f"{number}\n" for number in range(MOST_LONG))
    launched(engine, root, ask(write("a.md", large), write("b.md", SECRET), write("c.md", "…\n")), DONE)
    jobs = {str(job.params["rel_path"]): job.id for job in engine.jobs(states=["held"])}

    async def steps(client: Client) -> None:
        marks = {path: value(await client.call_tool("diff", {"job": job})).mark for path, job in jobs.items()}
        assert (marks["a.md"], marks["b.md"]) == (None, None)
        assert marks["c.md"]

    run(approving(engine), steps)


def test_approvers_and_the_number_of_approvals_hold(emptied_database_url: str, root: Path) -> None:
    rules: JsonValue = [{"kinds": ["write_file"], "do": "hold", "approvals": 2}]
    script: JsonValue = {"type": "script", "replies": [ask(write("a.md", "new\n")), DONE]}
    with Engine(emptied_database_url) as engine:
        engine.launch({"goal": "write", "policy": rules, "planner": script}, root=root)
        engine.work(until_idle=True)
        (job,) = engine.jobs(states=["held"])

        async def steps(client: Client) -> None:
            for changed in (True, False):
                mark = value(await client.call_tool("diff", {"job": job.id})).mark
                done = value(await client.call_tool("approve", {"job": job.id, "mark": mark}))
                assert (done.state, done.changed) == ("held", changed)

        run(approving(engine), steps)
        assert engine.approve(job.id) is False  # the user of this process is the same person
        assert engine.job(job.id).state == "held"
    with Engine(emptied_database_url, approvers={"anna": f"sha256:{'0' * 64}"}) as engine:

        async def refused(client: Client) -> None:
            mark = value(await client.call_tool("diff", {"job": job.id})).mark
            code, text = refusal(await client.call_tool("approve", {"job": job.id, "mark": mark}))
            assert code == "NOT_ALLOWED"
            assert "anna" in text

        door = McpDoor(engine, Listed(), approve_for=["anna"])
        run(door, refused, name="anna")
        assert engine.job(job.id).state == "held"


def test_questions_of_the_engine_are_answered_by_a_named_client_alone(engine: Engine, root: Path) -> None:
    script: JsonValue = {"type": "script", "replies": [ask(write("a.md", "new\n")), *[DONE] * 5]}
    spec: Object = {"goal": "write", "planner": script, "policy": [{"kinds": ["*"], "do": "auto"}]}
    engine.launch({**spec, "limits": {"max_turns": 1}, "on_limit": "hold"}, root=root)
    engine.launch({**spec, "accept": [{"file_exists": "b.md"}]}, root=root)
    engine.work(until_idle=True)
    more, unmet = engine.jobs(states=["held"], kinds=["ask_user"])

    async def refused(client: Client) -> None:
        for job in (more, unmet):
            assert refusal(await client.call_tool("answer", {"job": job.id, "text": "1"}))[0] == "NOT_ALLOWED"
            unasked = await client.call_tool("answer", {"job": job.id})
            assert unasked.is_error
            assert "NOT_ALLOWED: the operator" in str(unasked.content)
            assert engine.job(job.id).state == "held"

    def never(_: ElicitRequestFormParams) -> ElicitResult:
        raise AssertionError("a person was asked")

    async def steps(client: Client) -> None:
        for job in (more, unmet):
            assert value(await client.call_tool("answer", {"job": job.id, "text": "1"})).changed is True

    run(McpDoor(engine, Listed()), refused, asks=never)
    run(approving(engine), steps)


@pytest.mark.parametrize(("text", "is_refused"), [("\ud800", True), ("a\0b", True), ("a\\u0000b", False)])
def test_what_is_no_text_is_refused_in_words(engine: Engine, text: str, is_refused: bool) -> None:
    async def steps(client: Client) -> None:
        for tool, name in (("missions", "session"), ("search_memory", "text")):
            found = await client.call_tool(tool, {name: text})
            assert found.is_error == is_refused
            assert not is_refused or refusal(found)[0] == "INVALID_ARGUMENT"

    run(McpDoor(engine, Listed()), steps)
