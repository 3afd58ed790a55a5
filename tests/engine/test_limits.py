"""Caps, corrections, stalling and acceptance: what keeps a mission from going on for ever (R4, R6, R9, R11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.job_states import State
from lcp_engine.runner.lane import Lane

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
ERROR: Object = {"ok": False, "action": "error", "error": "lost"}


def ask(*jobs: Object | str) -> Object:
    """A reply that asks for jobs; a name is a job of the kind `do` with that name."""
    new_jobs: list[JsonValue] = [
        {"kind": "do", "params": {"of": job}} if isinstance(job, str) else {"params": {}, **job}
        for job in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def write(path: str, size: int) -> Object:
    return {"kind": "write_file", "params": {"rel_path": path, "content": "x" * size}}


# -- one turn beyond the limit


@pytest.mark.parametrize(
    ("last", "status", "outcome"),
    [
        (DONE, "completed", "mission_complete"),
        (ERROR, "failed", "error"),
        (ask("more"), "failed", "limit:max_turns"),
        (ask(), "failed", "limit:max_turns"),
        ("no JSON", "failed", "limit:max_turns"),
    ],
    ids=["complete", "error", "more jobs", "no jobs", "malformed"],
)
def test_max_turns_leaves_one_last_turn(lab: Lab, last: JsonValue, status: str, outcome: str) -> None:
    mission = lab.run(ask("a"), ask("b"), last, DONE, limits={"max_turns": 2})
    assert (mission.status, mission.outcome, mission.turns) == (status, outcome, 3)
    assert [question.last_turn for question in lab.questions] == [None, None, "max_turns"]
    assert lab.states() == ["succeeded", "succeeded"]
    assert lab.dig(mission.json, "metrics", "limit") == "max_turns"
    if outcome.startswith("limit:"):
        assert mission.error["error_code"] == "LIMIT_REACHED"


def test_a_mission_without_a_limit_reached_names_none(lab: Lab) -> None:
    metrics = lab.run(DONE).json["metrics"]
    assert isinstance(metrics, dict)
    assert "limit" not in metrics


def test_max_seconds_counts_running_time_only(open_lab: OpenLab) -> None:
    now = [1_000_000_000_000_000]
    lab = open_lab(clock=lambda: now[0])

    def advance() -> None:
        now[0] += 40_000_000

    lab.meanwhile.append(advance)
    mission_id = lab.launch(ask("a"), ask({"kind": "change"}), ask("b"), DONE, limits={"max_seconds": 100})
    lab.work()
    now[0] += 3600_000_000
    lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    mission = lab.mission(mission_id)
    assert mission.outcome == "mission_complete"
    assert [question.last_turn for question in lab.questions] == [None, None, None, "max_seconds"]


def test_max_tokens_counts_corrections_too(lab: Lab) -> None:
    planner: Object = {"tokens": 10}
    mission = lab.run("prose", ask("a"), DONE, planner=planner, limits={"max_tokens": 40})
    assert (mission.outcome, mission.turns) == ("mission_complete", 2)
    assert [question.last_turn for question in lab.questions] == [None, None, "max_tokens"]
    assert mission.json["tokens"] == {"input": 30, "output": 30}


def test_a_correction_does_not_count_for_max_turns(lab: Lab) -> None:
    mission = lab.run("prose", ask("a"), "prose", DONE, limits={"max_turns": 2})
    assert (mission.outcome, mission.turns) == ("mission_complete", 2)
    assert [question.last_turn for question in lab.questions] == [None] * 4


# -- caps on jobs


def test_what_exceeds_max_jobs_is_rejected_and_the_planner_is_told(lab: Lab) -> None:
    mission = lab.run(ask("a", "b", "c"), ask("d"), DONE, limits={"max_jobs": 2})
    assert mission.status == "completed"
    assert lab.states() == ["succeeded", "succeeded", "rejected", "rejected"]
    for question in lab.questions[1:]:
        codes = [each.error_code for each in question.results if each.state == "rejected"]
        assert codes == ["LIMIT_REACHED"]


def test_continuations_do_not_count_for_max_jobs(lab: Lab) -> None:
    mission = lab.run(ask("a"), ask("b"), ask("c"), DONE, limits={"max_jobs": 3})
    assert (mission.outcome, lab.states()) == ("mission_complete", ["succeeded"] * 3)


def test_too_many_jobs_in_one_reply_are_a_correction_that_names_the_cap(lab: Lab) -> None:
    mission = lab.run(ask(*"abcdef"), ask("a"), DONE)
    assert mission.status == "completed"
    assert len(lab.jobs()) == 1
    assert lab.questions[1].correction.errors == [
        {"path": "new_jobs", "message": "at most 5 jobs in one reply; this one has 6"}
    ]


def test_with_overflow_hold_the_surplus_is_held(lab: Lab) -> None:
    lab.run(ask(*"abcdefg"), DONE, limits={"overflow": "hold"})
    assert lab.states() == ["succeeded"] * 5 + ["held"] * 2
    assert lab.jobs()[5].reason == "more than max_followups (5) in one reply"


def test_plans_nest_no_deeper_than_max_depth(lab: Lab) -> None:
    plan: Object = {"kind": "agent_plan", "params": {"user_prompt": "Go deeper."}}
    mission = lab.run(ask(plan), ask(plan), ask(plan), DONE, limits={"max_depth": 2})
    assert mission.outcome == "mission_complete"
    rejected = [job for job in lab.engine.jobs(mission_id=mission.id) if job.state == "rejected"]
    assert len(rejected) == 1
    assert rejected[0].reason == "plans may nest max_depth = 2 deep; this one is 3 deep"


def test_a_corrected_reply_nests_as_deep_as_the_first(lab: Lab) -> None:
    plan: Object = {"kind": "agent_plan", "params": {"user_prompt": "Go deeper."}}
    mission = lab.run(ask(plan), "prose", ask(plan), DONE, limits={"max_depth": 1})
    assert [job.state for job in lab.engine.jobs(mission_id=mission.id)].count(State.REJECTED) == 1


def test_max_bytes_written_counts_what_was_written_and_what_may_yet_be(lab: Lab) -> None:
    rule: Object = {"kinds": ["write_file"], "paths": ["*.txt"], "do": "auto"}
    mission = lab.run(
        ask(write("a.txt", 60)),
        ask(write("b.md", 30), write("c.txt", 20), "a"),
        ask(write("d.txt", 20)),
        ask(write("d.txt", 10)),
        DONE,
        policy=[rule],
        limits={"max_bytes_written": 100},
    )
    assert mission.outcome == "mission_complete"
    assert lab.states() == ["succeeded", "held", "rejected", "succeeded", "rejected", "succeeded"]
    lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    assert sum(path.stat().st_size for path in lab.root.iterdir()) == 100


# -- corrections


def test_a_correction_is_the_same_question_with_the_reply_and_its_errors(lab: Lab) -> None:
    bad = ask({"kind": "read_file", "params": {"pattern": "a"}})
    lab.run(ask("a"), bad, DONE)
    first, second, third = lab.questions
    assert first.correction.reply is second.correction.reply is None
    assert third.prompt == second.prompt
    assert third.results == second.results != []
    assert "read_file" in str(third.correction.reply)
    assert [error["path"] for error in third.correction.errors] == ["new_jobs[0].params.pattern"]
    stored = lab.engine.turns(1)[1]
    assert stored["errors"] == third.correction.errors
    assert (stored["reply"], stored["corrects"]) == (third.correction.reply, None)
    assert lab.engine.turns(1)[2]["corrects"] == 2


def test_a_third_invalid_reply_in_a_row_fails_the_mission(lab: Lab) -> None:
    mission = lab.run("one", "two", "three", DONE)
    assert (mission.status, mission.outcome) == ("failed", "invalid_reply")
    assert mission.error["error_code"] == "INVALID_REPLY"
    assert (mission.turns, len(lab.questions)) == (1, 3)


def test_a_valid_reply_ends_the_row(lab: Lab) -> None:
    mission = lab.run("one", "two", ask("a"), "three", "four", DONE)
    assert mission.outcome == "mission_complete"


def test_max_corrections_is_a_limit_like_others(lab: Lab) -> None:
    assert lab.run("one", DONE, limits={"max_corrections": 0}).outcome == "invalid_reply"


# -- no progress


def test_three_replies_that_repeat_end_the_mission(lab: Lab) -> None:
    mission = lab.run(ask("a"), ask("a"), ask("a"), ask("a"), DONE)
    assert (mission.status, mission.outcome) == ("failed", "no_progress")
    assert lab.states() == ["succeeded"] * 3
    assert [bool(question.notices) for question in lab.questions] == [False, False, True, True]
    assert lab.questions[3].notices == ["nothing new was requested 2 times in a row; at 3 the plan fails"]


def test_a_new_job_is_progress(lab: Lab) -> None:
    assert (
        lab.run(ask("a"), ask("a"), ask("a"), ask("b"), ask("a"), ask("a"), DONE).outcome
        == "mission_complete"
    )


def test_a_changed_file_makes_the_same_question_new(lab: Lab) -> None:
    read: Object = {"kind": "list_files", "params": {}}
    rule: Object = {"kinds": ["write_file"], "do": "auto"}
    replies = [reply for n in range(4) for reply in (ask(read), ask(write(f"{n}.md", 1)))]
    assert lab.run(*replies, DONE, policy=[rule]).outcome == "mission_complete"


def test_what_was_looked_at_before_a_write_of_its_batch_may_be_looked_at_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lane, "claim_size", lambda lane, most, quick_seconds: most)
    rule: Object = {"kinds": ["write_file"], "do": "auto"}
    one: Object = {"max_stalled": 1}
    assert (
        lab.run(ask("a", write("a.md", 1)), ask("a"), DONE, policy=[rule], limits=one).outcome
        == DONE["action"]
    )
    assert (
        lab.run(ask(write("a.md", 2), "a"), ask("a"), DONE, policy=[rule], limits=one).outcome
        == "no_progress"
    )


def test_rejections_three_times_in_a_row_are_no_progress(lab: Lab) -> None:
    secrets = [ask({"kind": "read_file", "params": {"rel_path": f"{n}/.env"}}) for n in range(3)]
    mission = lab.run(*secrets, DONE)
    assert mission.outcome == "no_progress"
    assert len(lab.questions) == 3


# -- acceptance


def test_done_counts_when_the_checks_pass(lab: Lab) -> None:
    checks: list[JsonValue] = [
        {"file_exists": "a.md"},
        {"file_matches": {"path": "a.md", "pattern": "x{5}"}},
        {"file_parses": "a.json"},
    ]
    (lab.root / "a.json").write_text("[1]")
    rule: Object = {"kinds": ["write_file"], "do": "auto"}
    mission = lab.run(DONE, ask(write("a.md", 5)), DONE, accept=checks, policy=[rule])
    assert mission.outcome == "mission_complete"
    notices = lab.questions[1].notices
    assert len(notices) == 2
    assert notices[0].startswith("an acceptance check does not pass: the file a.md exists")


@pytest.mark.parametrize(
    ("name", "content"), [("a.py", "-" * 10_000 + "1"), ("a.json", "[" * 2_000), ("a.yaml", "[" * 500)]
)
def test_what_nests_too_deep_for_its_parser_does_not_parse(lab: Lab, name: str, content: str) -> None:
    (lab.root / name).write_text(content)
    lab.run(DONE, DONE, DONE, DONE, accept=[{"file_parses": name}])
    assert f"the file {name} parses: it does not parse: " in lab.questions[1].notices[0]


@pytest.mark.parametrize(
    "done", [DONE, {**DONE, "action": "analysis_result"}, ask()], ids=["done", "findings", "none"]
)
def test_the_planner_is_sent_back_three_times_at_most_then_a_person_is_asked(lab: Lab, done: Object) -> None:
    mission = lab.run(done, done, done, done, accept=[{"file_exists": "a.md"}])
    assert mission.status == "waiting"
    (question,) = lab.jobs()
    assert "the file a.md exists" in str(question.params["question"])
    assert len(lab.questions) == 4


def test_checks_that_do_not_pass_in_the_last_turn_leave_the_limit_as_the_outcome(lab: Lab) -> None:
    limits: Object = {"max_turns": 1}
    mission = lab.run(ask("a"), DONE, accept=[{"file_exists": "a.md"}], limits=limits)
    assert (mission.status, mission.outcome) == ("failed", "limit:max_turns")


# -- going on after a limit


def test_a_mission_that_ended_on_a_limit_goes_on_with_a_higher_one(lab: Lab) -> None:
    mission = lab.run(ask("a"), ask("b"), ask("c"), DONE, limits={"max_turns": 1})
    assert mission.outcome == "limit:max_turns"
    resumed = lab.engine.resume(mission.id, limits={"max_turns": 5}, by="ada")
    assert (resumed.status, resumed.outcome, resumed.ended_at) == ("running", None, None)
    assert lab.dig(resumed.json, "limits", "max_turns") == 5
    lab.work()
    assert lab.mission().outcome == "mission_complete"
    assert lab.questions[2].notices == ["a person resumed the mission; it had ended with limit:max_turns"]
    assert lab.questions[2].last_turn is None


def test_more_jobs_after_resuming_are_as_many_as_the_new_limit_says(lab: Lab) -> None:
    ids = lab.run(ask("a", "b", "c"), ERROR, ask("d", "e"), DONE, limits={"max_jobs": 1}).id
    lab.engine.resume(ids, limits={"max_jobs": 2})
    lab.work()
    assert lab.states() == ["succeeded", "rejected", "rejected", "succeeded", "rejected"]
