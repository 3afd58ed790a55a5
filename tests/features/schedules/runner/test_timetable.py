"""APScheduler wakes a runner: once after a pause, without an end that waits, and not by its own idea of cron."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from zoneinfo import ZoneInfo

import pytest
from apscheduler.triggers.calendarinterval import CalendarIntervalTrigger
from apscheduler.triggers.cron import CronTrigger
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.times.recurrence import first_due, go_on, read_cron
from lcp_engine.runner.runner import Runner
from lcp_engine.runner.timetable import Later, Timetable

ZURICH = ZoneInfo("Europe/Zurich")
SOON = 60.0
"""Seconds: longer than any of it takes."""
HANGS = """
import threading
from lcp_engine.runner.timetable import Timetable
begun = threading.Event()
timetable = Timetable(print)
timetable.add("hangs", lambda: begun.set() or threading.Event().wait(), lambda: 0.001)
timetable.start()
begun.wait()
"""


def test_works_are_done_again_and_again_until_the_end() -> None:
    done: SimpleQueue[str] = SimpleQueue()
    timetable = Timetable(lambda error: None)
    timetable.add("often", lambda: done.put("often"), lambda: 0.001)
    timetable.add("slowly", lambda: done.put("slowly"), lambda: 0.001, quick=False)
    timetable.start()
    seen = set[str]()
    while seen != {"often", "slowly"}:
        seen.add(done.get(timeout=SOON))
    timetable.stop()
    assert not [thread for thread in threading.enumerate() if thread.name in ("lcp-timetable", "APScheduler")]


def test_a_slow_work_delays_no_quick_one_and_is_not_begun_twice() -> None:
    door, begun, done = threading.Event(), SimpleQueue[None](), SimpleQueue[None]()

    def slow() -> None:
        begun.put(None)
        door.wait(SOON)

    timetable = Timetable(lambda error: None)
    timetable.add("slow", slow, lambda: 0.001, quick=False)
    timetable.start()
    begun.get(timeout=SOON)
    timetable.add("quick", lambda: done.put(None), lambda: 0.001)
    for _ in range(20):
        done.get(timeout=SOON)
    assert begun.empty()
    door.set()
    timetable.stop()


def test_what_a_work_raises_is_told_and_the_others_go_on() -> None:
    told: SimpleQueue[BaseException] = SimpleQueue()
    done: SimpleQueue[None] = SimpleQueue()

    def fail() -> None:
        raise MemoryError

    timetable = Timetable(told.put)
    timetable.add("fails", fail, lambda: 0.001)
    timetable.add("works", lambda: done.put(None), lambda: 0.001)
    timetable.start()
    assert [type(told.get(timeout=SOON)) for _ in range(2)] == [MemoryError] * 2
    done.get(timeout=SOON)
    timetable.stop()


def test_a_work_that_hangs_keeps_no_process_from_ending() -> None:
    assert subprocess.run([sys.executable, "-c", HANGS], timeout=SOON, check=True).returncode == 0


def test_a_runner_that_was_suspended_for_years_is_woken_once() -> None:
    trigger, now = Later(lambda: 1.0), datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
    fired = trigger.get_next_fire_time(now - timedelta(days=3650), now)
    assert fired == now + timedelta(seconds=1)


def test_a_clock_that_is_set_back_delays_nothing() -> None:
    """APScheduler waits until the clock says again what it said: here an hour, as for a work that is due in one."""
    back, asked = [0.0], [0]
    done: SimpleQueue[None] = SimpleQueue()

    def seconds() -> float:
        asked[0] += 1
        return 3600 if asked[0] == 1 else 0.001

    timetable = Timetable(lambda error: None, lambda: time.time() - back[0])
    timetable.add("rare", lambda: done.put(None), seconds)
    timetable.start()
    timetable.follow_clock()
    assert asked == [1]
    back[0] = 3600
    timetable.follow_clock()
    done.get(timeout=SOON)
    timetable.stop()


def test_a_runner_launches_what_becomes_due_and_ends_without_a_thread_of_it(
    database_url: str, tmp_path: Path
) -> None:
    done: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    with Engine(database_url) as engine:
        engine.add_schedule(
            "often",
            {"goal": "Look.", "planner": {"type": "script", "replies": [done]}},
            root=tmp_path,
            every="1s",
        )
        runner = Runner(engine.instance)
        running = threading.Thread(target=runner.run)
        running.start()
        until = time.monotonic() + SOON
        while len(engine.missions()) < 3 and time.monotonic() < until:
            running.join(0.01)
        runner.stop()
        running.join(SOON)
        assert len(engine.missions()) >= 3
        assert not [
            thread for thread in threading.enumerate() if thread.name in ("lcp-timetable", "APScheduler")
        ]


def _ours(expression: str, start: str, count: int) -> list[str]:
    cron, found = read_cron(expression, ZURICH.key), list[Micros]()
    found.append(
        first_due(cron, int(datetime.fromisoformat(start).replace(tzinfo=ZURICH).timestamp()) * SECOND)
    )
    while len(found) < count:
        found.append(go_on(cron, found[-1], found[-1]).next_due)
    return [f"{datetime.fromtimestamp(at // SECOND, ZURICH):%a %d %b %H:%M %Z}" for at in found]


def _theirs(expression: str, start: str, count: int) -> list[str]:
    try:
        trigger = CronTrigger.from_crontab(expression, ZURICH)
    except ValueError:
        return ["refused"]
    found = list[datetime]()
    now = datetime.fromisoformat(start).replace(tzinfo=ZURICH)
    while len(found) < count:
        found.append(trigger.get_next_fire_time(found[-1] if found else None, found[-1] if found else now))
    return [f"{at:%a %d %b %H:%M %Z}" for at in found]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        # 0 is Sunday; to APScheduler it is Monday.
        ("0 7 * * 1-5", "2026-11-20 00:00", ["Fri 20 Nov 07:00 CET", "Mon 23 Nov 07:00 CET", "Tue 24 Nov 07:00 CET"]),
        ("0 7 * * 0", "2026-11-20 00:00", ["Sun 22 Nov 07:00 CET", "Sun 29 Nov 07:00 CET"]),
        # APScheduler refuses these.
        ("0 7 * * 7", "2026-11-20 00:00", ["Sun 22 Nov 07:00 CET"]),
        ("0 0 L * *", "2026-11-20 00:00", ["Mon 30 Nov 00:00 CET"]),
        ("0 0 * * 5L", "2026-11-20 00:00", ["Fri 27 Nov 00:00 CET"]),
        ("0 0 * * 1#2", "2026-11-20 00:00", ["Mon 14 Dec 00:00 CET"]),
        # The first of the month or a Monday; to APScheduler a first that is one.
        ("0 9 1 * mon", "2026-11-20 00:00", ["Mon 23 Nov 09:00 CET", "Mon 30 Nov 09:00 CET", "Tue 01 Dec 09:00 CET"]),
        # The clocks go forward: right after the gap; APScheduler names a time that is not there.
        ("30 2 * * *", "2026-03-29 00:00", ["Sun 29 Mar 03:00 CEST"]),
        # The clocks go back: once; APScheduler twice.
        ("30 2 * * *", "2026-10-25 00:00", ["Sun 25 Oct 02:30 CEST", "Mon 26 Oct 02:30 CET"]),
    ],
)  # fmt: skip
def test_cron_is_as_in_a_crontab_and_not_as_apscheduler_reads_it(
    expression: str, start: str, expected: list[str]
) -> None:
    assert _ours(expression, start, len(expected)) == expected
    assert _theirs(expression, start, len(expected)) != expected, (
        "APScheduler has changed: see docs/decisions.md"
    )


def test_the_calendar_of_apscheduler_leaves_out_days_that_are_not_there() -> None:
    """Months without a 31st, and days without the time."""
    monthly = CalendarIntervalTrigger(months=1, start_date="2026-01-31", hour=7, timezone=ZURICH)
    first = monthly.get_next_fire_time(None, datetime(2026, 1, 1, tzinfo=ZURICH))
    assert f"{monthly.get_next_fire_time(first, first):%d %b}" == "31 Mar"
    daily = CalendarIntervalTrigger(days=1, start_date="2026-03-28", hour=2, minute=30, timezone=ZURICH)
    first = daily.get_next_fire_time(None, datetime(2026, 3, 1, tzinfo=ZURICH))
    assert f"{daily.get_next_fire_time(first, first):%d %b}" == "30 Mar"
