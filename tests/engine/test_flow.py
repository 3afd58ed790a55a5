"""Missions from the first turn to the last: the protocol's example flow, batches, what ends a mission (R7, R8, R10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.job_states import TRANSITIONS, State
from lcp_engine.engine.question import history
from lcp_engine.errors import ErrorCode, LcpError

pytestmark = pytest.mark.both

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}


def ask(*jobs: Object | str) -> Object:
    """A reply that asks for jobs; a name is a job of the kind `do` with that name."""
    new_jobs: list[JsonValue] = [
        {"kind": "do", "params": {"of": job}} if isinstance(job, str) else {"params": {}, **job}
        for job in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs}


def test_the_example_flow_of_the_protocol(lab: Lab) -> None:
    for name in ("main.py", "models.py", "loop.py", "config.json"):
        (lab.root / name).write_text("{}\n")
    aliases: list[JsonValue] = ["C:\\Sheratan\\2_sheratan_core"]
    root = aliases[0]
    listed: Object = {"kind": "list_files", "params": {"root": root, "patterns": ["**/*.py"]}}
    reads: list[Object] = [
        {"kind": "read_file", "params": {"root": root, "rel_path": name}}
        for name in ("config.json", "main.py", "models.py", "loop.py")
    ]
    analyze: Object = {"kind": "agent_plan", "params": {"user_prompt": "Analyze.", "project_root": root}}
    mission_id = lab.launch(
        ask(listed, reads[0]),
        ask(*reads[1:]),
        ask(analyze),
        {"ok": True, "action": "analysis_result", "summary": "DONE!"},
        root_aliases=aliases,
        each_result=True,
    )
    lab.work(max_claim=1)
    read = "read_file"
    assert queues_after_turns(lab, mission_id) == [
        ["list_files", read],
        [read, read, read, read],
        [read, read, read, "agent_plan"],
        [read, read, read],
    ]
    mission = lab.mission(mission_id)
    assert (mission.status, mission.outcome, mission.summary) == ("completed", "analysis_result", "DONE!")
    assert lab.states(mission_id) == ["succeeded"] * 5
    assert mission.turns == 4


def queues_after_turns(lab: Lab, mission_id: int) -> list[list[str]]:
    """The kinds that were queued, in the order of their ids, when the decision on each turn was done."""
    targets = {transition.event: transition.target for transition in TRANSITIONS}
    kinds = {job.id: job.kind for job in lab.engine.jobs(mission_id=mission_id)}
    queued: set[int] = set()
    found: list[list[str]] = []
    turn_is_over = False
    for event in lab.engine.events(mission_id):
        job_id, name = event["job_id"], str(event["event"])
        if name == "started" and turn_is_over:
            found.append([kinds[each] for each in sorted(queued)])
            turn_is_over = False
        if isinstance(job_id, int) and name in targets:
            (queued.add if targets[name] is State.QUEUED else queued.discard)(job_id)
            turn_is_over |= kinds[job_id] == "agent_plan" and name == "succeeded"
    return found


def test_a_batch_is_continued_once_with_all_its_results(lab: Lab) -> None:
    mission = lab.run(ask("a", "b", "c"), DONE)
    assert (mission.status, mission.outcome, mission.turns) == ("completed", "mission_complete", 2)
    first, second = lab.questions
    assert first.results == []
    assert [result.params for result in second.results] == [{"of": "a"}, {"of": "b"}, {"of": "c"}]
    assert second.prompt == "Find out."


def test_each_batch_brings_only_what_is_new_and_history_all(lab: Lab) -> None:
    lab.run(ask("a"), ask("b"), DONE)
    third = lab.questions[2]
    assert [result.params for result in third.results] == [{"of": "b"}]
    assert [result.params for result in third.history] == [{"of": "a"}, {"of": "b"}]


def test_a_settled_job_names_the_turn_that_asked_for_it(lab: Lab) -> None:
    lab.run(ask("a"), ask("b", "c"), DONE)
    ((plan,),) = lab.rows("SELECT root_plan FROM missions")
    told = lab.engine.instance.database.read(lambda tx: history(tx, int(str(plan))))
    assert [each.turn for each in told] == [1, 2, 2]


def test_per_result_continues_on_each_result_and_shows_all_so_far(lab: Lab) -> None:
    mission_id = lab.launch(ask("a", "b"), ask("c"), ask("d"), DONE, each_result=True)
    lab.work(max_claim=1)
    assert lab.mission(mission_id).status == "completed"
    assert [len(question.results) for question in lab.questions] == [0, 1, 2, 3]


def test_jobs_queued_at_the_end_complete_and_lead_to_no_turn(lab: Lab) -> None:
    mission_id = lab.launch(ask("a", "b", "c"), DONE, each_result=True)
    lab.work(max_claim=1)
    assert lab.mission(mission_id).outcome == "mission_complete"
    assert lab.states() == ["succeeded"] * 3
    assert len(lab.questions) == 2
    ended = lab.events().index("mission_completed")
    assert lab.events()[ended:].count("succeeded") == 2


@pytest.mark.parametrize("word", ["approve", "reject"])
def test_per_decision_continues_when_a_person_has_decided_on_everything(lab: Lab, word: str) -> None:
    changes: list[Object] = [{"kind": "change", "params": {"of": of}} for of in "bc"]
    spec: dict[str, JsonValue] = {"continue": "per_decision"}
    lab.launch(ask("a", *changes), ask("d"), DONE, planner=None, each_result=False, **spec)
    lab.work()
    waiting = lab.mission()
    assert (waiting.status, lab.states(), len(lab.questions)) == ("waiting", ["succeeded", "held", "held"], 1)
    for left, job in ((1, lab.jobs()[1]), (0, lab.jobs()[2])):
        lab.engine.approve(job.id) if word == "approve" else lab.engine.reject(job.id, "no")
        lab.work()
        assert len(lab.questions) == (1 if left else 3)
    assert lab.mission().status == "completed"
    assert [result.params for result in lab.questions[1].results] == [{"of": of} for of in "abc"]


def test_a_job_held_at_the_end_can_still_be_approved(lab: Lab) -> None:
    mission = lab.run(ask("a", {"kind": "change", "params": {}}), DONE)
    assert mission.status == "completed"
    assert lab.states() == ["succeeded", "held"]
    assert lab.engine.approve(lab.jobs()[1].id)
    lab.work()
    assert lab.states() == ["succeeded", "succeeded"]
    assert lab.mission().status == "completed"
    assert len(lab.questions) == 2


@pytest.mark.parametrize(
    ("reply", "status", "outcome", "summary"),
    [
        (DONE, "completed", "mission_complete", "all done"),
        (
            {"ok": True, "action": "analysis_result", "summary": "fine"},
            "completed",
            "analysis_result",
            "fine",
        ),
        ({"ok": False, "action": "error", "error": "no root"}, "failed", "error", "no root"),
        ({"ok": False, "action": "mission_complete", "message": "no luck"}, "failed", "error", "no luck"),
        (ask(), "completed", "no_followup_jobs", None),
        ({**ask(), "commentary": "nothing to do"}, "completed", "no_followup_jobs", "nothing to do"),
    ],
)
def test_what_ends_a_mission(lab: Lab, reply: Object, status: str, outcome: str, summary: str | None) -> None:
    mission = lab.run(reply)
    assert (mission.status, mission.outcome, mission.summary) == (status, outcome, summary)
    assert mission.ended_at is not None


def test_an_error_keeps_the_code_that_the_planner_gave(lab: Lab) -> None:
    reply: Object = {
        "ok": False,
        "action": "error",
        "error": "Cannot access project root: directory does not exist",
        "error_code": "PATH_NOT_FOUND",
        "attempted_action": "list_files",
        "recovery_suggestion": "Verify project root path and retry mission",
    }
    mission = lab.run(reply)
    assert mission.error["error_code"] == "PATH_NOT_FOUND"
    assert mission.error["user_message"] == reply["error"]
    assert lab.dig(mission.error, "technical_details", "attempted_action") == "list_files"
    assert mission.error["recommended_actions"] == [
        {
            "description": "Verify project root path and retry mission",
            "action_type": "user_action",
            "details": {"attempted_action": "list_files"},
        }
    ]


def test_a_code_of_the_planners_own_is_kept_in_the_details(lab: Lab) -> None:
    mission = lab.run({"ok": False, "action": "error", "error": "bad moon", "error_code": "MOON"})
    assert mission.error["error_code"] == "PLANNER_GAVE_UP"
    assert lab.dig(mission.error, "technical_details", "error_code") == "MOON"


def test_a_script_that_has_run_out_fails_the_mission_with_its_code(lab: Lab) -> None:
    mission_id = lab.engine.launch(
        {"goal": "g", "planner": {"type": "script", "replies": [ask("a")]}}, root=lab.root
    ).id
    lab.work()
    mission = lab.mission(mission_id)
    assert (mission.status, mission.outcome) == ("failed", "error")
    assert mission.error["error_code"] == "SCRIPT_EXHAUSTED"


def test_a_failed_job_is_a_result_like_any_other(lab: Lab) -> None:
    mission = lab.run(ask("a", {"kind": "fail"}), DONE)
    assert mission.status == "completed"
    results = {result.kind: result for result in lab.questions[1].results}
    assert results["fail"].state == "failed"
    assert results["fail"].error_code == "PATH_NOT_FOUND"


def test_a_failed_job_ends_the_mission_where_that_is_wished(lab: Lab) -> None:
    mission = lab.run(ask({"kind": "fail"}), DONE, on_job_failure="fail")
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert mission.error["error_code"] == "PATH_NOT_FOUND"
    assert len(lab.questions) == 1


def test_a_missing_file_is_not_tried_again(lab: Lab) -> None:
    lab.run(ask({"kind": "read_file", "params": {"rel_path": "none.txt"}}), DONE)
    (job,) = lab.jobs()
    assert (job.state, job.attempt) == ("failed", 1)


def test_a_failing_job_is_tried_again_and_then_reported(lab: Lab) -> None:
    lab.failures["flaky"] = 3
    lab.run(ask({"kind": "flaky"}), DONE)
    (job,) = lab.jobs()
    assert (job.state, job.attempt) == ("failed", 3)
    assert [lab.dig(attempt, "outcome") for attempt in job.attempts] == ["backed_off", "backed_off", "failed"]
    assert lab.questions[1].results[0].error_code == "WORKER_FAILED"


def test_a_job_that_succeeds_at_last_has_succeeded(lab: Lab) -> None:
    lab.failures["flaky"] = 2
    lab.run(ask({"kind": "flaky"}), DONE)
    (job,) = lab.jobs()
    assert (job.state, job.attempt, job.error) == ("succeeded", 3, None)
    assert len(lab.questions) == 2


def test_a_planner_that_gives_no_answer_is_asked_again(lab: Lab) -> None:
    mission = lab.run(DONE, planner={"refuse": [1]})
    assert mission.status == "completed"
    assert lab.engine.job(1).attempt == 2
    assert len(lab.engine.turns(mission.id)) == 1


def test_a_planner_that_never_answers_fails_the_mission(lab: Lab) -> None:
    mission = lab.run(None)
    assert (mission.status, mission.outcome) == ("failed", "job_failed")
    assert mission.error["error_code"] == "NOT_ALLOWED"


def test_a_planner_that_does_not_exist_is_refused_at_launch(lab: Lab) -> None:
    with pytest.raises(LcpError, match="no planner is named 'oracle'") as refused:
        lab.engine.launch({"goal": "g", "planner": "oracle"}, root=lab.root)
    assert refused.value.code is ErrorCode.NO_PLANNER
    assert lab.engine.missions() == []
