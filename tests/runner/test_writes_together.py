"""Writes that one lane claimed share their commits, and each comes to what it would alone (R20)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.changes import journal
from lcp_engine.changes.journal import Untracked
from lcp_engine.engine.settle import FinishedJob, settle
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.runner import runner
from lcp_engine.runner.executor import Executor
from lcp_engine.sandbox.system.landlock import Isolation, isolates
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.write_file import WRITE_FILE

pytestmark = pytest.mark.both

SPEC: dict[str, JsonValue] = {
    "goal": "Write.",
    "planner": {"type": "script", "replies": []},
    "policy": [{"kinds": ["write_file", "rewrite_file"], "do": "auto"}],
}


class Scene:
    """A mission whose jobs are enqueued, then executed by one thread that claims 1, 2, 4, 8 of them."""

    def __init__(self, engine: Engine, url: str, root: Path) -> None:
        self.engine = engine
        self.url = url
        self.root = root
        self.mission = engine.launch(SPEC, root=root).id

    def write(self, *writes: tuple[str, str, str]) -> list[str]:
        """Enqueue writes (path, mode, content) behind one that gets the lane going; the states of all."""
        for path, mode, content in (("first.txt", "overwrite", ""), *writes):
            params: dict[str, JsonValue] = {"rel_path": path, "mode": mode, "content": content}
            self.engine.enqueue("write_file", params, mission_id=self.mission)
        return self.work(["write_file"])

    def work(self, kinds: Sequence[str]) -> list[str]:
        self.engine.work(until_idle=True, mission_id=self.mission, kinds=[*kinds])
        assert check_database(self.url) == []
        return [str(job.state) for job in self.engine.jobs(mission_id=self.mission, kinds=[*kinds])][1:]

    def commits(self) -> list[int]:
        """How many intents each commit recorded."""
        query = "SELECT count(*) FROM changes GROUP BY intended_at ORDER BY intended_at"
        return [row[0] for row in self.engine.instance.database.read(lambda tx: tx.query_plain(query))]


@pytest.fixture(params=[Isolation.OFF, Isolation.AUTO])
def scene(
    request: pytest.FixtureRequest, emptied_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    if not isolates(Isolation.AUTO) and request.param is Isolation.AUTO:
        pytest.skip("this kernel has no Landlock")
    # How many jobs are claimed at once is not left to the clock.
    monkeypatch.setattr(runner, "QUICK_SECONDS", 3600)
    monkeypatch.setattr(runner, "SLOW_SECONDS", 7200)
    root = tmp_path / "root"
    root.mkdir()
    with Engine(emptied_database_url, isolation=request.param) as engine:
        yield Scene(engine, emptied_database_url, root)


def test_writes_of_a_batch_are_intended_in_one_commit(scene: Scene) -> None:
    states = scene.write(*((f"d{n % 3}/f{n}.txt", "overwrite", f"{n}\n") for n in range(14)))
    assert states == ["succeeded"] * 14
    assert scene.commits() == [1, 2, 4, 8]
    assert [(scene.root / f"d{n % 3}/f{n}.txt").read_text() for n in range(14)] == [
        f"{n}\n" for n in range(14)
    ]


def test_writes_of_one_file_are_done_in_their_order(scene: Scene) -> None:
    assert scene.write(*(("log.txt", "append", f"{n}\n") for n in range(6))) == ["succeeded"] * 6
    assert (scene.root / "log.txt").read_text() == "".join(f"{n}\n" for n in range(6))


def test_a_file_in_the_place_of_a_directory_is_written_in_its_order(scene: Scene) -> None:
    states = scene.write(
        ("0", "overwrite", ""),
        ("a", "overwrite", "a\n"),
        ("a/b", "overwrite", "no\n"),
        ("c/d", "overwrite", "d\n"),
        ("c", "overwrite", "no\n"),
    )
    assert states == ["succeeded", "succeeded", "failed", "succeeded", "failed"]
    assert (scene.root / "a").read_text() == "a\n"


def test_a_name_that_looks_like_one_made_just_before_the_lock_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = journal.Journal._perform_batch

    def once_another_thread_has_written(
        own: journal.Journal, effects: Sequence[journal.JobEffect]
    ) -> list[journal.JobEffect]:
        if not effects[0].effect.path.isascii():
            (scene.root / "cafe\u0301.md").write_text("theirs")
        return perform(own, effects)

    monkeypatch.setattr(journal.Journal, "_perform_batch", once_another_thread_has_written)
    assert scene.write(("caf\u00e9.md", "overwrite", "ours")) == ["failed"]
    error = scene.engine.jobs(mission_id=scene.mission)[-1].error or {}
    assert (error["error_code"], r'"cafe\u0301.md" looks the same' in str(error["user_message"])) == (
        "PATH_EXISTS",
        True,
    )


def test_contents_beyond_what_is_held_at_a_time_come_next(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MOST_HELD", 3)
    assert scene.write(*((f"f{n}.txt", "overwrite", "xx\n") for n in range(6))) == ["succeeded"] * 6
    assert scene.commits() == [1] * 7


def test_one_that_is_refused_leaves_the_others_alone(scene: Scene) -> None:
    (scene.root / "dir").mkdir()
    big = "x" * (10 * 1024 * 1024)
    states = scene.write(
        ("a.txt", "overwrite", "a\n"),
        ("b.txt", "overwrite", big),
        ("dir", "overwrite", "no\n"),
        ("a.txt/c.txt", "overwrite", "no\n"),
        ("b.txt", "append", "too much\n"),
        ("d.txt", "overwrite", "d\n"),
    )
    assert states == ["succeeded", "succeeded", "failed", "failed", "failed", "succeeded"]
    names = {path.name: path.stat().st_size for path in scene.root.iterdir() if path.is_file()}
    assert names == {"a.txt": 2, "b.txt": len(big), "d.txt": 2, "first.txt": 0}


def test_an_undo_takes_a_directory_away_that_was_made_for_a_write_which_lost_its_lease(scene: Scene) -> None:
    engine, database = scene.engine, scene.engine.instance.database
    for name in ("lost", "written"):
        params: dict[str, JsonValue] = {"rel_path": f"new/{name}.txt", "content": name}
        engine.enqueue("write_file", params, mission_id=scene.mission)
    far = database.write(lambda tx: queue.add_runner(tx, uid="far", host="far", boot="another", pid=1))
    scope = queue.Scope(("write_file",), scene.mission)
    jobs = database.write(lambda tx: queue.claim(ledger_of(tx), scope, far, 2))

    class Stealing(Untracked):
        def start(self, job: JobRow) -> bool:
            if job.id == jobs[0].id and (scene.root / "new").is_dir():
                database.write(lambda tx: queue.release(ledger_of(tx), job.copy()))
            return True

    settle_now = partial(_settle, jitter=random.Random(7))
    executor = Executor(engine.instance, settle_now)
    assert list(executor.execute(jobs, WRITE_FILE.for_any_params(), Stealing())) == []
    executor.close()
    assert [path.name for path in (scene.root / "new").iterdir()] == ["written.txt"]
    engine.cancel(scene.mission)
    engine.undo(mission_id=scene.mission)
    assert list(scene.root.iterdir()) == []


def _settle(tx: Tx, settling: FinishedJob, jitter: random.Random) -> None:
    assert settle(ledger_of(tx), settling, jitter)
