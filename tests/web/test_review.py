"""A held job is reviewed file by file: the list of its files, their boxes, and what stays in view."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Literal

import pytest
from tests.features.stages.web.test_staging import DONE, LINES, changed, held_long_merge, texts, ticked
from tests.tables import table
from tests.walls import NEEDS_OVERLAY
from tests.web.test_browser import _faults, chromium, see_all, settled, until, window

from lcp_engine.api.inbox import ViewedFiles, mark_of
from lcp_engine.api.user import user_name
from lcp_engine.core.json_values import object_in
from lcp_engine.core.safe_text import one_line
from lcp_engine.web.diff_view import anchor_of
from lcp_engine.web.images import image_in

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pydantic import JsonValue
    from tests.web.conftest import House
    from tests.web.test_browser import Window

__all__ = ["chromium", "window"]

ODD_NAMES = (
    "<b>bold</b>.html",
    "a\u202egnp.exe",
    "x\u00a0y.txt",
    "/".join(["long" * 50] * 19),
    "&amp;.txt",
    "plain.txt",
)


def held_files(house: House, *paths: str, content: str = "one\ntwo\n") -> int:
    """The merge of a mission that wrote these files in its stage."""
    jobs = [house.job("write_file", rel_path=path, content=content) for path in paths]
    house.run(house.ask(*jobs), DONE, stage=True, limits={"max_followups": len(paths)})
    return house.engine.jobs(kinds=["merge"], states=["held"])[-1].id


def test_each_file_of_the_list_leads_to_its_diff_and_says_what_becomes_of_it(house: House) -> None:
    (house.root / "gone.txt").write_text("one\ntwo\n")
    jobs = [
        house.job("write_file", rel_path="new.txt", content="x\n"),
        house.job("delete_file", rel_path="gone.txt"),
    ]
    (house.root / "a.md").write_text("".join(f"{n}\n" for n in range(30)))
    jobs.append(
        house.job("write_file", rel_path="a.md", content="first\n" + "".join(f"{n}\n" for n in range(29)))
    )
    house.run(house.ask(*jobs), DONE, stage=True)
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    text = house.get(f"/jobs/{merge.id}").text
    (listed,) = re.findall(r'<nav class="file-list".*?</nav>', text, re.DOTALL)
    words = [" ".join(re.sub("<[^>]+>", " ", item).split()) for item in re.findall("<li>.*?</li>", listed)]
    words = [word.replace("\u2212", "-") for word in words]
    assert sorted(words) == ["a.md changed +1 -1 2 hunks", "gone.txt removed +0 -2", "new.txt new +1 -0"]
    for anchor in re.findall(r'href="#([^"]+)"', listed):
        assert text.count(f'id="{anchor}"') == 1


def test_a_job_with_one_file_has_no_list(house: House) -> None:
    text = house.get(f"/jobs/{house.hold('x.md')}").text
    assert 'class="reviewed"' in text
    assert "file-list" not in text
    assert 'name="take"' not in text


@NEEDS_OVERLAY
def test_what_a_command_changed_is_reviewed_file_by_file_and_taken_as_one(house: House) -> None:
    """Also while lines around its hunks are asked for, and once it is applied."""
    old = [f"{number}\n" for number in range(100)]
    for number in range(3):
        (house.root / f"{number}.txt").write_text("".join(old))
    script = "sed -i s/^50$/fifty/ 0.txt 1.txt; rm 2.txt; echo new > 3.txt"
    spec: dict[str, JsonValue] = {
        "commands": {"allow": [["sh", "..."]], "changes": "hold"},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
    }
    house.run(house.ask(house.job("run_command", command=["sh", "-c", script])), DONE, **spec)
    (held,) = house.engine.jobs(kinds=["apply"], states=["held"])
    page = f"/jobs/{held.id}"
    text = house.get(page).text
    assert text.count('class="reviewed"') == 4
    assert '<span id="viewed-count">0</span>' in text
    assert 'name="take"' not in text
    files = house.engine.look(held.id).files
    house.post(f"{page}/viewed", {"viewed": mark_of(files[0]), "seen": "yes"})
    assert '<span id="viewed-count">1</span>' in house.get(page).text
    around = f"{page}/diff?file={mark_of(files[0])}&gap=up.0.0.0"
    assert "Show 27 lines 27 28 29" in house.get(around).words
    house.approve(held.id)
    house.work()
    assert house.engine.job(held.id).state == "succeeded"
    assert "Show 27 lines 27 28 29" in house.get(around).words


def test_boxes_stand_at_their_files_and_hunks(house: House) -> None:
    text = house.get(f"/jobs/{held_long_merge(house)}").text
    assert re.search(r'name="take" value="long.txt"[^>]*form="approve".*?</label><details class="diff"', text)
    assert (
        len(re.findall(r'<span class="hunk"><label[^>]*><input [^>]*name="hunk"[^>]*form="approve"', text))
        == 3
    )


def test_files_of_any_name_are_taken_and_left(house: House) -> None:
    merge = held_files(house, *ODD_NAMES)
    page = house.get(f"/jobs/{merge}")
    assert not {"<b>", "\u202e"} & {*re.findall("<b>|\u202e", page.text)}
    boxes = [unescape(value) for value in re.findall(r'name="take" value="([^"]*)" checked', page.text)]
    assert len(boxes) == len(ODD_NAMES)
    form = {**house.shown(f"/jobs/{merge}"), "offered": "files", "take": boxes[1:]}
    assert house.post(f"/jobs/{merge}/approve", form).status == 200
    left = {*ODD_NAMES} - {*map(str, house.engine.job(merge).params["only"])}  # type: ignore[arg-type]  # a list
    house.work()
    assert {path for path in ODD_NAMES if not (house.root / path).exists()} == left
    assert len(left) == 1


def test_a_file_of_any_name_is_edited(house: House) -> None:
    merge = held_files(house, ODD_NAMES[1])
    opened = house.post(f"/jobs/{merge}/edit", {**house.shown(f"/jobs/{merge}"), "decision": "open"})
    (value,) = re.findall(r'name="edit_path" value="([^"]*)"', opened.text)
    typed = {"edit_path": [value], "edit_text": ["mine\r\n"]}
    seen = house.post(
        f"/jobs/{merge}/edit", {**house.shown(f"/jobs/{merge}"), **typed, "decision": "preview"}
    )
    assert "+mine" in seen.words


def _is_in_window(page: Page, selector: str) -> bool:
    box = page.locator(selector).bounding_box()
    assert box
    return box["y"] >= 0 and box["y"] + box["height"] <= 720


def test_list_head_and_decision_stay_in_view_and_cover_nothing_that_counts(window: Window) -> None:
    house = window.house
    merge = held_files(house, "a.txt", "b.txt", content="".join(f"line {n}\n" for n in range(200)))
    page = window.open(f"/jobs/{merge}")
    page.locator(".file-list a", has_text="b.txt").click()
    until(page, "scrollY > 1000")
    page.evaluate("scrollBy(0, 1500)")
    head = page.locator(".reviewed", has_text="b.txt").locator(".diff > summary").bounding_box()
    assert head
    assert head["y"] == 0
    assert _is_in_window(page, ".file-list")
    assert _is_in_window(page, ".verdict")
    assert _faults(page) == []
    for covering in (".reviewed:last-child summary", ".verdict"):
        covered = page.evaluate(
            """(covering) => {
                look();
                const { top, bottom } = document.querySelector(covering).getBoundingClientRect();
                const isBehind = ({ y, height }) => height && y > top && y + height < bottom;
                const all = [...rows.values()].flat();
                return all.filter(({ element }) => isBehind(element.getBoundingClientRect())).map((row) => seenOf(row));
            }""",
            covering,
        )
        assert covered, "there are lines behind it"
        assert set(covered) == {0}


def test_two_hunks_are_left_by_the_keyboard_alone(window: Window) -> None:
    house = window.house
    merge = held_long_merge(house)
    page = window.open(f"/jobs/{merge}")
    see_all(page)
    for hunk in ("hunk 1", "hunk 3"):
        page.get_by_role("checkbox", name=hunk).press("Space")
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    house.work()
    assert texts(house) == (changed(15), "new\n")


def test_lines_that_differ_in_white_space_alone_count_as_not_seen(window: Window) -> None:
    house = window.house
    (house.root / "long.txt").write_text("".join(LINES))
    text = changed(1).replace("line 15\n", "  line 15\n").replace("line 30\n", "line  30\n")
    house.run(house.ask(house.job("write_file", rel_path="long.txt", content=text)), DONE, stage=True)
    merge = house.engine.jobs(kinds=["merge"], states=["held"])[-1].id
    page = window.open(f"/jobs/{merge}")
    page.get_by_role("button", name="Hide white space changes").click()
    page.get_by_text("8 lines are left out").first.wait_for()
    assert page.get_by_text("line 15").count() == 0
    settled(page)
    assert _faults(page) == []
    page.get_by_role("checkbox", name="hunk 2").press("Space")
    settled(page)
    page.locator("#approve [data-decides]").click()
    page.get_by_role("button", name=re.compile("Approve with 1[0-9] of .* lines not seen")).wait_for()
    settled(page)
    page.locator("#approve [data-decides]").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    house.work()
    assert (house.root / "long.txt").read_text() == text.replace("  line 15", "line 15")


def test_some_files_are_taken_without_javascript(window: Window) -> None:
    house = window.house
    page = window.open(f"/jobs/{held_files(house, 'a.txt', 'b.txt')}", java_script_enabled=False)
    page.get_by_role("checkbox", name="take b.txt").uncheck()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("button", name=re.compile("Approve 1 file")).or_(
        page.get_by_role("button", name=re.compile("Approve 2 files"))
    ).click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    house.work()
    assert [(house.root / name).exists() for name in ("a.txt", "b.txt")] == [True, False]


# -- what was viewed


def _marks(house: House, merge: int) -> list[tuple[str, str]]:
    """The marks of the files of a review, each with what a press on its button would do."""
    buttons = re.findall(
        r'<button form="viewed" name="(\w+)" value="(\w+)"', house.get(f"/jobs/{merge}").text
    )
    return [(value, name) for name, value in buttons]


def _folded(house: House, merge: int) -> list[bool]:
    files = re.findall(r'<details class="diff" id="file-\w+"( open)?', house.get(f"/jobs/{merge}").text)
    return [not is_open for is_open in files]


def test_a_viewed_file_is_folded_and_counted_until_its_mark_is_taken_back(house: House) -> None:
    merge = held_files(house, "a.txt", "b.txt", "c.txt")
    marks = _marks(house, merge)
    assert [name for _, name in marks] == ["viewed"] * 3
    house.post(f"/jobs/{merge}/viewed", {"viewed": marks[1][0]})
    assert _folded(house, merge) == [False, True, False]
    assert "1 viewed" in house.get(f"/jobs/{merge}").words
    assert _marks(house, merge)[1] == (marks[1][0], "unviewed")
    house.post(f"/jobs/{merge}/viewed", {"unviewed": marks[1][0]})
    assert _folded(house, merge) == [False] * 3
    assert "0 viewed" in house.get(f"/jobs/{merge}").words


def test_a_file_that_has_changed_is_no_longer_viewed_and_the_others_are(house: House) -> None:
    merge = held_files(house, "a.txt", "b.txt")
    for mark, _ in _marks(house, merge):
        house.post(f"/jobs/{merge}/viewed", {"viewed": mark, "seen": "yes"})
    (house.root / "a.txt").write_text("someone else's\n")
    assert _folded(house, merge) == [False, True]
    (house.root / "a.txt").unlink()
    assert _folded(house, merge) == [True, True], "it is what was viewed again"


def test_marks_are_kept_by_person_and_for_later_jobs_of_the_mission(house: House) -> None:
    merge = held_files(house, "a.txt", "b.txt")
    mission_id, mark = house.engine.job(merge).mission_id, _marks(house, merge)[0][0]
    files = ViewedFiles(house.engine.instance, mission_id, "somebody else")
    files.add(mark, was_seen=True)
    assert _folded(house, merge) == [False, False]
    house.post(f"/jobs/{merge}/viewed", {"viewed": mark})
    house.post(f"/jobs/{merge}/viewed", {"viewed": mark, "seen": "yes"})
    assert ViewedFiles(house.engine.instance, mission_id, user_name()).marks() == {mark: True}
    files.remove(mark)
    assert files.marks() == {}
    assert house.post(f"/jobs/{merge}/viewed", {"viewed": "no mark"}).status == 422


def test_two_diffs_never_have_the_same_mark(house: House) -> None:
    looks = [
        house.engine.look(held_files(house, *paths, content=content))
        for paths, content in ((("a.txt",), "x\n"), (("b.txt",), "x\n"), (("c.txt",), "y\n"))
    ]
    diffs = [look.files[0] for look in looks]
    diffs += [replace(diffs[0], note="its mode is 0755"), replace(diffs[0], lines=(*diffs[0].lines, "+"))]
    assert len({mark_of(diff) for diff in diffs}) == len(diffs)


def test_a_review_goes_on_where_it_was_when_the_page_is_opened_again(window: Window) -> None:
    house = window.house
    merge = held_files(house, "a.txt", "b.txt", "c.txt", content="".join(f"line {n}\n" for n in range(100)))
    page = window.open(f"/jobs/{merge}")
    see_all(page)
    page.evaluate("scrollTo(0, 0)")
    for count in ("1", "2"):
        page.keyboard.press("v")
        page.locator("#viewed-count", has_text=count).wait_for()
    assert page.locator("details.diff[open]").count() == 1
    assert page.locator(".file-list .viewed").count() == 2
    assert _faults(page) == []
    page.keyboard.press("x")
    page.reload()
    assert page.locator("details.diff[open]").count() == 1
    assert page.get_by_role("checkbox", name="take c.txt").is_checked() is False, "ticks are kept as well"
    settled(page)
    page.keyboard.press("y")
    page.get_by_role("button", name=re.compile(r"Approve with \d\d of 300 lines not seen")).wait_for()
    see_all(page)
    settled(page)
    page.keyboard.press("y")
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    assert house.engine.job(merge).params == {"only": ["a.txt", "b.txt"]}


def test_what_was_marked_without_being_on_the_screen_is_said_before_it_is_approved(window: Window) -> None:
    house = window.house
    merge = held_files(house, "a.txt", "b.txt", content="".join(f"line {n}\n" for n in range(100)))
    page = window.open(f"/jobs/{merge}")
    for _ in range(2):
        with page.expect_response("**/viewed?*"):
            page.locator("[form=viewed][aria-pressed=false]").first.click()
    page.locator("#viewed-count", has_text="2").wait_for()
    settled(page)
    page.locator("#approve [data-decides]").click()
    page.get_by_role("button", name=re.compile(r"Approve with 1\d\d of 200 lines not seen")).wait_for()
    assert house.engine.job(merge).state == "held"


def test_files_are_marked_without_javascript(window: Window) -> None:
    merge = held_files(window.house, "a.txt", "b.txt")
    page = window.open(f"/jobs/{merge}", java_script_enabled=False)
    page.get_by_role("button", name="Viewed a.txt").click()
    page.get_by_text("1 viewed").wait_for()
    anchor = page.locator(".file-list a", has_text="b.txt").get_attribute("href")
    assert page.url.endswith(f"/jobs/{merge}{anchor}")
    assert page.locator("details.diff[open]").count() == 1


# -- parts of large reviews


def held_large(house: House) -> int:
    """A merge of which a page has the first file alone: then one with three hunks, and small ones."""
    (house.root / "long.txt").write_text("".join(LINES))
    texts = {
        "first.txt": "".join(f"line {n}\n" for n in range(990)),
        "long.txt": changed(1, 15, 30),
        **{f"small{n}.txt": f"{n}\n" for n in range(20)},
    }
    jobs = [house.job("write_file", rel_path=path, content=text) for path, text in texts.items()]
    house.run(house.ask(*jobs), DONE, stage=True, limits={"max_followups": len(texts)})
    return house.engine.jobs(kinds=["merge"], states=["held"])[-1].id


def _links(text: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<p class="rest".*?<a href="([^"]+)"', text)]


def test_a_page_has_what_fits_of_a_review_and_leads_to_each_other_file(house: House) -> None:
    merge = held_large(house)
    text = house.get(f"/jobs/{merge}").text
    assert text.count('<details class="diff" id="file-') == 1
    assert len(_links(text)) == 21
    assert len(re.findall(r'name="take" value="[^"]*" checked', text)) == 22, "each file has its box"
    assert "file-list" in text
    assert {f"#{anchor}" for anchor in re.findall(r'id="(file-\w+)"', text)} == {
        *re.findall(r'href="(#file-\w+)"', text)
    }
    for link in _links(text):
        assert house.get(link).status == house.get(f"{link}&part").status == 200
    assert "<mark>LINE</mark> 15<" in house.get(_links(text)[0]).text
    assert 'name="hunk"' not in house.get(_links(text)[0]).text, "there is no form on that page"
    assert house.get(f"{_links(text)[0]}&part").text.count('name="hunk"') == 3


def test_hunks_that_the_page_did_not_have_are_taken_with_their_file(house: House) -> None:
    merge = held_large(house)
    text = house.get(f"/jobs/{merge}").text
    form = {
        **ticked(house, merge),
        "undrawn": [unescape(re.findall(r'name="undrawn" value="([^"]+)"', text)[0])],
    }
    assert (form["hunk"], form["undrawn"]) == ([], ["0 long.txt"])
    taken = [one for one in form["take"] if one != "small3.txt"]
    assert house.post(f"/jobs/{merge}/approve", {**form, "take": taken}).status == 200
    house.work()
    assert (house.root / "long.txt").read_text() == changed(1, 15, 30)
    assert not (house.root / "small3.txt").exists()


def test_hunks_of_a_fetched_part_are_chosen(house: House) -> None:
    merge = held_large(house)
    part = house.get(f"{_links(house.get(f'/jobs/{merge}').text)[0]}&part").text
    hunks = [unescape(value) for value in re.findall(r'name="hunk" value="([^"]*)" checked', part)]
    assert house.post(f"/jobs/{merge}/approve", {**ticked(house, merge), "hunk": hunks[:2]}).status == 200
    house.work()
    assert (house.root / "long.txt").read_text() == changed(1, 15)


def test_a_part_is_of_what_was_shown_or_nothing(house: House) -> None:
    merge = held_large(house)
    first, second, *_ = _links(house.get(f"/jobs/{merge}").text)
    (house.root / "long.txt").write_text("someone else's\n")
    assert "<mark>LINE</mark> 15<" in house.get(first).text, "it is what the approval is bound to"
    fresh = house.get(f"/jobs/{merge}").text
    assert first not in _links(fresh)
    gone = house.get(first)
    assert (gone.status, "has changed since" in gone.words) == (409, True)
    assert house.get(second).status == 200
    assert house.get(f"/jobs/{merge}/diff?file=no-mark").status == 409


def test_a_fetched_file_can_be_marked_as_viewed(house: House) -> None:
    merge = held_large(house)
    part = house.get(f"{_links(house.get(f'/jobs/{merge}').text)[0]}&part").text
    ((mark, address),) = re.findall(r'name="viewed" value="(\w+)" formaction="([^"]+)"', part)
    assert address == f"/jobs/{merge}/viewed"
    house.post(address, {"viewed": mark})
    assert "1 viewed" in house.get(f"/jobs/{merge}").words


def test_what_was_not_fetched_is_said_before_it_is_approved_and_comes_when_it_is_scrolled_to(
    window: Window,
) -> None:
    house = window.house
    merge = held_large(house)
    page = window.open(f"/jobs/{merge}")
    settled(page)
    page.locator("#approve [data-decides]").click()
    page.get_by_role("button", name=re.compile(r"Approve with [\d,]+ of 1,028 lines not seen")).wait_for()
    page.get_by_role("searchbox", name="Show files").fill("small19")
    assert page.locator(".file-list li:visible").count() == 1
    page.locator(".file-list a", has_text="small19.txt").click()
    page.get_by_text("+19", exact=True).wait_for()
    assert page.locator(".rest").count() > 0
    assert _faults(page) == []
    see_all(page)
    assert page.locator(".rest").count() == 0
    page.get_by_role("checkbox", name="hunk 2").press("Space")
    house.engine.say(house.engine.job(merge).mission_id, "Something new.", job_id=merge)
    until(page, "/\\bsaid\\b/.test(document.getElementById('main').textContent)")
    assert page.locator(".rest").count() == 0, "news leave what was fetched"
    settled(page)
    page.locator("#approve [data-decides]").click()
    page.get_by_text("Approved. A runner will execute it.").wait_for()
    house.work()
    assert (house.root / "long.txt").read_text() == changed(1, 30)
    assert page.locator("#decide").count() == 0


def test_a_search_finds_lines_of_all_files_and_leads_to_each(house: House) -> None:
    merge = held_large(house)
    found = house.get(f"/jobs/{merge}/diff?find=+lInE+15").text
    links = [unescape(link) for link in re.findall(r'<li><a href="([^"]+)"', found)]
    assert [link.rpartition("-")[2] for link in links if anchor_of("long.txt") in link] == ["B15", "L15"]
    assert '<code class="add">+<mark>LINE 15</mark></code>' in found
    for link in links:
        page, _, place = link.partition("#")
        assert f' id="{place}"' in house.get(page).text
    assert (
        "More than 200 lines have line ; the first are listed"
        in house.get(f"/jobs/{merge}/diff?find=line").words
    )
    nothing = house.get(f"/jobs/{merge}/diff?find=%3Cb%3E%E2%80%AE")
    assert "0 lines have <b><U+202E>" in nothing.words
    assert "<b>" not in nothing.text
    assert "find" in house.get(f"/jobs/{merge}/diff?find=+").text


def test_lines_are_found_without_javascript(window: Window) -> None:
    merge = held_large(window.house)
    page = window.open(f"/jobs/{merge}", java_script_enabled=False)
    page.get_by_role("searchbox", name="Find lines").fill("line 980")
    page.get_by_role("button", name="Find").click()
    page.get_by_role("link", name="line 981").click()
    page.locator(".add:target", has_text="+line 980").wait_for()
    page.get_by_role("link", name=f"Back to job {merge}").click()


def test_an_address_of_a_line_opens_and_fetches_its_file(window: Window) -> None:
    house = window.house
    merge = held_large(house)
    page = window.open(f"/jobs/{merge}#{anchor_of('long.txt')}-L15")
    page.locator(".add:target", has_text="+LINE 15").wait_for()
    until(page, "rectOf(first(':target')).top > 0 && rectOf(first(':target')).bottom < innerHeight")
    file = page.locator(".reviewed", has=page.locator(":target"))
    file.locator("[form=viewed]").click()
    file.locator("details.diff:not([open])").wait_for()
    page.evaluate(f"location.hash = '{anchor_of('long.txt')}-B30'")
    page.locator(".del:target", has_text="-line 30").wait_for()
    assert _faults(page) == []


def test_the_number_of_a_line_leads_to_it_without_javascript(window: Window) -> None:
    merge = held_long_merge(window.house)
    page = window.open(f"/jobs/{merge}", java_script_enabled=False)
    page.get_by_text("+LINE 15").click(position={"x": 12, "y": 5})
    page.locator(".add:target", has_text="+LINE 15").wait_for()
    assert page.url.endswith(f"#{anchor_of('long.txt')}-L15")


def test_a_large_review_is_read_without_javascript(window: Window) -> None:
    merge = held_large(window.house)
    page = window.open(f"/jobs/{merge}", java_script_enabled=False)
    page.get_by_role("link", name="18 lines of long.txt").click()
    page.get_by_text("+LINE 15").wait_for()
    page.get_by_role("link", name=f"Back to job {merge}").click()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_role("button", name=re.compile("Approve 22 files, 1,0")).wait_for()


# -- lines that a diff leaves out, and images


def held_far_apart(house: House, count: int = 200) -> tuple[int, list[str]]:
    """A held write that changes lines 100 and 180 of a file with so many lines, and the links of its page to others."""
    lines = [f"line {n}\n" for n in range(1, count + 1)]
    (house.root / "far.txt").write_text("".join(lines))
    lines[99], lines[179] = "LINE 100\n", "LINE 180\n"
    job = house.hold("far.txt", "".join(lines))
    return job, _gaps(house.get(f"/jobs/{job}").text)


def _gaps(text: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<a href="([^"]*gap=[^"]*)"', text)]


def test_lines_around_hunks_are_shown_on_request_until_none_are_left_out(house: House) -> None:
    job, links = held_far_apart(house)
    assert [link.rpartition("=")[2] for link in links] == ["up.0.0.0", "down.1.0.0", "up.1.0.0", "down.2.0.0"]
    first = house.get(f"{links[0]}&part").text
    assert re.findall(r'id="file-[0-9a-f]+-L(\d+)"', first) == [str(n) for n in range(77, 97)]
    assert _gaps(first)[0].endswith("up.0.0.20")
    shown = {*range(97, 104), *range(177, 184)}
    while links:
        text = house.get(f"{links.pop()}&part").text
        shown |= {int(n) for n in re.findall(r'id="file-[0-9a-f]+-L(\d+)"', text)}
        links = [*{link.rpartition("=")[2].split(".")[1]: link for link in [*links, *_gaps(text)]}.values()]
    assert shown == {*range(1, 201)}
    assert "line 90" in house.get(held_far_apart(house)[1][0]).words, "a page of its own"
    assert house.get(f"/jobs/{job}/diff?file={'0' * 32}&gap=up.0.0.0").status == 409


def test_lines_of_a_file_that_has_changed_are_not_shown(house: House) -> None:
    _, links = held_far_apart(house)
    house.get(links[0])
    (house.root / "far.txt").write_text("other\n")
    assert house.get(links[0]).status == 409
    assert house.get(links[0].replace("up.0", "up.7")).status in (404, 409)


def test_lines_that_jobs_may_not_read_are_not_shown(house: House) -> None:
    (house.root / "far.txt").write_text("".join(f"line {n}\n" for n in range(100)))
    content = "".join(f"line {n}\n" for n in range(99)) + "last\n"
    policy: JsonValue = [{"kinds": ["read_file"], "paths": ["far.txt"], "do": "deny"}]
    house.run(house.ask(house.job("write_file", rel_path="far.txt", content=content)), policy=policy)
    (job,) = house.engine.jobs(states=["held"])
    (link,) = _gaps(house.get(f"/jobs/{job.id}").text)[:1]
    refused = house.get(link)
    assert (refused.status, "is not shown beyond its diff" in refused.words) == (422, True)


def test_what_a_job_has_changed_shows_its_other_lines_as_well(house: House) -> None:
    job, _ = held_far_apart(house)
    house.approve(job)
    house.work()
    links = _gaps(house.get(f"/jobs/{job}").text)
    assert "line 90" in house.get(links[0]).words


def test_lines_between_hunks_appear_in_place_and_do_not_count_as_unseen(window: Window) -> None:
    job, _ = held_far_apart(window.house)
    page = window.open(f"/jobs/{job}")
    counted = page.evaluate("allRows().length")
    page.get_by_role("link", name="Show 20 lines").first.press("Enter")
    page.locator(".context", has_text="line 77").wait_for()
    assert page.evaluate("allRows().length") == counted
    assert _faults(page) == []


def test_images_are_shown_with_their_sizes_and_sent_as_nothing_else(house: House) -> None:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes((0, 0, 0, 3, 0, 0, 0, 2)) + bytes(20)
    for name, content in (("a.png", png), ("b.png", b"<script>\0</script>")):
        (house.root / name).write_bytes(content)
    house.run(house.ask(*(house.job("delete_file", rel_path=name) for name in ("a.png", "b.png"))))
    links = []
    for job in house.engine.jobs(states=["held"]):
        (link,) = re.findall(r'href="(/jobs/\d+/images[^"]*)"', house.get(f"/jobs/{job.id}").text)
        links.append(house.get(f"{link}&part").text)
    assert "3 \u00d7 2 pixels, 44 bytes" in links[0]
    assert "no image that a browser shows" in links[1]
    assert "<img" not in links[1]
    (address,) = re.findall(r'<img src="([^"]*)" width="3" height="2"', links[0])
    answer = house.browser.get(unescape(address))
    assert (answer.content, answer.headers["content-type"]) == (png, "image/png")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "attachment"
    assert house.get(unescape(address)[:-1] + "x").status == 409


@table(
    ("data", "found"),
    [
        (b"GIF89a\x05\0\x04\0", ("image/gif", 5, 4)),
        (b"GIF89a\1\0\1\0\x80\0\0......!\xff\2ab\0,\1\0\0\0\x04\0\x04\0", ("image/gif", 5, 4)),
        (b"GIF89a\x05\0\x04\0\0\0\0" + b"!\xff\0" * 20_000, None),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x04\0\0\x03\0\0", ("image/webp", 5, 4)),
        (b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f\x04\xc0\0\0", ("image/webp", 5, 4)),
        (b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x05\0\x04\0", ("image/webp", 5, 4)),
        (b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x11\x08\0\x04\0\x05", ("image/jpeg", 5, 4)),
        (b"\0\0\0\x1cftypavif" + bytes(8) + b"ispe\0\0\0\0\0\0\0\x05\0\0\0\x04", ("image/avif", 5, 4)),
        (b"\0\0\0\x1cftypavif" + bytes(70_000) + b"ispe\0\0\0\0\0\0\0\x05\0\0\0\x04", ("image/avif", 5, 4)),
        (b"\0\0\0\x1cftypavif" + b"ispe\0\0\0\0\0\0\0\x05\0\0\0\x04" * 20_000, None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", None),
        (b"\xff\xd8\xff\xe0\0", None),
        (b"\xff\xd8\xff\xe0\0\0" * 3, None),
        (b"\xff\xd8\xff\0\0\x04ab\xff\xc0\0\x11\x08\0\x04\0\x05", None),
        (b"\xff\xd8" + b"\xff" * 20_000 + b"\xc0\0\x11\x08\0\x04\0\x05", None),
        (b"GIF89a\0\0\0\0", None),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', None),
        (b"", None),
    ],
)
def test_an_image_is_what_its_first_bytes_say(data: bytes, found: tuple[str, int, int] | None) -> None:
    image = image_in(data)
    assert (None if image is None else (image.media_type, image.width, image.height)) == found


# -- comments, and some now, the rest later


def held_with_more(house: House, *later: JsonValue) -> int:
    """Like `held_long_merge`, of a mission whose planner replies to what a person says."""
    (house.root / "long.txt").write_text("".join(LINES))
    jobs = [
        house.job("write_file", rel_path="long.txt", content=changed(1, 15, 30)),
        house.job("write_file", rel_path="n.txt", content="new\n"),
    ]
    house.run(house.ask(*jobs), DONE, *later, stage=True)
    return house.engine.jobs(kinds=["merge"], states=["held"])[-1].id


def _said(house: House, merge: int) -> list[JsonValue]:
    events = house.engine.events(house.engine.job(merge).mission_id, event="said")
    return [object_in(event["data"]).get("text") for event in events]


def _comments(house: House, merge: int) -> list[str]:
    return re.findall(r'<textarea name="(comment\.[^"]+)" form="approve"', house.get(f"/jobs/{merge}").text)


def test_some_hunks_are_approved_and_the_rest_goes_back_with_comments(house: House) -> None:
    again = house.ask(house.job("write_file", rel_path="long.txt", content=changed(1, 7, 30)))
    merge = held_with_more(house, again, DONE)
    comments = _comments(house, merge)
    assert len(comments) == 4
    form = ticked(house, merge)
    form["hunk"] = [form["hunk"][0], form["hunk"][2]]
    answer = house.post(
        f"/jobs/{merge}/approve",
        {
            **form,
            "rest": "back",
            "back_words": "Nearly.",
            comments[1]: "Line 7 instead.",
            comments[3]: "Why?",
        },
    )
    assert "The planner reads your words about the rest" in answer.words
    assert _said(house, merge) == [
        "Nearly.\nlong.txt, from line 12: Line 7 instead.\nn.txt, from line 1: Why?"
    ]
    house.work()
    assert texts(house) == (changed(1, 30), "new\n")
    later = house.engine.jobs(kinds=["merge"], states=["held"])[-1].id
    assert later != merge
    assert "1 \u22121" in house.get(f"/jobs/{later}").words
    assert house.approve(later).status == 200
    house.work()
    assert texts(house) == (changed(1, 7, 30), "new\n")


def test_the_rest_does_not_go_back_without_words(house: House) -> None:
    merge = held_with_more(house)
    refused = house.post(
        f"/jobs/{merge}/approve", {**ticked(house, merge), "rest": "back", "back_words": " "}
    )
    assert (refused.status, "say what is to become of the rest" in refused.words) == (422, True)
    assert house.engine.job(merge).state == "held"


def test_comments_are_the_words_of_a_rejection_or_of_a_message_that_decides_nothing(house: House) -> None:
    merge = held_with_more(house, DONE, DONE)
    comment = {_comments(house, merge)[0]: "Not this."}
    assert "Sent." in house.post(f"/jobs/{merge}/say", comment).words
    assert house.engine.job(merge).state == "held"
    assert _said(house, merge) == ["long.txt, from line 1: Not this."]
    assert house.post(f"/jobs/{merge}/reject", {}).status == 422
    assert "Rejected." in house.post(f"/jobs/{merge}/reject", comment).words
    assert "long.txt, from line 1: Not this." in str(house.engine.job(merge).reason)
    assert house.post(f"/jobs/{merge}/say", {"comment.file-0.x": "?"}).status in (409, 422)


def test_comments_on_files_of_any_name_are_sent_each_with_its_own(house: House) -> None:
    merge = held_files(house, *ODD_NAMES, "a<U+202E>gnp.exe")
    comments = [unescape(name) for name in _comments(house, merge)]
    assert len({*comments}) == len(ODD_NAMES) + 1
    assert "Sent." in house.post(f"/jobs/{merge}/say", {name: name for name in comments}).words
    (said,) = _said(house, merge)
    assert isinstance(said, str)
    assert len(said.splitlines()) == len(comments)
    for name in ODD_NAMES:
        assert f"{one_line(name)}, from line 1: " in said


def test_a_review_with_comments_is_sent_by_the_keyboard(window: Window) -> None:
    house = window.house
    merge = held_with_more(house, DONE)
    page = window.open(f"/jobs/{merge}")
    see_all(page)
    page.locator(".comment summary").nth(1).press("Enter")
    page.get_by_label("comment on long.txt from line 12").fill("Line 7 instead.")
    page.reload()
    assert page.get_by_label("comment on long.txt from line 12").input_value() == "Line 7 instead."
    see_all(page)
    page.get_by_role("checkbox", name="hunk 2").press("Space")
    page.locator("#back summary").press("Enter")
    assert _faults(page) == []
    settled(page)
    page.get_by_role("button", name="Approve these, send the rest back").press("Enter")
    page.get_by_text("The planner reads your words about the rest once it is merged.").wait_for()
    house.work()
    assert texts(house) == (changed(1, 30), "new\n")


def test_a_click_on_the_number_of_a_line_begins_a_comment_on_it(window: Window) -> None:
    house = window.house
    merge = held_with_more(house, DONE)
    page = window.open(f"/jobs/{merge}")
    page.get_by_text("+LINE 15").click(position={"x": 100, "y": 5})
    assert page.locator(".comment[open]").count() == 0, "that was its text"
    for text, words in (("+LINE 15", "Why?"), ("-line 15", "It was good.")):
        page.get_by_text(text).click(position={"x": 12, "y": 5})
        page.keyboard.type(words)
    page.reload()
    fields = [page.get_by_label(f"comment on long.txt from line {place}") for place in ("L15", "B15")]
    assert [field.input_value() for field in fields] == ["Why?", "It was good."]
    assert page.evaluate("document.querySelector('.add + .comment [name^=\"comment.L15.\"]') !== null")
    house.engine.say(house.engine.job(merge).mission_id, "Something is new.", job_id=merge)
    page.get_by_text("Something is new.").wait_for(state="attached")
    assert [field.input_value() for field in fields] == ["Why?", "It was good."]
    page.locator(".comment summary").nth(1).press("Enter")
    page.keyboard.type("All of it.")
    page.locator("#back summary").press("Enter")
    assert _faults(page) == []
    settled(page)
    page.get_by_role("button", name="Only send the words").press("Enter")
    page.get_by_text("Sent.").wait_for()
    sent = {
        "long.txt, from line 12: All of it.",
        "long.txt, line 15: Why?",
        "long.txt, removed line 15: It was good.",
    }
    assert {*str(_said(house, merge)[-1]).splitlines()} == sent


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_coloured_code_is_readable_in_both_schemes(window: Window, scheme: Literal["light", "dark"]) -> None:
    code = '@cached\ndef f(x):  # first\n    """Words."""\n    return "a" + {} * x\n'
    (window.house.root / "code.py").write_text(code.format(1) * 3)
    job = window.house.hold("code.py", code.format(23).replace("first", "later") * 3)
    page = window.open(f"/jobs/{job}", color_scheme=scheme)
    assert page.locator(".code i").count() > 20
    assert page.locator(".code mark i").count() > 0
    settled(page)
    assert _faults(page) == []
