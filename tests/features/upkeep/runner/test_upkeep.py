"""Runners keep the database: one of them at each due time, whatever fails, and without anybody thinking of it."""

from __future__ import annotations

import logging
import stat
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.patience import wait_until

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.config_file import parse_config
from lcp_engine.errors import LcpError
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.features.upkeep.chores import Housekeeper
from lcp_engine.features.upkeep.settings import Duty
from lcp_engine.features.upkeep.store.backup import back_up
from lcp_engine.features.upkeep.store.backups import Names
from lcp_engine.features.upkeep.store.upkeep import UpkeepRow, duties, take
from lcp_engine.operation import Backups, Checks, Retention, Upkeep
from lcp_engine.runner.runner import Runner
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx

DAY = 86_400 * SECOND
START = 1_795_000_000 * SECOND
SOON = 60.0
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
SPEC: dict[str, JsonValue] = {"goal": "Look.", "planner": {"type": "script", "replies": [DONE]}}


class Lab:
    """A database whose time a test sets, and runners that keep it."""

    def __init__(self, url: str, upkeep: Upkeep) -> None:
        self.now = START
        self.engine = Engine(url, clock=lambda: self.now, upkeep=upkeep)
        self.url = url

    def runner(self, name: str) -> Housekeeper:
        runner = self.engine.instance.database.write(
            lambda tx: queue.add_runner(tx, uid=name, host="here", boot="here", pid=1)
        )
        return Housekeeper(self.engine.instance, runner, lambda: False)

    def round(self, housekeeper: Housekeeper) -> None:
        for one in housekeeper.rounds():
            housekeeper.do(one)

    def row(self, duty: Duty) -> UpkeepRow:
        return self.engine.instance.database.read(duties)[duty]


@pytest.fixture
def lab(database_url: str, tmp_path: Path) -> Iterator[Lab]:
    (tmp_path / "to").mkdir()
    upkeep = Upkeep(backup=Backups(every=timedelta(days=1), keep=2, to=str(tmp_path / "to")))
    made = Lab(database_url, upkeep)
    yield made
    made.engine.close()


def test_each_due_time_has_one_backup_and_the_newest_stay(lab: Lab, tmp_path: Path) -> None:
    crew = [lab.runner("a"), lab.runner("b")]
    names = Names(lab.url, lab.engine.instance.database.backend)
    kept = tmp_path / "to" / "mine.db"
    kept.write_text("not a backup of the engine's")
    broken = tmp_path / "to" / f".{names.at(START)}.0123456789abcdef"
    broken.touch()
    for day in range(4):
        lab.now = START + day * DAY
        for one in crew:
            lab.round(one)
        files = names.found(tmp_path / "to")
        assert files[-1].name == names.at(lab.now)
        assert stat.S_IMODE(files[-1].stat().st_mode) == 0o600
    assert [file.name for file in names.found(tmp_path / "to")] == [
        names.at(START + 2 * DAY),
        names.at(START + 3 * DAY),
    ]
    assert (kept.exists(), broken.exists()) == (True, False)
    assert lab.row(Duty.BACKUP).next_at == START + 4 * DAY


def test_what_a_dead_runner_has_begun_is_another_ones_and_that_of_a_living_one_is_not(lab: Lab) -> None:
    database, first, second = lab.engine.instance.database, lab.runner("a"), lab.runner("b")

    def begin(tx: Tx) -> bool:
        return take(tx, Duty.BACKUP, 1, DAY) is not None

    assert database.write(begin)
    lab.round(second)
    assert lab.row(Duty.BACKUP).done_at is None
    lab.now += 600 * SECOND
    lab.round(second)
    assert lab.row(Duty.BACKUP).done_at == lab.now
    lab.round(first)
    assert lab.row(Duty.BACKUP).due_at == START + DAY


def test_a_backup_that_fails_is_said_and_tried_again_later_each_time(
    lab: Lab, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "to").rmdir()
    runner = lab.runner("a")
    with caplog.at_level(logging.WARNING):
        for pause in (60, 120, 240):
            lab.round(runner)
            row = lab.row(Duty.BACKUP)
            assert row.next_at == lab.now + pause * SECOND
            lab.now = row.next_at
    assert len(caplog.records) == 3
    assert "which does not exist" in (lab.row(Duty.BACKUP).error or "")
    (tmp_path / "to").mkdir()
    lab.round(runner)
    row = lab.row(Duty.BACKUP)
    assert (row.error, row.failures, row.next_at) == (None, 0, START + DAY)


def test_days_without_a_runner_are_one_backup_and_a_shorter_rhythm_counts_at_once(lab: Lab) -> None:
    runner = lab.runner("a")
    lab.round(runner)
    lab.now += 10 * DAY + 5 * SECOND
    lab.round(runner)
    row = lab.row(Duty.BACKUP)
    assert row.next_at == START + 11 * DAY
    assert row.begins_at(3600 * SECOND) == lab.now + 3600 * SECOND


def test_retention_removes_what_ended_long_ago(database_url: str, tmp_path: Path) -> None:
    lab = Lab(database_url, Upkeep(retention=Retention(after=timedelta(days=30))))
    for _ in range(3):
        lab.engine.launch(SPEC, root=tmp_path)
    lab.engine.work(until_idle=True)
    lab.now += 31 * DAY
    lab.engine.launch(SPEC, root=tmp_path)
    lab.engine.work(until_idle=True)
    lab.round(lab.runner("a"))
    assert [mission.id for mission in lab.engine.missions()] == [4]
    assert '"missions":3' in (lab.row(Duty.RETENTION).found or "").replace(" ", "")
    lab.engine.close()


def test_a_check_says_what_it_found(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lab = Lab(database_url, Upkeep(check=Checks(every=timedelta(days=7))))
    lab.engine.launch(SPEC, root=tmp_path)
    lab.engine.work(until_idle=True)
    lab.engine.instance.database.write(lambda tx: tx.plain("UPDATE missions SET events = events + 1"))
    with caplog.at_level(logging.WARNING):
        lab.round(lab.runner("a"))
    assert "lcp db check" in caplog.text
    assert '"faults":0' not in (lab.row(Duty.CHECK).found or "").replace(" ", "")
    lab.engine.close()


def test_a_runner_does_it_by_itself(database_url: str, tmp_path: Path) -> None:
    upkeep = Upkeep.model_validate(
        {"retention": "30d", "backup": {"every": "daily", "to": str(tmp_path)}, "check": "weekly"}
    )
    with Engine(database_url, upkeep=upkeep) as engine:
        runner = Runner(engine.instance)
        running = threading.Thread(target=runner.run)
        running.start()
        database = engine.instance.database
        wait_until(lambda: sum(row.done_at is not None for row in database.read(duties).values()) == 3)
        runner.stop()
        running.join(SOON)
        (file,) = Names(database_url, database.backend).found(tmp_path)
    if database_url.startswith("sqlite"):
        assert check_database(f"sqlite:///{file}") == []


def test_a_backup_ends_with_its_runner_and_leaves_nothing(database_url: str, tmp_path: Path) -> None:
    with Engine(database_url) as engine:
        if database_url.startswith("sqlite"):  # long enough to be interrupted
            engine.instance.database.write(
                lambda tx: tx.plain(
                    "INSERT INTO results SELECT value, 1000, hex(randomblob(500)) FROM "
                    "(WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n LIMIT 20000) "
                    "SELECT value FROM n)"
                )
            )
            with pytest.raises(LcpError, match="interrupted"):
                back_up(database_url, tmp_path / "copy.db", is_stopping=lambda: True)
    assert not [path for path in tmp_path.iterdir() if "copy" in path.name]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("retention: 30", "retention.after: 30 is given; a duration such as 30d or 12w is expected"),
        ("retention: 30x", "retention.after: '30x' is given"),
        ("retention: 0d", "retention.after: '0d' is given"),
        ("retention: -3d", "retention.after: '-3d' is given"),
        (
            "backup: daily, keep 0",
            "backup: 'daily, keep 0' is given; a rhythm and a number from 1 are expected",
        ),
        ("backup: dayly", "backup.every: 'dayly' is given; hourly, daily, weekly or a duration"),
        ("backup: {every: daily, keep: -1}", "backup.keep: "),
        ("backup: {every: daily, kep: 1}", "backup.kep: is not a known key; "),
        ("check: true", "check.every: True is given"),
    ],
)
def test_what_the_configuration_cannot_mean_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        parse_config(text, Path("config.yaml"))
    assert str(refused.value).startswith(f"config.yaml: {said}")
    assert "\n" not in str(refused.value)


def test_the_short_forms_mean_the_long_ones() -> None:
    config: object = parse_config(
        "retention: 30d\nbackup: daily, keep 3\ncheck: weekly\n", Path("config.yaml")
    )
    assert isinstance(config, Upkeep)
    assert config.retention == Retention(after=timedelta(days=30))
    assert config.backup == Backups(every=timedelta(days=1), keep=3)
    assert config.check == Checks(every=timedelta(weeks=1))
