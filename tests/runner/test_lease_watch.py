"""A runner is dead when another one has seen it not renew its leases; no clock is compared with another's (R17)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from pydantic import BaseModel

from lcp_engine import Engine
from lcp_engine.clock import SECOND, system_clock
from lcp_engine.runner import maintenance
from lcp_engine.runner.lease_watch import LONGEST_GAP, LOOK_SECONDS, LeaseWatch
from lcp_engine.runner.leases import Leases
from lcp_engine.runner.maintenance import Maintenance
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import Host, this_host
from lcp_engine.store.host.roots import Roots, ServedMissions
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queries.runners import find_runners
from lcp_engine.store.row_types import RunnerRow
from lcp_engine.workers.base import Context, Outcome, Worker

pytestmark = pytest.mark.both

SHIFTS = [-3600 * SECOND, -12 * SECOND, 0, 12 * SECOND, 3600 * SECOND]
LOOKS = int(queue.LEASE_SECONDS / LOOK_SECONDS)


class Anything(BaseModel, extra="allow"):
    """Whatever a job has."""


def _unused(params: Anything, context: Context) -> Outcome:
    raise AssertionError("nothing is executed here")


class Pair:
    """A runner of another machine that holds a job, and an observer, each with a clock of its own."""

    def __init__(self, url: str, shift: int) -> None:
        worker = Worker(kind="a", params=Anything, result=Anything, execute=_unused).for_any_params()
        self._seconds = 1000.0
        self.shifted = Engine(url, workers=[worker], clock=lambda: system_clock() + shift)
        self.observer = Engine(url, workers=[worker])
        self.maintenance = Maintenance(
            self.observer.instance,
            ConfinedThreads(active=False),
            this_host(),
            monotonic=lambda: self._seconds,
        )
        self.job = self.observer.enqueue("a", {})
        self.runner = self.write(lambda tx: queue.add_runner(tx, uid="far", host="far", boot="far", pid=1))
        self.write(lambda tx: queue.claim(ledger_of(tx), queue.Scope(("a",)), self.runner, 1))

    def write(self, work: Callable[[Tx], object]) -> int:
        """Write by the clock of the other machine."""
        found = self.shifted.instance.database.write(work)
        return found if isinstance(found, int) else 0

    def renew(self) -> None:
        self.write(lambda tx: queue.beat(tx, self.runner))

    def row(self) -> RunnerRow:
        return self.observer.instance.database.read(lambda tx: queue.leasing_runners(tx, 0))[0]

    def look(self, seconds: float = LOOK_SECONDS) -> str:
        """Let the observer look after so many of its seconds; the state of the job."""
        self._seconds += seconds
        self.maintenance.rescue(0)
        return str(self.observer.job(self.job).state)

    def close(self) -> None:
        self.shifted.close()
        self.observer.close()


@pytest.fixture
def pair(database_url: str, request: pytest.FixtureRequest) -> Iterator[Pair]:
    pair = Pair(database_url, getattr(request, "param", 0))
    yield pair
    pair.close()


@pytest.mark.parametrize("pair", SHIFTS, indirect=True)
def test_a_runner_that_renews_keeps_its_jobs_whatever_its_clock_says(pair: Pair) -> None:
    for _ in range(3):
        assert {pair.look() for _ in range(LOOKS)} == {"running"}
        pair.renew()


@pytest.mark.parametrize("pair", SHIFTS, indirect=True)
def test_a_silent_runner_loses_its_jobs_after_ten_seconds_whatever_its_clock_says(pair: Pair) -> None:
    assert {pair.look() for _ in range(LOOKS)} == {"running"}
    assert pair.look() == "queued"


@pytest.mark.parametrize("seconds", [12.0, 3600.0])
def test_time_in_which_an_observer_did_not_look_proves_nothing(pair: Pair, seconds: float) -> None:
    """It was suspended, its machine slept, or it waited for the database; so may all others have done."""
    assert {pair.look(), pair.look(seconds), pair.look()} == {"running"}


def test_taking_back_looks_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner renews between the look of the observer and the transaction in which it takes the jobs back."""
    assert {pair.look() for _ in range(LOOKS)} == {"running"}
    take_back = Maintenance._take_back

    def late(self: Maintenance, runner: RunnerRow, dead: bool | None) -> None:
        pair.renew()
        take_back(self, runner, dead)

    monkeypatch.setattr(Maintenance, "_take_back", late)
    assert pair.look() == "running"


def test_a_dead_runner_is_known_to_have_run_until_its_last_renewal(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It renewed after the observer had read its row, and then it died."""
    known: list[RunnerRow] = []
    monkeypatch.setattr(maintenance, "rescue", lambda _ledger, _job, runner, **_: known.append(runner))
    before = pair.row()
    pair.renew()
    pair.maintenance._take_back(before, dead=True)
    assert known == [pair.row()] != [before]


def test_each_renewal_is_seen_although_the_clock_stands_still(database_url: str) -> None:
    with Engine(database_url, clock=lambda: 1_000 * SECOND) as engine:
        database = engine.instance.database
        runner = database.write(lambda tx: queue.add_runner(tx, uid="a", host="a", boot="a", pid=1))
        counters = [database.read(lambda tx: tx.query_plain("SELECT alive_until FROM runners"))]
        for _ in range(3):
            database.write(lambda tx: queue.beat(tx, runner))
            counters.append(database.read(lambda tx: tx.query_plain("SELECT alive_until FROM runners")))
        assert all(one != other for one, other in pairwise(counters))


def test_silence_counts_from_the_first_look_and_in_short_steps() -> None:
    watch, runner = LeaseWatch(), RunnerRow(1, "a", "a", "a", 1, 0)
    watch.look([runner], 1_000_000.0)
    for number in range(5):
        assert not watch.is_silent(runner)
        watch.look([runner], 1_000_000.0 + (number + 1) * 100 * LONGEST_GAP)
    assert watch.is_silent(runner)
    assert watch.has_doubts()
    watch.look([RunnerRow(1, "a", "a", "a", 1, 7)], 2_000_000.0)
    assert not watch.has_doubts()


def test_a_runner_that_became_idle_is_there_for_others_all_the_time(tmp_path: Path) -> None:
    """Its first word of that comes before its lease ends, which is shorter than the pauses of idle runners."""
    now = [0.0]
    with Engine(f"sqlite:///{tmp_path}/lcp.db", clock=lambda: int((1e9 + now[0]) * SECOND)) as engine:
        database, runtime = engine.instance.database, engine.instance.runtime
        leases = Leases(database, queue.Scope(()), ServedMissions(Roots()), Random(0), lambda: now[0])
        leases.register("r", Host("other", "other"), {})
        for is_idle in (True,) * 80 + (False,) * 20 + (True,) * 80:
            now[0] += 1
            leases.renew(is_idle=is_idle)
            assert database.read(lambda tx: find_runners(tx, runtime)), now[0]
