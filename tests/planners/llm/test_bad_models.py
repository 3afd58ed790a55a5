"""A bad model ends its mission in words, within its limits, and never completes it by an echo."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.json_values import list_in, object_in

if TYPE_CHECKING:
    from tests.planners.llm.conftest import Body, FaultServer

    from lcp_engine.store.queries.records import Mission

GOAL = "Read notes.md and say on which day the garden was dug."
RULE = "Never ask for a job again whose result you have."
FOUND = "It was dug on a Tuesday, as notes.md says."
MOST_QUESTIONS = 13


@pytest.fixture
def engine(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Engine(database_url) as opened:
        yield opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "notes.md").write_text("# Notes\nThe garden was dug on a Tuesday.\n")
    return root


def run(engine: Engine, faults: FaultServer, root: Path, **more: JsonValue) -> Mission:
    """A mission whose model plays what `faults` has, once nothing of it can run any more."""
    planner: Body = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 8192}
    dialect = more.pop("dialect", "lcp")
    stated: Body = {
        "goal": GOAL,
        "planner": {**planner, "dialect": dialect},
        "limits": {"max_turns": 5},
        **more,
    }
    mission = engine.launch(stated, root=root)
    engine.work(until_idle=True)
    ended = engine.mission(mission.id)
    assert len(faults.requests) <= MOST_QUESTIONS
    return ended


def lcp(action: str, **more: JsonValue) -> str:
    return json.dumps({"action": action, "ok": action != "error", **more})


def ends(text: str) -> str:
    return lcp("analysis_result", summary=text)


def reads(path: str) -> str:
    return lcp("create_followup_jobs", new_jobs=[{"kind": "read_file", "params": {"rel_path": path}}])


def errors(engine: Engine, mission: Mission) -> list[list[str]]:
    """The codes of what was wrong with each reply."""
    found = [turn["errors"] for turn in engine.turns(mission.id)]
    return [[str(object_in(error).get("code")) for error in list_in(errors)] for errors in found]


ECHOES = {
    "the goal": ends(GOAL),
    "the goal again": ends(f"The goal is still: {GOAL}"),
    "a rule": ends(RULE),
    "the last sentence": lcp("mission_complete", summary="Answer with the next action. One JSON object, nothing else."),
    "a placeholder": lcp("mission_complete", summary="what was reached"),
    "an error": lcp("error", error=f"The goal is still: {GOAL}"),
    "no jobs": lcp("create_followup_jobs", new_jobs=[], commentary=GOAL),
    "one token": ends("the " * 200),
}  # fmt: skip


@pytest.mark.parametrize("reply", ECHOES.values(), ids=list(ECHOES))
def test_a_model_that_only_echoes_completes_nothing(
    reply: str, engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reply))
    mission = run(engine, faults, root)
    assert (mission.status, mission.outcome, mission.error["error_code"]) == (
        "failed",
        "invalid_reply",
        "ECHO",
    )
    assert errors(engine, mission) == [["ECHO"]] * 3
    assert "of its own" in str(mission.error["user_message"])
    assert "it is to say what was found or done" in str(faults.requests[1].body)


def test_an_echo_in_the_other_dialect_is_refused_at_its_own_key(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    said = {
        "response_type": "answer",
        "status": "success",
        "message": GOAL,
        "answer_data": {"confidence": "high"},
    }
    faults.play(faults.says(json.dumps(said)))
    mission = run(engine, faults, root, dialect="universal")
    assert (mission.outcome, mission.error["error_code"]) == ("invalid_reply", "ECHO")
    assert "'path': 'message'" in str(engine.turns(mission.id)[0]["errors"])


def test_an_echo_is_corrected_and_then_the_answer_counts(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reads("notes.md")), faults.says(ends(GOAL)), faults.says(ends(FOUND)))
    mission = run(engine, faults, root)
    assert (mission.status, mission.summary, mission.turns) == ("completed", FOUND, 2)
    assert errors(engine, mission) == [[], ["ECHO"], []]


def test_a_line_of_a_file_is_an_answer_though_it_stands_in_the_prompt(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reads("notes.md")), faults.says(ends("The garden was dug on a Tuesday.")))
    assert run(engine, faults, root).summary == "The garden was dug on a Tuesday."


def test_an_echo_in_the_last_turn_ends_the_mission_with_its_limit(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reads("notes.md")), faults.says(ends(GOAL)))
    mission = run(engine, faults, root, limits={"max_turns": 1})
    assert (mission.status, mission.outcome) == ("failed", "limit:max_turns")
    assert "summary repeats the goal" in (mission.summary or "")


def test_a_script_and_a_person_may_end_with_the_goal(engine: Engine, root: Path) -> None:
    script: Body = {"type": "script", "replies": [json.loads(ends(GOAL))]}
    first = engine.launch({"goal": GOAL, "planner": script}, root=root)
    second = engine.launch({"goal": GOAL, "planner": "human"}, root=root)
    engine.work(until_idle=True)
    (turn,) = engine.jobs(mission_id=second.id)
    engine.answer(turn.id, ends(GOAL))
    engine.work(until_idle=True)
    assert [engine.mission(one.id).summary for one in (first, second)] == [GOAL, GOAL]


def test_a_refused_echo_is_replayed_as_it_was_judged_then(
    engine: Engine, faults: FaultServer, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.play(faults.says(ends(GOAL)), faults.says(ends(FOUND)))
    mission = run(engine, faults, root)
    monkeypatch.setattr("lcp_engine.planners.llm.instructions.is_echo", lambda text, told: text == FOUND)
    assert engine.replay(mission.id).is_same


OF_ENGINE = ["PLANNER_FAILED", "PLANNER_REFUSED", "TIMEOUT", "DATABASE_BUSY", "RUNNER_DIED"]


@pytest.mark.parametrize("dialect", ["lcp", "universal"])
@pytest.mark.parametrize("code", OF_ENGINE)
def test_a_model_that_only_errs_ends_with_its_own_words(
    dialect: str, code: str, engine: Engine, faults: FaultServer, root: Path
) -> None:
    said = "you have exceeded the maximum limit to answer the question."
    details = {"error_code": code, "error_type": "system_error"}
    universal = {"response_type": "error", "status": "error", "message": said, "error_details": details}
    faults.play(
        faults.says(
            {"lcp": lcp("error", error=said, error_code=code), "universal": json.dumps(universal)}[dialect]
        )
    )
    mission = run(engine, faults, root, dialect=dialect)
    assert (mission.status, mission.outcome, mission.summary) == ("failed", "error", said)
    assert (mission.error["error_type"], mission.error["error_code"]) == (
        "execution_error",
        "PLANNER_GAVE_UP",
    )
    assert "reachable" not in str(mission.error)
    assert len(faults.requests) == 1
