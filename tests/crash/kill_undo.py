"""Undo one mission after the other and take the undo back, each killed at the first, the second, … point; finish it.

Usage: python -m tests.crash.kill_undo DATABASE_URL DIRECTORY FIRST STEP. Points are commits, fsyncs, renames, unlinks,
mkdirs and rmdirs. Prints one JSON object a line: for each point what was found wrong.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from pydantic import JsonValue
from tests.crash.kill_everywhere import LAZY, Killer, KillingBackend, _answer, _in_a_process

from lcp_engine import Engine
from lcp_engine.store.check import check_database

WRITES = (
    ("a.txt", "overwrite", "A\n"),
    ("log.txt", "append", "one\n"),
    ("a.txt", "append", "B\n"),
    ("new/deep/c.txt", "overwrite", "c\n"),
    ("new/d.txt", "overwrite", "d\n"),
)
PATHS = sorted({path for path, _, _ in WRITES})
REPLIES: list[JsonValue] = [
    {"ok": True, "action": "write_file", "rel_path": path, "mode": mode, "content": content}
    for path, mode, content in WRITES
]
REPLIES.append({"ok": True, "action": "mission_complete", "summary": "done"})
SPEC: dict[str, JsonValue] = {
    "goal": "Write.",
    "planner": {"type": "script", "replies": REPLIES},
    "policy": [{"kinds": ["*"], "do": "auto"}],
}
BEFORE = {"a.txt": "a\n", "log.txt": "zero\n"}
AFTER = {"a.txt": "A\nB\n", "log.txt": "zero\none\n", "new": None, "new/d.txt": "d\n", "new/deep": None,
         "new/deep/c.txt": "c\n"}  # fmt: skip


def main() -> None:
    for module in LAZY:  # once, not in every process
        with suppress(ModuleNotFoundError):
            import_module(module)
    url, directory, first, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    at, was_killed = first, True
    while was_killed:
        place = directory / f"{at}"
        (place / "root").mkdir(parents=True)
        for path, text in BEFORE.items():
            (place / "root" / path).write_text(text)
        mission = _answer(partial(write, url, place), place)
        was_killed, problems = interrupted(url, place, mission, None, at)
        job = _answer(partial(undo_of, url, mission), place)
        again, more = interrupted(url, place, mission, job, at)
        was_killed |= again
        problems += more
        problems += _answer(partial(look, url, mission), place)
        print(json.dumps({"at": at, "killed": was_killed, "problems": problems}), flush=True)  # noqa: T201 -- read by the test
        at += step


def write(url: str, place: Path) -> int:
    with Engine(url) as engine:
        mission = engine.launch(SPEC, root=place / "root")
        engine.work(until_idle=True, mission_id=mission.id)
        return mission.id


def interrupted(url: str, place: Path, mission: int, job: int | None, at: int) -> tuple[bool, list[str]]:
    """Undo the mission, or else the job, killed at point `at`; then finish it, every other time by a runner.

    Whether it was killed, and what was found wrong.
    """
    problems: list[str] = []
    wanted, other = (BEFORE, AFTER) if job is None else (AFTER, BEFORE)
    what = "undo" if job is None else "redo"
    was_killed = _in_a_process(partial(undo, url, mission, job, Killer(at))) == signal.SIGKILL
    if was_killed and at % 4 >= 2:
        if ended := _in_a_process(partial(work, url, mission)):
            problems.append(f"the runner after the {what} ended with {ended}")
        if tree(place) not in (wanted, other):
            problems.append(f"a runner left the {what} half done: {tree(place)}")
    if was_killed and (ended := _in_a_process(partial(undo, url, mission, job, Killer(0)))):
        problems.append(f"the second {what} ended with {ended}")
    if tree(place) != wanted:
        problems.append(f"after the {what}: {tree(place)}")
    return was_killed, problems


def undo(url: str, mission: int, job: int | None, killer: Killer) -> None:
    with Engine(url) as engine:
        database = engine.site.database  # an up-to-date one, which has not written yet
        database.backend = KillingBackend(database.backend, killer)
        for name in ("fsync", "rename", "mkdir", "unlink", "rmdir"):
            function: Callable[..., None] = getattr(os, name)
            setattr(os, name, killer.before(function))
        engine.undo(mission if job is None else None, job_id=job)


def work(url: str, mission: int) -> None:
    with Engine(url) as engine:
        engine.work(until_idle=True, mission_id=mission)


def undo_of(url: str, mission: int) -> int:
    with Engine(url) as engine:
        return engine.jobs(mission_id=mission, kinds=["undo"])[0].id


def tree(place: Path) -> dict[str, str | None]:
    root = place / "root"
    return {
        str(path.relative_to(root)): path.read_text() if path.is_file() else None
        for path in sorted(root.rglob("*"))
    }


def look(url: str, mission: int) -> list[str]:
    """What is not as it would be had nothing happened."""
    problems = check_database(url)

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            problems.append(f"{what}: {found!r}, expected {wanted!r}")

    with Engine(url) as engine:
        undos, events = engine.jobs(mission_id=mission, kinds=["undo"]), engine.events(mission)
        changes, stands = engine.changes(mission), engine.mission(mission)
    expect("undos", [job.state for job in undos], ["succeeded", "succeeded"])
    for job in undos:
        mine = sorted(
            str(one["path"]) for one in changes if one["job_id"] == job.id and one["state"] == "applied"
        )
        expect(f"files of job {job.id}", mine, PATHS)
    expect("states of changes", {str(one["state"]) for one in changes}, {"applied"})
    expect("event numbers", [event["seq"] for event in events], list(range(1, len(events) + 1)))
    expect("deliverables", stands.deliverables, PATHS)
    expect("status", (stands.status, stands.outcome), ("completed", "mission_complete"))
    return problems


if __name__ == "__main__":
    main()
