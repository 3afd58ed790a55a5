"""`lcp schedule`, with typical mistakes of users."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp, Object


def make_due(lcp: Lcp) -> None:
    """Make the schedule due."""
    with sqlite3.connect(lcp.database) as connection:
        connection.execute("UPDATE schedules SET due_at = 1000000")
    connection.close()


def listed_objects(done: Done) -> list[Object]:
    assert isinstance(done.json, list)
    return [one for one in done.json if isinstance(one, dict)]


def test_a_schedule_is_added_listed_launched_and_removed(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, name="survey")
    added = lcp("schedule", "add", "hourly", mission, "--root", "root", "--every", "90m")
    assert (added.code, added.out[:31]) == (0, "schedule hourly is next due at ")
    assert added.err.splitlines()[-1] == "a runner (`lcp work`) will launch it then"
    due = datetime.fromisoformat(added.out.split()[-1])
    assert timedelta(minutes=89) < due - datetime.now(UTC) <= timedelta(minutes=90)
    make_due(lcp)
    overdue = lcp("schedule", "list").err
    assert overdue == "schedule hourly is overdue because no runner is started: start `lcp work`\n"
    assert lcp("work", "--until-idle", "-q").code == 0
    listed = lcp("schedule", "list")
    assert listed.err == ""
    columns = ["name", "mission", "due", "next", "due", "missed", "skipped", "last"]
    assert listed.out.splitlines()[0].split() == columns
    assert listed.out.splitlines()[1].split()[:4] == ["hourly", "1", "every", "1h30m"]
    assert listed.out.endswith(": completed\n")
    now = lcp("schedule", "run-now", "hourly")
    assert (now.code, now.out) == (0, "2\n")
    assert lcp("launch", mission, "--root", "root").out == "3\n"
    assert [one["id"] for one in listed_objects(lcp("missions", "--schedule", "hourly", "--json"))] == [2, 1]
    removed = lcp("schedule", "remove", "hourly")
    assert (removed.code, removed.out) == (0, "schedule hourly removed\n")
    assert lcp("schedule", "list", "--json").json == []
    assert len(listed_objects(lcp("missions", "--schedule", "hourly", "--json"))) == 2, "its missions stay"
    assert lcp("db", "check").out == "ok\n"


def test_programs_get_objects(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, name="survey")
    added = lcp(
        "schedule", "add", "briefing", mission, "--root", "root", "--json",
        "--cron", "0 7 * * 1-5", "--timezone", "Europe/Zurich", "--overlap", "allow",
    )  # fmt: skip
    found = added.object
    assert added.err == ""
    assert lcp("--json", "schedule", "list").json == [found]
    assert {key: found[key] for key in ("name", "every", "cron", "timezone", "overlap", "mission_name", "planner")} == {
        "name": "briefing", "every": None, "cron": "0 7 * * 1-5", "timezone": "Europe/Zurich", "overlap": "allow",
        "mission_name": "survey", "planner": "script",
    }  # fmt: skip
    assert (found["root"], found["missed"], found["skipped"]) == (str(lcp.root), 0, 0)
    assert (found["last"], found["mission"], found["error"]) == (None, None, None)
    assert lcp("schedule", "run-now", "briefing", "--json").object == {"id": 1}
    assert lcp("schedule", "remove", "briefing", "--json").object == {"removed": "briefing"}


def test_a_schedule_that_is_due_once_is_done_then(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete, name="release")
    time = f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%d}T09:00"
    add = ("schedule", "add", "release", mission, "--root", "root", "--at", time, "--timezone", "UTC")
    added = lcp(*add)
    assert (added.code, added.out) == (0, f"schedule release is next due at {time}:00+00:00\n")
    assert f"once at {time.replace('T', ' ')} UTC" in lcp("schedule", "list").out
    make_due(lcp)
    assert lcp("work", "--until-idle", "-q").code == 0
    listed = lcp("schedule", "list")
    assert listed.err == "", "nothing is overdue"
    assert " UTC  done " in listed.out
    assert listed.out.endswith(": completed\n")
    (found,) = listed_objects(lcp("schedule", "list", "--json"))
    assert (found["next_due_at"], found["at"], found["every"]) == (None, f"{time}:00+00:00", None)
    assert lcp("work", "--until-idle", "-q").code == 0
    assert lcp("schedule", "run-now", "release").out == "2\n"
    assert lcp(*add).code == 5
    assert lcp(*add, "--replace").out == added.out
    assert lcp("db", "check").out == "ok\n"


def test_a_calendar_interval_says_what_becomes_of_the_31st(lcp: Lcp) -> None:
    time = f"{datetime.now(UTC).year + 1}-01-31T09:00"
    added = lcp(
        "schedule", "add", "accounts", lcp.mission(lcp.complete), "--root", "root",
        "--every", "1 month", "--at", time, "--timezone", "Europe/Zurich",
    )  # fmt: skip
    assert (added.code, added.out) == (0, f"schedule accounts is next due at {time}:00+01:00\n")
    assert "every 1month, day 31 or last, at 09:00 Europe/Zurich" in lcp("schedule", "list").out
    (found,) = listed_objects(lcp("schedule", "list", "--json"))
    assert [found[key] for key in ("every", "cron", "at", "timezone")] == [
        "1month", None, f"{time}:00", "Europe/Zurich"
    ]  # fmt: skip


def test_a_mission_from_stdin_is_kept(lcp: Lcp) -> None:
    text = lcp.mission(lcp.complete, name="piped").read_text()
    assert lcp("schedule", "add", "a", "-", "--root", "root", "--every", "1d", stdin=text).code == 0
    make_due(lcp)
    assert lcp("work", "--until-idle", "-q").code == 0
    assert lcp("report", 1).code == 0


def test_lcp_run_launches_nothing_that_is_due(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    assert lcp("schedule", "add", "a", mission, "--root", "root", "--every", "1d").code == 0
    make_due(lcp)
    assert lcp("run", mission, "--root", "root", "-q").code == 0
    assert "next due" in lcp("schedule", "list").out
    missions = lcp("missions", "--json").json
    assert isinstance(missions, list)
    assert len(missions) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        ("", 2, "--cron, --every or --at is expected"),
        ("--every 1h --cron *", 2, "only --every and --at together"),
        ("--at 09:00 --cron *", 2, "only --every and --at together"),
        ("--every 1h --timezone UTC", 2, "--timezone belongs to --cron, --at and calendar intervals"),
        ("--every soon", 2, "every is 'soon'; 30s, 15m, 1h30m or 2w, or 1day, 2weeks, 1month or 1year is"),
        ("--every 0month", 2, "every is '0month'; 1 to 1,200 months are expected"),
        ("--every 1fortnight", 2, "every is '1fortnight'; 30s,"),
        ("--at soon", 2, "at is 'soon'; a time like 2026-12-01T09:00, 2026-12-01T09:00+01:00 or 09:00 is"),
        ("--at 2026-02-30", 2, "at is '2026-02-30', which is not a time: day "),
        ("--at 2001-01-01T09:00", 2, "is in the past; it is "),
        (
            "--at 2031-03-30T02:30 --timezone Europe/Zurich",
            2,
            "does not exist in Europe/Zurich: clocks go from 02:00 to 03:00 then",
        ),
        ("--every 0s", 2, "every is '0s'; a duration from 1s to 36500d is expected"),
        ("--cron 0_7_*_*", 2, "'0 7 * *' has 4"),
        ("--cron 0_25_*_*_*", 2, "hour is '25'; expected is 0-23"),
        (
            "--cron 0_7_*_*_* --timezone Europe/Zuerich",
            2,
            "is expected; did you mean 'Europe/Zurich'?",
        ),
        ("--every 1h --overlap maybe", 2, "'maybe' is not one of 'skip', 'allow'"),
        ("--every 1h --root nowhere", 1, "a directory is expected"),
        ("--every 1h --planner nobody", 1, "nobody"),
        ("--every 1h --set limits.max_turns=0", 2, "limits.max_turns"),
    ],
)
def test_a_wrong_schedule_is_refused_in_one_line(lcp: Lcp, arguments: str, code: int, fact: str) -> None:
    given = [argument.replace("_", " ") if "*" in argument else argument for argument in arguments.split()]
    done = lcp("schedule", "add", "a", lcp.mission(lcp.complete), *given)
    assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
    assert fact in done.err
    assert not lcp.database.exists()


def test_an_unknown_mission_gives_the_same_error_as_launch(lcp: Lcp) -> None:
    launched = lcp("launch", "surveyy")
    added = lcp("schedule", "add", "a", "surveyy", "--every", "1h")
    assert (added.code, added.err) == (launched.code, launched.err)
    assert added.code == 1


def test_a_name_in_use_or_unknown_is_refused(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    assert lcp("schedule", "add", "nightly", mission, "--every", "1d").code == 0
    again = lcp("schedule", "add", "nightly", mission, "--every", "2d")
    assert (again.code, again.err) == (
        5,
        "schedule 'nightly' already exists; --replace changes its settings\n",
    )
    assert lcp("schedule", "add", "nightly", mission, "--every", "2d", "--replace").code == 0
    assert "every 2d" in lcp("schedule", "list").out
    assert lcp("missions", "--schedule", "nightly", "--json").json == []
    for command in (("schedule", "remove"), ("schedule", "run-now"), ("missions", "--schedule")):
        unknown = lcp(*command, "nightli")
        assert (unknown.code, unknown.err) == (
            1,
            "schedule 'nightli' is not in the database; did you mean 'nightly'?\n",
        )


def test_the_history_tells_which_schedule_launched_a_mission(lcp: Lcp) -> None:
    assert lcp("schedule", "add", "a", lcp.mission(lcp.complete), "--root", "root", "--every", "7d").code == 0
    make_due(lcp)
    assert "by schedule a, " in lcp("work", "--until-idle").err


def test_a_running_runner_launches_a_mission_when_it_is_due(lcp: Lcp) -> None:
    assert lcp("schedule", "add", "a", lcp.mission(lcp.complete), "--root", "root", "--every", "2s").code == 0
    with lcp.start("work", "--json") as runner:
        assert runner.stdout is not None
        while "mission_completed" not in (line := runner.stdout.readline()):
            assert line, "the runner has ended"
        runner.terminate()
        runner.communicate(timeout=PATIENCE_SECONDS)
        assert runner.returncode == 0
