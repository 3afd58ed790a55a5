"""Apply what a command changed, take it back, and die: at each point, or before a mode is changed.

Usage: python -m tests.crash.applying kill DATABASE_URL DIRECTORY [--first N] [--step K] | die DATABASE_URL DIRECTORY

`kill` prints the number of points, and then what was not survived.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
from pathlib import Path

from pydantic import BaseModel, JsonValue
from tests.crash.points import Killer, WatchedBackend
from tests.crash.processes import ask, do, import_all
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine
from lcp_engine.features.programs.apply import Apply, Changed, note_of
from lcp_engine.runner import runner
from lcp_engine.sandbox.atomic_write import LocalFile
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.ledger import ledger_of
from lcp_engine.workers.base import Context, Outcome, Worker

NO_BYTES = hashlib.sha256(b"").hexdigest()
LARGE = b"large\n" * 20_000
NEW = {"a": b"A\n", "new/deep/tool": b"#!/bin/sh\n", "new/large": LARGE, "b": b"b\n"}
BEFORE: dict[str, tuple[bytes, int] | None] = {
    "a": (b"a\n", 0o640), "b": (b"b\n", 0o644), "gone": None, "gone/c": (b"c\n", 0o644),
}  # fmt: skip
AFTER: dict[str, tuple[bytes, int] | None] = {
    "a": (b"A\n", 0o755),
    "b": (b"b\n", 0o700),
    "new": None,
    "new/deep": None,
    "new/deep/tool": (b"#!/bin/sh\n", 0o751),
    "new/empty": None,
    "new/large": (LARGE, 0o600),
}


class Nothing(BaseModel):
    """No params."""


class Done(BaseModel):
    """The states of what was applied, by path."""

    states: dict[str, str]
    errors: list[str]
    note: dict[str, JsonValue]


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def changed_by_command() -> list[Changed]:
    """Of each kind one: content and mode, mode alone, new ones, a directory, removals."""
    return [
        Changed("gone/", NO_BYTES, None),
        Changed("gone/c", sha(b"c\n"), None),
        Changed("a", sha(b"a\n"), sha(b"A\n"), 0o640, 0o755),
        Changed("b", sha(b"b\n"), sha(b"b\n"), 0o644, 0o700),
        Changed("new/deep/tool", None, sha(NEW["new/deep/tool"]), None, 0o751),
        Changed("new/large", None, sha(LARGE), None, 0o600),
        Changed("new/empty/", None, NO_BYTES, None, 0o755),
    ]


class Theatre:
    """A root, what a command made beside it, and jobs that apply that."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.root, self.source, self.kept = (directory / name for name in ("root", "source", "kept"))

    def furnish(self) -> None:
        for path, data in {"root/a": b"a\n", "root/b": b"b\n", "root/gone/c": b"c\n"}.items():
            (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / path).write_bytes(data)
        (self.root / "a").chmod(0o640)
        (self.root / "b").chmod(0o644)
        (self.root / "gone" / "c").chmod(0o644)
        (self.source / "new" / "empty").mkdir(parents=True)
        for second, (path, data) in enumerate(sorted(NEW.items())):
            (self.source / path).parent.mkdir(parents=True, exist_ok=True)
            (self.source / path).write_bytes(data)
            os.utime(self.source / path, (second, second))  # files are applied in the order of their times

    def worker(self, engines: list[Engine]) -> Worker[BaseModel]:
        """The kind that applies it, as a runner would for a command."""

        def execute(params: Nothing, context: Context) -> Outcome:
            (engine,), job_id = engines, context.job_id
            instance = engine.instance
            assert job_id is not None
            job = instance.database.write(lambda tx: ledger_of(tx).job(job_id))
            threads = confined_threads(Isolation.OFF)
            assert context.root is not None
            in_stage = context.root.path != str(self.root)
            with Root(context.root.path) as root, Root(self.source) as source:
                apply = Apply(
                    instance.database, job, threads, root, source, self.kept, 1_000_000, in_stage, {"exit": 0}
                )
                carried = apply.perform(changed_by_command())
            if carried.refused is not None:
                return carried.refused
            states = {one.path: one.state for one in carried.changes}
            return Done(
                states=states,
                errors=[one.message for one in carried.errors.values()],
                note=note_of(carried),
            )

        return Worker(
            kind="apply_it",
            params=Nothing,
            result=Done,
            execute=execute,
            max_attempts=3,
            backoff=0.01,
        ).for_any_params()

    def engine(self, url: str) -> Engine:
        engines: list[Engine] = []
        engines.append(Engine(url, workers=[self.worker(engines)], isolation="off"))
        return engines[0]


def launch(engine: Engine, theatre: Theatre, *, stage: bool = False) -> int:
    new_jobs: JsonValue = [{"kind": "apply_it", "params": {}}]
    spec: dict[str, JsonValue] = {
        "goal": "Apply.",
        "planner": {
            "type": "script",
            "replies": [
                {"ok": True, "action": "create_followup_jobs", "new_jobs": new_jobs},
                {"ok": True, "action": "mission_complete", "summary": "done"},
            ],
        },
        "stage": stage,
        "policy": [{"kinds": ["*"], "do": "auto"}],
    }
    return engine.launch(spec, root=theatre.root, key=str(theatre.root)).id


def tree(engine: Engine, theatre: Theatre) -> dict[str, tuple[bytes, int] | None]:
    return Scene(engine, theatre.root).tree()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("do", choices=["kill", "die"])
    parser.add_argument("url")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--step", type=int, default=1)
    given = parser.parse_args()
    if given.do == "die":
        with Theatre(given.directory).engine(given.url) as engine:
            launch(engine, Theatre(given.directory))
            LocalFile.set_mode = _end  # type: ignore[method-assign]  # the content is there, the mode is not
            engine.work(until_idle=True)
    import_all(given.url)
    points, problem = _tell(given.directory / "0", given.url, 0)
    problems = [problem]
    print(points)
    for at in range(given.first, points + 1, given.step):
        _, problem = _tell(given.directory / str(at), given.url, at)
        problems.append(problem)
    print(*filter(None, problems), sep="\n", end="")
    return 1 if any(problems) else 0


def _end(file: LocalFile, before: int, after: int) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def _tell(place: Path, url: str, at: int) -> tuple[int, str]:
    """Apply it and take it back, killed at a point, and once more; the number of points, and what is wrong then."""
    theatre = Theatre(place)
    theatre.furnish()

    def begin() -> None:
        with theatre.engine(url) as engine:
            launch(engine, theatre)

    def perform(killer: Killer) -> None:
        # Every run passes the same points, however long they take.
        runner.QUICK_SECONDS = runner.FLUSH_SECONDS = 3600
        runner.SLOW_SECONDS = 7200
        with theatre.engine(url) as engine:
            database = engine.instance.database
            database.backend = WatchedBackend(database.backend, killer)
            killer.watch_files()
            engine.work(until_idle=True)
            assert tree(engine, theatre) in (AFTER, BEFORE)
            (mission,) = [one for one in engine.missions() if one.root == str(theatre.root)]
            engine.undo(mission.id)
            assert tree(engine, theatre) == BEFORE

    def look() -> dict[str, JsonValue]:
        with theatre.engine(url) as engine:
            (mission,) = [one for one in engine.missions() if one.root == str(theatre.root)]
            made = [one for one in engine.changes(mission.id) if one["state"] != "void"]
            return {
                "status": mission.status,
                "jobs": [
                    *map(str, [f"{job.kind} {job.state}" for job in engine.jobs(mission_id=mission.id)][-2:])
                ],
                "changes": [f"{one['path']} {one['state']}" for one in made if one["undoes"] is None],
                "is undone": tree(engine, theatre) == BEFORE,
                "left": theatre.kept.exists(),
            }

    trace = place / "trace"
    wanted = [0, -signal.SIGKILL if at else 0, 0]
    ended = [do(begin), do(lambda: perform(Killer(at, trace))), do(lambda: perform(Killer()))]
    names = trace.read_text().splitlines()
    if ended != wanted:
        return len(names), f"{at}, {names[-1]}: the processes ended with {ended}"
    found = ask(look, place / "answer.json")
    paths = ("new/empty/", "a", "b", "new/deep/tool", "new/large", "gone/c", "gone/")
    right = {
        "status": "completed",
        "jobs": ["agent_plan succeeded", "undo succeeded"],
        "changes": [f"{path} applied" for path in paths],
        "is undone": True,
        "left": False,
    }
    return len(names), "" if found == right else f"{at}, {names[-1]}: {found}"


if __name__ == "__main__":
    sys.exit(main())
