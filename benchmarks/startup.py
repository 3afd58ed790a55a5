"""CPU that a command takes before it ends: what a person waits for who only wants to look."""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

from pydantic import JsonValue

from benchmarks.figures import Contender, Figure, Goal, race
from benchmarks.setting import Setting
from lcp_engine import Engine

TIMES = 3
"""Processes for one measurement, of which the quickest counts."""
GOAL = Goal(250, at_least=False, unit="ms")
HELP, PYTHON = "lcp --help", "python -c pass"
READING = ("jobs", "held", "missions", "show 1", "job 1", "changes 1", "report 1")


def run(setting: Setting) -> list[Figure]:
    """Processes on a database with a completed mission, its modules compiled."""
    with setting.sqlite() as url, TemporaryDirectory() as root:
        _complete_a_mission(url, root)
        contenders: dict[str, Contender] = {
            f"lcp {command}": partial(_quickest, _lcp(command), url) for command in READING
        }
        contenders[HELP] = partial(_quickest, _lcp("--help"), url)
        contenders[PYTHON] = partial(_quickest, [sys.executable, "-c", "pass"], url)
        measured = race(contenders, setting.rounds)
    return [_figure(name, statistics.median(spent)) for name, spent in measured.items()]


def _complete_a_mission(url: str, root: str) -> None:
    jobs: JsonValue = [{"kind": "list_files", "params": {}}]
    replies: JsonValue = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
        {"ok": True, "action": "mission_complete", "summary": "Done."},
    ]
    with Engine(url) as engine:
        engine.launch({"goal": "List.", "planner": {"type": "script", "replies": replies}}, root=root)
        engine.work(until_idle=True)


def _lcp(command: str) -> list[str]:
    return [sys.executable, "-m", "lcp_engine", *command.split()]


def _quickest(command: list[str], url: str) -> float:
    return min(_cpu(partial(_start, command, url)) for _ in range(TIMES))


def _cpu(work: Callable[[], None]) -> float:
    """Milliseconds of CPU of the processes that `work` starts and waits for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _start(command: list[str], url: str) -> None:
    environment = {**os.environ, "LCP_DATABASE_URL": url}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _figure(name: str, spent: float) -> Figure:
    goal = None if name in (HELP, PYTHON) else GOAL
    return Figure(f"CPU of `{name}`", "ms", spent, value=spent, goal=goal)
