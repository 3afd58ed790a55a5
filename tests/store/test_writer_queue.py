"""Writers of different processes queue: one at a time, in the order in which they came, even if some die."""

from __future__ import annotations

import os
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.conftest import sqlite_url
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.features.upkeep.store.prune import Work, sweep
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.writer_queue import WriterQueue, open_writer_queue

IN_LINE = """
import sys
from pathlib import Path
from lcp_engine.store.host.writer_queue import open_writer_queue
with open_writer_queue(Path(sys.argv[1]), 60.0):
    print("first", flush=True)
    sys.stdin.readline()
"""
COUNTING = """
import sys
from pathlib import Path
from lcp_engine.store.host.writer_queue import open_writer_queue
line, count = open_writer_queue(Path(sys.argv[1]), 60.0), Path(sys.argv[2])
for _ in range(100):
    with line:
        count.write_text(str(int(count.read_text()) + 1))
"""
ANOTHER_PROGRAM = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("first", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "writers.line"


@pytest.fixture
def line(place: Path) -> Iterator[WriterQueue]:
    with closing(_line(place, 60.0)) as line:
        yield line


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(script: str, *arguments: object) -> subprocess.Popen[str]:
        started.append(Python("-c", script, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_who_came_first_goes_first(line: WriterQueue, place: Path, start: Start) -> None:
    with line:
        waiting = [_waiting(start, place, number) for number in (2, 3, 4)]
    for process in waiting:
        assert _says(process) == "first"
        others = [other for other in waiting if other is not process and other.poll() is None]
        assert all(_has_said_nothing(other) for other in others)
        _leaves(process)


def test_whoever_leaves_goes_behind_those_who_wait(line: WriterQueue, place: Path, start: Start) -> None:
    with line:
        waiting = _waiting(start, place, 2)
    again = threading.Thread(target=_pass_through, args=(line,))
    again.start()
    assert _says(waiting) == "first"
    _drawn(place, 3)
    assert again.is_alive()
    _leaves(waiting)
    again.join()


def test_one_process_at_a_time_is_first(line: WriterQueue, place: Path, tmp_path: Path, start: Start) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    processes = [start(COUNTING, place, count) for _ in range(4)]
    assert [process.wait() for process in processes] == [0, 0, 0, 0]
    assert count.read_text() == "400"


def test_the_death_of_the_first_one_lets_the_next_one_in(
    place: Path, line: WriterQueue, start: Start
) -> None:
    first = start(IN_LINE, place)
    assert _says(first) == "first"
    second = _waiting(start, place, 2)
    first.kill()
    assert _says(second) == "first"


def test_the_death_of_one_that_waits_holds_up_nobody(line: WriterQueue, place: Path, start: Start) -> None:
    with line:
        second, third = _waiting(start, place, 2), _waiting(start, place, 3)
        second.kill()
        second.wait()
        assert _has_said_nothing(third)  # the one before it is still there
    assert _says(third) == "first"


def test_who_loses_patience_goes_ahead_and_the_queue_goes_on(
    line: WriterQueue, place: Path, start: Start
) -> None:
    with closing(_line(place, 0.05)) as hasty:
        with line:
            _pass_through(hasty)
            third = start(IN_LINE, place)
            assert _says(third) == "first"
            fourth = _waiting(start, place, 4)
            assert _has_said_nothing(fourth)
            _leaves(third)
            assert _says(fourth) == "first"
        _leaves(fourth)
    _pass_through(line)


def test_an_interrupt_leaves_the_place_to_others(line: WriterQueue, place: Path, start: Start) -> None:
    class Interrupted(Exception):
        pass

    with pytest.raises(Interrupted), line:
        raise Interrupted
    assert _says(start(IN_LINE, place)) == "first"


def test_bytes_whose_turn_is_over_are_given_back(line: WriterQueue, place: Path) -> None:
    made = open_writer_queue(place, 60.0)
    assert made is not None
    with closing(made) as other:
        for _ in range(300):
            with line:
                pass
            with other:
                pass
        inode = f":{place.stat().st_ino} "
        kept = [lock for lock in Path("/proc/locks").read_text().splitlines() if inode in lock]
    assert 0 < len(kept) < 200


def test_a_machine_without_a_place_for_the_line_has_none(tmp_path: Path) -> None:
    assert open_writer_queue(tmp_path, 1.0) is None
    assert open_writer_queue(tmp_path / "absent" / "writers.line", 1.0) is None


def test_programs_that_do_not_stand_in_line_are_waited_for(tmp_path: Path, start: Start) -> None:
    with Engine(sqlite_url(tmp_path)) as engine:
        other = start(ANOTHER_PROGRAM, tmp_path / "lcp.db")
        assert _says(other) == "first"
        jobs: list[int] = []
        enqueuing = threading.Thread(target=lambda: jobs.append(engine.enqueue("read_file", {"path": "a"})))
        enqueuing.start()
        assert not jobs
        _leaves(other)
        enqueuing.join()
        assert engine.job(jobs[0]).state == "queued"


def test_who_lets_others_pass_goes_on_when_they_have_left(
    line: WriterQueue, place: Path, start: Start
) -> None:
    log: list[str] = []

    def pass_by() -> None:
        beside.wait_for_current()
        log.append("passed")

    with closing(line.for_another_thread()) as beside:
        with line:
            waiting = _waiting(start, place, 2)
            passing = threading.Thread(target=pass_by)
            passing.start()
        assert _says(waiting) == "first"
        log.append("left")
        _leaves(waiting)
        passing.join()
    assert log == ["left", "passed"]


def test_who_died_in_line_is_not_waited_for_for_ever(line: WriterQueue, place: Path, start: Start) -> None:
    first = start(IN_LINE, place)
    assert _says(first) == "first"
    first.kill()
    line.wait_for_current()


def test_a_prune_lets_those_in_who_wait_before_its_time_is_over(tmp_path: Path) -> None:
    log: list[str] = []
    with Engine(sqlite_url(tmp_path)) as engine, ThreadPoolExecutor(1) as pool:
        database, place = engine.instance.database, engine.instance.runtime / "writers.line"

        def remove(tx: Tx, some: Sequence[int]) -> int:
            if not log:
                number = _last_drawn(place)
                pool.submit(database.write, lambda tx: log.append("written"))
                _drawn(place, number + 1)
            log.append("removed")
            return len(some)

        with sweep(database, lambda: 0.0) as sweeping:
            sweeping.remove([Work(range(100), remove)])
    assert log[:3] == ["removed", "written", "removed"]


def _line(place: Path, seconds: float) -> WriterQueue:
    line = open_writer_queue(place, seconds)
    assert line is not None
    return line


def _pass_through(line: WriterQueue) -> None:
    with line:
        pass


def _waiting(start: Start, place: Path, number: int) -> subprocess.Popen[str]:
    """A process that has drawn that number."""
    process = start(IN_LINE, place)
    _drawn(place, number)
    return process


def _drawn(place: Path, number: int) -> None:
    """Returns once that number is drawn."""
    while _last_drawn(place) < number:
        os.sched_yield()


def _last_drawn(place: Path) -> int:
    number: int = struct.unpack_from("q", place.read_bytes())[0]
    return number


def _says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _has_said_nothing(process: subprocess.Popen[str]) -> bool:
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    try:
        return not os.read(process.stdout.fileno(), 1)
    except BlockingIOError:
        return True
    finally:
        os.set_blocking(process.stdout.fileno(), True)


def _leaves(process: subprocess.Popen[str]) -> None:
    assert process.communicate("\n")[0] == ""
    assert process.returncode == 0
