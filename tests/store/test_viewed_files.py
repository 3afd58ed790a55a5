"""Marks of viewed files: each person's own, of one mission, gone with it."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.api.inbox import ViewedFiles
from lcp_engine.features.upkeep.store.prune import prune

ONE, OTHER = "1" * 32, "2" * 32


def test_marks_are_of_one_person_and_mission_and_the_last_one_counts(
    emptied_database_url: str, tmp_path: Path
) -> None:
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    planner: JsonValue = {"type": "script", "replies": [done]}
    with Engine(emptied_database_url) as engine:
        first, second = (
            engine.launch({"goal": "Look.", "planner": planner}, root=tmp_path).id for _ in range(2)
        )
        anna, bert, later = (
            ViewedFiles(engine.instance, mission, person)
            for mission, person in ((first, "anna"), (first, "bert"), (second, "anna"))
        )
        for was_seen in (True, False):
            anna.add(ONE, was_seen=was_seen)
        anna.add(OTHER, was_seen=True)
        assert (anna.marks(), bert.marks(), later.marks()) == ({ONE: False, OTHER: True}, {}, {})
        bert.remove(ONE)
        for _ in range(2):
            anna.remove(ONE)
        assert anna.marks() == {OTHER: True}
        engine.work(until_idle=True)
        later.add(ONE, was_seen=True)
        assert prune(engine.instance.database, ended_before=2**62).missions == 1, (
            "all but that of the newest job"
        )
        assert (anna.marks(), later.marks()) == ({}, {ONE: True})
