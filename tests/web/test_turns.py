"""The page of a turn says which model answered, what that took and cost, and what its prompt left out."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING

import pytest
from starlette.testclient import TestClient
from tests.features.models.planners.conftest import faults, work_until_waiting
from tests.patience import in_thread, wait_until
from tests.web.conftest import ADDRESS, HOME, House

from lcp_engine import Engine
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.limits.prices import Prices
from lcp_engine.features.models import planner as model_planner
from lcp_engine.features.reports.store import drafts
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates
from lcp_engine.web.events import Watch
from lcp_engine.web.pages.turns import Section, by_turn, prompt_sections

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pydantic import JsonValue
    from tests.features.models.planners.conftest import FaultServer

__all__ = ["faults"]  # the fixture
PRICES: JsonValue = {"currency": "EUR", "models": {"tiny": {"input": 100, "output": 100}}}
# Too much for the prompt of the next question.
LINES = "".join(f"{number:04} a line of the log\n" for number in range(700))


@pytest.fixture
def priced(tmp_path: Path) -> Iterator[House]:
    root = tmp_path / "root"
    root.mkdir()
    for name in ("a.log", "b.log"):
        (root / name).write_text(LINES)
    keys = Secrets()
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", prices=Prices.model_validate(PRICES)) as engine:
        app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, ADDRESS)
        with TestClient(app, base_url=HOME) as browser:
            assert browser.get("/", params={"token": keys.token}).status_code == 200
            yield House(engine, root, app, keys, browser)


def test_a_turn_says_its_model_tokens_price_and_what_was_left_out(
    priced: House,
    faults: FaultServer,
) -> None:
    reads = [priced.ask(priced.job("read_file", rel_path=path)) for path in ("a.log", "b.log")]
    faults.tokenize = faults.counts
    faults.play(*(faults.says(json.dumps(said)) for said in (*reads, priced.complete)))
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096, "max_tokens": 512,
        "guidance": "off",
    }  # fmt: skip
    priced.engine.launch({"goal": "Read the log.", "planner": planner}, root=priced.root)
    priced.work()
    first, _, last = priced.engine.jobs(kinds=["agent_plan"])
    page = priced.get(f"/jobs/{first.id}").words
    assert "Question 1 create_followup_jobs tiny" in page
    assert "11 tokens in, 7 out" in page
    assert "0.0018 EUR" in page
    assert "Left out of its prompt" not in page
    page = priced.get(f"/jobs/{last.id}").words
    assert "Left out of its prompt: 2 parts" in page
    assert 'read_file "a.log": all of it' in page
    assert "mission_complete tiny" in priced.get("/missions/1/questions/3").words
    assert "0.0054 EUR" in priced.get("/").words


def test_the_pages_say_until_when_a_server_asks_to_wait(priced: House, faults: FaultServer) -> None:
    faults.play(faults.refuses(429, "slow down", Retry_After="90"), faults.says(json.dumps(priced.complete)))
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096}
    mission = priced.engine.launch({"goal": "g", "planner": planner}, root=priced.root).id
    work_until_waiting(priced.engine)
    until = str(priced.engine.mission(mission).waits_for["until"])
    said = f"The model's server asks to wait until {until[:19].replace('T', ' ')} UTC"
    assert said in priced.get(f"/missions/{mission}").words
    assert said in priced.get("/").words
    priced.engine.cancel(mission)
    assert "asks to wait" not in priced.get(f"/missions/{mission}").words


def test_a_reply_is_shown_as_it_was_read_with_what_became_of_each_job(house: House) -> None:
    look, gone = house.job("list_files", patterns=["*"]), house.job("read_file", rel_path="gone.txt")
    house.run(f"So be it: {json.dumps(house.ask(look, gone))}", house.complete)
    words = house.get("/missions/1/questions/1").words
    assert (
        "As it was read: create_followup_jobs Look around. Removed around it: prose before the object"
        in words
    )
    assert "list_files succeeded * read_file failed gone.txt PATH_NOT_FOUND" in words
    assert "As it came" in words
    assert 'So be it: {"ok"' in words
    ended = house.get("/missions/1/questions/2").words
    assert "As it was read: mission_complete summary All done." in ended


def test_a_reply_that_was_not_valid_has_no_reading(house: House) -> None:
    house.run("no JSON at all", house.complete)
    assert "As it was read" not in house.get("/missions/1/questions/1").words


def test_a_prompt_is_shown_by_its_sections(priced: House, faults: FaultServer) -> None:
    (priced.root / "b.log").write_text("# Rules\n```\n[user]\n")
    read = priced.ask(priced.job("read_file", rel_path="b.log"))
    faults.play(*(faults.says(json.dumps(said)) for said in (read, priced.complete)))
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 32_000}
    priced.engine.launch({"goal": "Read the log.", "planner": planner}, root=priced.root)
    priced.work()
    page = priced.get("/missions/1/questions/2")
    titles = re.findall(r"<summary>(.+?) <span", page.text)
    assert titles == [
        "Introduction",
        "Actions",
        "Kinds of jobs",
        "Rules",
        "Goal",
        "New results",
        "Now",
    ]
    assert re.findall(r"<h4>(\w+)", page.text) == ["System", "Question"]


def test_sections_of_a_prompt_lose_nothing_and_end_at_no_heading_within_fences() -> None:
    prompt = "[system]\nBe brief.\n\n# A\n````\n# no\n```\n````\n[user]\n# B\nx\n```\n# open"
    assert prompt_sections(prompt) == [
        Section("system", "", "Be brief."),
        Section("", "A", "````\n# no\n```\n````"),
        Section("user", "B", "x\n```\n# open"),
    ]
    assert prompt_sections("") == []
    assert prompt_sections("Say what to do.") == [Section("", "", "Say what to do.")]


def test_events_are_grouped_by_turn_with_the_time_since_it_began(house: House) -> None:
    house.run("no JSON at all", house.ask(house.job("list_files")), house.complete)
    text = house.get("/missions/1/history").text
    groups = re.findall(r'scope="rowgroup">([\w ]+?) <', text)
    assert groups == ["Turn 2", "Turn 1", "Launch"]
    launched = text.index('id="event-1"')
    assert "+0 ms" in text[launched:]
    assert re.search(r'question</span> <a href="/missions/1/questions/3">3</a>', text)
    rows: list[JsonObject] = [
        {"seq": 9, "job_id": 1, "event": "failed", "at": "2026-01-01T00:00:00+00:00", "data": None}
    ]
    assert [group.title for group in by_turn(rows)] == ["Events"]
    assert by_turn([]) == []


def test_the_page_shows_what_the_planner_is_writing(
    priced: House, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "REST_SECONDS", 0.02)
    monkeypatch.setattr(model_planner, "DRAFT_SECONDS", 0.0)
    faults.play(faults.hangs_after(faults.event({"choices": [{"delta": {"content": "I <b>think</b> so"}}]})))
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 32_000}
    priced.engine.launch({"goal": "Read the log.", "planner": planner}, root=priced.root)
    watch = Watch(PageContext(priced.engine, make_templates(), priced.keys.csrf))
    runner = priced.engine.runner()
    watch._listeners[asyncio.Queue()] = 1
    with in_thread(runner.run, runner.stop):
        try:
            wait_until(lambda: priced.engine.drafts(1))
            for path in ("/missions/1", "/missions/1/questions/1"):
                assert "The planner writes: I <b>think</b> so" in priced.get(path).words
            watch._look(False)
            assert [one["mission"] for one in watch._look(False, True)[0]] == [1]
            assert watch._look(False, True)[0] == []
        finally:
            faults.hung.set()
