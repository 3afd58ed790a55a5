"""The keyboard in the inbox and on a job, and what the cards say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.web.test_browser import _faults, chromium, see_all, settled, until, window

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from tests.web.conftest import House
    from tests.web.test_browser import Window

__all__ = ["chromium", "window"]


def _hold(house: House, count: int) -> list[int]:
    writes = [house.job("write_file", rel_path=f"{n}.md", content="line\n" * 31) for n in range(count)]
    asked = house.ask(*writes, commentary="These <b>belong</b> together.")
    house.run(asked, house.complete, name="Notes", limits={"max_followups": 9})
    return [job.id for job in house.engine.jobs(states=["held"])]


def _current(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


def test_the_inbox_is_decided_from_the_keyboard(window: Window) -> None:
    jobs = _hold(window.house, 4)
    page = window.open("/inbox")
    page.get_by_label("Select 4").check()
    assert page.locator("input[name=job]:checked").count() == 4
    page.get_by_label("All 4 on this page").check()
    page.get_by_label("All 4 on this page").uncheck()
    assert page.locator("input:checked").count() == 0
    page.locator("h1").click()
    for _ in range(2):
        page.keyboard.press("j")
    assert _current(page) == f"job-{jobs[1]}"
    page.keyboard.press("k")
    assert _current(page) == f"job-{jobs[0]}"
    settled(page)
    diff = page.locator(f"#more-{jobs[0]}")
    assert diff.get_attribute("open") is None
    page.keyboard.press("y")
    assert diff.get_attribute("open") is not None, "what is folded is not approved"
    assert window.house.engine.job(jobs[0]).state == "held"
    page.keyboard.press("d")
    assert diff.get_attribute("open") is None
    page.keyboard.press("d")
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    page.locator(f"#job-{jobs[1]}:focus").wait_for()
    assert window.house.engine.job(jobs[0]).state == "queued"

    page.keyboard.press("n")
    page.keyboard.type("y not now")
    page.keyboard.press("Enter")
    page.get_by_text("Rejected. The planner will read the reason.").wait_for()
    assert [window.house.engine.job(job).state for job in jobs] == ["queued", "rejected", "held", "held"]
    page.locator(f"#job-{jobs[2]}:focus").wait_for()
    page.keyboard.press("e")
    page.wait_for_url(f"**/jobs/{jobs[2]}/edit")


def test_keys_do_nothing_where_no_job_is_chosen_or_another_key_is_held(window: Window) -> None:
    jobs = _hold(window.house, 2)
    page = window.open("/inbox")
    settled(page)
    for key in ("y", "n", "e", "d", "Control+y", "x"):
        page.keyboard.press(key)
    page.keyboard.press("j")
    page.keyboard.press("Control+y")
    assert page.url.endswith("/inbox")
    assert [window.house.engine.job(job).state for job in jobs] == ["held", "held"]


def test_the_keys_are_listed_and_each_is_explained(window: Window) -> None:
    _hold(window.house, 1)
    page = window.open("/inbox")
    page.keyboard.press("?")
    listed = page.get_by_role("dialog", name="Keys").locator("kbd").all_inner_texts()
    assert sorted(listed) == sorted(page.evaluate("Object.keys(KEYS)"))
    page.keyboard.press("j")
    assert page.get_by_role("dialog").count() == 1, "nothing behind it moves"
    page.get_by_role("button", name="Close").click()
    assert page.get_by_role("dialog").count() == 0
    page.get_by_role("button", name="Keys").click()
    page.get_by_role("dialog", name="Keys").wait_for()


@pytest.mark.proof
def test_after_a_decision_on_a_job_the_next_one_is_a_key_away(window: Window) -> None:
    jobs = _hold(window.house, 3)
    page = window.open(f"/jobs/{jobs[0]}")
    see_all(page)
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    page.wait_for_load_state()  # no script hears a key before
    page.keyboard.press("j")
    page.wait_for_url(f"**/jobs/{jobs[1]}")
    page.keyboard.press("j")
    page.wait_for_url(f"**/jobs/{jobs[2]}")
    page.keyboard.press("k")
    page.wait_for_url(f"**/jobs/{jobs[1]}")
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.name") == "reason"


def test_jobs_stand_below_their_mission_and_what_the_planner_said(house: House) -> None:
    jobs = _hold(house, 1)
    answer = house.get("/inbox")
    assert "Notes #1" in answer.words
    assert "Find out. These <b>belong</b> together. write_file" in answer.words
    assert "<b>belong" not in answer.text
    assert "default policy: kinds with effects wait for a person" in answer.words
    assert f'href="/jobs/{jobs[0]}/policy"' in answer.text


def test_the_inbox_says_once_what_jobs_of_a_mission_have_in_common(house: House) -> None:
    _hold(house, 2)
    held = [*map(str, _hold(house, 3))]
    answer = house.get("/inbox")
    assert answer.words.count("These <b>belong</b> together.") == 2
    assert answer.words.count("Find out.") == 2
    assert re.findall(r'id="job-(\d+)"', answer.text) == held
    assert re.findall(r'name="next" value="(\d+)"', answer.text)[::2] == held[1:]
    assert " open" not in "".join(re.findall(r'<details class="more"[^>]*>', answer.text))
    assert "open" in "".join(re.findall(r'<details class="more"[^>]*>', house.get("/inbox?mission=1").text))


def test_a_row_that_unfolds_in_place_shows_a_long_diff_at_once(house: House) -> None:
    long = "line\n" * 40
    house.run(
        house.ask(*(house.job("write_file", rel_path=f"{name}.md", content=long) for name in "abcd")),
        house.complete,
    )
    rows = re.findall(r'<details class="(?:more|diff)"[^>]*>', house.get("/inbox").text)
    assert [row.endswith(" open>") for row in rows] == [False, True] * 4


def test_all_jobs_of_a_kind_are_a_link_away(house: House) -> None:
    _hold(house, 2)
    house.run(house.ask(house.job("make_directory", rel_path="new")), house.complete)
    answer = house.get("/inbox?mission=1")
    assert "All write_file jobs…" in answer.words
    assert "All make_directory jobs…" not in answer.words
    assert 'href="/inbox/all?mission=1&amp;kind=write_file"' in answer.text


def test_without_javascript_the_next_job_that_waits_is_a_link(house: House) -> None:
    first, second = _hold(house, 2)
    approved = house.approve(first)
    assert f'rel="next" href="/jobs/{second}"' in approved.text
    assert 'rel="prev"' not in approved.text
    assert f'rel="prev" href="/jobs/{first}"' not in house.get(f"/jobs/{second}").text, "it waits no more"


def test_a_row_of_a_long_inbox_fetches_what_its_job_would_do(window: Window) -> None:
    first, second, *others = _hold(window.house, 9)
    page = window.open("/inbox")
    assert page.locator(".diff").count() == 0
    page.get_by_label("Reason to reject").fill("later")
    page.locator("h1").click()
    page.keyboard.press("j")
    settled(page)
    page.keyboard.press("y")
    page.locator(f"#more-{first}[open] .code .add").last.wait_for()
    assert window.house.engine.job(first).state == "held", "what has not been fetched is not approved"
    (window.house.root / "0.md").write_text("other\n")
    page.evaluate("load()")
    page.get_by_role("button", name="Show it").click()
    page.locator(f"#more-{first} .del").wait_for()
    assert _faults(page) == []
    see_all(page)
    settled(page)
    page.keyboard.press("y")
    page.locator(f"#job-{second}:focus").wait_for()
    (decided,) = window.house.engine.events(1, job_id=first, event="decided")
    assert "unseen" not in str(decided["data"])
    assert page.get_by_label("Reason to reject").input_value() == "later"

    page.keyboard.press("n")
    page.locator(f"#reject-{second}:focus").wait_for()
    page.keyboard.type("y not now")
    page.evaluate("document.querySelector('.more[open] .code').dataset.kept = 'yes'; load()")
    until(page, "!isLoading")
    assert page.locator(".code[data-kept]").count() == 1, "news keep what was fetched"
    page.keyboard.press("Enter")
    page.get_by_text("Rejected. The planner will read the reason.").wait_for()
    states = [window.house.engine.job(job).state for job in (first, second, *others)]
    assert states == ["queued", "rejected", *["held"] * 7]
