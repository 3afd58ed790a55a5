"""Two machines use one database and have different directories at the same path."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine import Engine, LcpError
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.errors import ErrorCode
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.sandbox import root_identity

pytestmark = pytest.mark.both

APPEND: JsonValue = {
    "ok": True,
    "action": "write_file",
    "rel_path": "log.txt",
    "content": "line\n",
    "mode": "append",
}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}

DIES = """
import json, os, signal, sys
from lcp_engine import Engine
from lcp_engine.sandbox import root_identity
from lcp_engine.sandbox.atomic_write import LocalFile
_, url, machine, moment, do, roots = sys.argv
root_identity.this_machine = lambda: machine
def dying(put):
    def last(*given, **named):
        if moment == "after":
            put(*given, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    return last
LocalFile.put, LocalFile.put_prepared = dying(LocalFile.put), dying(LocalFile.put_prepared)
with Engine(url, isolation="off") as engine:
    if do == "work":
        engine.runner(until_idle=True, roots=json.loads(roots)).run()
    else:
        engine.undo(int(do))
"""


@dataclass
class Machines:
    """Two machines, each with a directory of its own at `root`; one of them is looked at at a time."""

    url: str
    root: Path
    engine: Engine
    on: Callable[[str], AbstractContextManager[Path]]

    def launch(self) -> int:
        spec: dict[str, JsonValue] = {
            "goal": "Append.",
            "planner": {"type": "script", "replies": [APPEND, DONE]},
            "policy": [{"kinds": ["*"], "do": "auto"}],
        }
        return self.engine.launch(spec, root=self.root).id

    def work(self) -> None:
        self.engine.work(until_idle=True)

    def die(self, machine: str, *, moment: str = "after", do: str = "work", roots: str = "{}") -> None:
        """Have a process of that machine killed at its first write."""
        assert Python("-c", DIES, self.url, machine, moment, do, roots).wait() == -signal.SIGKILL

    def states(self, mission: int) -> list[object]:
        return [change["state"] for change in self.engine.changes(mission)]


@pytest.fixture
def machines(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machines]:
    root = tmp_path / "site"
    for name in ("A", "B"):
        (tmp_path / name).mkdir()

    @contextmanager
    def on(machine: str) -> Iterator[Path]:
        monkeypatch.setattr(root_identity, "this_machine", lambda: machine)
        place = (tmp_path / machine).rename(root)
        try:
            yield place / "log.txt"
        finally:
            root.rename(tmp_path / machine)

    with Engine(database_url, isolation="off") as engine:
        yield Machines(database_url, root, engine, on)


@pytest.mark.parametrize("moment", [pytest.param("before", marks=pytest.mark.proof), "after"])
def test_a_write_that_was_killed_on_one_machine_is_not_judged_on_the_other(
    machines: Machines, moment: str
) -> None:
    with machines.on("A"):
        mission = machines.launch()
        machines.die("A", moment=moment)
    with machines.on("B") as file:
        machines.work()
        assert machines.states(mission) == ["intent"]
        assert not file.exists()
    with machines.on("A") as file:
        machines.work()
        for held in machines.engine.jobs(mission_id=mission, states=["held"]):
            assert held.reason == ReasonCode.ELSEWHERE
            machines.engine.approve(held.id)
            machines.work()
        assert file.read_text() == "line\n"
        assert machines.engine.mission(mission).outcome == "mission_complete"
        machines.engine.undo(mission)
        assert not file.exists()
    assert check_database(machines.url) == []


def test_a_runner_with_a_root_of_another_name_at_that_path_leaves_it_alone(machines: Machines) -> None:
    with machines.on("A"):
        mission, roots = machines.launch(), {"site": machines.root}
        machines.die("A", roots=json.dumps({"site": str(machines.root)}))
    with machines.on("B"):
        machines.engine.runner(until_idle=True, roots={"other": machines.root}).run()
        assert machines.states(mission) == ["intent"]
    with machines.on("A") as file:
        machines.engine.runner(until_idle=True, roots=roots).run()
        assert (file.read_text(), machines.states(mission)) == ("line\n", ["applied"])


def test_a_mission_goes_on_where_it_changed_files_unless_its_root_is_named(
    machines: Machines, postgres_url: str
) -> None:
    machines.url, machines.engine = postgres_url, Engine(postgres_url, isolation="off")
    with machines.engine as engine:
        with machines.on("A"):
            mission = machines.launch()
            machines.work()
            job = engine.enqueue("list_files", mission_id=mission)
        with machines.on("B"):
            runner = engine.runner(until_idle=True)
            runner.run()
            assert runner.left_to_others() == {str(machines.root): 1}
            assert engine.job(job).state == "queued"
            engine.runner(until_idle=True, roots={"site": machines.root}).run()
            assert engine.job(job).state == "succeeded"


def test_an_undo_is_independent_of_the_same_path_on_another_machine(machines: Machines) -> None:
    with machines.on("A"):
        first = machines.launch()
        machines.work()
    with machines.on("B") as file:
        second = machines.launch()
        machines.work()
        assert file.read_text() == "line\n"
    with machines.on("A") as file:
        assert len(machines.engine.undo(first).files) == 1
        assert not file.exists()
    with machines.on("B") as file:
        assert file.read_text() == "line\n"
        assert machines.engine.mission(second).deliverables == ["log.txt"]
        assert machines.engine.undo(first).files == ()
        assert len(machines.engine.undo(second).files) == 1
        assert not file.exists()
    assert check_database(machines.url) == []


def test_changes_of_older_versions_belong_to_the_machine_of_the_launch(machines: Machines) -> None:
    with machines.on("A"):
        first = machines.launch()
        machines.work()
    with machines.on("B"):
        machines.launch()
        machines.work()
    machines.engine.instance.database.write(lambda tx: tx.plain("UPDATE changes SET root_identity = NULL"))
    with machines.on("A") as file:
        assert len(machines.engine.undo(first).files) == 1
        assert not file.exists()


def test_what_one_machine_did_is_neither_undone_nor_compared_on_another(machines: Machines) -> None:
    with machines.on("A"):
        mission = machines.launch()
        machines.work()
    with machines.on("B") as file:
        file.write_text("line\n")
        with pytest.raises(LcpError, match="is on another machine") as raised:
            machines.engine.undo(mission)
        assert raised.value.code is ErrorCode.ROOT_CHANGED
        with pytest.raises(LcpError, match="is on another machine"):
            machines.engine.fork(mission, turn=1)
        assert [one.disk for one in machines.engine.facts(mission).files.rows] == [None]
        assert file.read_text() == "line\n"
        accepted = machines.engine.resume(mission, root=machines.root)
        assert accepted.root == str(machines.root)
        machines.engine.undo(mission)
        assert not file.exists()


def test_an_undo_that_was_killed_is_finished_on_its_machine(machines: Machines) -> None:
    with machines.on("A") as file:
        file.write_text("old\n")
        mission = machines.launch()
        machines.work()
        machines.die("A", moment="before", do=str(mission))
    with machines.on("B") as file:
        file.write_text("old\nline\n")
        machines.work()
        assert file.read_text() == "old\nline\n"
    with machines.on("A") as file:
        machines.engine.undo(mission)
        assert file.read_text() == "old\n"
        assert machines.states(mission) == ["applied", "applied"]


def test_a_directory_that_is_the_same_may_be_on_a_machine_of_another_name(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    with machines.on("A") as file:
        mission = machines.launch()
        machines.die("A")
        monkeypatch.setattr(root_identity, "this_machine", lambda: "a container that started again")
        machines.work()
        assert file.read_text() == "line\n"
        assert machines.engine.mission(mission).outcome == "mission_complete"
        machines.engine.undo(mission)
        assert not file.exists()
