"""The database goes away and comes back: runners wait for it, callers wait as long as they chose."""

from __future__ import annotations

import math
import resource
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.faults.test_database_refuses import Server, server
from tests.loaded_python import Python
from tests.patience import wait_until
from tests.store.test_lost_commits import Wire, wire

from lcp_engine import Engine
from lcp_engine.cli.console.signals import Interrupts, work
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.planners.base import Question, Reply
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.transaction import Tx

__all__ = ["server", "wire"]

AWAY, BACK = "waiting for the database, which has been away for", "the database is back after"
FILES = 60


def test_lcp_work_waits_for_a_server_that_is_away_and_does_every_job_once(
    server: Server, tmp_path: Path
) -> None:
    url = server.create()
    mission = _launch(url, tmp_path)
    with _working(url) as runner:
        _wait_until_some_succeeded(url, runner)
        server.stop()
        said = _read_until(runner, AWAY)
        server.start()
        rest = runner.communicate()[1]
    assert runner.returncode == 0, said + rest
    assert BACK in rest
    _check_each_once(url, mission)


def test_lcp_work_that_waits_for_a_server_ends_when_it_is_told_to(server: Server, tmp_path: Path) -> None:
    url = server.create()
    _launch(url, tmp_path)
    with _working(url) as runner:
        _wait_until_some_succeeded(url, runner)
        server.stop()
        _read_until(runner, AWAY)
        runner.send_signal(signal.SIGTERM)
        rest = runner.communicate()[1]
    assert runner.returncode == 1
    assert "database 127.0.0.1/postgres refused" in rest
    server.start()


def test_lcp_work_waits_for_a_disk_that_is_full_and_goes_on(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path)
    mission = _launch(url, tmp_path)
    size = (tmp_path / "lcp.db").stat().st_size

    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, {(size + 100_000, hard)})"
    with _working(url, limit) as runner:
        _read_until(runner, AWAY)
        unlimited = resource.prlimit(runner.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(runner.pid, resource.RLIMIT_FSIZE, (unlimited, unlimited))
        rest = runner.communicate()[1]
    assert runner.returncode == 0, rest
    assert BACK in rest
    _check_each_once(url, mission)


def test_after_a_signal_nothing_waits_for_a_server_although_the_runner_has_ended(wire: Wire) -> None:
    interrupts = Interrupts()
    with Engine(wire.url, away_seconds=math.inf) as engine:

        def poll() -> bool:
            wire.is_down = True
            wire.drop_all()
            interrupts.receive(signal.SIGTERM, None)
            wait_until(
                lambda: "lcp-runner" not in [thread.name for thread in threading.enumerate()],
                "the runner goes on",
            )
            return bool(engine.event_counts())

        with ThreadPoolExecutor(1) as threads:
            working = threads.submit(work, engine.runner(), interrupts, poll, lambda line: None)
            try:
                error = working.exception(60)
            finally:
                wire.is_down = False
    assert isinstance(error, LcpError)
    assert error.code is ErrorCode.DATABASE_FAILED


def test_callers_give_up_when_they_have_waited_as_long_as_they_chose(wire: Wire) -> None:
    database = open_database(wire.url, away_seconds=0.3)
    wire.is_down = True
    wire.drop_all()
    began = time.monotonic()
    with ThreadPoolExecutor(8) as threads:
        writes = [threads.submit(database.write, lambda tx: tx.plain("SELECT 1")) for _ in range(4)]
        reads = [threads.submit(database.read, lambda tx: tx.plain("SELECT 1")) for _ in range(4)]
        errors = [one.exception() for one in (*writes, *reads)]
    assert {error.code for error in errors if isinstance(error, LcpError)} == {ErrorCode.DATABASE_FAILED}
    assert time.monotonic() - began >= 0.3
    wire.is_down = False
    assert database.read(lambda tx: tx.query_plain("SELECT 1")) == [(1,)]
    database.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_in_doubt_is_asked_about_when_the_server_is_back(wire: Wire, cut: str) -> None:
    told: list[str] = []
    is_told = threading.Event()

    def tell(line: str) -> None:
        told.append(line)
        is_told.set()

    database = open_database(wire.url, away_seconds=math.inf)
    database.outage.tell = tell
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    wire.cut, wire.is_down_after_cut = cut, True
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(database.write, lambda tx: tx.plain("INSERT INTO notes VALUES (1)"))
        assert is_told.wait(60)
        wire.is_down = False
        written.result()
    assert AWAY in told[0]
    assert BACK in told[-1]
    assert database.read(lambda tx: tx.query_plain("SELECT n FROM notes")) == [(1,)]
    database.close()


def test_others_wait_on_when_the_one_who_led_their_commit_gives_up(wire: Wire) -> None:
    database = open_database(wire.url, away_seconds=1.0)
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    wire.cut, wire.is_down_after_cut = "after", True
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(database.write, lambda tx: tx.plain("INSERT INTO notes VALUES (1)"))
        wait_until(lambda: database.outage.is_on, "the outage was not noticed")
        time.sleep(0.6)
        second = threads.submit(database.write, lambda tx: tx.plain("INSERT INTO notes VALUES (2)"))
        with pytest.raises(LcpError, match="it is unknown whether it took effect"):
            first.result()
        wire.is_down = False
        second.result()
    assert database.read(_notes) == [(1,), (2,)], "the first one took effect"
    database.close()


def test_a_database_that_stays_full_is_an_error_at_once_unless_the_caller_chose_to_wait(
    tmp_path: Path,
) -> None:
    database = open_database(sqlite_url(tmp_path))
    (pages,) = database.read(lambda tx: tx.query_plain("PRAGMA page_count"))[0]
    database.write(lambda tx: tx.query_plain(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(LcpError, match="needs space on its disk"):
        database.write(_fill)
    database.close()


def test_a_paid_reply_waits_for_a_database_that_others_keep_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    class Paid:
        def answer(self, question: Question) -> Reply:
            asked.append(question.number)
            locked = sqlite3.connect(tmp_path / "lcp.db", isolation_level=None, check_same_thread=False)
            locked.execute("BEGIN IMMEDIATE")
            threading.Timer(1.5, locked.close).start()
            return Reply('{"ok": true, "action": "mission_complete", "summary": "paid for"}', None, 7, 5)

    monkeypatch.setattr("lcp_engine.runner.open_missions.make_planner", lambda spec, environment: Paid())
    with Engine(sqlite_url(tmp_path), busy_seconds=0.1) as engine:
        spec: dict[str, JsonValue] = {"goal": "g", "planner": {"type": "script", "replies": []}}
        mission = engine.launch(spec, root=tmp_path)
        engine.work(until_idle=True)
        ended = engine.mission(mission.id)
    assert asked == [1]
    assert (ended.summary, ended.json["tokens"]) == ("paid for", {"input": 7, "output": 5})


def _notes(tx: Tx) -> list[object]:
    return [tuple(row) for row in tx.query_plain("SELECT n FROM notes ORDER BY n")]


def _fill(tx: Tx) -> None:
    tx.plain("CREATE TABLE filler AS SELECT zeroblob(1000000)")


def _launch(url: str, directory: Path) -> int:
    """A mission with `FILES` jobs that read a file."""
    root = directory / "root"
    root.mkdir()
    with Engine(url) as engine:
        spec: dict[str, JsonValue] = {"name": "m", "goal": "g", "planner": {"type": "script", "replies": []}}
        mission = engine.launch(spec, root=root).id
        for n in range(FILES):
            (root / f"{n}.txt").write_text(f"{n}" * 15_000)
            engine.enqueue("read_file", {"rel_path": f"{n}.txt"}, mission_id=mission)
    return mission


@contextmanager
def _working(url: str, first: str = "") -> Iterator[Python]:
    given = ("--db", url, "work", "--until-idle", "--kind", "read_file")
    with Python(
        "-c", f"{first}\nfrom lcp_engine.cli import main; main()", *given, stderr=subprocess.PIPE
    ) as runner:
        try:
            yield runner
        finally:
            if runner.poll() is None:
                runner.kill()


def _read_until(runner: subprocess.Popen[str], wanted: str) -> str:
    assert runner.stderr is not None
    said = ""
    for line in runner.stderr:
        said += line
        if wanted in line:
            return said
    pytest.fail(f"it ended with {runner.wait()} and never said {wanted!r}: {said}")


def _wait_until_some_succeeded(url: str, runner: Python) -> None:
    with Engine(url) as engine:
        while not engine.jobs(kinds=["read_file"], states=["succeeded"], limit=1):
            assert runner.poll() is None, runner.communicate()
            time.sleep(0.01)


def _check_each_once(url: str, mission: int) -> None:
    with Engine(url) as engine:
        jobs = engine.jobs(kinds=["read_file"])
        assert [job.state for job in jobs] == ["succeeded"] * FILES
        settled = [event["job_id"] for event in engine.events(mission, event="succeeded")]
        assert sorted(map(str, settled)) == sorted(str(job.id) for job in jobs)
    assert check_database(url) == []
