from __future__ import annotations

from typing import TYPE_CHECKING

from tests.patience import in_thread, wait_until

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.web.conftest import House


def _schedule(house: House, name: str) -> None:
    spec: dict[str, JsonValue] = {
        "name": "Nightly <b>",
        "goal": "Look.",
        "planner": {"type": "script", "replies": [house.complete]},
    }
    house.engine.add_schedule(name, spec, root=house.root, every="1h")


def test_an_empty_database_says_what_there_is_not(house: House) -> None:
    words = house.get("/overview").words
    assert "No runner is running" in words
    assert "No schedules" in words
    assert "Missions none Jobs none" in words


def test_runners_are_listed_while_they_run(house: House) -> None:
    runner = house.engine.runner(threads=1)
    with in_thread(runner.run, runner.stop):
        wait_until(house.engine.runners)
        words = house.get("/overview").words
        assert str(house.engine.runners()[0].pid) in words
        assert house.engine.runners()[0].host in words
    assert "No runner is running" in house.get("/overview").words


def test_a_schedule_is_launched_and_removed_from_the_page(house: House) -> None:
    _schedule(house, "nightly")
    answer = house.get("/overview")
    assert "nightly every 1h" in answer.words
    assert "Nightly <b>" in answer.words
    assert "<b>" not in answer.text
    assert "Launched." in house.post("/schedules/launch", {"name": "nightly"}).words
    assert "mission 1 running" in house.get("/overview").words
    assert "Removed." in house.post("/schedules/remove", {"name": "nightly"}).words
    assert house.engine.schedules() == []
    assert house.engine.mission(1).status == "running"


def test_a_schedule_that_is_not_there_is_refused(house: House) -> None:
    _schedule(house, "nightly")
    for path in ("/schedules/launch", "/schedules/remove"):
        answer = house.post(path, {"name": "nightli"})
        assert answer.status == 404
        assert "nightli" in answer.words
    assert len(house.engine.schedules()) == 1
    assert house.engine.missions() == []


def test_roots_and_counts_are_those_of_the_missions(house: House) -> None:
    house.hold()
    house.run(house.complete)
    other = house.root.parent / "other"
    other.mkdir()
    house.engine.launch({"goal": "Look.", "planner": "none"}, root=other)
    words = house.get("/overview").words
    assert f"{house.root} 2 1 1 2" in words
    assert words.index(str(other)) < words.index(str(house.root))
    assert "1 held" in words


def test_activity_is_shown_over_each_span_and_above_missions(house: House) -> None:
    assert "Nothing happened in the last hour" in house.get("/overview").words
    assert "Last hour" not in house.get("/").words
    house.run(house.ask(house.job("list_files")), house.complete)
    for path, words in (
        ("/overview", "Jobs 3 succeeded, 0 failed; at most 3 each minute"),
        ("/overview?over=day", "One bar for each hour"),
        ("/overview?over=week", "One bar for each hour"),
        ("/overview?over=year", "One bar for each minute"),
        ("/", "Last hour: 3 succeeded, 0 failed"),
    ):
        assert words in house.get(path).words, path
