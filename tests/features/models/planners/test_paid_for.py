"""A question that got no reply was paid for: it counts, it is shown, and what is refused for good is asked once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine import Engine

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})
LOOK = json.dumps(
    {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "list_files", "params": {}}]}
)


@pytest.fixture
def engine(emptied_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Engine(emptied_database_url) as opened:
        yield opened


def run(engine: Engine, faults: FaultServer, root: Path, **limits: JsonValue) -> int:
    """A mission that is over, by a planner whose completions have 11 tokens of prompt and 7 of reply; its id."""
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096, "max_tokens": 512,
    }  # fmt: skip
    mission = engine.launch({"goal": "g", "planner": planner, "limits": limits}, root=root)
    engine.work(until_idle=True)
    return mission.id


def test_a_question_without_a_reply_counts_and_is_shown_with_its_attempt(
    engine: Engine, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(*[faults.says(DONE, finish="length")] * 3, faults.says(DONE))
    mission = engine.mission(run(engine, faults, tmp_path))
    assert mission.status == "completed", mission.error
    assert mission.json["tokens"] == {"input": 44, "output": 28}
    (job,) = engine.jobs(mission_id=mission.id)
    paid = [(each["input_tokens"], each["output_tokens"]) for each in job.attempts if isinstance(each, dict)]
    assert paid == [(33, 21), (None, None)], "those of a reply stand with the turn"
    query = "SELECT input_tokens, output_tokens FROM attempt_history ORDER BY attempt"
    assert [tuple(row) for row in engine.instance.database.read(lambda tx: tx.query_plain(query))] == paid


def test_no_key_goes_to_a_server_that_only_the_mission_names(
    engine: Engine, faults: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "sk-canary-0123456789abcdef")
    faults.play(faults.refuses(401, "no key"))
    mission = engine.mission(run(engine, faults, tmp_path))
    assert mission.error is not None
    said = str(mission.error["user_message"])
    assert "neither environment nor configuration names this address; set LCP_PLANNER_ENDPOINT=" in said
    assert not [request for request in faults.requests if "canary" in str(request.headers)]


def test_a_limit_sees_what_was_paid_for_nothing(engine: Engine, faults: FaultServer, tmp_path: Path) -> None:
    faults.play(*[faults.says(DONE, finish="length")] * 3, faults.says(LOOK), faults.says(DONE))
    mission_id = run(engine, faults, tmp_path, max_tokens=60)
    assert [turn["last_turn"] for turn in engine.turns(mission_id)] == [None, "max_tokens"]


def test_an_attempt_after_which_a_limit_is_used_up_leaves_one_more_which_is_the_last(
    engine: Engine, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(*[faults.says(DONE, finish="length")] * 3, faults.says(DONE))
    mission = engine.mission(run(engine, faults, tmp_path, max_tokens=40))
    assert [turn["last_turn"] for turn in engine.turns(mission.id)] == ["max_tokens"]
    assert mission.status == "completed"
    metrics = mission.json["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["limit"] == "max_tokens"
    assert engine.replay(mission.id).differences == ()


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (
            (401, "wrong key"),
            "a key is expected: no key was sent, because the environment has none; set LCP_PLANNER_ENDPOINT=http://127",
        ),
        (
            (403, "no access"),
            "a key is expected: no key was sent, because the environment has none; set LCP_PLANNER_ENDPOINT=http://127",
        ),
        ((404, "model 'tiny' not found"), "model 'tiny': did you mean 'tiny-2'?"),
        ((400, "a colour is expected"), "the server answered 400: a colour is expected"),
    ],
    ids=["wrong key", "forbidden", "unknown model", "bad option"],
)
def test_what_is_refused_for_good_is_not_tried_again(
    engine: Engine, faults: FaultServer, tmp_path: Path, refusal: tuple[int, str], advice: str
) -> None:
    faults.models = ("tiny-2",)
    faults.play(faults.refuses(*refusal))
    mission = engine.mission(run(engine, faults, tmp_path))
    (job,) = engine.jobs(mission_id=mission.id)
    assert (str(job.state), len(job.attempts)) == ("failed", 1)
    assert mission.error is not None
    assert mission.error["error_code"] == "PLANNER_REFUSED"
    assert advice in str(mission.error["user_message"])
