"""`lcp doctor` lists what works and what does not, with advice; exit code 1 if something is broken."""

from __future__ import annotations

import shutil
import sqlite3
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue

from lcp_engine.core.health import broken
from lcp_engine.core.json_values import object_in
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.store.host.liveness import digest_of

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp


def grades(done: Done) -> dict[JsonValue, JsonValue]:
    checks = done.object["checks"]
    assert isinstance(checks, list)
    return {check["about"]: check["grade"] for check in checks if isinstance(check, dict)}


def test_an_installation_that_is_well(lcp: Lcp) -> None:
    done = lcp("doctor", "--root", "root")
    assert done.code == 0, done.out
    assert "the first command creates it" in done.out
    assert not lcp.database.exists(), "an examination creates no database"
    lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    found = lcp("doctor", "--root", "root", "--planner", "surveyor", "--json")
    assert (found.code, found.object["ok"]) == (0, True)
    assert set(grades(found).values()) <= {"ok", "warn"}
    assert grades(found)["planner"] == "ok"


def test_what_is_broken_is_named_and_the_rest_is_examined_all_the_same(lcp: Lcp) -> None:
    with sqlite3.connect(lcp.database) as database:
        database.execute("CREATE TABLE somebody_elses (id)")
    database.close()
    done = lcp("doctor", "--root", "gone", "--planner", "opnai", "--json")
    assert done.code == 1
    found = grades(done)
    assert [found[about] for about in ("database", "runtime directory", "root", "planner")] == [
        "fail", "ok", "fail", "fail",
    ]  # fmt: skip
    assert "did you mean 'openai'?" in done.out
    assert (done.object["ok"], done.err) == (False, "")


def test_an_endpoint_that_does_not_answer_is_named_without_a_traceback(lcp: Lcp) -> None:
    mission = lcp.home / "model.yaml"
    mission.write_text("goal: g\nplanner: {type: openai, base_url: 'http://127.0.0.1:9', model: m}\n")
    done = lcp("doctor", "--mission", mission, "--root", "root")
    assert done.code == 1
    assert "fail  endpoint" in done.out
    assert "a model's server is expected to listen there" in done.out
    assert "→" in done.out


def test_what_servers_refused_is_shown_without_asking_them(lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    step, now = '{"rung": "json_schema", "in_envelope": false, "without": ', time.time_ns() // 1000
    found = {
        "new": '["max_tokens", "temperature"]',
        "all": '["max_completion_tokens", "max_tokens"]',
        "old": "[]",
    }
    with sqlite3.connect(lcp.database) as database:
        rows = [("http://e/v1", model, f"{step}{without}}}", now) for model, without in found.items()]
        database.executemany("INSERT INTO probes (endpoint, model, found, at) VALUES (?, ?, ?, ?)", rows)
    database.close()
    lines = [line for line in lcp("doctor", "--root", "root").out.splitlines() if "http://e" in line]
    ways = [" ".join(line.split()).partition(" is asked by ")[::2] for line in lines]
    assert ways == [
        ("ok remembered all at http://e/v1", "json_schema, without max_completion_tokens, max_tokens"),
        (
            "ok remembered new at http://e/v1",
            "json_schema, without temperature, with max_completion_tokens instead of max_tokens",
        ),
    ]


def test_a_mission_is_checked_with_its_variables_and_settings(lcp: Lcp) -> None:
    mission = lcp.home / "m.yaml"
    mission.write_text("goal: Say ${what}.\nplanner: {type: human}\nvariables: {what: What to say.}\n")
    asked = lcp("doctor", "--mission", mission, "--root", "root")
    assert (asked.code, "give it with --var what=VALUE" in asked.out) == (1, True)
    given = lcp(
        "doctor", "--mission", mission, "--root", "root", "--var", "what=hello", "--set", "planner=surveyor"
    )
    assert (given.code, "surveyor, which uses no model" in given.out) == (0, True)
    alone = lcp("doctor", "--var", "what=hello")
    assert (alone.code, "--set and --var need --mission" in alone.err) == (2, True)


def test_a_misspelt_planner_is_not_called_missing(lcp: Lcp) -> None:
    mission = lcp.home / "m.yaml"
    mission.write_text("goal: Say it.\nplaner: {type: human}\n")
    for command in (["run", mission], ["launch", mission], ["doctor", "--mission", mission]):
        done = lcp(*command, "--root", "root")
        assert "planer: is not a known key; did you mean 'planner'?" in done.out + done.err


def test_left_over_copies_are_named_with_their_size_and_removed_by_a_runner(lcp: Lcp) -> None:
    write = lcp.ask("write_file", path="b.md", content="x")
    assert lcp("run", lcp.mission(write, lcp.complete, stage=True), "--root", "root", "-q").code == 3
    stage = Path(str(object_in(lcp("show", 1, "--json").object["stage"])["path"]))
    assert "stages" not in grades(lcp("doctor", "--json"))
    half = stage.parent.parent / "77" / "half"
    half.mkdir(parents=True)
    (half / "a.txt").write_text("x" * 2000)
    other = stage.parent.parent.parent / "0123456789abcdef"
    (other / "3" / "x").mkdir(parents=True)
    (other / "database").write_text("/nowhere/lcp.db\n")
    told = lcp("doctor").out
    assert "a stage of mission 77, whose mission is not in the database: 2.0 kB in " in told
    assert "stages of the database /nowhere/lcp.db, which is gone: 16 B in " in told
    checked = lcp("db", "check")
    assert (checked.code, checked.err.count("warning: a stage of mission 77")) == (0, 1)
    lcp("reject", 3, "--reason", "no")
    lcp("cancel", 1)
    lcp("work", "--until-idle", "-q")
    assert not half.exists()
    assert "a stage of mission" not in lcp("doctor").out
    shutil.rmtree(other)
    assert "stages" not in grades(lcp("doctor", "--json"))


def test_left_over_places_of_commands_are_named_and_removed_by_a_runner(lcp: Lcp) -> None:
    assert lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q").code == 0
    place = lcp.home / "state" / "lcp-engine-wall" / digest_of(f"sqlite:///{lcp.database}") / "77"
    (place / "runs/9-1/up").mkdir(parents=True)
    told = "a place of commands of mission 77, whose mission is not in the database"
    assert told in lcp("doctor").out
    assert told in lcp("db", "check").err
    lcp("work", "--until-idle", "-q")
    assert not place.exists()
    assert told not in lcp("doctor").out


def test_the_doctor_does_not_advise_itself() -> None:
    for code in ErrorCode:
        advice = broken("planner", Failed(code, "it does not work")).advice
        assert advice
        assert "lcp doctor" not in advice
