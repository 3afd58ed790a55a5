"""A runner that is killed at any call of git leaves one commit, or none and a lock that is named."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import ask, write
from tests.features.git.engine.repositories import git
from tests.features.git.engine.test_commit import AUTO, DONE
from tests.loaded_python import Python

if TYPE_CHECKING:
    from pathlib import Path

    from tests.engine.conftest import Lab

pytestmark = [pytest.mark.proof, pytest.mark.turns(3)]

WORKS = """
import os, signal, sys, threading
from lcp_engine import Engine
from lcp_engine.features.git.repository import Git

URL, AT, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
run, count = Git._run, 0

def kill():
    os.kill(os.getpid(), signal.SIGKILL)

def runs(self, calls, otherwise):
    global count
    count += 1
    if count == AT and SECONDS > 0:
        threading.Timer(SECONDS, kill).start()
    done = run(self, calls, otherwise)
    if count == AT and SECONDS == 0:
        kill()
    return done

Git._run = runs
with Engine(URL) as engine:
    engine.work(until_idle=True, kinds=["commit"])
"""


@pytest.mark.parametrize("at", range(1, 8))
def test_a_runner_that_is_killed_at_a_call_of_git_makes_one_commit(lab: Lab, root: Path, at: int) -> None:
    begun = lab.launch(
        ask(write("a.md", "b\n")), DONE, policy=AUTO, git={"commit": "mission", "branch": "fix"}
    )
    lab.engine.work(until_idle=True, kinds=["agent_plan", "write_file"])
    ends = list[int]()
    for seconds in (0.0, 0.03, 0.08):
        with Python("-c", WORKS, lab.url, at, seconds, cwd=root) as process:
            ends.append(process.wait(timeout=60))
    assert ends[0] == -signal.SIGKILL
    assert {*ends} <= {-signal.SIGKILL, 0}
    lab.work()
    [job] = lab.engine.jobs(mission_id=begun, kinds=["commit"])
    if job.state != "succeeded":
        locks = [*(root / ".git").rglob("*.lock")]
        assert locks, job.error
        for lock in locks:
            lock.unlink()
        lab.engine.retry(job.id)
        lab.work()
    assert lab.engine.job(job.id).state == "succeeded", lab.engine.job(job.id).error
    assert git(root, "log", "--format=%s", "fix") == "Fix the greeting\nBegin"
    assert git(root, "symbolic-ref", "--short", "HEAD") == "fix"
    assert git(root, "status", "--porcelain") == ""
