"""`lcp top`: each key on a real database, by Textual's own pilot, and the whole on a terminal."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import JsonValue
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal
from tests.conftest import POSTGRES, SQLITE
from tests.patience import PATIENCE_SECONDS
from textual import events
from textual.pilot import Pilot
from textual.widgets import TextArea

from lcp_engine import Engine
from lcp_engine.features.top.app import Top
from lcp_engine.features.top.inbox_view import SETTLING_SECONDS
from lcp_engine.inbox import Inbox, Review

WRITE: JsonValue = {"kind": "write_file", "params": {"rel_path": "notes.md", "content": "one\ntwo\n"}}
OTHER: JsonValue = {"kind": "write_file", "params": {"rel_path": "more.md", "content": "more\n"}}
LONG: JsonValue = {
    "kind": "write_file",
    "params": {"rel_path": "long.md", "content": "".join(f"line {number}\n" for number in range(1, 101))},
}
DELETE: JsonValue = {"kind": "delete_file", "params": {"rel_path": "a.md"}}
QUESTION: JsonValue = {"kind": "ask_user", "params": {"question": "Which?", "options": ["this", "that"]}}
FORM: JsonValue = {
    "kind": "ask_user",
    "params": {
        "question": "Release?",
        "fields": [
            {"id": "version", "label": "Which version?", "required": True},
            {
                "id": "size",
                "type": "select",
                "label": "Which size?",
                "options": ["small", "large"],
                "default": "large",
            },
            {"id": "notes", "type": "textarea", "label": "What is new?", "required": True},
        ],
    },
}
COLOUR = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


class Person:
    """Someone at the keyboard, who sees the screen."""

    def __init__(self, top: Top, pilot: Pilot[int], engine: Engine) -> None:
        self.top = top
        self.engine = engine
        self._pilot = pilot

    @property
    def screen(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.top.screen._compositor.render_strips())

    async def press(self, *keys: str) -> None:
        await self._pilot.press(*keys)

    async def press_before(self, key: str, came_at: float) -> None:
        """Press a key that arrived then, and is handled only now."""
        pressed = events.Key(key, key if len(key) == 1 else None)
        pressed.time = came_at
        assert self.top._driver is not None
        self.top._driver.send_message(pressed.set_sender(self.top))
        await self._pilot.pause()

    async def type(self, text: str) -> None:
        await self._pilot.press(*text, "enter")

    async def sees(self, *texts: str) -> str:
        """Wait until all of these are on the screen."""
        await self.until(lambda: all(text in self.screen for text in texts))
        return self.screen

    async def until(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < ends, self.screen
            await self._pilot.pause(0.02)

    async def looks_at(self, *texts: str) -> str:
        """Wait until a job has been on the screen long enough to be approved."""
        await self.sees(*texts)
        inbox = self.top.inbox
        await self.until(lambda: inbox._shown is not None and inbox._shown.job.id == inbox.jobs.selected)
        await self.until(lambda: time.monotonic() - inbox._shown_at > SETTLING_SECONDS)
        return self.screen

    async def opens_inbox(self, *texts: str) -> str:
        await self.press("2")
        return await self.looks_at(*texts)


Script: TypeAlias = Callable[[Person], Awaitable[None]]


@pytest.fixture(params=[SQLITE, pytest.param(POSTGRES, marks=pytest.mark.proof)], ids=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine(request.getfixturevalue(request.param)) as engine:
        yield engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("# a\n")
    return root


def drive(engine: Engine, script: Script, size: tuple[int, int] = (80, 24)) -> int | None:
    """Run the program with a person who does what the script says; the exit code."""

    async def run() -> int | None:
        top = Top(engine)
        async with top.run_test(size=size) as pilot:
            await script(Person(top, pilot, engine))
        assert top.defect is None
        return top.return_value

    return asyncio.run(run())


def hold(engine: Engine, root: Path, *jobs: JsonValue, **keys: JsonValue) -> int:
    """A mission that waits for a person, with these jobs held."""
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]},
        {"ok": True, "action": "mission_complete", "summary": "All done."},
    ]
    spec: dict[str, JsonValue] = {
        "goal": "Write notes.",
        "planner": {"type": "script", "replies": replies},
        **keys,
    }
    mission = engine.launch(spec, root=root)
    engine.work(until_idle=True)
    return mission if isinstance(mission, int) else mission.id


def states(engine: Engine) -> dict[str, str]:
    """The state of each job that a planner requested, by what it is about."""
    return {engine.subject(job): job.state for job in engine.jobs() if job.kind != "agent_plan"}


def test_missions_appear_while_it_is_open(engine: Engine, root: Path) -> None:
    async def script(person: Person) -> None:
        await person.sees("No missions.")
        await asyncio.to_thread(hold, engine, root, WRITE)
        screen = await person.sees("waiting", "turn 1", "inbox (1)", "held  write_file notes.md")
        assert "Write notes." in screen
        await person.press("q")

    assert drive(engine, script) == 0


def test_yes_approves_the_diff_that_is_shown(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md  +2 -0", "+one", "+two")
        await person.press("y")
        await person.looks_at("job 2 approved", "job 3: write_file more.md")

    drive(engine, script)
    assert states(engine) == {"notes.md": "queued", "more.md": "held"}
    engine.work(until_idle=True)
    assert (root / "notes.md").read_text() == "one\ntwo\n"


def test_enter_approves_nothing(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.sees("held  write_file notes.md")
        await person.press("enter", "down", "down", "enter")
        await person.looks_at("job 2: write_file notes.md")
        await person.press("enter")
        await person.sees("yes, approve")
        await person.press("enter", "enter", "q", "a")
        await person.sees("approve 1 held write_file of mission 1?")
        await person.press("enter", "escape")

    drive(engine, script)
    assert states(engine) == {"notes.md": "held"}


def test_a_file_that_changed_since_is_a_conflict_and_is_shown_again(engine: Engine, root: Path) -> None:
    hold(engine, root, {"kind": "write_file", "params": {"rel_path": "a.md", "content": "new\n"}})

    async def script(person: Person) -> None:
        await person.opens_inbox("-# a", "+new")
        (root / "a.md").write_text("# b\n")
        await person.press("y")
        await person.looks_at("is not what was shown", "-# b", "+new")
        assert states(engine) == {"a.md": "held"}
        await person.press("y")
        await person.sees("job 2 approved")

    drive(engine, script)
    assert states(engine) == {"a.md": "queued"}


def test_a_diff_that_does_not_fit_is_shown_whole_before_yes_counts(engine: Engine, root: Path) -> None:
    hold(engine, root, LONG)

    async def script(person: Person) -> None:
        assert "+line 100" not in await person.opens_inbox("job 2: write_file long.md")
        await person.press("y")
        await person.sees("yes, approve")
        assert states(engine) == {"long.md": "held"}
        await person.press("G")
        await person.sees("+line 100")
        await person.press("y")
        await person.sees("job 2 approved")

    drive(engine, script)
    assert states(engine) == {"long.md": "queued"}


def test_a_diff_that_was_scrolled_through_is_approved_at_once(engine: Engine, root: Path) -> None:
    hold(engine, root, LONG)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file long.md")
        await person.press("tab", *["pagedown"] * 20)
        await person.sees("+line 100")
        await person.press("y")
        await person.sees("job 2 approved")

    drive(engine, script)


def test_a_job_that_takes_long_to_read_is_said_to_be_read(
    engine: Engine, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(engine, root, WRITE)
    may_read = threading.Event()

    review = Inbox.review

    def slowly(inbox: Inbox, job_id: int) -> Review:
        may_read.wait(PATIENCE_SECONDS)
        return review(inbox, job_id)

    monkeypatch.setattr(Inbox, "review", slowly)

    async def script(person: Person) -> None:
        await person.press("2")
        await person.sees("reading what job 2 would change: ")
        await person.press("y")
        await person.sees("what the job would change is not shown yet")
        may_read.set()
        await person.sees("+one")

    drive(engine, script)
    assert states(engine) == {"notes.md": "held"}


def test_a_key_that_is_held_down_approves_one_job(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await person.press("y")
        await person.looks_at("job 3: write_file more.md")
        for part in (0.0, 0.3, 0.6, 0.9):
            await person.press_before("y", person.top.inbox._shown_at + part * SETTLING_SECONDS)
            await person.sees("job 3 has only just appeared")

    drive(engine, script)
    assert states(engine) == {"notes.md": "queued", "more.md": "held"}


def test_a_key_that_came_before_the_job_was_shown_decides_nothing_however_late(
    engine: Engine, root: Path
) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        came_at = time.monotonic()
        await person.press("y")
        await person.looks_at("job 2 approved", "job 3: write_file more.md")
        for key in ("y", "y", "r"):
            person.top.note("")
            await person.press_before(key, came_at)
            await person.sees("job 3 has only just appeared")
        await person.press("y")
        await person.sees("job 3 approved")

    drive(engine, script)


def test_a_key_that_came_before_a_dialog_answers_it_neither(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        came_at = time.monotonic()
        for opens, sees, *answers in (
            ("a", "approve 2 held write_file", "y"),
            ("d", "yes, approve", "y"),
            ("n", "Reject job 2", "enter"),
            ("s", "Message to the planner", "x", "enter"),
            ("e", "as JSON", "ctrl+s"),
        ):
            came_at = time.monotonic()
            await person.press(opens)
            await person.sees(sees)
            for answer in answers:
                await person.press_before(answer, came_at)
            assert sees in person.screen
            await person.press("escape")
            await person.until(lambda: len(person.top.screen_stack) == 1)
        await person.press("1", "c")
        await person.sees("Cancel mission 1?")
        await person.press_before("y", came_at)
        await person.press("n")

    drive(engine, script)
    assert states(engine) == {"notes.md": "held", "more.md": "held"}
    assert [one.status for one in engine.missions()] == ["waiting"]


def test_a_job_counts_as_seen_from_the_frame_that_shows_its_end(engine: Engine, root: Path) -> None:
    hold(engine, root, LONG)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file long.md")
        await person.press("tab")
        came_at = time.monotonic()
        await person.press(*["pagedown"] * 20)
        await person.sees("+line 100")
        await person.press_before("y", came_at)
        await person.sees("yes, approve")

    drive(engine, script)
    assert states(engine) == {"long.md": "held"}


def test_no_asks_for_a_reason_that_the_planner_reads(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await person.press("n")
        await person.sees("Reject job 2", "The planner reads it")
        await person.press("escape", "n")
        await person.sees("Reject job 2")
        await person.type("not this one")
        await person.looks_at("job 2 rejected", "job 3: write_file more.md")
        await person.press("n")
        await person.sees("Reject job 3")
        await person.press("enter")
        await person.sees("job 3 rejected", "No job waits for you.")

    drive(engine, script)
    assert states(engine) == {"notes.md": "rejected", "more.md": "rejected"}
    assert ["not this one" in str(engine.job(2).reason), "a person said no" in str(engine.job(3).reason)] == [
        True
    ] * 2


def test_all_approves_each_job_of_a_kind_as_it_was_shown(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER, DELETE)
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md", "(4)")
        await person.press("a")
        await person.sees("approve 2 held write_file of mission 1?", "+two", "+more")
        (root / "more.md").write_text("meanwhile\n")
        await person.press("y")
        await person.sees("1 job was approved; 1 not: job 3")

    drive(engine, script)
    assert [job.state for job in engine.jobs() if job.kind == "write_file"] == ["queued", "held", "held"]
    assert states(engine)["a.md"] == "held"


def test_a_job_that_needs_two_people_waits_for_the_other_one(engine: Engine, root: Path) -> None:
    two: JsonValue = {"kinds": ["write_file"], "do": "hold", "approvals": 2}
    hold(engine, root, WRITE, OTHER, policy=[two])

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md", "0 of 2 approvals")
        await person.press("y")
        await person.looks_at(
            "job 2 approved; it waits for the approval of another person", "job 3: write_file"
        )
        await person.press("a")
        await person.sees("approve 2 held write_file of mission 1?")
        assert engine.approve(3, by="bea")
        await person.press("y")
        await person.sees("1 job was approved, 1 waits for the approval of another person")

    drive(engine, script)
    assert states(engine) == {"notes.md": "held", "more.md": "queued"}
    assert engine.approve(2, by="someone else")
    assert states(engine) == {"notes.md": "queued", "more.md": "queued"}


def test_edited_params_are_shown_before_they_are_approved(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await person.press("e")
        await person.sees("as JSON", '"content": "one')
        await person.press("ctrl+s")
        await person.sees("the params are unchanged")
        area = person.top.screen.query_one(TextArea)
        area.load_text("{")
        await person.press("ctrl+s")
        await person.sees("the edited text")
        person.top.screen.query_one(TextArea).load_text('{"rel_path": "notes.md", "content": "three\\n"}')
        await person.press("escape", "e")
        await person.sees("three")
        await person.press("ctrl+s")
        await person.sees("+three", "(edited)", "yes, approve")
        assert states(engine) == {"notes.md": "held"}
        await person.press("y")
        await person.sees("job 2 approved as edited")

    drive(engine, script)
    engine.work(until_idle=True)
    assert (root / "notes.md").read_text() == "three\n"


@pytest.mark.proof
def test_params_are_edited_in_an_editor_of_ones_own(
    engine: Engine, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(engine, root, WRITE)
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i s/two/2/ $1\n")
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await person.press("e")
        await person.sees("open in your editor")
        await person.press("ctrl+o")
        await person.sees("one\\n2")
        monkeypatch.setenv("EDITOR", "false")
        await person.press("ctrl+o")
        await person.sees("the editor 'false' ended with 1", "one\\n2")
        await person.press("ctrl+s")
        await person.sees("+2", "yes, approve")
        await person.press("y")
        await person.sees("job 2 approved as edited")

    drive(engine, script)
    assert engine.job(2).params["content"] == "one\n2\n"


def test_always_shows_the_rule_and_where_it_holds_before_it_counts(engine: Engine, root: Path) -> None:
    in_docs: list[JsonValue] = [
        {"kind": "write_file", "params": {"rel_path": f"docs/{name}.md", "content": "x\n"}} for name in "ab"
    ]
    mission = hold(engine, root, *in_docs, OTHER, QUESTION)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file docs/a.md")
        await person.press("r")
        await person.sees("1) write_file of /docs/a.md runs without asking", "2) write_file of /docs/ runs")
        await person.press("enter")
        await person.looks_at("job 2: write_file docs/a.md")
        await person.press("r")
        await person.type("2")
        await person.sees("write_file of /docs/ runs without asking, from now on", "in this mission")
        await person.press("enter", "n")
        assert engine.rules(mission) == ()
        await person.looks_at("job 2: write_file docs/a.md")
        await person.press("r")
        await person.sees("which rule?")
        await person.type("/other/")
        await person.press("m")
        await person.looks_at("would not let write_file jobs like this one run", "docs/a.md")
        await person.press("r")
        await person.type("2")
        await person.sees("from now on")
        await person.press("m")
        await person.looks_at("job 2 approved, and 1 more by the rule", "job 4: write_file more.md")
        await person.press("G", "r")
        await person.sees("no rule can let such jobs run")

    drive(engine, script)
    assert [str(rule) for rule in engine.rules(mission)] == ["write_file /docs/"]
    assert [engine.job(number).state for number in (2, 3, 4)] == ["queued", "queued", "held"]


@pytest.mark.proof
def test_files_and_hunks_of_a_merge_are_taken(engine: Engine, root: Path) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "do": "auto"}
    lines = [f"line {number}\n" for number in range(30)]
    (root / "a.md").write_text("".join(lines))
    new = "".join(["first\n", *lines[1:-1], "last\n"])
    far: JsonValue = {"kind": "write_file", "params": {"rel_path": "a.md", "content": new}}
    hold(engine, root, WRITE, OTHER, far, stage=True, policy=[rule])

    async def script(person: Person) -> None:
        await person.opens_inbox("merge", "notes.md")
        await person.press("e")
        await person.sees(
            "[x] more.md  +1 -0", "[x] notes.md  +2 -0", "[x] a.md#1  @@", "[x] a.md#2", "4 of 4"
        )
        await person.press("G")
        assert "+first" not in await person.sees("+last")
        await person.press("up")
        assert "+last" not in await person.sees("+first")
        await person.press("g", "i", "space", "G", "space")
        await person.sees("[ ] more.md", "[x] notes.md", "[ ] a.md#1", "[x] a.md#2", "2 of 4")
        await person.press("y")
        await person.sees("+two", "more.md: left out", "(edited)", "yes, approve")
        await person.press("G")
        await person.sees("+last")
        await person.press("y")
        await person.sees("approved as edited")

    drive(engine, script)
    engine.work(until_idle=True)
    assert ((root / "more.md").exists(), (root / "notes.md").exists()) == (False, True)
    assert (root / "a.md").read_text() == "".join([*lines[:-1], "last\n"])


def test_files_of_a_merge_are_viewed_one_by_one_and_marks_are_kept(engine: Engine, root: Path) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "do": "auto"}
    hold(engine, root, WRITE, LONG, stage=True, policy=[rule])

    async def script(person: Person) -> None:
        detail = person.top.inbox.detail
        await person.opens_inbox("merge", "0 of 2 files viewed", "1 notes.md  +2 -0", "2 long.md  +100 -0")
        await person.press("right_square_bracket", "right_square_bracket", "v")
        await person.sees("rows of long.md were not on the screen yet")
        await person.press("left_square_bracket", "g", "tab", *["pagedown"] * 30)
        await person.sees("+line 100")
        await person.until(lambda: detail.was_seen(time.monotonic()))
        await person.press("g", "right_square_bracket", "right_square_bracket", "v")
        await person.until(lambda: "1 of 2 files viewed" in detail.text)
        assert "long.md  +100 -0 viewed" in detail.text
        assert "+line 100" not in detail.text
        await person.press("left_square_bracket", "v")
        await person.until(lambda: "2 of 2 files viewed" in detail.text)
        assert "+two" not in detail.text
        await person.press("v")
        await person.until(lambda: "1 of 2 files viewed" in detail.text)
        assert "+two" in detail.text

    drive(engine, script)

    async def later(person: Person) -> None:
        """What was viewed is folded, and all else was on the screen: yes counts at once."""
        await person.opens_inbox("1 of 2 files viewed", "+two")
        await person.press("y")
        await person.sees("approved")

    drive(engine, later, size=(80, 60))


def test_a_file_is_not_viewed_by_a_key_that_came_before_it_was_shown(engine: Engine, root: Path) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "do": "auto"}
    hold(engine, root, WRITE, LONG, stage=True, policy=[rule])

    async def script(person: Person) -> None:
        await person.opens_inbox("merge", "0 of 2 files viewed")
        before = time.monotonic()
        await person.press("tab", *["pagedown"] * 30, "g", "right_square_bracket", "right_square_bracket")
        await person.press_before("v", before)
        await person.sees("rows of long.md were not on the screen yet")

    drive(engine, script)


@pytest.mark.proof
def test_the_reply_of_a_human_planner_is_checked_before_it_is_sent(engine: Engine, root: Path) -> None:
    engine.launch({"goal": "Write notes.", "planner": {"type": "human"}}, root=root)
    engine.work(until_idle=True)

    async def script(person: Person) -> None:
        await person.opens_inbox("you are the planner", "Write notes.")
        await person.press("enter")
        await person.sees("one JSON object")
        await person.press("ctrl+s")
        await person.sees("the reply is empty")
        await person.press(*"done!", "ctrl+s")
        await person.sees("This reply is not valid. Submit it anyway")
        await person.press("n")
        await person.sees("done!", "reply: ")
        assert engine.job(1).state == "held"
        area = person.top.screen.query_one(TextArea)
        area.load_text('{"ok": true, "action": "mission_complete", "summary": "By hand."}')
        await person.press("ctrl+s")
        await person.sees("job 1 answered")

    drive(engine, script)
    engine.work(until_idle=True)
    assert engine.mission(1).summary == "By hand."


@pytest.mark.proof
def test_more_is_granted_at_a_limit(engine: Engine, root: Path) -> None:
    rule: JsonValue = {"kinds": ["write_file"], "do": "auto"}
    hold(engine, root, WRITE, on_limit="hold", limits={"max_turns": 1}, policy=[rule])
    assert engine.mission(1).status == "waiting"

    async def script(person: Person) -> None:
        await person.opens_inbox("max_turns")
        await person.press("enter")
        await person.sees("1 of 1: ")
        await person.type("many")
        await person.sees("number")
        await person.press("ctrl+u")
        await person.type("5")
        await person.sees("in your own words")
        await person.press("enter")
        await person.sees("answered")

    drive(engine, script)
    engine.work(until_idle=True)
    assert (engine.mission(1).status, engine.mission(1).summary) == ("completed", "All done.")


def test_a_question_is_answered_in_words_or_by_number(engine: Engine, root: Path) -> None:
    hold(engine, root, QUESTION)

    async def script(person: Person) -> None:
        await person.opens_inbox("1) this", "2) that")
        await person.press("y")
        await person.sees("job 2 is a question: Enter answers it")
        await person.press("enter")
        await person.sees("1 to 2, or your own words")
        await person.type("7")
        await person.sees("options")
        await person.press("enter")
        await person.sees("1 to 2, or your own words")
        await person.type("2")
        await person.sees("job 2 answered")

    drive(engine, script)
    assert (engine.job(2).result or {})["answer"] == "that"


@pytest.mark.proof
def test_a_form_is_filled_in_field_by_field(engine: Engine, root: Path) -> None:
    hold(engine, root, FORM)

    async def script(person: Person) -> None:
        await person.opens_inbox("Which version?")
        await person.press("enter")
        await person.sees("▌ Which version?", "1 of 3: text")
        await person.press("enter")
        await person.sees("is required")
        await person.type("2.0")
        await person.sees("▌ Which size?", "▌   1) small", "2 of 3 (optional): number or value", "[large]")
        await person.type("1")
        await person.sees("▌ What is new?", "3 of 3: text")
        await person.press("ctrl+s")
        await person.sees("is required")
        await person.press("o", "n", "e", "enter", "t", "w", "o", "ctrl+s")
        await person.sees("in your own words")
        await person.type("soon")
        await person.sees("job 2 answered")

    drive(engine, script)
    result = engine.job(2).result or {}
    assert result["values"] == {"version": "2.0", "size": "small", "notes": "one\ntwo"}
    assert result["words"] == "soon"


def test_a_message_to_the_planner_leaves_the_job_held(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await person.press("s")
        await person.sees("Message to the planner")
        await person.type("in docs, please")
        await person.sees("reads the message in its next turn")

    drive(engine, script)
    assert states(engine)["notes.md"] == "held"
    assert "in docs, please" in str(engine.events(1, event="said"))


def test_a_mission_is_cancelled_after_another_question(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.sees("held  write_file notes.md")
        await person.press("c")
        await person.sees("Cancel mission 1?")
        await person.press("enter", "n", "c")
        await person.sees("Cancel mission 1?")
        assert engine.mission(1).status == "waiting"
        await person.press("y")
        await person.sees("mission 1 cancelled", "cancelled")
        await person.press("c")
        await person.sees("mission 1 is cancelled; only a mission that runs or waits can be cancelled")

    drive(engine, script)
    assert engine.mission(1).status == "cancelled"


def test_a_job_decided_elsewhere_stays_under_the_cursor(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await asyncio.to_thread(engine.reject, 2, "no")
        await person.looks_at("decided in the meantime", "job 2: write_file notes.md")
        await person.press("y")
        await person.looks_at("job 2 is rejected", "job 3: write_file more.md")

    drive(engine, script)
    assert states(engine) == {"notes.md": "rejected", "more.md": "held"}


def test_the_cursor_leaves_a_job_that_was_decided_elsewhere(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE, OTHER)

    async def script(person: Person) -> None:
        await person.opens_inbox("job 2: write_file notes.md")
        await asyncio.to_thread(engine.approve, 2)
        await person.sees("decided in the meantime")
        await person.press("j")
        await person.looks_at("job 3: write_file more.md")
        assert "notes.md" not in person.screen

    drive(engine, script)


@pytest.mark.proof
def test_a_job_of_the_tree_opens_in_the_inbox_and_shows_later_what_it_changed(
    engine: Engine, root: Path
) -> None:
    hold(engine, root, OTHER, WRITE)

    async def script(person: Person) -> None:
        await person.sees("held  write_file notes.md")
        await person.press("enter")
        await person.until(lambda: person.top.missions.job_tree.has_focus)
        await person.press("G", "enter")
        await person.looks_at("job 3: write_file notes.md")
        await person.press("y")
        await person.sees("job 3 approved")
        await asyncio.to_thread(lambda: engine.work(until_idle=True))
        await person.press("1")
        await person.sees("succeeded  write_file notes.md")
        assert person.top.missions.job_tree.selected == 3
        await person.press("tab")
        await person.until(lambda: person.top.missions.job_tree.has_focus)
        await person.press("d")
        await person.sees("job 3: write_file notes.md  succeeded", "+one")
        await person.press("q", "shift+tab", "d")
        await person.sees("mission 1: what it changed", "+++ b/notes.md")

    drive(engine, script)


def test_j_k_and_arrows_move(engine: Engine, root: Path) -> None:
    for _ in range(3):
        hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        missions = person.top.missions.missions
        await person.until(lambda: missions.selected == 3)
        chosen = []
        for key in ("j", "down", "j", "k", "up", "G", "g"):
            await person.press(key)
            chosen.append(missions.selected)
        assert chosen == [2, 1, 1, 2, 3, 1, 3]
        await person.press("j")
        await person.sees("mission 2 ")

    drive(engine, script)


def test_what_planners_write_is_shown_as_text(engine: Engine, root: Path) -> None:
    evil = "[red]x[/red] [@click=app.quit()]y[/] \x1b[31m\u202e"
    write: JsonValue = {
        "kind": "write_file",
        "name": evil,
        "params": {"rel_path": "[b]n[/b].md", "content": f"{evil}\n"},
    }
    ask: JsonValue = {"kind": "ask_user", "params": {"question": evil}}
    hold(engine, root, write, ask, goal=evil, name="[blink]z[/blink]")
    seen = "[red]x[/red] [@click=app.quit()]y[/] <U+001B>[31m<U+202E>"

    async def script(person: Person) -> None:
        await person.sees(seen, "[blink]z[/blink]")
        await person.opens_inbox("job 2: write_file [b]n[/b].md", f"+{seen}", f"\n▌ {seen}")
        await person.press("d")
        await person.sees(f"+{seen}", "yes, approve")
        await person.press("q", "j")
        await person.looks_at(f"job 3: ask_user {seen}")
        await person.press("enter")
        await person.sees(f"│ ▌ {seen}", "Your answer")

    drive(engine, script)


def test_every_key_of_the_last_line_fits_80_columns(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        assert (await person.sees("held  write_file notes.md", "q quit")).splitlines()[-1].split("  ") == [
            "⏎ open", "d diff", "c cancel", "tab jobs", "q quit",
        ]  # fmt: skip
        assert (await person.opens_inbox("job 2:", "q quit")).splitlines()[-1].split("  ") == [
            "y yes", "n no", "e edit", "a all", "r rule", "d diff", "⏎ open", "s say", "tab scroll", "q quit",
        ]  # fmt: skip
        assert max(map(len, person.screen.splitlines())) <= 80

    drive(engine, script)


@pytest.mark.proof
def test_a_smaller_and_a_larger_terminal_are_filled(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)

    async def script(person: Person) -> None:
        await person.sees("mission 1 ", "held")
        screen = await person.opens_inbox("job 2: write_file")
        lines, columns = len(screen.splitlines()), max(map(len, screen.splitlines()))
        assert (columns, lines) == size

    for size in ((40, 12), (120, 40), (240, 60)):
        drive(engine, script, size)


def test_no_word_is_broken_at_40_columns(engine: Engine, root: Path) -> None:
    words = "consecutively numbered paragraphs about reconciliation of inventories"
    hold(engine, root, {"kind": "write_file", "params": {"rel_path": "notes.md", "content": f"{words}\n"}})
    known = {*words.split(), *["write_file", "notes.md", "mission", "held", "succeeded"]}

    async def script(person: Person) -> None:
        for screen in (await person.sees("mission 1 "), await person.opens_inbox("job 2: write_file")):
            for word in re.findall(r"[a-z]{5,}(?=…?$)", screen, re.MULTILINE):
                assert not any(one.startswith(word) and one != word for one in known), screen
        assert all(word in person.screen for word in words.split())

    drive(engine, script, (40, 30))


def test_a_database_that_fails_is_said_and_the_program_goes_on(sqlite_copy_url: str, root: Path) -> None:
    file = sqlite_copy_url.removeprefix("sqlite:///")

    def rename(old: str, new: str) -> None:
        with sqlite3.connect(file) as connection:
            connection.execute("PRAGMA legacy_alter_table = ON")
            connection.execute(f"ALTER TABLE {old} RENAME TO {new}")
        connection.close()

    with Engine(sqlite_copy_url) as engine:
        hold(engine, root, WRITE)

        async def script(person: Person) -> None:
            await person.sees("held  write_file notes.md")
            rename("missions", "gone")
            await person.sees("the database does not answer", "no such table")
            rename("gone", "missions")
            await person.sees("the database answers again")
            await person.opens_inbox("job 2: write_file notes.md")
            await person.press("y")
            await person.sees("job 2 approved")

        drive(engine, script)


def test_it_leaves_no_thread_behind(engine: Engine, root: Path) -> None:
    hold(engine, root, WRITE)
    before = {thread.name for thread in threading.enumerate()}

    async def script(person: Person) -> None:
        await person.sees("held  write_file notes.md")

    drive(engine, script)
    assert "lcp-top" not in {thread.name for thread in threading.enumerate()} - before


# -- On a terminal


@pytest.fixture
def forty(lcp: Lcp) -> Lcp:
    """A mission that waits with 40 writes."""
    writes: list[JsonValue] = [
        {"kind": "write_file", "params": {"rel_path": f"docs/{number}.md", "content": f"{number}\n"}}
        for number in range(40)
    ]
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": writes}
    file = lcp.mission(reply, lcp.complete, limits={"max_followups": 40})
    assert lcp("run", file, "--root", "root").code == 3
    return lcp


@pytest.mark.proof
def test_forty_writes_are_decided_with_one_look_and_undone(forty: Lcp) -> None:
    with Terminal(forty, "top", size=(24, 80)) as terminal:
        terminal.expect("inbox (40)")
        terminal.type("2")
        terminal.expect("job 2: write_file docs/0.md")
        terminal.type("a")
        terminal.see("approve 40 held write_file of mission 1?")
        terminal.type("y")
        terminal.expect("40 jobs were approved")
        terminal.type("q")
        assert terminal.end() == 0
    assert forty("work", "--until-idle").code == 0
    assert len([*(forty.root / "docs").iterdir()]) == 40
    assert forty("undo", "1").code == 0
    assert not (forty.root / "docs").exists()


def test_what_is_typed_ahead_is_not_lost(forty: Lcp) -> None:
    with Terminal(forty, "top", size=(24, 80)) as terminal:
        terminal.expect("inbox (40)")
        terminal.type("2")
        terminal.expect("job 2: write_file docs/0.md")
        terminal.type("n")
        terminal.see("Reject job 2")
        terminal.type("not this one\r")
        terminal.expect("job 2 rejected")
        terminal.type("q")
        assert terminal.end() == 0
    assert "not this one" in forty("job", "2").out


def test_an_editor_has_the_terminal_for_as_long_as_it_runs(forty: Lcp) -> None:
    editor = forty.home / "editor"
    editor.write_text("#!/bin/sh\nprintf 'go on?' && read line && echo '{' > $1\n")
    editor.chmod(0o755)
    with Terminal(forty, "top", size=(24, 80), environment={"EDITOR": str(editor)}) as terminal:
        terminal.expect("inbox (40)")
        terminal.type("2")
        terminal.expect("job 2: write_file docs/0.md")
        terminal.type("e")
        terminal.expect("as JSON")
        terminal.type("\x0f")
        terminal.expect("\x1b[?1049l")
        terminal.expect("go on?")
        terminal.type("yes\n")
        terminal.expect("\x1b[?1049h")
        terminal.see("as JSON")
        terminal.type("\x13")
        terminal.expect("the edited text")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert forty("jobs", "--state", "held", "--json").out.count('"held"') == 40


def test_ctrl_c_interrupts_and_restores_the_terminal(forty: Lcp) -> None:
    with Terminal(forty, "top", size=(24, 80)) as terminal:
        terminal.expect("inbox (40)")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "\x1b[?1049l" in terminal.shown


def test_a_signal_ends_it_like_ctrl_c(forty: Lcp) -> None:
    with Terminal(forty, "top", size=(24, 80)) as terminal:
        terminal.expect("inbox (40)")
        terminal.process.terminate()
        assert terminal.end() == 130
        assert "\x1b[?1049l" in terminal.shown


@pytest.mark.parametrize(("no_color", "has_colours"), [("1", False), ("", True)])
def test_no_color_is_obeyed(forty: Lcp, no_color: str, *, has_colours: bool) -> None:
    environment = {name: value for name, value in forty.environment.items() if name != "NO_COLOR"}
    given = {"NO_COLOR": no_color} if no_color else {}
    with Terminal(Lcp(forty.home, environment), "top", environment=given) as terminal:
        shown = terminal.expect("docs/0.md")
        terminal.type("q")
        terminal.end()
    assert bool(COLOUR.search(shown + terminal.shown)) is has_colours


def test_without_a_terminal_it_says_what_prints_lists(lcp: Lcp) -> None:
    done = lcp("top")
    assert (done.code, done.err) == (
        2,
        "lcp top: a terminal is needed; `lcp missions` and `lcp held` print lists (see `lcp top --help`)\n",
    )
    assert lcp("--json", "top").code == 2


def test_without_the_extra_it_says_what_to_install(lcp: Lcp) -> None:
    package = lcp.home / "site" / "textual"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'textual'\", name='textual')\n"
    )
    done = lcp.run("top", PYTHONPATH=str(lcp.home / "site"))
    assert done.code == 2
    assert (
        done.err
        == "lcp top needs the extra 'tui' (textual is missing): pip install '.[tui]' in a clone of lcp-engine\n"
    )


def test_what_a_terminal_had_before_a_frame_is_older_than_it(forty: Lcp) -> None:
    with Terminal(forty, "top", size=(24, 80)) as terminal:
        terminal.expect("inbox (40)")
        terminal.type("2")
        terminal.expect("job 2: write_file docs/0.md")
        for _ in range(3):
            terminal.process.send_signal(signal.SIGSTOP)
            terminal.type("ayyy")
            terminal.process.send_signal(signal.SIGCONT)
            terminal.expect("approve 40 held write_file of mission 1?")
            terminal.type("q")
            terminal.expect("held since")  # the dialog names the jobs, too, but no column
        terminal.type("\x1b[200~ayy\r\x1b[201~q")
        assert terminal.end() == 0
    assert forty("jobs", "--state", "held", "--json").out.count('"held"') == 40
