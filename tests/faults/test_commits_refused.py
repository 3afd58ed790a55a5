"""The disk refuses a commit: the caller gets a true answer, nothing is lost, and nothing is done twice."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.faults.refused import COUNT, WELL, WORKERS
from tests.faults.refusing import can_refuse

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.store.db.sqlite import LOG_PAGES

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(not can_refuse(), reason="this kernel filters no system calls"),
]

PROJECT = Path(__file__).resolve().parent.parent.parent
SPEC: dict[str, JsonValue] = {
    "name": "refused",
    "goal": "g",
    "planner": {"type": "script", "replies": []},
    "policy": [{"kinds": ["*"], "do": "auto"}],
}
CHECKPOINT = LOG_PAGES * 4096
"""SQLite copies its log to the database after this many bytes."""
SYNC, WRITE = ("fsync", "fdatasync"), ("pwrite64", "write")
UNKNOWN = "it is unknown whether the last change was kept"


def _run(does: str, url: str, ending: str, code: int, calls: tuple[str, ...]) -> dict[int, str | None]:
    """The message of each refusal by number; None for what was acknowledged."""
    command = [sys.executable, "-m", "tests.faults.refused", does, url, ending, str(code), *calls]
    said = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (said.returncode, said.stderr) == (-signal.SIGKILL, "")
    told: dict[int, str | None] = {}
    for line in said.stdout.splitlines():
        word, n, *rest = line.split(" ", 2)
        told[int(n)] = None if word == "acknowledged" else rest[0]
    return told


@pytest.mark.parametrize(
    ("calls", "code"), [(SYNC, errno.EIO), (WRITE, errno.EIO), (WRITE, errno.ENOSPC), (WRITE, errno.EDQUOT)]
)
def test_a_commit_that_the_disk_refuses_is_not_acknowledged(
    tmp_path: Path, calls: tuple[str, ...], code: int
) -> None:
    url = _database(tmp_path)
    told = _run("enqueue", url, "-wal", code, calls)
    refused = {n: words for n, words in told.items() if words is not None}
    assert list(refused) == [WELL, WELL + 1, WELL + 2]
    with Engine(url, workers=WORKERS) as engine:
        there = [int(str(job.params["n"])) for job in engine.jobs()]
    assert there[:WELL] == list(range(WELL)), "what was acknowledged is on disk"
    # A log that was written and not synced may be whole after all, and the message says that.
    kept = refused[there[WELL]] if there[WELL:] else None
    assert len(there[WELL:]) <= 1
    assert kept is None or UNKNOWN in kept
    assert (UNKNOWN in refused[WELL]) == (calls == SYNC)
    assert check_database(url) == []


@pytest.mark.parametrize("calls", [SYNC, WRITE])
def test_a_checkpoint_that_the_disk_refuses_loses_nothing(tmp_path: Path, calls: tuple[str, ...]) -> None:
    url = _database(tmp_path)
    told = _run("enqueue", url, "", errno.EIO, calls)
    assert set(told.values()) == {None}
    log = tmp_path / "lcp.db-wal"
    assert log.stat().st_size > 2 * CHECKPOINT, "it would have been begun anew after a checkpoint"
    with Engine(url, workers=WORKERS) as engine:
        assert [job.params["n"] for job in engine.jobs()] == list(range(COUNT))
    assert check_database(url) == []


@pytest.mark.parametrize("calls", [SYNC, WRITE])
def test_a_runner_whose_commits_are_refused_ends_and_the_next_one_does_nothing_twice(
    tmp_path: Path, calls: tuple[str, ...]
) -> None:
    url = _database(tmp_path)
    with Engine(url, workers=WORKERS) as engine:
        mission = engine.launch(SPEC, root=_made(tmp_path / "root")).id
        for n in range(3 * WELL):
            engine.enqueue("line", {"n": n}, mission_id=mission)
    told = _run("work", url, "-wal", errno.EIO, calls)
    assert str(tmp_path / "lcp.db") in (told[0] or "")
    lines = tmp_path / "root" / "log.txt"
    assert len(lines.read_text().split()) < 3 * WELL, "it has ended"
    with Engine(url, workers=WORKERS) as engine:
        engine.work(until_idle=True, kinds=["line"])
        assert sorted(map(int, lines.read_text().split())) == list(range(3 * WELL))
        jobs = engine.jobs(kinds=["line"])
        assert {job.state for job in jobs} == {"succeeded"}
        for job in jobs:
            assert len(engine.events(mission, event="succeeded", job_id=job.id)) == 1
    assert check_database(url) == []


def _database(directory: Path) -> str:
    url = f"sqlite:///{directory / 'lcp.db'}"
    Engine(url).close()
    return url


def _made(directory: Path) -> Path:
    directory.mkdir()
    return directory
