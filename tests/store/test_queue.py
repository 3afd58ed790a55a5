"""Jobs are handed out in order and to one runner each; a stale lease changes nothing (R17)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import pairwise
from pathlib import Path

import pytest
from pydantic import BaseModel
from sqlalchemy import bindparam, text, update

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import CREATIONS, START, TRANSITIONS, State
from lcp_engine.engine import missions
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.settle import MAX_BACKOFF, FinishedJob, rescue, settle, settle_all
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.store import queue
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.queue import Scope
from lcp_engine.store.row_types import JobRow, RunnerRow
from lcp_engine.store.schema import jobs
from lcp_engine.workers.base import Hold, Outcome, Worker


class Nothing(BaseModel):
    """No params."""


def _worker(kind: str) -> Worker[BaseModel]:
    def execute(params: Nothing, context: object) -> Outcome:
        return params

    return Worker(
        kind=kind, params=Nothing, result=Nothing, execute=execute, has_effects=False
    ).for_any_params()


ALL = Scope(("noop", "other"))
OUTCOMES = [
    Succeeded("{}"),
    Hold("path"),
    Failed(ErrorCode.WORKER_FAILED, "it broke"),
    Failed(ErrorCode.PATH_NOT_FOUND, "nothing there"),
]


class Hands:
    """A runner's hands on a queue: claims and settles without executing anything."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.database: Database = engine.instance.database
        self.id = self.database.write(
            lambda tx: queue.add_runner(tx, uid=name, host="elsewhere", boot="?", pid=1)
        )

    def claim(self, most: int = 1, scope: Scope = ALL) -> list[JobRow]:
        return self.database.write(lambda tx: queue.claim(ledger_of(tx), scope, self.id, most))

    def start(self, ready: list[JobRow]) -> None:
        self.database.write(lambda tx: ledger_of(tx).start_all([copy(job) for job in ready], self.id))

    def settle(self, job: JobRow, outcome: Succeeded | Hold | Failed, backoff: float = 1.0) -> bool:
        settling = FinishedJob(job, outcome, backoff)
        return self.database.write(
            lambda tx: settle(
                ledger_of(tx), FinishedJob(copy(job), settling.outcome, backoff), random.Random(1)
            )
        )

    def settle_all(self, settlings: list[FinishedJob]) -> None:
        def work(tx: Tx) -> None:
            copies = [FinishedJob(copy(one.job), one.outcome, one.backoff) for one in settlings]
            settle_all(ledger_of(tx), copies, random.Random(1))

        self.database.write(work)

    def release(self, job: JobRow) -> bool:
        return self.database.write(lambda tx: queue.release(ledger_of(tx), copy(job)))

    def dies(self, job: JobRow, *, has_started: bool = True) -> bool:
        runner = RunnerRow(self.id, "u", "h", "b", 1, 0)
        return self.database.write(
            lambda tx: rescue(ledger_of(tx), copy(job), runner, has_started=has_started)
        )


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    with Engine(database_url, workers=[_worker("noop"), _worker("other")]) as engine:
        yield engine


@pytest.fixture
def hands(engine: Engine) -> Hands:
    return Hands(engine, "hands")


def test_the_most_urgent_jobs_come_first_then_the_oldest(engine: Engine, hands: Hands) -> None:
    ids = [engine.enqueue("noop", priority=priority) for priority in (0, 5, -1, 5, 0)]
    order = [hands.claim()[0].id for _ in ids]
    assert order == [ids[1], ids[3], ids[0], ids[4], ids[2]]
    assert hands.claim() == []


def test_a_delayed_job_is_not_handed_out_before_its_time(database_url: str) -> None:
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        job = engine.enqueue("noop", delay=10)
        now[0] += 10 * SECOND - 1
        assert hands.claim() == []
        assert hands.database.read(lambda tx: queue.next_ready_at(tx, ALL)) == now[0] + 1
        now[0] += 1
        assert [claimed.id for claimed in hands.claim()] == [job]


def test_the_next_job_is_ready_now_or_the_first_of_the_delayed(engine: Engine, hands: Hands) -> None:
    def next_ready_at(scope: Scope = ALL) -> int | None:
        return hands.database.read(lambda tx: queue.next_ready_at(tx, scope))

    mission = engine.job(engine.enqueue("other", delay=30)).mission_id
    engine.enqueue("other", delay=20)
    engine.enqueue("other", delay=10)
    now = hands.database.now()
    assert next_ready_at(Scope(("noop",))) is None
    assert next_ready_at(Scope(("other",), mission + 1)) is None
    due = next_ready_at()
    assert due is not None
    assert now < due <= now + 10 * SECOND
    assert due == next_ready_at(Scope(("other",), mission))
    engine.enqueue("noop")
    assert next_ready_at() == 0
    assert next_ready_at(Scope(("other",))) == due


def test_the_next_job_is_found_without_a_look_at_the_others(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'lcp.db'}")
    sql = queue._next_ready(ALL, None).sql(database.backend.name)
    plan = database.read(lambda tx: tx.query_plain(f"EXPLAIN QUERY PLAN {sql}"))
    steps = [str(row[3]).partition(" (")[0] for row in plan if "jobs" in str(row[3])]
    assert steps == ["SCAN jobs USING INDEX ix_jobs_ready", "SEARCH jobs USING INDEX ix_jobs_due"]
    database.close()


def test_a_claim_walks_past_no_delayed_job(tmp_path: Path) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'lcp.db'}")

    def steps(statement: Statement) -> list[str]:
        explained = Statement(text(f"EXPLAIN QUERY PLAN {statement.sql(database.backend.name)}"))
        plan = database.read(lambda tx: tx.rows(explained, now=0, most=1, runner=1, mission=1, priority=0))
        return [str(row[3]).partition(" (")[0] for row in plan]

    ready, delayed = "SEARCH jobs USING INDEX ix_jobs_ready", "SEARCH jobs USING INDEX ix_jobs_due"
    assert [step for step in steps(queue.line_of(ALL, None)) if " jobs" in step] == [
        "SCAN jobs USING INDEX ix_jobs_ready",
        ready,
        ready,
        delayed,
        ready,
        ready,
    ]
    assert steps(queue._next_of(ALL)) == [ready]
    assert steps(queue._due(ALL, None)) == [delayed]
    database.close()


def test_delayed_jobs_that_are_due_run_in_the_order_of_their_urgency(database_url: str) -> None:
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        given = ((3, 0), (2, 5), (1, 0), (9, 9), (0, 1))
        ids = [engine.enqueue("noop", delay=delay, priority=priority) for delay, priority in given]
        now[0] += 5 * SECOND
        order = [job.id for _ in ids for job in hands.claim()]
        assert order == [ids[1], ids[4], ids[0], ids[2]]
        now[0] += 5 * SECOND
        assert [job.id for job in hands.claim(9)] == [ids[3]]


def test_every_delayed_job_comes_to_its_turn_however_many_are_due(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_DUE", 3)
    queue._due.cache_clear()
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        ids = [engine.enqueue("noop", delay=10) for _ in range(10)]
        now[0] += 10 * SECOND
        assert [job.id for _ in range(4) for job in hands.claim(3)] == ids
        _check_consistency(engine)
    queue._due.cache_clear()


def _missions(engine: Engine, count: int) -> list[int]:
    """Missions that hold jobs without a planner."""

    def open_all(tx: Tx) -> list[int]:
        return [missions.open_queue(ledger_of(tx), f"queue {number}") for number in range(count)]

    return engine.instance.database.write(open_all)


def _fill(engine: Engine, mission_id: int, count: int, priority: int = 0) -> None:
    """Queue many jobs with one statement."""

    def fill(tx: Tx) -> None:
        tx.plain(
            "INSERT INTO jobs (mission_id, kind, params, state, created_at, priority) WITH RECURSIVE n (n) AS ("
            f"SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {count}) "
            f"SELECT {mission_id}, 'noop', '{{}}', 'queued', {tx.now}, {priority} FROM n"
        )
        tx.plain(f"UPDATE missions SET queued = queued + {count} WHERE id = {mission_id}")

    engine.instance.database.write(fill)


def test_a_new_mission_is_served_by_the_next_claim_however_long_the_others_backlogs_are(
    engine: Engine, hands: Hands
) -> None:
    old, other, new = _missions(engine, 3)
    _fill(engine, old, 20_000)
    assert {job.mission_id for job in hands.claim(100)} == {old}
    _fill(engine, other, 20_000)
    assert [job.mission_id for job in hands.claim(3)] == [other, old, other]
    job = engine.enqueue("noop", mission_id=new)
    claimed = hands.claim(100)
    assert claimed[0].id == job
    assert Counter(job.mission_id for job in claimed) == {new: 1, other: 50, old: 49}


def test_the_jobs_of_a_mission_stay_in_their_order_and_urgent_ones_come_before_every_turn(
    engine: Engine, hands: Hands
) -> None:
    one, two = _missions(engine, 2)
    given = ((one, 0), (one, 0), (two, 0), (one, 9), (two, 5), (two, 0), (one, 5), (one, 5))
    ids = [engine.enqueue("noop", mission_id=mission, priority=priority) for mission, priority in given]
    assert [job.id - ids[0] for job in hands.claim(9)] == [3, 4, 6, 7, 2, 0, 5, 1]


@pytest.mark.parametrize("seed", range(3))
def test_while_a_mission_waits_no_other_is_served_twice(engine: Engine, seed: int) -> None:
    chance = random.Random(seed)
    several = [Hands(engine, f"{number}") for number in range(3)]
    for served in _serve_at_random(engine, chance, several):
        assert set(served.values()) <= {1}


def test_of_more_missions_than_a_claim_compares_each_is_served_as_its_runner_goes_round(
    engine: Engine, hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MOST_MISSIONS", 3)
    queue.line_of.cache_clear()
    for served in _serve_at_random(engine, random.Random(1), [hands]):
        assert served.total() <= 12
    queue.line_of.cache_clear()


def _serve_at_random(engine: Engine, chance: random.Random, several: list[Hands]) -> Iterator[Counter[int]]:
    """Queue and claim jobs of seven missions; for each that waits after a claim, how often others were served since."""
    ready = dict.fromkeys(_missions(engine, 7), 0)
    served_since: dict[int, Counter[int]] = {}
    for _ in range(60):
        if chance.random() < 0.4:
            mission, count = chance.choice([*ready]), chance.choice([1, 1, 5, 40])
            _fill(engine, mission, count)
            ready[mission] += count
            served_since.setdefault(mission, Counter())
        claimed = [job.mission_id for job in chance.choice(several).claim()]
        assert len(claimed) == any(ready.values())
        for mission in claimed:
            ready[mission] -= 1
            del served_since[mission]
            for served in served_since.values():
                served[mission] += 1
            if ready[mission]:
                served_since[mission] = Counter()
        yield from served_since.values()


def test_runners_of_different_kinds_leave_each_mission_its_turns(engine: Engine) -> None:
    first, *others = _missions(engine, 4)
    for mission in others:
        for _ in range(9):
            engine.enqueue("noop", mission_id=mission)
    for _ in range(9):
        engine.enqueue("other", mission_id=first)
    noop, other = Hands(engine, "noop"), Hands(engine, "other")
    claimed = []
    for _ in range(6):
        claimed += [job.mission_id for job in noop.claim(1, Scope(("noop",)))]
        assert [job.mission_id for job in other.claim(1, Scope(("other",)))] == [first]
    assert claimed == [*others, *others]


def test_new_missions_without_end_keep_no_older_one_from_its_turn(database_url: str) -> None:
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        old, *new = _missions(engine, 30)
        _fill(engine, old, 9)
        claimed = [hands.claim()[0].mission_id]
        for mission in new:
            now[0] += 7 * SECOND
            engine.enqueue("noop", mission_id=mission)
            claimed += [job.mission_id for job in hands.claim()]
        turns = [place for place, mission in enumerate(claimed) if mission == old]
        assert [later - turn for turn, later in pairwise(turns)] == [9, 10]


def test_what_a_cancelled_mission_had_queued_is_in_no_others_way(engine: Engine, hands: Hands) -> None:
    old, new = _missions(engine, 2)
    for _ in range(3):
        engine.enqueue("noop", mission_id=old)
    job = engine.enqueue("noop", mission_id=new)
    hands.claim()
    engine.cancel(old, by="test")
    assert [claimed.id for claimed in hands.claim(9)] == [job]
    assert hands.claim(9) == []


def test_a_scope_takes_its_kinds_and_its_mission_only(engine: Engine, hands: Hands) -> None:
    other = engine.enqueue("other")
    noop = engine.enqueue("noop")
    mission = engine.job(noop).mission_id
    assert [job.id for job in hands.claim(9, Scope(("noop",)))] == [noop]
    assert hands.claim(9, Scope(("noop", "other"), mission + 1)) == []
    assert [job.id for job in hands.claim(9, Scope(("noop", "other"), mission))] == [other]
    assert hands.claim(9, Scope(())) == []


def test_many_threads_of_two_processes_claim_each_job_once(database_url: str) -> None:
    with Engine(database_url, workers=[_worker("noop")]) as one, Engine(database_url) as other:
        ids = [one.enqueue("noop") for _ in range(120)]
        hands = [Hands(engine, f"{n}") for n, engine in enumerate((one, other) * 4)]

        def claim_all(mine: Hands) -> list[int]:
            claimed: list[int] = []
            while jobs := mine.claim(3):
                claimed += [job.id for job in jobs]
                for job in jobs:
                    assert mine.settle(job, Succeeded("{}"))
            return claimed

        with ThreadPoolExecutor(8) as threads:
            claimed = [job for part in threads.map(claim_all, hands) for job in part]
        assert sorted(claimed) == ids
        _check_consistency(one)


@pytest.mark.parametrize("state", sorted(set(State) - START.sources))
def test_a_job_that_is_not_queued_cannot_be_claimed(engine: Engine, hands: Hands, state: State) -> None:
    engine.enqueue("noop")
    seen = engine.enqueue("noop")
    database = hands.database
    (ready,) = database.read(lambda tx: queue.find_jobs(tx, [seen]))
    meanwhile = Statement(
        update(jobs).where(jobs.c.id == bindparam("job")).values(state=bindparam("new_state"))
    )
    database.write(lambda tx: tx.send(meanwhile, job=seen, new_state=state.value))
    before = _everything(engine)
    (other,) = database.read(lambda tx: queue.find_jobs(tx, [seen - 1]))
    for claimed in ([ready], [ready, other]):
        with pytest.raises(LcpError) as refused:
            hands.start(claimed)
        assert refused.value.code is ErrorCode.DATABASE_FAILED
        assert _everything(engine) == before


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["succeeded", "hold", "retry", "failed"])
def test_a_stale_lease_changes_nothing(
    engine: Engine, hands: Hands, outcome: Succeeded | Hold | Failed
) -> None:
    engine.enqueue("noop")
    (stale,) = hands.claim()
    assert hands.dies(stale)
    (fresh,) = hands.claim()
    before = _everything(engine)
    assert not hands.settle(stale, outcome)
    assert not hands.release(stale)
    assert not hands.dies(stale)
    assert _everything(engine) == before
    assert hands.settle(fresh, Succeeded("{}"))
    assert not hands.settle(fresh, outcome), "a settled attempt is stale too"
    _check_consistency(engine)


def test_a_release_charges_nothing(engine: Engine, hands: Hands) -> None:
    job_id = engine.enqueue("noop")
    for _ in range(10):
        (job,) = hands.claim()
        assert (job.failures, job.deaths) == (0, 0)
        assert hands.release(job)
    job_json = engine.job(job_id).json
    assert (job_json["state"], job_json["attempts"]) == ("queued", [])


def test_failures_are_tried_again_later_each_time_until_they_are_too_many(database_url: str) -> None:
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        job_id = engine.enqueue("noop")
        waits = []
        for _ in range(2):
            (job,) = hands.claim()
            assert hands.settle(job, Failed(ErrorCode.WORKER_FAILED, "it broke"), backoff=10)
            at = hands.database.read(lambda tx: queue.next_ready_at(tx, ALL))
            assert at is not None
            waits.append((at - now[0]) / SECOND)
            assert hands.claim() == []
            now[0] = at
        assert 7.5 <= waits[0] <= 12.5
        assert 15 <= waits[1] <= 25
        (job,) = hands.claim()
        hands.settle(job, Failed(ErrorCode.WORKER_FAILED, "it broke again"), backoff=10)
        stored = engine.job(job_id).json
        assert stored["state"] == "failed"
        attempts = stored["attempts"]
        assert isinstance(attempts, list)
        assert [(a["attempt"], a["outcome"], a["runner_id"]) for a in attempts if isinstance(a, dict)] == [
            (1, "backed_off", hands.id),
            (2, "backed_off", hands.id),
            (3, "failed", hands.id),
        ]
        _check_consistency(engine)


def test_waits_never_grow_beyond_their_cap(database_url: str) -> None:
    now = [1_000 * SECOND]
    with Engine(database_url, workers=[_worker("noop")], clock=lambda: now[0]) as engine:
        hands = Hands(engine, "hands")
        engine.enqueue("noop")
        (job,) = hands.claim()
        hands.settle(job, Failed(ErrorCode.WORKER_FAILED, "it broke"), backoff=1e9)
        at = hands.database.read(lambda tx: queue.next_ready_at(tx, ALL))
        assert at is not None
        assert at - now[0] <= MAX_BACKOFF * 1.25 * SECOND


def test_what_cannot_succeed_is_not_tried_again(engine: Engine, hands: Hands) -> None:
    job_id = engine.enqueue("noop")
    (job,) = hands.claim()
    hands.settle(job, Failed(ErrorCode.PATH_NOT_FOUND, "nothing there"))
    assert engine.job(job_id).json["state"] == "failed"


def test_of_many_that_succeed_together_those_without_a_lease_drop_out_alone(
    engine: Engine, hands: Hands
) -> None:
    other = engine.instance.database.write(lambda tx: missions.open_queue(ledger_of(tx), "other"))
    ids = [engine.enqueue("noop", mission_id=(None, other)[n % 2]) for n in range(5)]
    leased = hands.claim(5)
    assert hands.dies(leased[1])
    (again,) = hands.claim()
    before = engine.job(again.id).json
    settlings = [FinishedJob(job, Succeeded(f'{{"of": {job.id}}}')) for job in leased]
    twice = FinishedJob(copy(leased[0]), Succeeded('{"of": "nobody"}'))
    failing = FinishedJob(leased[3], Failed(ErrorCode.PATH_NOT_FOUND, "nothing there"))
    hands.settle_all([*settlings[:3], twice, failing, settlings[4]])
    states = [engine.job(job_id).state for job_id in ids]
    assert states == ["succeeded", "running", "succeeded", "failed", "succeeded"]
    assert [engine.job(job_id).result for job_id in ids] == [
        {"of": ids[0]}, None, {"of": ids[2]}, None, {"of": ids[4]},
    ]  # fmt: skip
    assert engine.job(again.id).json == before
    assert hands.settle(again, Succeeded("{}"))
    _check_consistency(engine)


def test_the_fifth_death_fails_a_job_and_unstarted_ones_do_not_count(engine: Engine, hands: Hands) -> None:
    job_id = engine.enqueue("noop")
    for _ in range(4):
        (job,) = hands.claim()
        assert hands.dies(job)
        (job,) = hands.claim()
        assert hands.dies(job, has_started=False)
    (job,) = hands.claim()
    assert hands.dies(job)
    stored = engine.job(job_id).json
    error = stored["error"]
    assert isinstance(error, dict)
    assert (stored["state"], error["error_code"]) == ("failed", "RUNNER_DIED")
    _check_consistency(engine)


def test_cancelling_while_others_claim_leads_to_no_deadlock(database_url: str) -> None:
    workers = [_worker("noop")]
    with Engine(database_url, workers=workers) as other:
        for _ in range(8):
            with Engine(database_url, workers=workers) as one:
                mission = one.job(one.enqueue("noop")).mission_id
                for _ in range(30):
                    one.enqueue("noop")
                hands = Hands(other, f"{mission}{random.random()}")
                with ThreadPoolExecutor(2) as threads:
                    claiming = threads.submit(lambda hands=hands: [hands.claim(2) for _ in range(10)])  # type: ignore[misc]  # bound now
                    threads.submit(one.cancel, mission).result()
                    claiming.result()
            other.instance.database.write(
                lambda tx, mission=mission: tx.plain(f"UPDATE missions SET key = NULL WHERE id = {mission}")  # type: ignore[misc]  # bound now
            )
        _check_consistency(other)
        if "postgres" in database_url:
            deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
            assert other.instance.database.read(lambda tx: tx.query_plain(deadlocks)) == [(0,)]


def test_a_job_joins_the_callers_own_transaction(database_url: str) -> None:
    with Engine(database_url, workers=[_worker("noop")]) as engine:
        engine.enqueue("noop")
        connection = engine.instance.database.backend.connect()
        cursor = connection.cursor()
        for end, count in (("ROLLBACK", 1), ("COMMIT", 3)):
            cursor.execute("BEGIN")
            engine.enqueue("noop", connection=connection)
            engine.enqueue("noop", connection=connection)
            assert len(engine.jobs()) == 1
            cursor.execute(end)
            assert len(engine.jobs()) == count
        connection.close()
        _check_consistency(engine)


def test_every_state_is_reached_and_left_as_the_table_says() -> None:
    events = [transition.event for transition in TRANSITIONS]
    assert len(set(events)) == len(events)
    assert {transition.target for transition in TRANSITIONS} == set(State)
    assert set(CREATIONS) == {State.QUEUED, State.HELD, State.BLOCKED, State.REJECTED}


def _everything(engine: Engine) -> list[object]:
    tables = ("missions", "jobs", "attempts", "events", "plans")
    return engine.instance.database.read(
        lambda tx: [tx.query_plain(f"SELECT * FROM {table}") for table in tables]
    )


def _check_consistency(engine: Engine) -> None:
    """Counters are what a count would give, and no event number is missing."""
    for mission in engine.missions():
        jobs = engine.jobs(mission_id=mission.id)
        counted = {state.value: sum(job.state == state for job in jobs) for state in State}
        assert mission.jobs == counted
        events = engine.events(mission.id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
