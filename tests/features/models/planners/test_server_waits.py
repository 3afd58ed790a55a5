"""A server that asks to wait is left alone by all its questions, without a thread or a charge (R34)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
from pydantic import JsonValue
from tests.features.models.planners.conftest import FaultServer, Play, work, work_until_waiting
from tests.tables import table

from lcp_engine import Engine, Mission, Question, Reply
from lcp_engine.clock import SECOND, Micros, system_clock
from lcp_engine.engine.question import pause_of
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.planners import registry
from lcp_engine.planning import AskedToWait

if TYPE_CHECKING:
    from lcp_engine.runner.runner import Runner

DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})
LOOK = json.dumps(
    {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "list_files", "params": {}}]}
)
KEY = "sk-canary-0123456789abcdef"
Object: TypeAlias = dict[str, JsonValue]


class Desk:
    """An engine whose clock the test sets forward, and missions that ask the server `faults`."""

    def __init__(self, url: str, faults: FaultServer, root: Path) -> None:
        self.faults = faults
        self.root = root
        self.ahead: Micros = 0
        self.waits: list[float] = []
        self.url = url
        self.engine = Engine(url, clock=lambda: system_clock() + self.ahead)

    def launch(self, *, planner: Object | None = None, **spec: JsonValue) -> int:
        asked: Object = {
            "type": "openai",
            "base_url": self.faults.url,
            "model": "tiny",
            "context_tokens": 4096,
        }
        whole: Object = {"goal": "g", "planner": {**asked, "max_tokens": 512, **(planner or {})}, **spec}
        return self.engine.launch(whole, root=self.root).id

    def work(self) -> None:
        """Work until nothing is queued; the clock is set forward to the end of each wait."""
        work(self.engine, self._leap)

    def run(self, *, planner: Object | None = None, **spec: JsonValue) -> Mission:
        mission_id = self.launch(planner=planner, **spec)
        self.work()
        return self.engine.mission(mission_id)

    def codes(self, mission_id: int = 1) -> list[JsonValue]:
        """Why the turns of a mission were given back."""
        events = [event for event in self.engine.events(mission_id) if event["event"] == "released"]
        return [event["data"]["code"] for event in events if isinstance(event["data"], dict)]

    def _leap(self, runner: Runner, waits: Sequence[Mission]) -> None:
        assert {one.waits_for["code"] for one in waits} == {"asked_to_wait"}
        assert {one.status for one in waits} == {"running"}
        ends = [datetime.fromisoformat(str(one.waits_for["until"])).timestamp() for one in waits]
        left = min(ends) - (system_clock() + self.ahead) / SECOND
        if left > 0:
            self.waits.append(left)
            self.ahead += int(left * SECOND) + 1


@pytest.fixture
def desk(
    emptied_database_url: str, faults: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    monkeypatch.setenv("LCP_PLANNER_KEY", KEY)
    monkeypatch.setenv("LCP_PLANNER_ENDPOINT", faults.url)
    opened = Desk(emptied_database_url, faults, tmp_path)
    with opened.engine:
        yield opened
    assert check_database(emptied_database_url) == []


def slow(seconds: str | None = None) -> Play:
    """HTTP 429 as OpenAI sends it."""
    error: JsonValue = {
        "message": "Rate limit reached for gpt-4o on requests per min (RPM). Please try again later. "
        "You can raise it by adding a payment method at https://platform.openai.com/account/billing.",
        "type": "requests", "param": None, "code": "rate_limit_exceeded",
    }  # fmt: skip
    headers = {"x_ratelimit_reset_requests": "8.64s"} if seconds is None else {"Retry_After": seconds}
    data = json.dumps({"error": error}).encode()
    return FaultServer.sends(data, status=429, content_type="application/json", **headers)


def test_a_question_waits_as_its_server_asks_and_is_charged_with_no_attempt(desk: Desk) -> None:
    desk.faults.play(slow("90"), slow(), slow("Sun, 06 Nov 1994 08:49:37 GMT"), desk.faults.says(DONE))
    kinds: JsonValue = {"agent_plan": {"retry": {"max_attempts": 1}}}
    mission = desk.run(kinds=kinds, limits={"max_seconds": 5})
    assert (mission.status, mission.waits_for, mission.turns) == ("completed", {}, 1), mission.error
    assert mission.tokens == {"input": 11, "output": 7}
    assert 85 < desk.waits[0] <= 90
    assert desk.codes() == ["asked_to_wait"] * 3
    (job,) = desk.engine.jobs(mission_id=mission.id)
    assert [each["outcome"] for each in job.attempts if isinstance(each, dict)] == ["succeeded"]
    assert len(desk.faults.requests) == 4
    bodies = [request.body for request in desk.faults.requests]
    assert bodies == [bodies[0]] * 4, "nothing was wrong with the question: it is asked again as it was"


def test_other_questions_with_the_same_key_wait_too_and_those_with_another_do_not(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.faults.play(slow("90"), desk.faults.says(DONE))
    first = desk.launch()
    work_until_waiting(desk.engine)
    until = desk.engine.mission(first).waits_for
    second = desk.launch(planner={"model": "small"})
    work_until_waiting(desk.engine)
    assert desk.engine.mission(second).waits_for == until
    assert len(desk.faults.requests) == 1
    monkeypatch.setenv("LCP_PLANNER_KEY", "sk-another")
    with Engine(desk.url) as other:
        third = desk.launch()
        other.work(until_idle=True, mission_id=third)
        assert other.mission(third).status == "completed"
        assert other.mission(first).waits_for == until
    monkeypatch.setenv("LCP_PLANNER_KEY", KEY)
    desk.work()
    assert [one.status for one in desk.engine.missions()] == ["completed"] * 3
    (job,) = desk.engine.jobs(mission_id=second)
    assert len(job.attempts) == 1
    rows = desk.engine.instance.database.read(lambda tx: tx.query_plain("SELECT name FROM server_waits"))
    assert all(desk.faults.url in str(name) and KEY not in str(name) for (name,) in rows)


def test_no_thread_is_held_while_a_question_waits(desk: Desk) -> None:
    desk.faults.play(slow("90"), desk.faults.says(DONE))
    first = desk.launch()
    script: Object = {"goal": "g", "planner": {"type": "script", "replies": [LOOK, DONE]}}
    other = desk.engine.launch(script, root=desk.root).id
    work_until_waiting(desk.engine)
    assert desk.engine.mission(other).status == "completed"
    assert desk.engine.mission(first).waits_for
    desk.work()


def test_a_question_waits_so_long_and_then_the_mission_fails_and_can_be_resumed(desk: Desk) -> None:
    desk.faults.play(slow("1000000000"))
    mission = desk.run(planner={"max_wait": 600})
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert 590 < sum(desk.waits) <= 600
    assert "planner.max_wait allows 600 s" in str(mission.error["user_message"])
    assert len(desk.faults.requests) == 2
    desk.faults.play(desk.faults.says(DONE))
    desk.engine.resume(mission.id)
    desk.work()
    assert desk.engine.mission(mission.id).status == "completed"


@pytest.mark.parametrize("planner", [{"max_wait": 0}, {}], ids=["max_wait 0", "no credit"])
def test_what_is_not_to_wait_fails_at_once(desk: Desk, planner: Object) -> None:
    desk.faults.play(slow("90") if planner else desk.faults.refuses(429, "insufficient_quota"))
    mission = desk.run(planner=planner)
    assert (mission.status, desk.waits, len(desk.faults.requests)) == ("failed", [], 1)


def test_a_mission_that_waits_can_be_cancelled_resumed_replayed_and_forked(desk: Desk) -> None:
    desk.faults.play(desk.faults.says(LOOK), slow("90"), desk.faults.says(DONE))
    mission_id = desk.launch()
    work_until_waiting(desk.engine)
    fork = desk.engine.fork(mission_id, turn=2).id
    work_until_waiting(desk.engine)
    assert desk.engine.mission(fork).waits_for == desk.engine.mission(mission_id).waits_for
    desk.engine.cancel(fork)
    desk.engine.cancel(mission_id)
    assert desk.engine.mission(mission_id).waits_for == {}
    assert desk.engine.replay(mission_id).is_same
    desk.faults.play(*[desk.faults.says(LOOK)] * 4, desk.faults.says(DONE))
    desk.engine.resume(mission_id)
    desk.work()
    found = desk.engine.mission(mission_id)
    assert (found.status, found.turns, desk.waits) == ("completed", 5, []), "a person wants it now"
    assert desk.engine.replay(mission_id).is_same


def test_another_runner_asks_what_waited_when_one_ended(desk: Desk) -> None:
    desk.faults.play(slow("1"), desk.faults.says(DONE))
    mission_id = desk.launch()
    work_until_waiting(desk.engine)
    desk.engine.close()
    with Engine(desk.url) as other:
        other.work(until_idle=True)
        assert other.mission(mission_id).status == "completed"


def test_corrections_and_verifications_wait_like_any_question(desk: Desk) -> None:
    passed = json.dumps({"ok": True, "action": "mission_complete", "summary": "it is so"})
    answers = [desk.faults.says("junk"), desk.faults.says(DONE), desk.faults.says(passed)]
    desk.faults.play(*[play for answer in answers for play in (slow("30"), answer)])
    mission = desk.run(accept=[{"verify": "It is so."}])
    assert (mission.status, mission.turns, len(desk.waits)) == ("completed", 2, 3), mission.error


@pytest.mark.parametrize("kind", ["rate_limit_error", "overloaded_error"])
def test_what_a_stream_counted_before_it_was_broken_off_counts(desk: Desk, kind: str) -> None:
    event = desk.faults.event
    begin: JsonValue = {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 40, "output_tokens": 1}},
    }
    error: JsonValue = {"type": "error", "error": {"type": kind, "message": "Overloaded"}}
    done: list[JsonValue] = [
        begin,
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": DONE}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    ]
    sends = desk.faults.sends
    desk.faults.play(
        sends(event(begin, "message_start") + event(error, "error")), sends(b"".join(map(event, done)))
    )
    mission = desk.run(planner={"type": "anthropic"})
    assert (mission.status, mission.tokens) == ("completed", {"input": 80, "output": 10}), mission.error
    assert desk.codes() == ["asked_to_wait"]


class Busy:
    """A plug-in's planner, as its author would write it, that is asked to wait once."""

    asked = 0

    def server_wait(self) -> tuple[str, float]:
        return "the moon", 600.0

    def answer(self, question: Question, /) -> Reply:
        type(self).asked += 1
        if self.asked == 1:
            raise AskedToWait("the moon is not up", seconds=120, input_tokens=3)
        return Reply(DONE, input_tokens=4)


def test_a_plug_in_asks_to_wait_and_names_its_server(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = EntryPoint("busy", f"{__name__}:Busy", registry.GROUP)
    monkeypatch.setattr(registry, "offered_in", lambda group: [entry])
    monkeypatch.setattr(Busy, "asked", 0)
    for _ in range(2):
        desk.engine.launch({"goal": "g", "planner": {"type": "busy"}}, root=desk.root)
    work_until_waiting(desk.engine)
    assert Busy.asked == 1
    desk.work()
    assert [one.status for one in desk.engine.missions()] == ["completed"] * 2
    assert sum(one.tokens["input"] for one in desk.engine.missions()) == 11
    assert 110 < desk.waits[0] <= 120


def test_a_step_of_a_plan_waits_like_any_question(desk: Desk) -> None:
    step: JsonValue = {"kind": "agent_plan", "params": {"user_prompt": "p", "scope": "step"}}
    ask = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [step]})
    desk.faults.play(desk.faults.says(ask), slow("30"), desk.faults.says(DONE))
    mission = desk.run()
    assert (mission.status, len(desk.waits), len(desk.faults.requests)) == ("completed", 1, 4), mission.error


@table(
    ("asked", "waited", "least", "most"),
    [
        (90.0, 0.0, 90.0, 90.0),
        (1.0, 500.0, 1.0, 1.0),
        (None, 0.0, 0.5, 1.0),
        (None, 8.0, 4.0, 8.0),
        (None, 3000.0, 30.0, 60.0),
        (0.0, 8.0, 4.0, 8.0),
        (-1.0, 8.0, 4.0, 8.0),
        (float("nan"), 8.0, 4.0, 8.0),
        (float("inf"), 8.0, 4.0, 8.0),
    ],
)
def test_pauses_are_what_the_server_asks_or_grow(
    asked: float | None, waited: float, least: float, most: float
) -> None:
    pauses = {pause_of(asked, waited, random.Random(seed)) for seed in range(50)}
    assert all(least <= pause <= most for pause in pauses)
    assert len(pauses) > 1 or least == most, "not all callers come back at once"
