"""A person sees, corrects and forgets what is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lcp_engine.errors import LcpError
from lcp_engine.features.memory.calls import MemoryEdit

if TYPE_CHECKING:
    from tests.web.conftest import House


def _add(house: House, title: str = "Tests", content: str = "They need <b>make db</b>.") -> int:
    return house.engine.memory.add(title, content, root=house.root, tags=["tests"], files=["a.md"]).number


def _fields(house: House, number: int, **more: str) -> dict[str, str | list[str]]:
    """The form of an entry as a browser sends it."""
    fields: dict[str, str | list[str]] = {
        "title": "Tests", "content": "They need make db.", "tags": "tests, setup", "files": "a.md\nb.md",
        "importance": "8",
    }  # fmt: skip
    return {**fields, **house.shown(f"/memory/{number}", "seen"), **more}


def test_entries_are_listed_by_root_and_found_by_words(house: House) -> None:
    assert "Nothing is remembered yet" in house.get("/memory").words
    for number in range(33):
        _add(house, f"Entry {number}")
    first = house.get("/memory")
    assert first.text.count('class="card" id="memory-') == 30
    assert "<b>make db</b>" not in first.text, "what is remembered is text"
    assert house.get("/memory?before=4").text.count('class="card" id="memory-') == 3
    assert "Entry 7 #8" in house.get(f"/memory?root={house.root}&text=entry+7").words
    assert "Nothing that is remembered fits." in house.get("/memory?text=zebra").words
    assert house.get("/memory?root=/nowhere").status == 404


def test_an_entry_is_corrected_and_forgotten(house: House) -> None:
    number = _add(house)
    saved = house.post(f"/memory/{number}/edit", _fields(house, number))
    assert "Saved." in saved.words
    entry = house.engine.memory.find(number)
    assert (entry.content, entry.tags, entry.files, entry.importance) == (
        "They need make db.", ("tests", "setup"), ("a.md", "b.md"), 8,
    )  # fmt: skip
    assert "Forgotten." in house.post(f"/memory/{number}/forget").words
    with pytest.raises(LcpError, match="is not in the database"):
        house.engine.memory.find(number)
    assert house.get(f"/memory/{number}").status == 404


def test_an_entry_that_changed_meanwhile_is_shown_as_it_is(house: House) -> None:
    number = _add(house)
    fields = _fields(house, number)
    house.engine.memory.edit(number, MemoryEdit(content="Another text."))
    refused = house.post(f"/memory/{number}/edit", fields)
    assert refused.status == 409
    assert "was changed at" in refused.words
    assert "Another text." in refused.text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("title", " ", "title: it is blank; a text is expected"),
        ("importance", "ten", "importance: it is 0; a number from 1, low, to 10, high, is expected"),
        ("files", "../b", "files[0]: '../b' is not a path beneath the root, relative to it"),
        ("seen", "soon", "the form does not say what its page showed"),
    ],
)
def test_what_cannot_be_kept_is_named_and_stays_in_the_form(
    house: House, name: str, value: str, said: str
) -> None:
    number = _add(house)
    refused = house.post(f"/memory/{number}/edit", _fields(house, number, **{name: value}))
    assert refused.status == 422
    assert said in refused.words
    assert house.engine.memory.find(number).content == "They need <b>make db</b>."


def test_a_form_without_the_token_changes_nothing(house: House) -> None:
    number = _add(house)
    assert house.post(f"/memory/{number}/forget", {"csrf": "no"}).status == 403
    assert house.stranger().post(f"/memory/{number}/forget").status_code in (401, 403)
    assert house.engine.memory.find(number).number == number
