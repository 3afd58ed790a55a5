from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.web.conftest import House


def _looked(house: House) -> int:
    return house.run(house.ask(house.job("list_files", patterns=["*.md"])), house.complete, name="Looks")


def test_a_mission_is_forked_at_a_turn_with_an_edited_reply(house: House) -> None:
    mission_id = _looked(house)
    question = house.get(f"/missions/{mission_id}/questions/1")
    link = re.search(r'href="([^"]+)">Edit its reply in a fork', question.text)
    assert link
    form = house.get(link[1].replace("&amp;", "&"))
    assert "Look around." in form.words
    assert '<option value="1" selected>' in form.text
    edited = json.dumps({**house.complete, "summary": "Another <i>end</i>."})
    answer = house.post(f"/missions/{mission_id}/fork", {"turn": "1", "reply": edited})
    assert "Forked. A runner will continue it." in answer.words
    house.work()
    assert house.engine.mission(2).summary == "Another <i>end</i>."
    assert house.engine.mission(mission_id).status == "completed"


def test_a_fork_names_the_files_that_have_changed_since(house: House) -> None:
    mission_id = house.run(house.ask(house.job("read_file", rel_path="a.md")), house.complete)
    (house.root / "a.md").write_text("somebody else's\n")
    answer = house.post(f"/missions/{mission_id}/fork", {"turn": "2", "reply": json.dumps(house.complete)})
    assert "Mission 2 was forked." in answer.words
    assert "a.md" in answer.words
    assert 'href="/missions/2"' in answer.text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"turn": "99"}, "turn 99"),
        ({"turn": "x<b>"}, "is not the number of a turn"),
        ({"turn": ""}, "is not the number of a turn"),
        ({"turn": "1", "planner": "nobody"}, "nobody"),
    ],
)
def test_a_fork_that_cannot_be_says_why_and_keeps_the_reply(
    house: House, fields: dict[str, str], words: str
) -> None:
    mission_id = _looked(house)
    answer = house.post(f"/missions/{mission_id}/fork", {**fields, "reply": "what I wrote"})
    assert answer.status in (404, 409, 422)
    assert words in answer.words
    assert "what I wrote" in answer.words
    assert len(house.engine.missions()) == 1


def test_a_mission_without_turns_cannot_be_forked(house: House) -> None:
    house.engine.enqueue("list_files", {"root": str(house.root)})
    assert "has asked no questions" in house.get("/missions/1/fork").words
    assert house.get("/missions/9/fork").status == 404


def test_a_mission_is_replayed_and_compared(house: House) -> None:
    mission_id = _looked(house)
    assert "Replay it" in house.get(f"/missions/{mission_id}").words
    answer = house.post(f"/missions/{mission_id}/replay")
    assert "It replays the same: 3 jobs and 2 questions were compared." in answer.words


def test_a_mission_that_goes_on_is_not_replayed(house: House) -> None:
    mission_id = house.launch(house.complete)
    assert "Replay it" not in house.get(f"/missions/{mission_id}").words
    answer = house.post(f"/missions/{mission_id}/replay")
    assert answer.status == 409
    assert "Replay" in answer.words


def test_the_settings_of_a_mission_are_on_a_page(house: House) -> None:
    house.run(
        house.complete,
        limits={"max_turns": 7, "max_seconds": None},
        policy=[
            {"kinds": ["write_file"], "paths": ["docs/<b>/**"], "do": "auto"},
            {"do": "hold", "approvals": 2, "not_requester": True},
        ],
        accept=[{"file_exists": "a.md"}],
        hold_timeout=60,
    )
    words = house.get("/missions/1/settings").words
    assert "turns 7 (1 used)" in words
    assert "seconds none" in words
    assert "1 write_file docs/<b>/** auto" in words
    assert "2 * any hold, 2 approvals, not by who launched it" in words
    assert "file exists a.md" in words
    assert "hold_timeout 60" in words


def test_a_mission_without_settings_of_its_own_says_what_decides(house: House) -> None:
    house.run(house.complete)
    words = house.get("/missions/1/settings").words
    assert "It has no rules of its own" in words
    house.engine.enqueue("list_files", {"root": str(house.root)})
    assert house.get("/missions/2/settings").status == 200
