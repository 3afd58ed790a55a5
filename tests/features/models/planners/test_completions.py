"""Each completion of a turn is listed: how it was asked, what it cost, and why it was not enough."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.json_values import JsonObject, list_in, object_in

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})


@pytest.fixture
def engine(emptied_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Engine(emptied_database_url) as opened:
        yield opened


def run(engine: Engine, faults: FaultServer, root: Path, **options: JsonValue) -> list[JsonObject]:
    """The completions of the only turn of a mission."""
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096, "max_tokens": 64, **options,
    }  # fmt: skip
    mission = engine.launch({"goal": "g", "planner": planner}, root=root)
    engine.work(until_idle=True)
    (turn,) = engine.turns(mission.id)
    return [object_in(made) for made in list_in(turn["completions"])]


def test_what_was_too_short_or_repeated_itself_is_listed_before_the_reply(
    engine: Engine, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(
        faults.says('{"ok": tr', finish="length"),
        faults.says("la " * 400, finish="length"),
        faults.says(DONE),
    )
    made = run(engine, faults, tmp_path)
    assert [(one["fault"], one["max_tokens"], one["temperature"]) for one in made] == [
        ("length", 64, None),
        ("repeats", 128, None),
        (None, 128, 0.8),
    ]
    assert [(one["input_tokens"], one["output_tokens"], one["attempt"]) for one in made] == [(11, 7, 1)] * 3
    assert [one["said"] for one in made] == ["it did not end within 64 tokens", "it repeated itself", ""]
    assert made[0]["text"] == '{"ok": tr'
    assert made[2]["text"] == "", "the reply itself is stored once"
    assert {one["model"] for one in made} == {"tiny"}
    assert {one["mode"] for one in made} == {"json_schema"}


def test_attempts_without_a_reply_are_listed_with_their_refusals(
    engine: Engine, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(*[faults.says(DONE, finish="length")] * 3, faults.refuses(503, "busy"), faults.says(DONE))
    made = run(engine, faults, tmp_path)
    assert [(one["fault"], one["attempt"]) for one in made] == [
        ("length", 1), ("length", 1), ("length", 1), ("failed", 2), (None, 2),
    ]  # fmt: skip
    assert "the server answered 503: busy" in str(made[3]["said"])
    assert (made[3]["input_tokens"], made[3]["output_tokens"]) == (None, None)


def test_a_long_text_that_was_not_enough_is_kept_in_part(
    engine: Engine, faults: FaultServer, tmp_path: Path
) -> None:
    faults.play(faults.says("".join(map(str, range(5000))), finish="length"), faults.says(DONE))
    text = str(run(engine, faults, tmp_path)[0]["text"])
    assert len(text) < 2100
    assert text.endswith(" more>")


def test_no_key_is_stored_with_a_completion(
    engine: Engine, faults: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-canary-0123456789abcdef"
    monkeypatch.setenv("LCP_PLANNER_KEY", key)
    monkeypatch.setenv("LCP_PLANNER_ENDPOINT", faults.url)
    faults.play(
        faults.says(f"you sent {key}", finish="length"), faults.refuses(503, f"not {key}"), faults.says(DONE)
    )
    made = run(engine, faults, tmp_path)
    assert len(made) == 3
    assert "canary" not in json.dumps(made)


def test_a_fork_and_a_replay_keep_the_list(engine: Engine, faults: FaultServer, tmp_path: Path) -> None:
    faults.play(faults.says(DONE, finish="length"), faults.says(DONE))
    made = run(engine, faults, tmp_path)
    assert engine.replay(1, keep=tmp_path / "again").differences == ()
    (scratch,) = (tmp_path / "again").glob("*.db")
    with Engine(f"sqlite:///{scratch}") as replayed:
        (turn,) = replayed.turns(1)
    assert turn["completions"] == made
