"""The database refuses or goes away: a clear error or a wait; nothing is lost or done twice."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from pydantic import BaseModel

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.store.db.open import open_database
from lcp_engine.workers.base import Context, Outcome, Worker

CLI = [sys.executable, "-m", "lcp_engine"]


class Note(BaseModel):
    """`n` identifies the job, `text` makes it large."""

    n: int
    text: str = ""


class Bench:
    """A worker that records what it executes."""

    def __init__(self) -> None:
        self.executed: list[int] = []
        self.at_ten = threading.Event()

    def note(self, params: Note, context: Context) -> Outcome:
        self.executed.append(params.n)
        if len(self.executed) == 10:
            self.at_ten.set()
        return params

    def workers(self) -> list[Worker[BaseModel]]:
        return [
            Worker(
                kind="note", params=Note, result=Note, execute=self.note, has_effects=False
            ).for_any_params()
        ]


def test_a_full_database_says_so_and_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    bench, url = Bench(), f"sqlite:///{tmp_path / 'lcp.db'}"
    acknowledged: list[int] = []
    with Engine(url, workers=bench.workers()) as engine:
        database = engine.instance.database
        (pages,) = database.read(lambda tx: tx.query_plain("PRAGMA page_count"))[0]
        database.write(lambda tx: tx.query_plain(f"PRAGMA max_page_count = {pages + 20}"))

        def fill() -> None:
            for n in range(1000):
                engine.enqueue("note", {"n": n, "text": "x" * 1000})
                acknowledged.append(n)

        with pytest.raises(LcpError, match="needs space on its disk") as refused:
            fill()
        assert refused.value.code is ErrorCode.DATABASE_FAILED
        assert acknowledged
        database.write(lambda tx: tx.query_plain("PRAGMA max_page_count = 100000"))
        engine.work(until_idle=True)
        assert bench.executed == acknowledged
        assert {job.state for job in engine.jobs()} == {"succeeded"}
    assert check_database(url) == []


@pytest.mark.proof
def test_a_runner_whose_file_cannot_grow_ends_in_one_line_and_another_goes_on(tmp_path: Path) -> None:
    url, root = f"sqlite:///{tmp_path / 'lcp.db'}", tmp_path / "root"
    root.mkdir()
    for n in range(20):
        (root / f"{n}.txt").write_text("x" * 50_000)
    with Engine(url) as engine:
        mission = engine.launch(
            {"name": "m", "goal": "g", "planner": {"type": "script", "replies": []}}, root=root
        ).id
        for n in range(20):
            engine.enqueue("read_file", {"rel_path": f"{n}.txt"}, mission_id=mission)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    said = subprocess.run(
        [*CLI, "--db", url, "work", "--until-idle", "--kind", "read_file", "--give-up-after", "0"],
        capture_output=True, text=True, check=False, preexec_fn=limited,
    )  # fmt: skip
    assert said.returncode == 1, said
    assert said.stderr.splitlines()[-1] == f"database {tmp_path / 'lcp.db'} refused: disk I/O error"
    assert "Traceback" not in said.stderr
    assert check_database(url) == []
    with Engine(url) as engine:
        engine.work(until_idle=True, kinds=["read_file"])
        jobs = engine.jobs(kinds=["read_file"])
        assert {job.state for job in jobs} == {"succeeded"}
        for job in jobs:
            events = [event["event"] for event in engine.events(mission, job_id=job.id)]
            assert events.count("succeeded") == 1


def test_a_read_only_database_is_refused_in_words(tmp_path: Path) -> None:
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}", workers=Bench().workers()) as engine:
        engine.instance.database.write(lambda tx: tx.plain("PRAGMA query_only = ON"))
        with pytest.raises(LcpError, match="is not writable") as refused:
            engine.enqueue("note", {"n": 1})
        assert refused.value.code is ErrorCode.DATABASE_FAILED


def test_a_clock_that_is_set_back_loses_no_job_and_hands_none_out_twice(database_url: str) -> None:
    bench, now = Bench(), [10_000 * SECOND]
    with Engine(database_url, workers=bench.workers(), clock=lambda: now[0]) as engine:
        before = [engine.enqueue("note", {"n": n}) for n in range(3)]
        engine.work(until_idle=True)
        now[0] -= 3600 * SECOND
        after = [engine.enqueue("note", {"n": n}) for n in range(3, 6)]
        engine.work(until_idle=True)
        assert bench.executed == list(range(6))
        assert {engine.job(job).state for job in (*before, *after)} == {"succeeded"}
    assert check_database(database_url) == []


def test_connections_that_are_cut_again_and_again_end_no_runner(postgres_url: str) -> None:
    def cut(params: Note, context: Context) -> Outcome:
        if params.n % 20 == 0:
            with psycopg.connect(postgres_url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        return params

    worker = Worker(kind="cut", params=Note, result=Note, execute=cut, has_effects=False).for_any_params()
    with Engine(postgres_url, workers=[worker]) as engine:
        for n in range(100):
            engine.enqueue("cut", {"n": n})
        engine.work(until_idle=True, threads=2)
        _each_once(engine, 100)
    assert check_database(postgres_url) == []


class Server:
    """A private PostgreSQL on loopback; it refuses to run as root, so root starts it as `postgres`."""

    def __init__(self, directory: Path) -> None:
        self._data = directory / "db"
        self._directory = directory
        self._programs = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path())
        self._as_user = ["runuser", "--user", "postgres", "--"] if os.getuid() == 0 else []

    @property
    def is_installed(self) -> bool:
        return (self._programs / "initdb").exists()

    def create(self) -> str:
        if os.getuid() == 0:
            shutil.chown(self._directory, "postgres")
        self._do("initdb", "--pgdata", self._data, "--username", "postgres", "--auth", "trust", "--no-sync")
        self._port = _free_port()
        self.start()
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        options = (
            f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='{self._directory}'"
        )
        log = self._directory / "log"
        self._do("pg_ctl", "--pgdata", self._data, "--log", log, "--wait", "start", "--options", options)

    def stop(self) -> None:
        self._do("pg_ctl", "--pgdata", self._data, "--mode", "immediate", "--wait", "stop")

    def make_replica(self) -> None:
        """Let it start as one that follows a primary."""
        self._do_any("touch", self._data / "standby.signal")

    def _do(self, program: str, *given: object) -> None:
        self._do_any(str(self._programs / program), *given)

    def _do_any(self, *given: object) -> None:
        command = [*self._as_user, *map(str, given)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self._directory)


@pytest.fixture
def server() -> Iterator[Server]:
    with _short_directory() as directory:
        server = Server(directory)
        if not server.is_installed:
            pytest.skip("the PostgreSQL server is not installed")
        yield server
        server.stop()


def test_a_server_that_dies_and_comes_back_is_waited_for(server: Server) -> None:
    bench, url = Bench(), server.create()
    with Engine(url, workers=bench.workers()) as engine, ThreadPoolExecutor(1) as threads:
        for n in range(300):
            engine.enqueue("note", {"n": n})
        running = threads.submit(lambda: engine.work(until_idle=True))
        bench.at_ten.wait()
        server.stop()
        server.start()
        running.result()
        _each_once(engine, 300)
    assert check_database(url) == []


def test_an_id_that_a_dead_server_forgot_is_no_commit_of_whoever_gets_it_next(server: Server) -> None:
    database = open_database(server.create())
    backend, at = database.backend, database.now()
    lost = backend.connect()
    backend.begin(lost)
    forgotten = backend.transaction(lost)
    assert forgotten is not None
    server.stop()
    server.start()
    asked, other = backend.connect(), backend.connect()
    assert backend.has_committed(asked, forgotten, at) is False
    given = ""
    while given != forgotten.split()[0]:
        backend.begin(other)
        given = (backend.transaction(other) or "").split()[0]
        other.cursor().execute("CREATE TABLE IF NOT EXISTS notes (n INTEGER)")
        assert backend.has_committed(asked, forgotten, at) is not True  # and ends no other transaction
        other.cursor().execute("COMMIT")
    assert backend.has_committed(asked, forgotten, at) is False
    for connection in (lost, asked, other):
        connection.close()
    database.close()


def _each_once(engine: Engine, count: int) -> None:
    jobs = engine.jobs()
    assert [job.state for job in jobs] == ["succeeded"] * count
    settled = [event["job_id"] for event in engine.events(jobs[0].mission_id, event="succeeded")]
    assert sorted(map(str, settled)) == sorted(str(job.id) for job in jobs)


def _free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@contextmanager
def _short_directory() -> Iterator[Path]:
    """A directory of its own: a socket's path has at most 107 bytes, and other users must reach it."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="lcp-postgres-") as directory:
        yield Path(directory)
