"""Forked children, and processes that are stopped, keep nobody from writing: neither the database nor a file."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.conftest import sqlite_url
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.sandbox.locks import Wait, lock
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Context, Outcome, Worker

COMMON = """
import ctypes, os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

said, says = os.pipe()
signal.alarm(60)  # no child inherits it; those end with the test

def wait_for_end_of_test():
    os.write(says, b".")
    os.read(0, 1)
    os._exit(0)

def leave_child(how):
    if how == "pool":
        global pool
        pool = ProcessPoolExecutor(1)
        pool.submit(os.getpid).result()
    elif (os.fork if how == "fork" else ctypes.PyDLL(None).fork)() == 0:
        wait_for_end_of_test()
    else:
        os.read(said, 1)
"""
DIES_IN_LINE = """
from lcp_engine import Engine
engine = Engine(sys.argv[1])
with engine.instance.database.writer_queue:
    leave_child(sys.argv[2])
    os.kill(os.getpid(), signal.SIGKILL)
"""
STOPS_IN_LINE = """
from lcp_engine import Engine
from lcp_engine.store.host.writer_queue import WriterQueue
engine = Engine(sys.argv[1])
lock = WriterQueue._lock

def stops(queue, number):
    locked = lock(queue, number)
    os.kill(os.getpid(), signal.SIGSTOP)
    return locked

if sys.argv[2] == "while it draws":
    WriterQueue._lock = stops
with engine.instance.database.writer_queue:
    os.kill(os.getpid(), signal.SIGSTOP)
"""
LEAVES_CHILD_BEHIND_LOCK = """
from lcp_engine.sandbox.locks import lock
from lcp_engine.sandbox.root import Root
with lock([(Root(sys.argv[1]), "a.txt")]):
    leave_child(sys.argv[2])
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
print("left", flush=True)
wait_for_end_of_test()
"""
RUNS_POOL = """
from pydantic import BaseModel
from lcp_engine import Engine, Worker

class Empty(BaseModel):
    pass

def execute(params, context):
    with engine.instance.database.writer_queue.for_another_thread():  # as other threads of a runner all the time
        leave_child("pool")
        os.kill(os.getpid(), signal.SIGKILL)

worker = Worker(kind="pool", params=Empty, result=Empty, execute=execute, has_effects=False).for_any_params()
with Engine(sys.argv[1], workers=[worker]) as engine:
    engine.work(until_idle=True, kinds=["pool"])
"""
WATCHES_FOR_DEATHS = """
from lcp_engine.store.host.liveness import watch_for_deaths
end = watch_for_deaths(Path(sys.argv[1]), lambda: None)
leave_child("fork")
end()
print("done", flush=True)
"""
Start = Callable[..., Python]

DIES_IN_A_TRANSACTION = """
from lcp_engine import Engine
from lcp_engine.store.ledger import ledger_of
engine = Engine(sys.argv[1])

def die(tx):
    ledger_of(tx).mission(1)
    leave_child(sys.argv[2])
    os.kill(os.getpid(), signal.SIGKILL)

engine.instance.database.write(die)
"""
STARTS_WHILE_OTHERS_FORK = """
import subprocess, threading
from lcp_engine.sandbox.system.kept_descriptors import no_forks

def fork():
    for _ in range(200):
        if os.fork() == 0:
            wait_for_end_of_test()
        if is_done.is_set():
            break

is_done = threading.Event()
thread = threading.Thread(target=fork)
thread.start()
for _ in range(20):
    with no_forks():
        subprocess.Popen(["true"]).wait()
is_done.set()
thread.join()
print("done", flush=True)
"""
FORKS_WHILE_OTHERS_COME = """
import os, sys, threading

def hold_lock():
    from lcp_engine.sandbox.system.kept_descriptors import no_forks
    with no_forks():
        is_held.set()
        has_forked.wait()
    released.append(True)

def come():
    thread.start()
    is_held.wait()

thread, released = threading.Thread(target=hold_lock), []
is_held, has_forked = threading.Event(), threading.Event()
os.register_at_fork(before=come)
child = os.fork()
if child == 0:
    from lcp_engine.sandbox.system.kept_descriptors import no_forks
    with no_forks():
        os._exit(0)
has_forked.set()
thread.join()
sys.exit(os.waitpid(child, 0)[1] or not released)
"""


class Empty(BaseModel):
    """No params."""


def _succeed(params: Empty, context: Context) -> Outcome:
    return params


POOL = Worker(kind="pool", params=Empty, result=Empty, execute=_succeed, has_effects=False).for_any_params()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts scripts; the children that they leave behind end with the test."""
    ends, ours = os.pipe()
    started: list[Python] = []

    def start(script: str, *given: object) -> Python:
        process = Python(
            "-c", COMMON + script, *given, stdin=ends, stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    os.close(ours)
    os.close(ends)
    for process in started:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
        process.communicate()


@pytest.fixture
def url(tmp_path: Path) -> str:
    Engine(sqlite_url(tmp_path)).close()
    return sqlite_url(tmp_path)


def write(url: str) -> int:
    """Write as another process does, that would not wait for long."""
    with Engine(url, busy_seconds=5.0) as engine:
        return engine.enqueue("read_file", {"path": "a.txt"})


def locks_on(file: Path) -> list[str]:
    """The locks that any process holds on a file."""
    held = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return [line for line in held if f":{file.stat().st_ino} " in line]


@pytest.mark.parametrize("how", ["fork", "pool"])
def test_a_child_of_a_killed_writer_keeps_no_place_in_the_queue(start: Start, url: str, how: str) -> None:
    with Engine(url) as engine:
        line = engine.instance.runtime / "writers.line"
    start(DIES_IN_LINE, url, how).wait()
    assert locks_on(line) == []
    assert write(url)


def test_a_child_that_python_does_not_know_of_blocks_no_writer(start: Start, url: str) -> None:
    start(DIES_IN_LINE, url, "past Python").wait()
    assert write(url)


@pytest.mark.parametrize("when", ["while it draws", "at its turn"])
def test_a_process_that_is_stopped_in_the_queue_blocks_no_writer(start: Start, url: str, when: str) -> None:
    stopped = start(STOPS_IN_LINE, url, when)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    assert [write(url), write(url)] == [1, 2]
    until = time.monotonic() + 60
    while stopped.poll() is None and time.monotonic() < until:
        stopped.send_signal(signal.SIGCONT)
    assert (stopped.returncode, write(url)) == (0, 3)


def test_the_jobs_of_a_killed_runner_go_on_although_its_pool_lives(start: Start, url: str) -> None:
    with Engine(url, workers=[POOL]) as engine:
        job = engine.enqueue("pool", {})
        start(RUNS_POOL, url).wait()
        engine.work(until_idle=True)
        assert engine.job(job).state == "succeeded"


@pytest.mark.parametrize("how", ["fork", "pool"])
def test_a_child_keeps_no_transaction_of_a_killed_process(start: Start, postgres_url: str, how: str) -> None:
    """The server sees the end of a connection once nobody has its socket."""
    with Engine(postgres_url) as engine:
        engine.enqueue("read_file", {"path": "a.txt"})
        start(DIES_IN_A_TRANSACTION, postgres_url, how).wait()
        waiting = threading.Thread(target=engine.cancel, args=(1,), daemon=True)
        waiting.start()
        waiting.join(30)
        assert engine.mission(1).status == "cancelled"


def test_a_program_starts_although_other_threads_fork(start: Start) -> None:
    """A child that inherited the pipe on which `subprocess` waits would keep it waiting until the child ends."""
    process = start(STARTS_WHILE_OTHERS_FORK)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"


def test_a_fork_that_was_under_way_releases_no_lock_of_others() -> None:
    """The first import and use of the lock may come while another thread is in a fork."""
    command = [sys.executable, "-c", FORKS_WHILE_OTHERS_COME]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr


def test_a_runner_ends_its_watch_for_deaths_although_a_child_lives(start: Start, tmp_path: Path) -> None:
    """The child has copies of its descriptors, and had kept the runner waiting."""
    process = start(WATCHES_FOR_DEATHS, tmp_path)
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0]
    assert process.stdout.readline() == "done\n"


@pytest.mark.parametrize("end", ["released", "killed"])
@pytest.mark.parametrize("how", ["fork", "pool", "past Python"])
def test_a_child_keeps_no_lock_of_a_directory(start: Start, tmp_path: Path, how: str, end: str) -> None:
    if (how, end) == ("past Python", "killed"):
        pytest.skip("nothing can take a lock from a child that Python does not know of")
    process = start(LEAVES_CHILD_BEHIND_LOCK, tmp_path, how, end)
    assert process.stdout is not None
    if end == "killed":
        process.wait()
    else:
        assert process.stdout.readline() == "left\n"
    with Root(tmp_path) as root, lock([(root, "a.txt")], Wait.NONE) as locked:
        assert [held is not None for held in locked.found] == [True]
