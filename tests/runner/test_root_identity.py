"""A root that is a link or another directory now is used by nothing, until a person accepts it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue

from lcp_engine import Engine
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root_identity import KnownRoot, RootIdentity, identity_at, open_known
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.queries.mission_spec import known_root
from lcp_engine.store.queries.records import Mission
from lcp_engine.workers.base import Context, Worker

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
WRITE: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a.txt", "content": "two\n"}


def put_link(root: Path) -> None:
    root.rename(root.with_name("moved"))
    root.symlink_to(root.with_name("elsewhere"))


def put_directory(root: Path) -> None:
    root.rename(root.with_name("moved"))
    shutil.copytree(root.with_name("elsewhere"), root)


def create_again(root: Path) -> None:
    shutil.rmtree(root)
    shutil.copytree(root.with_name("elsewhere"), root)


def take_away(root: Path) -> None:
    root.rename(root.with_name("moved"))


SWAPS = pytest.mark.parametrize("swap", [put_link, put_directory, create_again])
Swap = Callable[[Path], None]


class Nothing(BaseModel):
    """No params and no result."""


@pytest.fixture(params=[Isolation.OFF, Isolation.AUTO])
def engine(request: pytest.FixtureRequest, emptied_database_url: str, tmp_path: Path) -> Iterator[Engine]:
    """An engine with a kind that exchanges the root of its mission."""

    def exchange(_: BaseModel, context: Context) -> Nothing:
        put_directory(Path(context.root.path))
        return Nothing()

    worker = Worker(
        kind="exchange", params=Nothing, result=Nothing, execute=exchange, has_effects=False
    ).for_any_params()
    with Engine(emptied_database_url, workers=[worker], isolation=request.param) as engine:
        yield engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, content in (("root", "one\n"), ("elsewhere", "PRIVATE\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(content)
    return tmp_path / "root"


def launch(engine: Engine, root: Path, *replies: JsonValue, rule: str = "auto") -> Mission:
    spec: dict[str, JsonValue] = {
        "goal": "Write.",
        "planner": {"type": "script", "replies": [*replies, DONE]},
        "policy": [{"kinds": ["*"], "do": rule}],
    }
    return engine.launch(spec, root=root)


def code_of(engine: Engine, job_id: int) -> object:
    return (engine.job(job_id).error or {}).get("error_code")


def private(root: Path) -> list[str]:
    """Every content of the directory that is not the root, wherever it is."""
    return [
        path.read_text() for path in (root.with_name("elsewhere") / "a.txt", root / "a.txt") if path.exists()
    ]


def enqueue_all(engine: Engine, mission: Mission) -> list[int]:
    kinds: list[tuple[str, dict[str, JsonValue]]] = [
        ("read_file", {"rel_path": "a.txt"}),
        ("list_files", {}),
        ("write_file", {"rel_path": "a.txt", "content": "two\n"}),
    ]
    return [engine.enqueue(kind, params, mission_id=mission.id) for kind, params in kinds]


@SWAPS
def test_nothing_is_read_listed_or_written_in_another_root(engine: Engine, root: Path, swap: Swap) -> None:
    mission = launch(engine, root, WRITE)
    jobs = enqueue_all(engine, mission)
    swap(root)
    engine.work(until_idle=True)
    assert [code_of(engine, job) for job in jobs] == ["ROOT_CHANGED"] * 3
    ended = engine.mission(mission.id)
    assert (ended.status, (ended.error or {}).get("error_code")) == ("failed", "ROOT_CHANGED")
    assert private(root) == ["PRIVATE\n"] * 2


def test_a_root_that_is_exchanged_while_a_runner_works_is_noticed(engine: Engine, root: Path) -> None:
    mission = launch(engine, root)
    engine.enqueue("exchange", mission_id=mission.id, priority=100)
    jobs = enqueue_all(engine, mission)
    engine.work(until_idle=True)
    assert [code_of(engine, job) for job in jobs] == ["ROOT_CHANGED"] * 3
    assert private(root) == ["PRIVATE\n"] * 2


@SWAPS
def test_a_diff_says_so_and_an_approval_is_refused(engine: Engine, root: Path, swap: Swap) -> None:
    mission = launch(engine, root, WRITE, rule="hold")
    engine.work(until_idle=True)
    (held,) = engine.jobs(mission_id=mission.id, states=["held"])
    (shown,) = engine.diff(held.id)
    assert "two" in shown.text
    swap(root)
    (refused,) = engine.diff(held.id)
    assert "would not be written: root" in (refused.note or "")
    assert f"lcp resume {mission.id} --root" in (refused.note or "")
    with pytest.raises(LcpError) as error:
        engine.approve(held.id)
    assert error.value.code is ErrorCode.ROOT_CHANGED
    assert engine.job(held.id).state == "held"


@SWAPS
def test_an_approved_write_is_not_applied_to_another_root(engine: Engine, root: Path, swap: Swap) -> None:
    mission = launch(engine, root, WRITE, rule="hold")
    engine.work(until_idle=True)
    (held,) = engine.jobs(mission_id=mission.id, states=["held"])
    engine.diff(held.id)
    engine.approve(held.id)
    swap(root)
    engine.work(until_idle=True)
    assert code_of(engine, held.id) == "ROOT_CHANGED"
    assert private(root) == ["PRIVATE\n"] * 2


@SWAPS
def test_undo_fork_and_the_report_leave_another_root_alone(engine: Engine, root: Path, swap: Swap) -> None:
    (root.with_name("elsewhere") / "a.txt").write_text("two\n")
    mission = launch(engine, root, WRITE)
    engine.work(until_idle=True)
    assert (root / "a.txt").read_text() == "two\n"
    swap(root)
    for refused in (lambda: engine.undo(mission.id), lambda: engine.fork(mission.id, turn=1)):
        with pytest.raises(LcpError) as error:
            refused()
        assert error.value.code is ErrorCode.ROOT_CHANGED
    (file,) = engine.facts(mission.id).files.rows
    assert file.disk is None
    assert private(root) == ["two\n"] * 2


def test_acceptance_checks_do_not_look_into_another_root(engine: Engine, root: Path) -> None:
    (root.with_name("elsewhere") / "b.txt").write_text("b")
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "exchange", "params": {}}]},
        DONE,
    ]
    spec: dict[str, JsonValue] = {
        "goal": "Write.",
        "planner": {"type": "script", "replies": replies},
        "accept": [{"file_exists": "b.txt"}],
    }
    mission = engine.launch(spec, root=root)
    engine.work(until_idle=True)
    ended = engine.mission(mission.id)
    assert (ended.status, (ended.error or {}).get("error_code")) == ("failed", "ROOT_CHANGED")


@SWAPS
def test_a_person_accepts_the_directory_that_is_there(engine: Engine, root: Path, swap: Swap) -> None:
    mission = launch(engine, root, WRITE, WRITE)
    swap(root)
    engine.work(until_idle=True)
    assert engine.resume(mission.id, root=root).status == "running"
    engine.work(until_idle=True)
    assert engine.mission(mission.id).outcome == "mission_complete"
    assert (root / "a.txt").read_text() == "two\n"
    engine.undo(mission.id)
    assert (root / "a.txt").read_text() == "PRIVATE\n"


def test_what_a_mission_did_is_undone_where_its_root_was_moved_to(engine: Engine, root: Path) -> None:
    mission = launch(engine, root, WRITE)
    engine.work(until_idle=True)
    take_away(root)
    moved = root.with_name("moved")
    with pytest.raises(LcpError, match=r"lcp resume \d+ --root DIR"):
        engine.undo(mission.id)
    accepted = engine.resume(mission.id, root=moved)
    assert (accepted.status, accepted.root) == ("completed", str(moved))
    engine.undo(mission.id)
    assert (moved / "a.txt").read_text() == "one\n"


def test_a_root_that_is_in_its_place_is_not_exchanged_for_another(engine: Engine, root: Path) -> None:
    mission = launch(engine, root, WRITE)
    with pytest.raises(LcpError) as error:
        engine.resume(mission.id, root=root.with_name("elsewhere"))
    assert error.value.code is ErrorCode.WRONG_STATE
    assert engine.resume(mission.id, root=root).status == "running"


def set_identity(engine: Engine, mission: Mission, text: str | None) -> None:
    value = "NULL" if text is None else f"'{text}'"
    engine.instance.database.write(
        lambda tx: tx.query_plain(
            f"UPDATE missions SET root_identity = {value} WHERE id = {mission.id} RETURNING id"
        )
    )


@pytest.mark.parametrize("is_older", [True, False])
def test_a_root_that_is_not_known_here_must_stay_what_a_runner_saw_first(
    engine: Engine, root: Path, is_older: bool
) -> None:
    mission = launch(engine, root)
    identity = engine.instance.database.read(lambda tx: known_root(tx, mission.id))
    assert identity is not None
    assert identity.identity is not None
    text = None if is_older else replace(identity.identity, machine="another", inode=1).text
    set_identity(engine, mission, text)
    seen = engine.enqueue("read_file", {"rel_path": "a.txt"}, mission_id=mission.id, priority=101)
    engine.enqueue("exchange", mission_id=mission.id, priority=100)
    job = engine.enqueue("read_file", {"rel_path": "a.txt"}, mission_id=mission.id)
    engine.work(until_idle=True)
    assert engine.job(seen).state == "succeeded"
    assert code_of(engine, job) == "ROOT_CHANGED"


def test_a_directory_that_a_runner_was_given_by_name_must_stay_the_same(engine: Engine, root: Path) -> None:
    mission = launch(engine, root)
    take_away(root)
    place = root.with_name("place")
    shutil.copytree(root.with_name("moved"), place)
    shutil.rmtree(root.with_name("moved"))
    seen = engine.enqueue("read_file", {"rel_path": "a.txt"}, mission_id=mission.id, priority=101)
    engine.enqueue("exchange", mission_id=mission.id, priority=100)
    job = engine.enqueue("read_file", {"rel_path": "a.txt"}, mission_id=mission.id)
    engine.runner(until_idle=True, roots={"root": place}).run()
    assert engine.job(seen).state == "succeeded"
    assert code_of(engine, job) == "ROOT_CHANGED"


def test_a_runner_that_has_ended_has_no_root_open(engine: Engine, root: Path) -> None:
    runner = engine.runner(until_idle=True)
    launch(engine, root, WRITE)
    runner.run()
    opened = [*Path("/proc/self/fd").iterdir()]
    assert not [one for one in opened if one.exists() and one.samefile(root)]


def test_another_process_finds_the_root_changed(sqlite_copy_url: str, root: Path) -> None:
    with Engine(sqlite_copy_url) as engine:
        mission = launch(engine, root, WRITE)
        put_directory(root)
        command = [sys.executable, "-m", "lcp_engine", "--db", sqlite_copy_url, "work", "--until-idle"]
        subprocess.run(command, check=False, capture_output=True)
        assert (engine.mission(mission.id).error or {}).get("error_code") == "ROOT_CHANGED"
    assert private(root) == ["PRIVATE\n"] * 2


def test_an_identity_is_compared_as_far_as_it_is_known(root: Path) -> None:
    identity = identity_at(root)
    assert identity is not None
    assert RootIdentity.read(identity.text) == identity
    for one in (replace(identity, born=None), replace(identity, inode=None)):
        assert one.matches(identity)
        assert RootIdentity.read(one.text) == one
    assert identity.inode is not None
    assert not replace(identity, inode=identity.inode + 1).matches(identity)
    assert not replace(identity, filesystem=1).matches(identity)
    open_known(KnownRoot(1, str(root), replace(identity, machine="another", inode=1))).close()
