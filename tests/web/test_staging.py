"""The page shows a merge with all its files, and takes all or some of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import JsonValue

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
    form = {**house.shown(f"/jobs/{merge}"), "offered": offered}
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


def test_the_inbox_has_the_merge(house: House) -> None:
    merge = held_merge(house, 2)
    listed = house.get("/inbox")
    assert f'id="job-{merge}"' in listed.text
    assert "# 1/2 out/0.txt: for job 2, write_file: Look around. +++ b/out/0.txt" in listed.words.replace(
        "--- /dev/null ", ""
    )
    assert house.get(f"/jobs/{merge}/diff").status == 200
    assert house.get(f"/jobs/{merge}/edit").status == 409


def test_the_page_of_a_mission_says_where_its_stage_is(house: House) -> None:
    merge = held_merge(house, 1)
    stage = house.engine.instance.stages
    assert f"Stage {stage}/" in house.get("/missions/1").words
    house.approve(merge)
    house.work()
    assert "Stage removed" in house.get("/missions/1").words
    house.run(DONE)
    assert "Stage" not in house.get("/missions/2").words
