"""A browser keeps what is typed in a form until that was sent: Back shows it again, also after a refusal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.web.test_browser import FIELDS, chromium, until, window

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from tests.web.test_browser import Window

__all__ = ["chromium", "window"]

pytestmark = [pytest.mark.proof, pytest.mark.usefixtures("forked_trials")]
DRAFTS = "Object.keys(sessionStorage).filter((key) => key.startsWith('lcp-draft'))"


def _comes_back(page: Page, selector: str, property_: str, value: str) -> None:
    """Leave the page and go back to it; the field has what was entered."""
    page.goto(page.url.partition("/jobs/")[0] + "/kinds")
    page.go_back()
    until(page, f"document.querySelector({selector!r}).{property_} === {value}")


def _is_gone(page: Page) -> None:
    until(page, f"{DRAFTS}.length === 0")


def test_the_edited_params_of_a_held_job_stay_until_they_are_approved(window: Window) -> None:
    job_id = window.house.hold("a.md", "# b\n")
    where = f"/jobs/{job_id}/edit"
    content = f"[name='param.{list(window.house.engine.job(job_id).params).index('content')}']"
    page = window.open(where)
    page.locator(content).fill("# typed\n")
    _comes_back(page, content, "value", "'# typed\\n'")
    page.get_by_role("button", name="Show the diff").click()
    page.get_by_role("heading", name="What it would change with these params").wait_for()
    page.locator(content).fill("# typed again\n")
    page.goto(window.home + where)
    until(page, f"document.querySelector({content!r}).value === '# typed again\\n'")
    page.locator("[name='param.0']").fill("")
    page.get_by_role("button", name="Show the diff").click()
    page.locator("#problem").wait_for()
    page.goto(window.home + where)
    until(page, f"document.querySelector({content!r}).value === '# typed again\\n'")
    page.locator("[name='param.0']").fill("a.md")
    page.get_by_role("button", name="Show the diff").click()
    page.get_by_role("heading", name="What it would change with these params").wait_for()
    until(page, "isSettled(performance.now())")
    page.get_by_role("button", name="Approve with these params").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    _is_gone(page)
    assert window.house.engine.job(job_id).params["content"] == "# typed again\n"


def test_the_form_of_a_question_stays_until_it_is_answered(window: Window) -> None:
    ask = window.house.job
    window.house.run(
        window.house.ask(
            ask("ask_user", question="What shall it be?", fields=FIELDS),
            ask("ask_user", question="Which colour?", options=["red", "blue"]),
            ask("ask_user", question="Is it so?", options=["yes"]),
        ),
        window.house.complete,
    )
    page = window.open("/jobs/2")
    page.get_by_label("Channel").select_option("beta")
    page.get_by_label("web").check()
    page.get_by_label("In your own words").fill("line one\nline two")
    page.get_by_label("Seats").fill("3")
    _comes_back(page, "select", "value", "'beta'")
    assert page.get_by_label("web").is_checked()
    assert page.get_by_label("In your own words").input_value() == "line one\nline two"
    page.get_by_role("button", name="Answer with the form").click()
    page.locator("#problem").wait_for()
    page.get_by_label("Seats").fill("7")
    page.goto(window.home + "/jobs/2")
    until(page, "document.querySelector('[name=\"field.seats\"]').value === '7'")
    page.get_by_label("Version").fill("2.0")
    page.get_by_role("button", name="Answer with the form").click()
    page.get_by_text("Answered. A runner will continue").wait_for()
    _is_gone(page)
    page.goto(window.home + "/jobs/3")
    page.get_by_label("red").check()
    page.get_by_label("blue").check()
    _comes_back(page, "[name=option][value='2']", "checked", "true")
    page.goto(window.home + "/inbox")
    until(page, "document.querySelector('[name=option][value=\"2\"]').checked")
    page.get_by_role("button", name="Answer job 3").click()
    page.get_by_text("Answered. A runner will continue").wait_for()
    _is_gone(page)
    page.goto(window.home + "/jobs/4")
    page.get_by_label("yes").check()
    _comes_back(page, "[name=option]", "checked", "true")


def test_no_password_is_kept(window: Window) -> None:
    job_id = window.house.hold("a.md", "# b\n")
    page = window.open(f"/jobs/{job_id}")
    page.wait_for_load_state()
    # In one go: news from the server may replace what was added.
    kept = page.evaluate(
        """() => {
            const form = document.getElementById("reject"), reason = form.elements.reason;
            const key = Object.assign(document.createElement("input"), { type: "password", name: "key" });
            form.append(key);
            for (const field of [key, reason]) {
                field.value = `typed in ${field.name}`;
                field.dispatchEvent(new Event("input", { bubbles: true }));
            }
            return JSON.stringify(sessionStorage);
        }"""
    )
    assert ("typed in key" in kept, "typed in reason" in kept) == (False, True)
