"""A held job says how many of the people it needs have approved it, and who may not."""

from __future__ import annotations

from pydantic import JsonValue
from tests.web.conftest import House

from lcp_engine.api.user import user_name

TWO: JsonValue = {"kinds": ["write_file"], "do": "hold", "approvals": 2}
OTHERS: JsonValue = {"kinds": ["write_file"], "do": "hold", "not_requester": True}


def _hold(house: House, rule: JsonValue) -> None:
    house.run(house.ask(house.job("write_file", rel_path="x.md", content="x\n")), policy=[rule])


def test_the_job_and_the_inbox_say_who_of_how_many_approved(house: House) -> None:
    _hold(house, TWO)
    for path in ("/jobs/2", "/inbox", "/inbox/all"):
        assert "0 of 2 approvals." in house.get(path).words, path
    house.engine.approve(2, by="alice <b>")
    for path in ("/jobs/2", "/inbox", "/inbox/all"):
        page = house.get(path)
        assert "1 of 2 approvals, by alice <b>." in page.words, path
        assert "<b>" not in page.text
    house.approve(2)
    assert house.engine.job(2).state == "queued"
    assert "of 2 approvals" not in house.get("/jobs/2").words


def test_after_the_first_approval_the_page_says_whom_the_job_waits_for(house: House) -> None:
    _hold(house, {"kinds": ["write_file"], "do": "hold", "approvals": 3})
    shown = house.shown("/jobs/2")
    inbox = house.post("/jobs/2/approve", {**shown, "back": "", "next": "2"})
    job = house.post("/jobs/2/approve", shown)
    for page in (inbox, job):
        assert "Approved. It waits for 2 more approvals of other people." in page.words
        assert "A runner will execute it" not in page.words
    house.engine.approve(2, by="bea")
    house.engine.approve(2, by="carl")
    assert "It waits for" not in house.get("/inbox?note=consented&job=2").words


def test_who_launched_the_mission_is_named_where_they_may_not_approve(house: House) -> None:
    _hold(house, OTHERS)
    me = user_name()
    for path in ("/jobs/2", "/inbox"):
        assert f"{me}, who launched the mission, may not approve" in house.get(path).words, path
    refused = house.approve(2)
    assert (refused.status, f"may not be approved by {me}" in refused.words) == (403, True)


def test_what_one_person_can_approve_says_nothing(house: House) -> None:
    job_id = house.hold()
    assert "approval" not in house.get("/inbox").words
    assert "approval" not in house.get(f"/jobs/{job_id}").words
