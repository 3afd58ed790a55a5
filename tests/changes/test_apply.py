"""What a command changed is applied as a whole, once, whatever is killed in between, and is taken back as a whole."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import TURN
from tests.crash.points import Killer, WatchedBackend
from tests.crash.processes import ask, do, import_all
from tests.runner.undo.conftest import Scene

from lcp_engine import Engine, LcpError
from lcp_engine.changes.apply import Apply, Changed, note_of
from lcp_engine.errors import ErrorCode
from lcp_engine.runner import runner
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.landlock import Isolation
from lcp_engine.sandbox.root import Root
from lcp_engine.store.ledger import ledger_of
from lcp_engine.workers.base import Context, Outcome, Worker

STEP = int(os.environ.get("STEP", "9"))
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
        for path, data in NEW.items():
            (self.source / path).parent.mkdir(parents=True, exist_ok=True)
            (self.source / path).write_bytes(data)

    def worker(self, engines: list[Engine]) -> Worker[BaseModel]:
        """The kind that applies it, as a runner would for a command."""

        def execute(params: Nothing, context: Context) -> Outcome:
            (engine,), job_id = engines, context.job_id
            instance = engine.instance
            assert job_id is not None
            job = instance.database.read(lambda tx: ledger_of(tx).job(job_id))
            threads = confined_threads(Isolation.OFF)
            with Root(self.root) as root, Root(self.source) as source:
                apply = Apply(
                    instance.database, job, threads, root, source, self.kept, 1_000_000, note={"exit": 0}
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


def launch(engine: Engine, theatre: Theatre) -> int:
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
        "policy": [{"kinds": ["*"], "do": "auto"}],
    }
    return engine.launch(spec, root=theatre.root, key=str(theatre.root)).id


@pytest.fixture
def theatre(tmp_path: Path) -> Theatre:
    theatre = Theatre(tmp_path)
    theatre.furnish()
    return theatre


@pytest.fixture
def engine(theatre: Theatre, emptied_database_url: str) -> Iterator[Engine]:
    with theatre.engine(emptied_database_url) as engine:
        yield engine


def tree(engine: Engine, theatre: Theatre) -> dict[str, tuple[bytes, int] | None]:
    return Scene(engine, theatre.root).tree()


def work(engine: Engine, theatre: Theatre) -> tuple[str, dict[str, JsonValue]]:
    """State and result, or error, of the job that applies it."""
    mission = launch(engine, theatre)
    engine.work(until_idle=True)
    (job,) = engine.jobs(mission_id=mission, kinds=["apply_it"])
    return job.state, job.result or job.error or {}


def test_all_that_a_command_changed_is_applied(engine: Engine, theatre: Theatre) -> None:
    state, result = work(engine, theatre)
    assert (state, result["errors"], result["note"]) == ("succeeded", [], {"exit": 0})
    assert tree(engine, theatre) == AFTER
    assert not theatre.kept.exists()


def test_it_is_undone_as_one_and_redone(engine: Engine, theatre: Theatre) -> None:
    before = tree(engine, theatre)
    work(engine, theatre)
    (job,) = engine.jobs(kinds=["apply_it"])
    undone = engine.undo(job_id=job.id)
    assert tree(engine, theatre) == before
    redone = engine.undo(job_id=undone.job_id)
    assert tree(engine, theatre) == AFTER
    engine.undo(job_id=redone.job_id)
    assert tree(engine, theatre) == before


def test_files_that_changed_meanwhile_are_all_named_and_nothing_is_done(
    engine: Engine, theatre: Theatre
) -> None:
    (theatre.root / "a").write_text("mine\n")
    (theatre.root / "b").chmod(0o600)
    before = tree(engine, theatre)
    state, error = work(engine, theatre)
    assert (state, error["error_code"]) == ("failed", "CONFLICT")
    assert "'a' has changed since" in str(error["user_message"])
    assert "'b' has changed since" in str(error["user_message"])
    assert (tree(engine, theatre), engine.changes(1)) == (before, [])


def test_a_file_where_a_directory_is_needed_is_a_conflict(engine: Engine, theatre: Theatre) -> None:
    (theatre.root / "new").write_text("a file\n")
    state, error = work(engine, theatre)
    assert (state, error["error_code"]) == ("failed", "CONFLICT")
    assert "new/large" in str(error["user_message"])


def test_what_the_source_has_lost_is_a_conflict(engine: Engine, theatre: Theatre) -> None:
    (theatre.source / "new" / "large").write_bytes(b"other\n")
    before = tree(engine, theatre)
    state, error = work(engine, theatre)
    assert (state, "is not as the command left it" in str(error["user_message"])) == ("failed", True)
    assert tree(engine, theatre) == before


def test_what_the_root_has_already_is_no_change(engine: Engine, theatre: Theatre) -> None:
    (theatre.root / "a").write_bytes(b"A\n")
    (theatre.root / "a").chmod(0o755)
    state, result = work(engine, theatre)
    assert (state, "a" in dict(result["states"] or {})) == ("succeeded", False)  # type: ignore[arg-type]
    assert tree(engine, theatre) == AFTER


def test_a_full_disk_changes_no_file(
    engine: Engine, theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, before = os.fstatvfs, tree(engine, theatre)

    def full(descriptor: int) -> os.statvfs_result:
        return os.statvfs_result((*tuple(real(descriptor))[:3], 0, 0, *tuple(real(descriptor))[5:]))

    monkeypatch.setattr(os, "fstatvfs", full)
    state, error = work(engine, theatre)
    assert (state, "0 bytes free" in str(error["user_message"])) == ("failed", True)
    assert (tree(engine, theatre), engine.changes(1)) == (before, [])


def test_a_changed_mode_is_no_reason_to_lose_it_on_undo(engine: Engine, theatre: Theatre) -> None:
    work(engine, theatre)
    (theatre.root / "b").chmod(0o711)
    (job,) = engine.jobs(kinds=["apply_it"])
    with pytest.raises(LcpError) as raised:
        engine.undo(job_id=job.id)
    assert raised.value.code is ErrorCode.CONFLICT
    assert (theatre.root / "b").stat().st_mode & 0o7777 == 0o711


@pytest.mark.proof
def test_a_process_that_dies_at_any_point_leaves_all_or_nothing(tmp_path: Path, database_url: str) -> None:
    """Every 9th point, from one on that the commit chooses."""
    import_all(database_url)
    points = _tell(tmp_path / "0", database_url, 0)
    assert points > 100
    for at in range(1 + TURN % STEP, points + 1, STEP):
        _tell(tmp_path / str(at), database_url, at)


def _tell(place: Path, url: str, at: int) -> int:
    """Apply it and take it back, killed at a point, and once more; the number of points."""
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
    assert do(begin) == 0
    ended = do(lambda: perform(Killer(at, trace)))
    names = trace.read_text().splitlines()
    assert ended == (-signal.SIGKILL if at else 0), names[-1]
    assert do(lambda: perform(Killer())) == 0, names[-1]
    paths = ("a", "b", "new/deep/tool", "new/empty/", "new/large", "gone/c", "gone/")
    assert ask(look, place / "answer.json") == {
        "status": "completed",
        "jobs": ["agent_plan succeeded", "undo succeeded"],
        "changes": [f"{path} applied" for path in paths],
        "is undone": True,
        "left": False,
    }, names[-1]
    return len(names)
