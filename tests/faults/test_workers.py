"""Workers that eat memory, end their process or raise what nobody catches: their job fails, the others succeed."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.loaded_python import Python

from lcp_engine import Engine
from lcp_engine.workers.base import Context, Outcome, Worker

RUNNER = Path(__file__).with_name("misbehave.py")


class Empty(BaseModel):
    """No params."""


def _never(params: Empty, context: Context) -> Outcome:
    raise AssertionError("this process executes nothing")


WORKERS = [
    Worker(
        kind=kind, params=Empty, result=Empty, execute=_never, has_effects=False, max_attempts=2
    ).for_any_params()
    for kind in ("eat", "be_killed", "behave")
]


def _run(url: str) -> int:
    with Python(RUNNER, url, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as runner:
        assert runner.communicate()[1] == ""
    return runner.returncode


def _error(engine: Engine, job: int) -> tuple[object, str]:
    error = engine.job(job).json["error"]
    assert isinstance(error, dict)
    return error["error_code"], str(error["user_message"])


def test_a_worker_that_eats_memory_fails_alone(database_url: str) -> None:
    with Engine(database_url, workers=WORKERS) as engine:
        eats, behaves = engine.enqueue("eat"), engine.enqueue("behave")
    assert _run(database_url) == 0
    with Engine(database_url, workers=WORKERS) as engine:
        code, said = _error(engine, eats)
        assert (code, "MemoryError" in said) == ("WORKER_FAILED", True)
        assert (engine.job(eats).state, engine.job(behaves).state) == ("failed", "succeeded")


def test_a_worker_that_takes_its_process_with_it_is_given_up_after_five(database_url: str) -> None:
    with Engine(database_url, workers=WORKERS) as engine:
        kills, behaves = engine.enqueue("be_killed"), engine.enqueue("behave")
    assert [_run(database_url) for _ in range(6)] == [-signal.SIGKILL] * 5 + [0]
    with Engine(database_url, workers=WORKERS) as engine:
        code, said = _error(engine, kills)
        assert (code, f"job {kills}" in said) == ("RUNNER_DIED", True)
        assert (engine.job(kills).state, engine.job(behaves).state) == ("failed", "succeeded")


@pytest.mark.parametrize("surprise", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_whatever_a_worker_raises_ends_its_attempt_alone(database_url: str, surprise: BaseException) -> None:
    def burst(params: Empty, context: Context) -> Outcome:
        raise surprise

    def behave(params: Empty, context: Context) -> Outcome:
        return params

    workers = [
        Worker(
            kind=execute.__name__,
            params=Empty,
            result=Empty,
            execute=execute,
            has_effects=False,
            max_attempts=1,
        ).for_any_params()
        for execute in (burst, behave)
    ]
    with Engine(database_url, workers=workers) as engine:
        bursts, behaves = engine.enqueue("burst"), engine.enqueue("behave")
        engine.work(until_idle=True)
        code, said = _error(engine, bursts)
        assert (code, type(surprise).__name__ in said) == ("WORKER_FAILED", True)
        assert (engine.job(bursts).state, engine.job(behaves).state) == ("failed", "succeeded")
