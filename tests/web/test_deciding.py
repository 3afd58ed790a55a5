"""What was on the screen when a press decided: nothing yet, something else, or a part of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.web.test_browser import _faults, chromium, see_all, settled, until, window

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.web.conftest import House
    from tests.web.test_browser import Window

__all__ = ["chromium", "window"]

LONG = "".join(f"line {n}\n" for n in range(1230))
WITHOUT_FRAMES = """
    const draw = window.requestAnimationFrame.bind(window), held = [];
    window.requestAnimationFrame = (each) => held ? held.push(each) : draw(each);
    window.drawFrames = () => { window.requestAnimationFrame = draw; held.forEach((each) => draw(each)); };
"""
AWAY = """
    let isAway = true;
    Object.defineProperty(document, "hidden", { get: () => isAway });
    Object.defineProperty(document, "visibilityState", { get: () => isAway ? "hidden" : "visible" });
    window.comeBack = () => { isAway = false; document.dispatchEvent(new Event("visibilitychange")); };
"""
SOON_AFTER = """
    const key = new KeyboardEvent("keydown", { key: "y", bubbles: true, cancelable: true });
    Object.defineProperty(key, "timeStamp", { value: drawnAt + SETTLE_MS / 2 });
    document.activeElement.dispatchEvent(key);
"""
NAMED = re.compile(r"^Approve with (1,\d\d\d) of 1,230 lines not seen$")


def _states(house: House) -> list[str]:
    return [job.state for job in house.engine.jobs(kinds=["write_file"])]


def _unseen(house: House, job_id: int) -> JsonValue:
    (data,) = [
        event["data"]
        for event in house.engine.events(house.engine.job(job_id).mission_id, job_id=job_id, event="decided")
    ]
    assert isinstance(data, dict)
    return data.get("unseen")


def _hold_two(house: House) -> None:
    writes = [house.job("write_file", rel_path=name, content="x\n") for name in ("a.txt", "b.txt")]
    house.run(house.ask(*writes), house.complete)


# -- before anything was drawn


@pytest.mark.parametrize(
    ("path", "script", "draw"),
    [("/jobs/{job}", WITHOUT_FRAMES, "drawFrames()"), ("/inbox", AWAY, "comeBack()")],
    ids=["no frame", "a hidden tab"],
)
def test_a_key_that_came_before_the_first_frame_decides_nothing(
    window: Window, path: str, script: str, draw: str
) -> None:
    _hold_two(window.house)
    first, second = (job.id for job in window.house.engine.jobs(states=["held"]))
    page = window.open("/")
    page.add_init_script(script)
    page.goto(page.url + path.format(job=first).lstrip("/"))
    until(page, "performance.now() > 2 * SETTLE_MS")
    page.keyboard.press("j")
    page.wait_for_url(f"**/jobs/{second}" if path != "/inbox" else "**/inbox")
    for _ in range(2):
        page.keyboard.press("y")
    until(page, "performance.now() > 2 * SETTLE_MS")
    page.keyboard.press("y")
    assert _states(window.house) == ["held", "held"]
    page.evaluate(draw)
    until(page, "drawnAt < performance.now()")
    page.evaluate(f"() => {{ {SOON_AFTER} }}")
    settled(page)
    assert _states(window.house) == ["held", "held"]
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    assert [window.house.engine.job(job).state for job in (first, second)] == (
        ["held", "queued"] if path != "/inbox" else ["queued", "held"]
    )


# -- something else


def test_what_stands_there_is_not_exchanged_for_what_would_be_approved_now(window: Window) -> None:
    house = window.house
    job_id = house.hold("a.md", "# b\n")
    page = window.open(f"/jobs/{job_id}")
    page.locator("#live").wait_for()
    page.get_by_label("Reason to reject").fill("so far")
    (house.root / "a.md").write_text("one\n" * 9)
    house.engine.say(1, "any event", job_id=job_id)
    notice = page.locator("#differs:focus")
    notice.wait_for()
    assert "This has changed" in notice.inner_text()
    assert _faults(page) == []
    assert page.locator(".diff .del").all_inner_texts() == ["-# a"], "it stays"
    assert page.locator("tr", has_text="any event").count() == 0, "nothing moves"
    for press in ("y", "e", "n", "j"):
        page.keyboard.press(press)
    settled(page)
    page.locator("#approve button").dispatch_event("click")
    page.locator("#reject button").focus()
    page.keyboard.press("Enter")
    page.locator("#differs:focus").wait_for()
    assert house.engine.job(job_id).state == "held"
    page.get_by_role("button", name="Show it").click()
    page.locator("#decide:focus").wait_for()
    assert page.locator(".diff .del").count() == 9
    page.locator("tr", has_text="any event").wait_for()
    assert notice.is_hidden()
    assert page.get_by_label("Reason to reject").input_value() == "so far"
    see_all(page)
    page.locator("#approve button").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()


def test_what_is_changed_back_can_be_decided_on_again(window: Window) -> None:
    house = window.house
    job_id = house.hold("a.md", "# b\n")
    page = window.open(f"/jobs/{job_id}")
    page.locator("#live").wait_for()
    for content in ("other\n", "# a\n"):
        (house.root / "a.md").write_text(content)
        house.engine.say(1, content, job_id=job_id)
        page.locator("#differs").wait_for(state="visible" if content == "other\n" else "hidden")
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()


@pytest.mark.parametrize("path", ["/inbox", pytest.param("/inbox/all", marks=pytest.mark.proof)])
def test_a_list_says_which_job_has_changed_and_does_not_decide_it(window: Window, path: str) -> None:
    house = window.house
    first, second = house.hold("a.md", "# b\n"), house.hold("new.md", "new\n")
    page = window.open(path)
    page.locator("#live").wait_for()
    (house.root / "a.md").write_text("somebody else's\n")
    house.engine.say(1, "any event")
    page.locator("#differs:focus").wait_for()
    assert f"Job {first} has changed" in page.locator("#differs").inner_text()
    assert page.locator(f"#diff-{first} .del").all_inner_texts() == ["-# a"]
    settled(page)
    for button in page.locator("[data-decides=approve]").all():
        if button.get_attribute("aria-disabled") is not None or path == "/inbox/all":
            button.dispatch_event("click")
    assert [house.engine.job(job).state for job in (first, second)] == ["held", "held"]
    page.get_by_role("button", name="Show it").click()
    page.locator(f"#job-{first}:focus").wait_for()
    assert page.locator(f"#diff-{first} .del").all_inner_texts() == ["-somebody else's"]
    page.get_by_role(
        "button", name="Approve 2 jobs" if path == "/inbox/all" else f"Approve job {first}"
    ).click()
    page.wait_for_url("**note=approved*")
    assert house.engine.job(first).state == "queued"


# -- a part of it


@pytest.mark.parametrize(
    ("by", "size"),
    [
        ("y", (1280, 720)),
        pytest.param("click", (390, 844), marks=pytest.mark.proof),
        pytest.param("Enter", (320, 180), marks=pytest.mark.proof),
    ],
)
def test_a_first_press_goes_to_what_was_not_seen_and_a_second_one_names_it(
    window: Window, by: str, size: tuple[int, int]
) -> None:
    job_id = window.house.hold("long.md", LONG)
    page = window.open(f"/jobs/{job_id}", viewport={"width": size[0], "height": size[1]})

    def press() -> None:
        settled(page)
        if by == "y":
            page.keyboard.press("y")
        elif by == "click":
            page.locator("#approve [data-decides]").click()
        else:
            page.locator("#approve [data-decides]").press("Enter")

    press()
    named = page.get_by_role("button", name=NAMED)
    named.wait_for()
    if by == "click":
        assert _faults(page) == []
    assert window.house.engine.job(job_id).state == "held"
    until(page, "drawnAt < performance.now()")
    assert page.evaluate("seenOf([...rows.values()].flat()[0])") == 1
    press()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    unseen = _unseen(window.house, job_id)
    assert isinstance(unseen, dict)
    lines, of = unseen["lines"], unseen["of"]
    assert isinstance(lines, int)
    assert (1000 < lines < 1230, of) == (True, 1230)
    page.get_by_text(f"{lines:,} of 1,230 lines").wait_for()


@pytest.mark.parametrize(
    ("content", "size"),
    [("line\n" * 90, (1280, 720)), pytest.param("word " * 9000, (320, 180), marks=pytest.mark.proof)],
)
def test_what_was_scrolled_through_is_approved_at_once(
    window: Window, content: str, size: tuple[int, int]
) -> None:
    job_id = window.house.hold("x.md", content)
    page = window.open(f"/jobs/{job_id}", viewport={"width": size[0], "height": size[1]})
    settled(page)
    page.keyboard.press("y")
    button = page.locator("#approve [data-decides]")
    button.get_by_text("not seen").wait_for()
    see_all(page)
    assert button.inner_text() == "Approve"
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    assert _unseen(window.house, job_id) is None


@pytest.mark.alone
def test_a_double_click_and_a_key_that_is_held_down_are_one_press(window: Window) -> None:
    job_id = window.house.hold("long.md", LONG)
    page = window.open(f"/jobs/{job_id}")
    settled(page)
    button = page.locator("#approve [data-decides]")
    button.dblclick()
    button.get_by_text("not seen").wait_for()
    settled(page)
    button.focus()
    page.reload()
    settled(page)
    button.focus()
    page.keyboard.down("Enter")
    button.get_by_text("not seen").wait_for()
    settled(page)
    for _ in range(5):
        page.keyboard.down("Enter")  # it is still held down
    assert page.evaluate("[press.isRepeat, armed !== null]") == [True, True]
    assert window.house.engine.job(job_id).state == "held"


@pytest.mark.parametrize("path", ["/inbox", pytest.param("/inbox/all", marks=pytest.mark.proof)])
def test_several_are_approved_with_how_much_of_each_was_not_seen(window: Window, path: str) -> None:
    house = window.house
    writes = [
        house.job("write_file", rel_path=f"{n}.md", content=content)
        for n, content in enumerate(("x\n", "line\n" * 110))
    ]
    house.run(house.ask(*writes), house.complete)
    short, long = (job.id for job in house.engine.jobs(states=["held"]))
    page = window.open(path)
    settled(page)
    if path == "/inbox":
        page.get_by_label("All 2 on this page").check()
    approve = page.locator("[data-decides=approve][name=decision]")
    approve.click()
    page.get_by_role("button", name=re.compile("with .* of 111 lines not seen")).click()
    page.wait_for_url("**note=approved*")
    assert _unseen(house, short) is None
    unseen = _unseen(house, long)
    assert isinstance(unseen, dict)
    assert unseen["of"] == 110


def test_params_below_the_button_are_what_is_approved_where_there_is_no_diff(window: Window) -> None:
    house = window.house
    house.run(house.ask(house.job("make_directory", rel_path="new")), house.complete)
    (job,) = house.engine.jobs(states=["held"])
    page = window.open(f"/jobs/{job.id}")
    assert page.evaluate("[...rows.values()].flat().length") > 0
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
