"""Run one mission again and again, killed at the first, the second, … commit, rename and fsync; then finish it.

Usage: kill_everywhere.py DATABASE_URL DIRECTORY FIRST STEP. Prints one JSON object a line: for each point what was
found wrong. Every run is a forked process of its own, so that nothing is imported again.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.clock import Clock
from lcp_engine.errors import LcpError
from lcp_engine.planners.base import Question, Reply
from lcp_engine.planners.script import ScriptPlanner
from lcp_engine.store.transaction import Backend, Connection, Cursor, Params, Row


def _jobs(*jobs: tuple[str, dict[str, JsonValue]]) -> JsonValue:
    new: list[JsonValue] = [
        {"name": f"{kind} {params['rel_path']}", "kind": kind, "params": params} for kind, params in jobs
    ]
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": new}


REPLIES: list[JsonValue] = [
    _jobs(
        ("write_file", {"rel_path": "a.txt", "content": "first\n"}),
        ("write_file", {"rel_path": "log.txt", "content": "one\n", "mode": "append"}),
        ("write_file", {"rel_path": "sub/deep/b.txt", "content": "b\n"}),
    ),
    "this is no LCP",
    _jobs(
        ("write_file", {"rel_path": "log.txt", "content": "two\n", "mode": "append"}),
        ("rewrite_file", {"rel_path": "a.txt", "content": "second\n"}),
        ("read_file", {"rel_path": "sub/deep/b.txt"}),
    ),
    {"ok": True, "action": "mission_complete", "summary": "done"},
]
SPEC: dict[str, JsonValue] = {
    "name": "crash",
    "goal": "Write and append.",
    "planner": {"type": "script", "replies": REPLIES},
    "policy": [{"kinds": ["*"], "do": "auto"}],
}
FILES = {"a.txt": "second\n", "log.txt": "zero\none\ntwo\n", "sub/deep/b.txt": "b\n"}
T = TypeVar("T")
LAZY = ("lcp_engine.store.postgres", "sqlite3", "yaml", "pathspec", "re2", "lcp_engine.workers.registry")
QUESTIONS = [1, 2, 3, 4]


class Killer:
    """Counts points and ends this process at one of them as the kernel would."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.passed = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, function: Callable[..., None]) -> Callable[..., None]:
        """After it is before the next one: nothing else changes between them."""

        def killing(*given: object, **named: object) -> None:
            self.point()
            function(*given, **named)

        return killing


class KillingCursor:
    """A cursor whose COMMIT may be the last thing this process does."""

    def __init__(self, cursor: Cursor, killer: Killer) -> None:
        self._cursor = cursor
        self._killer = killer

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @rowcount.setter
    def rowcount(self, value: int) -> None:
        raise AttributeError(value)

    def execute(self, sql: str, params: Params | None = None, /) -> object:
        if sql == "COMMIT":
            self._killer.point()
        done = self._cursor.execute(sql) if params is None else self._cursor.execute(sql, params)
        if sql == "COMMIT":
            self._killer.point()
        return done

    def executemany(self, sql: str, rows: Sequence[Params], /) -> object:
        return self._cursor.executemany(sql, rows)

    def fetchall(self) -> list[Row]:
        return self._cursor.fetchall()

    def fetchone(self) -> Row | None:
        return self._cursor.fetchone()

    def close(self) -> None:
        self._cursor.close()


class KillingConnection:
    """The writer's connection with cursors that kill."""

    def __init__(self, connection: Connection, killer: Killer) -> None:
        self._connection = connection
        self._killer = killer

    @property
    def closed(self) -> bool:
        return bool(getattr(self._connection, "closed", False))

    def cursor(self) -> Cursor:
        return KillingCursor(self._connection.cursor(), self._killer)

    def close(self) -> None:
        self._connection.close()


class KillingBackend:
    """A backend whose writer may be killed at its commits."""

    def __init__(self, backend: Backend, killer: Killer) -> None:
        self._backend = backend
        self._killer = killer
        self.name, self.begin, self.dialect = backend.name, backend.begin, backend.dialect

    def connect(self) -> Connection:
        return KillingConnection(self._backend.connect(), self._killer)

    def connect_to_read(self) -> Connection:
        return self._backend.connect_to_read()

    def clock(self, connection: Connection) -> Clock:
        return self._backend.clock(connection)

    def explain(self, error: Exception) -> LcpError | None:
        return self._backend.explain(error)

    def may_retry(self, error: Exception) -> bool:
        return self._backend.may_retry(error)

    def is_usable(self, connection: Connection) -> bool:
        return self._backend.is_usable(connection)


def main() -> None:
    for module in LAZY:  # once, not in every process
        with suppress(ModuleNotFoundError):
            import_module(module)
    url, directory, first, step = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    _in_a_process(lambda: Engine(url).close())
    at, was_killed = first, True
    while was_killed:
        place = directory / f"{at}"
        (place / "root").mkdir(parents=True)
        (place / "root" / "log.txt").write_text("zero\n")
        was_killed = _in_a_process(partial(run, url, place, Killer(at))) == signal.SIGKILL
        stored, calls = _answer(partial(stored_replies, url, place), place), _calls(place)
        again = _in_a_process(partial(run, url, place, Killer(0))) if was_killed else 0
        problems = [f"the second run ended with {again}"] if again else []
        problems += _answer(partial(look, url, place), place)
        # What was paid for before the death must not be asked for again.
        problems += [
            f"question {number} was asked again" for number in _calls(place)[len(calls) :] if number in stored
        ]
        print(json.dumps({"at": at, "killed": was_killed, "problems": problems}), flush=True)  # noqa: T201 -- read by the test
        at += step


def run(url: str, place: Path, killer: Killer) -> None:
    """The mission, launched where it is not there yet, worked on until it ends."""
    _count_questions(place)
    with Engine(url) as engine:
        database = engine.site.database  # an up-to-date one, which has not written yet
        database.backend = KillingBackend(database.backend, killer)
        os.fsync, os.rename, os.mkdir = (
            killer.before(os.fsync),
            killer.before(os.rename),
            killer.before(os.mkdir),
        )
        mission = engine.launch(SPEC, root=place / "root", key=str(place))
        engine.work(until_idle=True, mission_id=mission.id)


def stored_replies(url: str, place: Path) -> list[int]:
    with Engine(url) as engine:
        mine = [mission for mission in engine.missions() if mission.root == str(place / "root")]
        return [
            int(str(turn["number"])) for m in mine for turn in engine.turns(m.id) if turn["reply"] is not None
        ]


def look(url: str, place: Path) -> list[str]:
    """What is not as it would be had nothing happened."""
    problems: list[str] = []

    def expect(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            problems.append(f"{what}: {found!r}, expected {wanted!r}")

    root = place / "root"
    with Engine(url) as engine:
        (mission,) = [mission for mission in engine.missions() if mission.root == str(root)]
        jobs, events = engine.jobs(mission_id=mission.id), engine.events(mission.id)
        metrics = _metrics(engine, mission.id)
        changes, turns = engine.changes(mission.id), engine.turns(mission.id)
    files = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
    expect("files", files, FILES)
    expect("mission", (mission.status, mission.outcome), ("completed", "mission_complete"))
    expect("states", [(job.kind, job.state) for job in jobs], STATES)
    expect("counters", {state: n for state, n in mission.jobs.items() if n}, {"succeeded": 9, "failed": 1})
    expect("event numbers", [event["seq"] for event in events], list(range(1, len(events) + 1)))
    applied = [int(str(change["job_id"])) for change in changes if change["state"] == "applied"]
    expect("effects", sorted(applied), [job.id for job in jobs if "write" in job.kind])
    expect(
        "open intents", [change["id"] for change in changes if change["state"] in ("intent", "conflict")], []
    )
    expect(
        "bytes written",
        metrics["bytes_written"],
        sum(map(len, ("first\n", "one\n", "b\n", "two\n", "second\n"))),
    )
    expect("questions", [turn["number"] for turn in turns], QUESTIONS)
    settled = [int(str(event["job_id"])) for event in events if event["event"] in ("succeeded", "failed")]
    expect("settled once", sorted(settled), [job.id for job in jobs])
    expect("too many questions", len(_calls(place)) <= len(QUESTIONS) + 1, True)
    return problems


def _metrics(engine: Engine, mission_id: int) -> dict[str, int]:
    query = f"SELECT metrics FROM missions WHERE id = {mission_id}"
    ((metrics,),) = engine.site.database.read(lambda tx: tx.query_plain(query))
    parsed: dict[str, int] = json.loads(metrics)
    return parsed


STATES = [
    ("agent_plan", "succeeded"),
    ("write_file", "succeeded"),
    ("write_file", "succeeded"),
    ("write_file", "succeeded"),
    ("agent_plan", "failed"),
    ("agent_plan", "succeeded"),
    ("write_file", "succeeded"),
    ("rewrite_file", "succeeded"),
    ("read_file", "succeeded"),
    ("agent_plan", "succeeded"),
]


def _count_questions(place: Path) -> None:
    answer = ScriptPlanner.answer

    def counting(self: ScriptPlanner, question: Question, /) -> Reply:
        with (place / "calls").open("a") as calls:
            calls.write(f"{question.number}\n")
        return answer(self, question)

    ScriptPlanner.answer = counting  # type: ignore[method-assign]  # it counts what is asked, and answers as before


def _calls(place: Path) -> list[int]:
    calls = place / "calls"
    return [int(line) for line in calls.read_text().split()] if calls.exists() else []


def _answer(ask: Callable[[], T], place: Path) -> T:
    """What a forked process found out: SQLite does not bear a fork of a process that has used it."""
    file = place / "answer.json"
    ended = _in_a_process(lambda: file.write_text(json.dumps(ask())))
    assert ended == 0
    answer: T = json.loads(file.read_text())
    return answer


def _in_a_process(work: Callable[[], object]) -> int:
    """How a forked process ended: 0, its exit code, or the signal that killed it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:  # noqa: BLE001 -- a fork must not go on as its parent would
            traceback.print_exc()
            os._exit(70)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    main()
