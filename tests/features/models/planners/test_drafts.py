"""Words of a model are seen while it writes, in other processes too, and nothing is left of them with the reply."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx2
import pytest
from pydantic import JsonValue
from sqlalchemy import text
from tests.features.models.planners import test_anthropic_messages as anthropic
from tests.features.models.planners import test_openai_chat as openai
from tests.features.models.planners.conftest import FaultServer, Play
from tests.patience import PATIENCE_SECONDS, in_thread, wait_until
from tests.tables import table

from lcp_engine import Engine
from lcp_engine.features.models import planner as model_planner
from lcp_engine.features.models.endpoints.anthropic_messages import AnthropicMessages
from lcp_engine.features.models.endpoints.http import Exchange
from lcp_engine.features.models.prompts.output_modes import Rung
from lcp_engine.features.reports.store import drafts
from lcp_engine.sandbox.file_access import Shortage
from lcp_engine.store.db.statements import Statement

KEY = "sk-canary-0123456789"
WORDS = "The first shelf holds books of all sorts, the second one lamps, and the third is empty."
DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": WORDS})


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "REST_SECONDS", 0.02)
    monkeypatch.setattr(model_planner, "DRAFT_SECONDS", 0.0)


def writes(written: Sequence[str], goes_on: threading.Event, *, ends: bool = True) -> Play:
    """A stream whose last part comes when `goes_on` is set; without an end the connection breaks there."""

    def play(to: BaseHTTPRequestHandler) -> None:
        def send(choice: JsonValue) -> None:
            to.wfile.write(FaultServer.event({"choices": [choice]}))
            to.wfile.flush()

        to.send_response(200)
        to.send_header("Content-Type", "text/event-stream")
        to.end_headers()
        to.close_connection = True
        for part in written[:-1]:
            send({"delta": {"content": part}})
        assert goes_on.wait(PATIENCE_SECONDS)
        if ends:
            send({"delta": {"content": written[-1]}, "finish_reason": "stop"})

    return play


@contextmanager
def thinking(url: str, root: Path, faults: FaultServer) -> Iterator[tuple[Engine, int]]:
    """Another process' view of a mission whose planner writes."""
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 8192}
    with Engine(url) as at_work, Engine(url) as looking:
        mission_id = at_work.launch({"goal": "g", "planner": planner}, root=root).id
        runner = at_work.runner(until_idle=True)
        with in_thread(runner.run, runner.stop):
            yield looking, mission_id


def rows(engine: Engine) -> int:
    return int(engine.instance.read(lambda tx: tx.rows(Statement(text("SELECT count(*) FROM drafts"))))[0][0])


def test_words_are_seen_until_the_reply_is_there(
    emptied_database_url: str, tmp_path: Path, faults: FaultServer
) -> None:
    goes_on = threading.Event()
    faults.play(writes([DONE[:30], DONE[30:50], DONE[50:]], goes_on))
    with thinking(emptied_database_url, tmp_path, faults) as (engine, mission_id):
        wait_until(lambda: [*engine.drafts(mission_id).values()] == [DONE[:50]])
        assert [*engine.drafts(mission_id)] == [job.id for job in engine.jobs(states=["running"])]
        goes_on.set()
        wait_until(lambda: engine.mission(mission_id).status == "completed")
        assert engine.drafts(mission_id) == {}
        assert rows(engine) == 0
        assert engine.turns(mission_id)[0]["reply"] == DONE


def test_nothing_is_left_of_a_reply_that_breaks_off(
    sqlite_copy_url: str, tmp_path: Path, faults: FaultServer
) -> None:
    breaks, goes_on = threading.Event(), threading.Event()
    faults.play(writes(["of the first", ""], breaks, ends=False), writes([DONE[:20], DONE[20:]], goes_on))
    with thinking(sqlite_copy_url, tmp_path, faults) as (engine, mission_id):
        wait_until(lambda: [*engine.drafts(mission_id).values()] == ["of the first"])
        breaks.set()
        wait_until(lambda: [*engine.drafts(mission_id).values()] == [DONE[:20]])
        goes_on.set()
        wait_until(lambda: engine.mission(mission_id).status == "completed")
        assert rows(engine) == 0
        (turn,) = engine.turns(mission_id)
        assert [made["fault"] for made in turn["completions"]] == ["failed", None]  # type: ignore[index, union-attr, call-overload]


def test_no_part_of_a_key_is_shown(
    sqlite_copy_url: str, tmp_path: Path, faults: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LCP_PLANNER_KEY", KEY)
    monkeypatch.setenv("LCP_PLANNER_ENDPOINT", faults.url)
    goes_on = threading.Event()
    parts = ["It is ", KEY[:12], KEY[12:], ", say I, and no more than that", ""]
    faults.play(writes(parts, goes_on))
    seen = set[str]()
    with thinking(sqlite_copy_url, tmp_path, faults) as (engine, mission_id):

        def looked() -> bool:
            seen.update(engine.drafts(mission_id).values())
            return any(", say" in one for one in seen)

        try:
            wait_until(looked)
        finally:
            goes_on.set()
    assert not any(KEY[:6] in one for one in seen)


@table(
    ("parts", "heard"),
    [
        ([{"choices": [{"delta": {"content": "a"}}]}, {"choices": [{"delta": {"content": "b"}}]}], ["a", "b"]),
        ([{"choices": [{"delta": {"reasoning_content": "hm"}}]}], ["hm"]),
        ([{"choices": [{"delta": {"reasoning": "hm"}}]}], ["hm"]),
        ([{"choices": [{"delta": None}]}, {"choices": "x"}, {"choices": [3]}, {"usage": {}}], []),
        ([{"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}], []),
    ],
)  # fmt: skip
def test_words_are_those_of_deltas(parts: list[JsonValue], heard: list[str]) -> None:
    said = list[str]()
    body = b"".join(FaultServer.event(part) for part in parts)
    openai.chat(httpx2.Response(200, content=body)).complete(replace(openai.ask(), hear=said.append))
    assert said == heard


def test_words_of_anthropic_are_those_of_text_tools_and_thoughts() -> None:
    blocks: list[JsonValue] = [{"thinking": "hm"}, {"text": "p"}, {"partial_json": '{"a'}]
    body = b"".join(FaultServer.event(part) for part in anthropic.stream(*blocks))
    transport = httpx2.MockTransport(lambda _: httpx2.Response(200, content=body))
    said = list[str]()
    chat = AnthropicMessages(Exchange(anthropic.SETTINGS, {}, transport=transport), anthropic.SETTINGS)
    chat.complete(replace(anthropic.ask(Rung.PROMPT), hear=said.append))
    assert said == ["hm", "p", '{"a']


def test_words_for_which_no_thread_can_be_started_are_written_with_the_next_ones(
    sqlite_copy_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise Shortage.because("none is left")

    with Engine(sqlite_copy_url) as engine:
        mission_id = engine.launch({"goal": "g", "planner": {"type": "human"}}, root=tmp_path).id
        kept = drafts.StoredDrafts(engine.instance.database)
        with monkeypatch.context() as patched:
            patched.setattr(drafts, "start_thread", refuse)
            kept.keep(mission_id, 1, "a")
        monkeypatch.setattr(drafts, "REST_SECONDS", 0.01)
        kept.keep(mission_id, 2, "b")
        wait_until(lambda: rows(engine) == 2)


def test_a_short_reply_is_never_written_and_a_removed_one_does_not_come_back(
    sqlite_copy_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(sqlite_copy_url) as engine:
        mission_id = engine.launch({"goal": "g", "planner": {"type": "human"}}, root=tmp_path).id
        kept = drafts.StoredDrafts(engine.instance.database)
        kept.keep(mission_id, 1, "a")
        wait_until(lambda: rows(engine) == 1)
        for said in map(str, range(50)):
            kept.keep(mission_id, 1, f"{said}\0\ud800")
        kept.drop(mission_id, 1)
        assert rows(engine) == 0
        wait_until(lambda: not kept._is_writing)
        assert rows(engine) == 0
        monkeypatch.setattr(drafts, "REST_SECONDS", 0.5)
        kept.keep(mission_id, 2, "short")
        kept.drop(mission_id, 2)
        wait_until(lambda: not kept._is_writing)
        assert rows(engine) == 0
