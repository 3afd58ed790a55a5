"""A confined process that dies at its birth is begun anew: its job is not to blame."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url

from lcp_engine import Engine
from lcp_engine.core.mission.accept import AcceptCheck
from lcp_engine.engine import settle
from lcp_engine.engine.settle import MAX_DEATHS
from lcp_engine.runner.confined import checks, pool, process
from lcp_engine.runner.confined.channel import Buffer, Head, Message
from lcp_engine.runner.confined.checks import Checks
from lcp_engine.runner.confined.process import FILE_KINDS, ConfinedProcess, Spawner
from lcp_engine.runner.confined.remote_files import Steps
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.workers.base import Caps

HERE = Path(__file__).parent
SPEC: dict[str, JsonValue] = {
    "goal": "g",
    "policy": [{"kinds": ["write_file"], "do": "auto"}],
    "planner": {"type": "script", "replies": []},
}
Disturb = Callable[[str, int], None]
Starts = Callable[[int], object] | None


@pytest.fixture(scope="module")
def births(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that says which births are disturbed."""
    return tmp_path_factory.mktemp("disturbed") / "births"


@pytest.fixture(scope="module")
def spawner(births: Path) -> Iterator[Spawner]:
    spawner = Spawner({**FILE_KINDS, "read_file": "stillborn:WORKER"}, [str(HERE), str(births.parent)])
    yield spawner
    spawner.close()


@pytest.fixture
def disturb(spawner: Spawner, births: Path, monkeypatch: pytest.MonkeyPatch) -> Disturb:
    """Disturbs the next births of confined processes; returns at once."""
    births.write_text("none 0")
    for module in (pool, checks):
        monkeypatch.setattr(module, "spawner", lambda: spawner)
    monkeypatch.setattr(process, "BIRTH_PAUSE", 0.001)
    monkeypatch.setattr(settle, "MAX_BACKOFF", 0.0)

    def disturb(how: str, times: int) -> None:
        births.write_text(f"{how} {times}")

    return disturb


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(sqlite_url(tmp_path), isolation=Isolation.REQUIRE) as opened:
        yield opened


def written(engine: Engine, place: Path) -> tuple[dict[str, JsonValue], str | None]:
    """The job that wrote a file, and what the file holds now."""
    mission = engine.launch(SPEC, root=place).id
    job = engine.enqueue(
        "write_file", {"rel_path": "log.txt", "mode": "append", "content": "line\n"}, mission_id=mission
    )
    engine.work(until_idle=True, kinds=["write_file"])
    log = place / "log.txt"
    return engine.job(job).json, log.read_text() if log.exists() else None


@pytest.mark.turns(2)
@pytest.mark.parametrize("how", ["child", "server", "fork", "memory"])
@pytest.mark.parametrize("times", [1, 3])
def test_deaths_at_birth_cost_the_job_nothing(
    disturb: Disturb, engine: Engine, place: Path, how: str, times: int
) -> None:
    disturb(how, times)
    job, log = written(engine, place)
    assert (job["state"], job["attempt"], log) == ("succeeded", 1, "line\n")


def test_a_kernel_that_cannot_confine_is_told_apart(disturb: Disturb, engine: Engine, place: Path) -> None:
    disturb("kernel", 1)
    job, log = written(engine, place)
    assert isinstance(job["error"], dict)
    assert (job["state"], job["error"]["error_code"], log) == ("failed", "NOT_ISOLATED", None)
    assert "Operation not supported" in str(job["error"]["user_message"])


def test_a_machine_that_kills_every_process_ends_in_an_error_that_says_so(
    disturb: Disturb, engine: Engine, place: Path
) -> None:
    disturb("child", 1000)
    job, log = written(engine, place)
    assert isinstance(job["error"], dict)
    assert (job["state"], job["attempt"], log) == ("failed", MAX_DEATHS, None)
    assert job["error"]["error_code"] == "WORKER_DIED"
    assert "5 processes for file kinds died before they were ready" in str(job["error"]["user_message"])


def test_deaths_in_a_write_are_not_charged(
    disturb: Disturb, engine: Engine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths: list[str] = []
    take = Steps.take

    def dies(steps: Steps, head: Head, body: Buffer = b"", starts: Starts = None) -> Message:
        if head["do"] == "put all" and len(deaths) < MAX_DEATHS - 1:
            deaths.append("put all")
            kill(steps.process)
        return take(steps, head, body, starts)

    monkeypatch.setattr(Steps, "take", dies)
    job, log = written(engine, place)
    assert (job["state"], job["attempt"], log) == ("succeeded", MAX_DEATHS, "line\n")


def test_a_check_whose_process_is_killed_begins_again(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "a.json").write_text("{}")
    deaths: list[Head] = []
    exchange = ConfinedProcess.exchange

    def dies_once(process: ConfinedProcess, head: Head, body: Buffer, seconds: float) -> Message:
        if not deaths:
            deaths.append(head)
            kill(process)
        return exchange(process, head, body, seconds)

    monkeypatch.setattr(ConfinedProcess, "exchange", dies_once)
    with Checks(root, Setup(Caps()), confined=True) as checks_of_one:
        check = AcceptCheck(file_parses="a.json")
        assert (checks_of_one.failed([check]), len(deaths)) == ((), 1)


def kill(process: ConfinedProcess) -> None:
    assert process._pidfd is not None
    signal.pidfd_send_signal(process._pidfd, signal.SIGKILL)
