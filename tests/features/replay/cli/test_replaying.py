"""`lcp replay`: what it prints, and its exit codes."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_a_mission_replays_the_same(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("read_file", rel_path="a.md"), lcp.complete)
    assert lcp("run", mission, "--root", "root").code == 0
    done = lcp("replay", 1)
    assert (done.code, done.out, done.err) == (0, "mission 1 replays the same: 3 jobs, 2 questions\n", "")
    assert lcp("replay", 1, "--json").json == []


def test_a_difference_gives_exit_code_5(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("read_file", rel_path="a.md"), lcp.complete)
    lcp("run", mission, "--root", "root")
    with sqlite3.connect(lcp.database) as connection:
        connection.execute("UPDATE turns SET reply = replace(reply, 'a.md', 'main.py') WHERE number = 1")
    connection.close()
    done = lcp("replay", 1)
    assert done.code == 5
    assert done.out.startswith("mission 1 does not replay the same (3 jobs, 2 questions):\n")
    assert "\n  job 2 read_file a.md: params.rel_path main.py, was a.md\n" in done.out
    told = lcp("replay", 1, "--json")
    assert told.code == 5
    assert isinstance(told.json, list)
    assert told.json[0] == {
        "job": 2, "title": "job 2 read_file a.md", "field": "params.rel_path", "was": "a.md", "is": "main.py",
    }  # fmt: skip


def test_the_scratch_database_and_root_are_kept_on_demand(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root")
    assert lcp("replay", 1, "--keep", "again").code == 0
    assert lcp("show", 1, "--json", "--db", f"sqlite:///{lcp.home / 'again' / 'replay.db'}").object["status"]
    refused = lcp("replay", 1, "--keep", "again")
    assert (refused.code, refused.err) == (
        2, "the directory again is not empty; a replay needs an empty one\n",
    )  # fmt: skip


def test_a_refused_replay_is_one_line(lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    running = lcp("replay", 1)
    assert (running.code, running.err) == (
        5, "mission 1 is running; only missions that have ended can be replayed\n",
    )  # fmt: skip
    assert lcp("replay", 2, "--json").error["error_code"] == "NOT_FOUND"
    assert lcp("replay", "x").code == 2
