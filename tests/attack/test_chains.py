"""A chain of processes ends at its limit, with nothing left of it, and takes neither runner nor machine with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attack.chains import WAYS, WAYS_BEHIND, is_ended, runner_of, started
from tests.pids_limit import Limit, pids_limit, wait_until
from tests.walls import NEEDS_LANDLOCK, NEEDS_NAMESPACES

from lcp_engine.core.programs.walls import Step

pytestmark = NEEDS_LANDLOCK
FEW = ["command: forks", "kind that stays: forks twice"]


@pytest.mark.parametrize("ways", [
    FEW,
    pytest.param(WAYS, marks=pytest.mark.proof),
])  # fmt: skip
def test_a_chain_of_processes_ends_at_its_limit_and_its_runner_goes_on(ways: list[str]) -> None:
    found = started(ways)
    if found is None:
        pytest.skip("root can limit no processes here")
    outcomes, left, was_reached = found
    assert [way for way in (*ways, "good") if not is_ended(way, outcomes)] == []
    assert (left, was_reached) == (0, False)


@pytest.mark.parametrize("wall", [
    pytest.param(Step.COPY, marks=[NEEDS_NAMESPACES, pytest.mark.weaker]),
    pytest.param(Step.LANDLOCK, marks=[NEEDS_LANDLOCK, pytest.mark.weaker]),
])  # fmt: skip
def test_a_chain_behind_a_weaker_wall_ends_as_well(wall: Step) -> None:
    test_a_chain_of_processes_ends_at_its_limit_and_its_runner_goes_on(WAYS_BEHIND[wall])


@pytest.fixture
def marker() -> str:
    return f"lcp-chain-{os.getpid()}-{time.monotonic_ns()}"


@pytest.fixture
def place(tmp_path: Path, marker: str) -> Path:
    (tmp_path / marker).mkdir()
    return tmp_path / marker


@pytest.fixture
def limit(marker: str) -> Iterator[Limit]:
    with pids_limit(marker) as limit:
        if limit is None:
            pytest.skip("root can limit no processes here")
        yield limit


@pytest.mark.proof
def test_nothing_of_a_chain_outlives_a_runner_that_is_killed(place: Path, marker: str, limit: Limit) -> None:
    with runner_of(["kind without limits: many"], place, marker, limit) as runner:
        assert wait_until(lambda: len(limit.chained()) > 2)
        runner.send_signal(signal.SIGKILL)
    assert wait_until(lambda: limit.chained() == [] and limit.left() == 0)


@pytest.mark.proof
def test_nothing_of_a_chain_outlives_the_process_that_supervises_it(
    place: Path, marker: str, limit: Limit
) -> None:
    with runner_of(["kind without limits: many"], place, marker, limit) as runner:
        assert wait_until(lambda: len(limit.chained()) > 2)
        first = min({*limit.chained()} - {runner.pid})
        os.kill(parent_of(first), signal.SIGKILL)
        assert wait_until(lambda: first not in limit.chained())
        runner.send_signal(signal.SIGKILL)  # which would start the job again
    assert wait_until(lambda: limit.chained() == [] and limit.left() == 0)


def parent_of(process: int) -> int:
    """The process that supervises a program is its parent."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
