"""Held jobs that nobody decides on in time (`hold_timeout`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.clock import SECOND, system_clock
from lcp_engine.errors import LcpError

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


@pytest.fixture
def now() -> list[int]:
    return [1_000_000_000 * SECOND]


@pytest.fixture
def lab(open_lab: OpenLab, now: list[int]) -> Lab:
    """A laboratory whose clock stands still until a test moves it."""
    return open_lab(clock=lambda: now[0])


def ask(*kinds: str) -> Object:
    new_jobs: list[JsonValue] = [
        {"kind": kind, "params": {"question": str(n)}} for n, kind in enumerate(kinds)
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def test_a_held_job_is_rejected_when_its_time_is_over_and_the_planner_reads_why(
    lab: Lab, now: list[int]
) -> None:
    lab.run(ask("change", "ask_user"), DONE, hold_timeout=60)
    assert lab.engine.expiries() == dict.fromkeys((2, 3), "2001-09-09T01:47:40.000000+00:00")
    now[0] += 59 * SECOND
    lab.work()
    assert lab.states() == ["held", "held"]
    now[0] += SECOND
    lab.work()
    assert lab.states() == ["rejected", "rejected"]
    assert lab.mission().status == "completed"
    assert [seen.reason for seen in lab.questions[1].results] == [
        "no decision within 60 s (hold_timeout)"
    ] * 2
    assert lab.engine.expiries() == {}
    with pytest.raises(LcpError, match="is rejected; only held jobs"):
        lab.engine.approve(2)


def test_a_decision_in_time_counts(lab: Lab, now: list[int]) -> None:
    lab.run(ask("change", "ask_user"), DONE, DONE, hold_timeout=60)
    lab.engine.approve(2)
    lab.engine.answer(3, "yes")
    now[0] += 3600 * SECOND
    lab.work()
    assert lab.states() == ["succeeded", "succeeded"]


def test_without_a_timeout_nothing_expires(lab: Lab, now: list[int]) -> None:
    lab.run(ask("change"), DONE)
    now[0] += 10**6 * SECOND
    lab.work()
    assert (lab.states(), lab.engine.expiries()) == (["held"], {})


def test_a_job_that_is_held_again_has_its_time_from_then(lab: Lab, now: list[int]) -> None:
    lab.run(ask("change"), DONE, DONE, hold_timeout=60)
    now[0] += 30 * SECOND
    lab.engine.cancel(1)
    lab.engine.resume(1)
    lab.engine.retry(2)
    assert lab.engine.expiries() == {2: "2001-09-09T01:48:10.000000+00:00"}
    lab.work()


def test_a_person_who_brings_no_reply_in_time_ends_the_mission(lab: Lab, now: list[int]) -> None:
    lab.engine.launch({"goal": "g", "planner": "human", "hold_timeout": 5}, root=lab.root)
    lab.work()
    assert lab.mission().status == "waiting"
    now[0] += 5 * SECOND
    lab.work()
    mission = lab.mission()
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert "no decision within 5 s" in str(mission.summary)


def test_more_holds_than_one_sweep_takes_expire_all(lab: Lab, now: list[int]) -> None:
    limits: Object = {"max_followups": 150, "max_jobs": 150}
    lab.run(ask(*["change"] * 150), DONE, hold_timeout=1, limits=limits)
    now[0] += SECOND
    lab.work()
    lab.work()
    assert set(lab.states()) == {"rejected"}
    assert lab.mission().status == "completed"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "soon"])
def test_a_timeout_is_a_number_of_seconds(lab: Lab, seconds: JsonValue) -> None:
    with pytest.raises(LcpError, match="hold_timeout"):
        lab.launch(DONE, hold_timeout=seconds)


def test_a_clock_that_was_set_back_makes_no_drift_of_the_missions_own_changes(open_lab: OpenLab) -> None:
    shift = [0]
    lab = open_lab(clock=lambda: system_clock() + shift[0])
    writes: list[JsonValue] = [
        {"kind": "write_file", "params": {"rel_path": "b", "content": text}} for text in ("one", "two")
    ]
    lab.run({"ok": True, "action": "create_followup_jobs", "new_jobs": writes}, policy=[])
    first, second = (job.id for job in lab.jobs())
    assert lab.engine.approve(first)
    assert lab.engine.approve(second)
    shift[0] -= 60 * SECOND
    lab.work()
    assert lab.states() == ["succeeded", "succeeded"]
    assert (lab.root / "b").read_text() == "two"
