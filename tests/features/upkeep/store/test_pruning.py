"""Removing what ended long ago, on both kinds of database."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine.api.engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.features.upkeep.store.prune import SECONDS, Pruned, Work, choose, prune, sweep
from lcp_engine.store.changes import applied_changes, close_intent, content, intend, keep, sha256
from lcp_engine.store.db.transaction import Tx

WRITE: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a.md", "content": "after\n"}
COMPLETE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
FUTURE = 2**60


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("before\n")
    return root


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url) as engine:
        yield engine


def _run(engine: Engine, root: Path, *replies: JsonValue) -> int:
    policy: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    planner: JsonValue = {"type": "script", "replies": [*replies]}
    mission = engine.launch({"goal": "x", "policy": policy, "planner": planner}, root=root)
    engine.work(until_idle=True)
    return mission.id


def _prune(engine: Engine, *, keep: int = 0, preimages: bool = False, dry_run: bool = False) -> Pruned:
    database = engine.instance.database
    done = prune(database, ended_before=FUTURE, keep=keep, preimages=preimages, dry_run=dry_run)
    assert database.read(faults_in) == []
    return done


def test_two_prunes_at_once_remove_each_mission_once(
    engine: Engine, database_url: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        _run(engine, root, COMPLETE)
    others: list[Pruned] = []

    def choose_late(tx: Tx, *, ended_before: int, keep: int, preimages: bool) -> tuple[list[int], int]:
        chosen = choose(tx, ended_before=ended_before, keep=keep, preimages=preimages)
        if not others:
            others.append(Pruned())
            with Engine(database_url) as other:
                others[0] = _prune(other, keep=2)
        return chosen

    monkeypatch.setattr("lcp_engine.features.upkeep.store.prune.choose", choose_late)
    done = _prune(engine)
    assert (others[0].missions, done.missions) == (2, 1), "of four, the newest stays"


def _end_at(engine: Engine, mission: int, at: int) -> None:
    """As if the mission had ended then."""
    engine.instance.database.write(
        lambda tx: tx.plain(f"UPDATE missions SET ended_at = {at} WHERE id = {mission}")
    )


def _runners(engine: Engine) -> list[int]:
    return engine.instance.database.read(
        lambda tx: [row[0] for row in tx.query_plain("SELECT id FROM runners")]
    )


def _missions(engine: Engine) -> list[int]:
    return [mission.id for mission in engine.missions()]


def test_missions_that_ended_go_and_the_last_ones_stay(engine: Engine, root: Path) -> None:
    first, second, third = (_run(engine, root, COMPLETE) for _ in range(3))
    assert _prune(engine, keep=1, dry_run=True).missions == 2
    assert _missions(engine) == [third, second, first]
    done = _prune(engine, keep=1)
    assert (done.missions, done.rows > 8) == (2, True)
    assert _missions(engine) == [third]


def test_a_mission_that_has_not_ended_stays(engine: Engine, root: Path) -> None:
    waiting = engine.launch({"goal": "x", "planner": {"type": "script", "replies": [WRITE]}}, root=root).id
    engine.work(until_idle=True)
    _run(engine, root, COMPLETE)
    assert _prune(engine).missions == 0
    assert waiting in _missions(engine)


def test_what_could_be_undone_stays_unless_told_otherwise(engine: Engine, root: Path) -> None:
    mission = _run(engine, root, WRITE, COMPLETE)
    _run(engine, root, COMPLETE)
    assert _prune(engine) == Pruned(kept_for_undo=1)
    engine.undo(mission)
    assert (root / "a.md").read_text() == "before\n"
    _run(engine, root, COMPLETE)
    done = _prune(engine)
    assert (done.missions, done.kept_for_undo, done.contents) == (2, 0, 2)


def test_preimages_go_when_told_so(engine: Engine, root: Path) -> None:
    mission = _run(engine, root, WRITE, COMPLETE)
    _run(engine, root, COMPLETE)
    assert _prune(engine, preimages=True).contents == 1
    for use in (engine.mission, engine.undo, engine.replay, lambda one: engine.fork(one, turn=1)):
        with pytest.raises(LcpError, match=f"mission {mission} was pruned at ") as refused:
            use(mission)
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_no_id_is_used_again(engine: Engine, root: Path) -> None:
    last = _run(engine, root, COMPLETE)
    assert _prune(engine).missions == 0
    job = max(one.id for one in engine.jobs())
    assert _run(engine, root, COMPLETE) > last
    _prune(engine)
    assert min(one.id for one in engine.jobs()) > job


def test_what_missions_made_side_by_side_goes_mission_by_mission(engine: Engine, root: Path) -> None:
    jobs: JsonValue = [{"name": name, "kind": "list_files", "params": {}} for name in ("one", "two")]
    more: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    planner: JsonValue = {"type": "script", "replies": [more, COMPLETE]}
    gone, stays = (engine.launch({"goal": "x", "planner": planner}, root=root).id for _ in range(2))
    engine.work(until_idle=True)
    _run(engine, root, COMPLETE)
    ids = {mission: [job.id for job in engine.jobs(mission_id=mission)] for mission in (gone, stays)}
    assert ids[gone][0] < ids[stays][0] < ids[gone][-1]
    _end_at(engine, gone, 1)
    done = prune(engine.instance.database, ended_before=2)
    assert (done.missions, engine.instance.database.read(faults_in)) == (1, [])
    assert [job.id for job in engine.jobs(mission_id=stays)] == ids[stays]
    assert engine.jobs(mission_id=gone) == []


def test_runners_that_nothing_names_go_with_the_missions(engine: Engine, root: Path) -> None:
    first = _run(engine, root, COMPLETE)
    second = _run(engine, root, COMPLETE)
    _end_at(engine, first, 1)
    database = engine.instance.database
    database.write(lambda tx: tx.plain("UPDATE runners SET ended_at = 1"))
    before = _runners(engine)
    assert prune(database, ended_before=2).runners == 1
    assert database.read(faults_in) == []
    sql = f"SELECT DISTINCT runner_id FROM attempt_history WHERE mission_id = {second}"
    named = database.read(lambda tx: [row[0] for row in tx.query_plain(sql)])
    assert (len(before), _runners(engine)) == (2, named)


def test_a_runner_that_has_not_ended_stays(engine: Engine, root: Path) -> None:
    first = _run(engine, root, COMPLETE)
    _run(engine, root, COMPLETE)
    _end_at(engine, first, 1)
    engine.instance.database.write(lambda tx: tx.plain("UPDATE runners SET ended_at = NULL"))
    assert (prune(engine.instance.database, ended_before=2).runners, len(_runners(engine))) == (0, 2)


def test_a_transaction_ends_in_time_whatever_it_removes(engine: Engine) -> None:
    database = engine.instance.database
    seconds = SECONDS[database.backend.name]
    now, sizes = 0.0, list[int]()

    def remove(tx: Tx, some: Sequence[int]) -> int:
        nonlocal now
        now += sum(seconds if key < 200 else seconds / 1000 for key in some)  # the first ones are large
        sizes.append(len(some))
        return len(some)

    with sweep(database, lambda: now) as sweeping:
        assert sweeping.remove([Work(range(2000), remove), Work([], remove)]) == 2000
    assert sizes[:200] == [1] * 200
    assert sizes[200:206] == [1, 2, 4, 8, 16, 32]


def test_a_prune_that_was_interrupted_is_finished_by_the_next(engine: Engine, root: Path) -> None:
    mission = _run(engine, root, COMPLETE)
    _run(engine, root, COMPLETE)
    database = engine.instance.database
    database.write(lambda tx: tx.plain(f"UPDATE missions SET pruned_at = 1 WHERE id = {mission}"))
    database.write(lambda tx: tx.plain(f"DELETE FROM turns WHERE mission_id = {mission}"))
    assert database.read(faults_in) == []
    assert _prune(engine).rows > 0
    left = database.read(lambda tx: tx.query_plain(f"SELECT 1 FROM jobs WHERE mission_id = {mission}"))
    assert left == []


def test_a_schedule_outlives_its_missions(engine: Engine, root: Path) -> None:
    planner: JsonValue = {"type": "script", "replies": [COMPLETE]}
    engine.add_schedule("daily", {"goal": "x", "planner": planner}, root=root, every="1d")
    first = engine.launch_scheduled("daily").id
    _run(engine, root, COMPLETE)
    assert _prune(engine, keep=1).missions == 1
    assert engine.missions(schedule="daily") == []
    assert engine.schedule("daily").mission_id == first
    second = engine.launch_scheduled("daily").id
    engine.work(until_idle=True)
    assert (engine.schedule("daily").mission_id, engine.mission(second).status) == (second, "completed")
    assert engine.instance.database.read(faults_in) == []


def test_what_an_open_intent_leads_to_stays_until_it_is_closed(engine: Engine, root: Path) -> None:
    mission = _run(engine, root, WRITE, COMPLETE)
    database = engine.instance.database
    made = next(change for change in database.read(lambda tx: applied_changes(tx, mission)))
    data = b"the text of a person\n"
    decided = replace(made, state="intent", sha256_before=None, sha256_after=sha256(data))
    database.write(lambda tx: keep(tx, sha256(data), data))
    intent = database.write(lambda tx: intend(tx, decided))
    prune(database, ended_before=FUTURE, keep=9)
    assert database.read(lambda tx: content(tx, sha256(data))) == data
    database.write(lambda tx: close_intent(tx, intent, "applied"))
    _prune(engine, keep=9)
    assert database.read(lambda tx: content(tx, sha256(data))) is None
