from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import House


def test_an_approved_job_runs(house: House) -> None:
    job_id = house.hold("x.md", "hello\n")
    answer = house.approve(job_id)
    assert answer.status == 200
    assert "Approved. A runner will execute it." in answer.words
    house.work()
    assert (house.root / "x.md").read_text() == "hello\n"


def test_a_rejected_job_never_runs_and_the_planner_reads_why(house: House) -> None:
    job_id = house.hold("x.md")
    answer = house.post(f"/jobs/{job_id}/reject", {"reason": "the licence must not change"})
    assert "Rejected. The planner will read the reason." in answer.words
    assert house.engine.job(job_id).reason == "the licence must not change"
    house.work()
    assert not (house.root / "x.md").exists()


def test_nothing_says_that_the_planner_of_an_ended_mission_reads_a_reason(house: House) -> None:
    look, write = house.job("list_files"), house.job("write_file", rel_path="x.md", content="x\n")
    house.run(house.ask(look, write), house.complete, **{"continue": "per_result"})
    (held,) = house.engine.jobs(states=["held"])
    assert "planner reads it" not in house.get(f"/jobs/{held.id}").words
    answer = house.post(f"/jobs/{held.id}/reject", {"reason": "no"})
    assert "Rejected. Its mission has ended, and no planner reads the reason." in answer.words


def test_a_rejected_job_keeps_its_diff(house: House) -> None:
    job_id = house.hold("a.md", "# b\n")
    house.post(f"/jobs/{job_id}/reject", {"reason": "no"})
    answer = house.get(f"/jobs/{job_id}")
    assert "What it would change now" in answer.words
    assert "+# b" in answer.words
    assert f"/jobs/{job_id}/undo" not in answer.text


def test_a_decision_in_the_inbox_goes_on_at_the_next_job(house: House) -> None:
    first, second = house.hold("1.md"), house.hold("2.md")
    text = house.get("/inbox").text
    assert f'id="job-{second}"' in text
    assert f'name="next" value="{second}"' in text
    sent = {"csrf": house.keys.csrf, "back": "", "next": str(second), **house.shown(f"/jobs/{first}")}
    answer = house.browser.post(
        f"/jobs/{first}/approve", data=sent, headers={"Origin": house.home}, follow_redirects=False
    )
    assert answer.headers["location"] == f"/inbox?note=approved#job-{second}"


def test_a_rejection_needs_a_reason(house: House) -> None:
    job_id = house.hold()
    answer = house.post(f"/jobs/{job_id}/reject", {"reason": "  "})
    assert answer.status == 422
    assert "needs a reason" in answer.words
    assert house.engine.job(job_id).state == "held"


def test_deciding_twice_is_harmless_and_otherwise_a_conflict(house: House) -> None:
    job_id = house.hold()
    house.approve(job_id)
    assert "Approved. A runner will execute it." in house.post(f"/jobs/{job_id}/approve").words
    conflict = house.post(f"/jobs/{job_id}/reject", {"reason": "too late"})
    assert conflict.status == 409
    assert f"job {job_id} is queued; only held jobs can be rejected" in conflict.words


def test_what_another_person_decided_is_said_to_be_decided_before(house: House) -> None:
    job_id = house.hold()
    assert house.engine.approve(job_id, by="ben")
    assert "It was already approved" in house.post(f"/jobs/{job_id}/approve").words


def test_a_job_that_no_worker_executes_can_only_be_rejected(house: House) -> None:
    house.run(house.ask(house.job("deploy")), house.complete)
    job_id = house.engine.jobs(states=["held"])[0].id
    assert f'action="/jobs/{job_id}/approve"' not in house.get("/inbox").text
    assert house.post(f"/jobs/{job_id}/approve").status == 409


def test_a_job_that_is_not_there_cannot_be_decided(house: House) -> None:
    for change in ("approve", "reject", "retry"):
        answer = house.post(f"/jobs/99/{change}", {"reason": "no"})
        assert answer.status == 404
        assert "job 99 is not in the database" in answer.words


def test_several_jobs_are_decided_at_once(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{number}.md", content="x") for number in range(4)]
    house.run(house.ask(*jobs), house.complete)
    ids = [str(job.id) for job in house.engine.jobs(states=["held"])]
    shown = {name: value for job in ids[:2] for name, value in house.shown("/inbox", f"shown.{job}").items()}
    house.post("/inbox", {"job": ids[:2], "decision": "approve", **shown})
    house.post("/inbox?mission=1", {"job": ids[2:], "decision": "reject", "reason": "enough"})
    assert [house.engine.job(int(job)).state for job in ids] == ["queued", "queued", "rejected", "rejected"]


def test_one_job_that_was_decided_does_not_keep_the_others_from_it(house: House) -> None:
    first, second = house.hold("1.md"), house.hold("2.md")
    shown = house.shown("/inbox", f"shown.{second}")
    house.engine.reject(first, "no")
    answer = house.post("/inbox", {"job": [str(first), str(second)], "decision": "approve", **shown})
    assert answer.status == 409
    assert "1 job was approved; 1 job was not decided here:" in answer.words
    assert "; only held jobs can be" in answer.words
    assert house.engine.job(second).state == "queued"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decision": "approve"}, "no job is ticked"),
        ({"decision": "reject", "job": "2"}, "needs a reason"),
        ({"decision": "destroy", "job": "2"}, "choose to approve or to reject"),
        ({"decision": "approve", "job": "x"}, "an id is a whole number"),
    ],
)
def test_a_decision_that_is_not_whole_decides_nothing(
    house: House, fields: dict[str, str | list[str]], words: str
) -> None:
    job_id = house.hold()
    answer = house.post("/inbox", fields)
    assert answer.status == 422
    assert words in answer.words
    assert house.engine.job(job_id).state == "held"


def test_a_mission_is_cancelled(house: House) -> None:
    job_id = house.hold()
    assert "Cancelled." in house.post("/missions/1/cancel").words
    assert house.engine.mission(1).status == "cancelled"
    assert house.engine.job(job_id).state == "cancelled"
    assert "already cancelled" in house.post("/missions/1/cancel").words


def test_a_mission_that_has_ended_is_resumed_with_other_limits(house: House) -> None:
    look = house.ask(house.job("list_files"))
    house.run(look, look, house.complete, limits={"max_turns": 1})
    assert house.engine.mission(1).outcome == "limit:max_turns"
    limits = {
        "max_turns": "9",
        "max_jobs": "100",
        "max_seconds": "1800.0",
        "max_tokens": "",
        "max_bytes_written": "",
    }
    assert "Resumed" in house.post("/missions/1/resume", limits).words
    resumed = next(event["data"] for event in house.engine.events(1) if event["event"] == "resumed")
    assert isinstance(resumed, dict)
    assert resumed["limits"] == {"max_turns": 9, "max_bytes_written": None}
    house.work()
    assert house.engine.mission(1).outcome == "mission_complete"


@pytest.mark.parametrize("limit", ["many", "-1", "0", "1.5", "nan", "inf"])
def test_a_limit_that_is_not_valid_is_explained_and_nothing_is_done(house: House, limit: str) -> None:
    house.run(house.complete)
    answer = house.post("/missions/1/resume", {"max_turns": limit})
    assert answer.status == 422
    assert "limits.max_turns" in answer.words
    assert f'value="{limit}"' in answer.text
    assert house.engine.mission(1).status == "completed"


def test_a_mission_that_goes_on_is_not_resumed(house: House) -> None:
    house.hold()
    answer = house.post("/missions/1/resume")
    assert answer.status == 409
    assert "only missions that have ended can be resumed" in answer.words


def test_a_failed_job_is_queued_again(house: House) -> None:
    house.run(house.ask(house.job("read_file", rel_path="late.md")), house.complete)
    assert "Queue again" in house.get("/jobs/2").words
    (house.root / "late.md").write_text("here\n")
    assert "Queued again." in house.post("/jobs/2/retry").words
    house.work()
    assert house.engine.job(2).state == "succeeded"
    assert house.post("/jobs/2/retry").status == 409


def test_a_person_who_rejected_a_job_can_have_it_held_again(house: House) -> None:
    job_id = house.hold()
    house.post(f"/jobs/{job_id}/reject", {"reason": "not yet"})
    assert "Hold it again" in house.get(f"/jobs/{job_id}").words
    house.post(f"/jobs/{job_id}/retry")
    assert house.engine.job(job_id).state == "held"
    house.run(house.ask(house.job("read_file", rel_path=".env")), house.complete)
    denied = house.engine.jobs(states=["rejected"])[0].id
    assert "Hold it again" not in house.get(f"/jobs/{denied}").words


def test_a_shipped_mission_is_launched_over_a_directory_once_per_form(house: House) -> None:
    form: dict[str, str | list[str]] = {"mission": "survey", "root": str(house.root), "key": "page-1"}
    assert "Launched." in house.post("/launch", form).words
    house.post("/launch", form)
    assert [mission.root for mission in house.engine.missions()] == [str(house.root)]


def test_a_mission_is_launched_with_its_variables_and_a_planner(house: House) -> None:
    form: dict[str, str | list[str]] = {
        "mission": "document", "root": str(house.root), "planner": "surveyor", "document.output": "",
    }  # fmt: skip
    refused = house.post("/launch", form)
    assert refused.status == 422
    assert "the variable 'module' has no value" in refused.words
    assert "Launched." in house.post("/launch", {**form, "document.module": "a.md"}).words
    assert "Document a.md in the file docs/a.md.md." in house.engine.missions()[0].goal


@pytest.mark.parametrize(
    ("mission", "root", "status", "words"),
    [
        ("review", "{root}", 422, "the mission names no planner, and LCP_PLANNER is not set"),
        ("survey", "/no/such/directory", 422, "does not exist"),
        ("survey", "{root}/a.md", 422, "is a file; a directory is expected"),
        ("survey", "", 422, "enter a directory"),
        ("survey", "~nobody-knows-them/x", 422, "refers to a user"),
        ("survey", "x\0y", 422, "a directory is expected"),
        ("nothing", "{root}", 404, "'nothing' is not a shipped mission"),
        ("../survey", "{root}", 404, "is not a shipped mission"),
    ],
)
def test_a_launch_that_cannot_be_is_explained(
    house: House, mission: str, root: str, status: int, words: str
) -> None:
    answer = house.post("/launch", {"mission": mission, "root": root.format(root=house.root)})
    assert answer.status == status
    assert words in answer.words
    assert house.engine.missions() == []
