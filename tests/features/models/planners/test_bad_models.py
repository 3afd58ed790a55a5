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
    from tests.features.models.planners.conftest import Body, FaultServer

    from lcp_engine.store.queries.records import Mission

GOAL = "Read notes.md and say on which day the garden was dug."
RULE = "Never ask for a job again whose result you have."
FOUND = "It was dug on a Tuesday, as notes.md says."
MOST_QUESTIONS = 13


@pytest.fixture
def engine(emptied_database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for name in ("LCP_PLANNER_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with Engine(emptied_database_url) as opened:
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


def test_words_of_an_example_in_the_prompt_are_no_answer(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    planner: Body = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 8192}
    leaked = "notes.md sets max_boxes to 10, so 10 boxes fit."
    lists = lcp("create_followup_jobs", new_jobs=[{"kind": "list_files", "params": {"root": "."}}])
    faults.play(*map(faults.says, [lists, reads("notes.md"), ends(leaked), ends(FOUND)]))
    mission = run(engine, faults, root, planner={**planner, "guidance": "on"})
    assert (mission.status, mission.summary) == ("completed", FOUND)
    assert errors(engine, mission) == [[], [], ["ECHO"], []]
    assert "of which only an example of the instructions speaks" in str(engine.turns(mission.id)[2]["errors"])


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
    monkeypatch.setattr(
        "lcp_engine.features.models.prompts.instructions.is_echo", lambda text, told: text == FOUND
    )
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


def universal(response_type: str, **more: JsonValue) -> str:
    return json.dumps({"response_type": response_type, "status": "success", "message": "A plan.", **more})


PLAN = universal(
    "planning",
    planning_data={
        "summary": "p",
        "steps": [{"step_number": 1, "action": "Read notes.md", "details": "all"}],
    },
)


def test_a_model_that_only_plans_ends_within_its_limits(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(PLAN))
    mission = run(engine, faults, root, dialect="universal")
    assert mission.status == "failed"
    assert mission.turns <= 6
    assert mission.summary


@pytest.mark.parametrize("text", ["the " * 3000, '{"action": "' + "a" * 3000, "no " * 20 + "}", "\\" * 2000])
def test_a_model_that_repeats_one_token_is_no_action(
    text: str, engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(text))
    mission = run(engine, faults, root)
    assert (mission.status, mission.outcome, mission.error["error_code"]) == (
        "failed",
        "invalid_reply",
        "INVALID_REPLY",
    )
    assert mission.summary


def test_a_model_that_answers_in_another_language_is_read_like_any_other(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    answer = "庭は火曜日に掘られました。"
    faults.play(
        faults.says("Ich kann das nicht als JSON sagen."),
        faults.says(reads("notes.md")),
        faults.says(ends(answer)),
    )
    mission = run(engine, faults, root)
    assert (mission.status, mission.summary) == ("completed", answer)


def test_an_echo_in_another_script_is_an_echo(engine: Engine, faults: FaultServer, root: Path) -> None:
    goal = "Прочитай notes.md и скажи, в какой день был вскопан сад."
    faults.play(faults.says(ends(f"The goal is still: {goal}")))
    mission = run(engine, faults, root, goal=goal)
    assert mission.error["error_code"] == "ECHO"


def test_a_model_that_invents_files_ends_without_progress(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reads("invented.md")))
    mission = run(engine, faults, root, limits={"max_turns": 9})
    assert (mission.status, mission.outcome) == ("failed", "no_progress")
    failed = engine.jobs(mission_id=mission.id, states=["failed"])
    assert {object_in(job.json["error"])["error_code"] for job in failed} == {"PATH_NOT_FOUND"}


def test_a_model_that_quotes_lines_that_are_not_there_is_not_believed(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    wrong = lcp(
        "analysis_result", summary="One issue.", issues=["notes.md: `import os, sys, re` is not used"]
    )
    faults.play(faults.says(reads("notes.md")), faults.says(wrong))
    mission = run(engine, faults, root, accept=[{"claims": "issues"}], limits={"max_turns": 4})
    assert (mission.status, mission.outcome) == ("failed", "limit:max_turns")
    assert "quotes what is not in notes.md" in (mission.summary or "")


def test_a_model_that_returns_63_megabytes_is_refused_and_ends_in_words(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(ends("a long story " * 5_000_000)))
    mission = run(engine, faults, root, kinds={"agent_plan": {"retry": {"max_attempts": 1}}})
    assert (mission.status, mission.error["error_code"]) == ("failed", "PLANNER_FAILED")
    assert "bytes" in str(mission.error["user_message"])
    assert len(faults.requests) == 1


def test_a_model_that_is_swapped_in_the_middle_changes_nothing_that_was_done(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(reads("notes.md")), faults.refuses(404, "the model 'tiny' does not exist"))
    faults.models = ("other",)
    mission = run(engine, faults, root)
    assert (mission.status, mission.error["error_code"]) == ("failed", "PLANNER_REFUSED")
    faults.play(*[faults.says(ends(FOUND))] * 9)
    engine.resume(mission.id)
    engine.work(until_idle=True)
    ended = engine.mission(mission.id)
    assert (ended.status, ended.summary) == ("completed", FOUND)
    assert [job.state for job in engine.jobs(mission_id=mission.id, kinds=["read_file"])] == ["succeeded"]


QUOTED = lcp("write_file", rel_path="notes.md", content="gone\n")
THOUGHTS = [
    f"One option would be {QUOTED}. No, that would overwrite it.",
    f"{QUOTED} would overwrite it.",
    f"I could say {lcp('mission_complete', summary='It was dug on a Tuesday.')}",
    f"```json\n{QUOTED}\n```",
]


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("thought", THOUGHTS)
def test_an_action_that_a_thought_quotes_is_not_carried_out(
    thought: str, key: str, engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(thought, key=key))
    mission = run(engine, faults, root, policy=[{"kinds": ["*"], "do": "auto"}])
    assert (mission.status, mission.outcome) == ("failed", "invalid_reply")
    assert (root / "notes.md").read_text() == "# Notes\nThe garden was dug on a Tuesday.\n"
    assert engine.jobs(mission_id=mission.id, kinds=["write_file"]) == []
    (first, *_) = engine.turns(mission.id)
    assert first["reply"] == ""
    (made,) = list_in(first["completions"])
    assert object_in(made)["text"] == thought, "people can read what it thought"


def test_a_thought_that_is_the_action_and_nothing_else_is_carried_out(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(f"\n{QUOTED}\n", key="reasoning_content"), faults.says(ends(FOUND)))
    mission = run(engine, faults, root, policy=[{"kinds": ["*"], "do": "auto"}])
    assert mission.status == "completed"
    assert (root / "notes.md").read_text() == "gone\n"


def test_words_on_both_sides_of_an_action_are_corrected(
    engine: Engine, faults: FaultServer, root: Path
) -> None:
    faults.play(faults.says(f"For example {QUOTED}. What is the goal?"), faults.says(ends(FOUND)))
    mission = run(engine, faults, root, policy=[{"kinds": ["*"], "do": "auto"}])
    assert mission.status == "completed"
    assert (root / "notes.md").read_text() != "gone\n"
    assert "here they stand on both sides" in str(faults.requests[1].body)
