"""Jobs sent together to a confined process have the outcome that each has alone, whatever one of them does."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import BaseModel, JsonValue

from lcp_engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import ErrorCode, Failed
from lcp_engine.runner import runner
from lcp_engine.runner.confined.pool import Assignment, Confinement
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.workers.base import Caps, Hold, Worker
from lcp_engine.workers.registry import BUILT_IN

Ahead: TypeAlias = "Callable[..., Sequence[Succeeded | Hold | Failed | None]]"
SPEC: dict[str, JsonValue] = {"goal": "Read.", "planner": {"type": "script", "replies": []}}


@pytest.fixture
def ahead(confinement: Confinement, root: Root, untrusted: Mapping[str, Worker[BaseModel]]) -> Ahead:
    def execute(kind: str, **params: Sequence[str]) -> Sequence[Succeeded | Hold | Failed | None]:
        ((name, paths),) = params.items()
        given = [_assigned({**BUILT_IN, **untrusted}[kind], {name: path}) for path in paths]
        confinement.work(root, given[0])  # from now on the process knows the mission
        turned: list[int] = []

        def starts(nth: int) -> bool:
            turned.append(nth)
            return True

        found = confinement.work_ahead(root, given, starts)
        assert turned == list(range(len(turned)))
        return found

    return execute


def _assigned(worker: Worker[BaseModel], params: dict[str, JsonValue]) -> Assignment:
    return Assignment(worker, f"a {worker.kind}", json.dumps(params), "k", Setup(Caps()), approved=True)


def _content(outcome: object, key: str = "content") -> str:
    assert isinstance(outcome, Succeeded)
    return str(json.loads(outcome.result)[key])


def test_answers_come_in_the_order_of_the_jobs(ahead: Ahead, place: Path) -> None:
    big = "line\n" * 100_000
    (place / "big.txt").write_text(big)
    paths = ("a.txt", "no.txt", "big.txt", "../outside/secret.txt", "a.txt")
    first, missing, second, outside, third = ahead("read_file", rel_path=paths)
    assert [_content(first), _content(second), _content(third)] == ["hello\n", big, "hello\n"]
    assert isinstance(missing, Failed)
    assert missing.code is ErrorCode.PATH_NOT_FOUND
    assert isinstance(outside, Failed)
    assert outside.code is ErrorCode.PATH_OUTSIDE_ROOT


@pytest.mark.proof
def test_one_that_hangs_fails_and_those_after_it_are_sent_again(ahead: Ahead) -> None:
    first, hung, *behind = ahead("obeys", path=("a.txt", "hang", "a.txt", "a.txt"))
    assert _content(first, "text") == "hello\n"
    assert isinstance(hung, Failed)
    assert hung.code is ErrorCode.TIMEOUT
    assert behind == [None, None]


def test_one_that_ends_the_process_cannot_be_told_apart_from_those_after_it(ahead: Ahead) -> None:
    first, *others = ahead("obeys", path=("a.txt", "die", "a.txt"))
    assert (_content(first, "text"), others) == ("hello\n", [None, None])


def test_those_that_were_given_back_are_not_waited_for(
    confinement: Confinement, root: Root, untrusted: Mapping[str, Worker[BaseModel]]
) -> None:
    given = [_assigned(untrusted["obeys"], {"path": path}) for path in ("a.txt", "hang", "a.txt")]
    confinement.work(root, given[0])
    first, *others = confinement.work_ahead(root, given, lambda nth: nth == 0)
    assert (_content(first, "text"), others) == ("hello\n", [None, None])
    assert _content(confinement.work(root, given[0]), "text") == "hello\n"


def test_a_process_without_the_setup_of_the_mission_is_sent_each_alone(
    confinement: Confinement, root: Root
) -> None:
    given = [_assigned(BUILT_IN["read_file"], {"rel_path": "a.txt"})] * 2
    assert confinement.work_ahead(root, given, lambda nth: True) == [None, None]
    assert _content(confinement.work(root, given[0])) == "hello\n"


def test_a_queue_of_reads_comes_to_the_same_confined_or_not(
    database_url: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How many jobs are claimed at once is not left to the clock.
    monkeypatch.setattr(runner, "QUICK_SECONDS", 3600)
    monkeypatch.setattr(runner, "SLOW_SECONDS", 7200)
    for n in range(40):
        if n % 7:
            (place / f"f{n}.txt").write_text(f"{n}\n" * n)
    came_to = []
    for isolation in (Isolation.REQUIRE, Isolation.OFF):
        with Engine(database_url, isolation=isolation) as engine:
            mission = engine.launch(SPEC, root=place)
            for n in range(40):
                engine.enqueue("read_file", {"rel_path": f"f{n}.txt"}, mission_id=mission.id)
            engine.work(until_idle=True, kinds=["read_file"])
            jobs = engine.jobs(mission_id=mission.id, kinds=["read_file"])
            came_to.append([(job.state, job.result, job.error and job.error["error_code"]) for job in jobs])
    assert came_to[0] == came_to[1]
    assert [state for state, _, _ in came_to[0]].count(State.FAILED) == 6
