"""Everything that goes wrong around the engine, as a table of scenarios: `make faults`.

A scenario is a function that drives real `lcp` processes. What they leave behind is then checked from outside, the same
for all (`history`). What else a scenario expects it says with `Failed`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from subprocess import Popen, SubprocessError
from tempfile import TemporaryDirectory

import psycopg
from pydantic import JsonValue
from tests.faults import history
from tests.faults.machine import can_be_another
from tests.faults.paid import Model
from tests.faults.places import Memory, Network, Served, no_fuse, no_mounts, no_network
from tests.faults.program import FILE
from tests.faults.server import FAKETIME, programs
from tests.faults.stage import PATIENCE, Failed, Stage, Wanted, kill, resume, stop, suspend
from tests.processes import processes_with
from tests.walls import missing

from lcp_engine.core.programs.walls import WALLS, Step

SQLITE, POSTGRESQL = "sqlite", "postgresql"
BOTH = (SQLITE, POSTGRESQL)
STALL = 12.0
"""Longer than a lease (10 s), shorter than what a writer waits for SQLite (30 s)."""
HOUR = 3600.0
NOTICED = 20.0
"""A runner notices within 15 s, if the machine has time for it."""
MEMORY = Path("/dev/shm")
Need = Callable[[], str | None]


def _no_server() -> str | None:
    return None if programs() else "needs the PostgreSQL server"


def _no_faketime() -> str | None:
    return None if FAKETIME else "needs libfaketime"


@dataclass(frozen=True)
class Scenario:
    """`run` on each of `databases`. `needs` say why a machine cannot. On `short` of them every CI run tries it."""

    run: Callable[[Stage], None]
    databases: tuple[str, ...] = BOTH
    needs: tuple[Need, ...] = ()
    short: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.run.__name__

    def missing(self, database: str) -> str | None:
        """What this machine lacks for it; None if nothing."""
        needs = (_no_server, *self.needs) if database == POSTGRESQL else self.needs
        return next((why for need in needs if (why := need())), None)

    def problems(self, database: str, seed: int) -> list[str]:
        """What was not as promised; empty if all was."""
        where = MEMORY if os.access(MEMORY, os.W_OK) else None
        with ExitStack() as stack:
            # A mount that hung may be left for a moment.
            directory = stack.enter_context(
                TemporaryDirectory(prefix="lcp-faults-", dir=where, ignore_cleanup_errors=True)
            )
            stage = Stage(database, Path(directory), stack, seed)
            try:
                self.run(stage)
                return history.problems(stage)
            except Failed as failed:
                return [str(failed)]
            except (SubprocessError, OSError, psycopg.Error, sqlite3.Error) as error:
                return [f"{type(error).__name__}: {error}"]


# -- Stalls


def the_database_is_held(stage: Stage) -> None:
    """Another program holds SQLite for 12 s while two runners work: nobody's job is taken from it."""
    mission = stage.appends(6, kind="test.line", seconds=1.0)
    for _ in range(2):
        stage.runner("--threads", "2")
    stage.wait("the first line", lambda: stage.succeeded(mission) > 0)
    with stage.held_by_another_program():
        time.sleep(STALL)
    stage.finish()
    _ran_once(stage)


def a_reply_arrives_while_the_database_is_held(stage: Stage) -> None:
    """The database is held for 12 s, longer than writers wait (5 s), from just before a paid reply arrives."""
    stage.environment["LCP_BUSY_SECONDS"] = "5"
    model = _ask(stage)
    runner = stage.runner()
    stage.wait("a question", lambda: model.asked > 0)
    with stage.held_by_another_program():
        model.answers.set()
        time.sleep(STALL)
    if runner.poll() is not None:
        raise Failed(f"the runner ended with {runner.returncode} because the database was busy")
    stage.finish()
    stage.paid = model.asked


def a_runner_is_suspended_while_it_asks(stage: Stage) -> None:
    """A runner is suspended for 12 s while a paid reply arrives, and another one takes its place: both are counted."""
    model = _ask(stage)
    runner = stage.runner()
    stage.wait("a question", lambda: model.asked > 0)
    suspend(runner)
    model.answers.set()
    other = stage.runner()
    stage.finish()
    resume(runner)
    time.sleep(3)
    stage.wait("all tokens", lambda: _tokens(stage) >= model.asked)
    stop(runner)
    stop(other)
    used = stage.number("SELECT count(*) FROM turns WHERE reply IS NOT NULL")
    if (used, _tokens(stage)) != (1, model.asked):
        raise Failed(f"{model.asked} replies were paid: {used} are used, {_tokens(stage)} tokens are counted")


def a_runner_is_killed_while_a_model_asks_to_wait(stage: Stage) -> None:
    """A model asks four times to wait, and the runner is killed meanwhile: nothing is charged or paid twice."""
    model = _ask(stage)
    model.refusals = 4
    model.answers.set()
    given_back = "SELECT count(*) FROM events WHERE event = 'released'"
    runner = stage.runner()
    stage.wait("a second refusal", lambda: stage.number(given_back) == 2)
    kill(runner)
    stage.runner()
    stage.finish()
    stage.paid = model.asked
    found = stage.number(given_back), stage.number("SELECT count(*) FROM attempts"), _tokens(stage)
    if found != (4, 1, 1):
        raise Failed(f"4 waits, 1 attempt and 1 token are expected, not {found}")


def runners_are_suspended(stage: Stage) -> None:
    """Three runners write; one after the other is suspended for 11 s with its helpers, and goes on."""
    for _ in range(4):
        stage.appends(20)
    runners = [stage.runner("--threads", "2") for _ in range(3)]
    for runner in stage.chance.sample(runners, 2):
        time.sleep(stage.chance.random())
        suspend(runner)
        time.sleep(11)
        resume(runner)
    stage.finish()


def a_suspended_writer_blocks_nobody(stage: Stage) -> None:
    """Whenever SQLite's own lock is free, everybody can write, however often a writer is suspended."""
    stage.environment["LCP_BUSY_SECONDS"] = "10"
    stage.appends(50)
    runners = [stage.runner("--threads", "2") for _ in range(3)]
    for _ in range(8):
        stage.appends(10)
        runner = stage.chance.choice(runners)
        suspend(runner)
        time.sleep(0.2)
        if _is_free(stage.database):
            stage.appends(1)
        resume(runner)
    stage.finish()


# -- Clocks


def _clocks_differ(seconds: float) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        other = stage.machine("other", other=stage.kind == POSTGRESQL)
        other.shift_clock(seconds)
        mission = stage.appends(4, kind="test.line", seconds=4.0)
        stage.runner("--threads", "2", machine=other)
        stage.wait("the first start", lambda: bool(stage.executions()))
        stage.runner("--threads", "2")
        stage.finish(mission)
        _ran_once(stage)

    run.__name__ = f"clocks_differ_by_{_spoken(seconds)}"
    return run


def _the_clock_is_set(seconds: float) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        mission = stage.appends(4, kind="test.line", seconds=3.0)
        stage.runner("--threads", "2")
        stage.wait("the first start", lambda: bool(stage.executions()))
        stage.here.shift_clock(seconds)
        stage.runner("--threads", "2")
        stage.finish(mission)
        _ran_once(stage)

    run.__name__ = f"the_clock_is_set_by_{_spoken(seconds)}"
    return run


def _the_servers_clock_is_set(seconds: float) -> Callable[[Stage], None]:
    def run(stage: Stage) -> None:
        server = stage.serve(has_own_time=True)
        mission = stage.appends(4, kind="test.line", seconds=5.0)
        stage.runner("--threads", "2")
        stage.wait("the first start", lambda: bool(stage.executions()))
        server.shift(seconds)
        stage.runner("--threads", "2", machine=stage.machine("other", other=True))
        stage.finish(mission)
        _ran_once(stage)

    run.__name__ = f"the_servers_clock_is_set_by_{_spoken(seconds)}"
    return run


def a_machine_sleeps(stage: Stage) -> None:
    """One of two machines sleeps for 15 s in its jobs: the other one does them, and nothing happens twice."""
    sleeper = stage.machine("sleeper", other=True)
    mission = stage.appends(6, kind="test.line", seconds=1.0)
    runner = stage.runner("--threads", "2", machine=sleeper)
    stage.wait("the first start", lambda: bool(stage.executions()))
    suspend(runner)
    sleeper.shift_clock(0, monotonic=-15)  # the monotonic clock of a machine that sleeps stands still
    stage.runner("--threads", "2")
    stage.finish(mission)
    resume(runner)
    after = stage.appends(6, kind="test.line", seconds=1.0)
    stage.finish(after)
    stop(runner)


def a_machine_slept_before(stage: Stage) -> None:
    """A machine that has slept for 12 s since its runner began works on beside another one: it keeps its jobs."""
    sleeper = stage.machine("sleeper", other=True)
    runner = stage.runner("--threads", "2", machine=sleeper)
    warm = stage.appends(1)
    stage.finish(warm)
    sleeper.shift_clock(0, monotonic=-STALL)
    time.sleep(4)  # it renews once
    mission = stage.appends(2, kind="test.line", seconds=8.0)
    stage.wait("the first start", lambda: bool(stage.executions()))
    stage.runner("--threads", "2")
    stage.finish(mission)
    stop(runner)
    _ran_once(stage)


# -- Two machines


def two_machines_have_one_path(stage: Stage) -> None:
    """Two machines have different directories at one path; one of them is killed in its writes and comes again."""
    path = stage.root("site")
    places = {name: stage.root(f"site-{name}") for name in ("a", "b")}
    machines = {name: stage.machine(name, other=True, mounts={path: place}) for name, place in places.items()}
    for _ in range(3):
        for name, place in places.items():
            spec: dict[str, JsonValue] = {"root_aliases": [name]}
            stage.appends(20, path, place=place, machine=machines[name], spec=spec)
    served = {name: ("--threads", "2", "--root", f"{name}={path}") for name in places}
    a = stage.runner(*served["a"], machine=machines["a"])
    stage.runner(*served["b"], machine=machines["b"])
    for _ in range(3):
        time.sleep(0.5 + stage.chance.random())
        kill(a)
        time.sleep(STALL)  # the other machine looks after what the dead one left
        a = stage.runner(*served["a"], machine=machines["a"])
    stage.finish()


def two_machines_share_a_root(stage: Stage) -> None:
    """Two machines have a root on a network, where their locks do not exclude each other: one of them writes to it."""
    path, behind = stage.root("shared"), stage.directory / "behind"
    machines = []
    for name in ("a", "b"):
        place = stage.directory / "mounts" / name
        Served(place, behind, stage.stack, "sshfs")
        machines.append(stage.machine(name, other=True, mounts={path: place}))
    missions = [stage.appends(10, path, place=behind, machine=machine) for machine in machines * 3]
    runners = [stage.runner("--threads", "2", machine=machine) for machine in machines]
    for _ in range(3):
        time.sleep(stage.chance.random())
        for nth, machine in enumerate(machines):
            kill(runners[nth])
            runners[nth] = stage.runner("--threads", "2", machine=machine)
    stage.finish(*missions)
    if (found := _writers(stage)) != 1:
        raise Failed(f"{found} machines wrote to the root")
    for runner in runners:
        stop(runner)
    for machine in machines:  # the other one takes it over, and then the first one again
        later = stage.appends(5, path, place=behind, machine=machine)
        served = stage.runner("--root", f"shared={path}", machine=machine)
        stage.finish(later)
        stop(served)
    if (found := _writers(stage)) != len(machines):
        raise Failed(f"{found} machines wrote to the root that each of them had taken over")


def _writers(stage: Stage) -> int:
    places = stage.rows("SELECT DISTINCT root_identity FROM changes")
    return len({str(place).partition(":")[0] for (place,) in places})


def two_runtime_directories(stage: Stage) -> None:
    """A service and a desktop session share a database, and the clock of one lags by a minute: each keeps its jobs."""
    session = stage.machine("session")
    session.shift_clock(-60, monotonic=-60)
    mission = stage.appends(4, kind="test.line", seconds=4.0)
    stage.runner("--threads", "2", machine=session)
    stage.wait("the first start", lambda: bool(stage.executions()))
    stage.runner("--threads", "2")
    stage.finish(mission)
    _ran_once(stage)


def a_machine_dies(stage: Stage) -> None:
    """A machine is gone with everything on it; another one, of which it knows nothing, does its jobs."""
    gone = stage.machine("gone", other=True)
    stage.appends(10, kind="test.line", seconds=0.5)
    runner = stage.runner("--threads", "2", machine=gone)
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    suspend(runner)  # it never says a word again
    until = time.monotonic() + PATIENCE
    while _holds_locks(stage):  # which a machine that is gone would not
        if time.monotonic() > until:
            raise Failed("the runner was never without a lock")
        resume(runner)
        time.sleep(0.05)
        suspend(runner)
    stage.runner("--threads", "2")
    stage.finish()


def _holds_locks(stage: Stage) -> bool:
    """Whether anybody has a directory of a root locked, or a transaction open."""
    root = f":{stage.root().stat().st_ino} "
    if any(root in line for line in Path("/proc/locks").read_text(encoding="ascii").splitlines()):
        return True
    open_now = (
        "SELECT count(*) FROM pg_stat_activity WHERE xact_start IS NOT NULL AND pid <> pg_backend_pid()"
    )
    return stage.number(f"{open_now} AND backend_type = 'client backend'") > 0


# -- Roots


def a_root_hangs(stage: Stage) -> None:
    """The file system under one root stops in the middle of its jobs; the other missions and SIGTERM do not wait."""
    hanging = Served(stage.directory / "roots" / "hanging", stage.directory / "behind", stage.stack)
    stage.environment["LCP_ISOLATION"] = "auto"
    there = stage.appends(20, stage.directory / "roots" / "hanging", place=stage.directory / "behind")
    old = stage.runner("--threads", "2")
    stage.wait("a line in the root that will hang", lambda: stage.succeeded(there) > 0)
    hanging.hang()
    beside = stage.appends(5)
    stage.wait("lines in another root", lambda: stage.succeeded(beside) == 5, 30)
    new = stage.runner("--threads", "2")
    kill(old)
    later = stage.appends(5)
    stage.wait("lines in another root after a kill", lambda: stage.succeeded(later) == 5, 30)
    stage.wait("a word about the root", lambda: "hanging" in stage.must("--json", "runners"))
    stop(new, 60)
    hanging.recover()
    stage.may_fail = True  # attempts in a root that hangs end with a timeout
    stage.runner("--threads", "2")
    stage.finish()


def a_root_is_full(stage: Stage) -> None:
    """There is no room in a root for a while: what failed was not written, what succeeded was."""
    memory = Memory(stage.root("small"), stage.stack, 256)
    stage.may_fail = True
    stage.appends(40, stage.root("small"))
    stage.runner("--threads", "2")
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    memory.fill()
    time.sleep(2)
    memory.free()
    stage.finish()


def a_root_is_read_only(stage: Stage) -> None:
    """A root becomes read-only for a while, as after an error of its disk."""
    memory = Memory(stage.root("small"), stage.stack, 1024)
    stage.may_fail = True
    stage.appends(40, stage.root("small"))
    stage.runner("--threads", "2")
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    stage.wait("a moment in which no file is open for writing", lambda: _are_refused(memory))
    time.sleep(2)
    memory.allow_writes()
    stage.finish()


def _are_refused(memory: Memory) -> bool:
    try:
        memory.refuse_writes()
    except SubprocessError:  # the file system is busy
        return False
    return True


def a_stage_is_lost_while_it_is_merged(stage: Stage) -> None:
    """A runner is killed in the middle of a decided merge, and the stage is gone: the next one finishes it."""
    stage.environment["XDG_STATE_HOME"] = str(stage.directory / "state")
    stage.others_write = True  # none does, but a stage and its root hold one history each
    root, names = stage.root(), [f"{nth:02}.bin" for nth in range(40)]
    for nth, name in enumerate(names):
        (root / name).write_bytes(bytes([nth]) * 2_000_000)
    moves: list[JsonValue] = [
        {"kind": "move_file", "params": {"path": name, "new_path": f"moved/{name}"}} for name in names
    ]
    small: JsonValue = {"kind": "write_file", "params": {"path": "small.txt", "content": "small\n"}}
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [*moves, small]},
        {"ok": True, "action": "mission_complete", "summary": "Moved."},
    ]
    mission = stage.launch(replies, root, Wanted(root), spec={"stage": True})
    stage.must("work", "--until-idle")
    merge = stage.number("SELECT id FROM jobs WHERE kind = 'merge'")
    stage.must("approve", str(merge))
    runner = stage.runner()
    until = time.monotonic() + PATIENCE
    while not any(root.glob("moved/*.bin")):  # without a pause: the rest follows within milliseconds
        if time.monotonic() > until:
            raise Failed("no file was merged")
    kill(runner)
    if not stage.number("SELECT count(*) FROM changes WHERE state = 'intent'"):
        raise Failed("the merge was over before the runner was killed")
    for place in (stage.directory / "state").glob(f"*/*/{mission}"):
        shutil.rmtree(place)
    stage.must("work", "--until-idle")
    stage.finish()
    found = {name: (root / "moved" / name).read_bytes() for name in names}
    if any(data != bytes([nth]) * 2_000_000 for nth, data in enumerate(found.values())):
        raise Failed("a file was merged with another content")
    if (root / "small.txt").read_text() != "small\n" or any((root / name).exists() for name in names):
        raise Failed("the merge was not finished")


def somebody_else_saves(stage: Stage) -> None:
    """Another program saves the file that a runner writes to, also while the runner is suspended: no save is lost."""
    stage.others_write = stage.may_fail = True
    root = stage.root()
    file = root / FILE
    runner = stage.runner("--threads", "2")
    missions: list[int] = []
    for nth in range(150):
        if nth % 25 == 0:
            missions.append(stage.appends(50))
        if is_suspended := stage.chance.random() < 0.4:
            suspend(runner)
        saved = f"save-{nth}"
        (root / "saved").write_text(f"{saved}\n")
        (root / "saved").replace(file)
        if is_suspended:
            resume(runner)
        # For a moment a runner's own content may have the name.
        stage.wait(f"the return of {saved}", lambda saved=saved: _first_line(file) == saved, 10)  # type: ignore[misc]
        time.sleep(stage.chance.random() / 20)
        if (found := _first_line(file)) != saved:
            raise Failed(f"{saved} was overwritten, the file begins with {found}")
    for mission in missions:
        if not stage.ended(mission):
            stage.must("cancel", str(mission))
    stop(runner)


def _first_line(file: Path) -> str:
    return file.read_text().partition("\n")[0]


# -- People


def missions_are_cancelled_and_undone(stage: Stage) -> None:
    """Missions are cancelled in the middle of their writes and undone at once: nothing of them is left."""
    stage.may_fail = True
    runner = stage.runner("--threads", "2")
    roots, cancelled = [], 0
    many: dict[str, JsonValue] = {"limits": {"max_followups": 200, "max_jobs": 200}}
    for nth in range(12):
        roots.append(stage.root(f"root-{nth}"))
        mission = stage.appends(200, roots[-1], kind="test.line", seconds=0.05, spec=many)
        stage.wait("the first line", lambda mission=mission: stage.succeeded(mission) > 0)  # type: ignore[misc]
        time.sleep(stage.chance.random() / 20)
        if is_suspended := nth % 3 == 2:
            suspend(runner)
        with ThreadPoolExecutor(1) as person:  # who waits for a runner that is suspended in a transaction
            was_cancelled = person.submit(_cancel_and_undo, stage, mission)
            if is_suspended:
                time.sleep(1)
                resume(runner)
            cancelled += was_cancelled.result()
    time.sleep(3)
    stop(runner)
    if not cancelled:
        raise Failed("every mission had ended before it was cancelled")
    if left := [root.name for root in roots if (root / FILE).exists()]:
        raise Failed(f"what was undone was written again or left in {', '.join(left)}")


def _cancel_and_undo(stage: Stage, mission: int) -> bool:
    """Whether the mission could be cancelled."""
    said = stage.lcp("cancel", str(mission))
    stage.lcp("undo", str(mission))
    return said.returncode == 0


# -- The database's place


def the_database_has_no_room(stage: Stage) -> None:
    """The disk of a SQLite database is full for 5 s; what was acknowledged stays, and the work goes on."""
    memory = Memory(stage.database.parent, stage.stack, 8192)
    stage.appends(20, kind="test.line", seconds=0.3)
    stage.runner("--threads", "2")
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    memory.fill()
    time.sleep(5)
    memory.free()
    stage.finish()


def the_runtime_directory_is_full(stage: Stage) -> None:
    """There is no room in the runtime directory: the work goes on, or the error names the place."""
    place = Path(f"{stage.database}-run") if stage.kind == SQLITE else stage.here.runtime
    memory = Memory(place, stage.stack, 64)
    stage.appends(5)
    memory.fill()
    runner = stage.runner("--until-idle")
    if runner.wait(600) != 0 and str(place) not in stage.log.read_text():
        raise Failed(f"no place is named: {stage.log.read_text()[-300:]}")
    memory.free()
    stage.must("work", "--until-idle")


# -- Workers that fork


def a_forking_worker_is_killed(stage: Stage) -> None:
    """A runner whose jobs fork is killed at random; its orphans live on, and nobody waits for them."""
    stage.environment["LCP_BUSY_SECONDS"] = "5"
    stage.appends(40, kind="test.pooled_line", seconds=0.05)
    for _ in range(4):
        runner = stage.runner("--threads", "2")
        before = len(stage.executions())
        stage.wait("some jobs", lambda before=before: len(stage.executions()) >= before + 4)  # type: ignore[misc]
        time.sleep(stage.chance.random() / 5)
        kill(runner)
        stage.appends(1)  # by somebody else
    stage.runner("--threads", "2")
    stage.finish()


# -- Commands


def _a_runner_is_killed_while_a_command_runs(wall: Step) -> Callable[[Stage], None]:
    """A command and all that it started end with their runner; the next one runs it again, and removes what is left."""

    def scenario(stage: Stage) -> None:
        stage.commands_behind(wall)
        seconds = f"600.{os.getpid()}{time.monotonic_ns()}"
        root = stage.root()
        script = f"echo x > new.txt; test -e go || {{ setsid sleep {seconds} & sleep {seconds}; }}"
        runs: JsonValue = {"kind": "run_command", "params": {"command": ["sh", "-c", script]}}
        stage.launch(
            [
                {"ok": True, "action": "create_followup_jobs", "new_jobs": [runs]},
                {"ok": True, "action": "mission_complete", "summary": "Done."},
            ],
            root,
            Wanted(root),
            spec={
                "commands": {"allow": [["sh", "-c", "*"]], "seconds": 900},
                "policy": [{"kinds": ["run_command"], "do": "auto"}],
            },
        )
        runner = stage.runner()
        stage.wait("the command", lambda: len(processes_with(seconds)) >= 2)
        kill(runner)
        stage.wait("the end of what it started", lambda: not processes_with(seconds), NOTICED)
        (root / "go").touch()
        stage.runner()
        stage.finish()
        stage.wait("the end of what was left", lambda: not stage.left_by_commands(), NOTICED)
        if sorted(path.name for path in root.iterdir()) != ["go"]:
            raise Failed(f"the root has {sorted(path.name for path in root.iterdir())}")

    scenario.__name__ = f"a_runner_is_killed_while_a_command_runs_behind_{wall}"
    return scenario


# -- The server


def the_server_restarts(stage: Stage) -> None:
    """The server ends as in a crash and comes back, three times, under load."""
    server = stage.serve()
    for _ in range(3):
        stage.appends(30)
    runners = [stage.runner("--threads", "2") for _ in range(2)]
    _await_start(stage, runners)
    for _ in range(3):
        time.sleep(0.5 + stage.chance.random())
        server.restart()
        stage.appends(20)
    _are_alive(runners)
    stage.finish()


def the_server_is_away(stage: Stage) -> None:
    """The server is away for 20 s: runners wait for it."""
    server = stage.serve()
    stage.appends(30, kind="test.line", seconds=0.2)
    runners = [stage.runner("--threads", "2") for _ in range(2)]
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    server.stop()
    time.sleep(20)
    server.start()
    _are_alive(runners)
    stage.finish()
    _are_alive(runners)


def acknowledgements_are_lost(stage: Stage) -> None:
    """Commits reach the server, and the answer to one in ten does not come back."""
    proxy = stage.proxy(one_of=10)
    stage.appends(1)
    proxy.losing = True
    for _ in range(3):
        stage.appends(30)
    runners = [stage.runner("--threads", "2") for _ in range(2)]
    stage.finish()
    _are_alive(runners)
    if proxy.lost == 0:
        raise Failed("no acknowledgement was lost")
    proxy.losing = False


def the_server_falls_silent(stage: Stage) -> None:
    """The server's machine vanishes without a word for 40 s: runners notice within 15 s, and go on when it is back."""
    network = Network(stage.stack)
    stage.serve()
    stage.appends(50, kind="test.line", seconds=0.2)
    runners = [stage.runner("--threads", "2") for _ in range(2)]
    stage.wait("the first line", lambda: stage.succeeded() > 0)
    network.fall_silent()
    try:
        noticed = stage.wait("a word about the server", lambda: "away" in stage.log.read_text(), 60)
        time.sleep(max(0.0, 40 - noticed))
    finally:
        network.recover()
    _are_alive(runners)
    stage.finish()
    _are_alive(runners)
    if noticed > NOTICED:
        raise Failed(f"it was noticed after {noticed:.0f} s")


def backends_are_terminated(stage: Stage) -> None:
    """Every connection is cut five times under load."""
    server = stage.serve()
    for _ in range(3):
        stage.appends(30)
    runners = [stage.runner("--threads", "2") for _ in range(2)]
    _await_start(stage, runners)
    for _ in range(5):
        time.sleep(stage.chance.random())
        server.terminate_backends()
    _are_alive(runners)
    stage.finish()


def commits_are_not_awaited(stage: Stage) -> None:
    """The role is set to commit without waiting for the disk, and the server crashes: the engine does wait."""
    server = stage.serve(options="-c synchronous_commit=off -c wal_writer_delay=10s -c fsync=on")
    for _ in range(3):
        stage.appends(40)
    stage.runner("--threads", "2")
    for _ in range(5):
        time.sleep(0.5 + stage.chance.random())
        server.restart()
    stage.runner("--threads", "2")
    stage.finish()


# -- What the scenarios share


def _ran_once(stage: Stage) -> None:
    """While every runner lives, no job is begun a second time."""
    runs = stage.executions()
    if again := sorted({line for line in runs if runs.count(line) > 1}):
        raise Failed(f"jobs of runners that lived were begun again: {', '.join(again)}")


def _ask(stage: Stage) -> Model:
    """Launch a mission whose model does not answer yet."""
    model = stage.stack.enter_context(Model())
    model.answers.clear()
    planner: JsonValue = {"type": "openai", "base_url": model.url, "model": "any"}
    stage.launch([], stage.root(), Wanted(stage.root()), spec={"planner": planner})
    return model


def _tokens(stage: Stage) -> int:
    return stage.number("SELECT CAST(coalesce(sum(output_tokens), 0) AS INTEGER) FROM missions")


def _is_free(database: Path) -> bool:
    """Whether SQLite's own lock is free: a program that knows nothing of the engine can write."""
    with closing(sqlite3.connect(database, timeout=1, isolation_level=None)) as file:
        try:
            file.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        file.execute("ROLLBACK")
        return True


def _spoken(seconds: float) -> str:
    way = "minus" if seconds < 0 else "plus"
    return f"{way}_an_hour" if abs(seconds) == HOUR else f"{way}_{abs(seconds):.0f}_s"


def _await_start(stage: Stage, runners: Sequence[Popen[bytes]]) -> None:
    """A runner that starts while the server is away ends at once, for whoever starts it to see."""
    stage.wait("the start", lambda: stage.log.read_text().count("working on") == len(runners))


def _are_alive(runners: Sequence[Popen[bytes]]) -> None:
    if ended := [runner.returncode for runner in runners if runner.poll() is not None]:
        raise Failed(f"runners ended with {ended}")


SHIFTS = (-STALL, STALL, -HOUR, HOUR)
SCENARIOS = (
    Scenario(the_database_is_held, (SQLITE,)),
    Scenario(a_reply_arrives_while_the_database_is_held, (SQLITE,)),
    Scenario(a_runner_is_suspended_while_it_asks),
    Scenario(a_runner_is_killed_while_a_model_asks_to_wait, short=(SQLITE,)),
    Scenario(runners_are_suspended),
    Scenario(a_suspended_writer_blocks_nobody, (SQLITE,)),
    *(Scenario(_clocks_differ(seconds), (SQLITE,)) for seconds in SHIFTS[:-1]),
    Scenario(_clocks_differ(HOUR), (SQLITE,), short=(SQLITE,)),
    *(Scenario(_clocks_differ(seconds), (POSTGRESQL,), (can_be_another,)) for seconds in SHIFTS),
    *(Scenario(_the_clock_is_set(seconds)) for seconds in SHIFTS),
    *(
        Scenario(_the_servers_clock_is_set(seconds), (POSTGRESQL,), (_no_faketime, can_be_another))
        for seconds in SHIFTS
    ),
    Scenario(a_machine_sleeps, (POSTGRESQL,), (can_be_another,)),
    Scenario(a_machine_slept_before, (POSTGRESQL,), (can_be_another,)),
    Scenario(two_machines_have_one_path, (POSTGRESQL,), (can_be_another,)),
    Scenario(two_machines_share_a_root, (POSTGRESQL,), (can_be_another, no_fuse)),
    Scenario(two_runtime_directories, (SQLITE,)),
    Scenario(a_machine_dies, (POSTGRESQL,), (can_be_another,)),
    Scenario(a_root_hangs, needs=(no_mounts, no_fuse)),
    Scenario(a_root_is_full, needs=(no_mounts,), short=(SQLITE,)),
    Scenario(a_root_is_read_only, needs=(no_mounts,)),
    Scenario(a_stage_is_lost_while_it_is_merged, short=(SQLITE,)),
    Scenario(somebody_else_saves),
    Scenario(missions_are_cancelled_and_undone),
    Scenario(the_database_has_no_room, (SQLITE,), (no_mounts,)),
    Scenario(the_runtime_directory_is_full, needs=(no_mounts,)),
    Scenario(a_forking_worker_is_killed),
    *(
        Scenario(_a_runner_is_killed_while_a_command_runs(wall), (SQLITE,), (partial(missing, wall),))
        for wall in WALLS
    ),
    Scenario(the_server_restarts, (POSTGRESQL,)),
    Scenario(the_server_is_away, (POSTGRESQL,)),
    Scenario(acknowledgements_are_lost, (POSTGRESQL,), short=(POSTGRESQL,)),
    Scenario(the_server_falls_silent, (POSTGRESQL,), (no_network,)),
    Scenario(backends_are_terminated, (POSTGRESQL,)),
    Scenario(commits_are_not_awaited, (POSTGRESQL,)),
)
