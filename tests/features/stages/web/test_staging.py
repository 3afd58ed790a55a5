"""The page shows a merge with all its files, and takes all or some of them."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue
from tests.walls import NEEDS_OVERLAY

from lcp_engine.features.stages import merge_view

if TYPE_CHECKING:
    from tests.web.conftest import House

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}


def held_merge(house: House, count: int) -> int:
    """The merge of a mission that wrote so many files in its stage."""
    jobs = [
        house.job("write_file", rel_path=f"out/{number}.txt", content=f"text {number}\n")
        for number in range(count)
    ]
    house.run(house.ask(*jobs), DONE, stage=True, limits={"max_followups": count})
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    return merge.id


def written(house: House) -> list[str]:
    return sorted(path.name for path in (house.root / "out").glob("*"))


def test_a_merge_is_shown_whole_and_approved(house: House) -> None:
    merge = held_merge(house, 3)
    text = house.get(f"/jobs/{merge}").words
    assert "for job 3, write_file: Look around." in text
    assert all(f"+text {number}" in text for number in range(3))
    assert house.approve(merge).status == 200
    house.work()
    assert written(house) == ["0.txt", "1.txt", "2.txt"]


def test_some_files_of_a_merge_are_taken(house: House) -> None:
    merge = held_merge(house, 3)
    offered = [f"out/{number}.txt" for number in range(3)]
    form = {**house.shown(f"/jobs/{merge}"), "offered": "files"}
    refused = house.post(f"/jobs/{merge}/approve", {**form, "take": []})
    assert "no file is chosen" in refused.words
    assert house.post(f"/jobs/{merge}/approve", {**form, "take": offered[:2]}).status == 200
    house.work()
    assert written(house) == ["0.txt", "1.txt"]


def test_a_conflict_is_shown_and_nothing_is_written(house: House) -> None:
    merge = held_merge(house, 2)
    (house.root / "out").mkdir()
    (house.root / "out" / "0.txt").write_text("mine\n")
    assert (
        "CONFLICT: it was created in the root since the stage was made" in house.get(f"/jobs/{merge}").words
    )
    house.approve(merge)
    house.work()
    assert written(house) == ["0.txt"]
    assert "not merged" in house.get(f"/jobs/{merge}").words


@NEEDS_OVERLAY
def test_what_a_command_changed_is_shown_whole_and_approved_without_boxes(house: House) -> None:
    command = ["sh", "-c", "mkdir out; echo new > out/new.txt"]
    house.run(
        house.ask(house.job("run_command", command=[*command])),
        DONE,
        commands={"allow": [[*command]], "changes": "hold"},
        policy=[{"kinds": ["run_command"], "do": "auto"}],
    )
    (held,) = house.engine.jobs(kinds=["apply"], states=["held"])
    page = house.get(f"/jobs/{held.id}")
    assert re.findall(r'class="reviewed"', page.text) == ['class="reviewed"'] * 2
    assert "out/new.txt new +1" in page.words.replace("\u2212", "-")
    assert 'name="take"' not in page.text
    assert f'id="job-{held.id}"' in house.get("/inbox").text
    assert house.approve(held.id).status == 200
    house.work()
    assert written(house) == ["new.txt"]


def test_the_inbox_has_the_merge(house: House) -> None:
    merge = held_merge(house, 2)
    listed = house.get("/inbox")
    assert f'id="job-{merge}"' in listed.text
    assert "# 1/2 out/0.txt: for job 2, write_file: Look around. +++ b/out/0.txt" in listed.words.replace(
        "--- /dev/null ", ""
    )
    assert house.get(f"/jobs/{merge}/diff").status == 200


def test_the_page_of_a_mission_says_where_its_stage_is(house: House) -> None:
    merge = held_merge(house, 1)
    stage = house.engine.instance.stages
    assert f"Stage {stage}/" in house.get("/missions/1").words
    house.approve(merge)
    house.work()
    assert "Stage removed" in house.get("/missions/1").words
    house.run(DONE)
    assert "Stage" not in house.get("/missions/2").words


LINES = [f"line {number}\n" for number in range(1, 31)]


def changed(*numbers: int) -> str:
    return "".join(line.upper() if at in numbers else line for at, line in enumerate(LINES, 1))


def held_long_merge(house: House) -> int:
    """A merge that changes three distant lines of a file, and writes another one."""
    (house.root / "long.txt").write_text("".join(LINES))
    jobs = [
        house.job("write_file", rel_path="long.txt", content=changed(1, 15, 30)),
        house.job("write_file", rel_path="n.txt", content="new\n"),
    ]
    house.run(house.ask(*jobs), DONE, stage=True)
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    return merge.id


def ticked(house: House, merge: int) -> dict[str, str | list[str]]:
    """What the page of a merge sends with all its boxes ticked."""
    text = house.get(f"/jobs/{merge}").text
    boxes = {
        name: [unescape(value) for value in re.findall(rf'name="{name}" value="([^"]*)" checked', text)]
        for name in ("take", "hunk")
    }
    return {**house.shown(f"/jobs/{merge}"), "offered": "hunks", **boxes}


def texts(house: House) -> tuple[str, ...]:
    return tuple(
        (house.root / name).read_text() for name in ("long.txt", "n.txt") if (house.root / name).exists()
    )


def test_some_hunks_of_a_file_are_taken_and_undone(house: House) -> None:
    merge = held_long_merge(house)
    form = ticked(house, merge)
    hunks = form["hunk"]
    assert (len(hunks), form["take"]) == (3, ["long.txt", "n.txt"])
    assert "hunk 2 @@ -12,7 +12,7 @@" in house.get(f"/jobs/{merge}").words
    none = house.post(f"/jobs/{merge}/approve", {**form, "hunk": []})
    assert (none.status, "no hunk of 'long.txt' is chosen" in none.words) == (422, True)
    other = house.post(f"/jobs/{merge}/approve", {**form, "hunk": ["2-00000000 long.txt"]})
    assert (other.status, "has no hunk '2-00000000'" in other.words) == (409, True)
    assert house.post(f"/jobs/{merge}/approve", {**form, "hunk": hunks[1:]}).status == 200
    house.work()
    assert texts(house) == (changed(15, 30), "new\n")
    house.engine.undo(house.engine.job(merge).mission_id)
    assert texts(house) == ("".join(LINES),)


@pytest.mark.parametrize("room", [0, 60])
def test_a_merge_is_shown_the_same_where_its_files_have_no_room_together(
    house: House, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    merge = held_long_merge(house)
    before = house.engine.look(merge)
    monkeypatch.setattr(merge_view, "_ROOM", room)
    after = house.engine.look(merge)
    assert (after.files, after.sight.found) == (before.files, before.sight.found)
    assert sum(len(diff.lines) for diff in after.files) > 20


def test_a_file_that_moves_says_from_where_and_to_where(house: House) -> None:
    for name in ("old.txt", "empty.txt"):
        (house.root / name).write_text("some words\n" if name == "old.txt" else "")
    jobs = [
        house.job("write_file", rel_path="new.txt", content="some words\n"),
        house.job("write_file", rel_path="copy.txt", content="some words\n"),
        house.job("delete_file", rel_path="old.txt"),
        house.job("delete_file", rel_path="empty.txt"),
        house.job("write_file", rel_path="blank.txt", content=""),
    ]
    house.run(house.ask(*jobs), DONE, stage=True, limits={"max_followups": 5})
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    notes = {diff.path: diff.note or "" for diff in house.engine.look(merge.id).files}
    assert "with the content of 'old.txt', which is removed" in notes["new.txt"]
    assert "its content is that of 'new.txt', which is new" in notes["old.txt"]
    assert not any("content" in notes[name] for name in ("copy.txt", "empty.txt", "blank.txt"))


def test_all_boxes_take_all_of_a_merge(house: House) -> None:
    merge = held_long_merge(house)
    assert house.post(f"/jobs/{merge}/approve", ticked(house, merge)).status == 200
    house.work()
    assert texts(house) == (changed(1, 15, 30), "new\n")
    assert house.engine.job(merge).params == {}


def test_chosen_files_are_edited_shown_and_merged(house: House) -> None:
    merge = held_long_merge(house)
    form = ticked(house, merge)
    opened = house.post(f"/jobs/{merge}/edit", {**form, "take": ["n.txt", "long.txt"], "decision": "open"})
    assert re.findall(r'name="edit_path" value="([^"]*)"', opened.text) == ["long.txt", "n.txt"]
    typed = {
        "edit_path": ["long.txt", "n.txt"],
        "edit_text": [changed(1, 15, 30).replace("\n", "\r\n"), "mine\r\n"],
    }
    seen = house.post(f"/jobs/{merge}/edit", {**form, **typed, "decision": "preview"})
    assert "+mine" in seen.words
    assert "as edited by a person" in seen.words
    (previewed,) = re.findall(r'name="previewed" value="([^"]*)"', seen.text)
    form = {**form, **typed, "previewed": unescape(previewed), "decision": "approve"}
    assert house.post(f"/jobs/{merge}/edit", form).status == 200
    house.work()
    assert texts(house) == (changed(1, 15, 30), "mine\n")
    assert house.engine.job(merge).params == {"edits": {"n.txt": "mine\n"}}
    late = house.post(f"/jobs/{merge}/edit", form)
    assert late.status == 409


def test_an_edit_that_was_not_shown_decides_nothing(house: House) -> None:
    merge = held_long_merge(house)
    assert "line 1" in house.get(f"/jobs/{merge}/edit").words.lower()
    form = {**house.shown(f"/jobs/{merge}"), "shown": "", "decision": "approve"}
    typed = {"edit_path": ["n.txt"], "edit_text": ["mine\r\n"]}
    assert house.post(f"/jobs/{merge}/edit", {**form, **typed}).status == 409
    nul = {"edit_path": ["n.txt"], "edit_text": ["a\0b"]}
    assert house.post(f"/jobs/{merge}/edit", {**form, **nul}).status in (409, 422)
    assert house.engine.job(merge).state == "held"
    assert not (house.root / "n.txt").exists()


def test_of_a_merge_of_many_files_some_have_room_for_their_texts(house: House) -> None:
    writes = [house.job("write_file", rel_path=f"n{number:02}.md", content="x\n") for number in range(23)]
    house.run(house.ask(*writes), house.complete, stage=True, limits={"max_followups": 30})
    (merge,) = house.engine.jobs(kinds=["merge"], states=["held"])
    text = house.get(f"/jobs/{merge.id}/edit").text
    assert text.count('name="edit_text"') == 20
    assert text.count("There is no room for more texts") == 3
