"""A thousand jobs that wait are decided at once, and none that the page did not list."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.web.pages.inbox import MOST_DECIDED

if TYPE_CHECKING:
    from tests.web.conftest import Answer, House

TWO: JsonValue = {"kinds": ["write_file"], "paths": ["two.md"], "do": "hold", "approvals": 2}


def _hold_many(house: House, count: int) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="x") for n in range(count)]
    others = [house.job("ask_user", question="Which?"), house.job("deploy")]
    limits: JsonValue = {"max_followups": count + 2, "max_jobs": count + 2}
    house.run(house.ask(*jobs, *others), house.complete, limits=limits)


def _listed(house: House, path: str) -> dict[str, str | list[str]]:
    """What a browser would send of the form."""
    text = house.get(path).text
    found = re.search(r'name="jobs" value="([\d,]+)"', text)
    assert found
    shown = re.findall(r'name="(shown\.\d+)" value="([^"]+)" form="decide-all"', text)
    return {"jobs": found[1], **{name: unescape(value) for name, value in shown}}


@pytest.mark.proof
def test_a_thousand_jobs_are_approved_with_one_form(house: House) -> None:
    _hold_many(house, 1000)
    path = "/inbox/all?mission=1&kind=write_file"
    assert "Approve 1,000 jobs" in house.get(path).words
    approved = house.post(path, {"decision": "approve", **_listed(house, path)})
    assert "1,000 jobs were approved." in approved.words
    assert house.engine.mission(1).jobs["held"] == 2
    assert house.engine.mission(1).jobs["queued"] == 1000


def test_what_the_form_has_no_room_to_show_stays_held(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="line\n" * 2000) for n in range(4)]
    house.run(house.ask(*jobs), house.complete)
    answer = house.get("/inbox/all")
    assert "Approve 2 jobs" in answer.words
    assert "Reject 4 jobs" in answer.words
    house.post("/inbox/all", {"decision": "approve", **_listed(house, "/inbox/all")})
    assert [job.state for job in house.engine.jobs(kinds=["write_file"])] == [
        "queued",
        "queued",
        "held",
        "held",
    ]


def test_what_has_no_room_leaves_it_to_the_jobs_below(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="line\n" * n) for n in (9000, 3)]
    house.run(house.ask(*jobs), house.complete)
    answer = house.get("/inbox/all")
    assert "Approve 1 job " in answer.words
    house.post("/inbox/all", {"decision": "approve", **_listed(house, "/inbox/all")})
    assert [job.state for job in house.engine.jobs(kinds=["write_file"])] == ["held", "queued"]


def test_a_form_that_shows_nothing_approves_nothing(house: House) -> None:
    job_id = house.hold()
    answer = house.post("/inbox/all", {"decision": "approve", "jobs": str(job_id)})
    assert (answer.status, "none of the jobs was shown in full" in answer.words) == (422, True)
    assert house.engine.job(job_id).state == "held"


def test_what_was_held_after_the_page_was_made_is_left_alone(house: House) -> None:
    _hold_many(house, 2)
    form = _listed(house, "/inbox/all")
    late = house.hold("late.md")
    house.post("/inbox/all", {"decision": "approve", **form})
    assert house.engine.job(late).state == "held"
    assert house.engine.mission(1).jobs["queued"] == 2


def test_what_is_held_again_after_the_page_was_made_is_left_alone(house: House) -> None:
    again, listed = house.hold("again.md"), house.hold("listed.md")
    house.engine.cancel(house.engine.job(again).mission_id)
    form = _listed(house, "/inbox/all")
    assert house.engine.retry(again).state == "held"
    house.post("/inbox/all", {"decision": "approve", **form})
    assert [house.engine.job(job).state for job in (again, listed)] == ["held", "queued"]


def test_a_common_yes_is_no_answer_and_a_common_no_is_for_all(house: House) -> None:
    _hold_many(house, 3)
    words = house.get("/inbox/all").words
    assert "Approve 3 jobs" in words
    assert "Reject 5 jobs" in words
    house.post("/inbox/all", {"decision": "reject", "reason": "enough", **_listed(house, "/inbox/all")})
    assert house.engine.mission(1).jobs["rejected"] == 5


def test_a_file_that_changed_since_it_was_shown_keeps_its_job_held(house: House) -> None:
    jobs = [house.job("write_file", rel_path=name, content="x") for name in ("a.md", "b.md")]
    house.run(house.ask(*jobs), house.complete)
    form = _listed(house, "/inbox/all")
    (house.root / "a.md").write_text("somebody was faster")
    answer = house.post("/inbox/all", {"decision": "approve", **form})
    assert answer.status == 409
    assert "1 job was approved; 1 job was not decided here:" in answer.words
    assert "'a.md'" in answer.words
    assert [job.state for job in house.engine.jobs(kinds=["write_file"])] == ["held", "queued"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"decision": "destroy", "jobs": "9"}, "to approve or to reject"),
        ({"decision": "reject", "jobs": "9"}, "needs a reason"),
        ({"decision": "approve"}, "an id is a whole number"),
    ],
)
def test_a_form_that_is_not_whole_decides_nothing(
    house: House, fields: dict[str, str | list[str]], words: str
) -> None:
    job_id = house.hold()
    answer = house.post("/inbox/all", fields)
    assert (answer.status, words in answer.words) == (422, True)
    assert house.engine.job(job_id).state == "held"


def test_the_report_tells_how_far_a_mission_has_come(house: House) -> None:
    house.run(house.complete)
    answer = house.get("/missions/1/report")
    assert '<progress max="100" value="100' in answer.text


def test_jobs_that_were_decided_meanwhile_are_named(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="x") for n in range(3)]
    house.run(house.ask(*jobs), house.complete)
    form = _listed(house, "/inbox/all")
    first, second, third = (job.id for job in house.engine.jobs(states=["held"]))
    house.engine.reject(second, "no", by="ben")
    answer = house.post("/inbox/all", {"decision": "approve", **form})
    assert answer.status == 409
    assert "2 jobs were approved; 1 job was not decided here:" in answer.words
    assert f"job {second} is rejected in the meantime" in answer.words
    assert [house.engine.job(job_id).state for job_id in (first, third)] == ["queued", "queued"]


def test_the_inbox_says_how_many_were_decided(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="x") for n in range(3)]
    house.run(house.ask(*jobs), house.complete)
    answer = house.post("/inbox/all", {"decision": "approve", **_listed(house, "/inbox/all")})
    assert "3 jobs were approved. A runner will execute" in answer.words


def _hold_three(house: House) -> list[int]:
    """Jobs of which one needs the approvals of two people."""
    jobs = [house.job("write_file", rel_path=name, content="x") for name in ("a.md", "b.md", "two.md")]
    house.run(house.ask(*jobs), house.complete, policy=[TWO])
    return [job.id for job in house.engine.jobs(states=["held"])]


def _ticked(house: House, ids: list[int]) -> dict[str, str | list[str]]:
    """What a browser would send of the inbox with these jobs ticked."""
    text = house.get("/inbox").text
    shown = re.findall(r'name="(shown\.\d+)" value="([^"]+)" form="batch"', text)
    return {"job": [str(job) for job in ids], **{name: unescape(value) for name, value in shown}}


@pytest.mark.parametrize("path", ["/inbox", "/inbox/all"])
def test_what_waits_and_what_was_decided_before_is_counted_apart(house: House, path: str) -> None:
    ids = _hold_three(house)
    form = {
        "decision": "approve",
        **(_ticked(house, ids) if path == "/inbox" else _listed(house, path)),
    }
    house.engine.approve(ids[0], by="bea")
    first = house.post(path, form).words
    told = "1 was approved before"
    assert f"1 job was approved, 1 waits for the approval of another person, {told}. A runner will" in first
    again = house.post(path, form).words
    assert f"1 job was approved, 1 waits for the approval of another person, {told}." in again, "sent twice"


@pytest.mark.parametrize("path", ["/inbox", "/inbox/all"])
def test_a_rejection_sent_twice_is_ones_own_and_one_of_another_is_not(house: House, path: str) -> None:
    ids = _hold_three(house)
    form = {
        "decision": "reject",
        "reason": "no",
        **(_ticked(house, ids) if path == "/inbox" else _listed(house, path)),
    }
    house.engine.reject(ids[2], "never", by="bea")
    for _ in range(2):
        assert "2 jobs were rejected, 1 was rejected before. The planner" in house.post(path, form).words


def test_what_was_not_shown_in_full_is_named(house: House) -> None:
    jobs = [house.job("write_file", rel_path=f"{n}.md", content="line\n" * n) for n in (9000, 3)]
    house.run(house.ask(*jobs), house.complete)
    long, _ = (job.id for job in house.engine.jobs(states=["held"]))
    answer = house.post("/inbox/all", {"decision": "approve", **_listed(house, "/inbox/all")})
    assert answer.status == 409
    assert "1 job was approved; 1 job was not decided here:" in answer.words
    assert f"job {long} was not shown in full; open it and decide there" in answer.words


def test_a_listed_job_that_is_unknown_or_does_not_match_is_named_beside_what_was_decided(
    house: House,
) -> None:
    listed, other = house.hold("a.md"), house.hold("b.md")
    path = f"/inbox/all?mission={house.engine.job(listed).mission_id}"

    def decide(jobs: str) -> Answer:
        return house.post(path, {"decision": "reject", "reason": "no", "jobs": jobs})

    answer = decide(f"{listed},{other},99999")
    assert answer.status == 409
    assert "1 job was rejected; 2 jobs were not decided here:" in answer.words
    assert f"job {other} is held, but the filter does not match it" in answer.words
    assert "job 99999 is not in the database" in answer.words
    assert [house.engine.job(job).state for job in (listed, other)] == ["rejected", "held"]
    many = decide(",".join(str(number) for number in range(1, MOST_DECIDED + 2)))
    assert (many.status, "at most 1,000 jobs" in many.words) == (422, True)


def test_an_unknown_job_that_is_ticked_is_named_beside_what_was_decided(house: House) -> None:
    job = house.hold()
    answer = house.post("/inbox", {"decision": "reject", "reason": "no", "job": [str(job), "99999"]})
    assert "1 job was rejected; 1 job was not decided here:" in answer.words
    assert "job 99999 is not in the database" in answer.words
