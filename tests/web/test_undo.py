from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.web.conftest import House

AUTO: list[JsonValue] = [{"kinds": ["*"], "do": "auto"}]


def _write(house: House, **files: str) -> int:
    """A mission that has written files; its id."""
    jobs = [house.job("write_file", rel_path=f"{name}.md", content=text) for name, text in files.items()]
    return house.run(house.ask(*jobs), house.complete, policy=AUTO)


def _shown(house: House, path: str) -> dict[str, str | list[str]]:
    found = re.search(r'name="shown" value="([^"]+)"', house.get(path).text)
    assert found
    return {"shown": found[1]}


def test_the_files_of_a_mission_are_shown_with_their_diffs_and_what_became_of_them(house: House) -> None:
    _write(house, a="# b\n", new="one\n", gone="two\n")
    (house.root / "new.md").write_text("changed by hand\n")
    (house.root / "gone.md").unlink()
    answer = house.get("/missions/1/changes")
    for expected in (
        "3 files changed",
        "-# a",
        "+# b",
        "unchanged on disk since",
        "changed since",
        "no longer there",
    ):
        assert expected in answer.words, expected


def test_files_come_page_by_page(house: House) -> None:
    files = {f"file{number:02}": "x\n" for number in range(23)}
    jobs = [house.job("write_file", rel_path=f"{name}.md", content=text) for name, text in files.items()]
    house.run(house.ask(*jobs), house.complete, policy=AUTO, limits={"max_followups": 30})
    text = house.get("/missions/1/changes").text
    assert text.count('class="card file"') == 20
    assert house.get("/missions/1/changes?after=20").text.count('class="card file"') == 3


@pytest.mark.parametrize("path", ["/missions/1/undo", "/jobs/2/undo"])
def test_an_undo_says_what_it_would_do_and_then_does_it(house: House, path: str) -> None:
    _write(house, a="# b\n")
    page = house.get(path)
    assert "a.md is restored" in page.words
    assert "-# b" in page.words
    assert "+# a" in page.words
    assert (house.root / "a.md").read_text() == "# b\n", "opening the page does nothing"
    assert "Undone." in house.post(path, _shown(house, path)).words
    assert (house.root / "a.md").read_text() == "# a\n"
    assert "Nothing to undo" in house.get(path).words


def test_an_undo_can_be_taken_back(house: House) -> None:
    _write(house, new="one\n")
    house.post("/missions/1/undo", _shown(house, "/missions/1/undo"))
    assert not (house.root / "new.md").exists()
    undo = house.engine.jobs(kinds=["undo"])[0].id
    assert "Undo this undo" in house.get(f"/jobs/{undo}").words
    house.post(f"/jobs/{undo}/undo", _shown(house, f"/jobs/{undo}/undo"))
    assert (house.root / "new.md").read_text() == "one\n"


def test_drift_refuses_an_undo_and_names_the_files(house: House) -> None:
    _write(house, a="# b\n", new="one\n")
    form = _shown(house, "/missions/1/undo")
    (house.root / "a.md").write_text("by hand\n")
    for answer in (house.get("/missions/1/undo"), house.post("/missions/1/undo", form)):
        assert answer.status == 409
        assert "'a.md' has been changed since the last change of a job" in answer.words
        assert "<form method" not in answer.text
    assert (house.root / "new.md").read_text() == "one\n"


def test_an_undo_that_is_not_what_the_page_showed_does_nothing(house: House) -> None:
    _write(house, a="# b\n", new="one\n")
    form = _shown(house, "/missions/1/undo")
    second = house.engine.jobs(kinds=["write_file"])[1].id
    house.engine.undo(job_id=second)
    answer = house.post("/missions/1/undo", form)
    assert answer.status == 409
    assert "has changed since it was shown; nothing was restored" in answer.words
    assert (house.root / "a.md").read_text() == "# b\n"


def test_a_mission_that_has_changed_nothing_offers_no_undo(house: House) -> None:
    house.run(house.complete)
    assert "Undo this mission" not in house.get("/missions/1").words
    assert "Nothing to undo" in house.get("/missions/1/undo").words
    assert house.post("/missions/1/undo", {"shown": "x"}).status == 409
    assert "No files changed" in house.get("/missions/1/changes").words


@pytest.mark.parametrize(
    "path", ["/missions/99/undo", "/jobs/99/undo", "/missions/99/changes", "/jobs/99/diff"]
)
def test_what_is_not_there_is_not_undone(house: House, path: str) -> None:
    assert house.get(path).status == 404
