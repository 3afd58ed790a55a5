"""A runner takes the missions whose root it serves, and leaves the others to runners that do."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pydantic import BaseModel, JsonValue
from tests.conftest import sqlite_url
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.runner.runner import Runner
from lcp_engine.sandbox import root_identity
from lcp_engine.sandbox.root_identity import RootIdentity, identity_at
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.roots import Roots, ServedMissions, claim_root
from lcp_engine.store.queries.records import Mission
from lcp_engine.workers.base import Context, Worker

pytestmark = pytest.mark.both

DRAIN = Path(__file__).with_name("drain.py")
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "All done."}


def launch(engine: Engine, root: Path) -> Mission:
    """A mission that looks at its root by the name it was launched with, and writes a file there."""
    root.mkdir(parents=True, exist_ok=True)
    replies: list[JsonValue] = [
        {
            "ok": True,
            "action": "create_followup_jobs",
            "new_jobs": [
                {"kind": "list_files", "params": {"root": str(root)}},
                {"kind": "write_file", "params": {"rel_path": "who.txt", "content": root.name}},
            ],
        },
        DONE,
    ]
    spec: dict[str, JsonValue] = {
        "goal": "Write.",
        "planner": {"type": "script", "replies": replies},
        "policy": [{"kinds": ["write_file"], "do": "auto"}],
        "root_aliases": [f"C:\\{root.name}"],
    }
    return engine.launch(spec, root=root)


def moved(root: Path) -> Path:
    """The directory, as another machine has it: under another path."""
    return root.rename(root.with_name(f"{root.name}-elsewhere"))


def start(url: str, roots: dict[str, str]) -> subprocess.Popen[str]:
    options = json.dumps({"until_idle": True, "threads": 2, "roots": roots})
    return Python(DRAIN, url, options, stderr=subprocess.PIPE)


def runners_of(engine: Engine, mission_id: int) -> set[int]:
    rows = engine.instance.database.read(
        lambda tx: tx.query_plain(
            "SELECT DISTINCT attempts.runner_id FROM attempts JOIN jobs ON jobs.id = attempts.job_id "
            f"WHERE jobs.mission_id = {int(mission_id)}"
        )
    )
    return {int(row[0]) for row in rows}


def test_two_processes_with_a_root_each_take_the_missions_of_their_own(
    database_url: str, tmp_path: Path
) -> None:
    with Engine(database_url) as engine:
        missions = [launch(engine, tmp_path / name) for name in ("one", "two") * 5]
        places = {name: moved(tmp_path / name) for name in ("one", "two")}
        crew = [start(database_url, {name: str(place)}) for name, place in places.items()]
        for process in crew:
            _, error = process.communicate()
            assert (process.returncode, error) == (0, "")
        ends = [engine.mission(mission.id) for mission in missions]
        assert [mission.outcome for mission in ends] == ["mission_complete"] * 10, ends[0].error
        ones, twos = (
            set().union(*(runners_of(engine, mission.id) for mission in missions[n::2])) for n in (0, 1)
        )
    assert (len(ones), len(twos)) == (1, 1)
    assert ones != twos
    assert [(place / "who.txt").read_text() for place in places.values()] == ["one", "two"]


@pytest.mark.parametrize("name", ["{root}", "C:\\one", "one"])
def test_a_root_has_three_names(database_url: str, tmp_path: Path, name: str) -> None:
    root = tmp_path / "one"
    with Engine(database_url) as engine:
        mission = launch(engine, root)
        place = moved(root)
        engine.runner(until_idle=True, roots={name.format(root=root): place}).run()
        assert engine.mission(mission.id).outcome == "mission_complete"
    assert (place / "who.txt").read_text() == "one"


def test_a_runner_ends_when_only_jobs_of_others_are_left_and_tells_which(
    database_url: str, tmp_path: Path
) -> None:
    with Engine(database_url) as engine:
        theirs, ours = launch(engine, tmp_path / "theirs"), launch(engine, tmp_path / "ours")
        engine.enqueue("list_files", mission_id=theirs.id, delay=3600.0)
        runner = engine.runner(until_idle=True, roots={"ours": tmp_path / "ours"})
        runner.run()
        assert engine.mission(ours.id).status == "completed"
        assert runner.left_to_others() == {str(tmp_path / "theirs"): 2}
        untouched = engine.jobs(mission_id=theirs.id)
        assert [(job.state, job.attempt) for job in untouched] == [("queued", 0)] * 2


def test_a_claim_does_not_wait_for_a_file_system_that_hangs(
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = threading.Event()

    def hang(path: str) -> RootIdentity | None:
        if path.endswith("hangs"):
            answers.wait()
        return identity_at(path)

    monkeypatch.setattr("lcp_engine.store.host.roots.identity_at", hang)
    with Engine(database_url) as engine:
        mute, fine = launch(engine, tmp_path / "hangs"), launch(engine, tmp_path / "fine")
        runner = Runner(engine.instance, until_idle=True, roots=Roots(only_here=False))
        runner.run()
        assert engine.mission(fine.id).status == "completed"
        assert [job.attempt for job in engine.jobs(mission_id=mute.id)] == [0]
        assert runner.left_to_others() == {str(tmp_path / "hangs"): 1}
        assert runner._served.silent_roots == {str(tmp_path / "hangs")}
        answers.set()
        Runner(engine.instance, until_idle=True, roots=Roots(only_here=False)).run()
        assert engine.mission(mute.id).status == "completed"
    assert caplog.messages == [f"root {tmp_path / 'hangs'} does not answer; its missions have to wait"]


def test_threads_that_look_at_a_slow_root_together_all_wait_for_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one had taken the root for silent, and a runner with two threads had left its missions."""

    def look_slowly(path: str) -> RootIdentity | None:
        time.sleep(0.2)
        return identity_at(path)

    monkeypatch.setattr("lcp_engine.store.host.roots.identity_at", look_slowly)
    with Engine(database_url) as engine:
        mission = launch(engine, tmp_path / "slow")
        served = ServedMissions(Roots(only_here=False))
        together = threading.Barrier(3, timeout=60)

        def look() -> bool:
            together.wait()
            return engine.instance.database.read(lambda tx: served.includes(tx, mission.id))

        with ThreadPoolExecutor(3) as pool:
            found = [pool.submit(look) for _ in range(3)]
        assert [one.result() for one in found] == [True, True, True]
        assert (served.elsewhere, served.silent_roots) == (frozenset(), frozenset())


def test_a_runner_until_idle_waits_for_a_root_that_answers_late(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had ended with the mission undone, because the root took longer than a claim waits for one."""
    answers = threading.Event()

    def answer_late(path: str) -> RootIdentity | None:
        answers.wait()
        return identity_at(path)

    monkeypatch.setattr("lcp_engine.store.host.roots.identity_at", answer_late)
    with Engine(database_url) as engine:
        mission = launch(engine, tmp_path / "late")
        runner = Runner(engine.instance, until_idle=True, roots=Roots(only_here=False))

        def answer() -> None:
            until = time.monotonic() + 60
            while not runner.silent_roots and time.monotonic() < until:
                time.sleep(0.01)
            answers.set()

        thread = threading.Thread(target=answer)
        thread.start()
        runner.run()
        thread.join()
        assert engine.mission(mission.id).status == "completed"
        assert (runner.left_to_others(), runner.silent_roots) == ({}, frozenset())


@pytest.fixture
def on_nfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Every root is on NFS, and this is the machine of the given name."""
    for module in ("store.host.roots", "sandbox.root_identity"):
        monkeypatch.setattr(f"lcp_engine.{module}.shared_file_system", lambda path: "NFS")

    def be(machine: str) -> None:
        monkeypatch.setattr("lcp_engine.store.host.roots.this_machine", lambda: machine)

    be("one")
    yield be
    root_identity._networks.clear()


def test_one_machine_alone_writes_to_a_root_on_a_network(
    postgres_url: str,
    tmp_path: Path,
    on_nfs: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    root = tmp_path / "shared"
    with Engine(postgres_url) as engine:
        first = launch(engine, root)
        engine.work(until_idle=True)
        on_nfs("two")
        second = launch(engine, root)
        runner = engine.runner(until_idle=True)
        runner.run()
        assert runner.left_to_others() == {str(root): 1}
        fact = f"root {root} is on NFS, and another machine writes to it, whose locks may exclude nobody here"
        advice = "its missions are left to that machine; `lcp work --root NAME=DIR` takes them over"
        assert caplog.messages == [f"{fact}: {advice}"]
        engine.runner(until_idle=True, roots={"shared": root}).run()
        assert [engine.mission(one.id).outcome for one in (first, second)] == ["mission_complete"] * 2
        on_nfs("one")
        third = launch(engine, root)
        engine.work(until_idle=True)
        assert engine.mission(third.id).status == "running"


def test_a_write_is_given_back_once_another_machine_writes_to_the_root(
    postgres_url: str, tmp_path: Path, on_nfs: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both machines have met the root before anybody wrote to it."""
    root = tmp_path / "shared"
    claimed: list[bool] = []

    def claim(tx: Tx, root: str) -> bool:
        if not claimed:  # just before this machine does
            on_nfs("two")
            claim_root(tx, root)
            on_nfs("one")
        claimed.append(claim_root(tx, root))
        return claimed[-1]

    monkeypatch.setattr("lcp_engine.changes.journal.claim_root", claim)
    with Engine(postgres_url) as engine:
        mission = launch(engine, root)
        runner = engine.runner(until_idle=True)
        runner.run()
        assert runner.left_to_others() == {str(root): 1}
        write = next(job for job in engine.jobs(mission_id=mission.id) if job.kind == "write_file")
        assert (write.state, write.attempts, claimed) == ("queued", [], [False])
        assert not (root / "who.txt").exists()
        released = next(one for one in engine.events(mission.id) if one["event"] == "released")
        assert isinstance(released["data"], dict)
        assert (
            released["data"]["reason"] == "another machine writes to the root, and locks may not exclude it"
        )


def test_a_root_that_hangs_takes_no_thread_from_other_missions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the end of the runner wait for it: what was under way there is queued again.

    With PostgreSQL nothing is claimed there in the first place.
    """
    answers = threading.Event()

    def hang(path: str) -> RootIdentity | None:
        if path.endswith("hangs"):
            answers.wait()
        return identity_at(path)

    def execute(params: BaseModel, context: Context) -> BaseModel:
        if context.root.path.endswith("hangs"):
            answers.wait()
        return params

    monkeypatch.setattr("lcp_engine.store.host.roots.identity_at", hang)
    monkeypatch.setattr("lcp_engine.runner.runner.HANG_SECONDS", 0.1)
    look = Worker(kind="look", params=Numbered, result=Numbered, execute=execute, has_effects=False)
    spec: dict[str, JsonValue] = {
        "goal": "Look.",
        "planner": {"type": "script", "replies": [{"ok": True, "action": "create_followup_jobs", "new_jobs": [
            {"kind": "look", "params": {"at": 1}}, {"kind": "look", "params": {"at": 2}}]}, DONE]},
    }  # fmt: skip
    with Engine(sqlite_url(tmp_path), workers=[look.for_any_params()]) as engine:
        roots = [tmp_path / name for name in ("hangs", "fine")]
        for root in roots:
            root.mkdir()
        mute, fine = (engine.launch(spec, root=root) for root in roots)
        runner = engine.runner()
        thread = threading.Thread(target=runner.run, daemon=True)
        thread.start()
        while engine.mission(fine.id).status != "completed":
            time.sleep(0.05)
        assert runner.silent_roots == {str(roots[0])}
        runner.stop()
        thread.join(30)
        assert not thread.is_alive()
        left = engine.jobs(mission_id=mute.id)[1:]
        assert [(job.state, job.attempts) for job in left] == [("queued", [])] * 2
        answers.set()
        engine.work(until_idle=True)
        assert engine.mission(mute.id).status == "completed"


class Numbered(BaseModel):
    at: int = 0


class Nothing(BaseModel):
    pass


def test_jobs_without_a_root_run_everywhere(database_url: str, tmp_path: Path) -> None:
    with Engine(database_url) as engine:
        queue = engine.mission(engine.job(engine.enqueue("list_files")).mission_id)
        engine.runner(until_idle=True, roots={"ours": tmp_path}).run()
        assert engine.mission(queue.id).jobs["queued"] == 0


def test_on_postgres_a_root_that_is_not_here_is_left_alone_until_it_is(
    postgres_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "one"
    with Engine(postgres_url) as engine:
        missions = [launch(engine, root) for _ in range(3)]
        away = moved(root)
        runner = engine.runner(until_idle=True)
        runner.run()
        assert runner.left_to_others() == {str(root): 3}
        away.rename(root)
        engine.work(until_idle=True)
        assert [engine.mission(mission.id).outcome for mission in missions] == ["mission_complete"] * 3


def test_on_sqlite_a_root_that_is_gone_fails_the_job(tmp_path: Path) -> None:
    root = tmp_path / "one"
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        mission = launch(engine, root)
        moved(root)
        engine.work(until_idle=True)
        assert engine.mission(mission.id).status == "failed"


def test_a_mission_is_looked_up_once_and_its_siblings_with_it(database_url: str, tmp_path: Path) -> None:
    with Engine(database_url) as engine:
        missions = [launch(engine, tmp_path / "one").id for _ in range(3)]
        moved(tmp_path / "one")
        share = ServedMissions(Roots(only_here=False))
        assert not engine.instance.database.read(lambda tx: share.includes(tx, missions[0]))
        assert share.elsewhere == set(missions)
        share.forget()
        assert share.elsewhere == set()
        runner = Runner(engine.instance, until_idle=True, roots=Roots({"two": tmp_path}))
        runner.run()
        assert sum(runner.left_to_others().values()) == 3
