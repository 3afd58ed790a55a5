"""What an open page does by itself while the mission goes on, the runner dies or the server starts again."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.loaded_python import Python
from tests.web.conftest import House, serving
from tests.web.test_browser import chromium, runner, until, window

from lcp_engine.web.access import Secrets
from lcp_engine.web.pages.missions import MISSIONS

if TYPE_CHECKING:
    from tests.web.test_browser import Window

__all__ = ["chromium", "runner", "window"]


@pytest.mark.proof
@pytest.mark.usefixtures("runner")
def test_a_job_that_is_approved_shows_its_diff_and_undo_without_a_reload(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open(f"/jobs/{job_id}")
    page.locator("#live").wait_for()
    window.house.engine.approve(job_id)
    page.get_by_role("heading", name="What it changed").wait_for()
    page.get_by_role("link", name="Undo this job").wait_for()
    assert page.locator(".decide").count() == 0


def test_the_form_for_a_reply_appears_when_the_turn_waits_for_it(window: Window) -> None:
    window.house.engine.launch({"goal": "Find out.", "planner": {"type": "human"}}, root=window.house.root)
    page = window.open("/jobs/1")
    page.locator("#live").wait_for()
    window.house.work()
    page.get_by_role("textbox", name="Reply").wait_for()


def test_a_job_that_fails_again_says_why_and_can_be_queued_again(window: Window) -> None:
    house = window.house
    house.run(house.ask(house.job("read_file", rel_path="gone.txt")), house.complete)
    job_id = house.engine.jobs(kinds=["read_file"])[0].id
    page = window.open(f"/jobs/{job_id}")
    page.get_by_role("button", name="Queue again").click()
    page.get_by_text("Queued again.").wait_for()
    page.get_by_text("no runner is running", exact=False).wait_for()
    house.work()
    page.locator("#error", has_text="PATH_NOT_FOUND").wait_for()
    page.get_by_role("button", name="Queue again").wait_for()


def test_a_refusal_and_what_was_typed_stay_when_news_arrive(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open(f"/jobs/{job_id}")
    page.get_by_label("Reason to reject").fill("too soon")
    page.locator("#live").wait_for()
    page.evaluate("source.close()")  # the click comes before the news
    window.house.engine.cancel(1)
    page.get_by_role("button", name="Reject", exact=True).click()
    page.locator("#problem").wait_for()
    page.locator("#live").wait_for()
    window.house.hold("y.md")
    window.house.engine.resume(1)
    page.locator("header .state.cancelled").wait_for()
    assert page.locator("#problem").count() == 1


def test_a_list_that_grows_beyond_a_page_gets_its_pager(window: Window) -> None:
    for _ in range(MISSIONS):
        window.house.launch(window.house.complete)
    page = window.open("/")
    page.locator("#live").wait_for()
    assert page.get_by_role("link", name="Last page").count() == 0
    window.house.launch(window.house.complete)
    page.get_by_role("navigation", name="Pages of missions").get_by_role("link", name="Last page").wait_for()


def test_a_page_says_that_the_runner_was_killed(window: Window) -> None:
    house = window.house
    house.engine.enqueue("list_files", {"root": str(house.root)}, delay=3600)
    url = f"sqlite:///{house.root.parent / 'lcp.db'}"
    command = ("-m", "lcp_engine", "--db", url, "work", "--threads", "1")
    with Python(*command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        try:
            page = window.open("/missions/1")
            page.locator("main", has_not_text="no runner is running").wait_for()
        finally:
            runner.kill()
    page.get_by_text("no runner is running", exact=False).wait_for()


def test_times_are_those_of_the_reader_and_ages_tick(window: Window) -> None:
    window.house.run(window.house.complete)
    page = window.open("/missions/1/history", timezone_id="Asia/Tokyo", locale="en-GB")
    # Each in one go: news from the server may replace the element.
    shown, expected = page.evaluate(
        "(time => [time.innerText, new Intl.DateTimeFormat("
        "'en-GB', {dateStyle: 'medium', timeStyle: 'medium', timeZone: 'Asia/Tokyo'}"
        ").format(new Date(time.dateTime))])(document.querySelector('tbody time'))"
    )
    assert shown == expected
    told = page.evaluate(
        "(age => { age.dateTime = '2020-01-01T00:00:00+00:00'; showTimes(document); return age.innerText })"
        "(document.querySelector('time[data-age]'))"
    )
    assert told.endswith(" d ago")


def test_a_page_without_its_server_says_so_and_loses_nothing_that_was_typed(
    house: House, window: Window
) -> None:
    job_id = house.hold("x.md")
    with serving(house.engine) as server:
        page = window.chromium.shared_context().new_page()
        page.goto(server.link)
        page.goto(server.link.partition("/?")[0] + f"/jobs/{job_id}")
        page.locator("#live").wait_for()
        page.get_by_label("Reason to reject").fill("because of this")
    page.get_by_text("The server does not answer.", exact=False).wait_for()
    page.get_by_role("button", name="Reject", exact=True).click()
    assert page.get_by_label("Reason to reject").input_value() == "because of this"


def test_what_is_typed_is_there_after_going_back_until_it_is_sent(window: Window) -> None:
    job_id = window.house.hold("a.md", "# b\n")
    page = window.open(f"/jobs/{job_id}")
    reason = page.get_by_label("Reason to reject")
    reason.fill("Not like this.")
    page.goto(window.home + "/jobs")
    page.go_back()
    until(page, "document.getElementById('reason').value === 'Not like this.'")
    page.get_by_role("button", name="Reject", exact=True).click()
    page.get_by_text("Rejected. The planner will read the reason.").wait_for()
    until(page, "!Object.keys(sessionStorage).some((key) => key.startsWith('lcp-draft'))")


@pytest.mark.proof
def test_an_open_page_goes_on_when_its_server_is_back_and_its_form_still_arrives(
    house: House, window: Window
) -> None:
    job_id, keys = house.hold("x.md"), Secrets()
    with serving(house.engine, secrets=keys) as server:
        page = window.chromium.shared_context().new_page()
        page.goto(server.link)
        page.goto(server.link.partition("/?")[0] + f"/jobs/{job_id}")
        page.locator("#live").wait_for()
        page.get_by_label("Reason to reject").fill("because of this")
    page.get_by_text("The server does not answer.", exact=False).wait_for()
    with serving(house.engine, port=server.port, secrets=replace(keys, token="another")):
        page.locator("#live").wait_for()
        assert page.locator("#away").is_hidden()
        page.get_by_role("button", name="Reject", exact=True).click()
        page.get_by_text("Rejected. The planner will read the reason.").wait_for()
    assert "because of this" in (house.engine.job(job_id).reason or "")


def test_the_title_of_an_open_page_has_the_number_of_jobs_that_wait(window: Window) -> None:
    page = window.open("/")
    page.locator("#live").wait_for()
    assert page.title() == "Missions · lcp"
    window.house.hold("x.md")
    page.locator("#held-count .count").wait_for()
    assert page.title() == "(1) Missions · lcp"


def test_a_hidden_tab_notifies_who_wanted_that(window: Window) -> None:
    page = window.open("/inbox", permissions=["notifications"])
    page.evaluate("""() => {
        window.told = [];
        const Shown = window.Notification;
        window.Notification = class extends Shown {
            // A browser without windows has no notices, and refuses them whatever its permissions are.
            static permission = "granted";
            static requestPermission = async () => "granted";
            constructor(title, options) { super(title, options); window.told.push(title); }
        };
        Object.defineProperty(document, "hidden", { get: () => window.isAway ?? false });
        window.leave = (isAway) => {
            window.isAway = isAway;
            document.dispatchEvent(new Event("visibilitychange"));
        };
    }""")
    offer = page.get_by_role("button", name="Notify me")
    page.evaluate("leave(true)")
    window.house.hold("a.md")
    page.evaluate("leave(false)")
    page.locator("#held-count [data-count='1']").wait_for()
    offer.click()
    page.locator("#notices[aria-pressed=true]").wait_for()
    assert page.evaluate("told") == []

    page.evaluate("leave(true)")
    page.locator("#live:not([hidden])").wait_for(state="attached")
    window.house.hold("b.md")
    page.locator("#held-count [data-count='2']").wait_for()
    assert page.evaluate("told") == ["2 waiting for you"]
    assert page.title().startswith("(2)")

    page.evaluate("leave(false)")
    offer.click()
    page.locator("#notices[aria-pressed=false]").wait_for()
