"""Missions that are launched again and again, by a clock that stands still until a test moves it."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.api.user import user_name
from lcp_engine.clock import SECOND
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.schedules.schedules import Scheduler
from lcp_engine.features.schedules.store import due_schedules

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object, OpenLab

DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}
ASK: Object = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [{"kind": "ask_user", "params": {"question": "Go on?"}}],
}
START = int(datetime(2026, 11, 20, 6, 0, tzinfo=UTC).timestamp()) * SECOND
HOUR = 3600 * SECOND


@pytest.fixture
def now() -> list[int]:
    return [START]


@pytest.fixture
def lab(open_lab: OpenLab, now: list[int]) -> Lab:
    return open_lab(clock=lambda: now[0])


def add(lab: Lab, *replies: JsonValue, name: str = "hourly", every: str | None = "1h", **when: str) -> None:
    """A schedule whose missions have a planner that answers with `replies`."""
    spec: Object = {"name": "look", "goal": "Look.", "planner": {"type": "script", "replies": [*replies]}}
    lab.engine.add_schedule(name, spec, root=lab.root, every=every, **when)  # type: ignore[arg-type]  # see `when`


def stored(lab: Lab, name: str = "hourly") -> Object:
    return next(one.json for one in lab.engine.schedules() if one.name == name)


def launched(lab: Lab) -> list[JsonValue]:
    """The due times that missions were launched for, in order."""
    events = [lab.engine.events(mission.id, event="launched")[0]["data"] for mission in lab.engine.missions()]
    return [data["due_at"] for data in reversed(events) if isinstance(data, dict) and "due_at" in data]


def hour(n: int) -> str:
    return f"2026-11-20T{n:02}:00:00.000000+00:00"


def test_a_mission_is_launched_when_it_is_due_and_not_before(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += HOUR - SECOND
    lab.work()
    assert lab.engine.missions() == []
    now[0] += SECOND
    lab.work()
    (mission,) = lab.engine.missions()
    assert (mission.name, mission.root, mission.status) == ("look", str(lab.root), "completed")
    assert launched(lab) == [hour(7)]
    assert stored(lab)["next_due_at"] == hour(8)
    assert stored(lab)["mission"] == {"id": mission.id, "status": "completed", "outcome": "mission_complete"}
    lab.work()
    assert len(lab.engine.missions()) == 1


def test_what_was_due_without_a_runner_is_launched_once_and_the_rest_is_counted(
    lab: Lab, now: list[int]
) -> None:
    add(lab, DONE)
    now[0] += 5 * HOUR + HOUR // 2
    lab.work()
    assert launched(lab) == [hour(7)]
    assert lab.engine.events(1, event="launched")[0]["data"] == {
        "name": "look", "schedule": "hourly", "due_at": hour(7), "missed": 4
    }  # fmt: skip
    found = stored(lab)
    assert (found["missed"], found["skipped"], found["next_due_at"]) == (4, 0, hour(12))
    late = f"{hour(11)[:13]}:30:00.000000+00:00"
    assert found["last"] == {"due_at": hour(7), "at": late, "outcome": "launched", "missed": 4}
    now[0] += HOUR
    lab.work()
    found = stored(lab)
    assert (found["missed"], lab.dig(found, "last", "missed"), launched(lab)) == (4, 0, [hour(7), hour(12)])


def test_while_the_mission_before_waits_what_is_due_is_skipped(lab: Lab, now: list[int]) -> None:
    add(lab, ASK, DONE)
    for _ in range(3):
        now[0] += HOUR
        lab.work()
    assert [mission.status for mission in lab.engine.missions()] == ["waiting"]
    found = stored(lab)
    assert (found["skipped"], found["missed"], found["next_due_at"]) == (2, 0, hour(10))
    assert lab.dig(found, "last", "outcome") == "skipped"
    (held,) = lab.engine.jobs(states=["held"])
    lab.engine.answer(held.id, "yes")
    lab.work()
    now[0] += HOUR
    lab.work()
    assert launched(lab) == [hour(7), hour(10)]


def test_missions_may_overlap_where_that_is_wished(lab: Lab, now: list[int]) -> None:
    add(lab, ASK, DONE, overlap="allow")
    for _ in range(3):
        now[0] += HOUR
        lab.work()
    assert [mission.status for mission in lab.engine.missions()] == ["waiting"] * 3
    assert stored(lab)["skipped"] == 0


def test_a_mission_that_was_launched_by_hand_neither_shifts_nor_overlaps(lab: Lab, now: list[int]) -> None:
    add(lab, ASK, DONE)
    now[0] += HOUR // 2
    first, second = (lab.engine.launch_scheduled("hourly", by=by).id for by in (None, "anna"))
    assert first != second
    people = [lab.dig(lab.engine.events(id_, limit=1)[0], "data", "by") for id_ in (first, second)]
    assert people == [user_name(), "anna"]
    assert (stored(lab)["next_due_at"], lab.dig(stored(lab), "mission", "id")) == (hour(7), second)
    lab.engine.cancel(second)
    now[0] += HOUR
    lab.work()
    assert (launched(lab), stored(lab)["skipped"]) == ([], 1), "the first one waits still"


def test_a_clock_that_is_set_back_launches_nothing_twice(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += 2 * HOUR
    lab.work()
    for hours in (-2, 1, 1, 1):
        now[0] += hours * HOUR
        lab.work()
    assert launched(lab) == [hour(7), hour(9)]


def test_a_schedule_that_was_made_anew_launches_no_due_time_twice(lab: Lab, now: list[int]) -> None:
    for _ in range(2):
        add(lab, DONE, name="daily", every=None, cron="0 7 * * *")
        now[0] += 2 * HOUR
        lab.work()
        lab.engine.remove_schedule("daily")
        now[0] -= 2 * HOUR
    assert launched(lab) == [hour(7)]
    assert lab.engine.schedules() == []


def test_what_a_schedule_that_was_removed_left_open_holds_up_no_other_of_its_name(
    lab: Lab, now: list[int]
) -> None:
    add(lab, ASK, DONE)
    now[0] += HOUR
    lab.work()
    lab.engine.remove_schedule("hourly")
    now[0] += SECOND
    add(lab, ASK, DONE)
    for _ in range(2):
        now[0] += HOUR
        lab.work()
    assert [mission.status for mission in lab.engine.missions(schedule="hourly")] == ["waiting"] * 2
    found = stored(lab)
    assert (found["skipped"], lab.dig(found, "last", "outcome"), lab.dig(found, "mission", "id")) == (
        1,
        "skipped",
        2,
    )


def test_a_crontab_goes_by_the_clock_of_its_timezone(lab: Lab, now: list[int]) -> None:
    add(lab, DONE, name="briefing", every=None, cron="30 8 * * 1-5", timezone="Europe/Zurich")
    assert stored(lab, "briefing")["next_due_at"] == "2026-11-20T07:30:00.000000+00:00"
    now[0] += 2 * HOUR
    lab.work()
    assert stored(lab, "briefing")["next_due_at"] == "2026-11-23T07:30:00.000000+00:00"


def test_a_name_is_taken_once_and_replaced_where_that_is_wished(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += 3 * HOUR
    lab.work()
    with pytest.raises(LcpError, match="schedule 'hourly' already exists") as refused:
        add(lab, DONE)
    assert refused.value.code is ErrorCode.WRONG_STATE
    lab.engine.add_schedule(
        "hourly", {"name": "other", "goal": "g", "planner": "human"}, root=lab.root, every="1d", replace=True
    )
    found = stored(lab)
    assert (found["every"], found["mission_name"], found["planner"]) == ("1d", "other", "human")
    assert (found["missed"], lab.dig(found, "mission", "id")) == (2, 1)
    assert found["next_due_at"] == "2026-11-21T09:00:00.000000+00:00"


@pytest.mark.parametrize("name", ["", "a b", "a:b", ".hidden", "x" * 65, "ä", "a\n"])
def test_a_name_is_plain(lab: Lab, name: str) -> None:
    with pytest.raises(LcpError, match=r"schedule name .* is not valid"):
        add(lab, DONE, name=name)


def test_a_schedule_that_is_not_there_is_told_so(lab: Lab) -> None:
    add(lab, DONE)
    for steer in (lab.engine.remove_schedule, lab.engine.launch_scheduled):
        with pytest.raises(
            LcpError, match="schedule 'hurly' is not in the database; did you mean 'hourly'"
        ) as refused:
            steer("hurly")
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_what_launching_refuses_is_refused_now(lab: Lab, tmp_path: Path) -> None:
    spec: Object = {"name": "n", "goal": "g", "planner": "human"}
    with pytest.raises(LcpError, match="does not exist; a directory is expected"):
        lab.engine.add_schedule("a", spec, root=tmp_path / "gone", every="1h")
    with pytest.raises(LcpError, match="nobody"):
        lab.engine.add_schedule("a", {**spec, "planner": "nobody"}, root=lab.root, every="1h")
    with pytest.raises(LcpError, match="only every and at together; given: cron, every"):
        lab.engine.add_schedule("a", spec, root=lab.root, every="1h", cron="* * * * *")
    assert lab.engine.schedules() == []


def test_a_mission_can_be_launched_by_hand_only_where_its_root_is(lab: Lab, tmp_path: Path) -> None:
    root = tmp_path / "soon-gone"
    root.mkdir()
    lab.engine.add_schedule("a", {"goal": "g", "planner": "human"}, root=root, every="1h")
    root.rmdir()
    with pytest.raises(LcpError) as refused:
        lab.engine.launch_scheduled("a")
    assert refused.value.code is ErrorCode.PATH_NOT_FOUND


def test_a_runner_of_one_mission_launches_no_other(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += HOUR
    alone = lab.launch(DONE)
    lab.engine.work(until_idle=True, mission_id=alone)
    assert [mission.id for mission in lab.engine.missions()] == [alone]


def test_one_that_cannot_be_launched_is_told_of_once_and_holds_up_nothing_else(
    lab: Lab, now: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    add(lab, DONE, name="broken", every=None, cron="0 * * * *", timezone="Europe/Zurich")
    add(lab, DONE)
    database = lab.engine.instance.database
    database.write(
        lambda tx: tx.plain("UPDATE schedules SET timezone = 'Mars/Olympus' WHERE name = 'broken'")
    )
    now[0] += HOUR
    scheduler = Scheduler(database, lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            scheduler.launch_due()
    (told,) = (record.getMessage() for record in caplog.records)
    assert told.startswith(
        "schedule broken cannot be launched here: timezone 'Mars/Olympus' is not known here"
    )
    assert launched(lab) == [hour(7)]
    assert "Mars/Olympus" in str(stored(lab, "broken")["error"])
    database.write(lambda tx: tx.plain("UPDATE schedules SET timezone = 'UTC' WHERE name = 'broken'"))
    Scheduler(database, lambda: now[0]).launch_due()
    assert (launched(lab), stored(lab, "broken")["error"]) == ([hour(7)] * 2, None)
    lab.work()


def test_runners_that_saw_the_same_due_time_launch_it_once(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += HOUR
    database = lab.engine.instance.database
    (seen,) = database.read(lambda tx: due_schedules(tx, now[0]))
    Scheduler(database, lambda: now[0]).launch_due()
    late = Scheduler(database, lambda: now[0])
    late._launch(seen, now[0])
    assert launched(lab) == [hour(7)]
    assert stored(lab)["next_due_at"] == hour(8)
    lab.work()


def test_a_check_finds_a_mission_that_belongs_to_another_schedule(lab: Lab, now: list[int]) -> None:
    add(lab, DONE)
    now[0] += HOUR
    lab.work()
    database = lab.engine.instance.database
    assert database.read(faults_in) == []
    database.write(lambda tx: tx.plain("UPDATE missions SET schedule = 'daily'"))
    assert database.read(faults_in) == ["schedule hourly: its newest mission is 1, which belongs to daily"]


def test_once_launches_once_also_late_and_skips_behind_a_mission_that_waits(lab: Lab, now: list[int]) -> None:
    add(lab, ASK, DONE, name="first", every=None, at="2026-11-20T07:00")
    add(lab, DONE, name="second", every=None, at="2026-11-20T08:00")
    lab.engine.launch_scheduled("first")
    now[0] += 30 * HOUR
    for _ in range(2):
        lab.work()
        now[0] += 1000 * HOUR
    assert launched(lab) == [hour(8)]
    first, second = stored(lab, "first"), stored(lab, "second")
    assert (first["skipped"], first["next_due_at"], lab.dig(first, "last", "outcome")) == (1, None, "skipped")
    assert (second["skipped"], second["missed"], second["next_due_at"]) == (0, 0, None)
    assert lab.engine.schedule("second").next_due_at is None
    with pytest.raises(LcpError, match="is in the past") as refused:
        add(lab, DONE, name="third", every=None, at="2026-11-20T09:00")
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_a_calendar_interval_is_launched_by_the_local_time(lab: Lab, now: list[int]) -> None:
    add(lab, DONE, every="1month", at="2027-01-31T09:00", timezone="Europe/Zurich")
    for due in ("2027-01-31T08", "2027-02-28T08", "2027-03-31T07"):
        assert stored(lab)["next_due_at"] == f"{due}:00:00.000000+00:00"
        now[0] = int(datetime.fromisoformat(f"{due}:00:00+00:00").timestamp()) * SECOND
        lab.work()
    assert launched(lab) == [
        f"{due}:00:00.000000+00:00" for due in ("2027-01-31T08", "2027-02-28T08", "2027-03-31T07")
    ]
