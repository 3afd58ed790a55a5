"""Acceptance beyond files: the planner verifies, and a person has the last word (R9)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.core.mission.accept import AcceptCheck
from lcp_engine.engine.acceptance import fault_of
from lcp_engine.features.reports.markdown import as_markdown
from lcp_engine.sandbox.root import Root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.conftest import Lab, Object

    from lcp_engine.store.queries.records import Job

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
YES: Object = {"ok": True, "action": "analysis_result", "summary": "every module is named"}
NO: Object = {"ok": False, "action": "error", "error": "core.py is missing"}
JOBS: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "do", "params": {}}]}
VERIFY: JsonValue = [{"verify": "Is every module named?"}]
MISSING: JsonValue = [{"file_exists": "a.md"}]


def held(lab: Lab) -> Job:
    (job,) = [job for job in lab.jobs() if job.state == "held"]
    return job


def report(lab: Lab) -> str:
    return as_markdown(lab.engine.facts(1))


def test_the_report_tells_what_was_found_and_not_what_was_verified(lab: Lab) -> None:
    found: Object = {
        "ok": True,
        "action": "analysis_result",
        "summary": "two issues",
        "issues": ["one", "two"],
    }
    lab.run(found, DONE, accept=VERIFY)
    assert "> two issues\n>\n> issues:\n> - one\n> - two" in report(lab)
    assert "all done" not in report(lab)


def test_what_the_planner_claims_counts_once_it_has_verified_it(lab: Lab) -> None:
    mission = lab.run(DONE, YES, accept=VERIFY)
    assert (mission.outcome, mission.summary, mission.turns) == ("mission_complete", "all done", 2)
    assert "- Is every module named?" in lab.questions[1].prompt
    assert "analysis_result or mission_complete" in lab.questions[1].prompt


def test_who_verifies_sees_everything_that_was_done(lab: Lab) -> None:
    lab.run(JOBS, DONE, YES, accept=VERIFY)
    assert [len(question.results) for question in lab.questions] == [0, 1, 1]


@pytest.mark.parametrize(
    ("reply", "said"), [(NO, "core.py is missing"), (JOBS, "the planner asked for jobs instead")]
)
def test_what_does_not_verify_is_an_unmet_check(lab: Lab, reply: Object, said: str) -> None:
    mission = lab.run(DONE, reply, DONE, YES, accept=VERIFY)
    assert mission.outcome == "mission_complete"
    assert lab.questions[2].notices == [f"an acceptance check does not pass: verification: {said}"]
    assert lab.jobs() == []


def test_nothing_is_verified_before_the_other_checks_pass(lab: Lab) -> None:
    (lab.root / "a.md").write_text("a")
    lab.run(DONE, YES, accept=[{"verify": "Is it good?"}, {"file_exists": "a.md"}])
    assert len(lab.questions) == 2
    (lab.root / "a.md").unlink()
    other = lab.run(DONE, NO, accept=[{"verify": "Is it good?"}, {"file_exists": "a.md"}])
    assert other.outcome == "error"
    assert "the file a.md exists" in lab.questions[-1].notices[0]


def test_a_verdict_that_is_no_action_is_corrected_and_counts_then(lab: Lab) -> None:
    mission = lab.run(DONE, "yes!", YES, accept=VERIFY)
    assert (mission.outcome, mission.summary, mission.turns) == ("mission_complete", "all done", 2)
    assert lab.questions[2].prompt == lab.questions[1].prompt


def test_a_verification_may_be_the_last_turn(lab: Lab) -> None:
    mission = lab.run(DONE, YES, accept=VERIFY, limits={"max_turns": 1})
    assert (mission.outcome, lab.questions[1].last_turn) == ("mission_complete", "max_turns")


def test_what_is_claimed_in_the_last_turn_cannot_be_verified_any_more(lab: Lab) -> None:
    mission = lab.run(JOBS, DONE, accept=VERIFY, limits={"max_turns": 1})
    assert mission.outcome == "limit:max_turns"
    assert "no turn is left to verify" in str(mission.error["user_message"])


def test_in_the_dialect_universal_only_a_verification_passes(lab: Lab) -> None:
    answer: Object = {"response_type": "answer", "status": "success", "message": "It is done."}
    checks: JsonValue = [{"criterion": "every module", "passed": True}]
    passed: Object = {
        "response_type": "verification", "status": "PASS", "message": "m", "verification_data": {"checks": checks},
    }  # fmt: skip
    mission = lab.run(answer, answer, passed, accept=VERIFY, planner={"dialect": "universal"})
    assert (mission.outcome, mission.summary) == ("mission_complete", "It is done.")
    assert lab.questions[2].correction.errors[0]["path"] == "response_type"
    assert "type verification" in lab.questions[1].prompt


def test_after_three_refusals_a_person_is_asked(lab: Lab) -> None:
    mission = lab.run(DONE, DONE, DONE, DONE, accept=MISSING)
    assert (mission.status, mission.turns) == ("waiting", 4)
    job = held(lab)
    assert (job.kind, job.params["options"]) == ("ask_user", ["accept as it is", "try again", "give up"])
    assert "the file a.md exists" in str(job.params["question"])


def test_a_person_accepts_it_as_it_is(lab: Lab) -> None:
    lab.run(DONE, DONE, DONE, DONE, accept=MISSING)
    lab.engine.answer(held(lab).id, "accept", by="anna")
    mission = lab.mission()
    assert (mission.status, mission.outcome, mission.summary) == ("completed", "mission_complete", "all done")
    assert "## Accepted by a person as it is\n\n- the file a.md exists" in report(lab)
    unmet = lab.dig(mission.json, "metrics", "accepted_unmet", 0)
    assert str(unmet).startswith("the file a.md exists")
    lab.work()
    assert len(lab.questions) == 4


def test_a_person_gives_up(lab: Lab) -> None:
    lab.run(DONE, DONE, DONE, DONE, accept=MISSING)
    lab.engine.answer(held(lab).id, "give up")
    mission = lab.mission()
    assert (mission.status, mission.outcome) == ("failed", "no_progress")
    assert str(mission.error["user_message"]).startswith("a person gave up")


@pytest.mark.parametrize("answer", ["try again", "Call it b.md."])
def test_any_other_answer_lets_the_planner_try_again(lab: Lab, answer: str) -> None:
    lab.run(*[DONE] * 8, accept=MISSING)
    lab.engine.answer(held(lab).id, answer)
    lab.work()
    (result,) = lab.questions[4].results
    assert result.result is not None
    assert result.result["answer"] == answer
    assert (lab.mission().status, lab.mission().turns) == ("waiting", 8)


def test_rejecting_the_question_lets_the_planner_try_again(lab: Lab) -> None:
    lab.run(*[DONE] * 4, NO, accept=MISSING)
    lab.engine.reject(held(lab).id, "decide yourself")
    lab.work()
    assert lab.questions[4].results[0].reason == "decide yourself"
    assert lab.mission().outcome == "error"


@pytest.mark.parametrize(
    "check", [{"file_matches": {"path": "l.md", "pattern": "KEY"}}, {"file_exists": "l.md"}]
)
def test_a_check_reads_no_secret_through_a_link(tmp_path: Path, check: JsonValue) -> None:
    (tmp_path / ".env").write_text("KEY=1\n")
    (tmp_path / "l.md").symlink_to(".env")
    with Root(tmp_path) as root:
        fault = fault_of(AcceptCheck.model_validate(check), root, lambda path: path != ".env")
    assert "leads to '.env', which policy denies" in str(fault) or "symbolic link" in str(fault)


READ_A: Object = {
    "ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "read_file", "params": {"rel_path": "a.py"}}],
}  # fmt: skip


def issues(*found: JsonValue) -> Object:
    return {"ok": True, "action": "analysis_result", "summary": "one module", "issues": [*found]}


def test_who_verifies_is_shown_the_claim_and_what_was_written(lab: Lab) -> None:
    write: Object = {"ok": True, "action": "write_file", "rel_path": "b.md", "content": "# B\nAll of it.\n"}
    claim: Object = {**DONE, "deliverables": ["b.md"]}
    lab.run(write, claim, YES, accept=VERIFY, policy=[{"kinds": ["write_file"], "do": "auto"}])
    shown = lab.questions[2].context
    assert shown is not None
    assert '"deliverables": ["b.md"]' in shown or '"deliverables":["b.md"]' in shown
    assert "all done" in shown
    assert 'It was written to "b.md":\n```\n# B\nAll of it.\n```' in shown


def test_a_claim_that_is_long_is_shown_by_its_beginning(lab: Lab) -> None:
    lab.run({**DONE, "summary": "word " * 4000}, YES, accept=VERIFY)
    shown = lab.questions[1].context
    assert shown is not None
    assert len(shown) < 3200
    assert "more characters]" in shown


def test_issues_about_files_that_were_not_read_are_sent_back(lab: Lab) -> None:
    (lab.root / "a.py").write_text("x = 1\n")
    wrong, right = issues("17.1.1.1"), issues("a.py: x is not used")
    mission = lab.run(READ_A, wrong, right, accept=[{"claims": "issues"}])
    assert (mission.outcome, mission.issues) == ("analysis_result", ["a.py: x is not used"])
    assert 'issues[0] names no file that was read: "17.1.1.1"' in lab.questions[2].notices[0]
    assert lab.engine.replay(mission.id).is_same


def test_deliverables_that_do_not_exist_are_sent_back(lab: Lab) -> None:
    (lab.root / "a.md").write_text("a")
    wrong: Object = {**DONE, "deliverables": ["a.md", "gone.md", "../out.md"]}
    mission = lab.run(wrong, {**DONE, "deliverables": ["a.md"]}, accept=[{"claims": "deliverables"}])
    assert mission.outcome == "mission_complete"
    (notice,) = lab.questions[1].notices
    assert "gone.md" in notice
    assert "'../out.md' is not a path beneath the root" in notice
    assert "a.md'" not in notice.replace("'../out.md'", "").replace("gone.md'", "")


@pytest.mark.parametrize(
    ("reply", "dialect", "said"),
    [
        (DONE, "lcp", "this mission is completed by analysis_result; mission_complete does not complete it"),
        (
            {"ok": True, "action": "create_followup_jobs", "new_jobs": []},
            "lcp",
            "this mission is completed by analysis_result; create_followup_jobs does not complete it",
        ),
        (
            {"response_type": "answer", "status": "success", "message": "all done"},
            "universal",
            "this mission is completed by research; answer does not complete it",
        ),
    ],
)
def test_a_mission_is_completed_by_its_endings_alone(
    lab: Lab, reply: Object, dialect: str, said: str
) -> None:
    mission = lab.run(reply, reply, reply, endings=["analysis_result"], planner={"dialect": dialect})
    assert (mission.status, mission.outcome) == ("failed", "invalid_reply")
    assert lab.questions[1].correction.errors[0]["message"] == said


def test_an_ending_that_is_allowed_completes_the_mission(lab: Lab) -> None:
    assert lab.run(issues(), endings=["analysis_result"]).outcome == "analysis_result"
