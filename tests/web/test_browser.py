"""The page in a real browser: what a person does, what they see, how it looks."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urljoin, urlsplit

import pytest
from pydantic import JsonValue
from starlette.testclient import TestClient
from tests.features.stages.web.test_staging import held_long_merge
from tests.patience import PATIENCE_SECONDS, in_thread
from tests.web.conftest import ADDRESS, House, Visitor, serving
from tests.web.test_approval_binding import MISHAPS

from lcp_engine import Engine
from lcp_engine.errors import LcpError
from lcp_engine.evaluation import Evaluation
from lcp_engine.features.approvers.rules import hash_of
from lcp_engine.features.approvers.settings import SignedLinks
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates
from lcp_engine.web.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

pytestmark = pytest.mark.usefixtures("forked_trials")

CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
"""The first one has no windows to draw, and needs a third of the processor time."""
REQUIRED = bool(os.environ.get("LCP_TEST_REQUIRE_CHROMIUM"))
SHOTS = os.environ.get("LCP_TEST_SCREENSHOTS")
"""The directory for screenshots of every page; without it, none are taken."""
# No requests of the browser's own.
ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_VIEWS = ("", "/timeline", "/history", "/report", "/settings", "/fork", "/replay", "/questions/2")
PAGES = (
    *("/", "/?status=failed", "/missions/2", "/missions/2/report", "/missions/{idle}"),
    *(f"/missions/1{view}" for view in _VIEWS),
    *(f"/missions/3{view}" for view in ("", "/changes", "/undo", "/report")),
    *(f"/jobs/4{view}" for view in ("", "/edit", "/diff", "/policy")),
    *("/jobs/{written}", "/jobs/{written}/undo", "/jobs/{question}", "/jobs/{relayed}"),
    *(
        "/jobs",
        "/jobs?text=a&state=held",
        "/jobs/2",
        "/jobs/3",
        "/jobs/5",
        "/jobs/6",
        "/inbox",
        "/inbox/all",
        "/launch",
        "/launch/own",
        "/kinds",
        "/kinds/search_files",
        "/kinds/run_command",
        "/memory",
        "/memory/1",
        "/overview",
        "/evals",
    ),
    *("/missions/{planned}/plan", "/jobs/{merge}", "/jobs/{merge}/edit", "/jobs/{rejected}", "/jobs/{form}"),
    *("/nowhere", "/jobs/99999", "/jobs/4/diff?find=e"),
)
BY_TURNS = (pytest.mark.proof, pytest.mark.turns(2))
# `make test` looks at every fourth page in the hardest look; the proofs look at all in each.
LOOKS = [
    ("dark", 375, PAGES[2::4]),
    *(
        pytest.param(scheme, width, PAGES[part::4], marks=BY_TURNS)
        for part in range(4)
        for scheme, width in (("light", 1024), ("dark", 375), ("dark", 1024), ("light", 320))
        if (scheme, width, part) != ("dark", 375, 2)
    ),
]
REFUSED: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("/launch", "form.stack", {"root": "/nowhere/at/all"}),
    ("/launch", "form.stack", {"planner": "human", "csrf": "of another page"}),
    ("/launch/own", "form.stack", {"text": "goal: x\nturns: [1\n", "variables": "a=b"}),
    ("/launch/own", "form.stack", {"text": "goal: ''\nlimits: {max_turns: many}\n"}),
    ("/jobs/4/edit", "form.stack", {"param.0": "", "decision": "preview"}),
    ("/jobs/4", "#reject", {"reason": ""}),
    ("/jobs/{merge}", "#say", {"words": " "}),
    ("/jobs/4", "#always form", {"paths": "other.md"}),
    ("/jobs/{form}", "form.stack", {"field.seats": "11", "way": "form"}),
    ("/jobs/{relayed}", "form[action$='/answer']", {"answer": "not JSON"}),
    ("/jobs/{merge}", "#approve", {"take": ""}),
    ("/inbox", "#batch", {"decision": "reject"}),
    ("/inbox/all", "#decide-all", {"decision": "reject"}),
    ("/missions/3", "#resume form", {"max_turns": "many"}),
    ("/missions/1/fork", "form.stack", {"turn": "", "reply": "not JSON"}),
    ("/memory/1", "form.stack", {"title": ""}),
)
"""Forms that are refused: the page, the form on it, and what is entered."""
SUBMIT = """([selector, entered]) => {
    const form = document.querySelector(selector);
    for (const [name, value] of Object.entries(entered)) {
        const fields = [...form.elements].filter((field) => field.name === name);
        const button = fields.find((field) => field.type === "submit" && field.value === value);
        if (button) form.submitter = button;
        for (const field of fields) {
            if (field.type === "checkbox") field.checked = false;
            else if (field.type !== "submit") field.value = value;
        }
    }
    form.noValidate = true;
    form.requestSubmit(form.submitter ?? undefined);
}"""
SHAPES = """() => Object.fromEntries([...document.querySelectorAll(".state")].map((chip) => {
    const icon = getComputedStyle(chip, "::before"), own = getComputedStyle(chip);
    const ground = getComputedStyle(document.body).backgroundColor;
    if (own.borderTopWidth === "0px") throw new Error(`no border: ${chip.className}`);
    if (icon.borderTopWidth === "0px" && icon.backgroundColor === ground) throw new Error(`no icon: ${chip.className}`);
    return [chip.classList[1], [icon.borderRadius, icon.height, icon.borderTopWidth]];
}))"""
"""How the icon of each state looks; every chip has a border and an icon that is seen."""
FIELDS: list[JsonValue] = [
    {"id": "version", "label": "Version", "required": True, "help": "Three numbers."},
    {"id": "channel", "type": "select", "label": "Channel", "options": ["stable", "beta"], "default": "stable"},
    {"id": "parts", "type": "multi_select", "label": "Parts", "options": ["cli", "web"], "help": "Any."},
    {"id": "seats", "type": "number", "label": "Seats", "min": 1, "max": 10},
    {"id": "public", "type": "checkbox", "label": "Public"},
    {"id": "day", "type": "date", "label": "Day"},
    {"id": "notes", "type": "textarea", "label": "Notes", "placeholder": "In full"},
    {"id": "licence", "type": "radio", "label": "Licence", "options": ["MIT", "GPL"]},
]  # fmt: skip
"""Of a question's form: one of each type."""
PLANNED: list[tuple[str, JsonValue]] = [
    ("list_files", {}),
    ("read_file", {"path": "a.md"}),
    ("write_file", {"path": "plan.md", "content": "x"}),
    ("read_file", {"path": "plan.md"}),
]
CHECKS = (Path(__file__).parent / "checks.js").read_text()
AXE = (files("axe_playwright_python") / "axe.min.js").read_text()


@dataclass
class Chromium:
    """A browser whose pages share a context where they may: a context costs more than most pages."""

    browser: Browser
    _shared: dict[bool, BrowserContext] = field(default_factory=dict)

    def new_context(self, **options: object) -> BrowserContext:
        """A context of the test's own, which `empty` closes."""
        # No test is about an animation, each frame of which is drawn by the processor.
        context = self.browser.new_context(reduced_motion="reduce", **options)  # type: ignore[arg-type]  # playwright's own options
        context.set_default_timeout(PATIENCE_SECONDS * 1000)
        return context

    def shared_context(self, *, java_script_enabled: bool = True) -> BrowserContext:
        """A context that other tests have used, without what they left in it."""
        if java_script_enabled not in self._shared:
            context = self.new_context(java_script_enabled=java_script_enabled)
            context.new_page()  # it stays: to open the first page of a context costs most
            self._shared[java_script_enabled] = context
        return self._shared[java_script_enabled]

    def empty(self) -> None:
        """Close the pages of a test, and forget their cookies."""
        for context in self.browser.contexts:
            if context not in self._shared.values():
                context.close()
                continue
            for page in context.pages[1:]:
                page.close()
            context.clear_cookies()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    if CHROMIUM is None:
        reason = "there is no chromium; Debian's package of that name has it"
        if REQUIRED:
            pytest.fail(reason)
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield Chromium(browser)
        browser.close()


@dataclass
class Window:
    """A browser with the page open; its console errors are collected."""

    house: House
    chromium: Chromium
    serving: PageServer
    complaints: list[str]

    @property
    def home(self) -> str:
        return self.serving.link.partition("/?")[0]

    def open(
        self,
        path: str = "/",
        *,
        java_script_enabled: bool = True,
        viewport: ViewportSize | None = None,
        color_scheme: Literal["light", "dark"] = "light",
        **options: object,
    ) -> Page:
        """A page in a browser that has used the link; a context of its own if it has more `options`."""
        if options:
            context = self.chromium.new_context(**options)
        else:
            context = self.chromium.shared_context(java_script_enabled=java_script_enabled)
        self._let_in(context)
        page = context.new_page()
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_viewport_size(viewport or {"width": 1280, "height": 720})
        page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        page.goto(self.home + path)
        return page

    def _let_in(self, context: BrowserContext) -> None:
        """Give a browser the cookie that the link gives."""
        visitor = Visitor()
        visitor.get(self.serving.link).close()
        name, _, value = visitor.cookie.partition("=")
        context.add_cookies(
            [{"name": name, "value": value, "url": self.home, "httpOnly": True, "sameSite": "Strict"}]
        )

    def _note(self, kind: str, text: str) -> None:
        # A refused form is not an error of the page.
        if kind in ("error", "warning") and not re.search("status of (403|404|409|422)", text):
            self.complaints.append(text)


@pytest.fixture
def window(house: House, chromium: Chromium) -> Iterator[Window]:
    complaints: list[str] = []
    with serving(house.engine, evals=house.root.parent / "evals") as server:
        try:
            yield Window(house, chromium, server, complaints)
            assert complaints == []
        finally:
            chromium.empty()


@pytest.fixture
def runner(house: House) -> Iterator[None]:
    """A runner that works while the page is open."""
    runner = house.engine.runner(threads=2)
    with in_thread(runner.run, runner.stop):
        yield


def settled(page: Page) -> None:
    """Wait until a key decides, because what it decides on has been on the screen for long enough."""
    until(page, "isSettled(performance.now())")


def until(page: Page, condition: str) -> None:
    """Wait for a condition on a page, also while no frame is drawn. Its policy lets no text be evaluated there."""
    page.wait_for_load_state()  # its scripts are there
    poll = f"const poll = setInterval(() => {{ if ({condition}) done(clearInterval(poll)); }}, 20);"
    give_up = f"setTimeout(() => fail(new Error({json.dumps(condition)} + ' stays false')), {PATIENCE_SECONDS * 1000});"
    page.evaluate(f"new Promise((done, fail) => {{ {poll} {give_up} }})")


def see_all(page: Page) -> None:
    """Scroll through all that a decision would be about, as its reader does."""
    until(page, "drawnAt < performance.now()")
    page.evaluate(
        """async (patience) => {
            const unseen = () => [...rows.values()].flat().find((row) => seenOf(row) < 1);
            const ends = performance.now() + patience;
            while (unseen()) {
                if (performance.now() > ends) throw new Error("it stays unseen: " + unseen().outerHTML);
                goTo(unseen());
                await Promise.race([new Promise(requestAnimationFrame), new Promise((done) => setTimeout(done, 1000))]);
                look();
            }
        }""",
        PATIENCE_SECONDS * 1000,
    )


def test_only_the_variables_of_the_chosen_mission_are_shown(window: Window) -> None:
    page = window.open("/launch")
    assert page.locator(".variable:visible").count() == 0
    page.get_by_label("document", exact=False).check()
    shown = page.locator(".variable:visible input")
    assert shown.count()
    assert {str(shown.nth(at).get_attribute("name")).split(".")[0] for at in range(shown.count())} == {
        "document"
    }


def _width(page: Page, selector: str) -> float:
    box = page.locator(selector).first.bounding_box()
    assert box
    return box["width"]


def test_a_reason_on_a_phone_leaves_room_for_what_a_job_is_about(window: Window) -> None:
    house = window.house
    missing = house.job("read_file", rel_path=f"docs/{'a-long-name-' * 15}.md")
    mission = house.run(house.ask(missing), house.complete)
    page = window.open(f"/missions/{mission}", viewport={"width": 390, "height": 800})
    assert _width(page, ".job:has(.why) .what") > 150
    assert _width(page, ".job .why") > 250


def test_what_is_remembered_stands_apart_from_its_search(window: Window) -> None:
    window.house.engine.memory.add("Tests", "They need PYTHONPATH=src.", root=window.house.root)
    page = window.open("/memory")
    search, found = (page.locator(one).bounding_box() for one in ("form.card", "li.card"))
    assert search
    assert found
    assert found["y"] - search["y"] - search["height"] >= 8


@pytest.mark.proof
@pytest.mark.usefixtures("runner")
def test_a_person_launches_a_survey_edits_and_approves_it_and_sees_it_end(window: Window) -> None:
    page = window.open("/launch")
    page.get_by_label("Directory").fill(str(window.house.root))
    page.get_by_role("button", name="Launch").click()
    page.get_by_text("1 job waits for a person.").wait_for()  # without a reload: the page follows the events
    page.get_by_role("link", name="Decide").click()
    page.get_by_text("SURVEY.md", exact=True).first.wait_for()
    page.locator(".diff > summary").click()
    page.get_by_text("+# Survey of", exact=False).wait_for()
    page.get_by_role("link", name="Edit job").click()
    content = page.get_by_label("content", exact=True)
    text = content.input_value().replace("# Survey of", "# A person's survey of")
    content.fill(text)
    path = page.get_by_label("rel_path", exact=True)
    path.fill("")
    settled(page)
    page.get_by_role("button", name="Approve with these params").click()
    page.get_by_text("should be text that is not empty").wait_for()
    assert re.search(r"/jobs/\d+/edit$", page.url), "loading it again shows the form"
    assert content.input_value() == text, "nothing that was typed is lost"

    path.fill("SURVEY.md")
    page.get_by_role("button", name="Show the diff").click()
    page.get_by_text("+# A person's survey of", exact=False).wait_for()
    see_all(page)
    settled(page)
    page.get_by_role("button", name="Approve with these params").click()
    page.locator("header .state.succeeded").wait_for()
    page.get_by_role("link", name=re.compile("^survey")).click()
    page.locator("header .state.completed").wait_for()
    assert (window.house.root / "SURVEY.md").read_text().startswith("# A person's survey of")

    page.get_by_role("link", name="Undo this mission").click()
    page.get_by_text("SURVEY.md is removed").wait_for()
    settled(page)  # until its scripts have run, its button looks as if a press counted
    page.get_by_role("button", name="Undo mission 1").click()
    page.get_by_text("Undone.", exact=False).wait_for()
    assert not (window.house.root / "SURVEY.md").exists()


@pytest.mark.parametrize(
    "mishap",
    ["changed", *(pytest.param(one, marks=pytest.mark.proof) for one in MISHAPS if one != "changed")],
)
def test_an_approval_from_an_old_window_is_refused_and_shows_what_is_new(window: Window, mishap: str) -> None:
    job_id = window.house.hold("a.md", "# b\n")
    page = window.open(f"/jobs/{job_id}", java_script_enabled=False)
    page.get_by_text("-# a").wait_for()
    MISHAPS[mishap](window.house.root / "a.md")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("button", name="Approve 1 file").click()
    page.get_by_role("alert").get_by_text("Nothing was decided").wait_for()
    assert page.get_by_text("-# a", exact=True).count() == 0
    assert window.house.engine.job(job_id).state == "held"
    if mishap == "changed":
        page.get_by_text("-somebody else's").wait_for()
        page.get_by_role("button", name="Approve").click()
        page.get_by_role("button", name="Approve 1 file").click()
        page.get_by_text("Approved. A runner will execute it.").wait_for()


@pytest.mark.parametrize("javascript", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_a_diff_has_numbers_and_stands_side_by_side_where_there_is_room(
    window: Window, javascript: bool
) -> None:
    (window.house.root / "a.md").write_text("one\ntwo words\nthree\n")
    job_id = window.house.hold("a.md", "one\n2 words\nthree\n")
    page = window.open(
        f"/jobs/{job_id}", java_script_enabled=javascript, viewport={"width": 1024, "height": 700}
    )

    def column(selector: str) -> tuple[float, float]:
        box = page.locator(f".code {selector}").bounding_box()
        assert box
        return box["x"], box["y"]

    assert column(".del")[0] == column(".add")[0]
    assert column(".del")[1] < column(".add")[1]
    number = "getComputedStyle(document.querySelector('.code .del a'), '::before').content"
    assert page.evaluate(number) in ('"2"', "attr(data-old)")
    assert page.locator(".del mark").text_content() == "two"
    page.get_by_role("button", name="Diffs side by side").click()
    page.get_by_role("button", name="Diffs in one column").wait_for()
    assert column(".del")[0] < column(".add")[0]
    assert column(".del")[1] == column(".add")[1]
    assert column(".hunk + .same")[1] > column(".hunk")[1], "the head of a hunk is above both columns"
    assert column(".add")[0] < _width(page, ".code .hunk"), "the head of a hunk is above both sides"
    assert _faults(page) == [] if javascript else True
    page.set_viewport_size({"width": 390, "height": 700})
    assert column(".del")[1] < column(".add")[1], "a phone has room for one column"
    if javascript:
        see_all(page)
        settled(page)
    page.get_by_role("button", name="Approve", exact=True).click()
    if not javascript:
        page.get_by_role("button", name="Approve 1 file, 4 lines").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()


def test_all_that_fit_are_decided_with_one_form(window: Window) -> None:
    jobs = [window.house.job("write_file", rel_path=f"{number}.md", content="x") for number in range(5)]
    window.house.run(window.house.ask(*jobs), window.house.complete)
    page = window.open("/inbox?kind=write_file")
    page.get_by_role("link", name="Decide on all matching jobs").click()
    see_all(page)
    page.get_by_role("button", name="Approve 5 jobs").click()
    page.get_by_text("No held jobs match.").wait_for()
    assert len(window.house.engine.jobs(states=["queued"])) >= 5


def test_a_question_is_answered_by_choosing_an_option(window: Window) -> None:
    question = window.house.job("ask_user", question="Which colour?", options=["red", "blue"])
    window.house.run(window.house.ask(question), window.house.complete)
    page = window.open("/inbox")
    page.get_by_label("blue").check()
    page.get_by_role("button", name="Answer job 2").click()
    page.get_by_text("Answered. A runner will continue").wait_for()
    assert window.house.engine.job(2).state == "succeeded"


@pytest.mark.parametrize("javascript", [True, pytest.param(False, marks=pytest.mark.proof)])
def test_a_form_is_readable_and_filled_in_with_and_without_javascript(
    window: Window, javascript: bool
) -> None:
    question = window.house.job("ask_user", question="What shall it be?", fields=FIELDS)
    window.house.run(window.house.ask(question), window.house.complete)
    page = window.open("/jobs/2", java_script_enabled=javascript)
    page.get_by_label("Seats").fill("11")
    page.get_by_label("web").check()
    page.get_by_role("button", name="Answer with the form").click()
    assert page.locator("[name='field.seats']:invalid").count() == 1
    page.get_by_label("Seats").fill("3")
    page.get_by_role("button", name="Answer with the form").click()
    page.get_by_text("1 field of the form cannot be read").wait_for()
    if javascript:
        assert _faults(page) == []
    assert page.get_by_label("web").is_checked()
    page.get_by_label("Version").fill("2.0")
    page.get_by_role("button", name="Answer with the form").click()
    page.get_by_text("Answered. A runner will continue").wait_for()
    result = window.house.engine.job(2).result
    assert result is not None
    assert result["values"] == {
        "version": "2.0", "channel": "stable", "parts": ["web"], "seats": 3, "public": False,
    }  # fmt: skip


def test_the_prompt_of_a_turn_is_copied_and_the_reply_brought(window: Window) -> None:
    window.house.engine.launch({"goal": "Find out.", "planner": {"type": "human"}}, root=window.house.root)
    window.house.work()
    page = window.open("/jobs/1", permissions=["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the prompt").click()
    page.get_by_role("button", name="Copied").wait_for()
    page.evaluate("load()")  # as news make the page do
    assert page.get_by_role("button", name="Copied").is_visible()
    assert "Find out." in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("textbox", name="Reply").fill(json.dumps(window.house.complete))
    page.get_by_role("button", name="Submit the reply").click()
    page.get_by_text("Answered. A runner will continue").wait_for()


@pytest.mark.usefixtures("runner")
def test_what_is_being_typed_is_not_taken_away_by_news(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open(f"/jobs/{job_id}")
    page.locator("#live").wait_for()
    page.get_by_label("Reason to reject").fill("because I am still thi")
    window.house.engine.approve(job_id)
    page.locator("header .state.succeeded").wait_for()
    assert page.get_by_label("Reason to reject").input_value() == "because I am still thi"


def test_news_leave_the_focus_and_the_scroll_position_as_they_are(window: Window) -> None:
    house = window.house
    for _ in range(12):
        house.run(house.ask(house.job("list_files", patterns=["*.md"])), house.complete)
    page = window.open("/", viewport={"width": 1200, "height": 500})
    page.locator("#live").wait_for()
    page.evaluate("scrollTo(0, 300)")
    page.locator("#mission-8 .what a").focus()
    page.evaluate("document.activeElement.closest('tr').isTheSame = true")
    scrolled = page.evaluate("scrollY")
    house.run(house.complete)
    page.locator("#mission-13").wait_for()
    assert page.evaluate("document.activeElement.pathname") == "/missions/8"
    assert page.evaluate("document.getElementById('mission-8').isTheSame"), "it was moved, not made again"
    assert page.evaluate("scrollY") >= scrolled


def test_the_percentage_moves_and_a_milestone_is_announced_once(window: Window) -> None:
    house = window.house
    look = house.ask(*(house.job("list_files", patterns=[f"*.{end}"]) for end in "abc"))
    house.launch(look, house.complete)
    page = window.open("/missions/1")
    page.locator("#live").wait_for()
    bar = page.get_by_role("progressbar", name="Progress")
    assert bar.get_attribute("value") == "0"
    page.evaluate(
        "new MutationObserver(() => (window.heard ??= []).push(announcement.textContent))"
        ".observe(announcement, { childList: true })"
    )
    house.work()
    page.get_by_text("100% reached", exact=True).first.wait_for()
    assert bar.get_attribute("value") == "100"
    heard = page.evaluate("window.heard")
    assert heard[-1].endswith("100% reached")
    assert len(heard) == len(set(heard))


def test_times_that_say_the_same_cause_no_layout(window: Window) -> None:
    window.house.run(window.house.complete)
    page = window.open("/")
    changes = """(said) => {  // in one go, so that no news come between
        for (const one of all("time")) one.dateTime = "2020-01-01T00:00:00Z";
        showTimes(document);
        if (said) first("time").textContent = said;
        const observer = new MutationObserver(() => {});
        observer.observe(document.body, { childList: true, characterData: true, subtree: true });
        showTimes(document);
        return observer.takeRecords().length;
    }"""
    assert page.evaluate(changes, "") == 0
    assert page.evaluate(changes, "now") == 1


def test_news_leave_what_is_unfolded_open(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open("/missions/1")
    page.locator("#live").wait_for()
    page.locator("#cancel > summary").click()
    window.house.engine.approve(job_id)
    page.locator(".facts-grid .tally.queued").wait_for()
    assert page.locator("#cancel").get_attribute("open") is not None


def test_news_of_a_job_add_to_its_events(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open(f"/jobs/{job_id}")
    page.locator("#live").wait_for()
    window.house.engine.say(1, "not yet", job_id=job_id)
    page.locator("tr", has_text="not yet").wait_for()
    assert page.locator("tr", has_text="held").count() == 1


def test_the_inbox_says_that_it_changed_and_moves_nothing(window: Window) -> None:
    window.house.hold("x.md")
    page = window.open("/inbox")
    page.locator("#live").wait_for()
    window.house.hold("y.md")
    page.get_by_text("The inbox has changed.", exact=False).first.wait_for()
    assert page.locator(".held-job").count() == 1
    page.get_by_role("link", name="Reload").click()
    page.locator(".held-job").nth(1).wait_for()


def test_what_an_open_inbox_fetches_moves_neither_its_list_nor_an_approval(window: Window) -> None:
    house = window.house
    job_id = house.hold("a.md", "# b\n")
    page = window.open("/inbox")
    page.locator("#live").wait_for()
    (house.root / "a.md").write_text("somebody else's\n")
    with page.expect_response(
        lambda response: response.url.endswith("/inbox")
    ):  # fetched because of the event
        house.engine.say(1, "any event")
    with page.expect_response(lambda response: response.url.endswith("/inbox")):
        house.engine.say(1, "another one")  # the first one has been dealt with
    assert page.locator("#changed").is_hidden()
    with pytest.raises(LcpError, match="is not what was shown"):
        house.engine.approve(job_id)
    page.get_by_text(f"Job {job_id} has changed since you were shown it.", exact=False).wait_for()
    assert page.locator(".diff .del").all_inner_texts() == ["-# a"]
    assert house.engine.job(job_id).state == "held"


def test_after_a_decision_the_inbox_goes_on_at_the_next_job(window: Window) -> None:
    jobs = [window.house.hold(f"{number}.md", "line\n" * 30) for number in range(5)]
    page = window.open("/inbox", viewport={"width": 1200, "height": 500})
    see_all(page)
    page.get_by_role("button", name=f"Approve job {jobs[2]}").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    page.locator(f"#job-{jobs[3]}:target").wait_for()
    until(page, "scrollY > 500")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.value") == str(jobs[3])


def test_everything_but_the_live_part_works_without_javascript(window: Window) -> None:
    first, second = window.house.hold("x.md"), window.house.hold("y.md")
    page = window.open("/inbox", java_script_enabled=False)
    page.get_by_role("button", name=f"Approve job {first}").click()
    page.get_by_role("button", name="Approve 1 file, 1 line").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    page.get_by_role("link", name="Inbox").click()
    page.get_by_label(f"Select job {second}").check()
    page.get_by_label("Reason to reject").fill("not now")
    page.get_by_role("button", name="Reject", exact=True).click()
    page.get_by_text("1 job was rejected. The planner will read the reason.").wait_for()
    assert [window.house.engine.job(job).state for job in (first, second)] == ["queued", "rejected"]


@pytest.mark.proof
def test_forty_writes_are_decided_with_one_look_and_undone(window: Window) -> None:
    house = window.house
    (house.root / "run.sh").write_text("#!/bin/sh\n")
    (house.root / "run.sh").chmod(0o750)
    before = house.picture()
    jobs = [house.job("write_file", rel_path=f"out/{n}.txt", content=f"text {n}\n") for n in range(39)]
    jobs.append(house.job("write_file", rel_path="run.sh", content="#!/bin/bash\n"))
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    house.run(house.ask(*jobs), done, stage=True, limits={"max_followups": 40})
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    page = window.open(f"/jobs/{merge.id}")
    assert all(page.get_by_text(f"+text {n}", exact=True).is_visible() for n in range(39))
    see_all(page)
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    house.work()
    assert len([*(house.root / "out").iterdir()]) == 39
    page.goto(page.url.partition("/jobs/")[0] + f"/missions/{merge.mission_id}/undo")
    page.get_by_role("button", name="Undo mission").click()
    page.wait_for_url(lambda url: not url.endswith("/undo"))
    assert house.picture() == before


def test_the_keyboard_is_enough(window: Window) -> None:
    job_id = window.house.hold("x.md")
    page = window.open("/inbox")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.getAttribute('aria-label')") == f"Approve job {job_id}":
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.get_by_text("Approved. A runner will execute it.").wait_for()


def test_all_jobs_of_a_page_are_ticked_at_once(window: Window) -> None:
    jobs = [window.house.job("write_file", rel_path=f"{number}.md", content="x") for number in range(5)]
    window.house.run(window.house.ask(*jobs), window.house.complete)
    page = window.open("/inbox")
    page.get_by_label("All 5 on this page").check()
    see_all(page)
    page.get_by_role("button", name="Approve", exact=True).first.click()
    page.get_by_text("No jobs wait").wait_for()
    assert len(window.house.engine.jobs(states=["queued"])) >= 5


@pytest.mark.parametrize("batch", [True, False], ids=["ticked jobs", "all jobs"])
def test_enter_in_the_reason_rejects(window: Window, batch: bool) -> None:
    jobs = [window.house.job("write_file", rel_path=f"{number}.md", content="x") for number in range(2)]
    window.house.run(window.house.ask(*jobs), window.house.complete)
    page = window.open("/inbox" if batch else "/inbox/all")
    if batch:
        page.get_by_label("All 2 on this page").check()
    page.get_by_label("Reason to reject").press_sequentially("not now")
    page.keyboard.press("Enter")
    page.get_by_text("No jobs wait").wait_for()
    rejected = window.house.engine.jobs(states=["rejected"])
    assert [job.kind for job in rejected] == ["write_file", "write_file"]


@pytest.mark.parametrize(("scheme", "width", "pages"), LOOKS)
def test_every_page_is_readable_at_every_width_and_in_both_colours(
    window: Window, scheme: Literal["light", "dark"], width: int, pages: tuple[str, ...]
) -> None:
    jobs = _furnish(window.house)
    page = window.open(color_scheme=scheme, viewport={"width": width, "height": 800})
    for path in (one.format(**jobs) for one in pages):
        page.goto(window.home + path)
        page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
        assert _faults(page) == [], path
        if SHOTS is not None:
            name = re.sub("[^a-z0-9]+", "-", path).strip("-") or "missions"
            page.screenshot(path=Path(SHOTS, f"{scheme}-{width}", f"{name}.png"), full_page=True)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.proof)])
def test_states_are_told_apart_in_the_reader_s_own_colours(
    window: Window, scheme: Literal["light", "dark"]
) -> None:
    _furnish(window.house)
    page = window.open("/missions/1", color_scheme=scheme, forced_colors="active")
    shapes: dict[str, list[str]] = page.evaluate(SHAPES)
    assert {"succeeded", "failed", "held", "rejected"} <= shapes.keys()
    assert len({str(shapes[state]) for state in ("succeeded", "failed", "held")}) == 3
    page.goto(window.home + "/")
    fills: dict[str, str] = page.evaluate(
        "Object.fromEntries([...document.querySelectorAll('.run')].map((one) =>"
        " [one.classList[1], getComputedStyle(one).fill + getComputedStyle(one).stroke]))"
    )
    assert len({fills[state] for state in ("succeeded", "failed", "held")}) == 3
    current = "getComputedStyle(document.querySelector('.top a[aria-current]')).borderBottomColor"
    other = "getComputedStyle(document.querySelector('.top a:not([aria-current])')).borderBottomColor"
    assert page.evaluate(f"{current} !== {other}")


def test_the_first_screen_of_a_phone_has_every_tab_and_the_first_rows(window: Window) -> None:
    _furnish(window.house)
    page = window.open("/missions/1", viewport={"width": 390, "height": 844})
    for tab in page.locator(".tabs a").all():
        box = tab.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390, tab.inner_text()
    for path, first in (("/", "tbody tr"), ("/jobs", "tbody tr"), ("/inbox", ".held-job")):
        page.goto(window.home + path)
        box = page.locator(first).first.bounding_box()
        assert box
        assert box["y"] < 500, (path, box)


@pytest.mark.parametrize(
    ("width", "forms"),
    [
        (375, REFUSED[2::4]),
        pytest.param(1024, REFUSED, marks=BY_TURNS),
        pytest.param(375, REFUSED, marks=BY_TURNS),
    ],
    ids=["some, narrow", "wide", "narrow"],
)
def test_every_refused_form_is_readable(
    window: Window, width: int, forms: tuple[tuple[str, str, dict[str, str]], ...]
) -> None:
    jobs = _furnish(window.house)
    page = window.open(viewport={"width": width, "height": 800})
    for path, selector, entered in forms:
        page.goto(window.home + path.format(**jobs))
        status = _submit(page, selector, entered)
        assert status in (403, 409, 422), (path, entered, status)
        focused = page.locator(":focus")
        assert focused.get_attribute("role") == "alert", (path, entered)
        assert focused.bounding_box(), "it can be seen"
        assert _faults(page) == [], (path, entered)


@pytest.mark.proof
def test_the_forms_of_a_merge_are_readable(window: Window) -> None:
    jobs = _furnish(window.house)
    page, edited = window.open(f"/jobs/{jobs['merge']}"), ""
    for width in (1024, 375):
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(window.home + f"/jobs/{jobs['merge']}")
        page.get_by_role("checkbox", name="n.txt").uncheck()
        page.get_by_role("checkbox", name="hunk 2").uncheck()
        assert _faults(page) == [], width
        page.get_by_role("button", name="Edit the chosen files first").click()
        text = page.get_by_role("textbox", name="long.txt")
        edited = edited or text.input_value() + "one more\n"
        text.fill(edited)
        assert _faults(page) == [], width
        page.get_by_role("button", name="Show the diff").click()
        page.get_by_text("+one more").wait_for()
        assert _faults(page) == [], width
    see_all(page)
    page.get_by_role("button", name="Approve with these texts").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()


@pytest.mark.parametrize(
    "approvers",
    [
        pytest.param({}, marks=pytest.mark.proof, id="no names"),
        pytest.param({"anna": hash_of("of anna")}, id="named"),
    ],
)
def test_the_page_of_a_signed_link_is_readable(
    chromium: Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, approvers: dict[str, str]
) -> None:
    monkeypatch.setenv("LINK_SECRET", "a secret of the tests, long enough")
    root = tmp_path / "root"
    root.mkdir()
    links = SignedLinks(url="http://localhost", secret_env="LINK_SECRET")
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", links=links, approvers=approvers) as engine:
        app = make_app(PageContext(engine, make_templates(), ""), Secrets(), ADDRESS)
        house = House(engine, root, app, Secrets(), TestClient(app))
        job_id = house.hold("a.md", "# b\n" + "word " * 200)
        with serving(engine) as server:
            try:
                page = chromium.shared_context().new_page()
                made = urljoin(server.link, urlsplit(engine.links.make(job_id)).path)
                for width in (1024, 375):
                    page.set_viewport_size({"width": width, "height": 800})
                    page.goto(made)
                    assert _faults(page) == [], width
                    entered = {"reason": "too soon", "key": "of nobody"} if approvers else {"reason": ""}
                    assert _submit(page, "#reject", entered) in (403, 422)
                    assert _faults(page) == [], width
                page.goto(made)
                if approvers:
                    page.get_by_label("Your token as an approver").first.fill("of anna")
                see_all(page)
                page.get_by_role("button", name="Approve").click()
                page.get_by_text("This link decides nothing more.").wait_for()
                assert _faults(page) == []
                page.goto(made)
                page.get_by_role("heading", name="Nothing was decided").wait_for()
                assert _faults(page) == []
            finally:
                chromium.empty()
    assert engine.job(job_id).state == "queued"


def _submit(page: Page, selector: str, entered: dict[str, str]) -> int:
    """Submit a form with what is entered in it, whatever the browser thinks of it; the status of the answer."""
    with page.expect_navigation() as navigated:
        page.evaluate(SUBMIT, [selector, entered])
    response = navigated.value
    assert response is not None
    return response.status


def test_the_checks_of_a_page_find_what_is_wrong_with_it(window: Window) -> None:
    page = window.chromium.shared_context().new_page()
    page.set_viewport_size({"width": 300, "height": 300})
    page.set_content(
        "<p id=a>one<p id=a>two<input name=x><button></button><svg></svg><pre>" + "wide" * 99 + "</pre>"
        "<p style='color:#aaa;background:#fff'>pale<p><a href=a style='display:block;height:9px'>a</a>"
        "<a href=b style='display:block;height:9px'>b</a>"
    )
    faults = " ".join(_faults(page))
    for expected in (
        "wider",
        "not one h1",
        "landmark-one-main",
        "document-title",
        "html-has-lang",
        "id twice: a",
        'label: <input name="x">',
        "button-name",
        "svg",
        "contrast of 2.32",
        "target-size: <a href",
    ):
        assert expected in faults


def _faults(page: Page) -> list[str]:
    page.evaluate(AXE)
    faults: list[str] = page.evaluate(CHECKS)
    return faults


def _evaluate(house: House) -> None:
    """An evaluation with two planners."""
    suite = house.root.parent / "suite.json"
    says = {"type": "script", "replies": [house.complete]}
    mission = {"name": "looks", "goal": "Look.", "root": "root", "expect": {"facts": ["undone"]}}
    suite.write_text(json.dumps({"name": "s", "planners": {"a": says, "b": says}, "missions": [mission]}))
    evaluation = Evaluation.begin(suite, house.root.parent / "evals" / "first")
    with Engine(evaluation.url) as engine:
        evaluation.run(engine)


def _furnish(house: House) -> dict[str, int]:
    """Something for every place of every page; the ids of some jobs."""
    jobs = [
        house.job("list_files", patterns=["*.md"]),
        house.job("read_file", rel_path="gone.txt"),
        house.job(
            "write_file", rel_path="a/" + "very-long-name-" * 12 + ".md", content="# Notes\n" + "word " * 200
        ),
        house.job("write_file", rel_path=".env", content="SECRET=1"),
        house.job("deploy", name="<b>Deploy</b> \x1b[31m", to={"place": ["production"]}),
    ]
    house.run(
        house.ask(*jobs),
        "not JSON",
        {**house.complete, "deliverables": ["a.md"], "metrics": {"files": 3}},
        name="Everything",
    )
    house.run({"ok": False, "action": "error", "error": "Cannot go on: " + "no-way-" * 30})
    code = "".join(f"def part_{n}():\n    return {n}\n\n" for n in range(40))
    (house.root / "parts.py").write_text(code)
    edited = code.replace("return 7", "return 7 + 1").replace("def part_20", "def renamed_20")
    writes = [
        house.job("write_file", rel_path="parts.py", content=edited),
        house.job(
            "write_file", rel_path="docs/new.md", content="# New\n\n" + "A line of words. " * 30 + "\n"
        ),
        house.job("write_file", rel_path="later.md", content="x\n" * 200),
    ]
    house.run(house.ask(*writes), house.complete, name="Writes", policy=[{"kinds": ["*"], "do": "auto"}])
    (house.root / "later.md").write_text("changed by hand\n")
    options: JsonValue = ["The first, which is short", "The second, which goes on and on. " * 8, "Neither"]
    asked = house.job("ask_user", question="Which of these shall it be?", options=options)
    house.run(house.ask(asked), house.complete, name="Asks", hold_timeout=3600)
    house.engine.launch({"goal": "Be the planner.", "planner": {"type": "human"}}, root=house.root)
    house.work()
    held = {job.kind: job.id for job in house.engine.jobs(states=["held"])}
    written = house.engine.jobs(mission_id=3, kinds=["write_file"])[0].id
    rejected = house.hold("rejected.md")
    house.engine.reject(rejected, "not like that")
    house.run(house.ask(house.job("ask_user", question="What shall it be?", fields=FIELDS)), house.complete)
    form = house.engine.jobs(kinds=["ask_user"], states=["held"])[-1].id
    steps: list[JsonValue] = [
        {
            "id": f"step-{n:03}",
            "tool": tool,
            "parameters": params,
            "dependencies": [f"step-{n - 1:03}"] if n else [],
        }
        for n, (tool, params) in enumerate(PLANNED)
    ]
    planned = house.engine.launch({"goal": "Plan.", "plan": {"steps": steps}}, root=house.root).id
    merge = held_long_merge(house)
    idle = house.launch(house.complete, name="Waits for a runner " * 8)
    _evaluate(house)
    return {
        "written": written, "question": held["ask_user"], "relayed": held["agent_plan"], "rejected": rejected,
        "form": form, "planned": planned, "merge": merge, "idle": idle,
    }  # fmt: skip


def test_no_other_port_gets_the_cookie_and_history_holds_no_link_that_works(
    house: House, chromium: Chromium
) -> None:
    received: list[str] = []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(str(self.headers))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the overridden one
            pass

    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as other,
        in_thread(other.serve_forever, other.shutdown),
        serving(house.engine) as server,
    ):
        context = chromium.new_context()
        try:
            page = context.new_page()
            link = server.link
            assert urlsplit(link).hostname not in ("localhost", "127.0.0.1")
            page.goto(link)
            page.get_by_text("No missions yet").wait_for()
            for name in ("127.0.0.1", "localhost", "lcp.localhost"):
                page.goto(f"http://{name}:{other.server_port}/")
            page.goto(urljoin(link, "/inbox"))
            page.get_by_role("heading", name="Inbox").wait_for()
            entries = context.new_cdp_session(page).send("Page.getNavigationHistory")["entries"]
            assert not any("token=" in entry["url"] for entry in entries)
            assert Visitor().status(link) == 401
        finally:
            chromium.empty()
    assert len(received) >= 3
    assert not any("cookie" in headers.lower() or "lcp-" in headers for headers in received)
