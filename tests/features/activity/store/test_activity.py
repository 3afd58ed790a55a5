"""Activity is counted once, whatever is killed, and its charts read as few rows beside any history."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.clock import SECOND
from lcp_engine.features.activity import store as activity
from lcp_engine.features.activity.store import GRACE, HOUR, KEPT, MINUTE, SPANS, count_up, read_activity
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import LivenessFile, this_host
from lcp_engine.store.queue import add_runner

START = 1_795_000_000 * SECOND // HOUR * HOUR


class Lab:
    """A database whose time a test sets, and what ended in it when."""

    def __init__(self, url: str) -> None:
        self.now = START
        self.engine = Engine(url, clock=lambda: self.now)
        self.database = self.engine.instance.database
        self.runtime = self.engine.instance.runtime
        self._jobs = 0
        self.database.write(
            lambda tx: tx.plain(
                "INSERT INTO missions (id, uid, name, goal, spec, status, created_at) "
                "VALUES (9, 'req-9', 'm', 'g', '{}', 'running', 1)"
            )
        )

    def end(self, at: int, outcome: str = "succeeded", tokens: int | None = None, count: int = 1) -> None:
        paid, before = "NULL" if tokens is None else tokens, self._jobs

        def add(tx: Tx) -> None:
            self._jobs = before  # it may run again
            for _ in range(count):
                self._jobs += 1
                tx.plain(
                    "INSERT INTO jobs (id, mission_id, kind, params, state, created_at, ended_at) "
                    f"VALUES ({self._jobs}, 9, 'x', '{{}}', 'succeeded', 1, {at})"
                )
                tx.plain(
                    "INSERT INTO attempts (job_id, attempt, started_at, ended_at, outcome, input_tokens, "
                    f"output_tokens) VALUES ({self._jobs}, 1, {at}, {at}, '{outcome}', {paid}, {paid})"
                )

        self.database.write(add)

    def reply(self, at: int, tokens: tuple[int, int], cost: str | None = None) -> None:
        self._jobs += 1
        price = "NULL, NULL" if cost is None else f"'{cost}', 'EUR'"
        self.database.write(
            lambda tx: tx.plain(
                "INSERT INTO turns (mission_id, number, turn, plan_id, job_id, after_seq, until_seq, asked_at, "
                "replied_at, input_tokens, output_tokens, cost, currency) "
                f"VALUES (9, {self._jobs}, 1, 1, {self._jobs}, 0, 0, 1, {at}, {tokens[0]}, {tokens[1]}, {price})"
            )
        )

    def count(self) -> int:
        """Count until the present; the number of steps."""
        steps = 1
        while not count_up(self.database, self.runtime):
            steps += 1
        return steps

    def sums(self, over: str) -> dict[str, int]:
        found = self.database.read(partial(read_activity, over=over))
        return {measure: sum(amounts) for measure, amounts in found.amounts.items()}

    def rows(self) -> list[tuple[int, int, str, int]]:
        return self.database.read(
            lambda tx: [
                (row[0], row[1], row[2], row[3])
                for row in tx.query_plain(
                    "SELECT step, at, measure, amount FROM activity WHERE step > 0 ORDER BY 1, 2, 3"
                )
            ]
        )


@pytest.fixture
def lab(database_url: str) -> Iterator[Lab]:
    made = Lab(database_url)
    yield made
    made.engine.close()


def test_each_span_has_what_ended_in_it(lab: Lab) -> None:
    lab.end(START, count=2)
    lab.end(START + 59 * SECOND, "failed")
    lab.end(START + MINUTE, "backed_off", tokens=5)
    lab.end(START + MINUTE, "rescued")  # no end of a job
    lab.reply(START + 2 * MINUTE, (100, 20), "0.0000000015")
    lab.reply(START + 2 * MINUTE, (1, 1), "1.25")
    lab.now = START + 2 * MINUTE + SECOND
    lab.count()
    expected = {"succeeded": 2, "failed": 2, "tokens": 132, "cost:EUR": 1_250_000_002}
    assert lab.sums("hour") == lab.sums("day") == lab.sums("week") == expected
    found = lab.database.read(partial(read_activity, over="hour"))
    assert found.of("succeeded")[-3:] == [2, 0, 0]
    assert found.of("failed")[-3:] == [1, 1, 0]
    assert found.currencies == ["EUR"]


def test_the_past_is_counted_in_steps_and_pauses_are_skipped(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST_MINUTES", 10)
    ends = [
        START - KEPT[HOUR] - HOUR,
        START - 6 * 24 * HOUR,
        START - 30 * HOUR,
        START - 29 * HOUR,
        START - MINUTE,
    ]
    for at in ends:
        lab.end(at)
    assert lab.count() < 12
    assert lab.sums("week") == {"succeeded": 4}
    assert lab.sums("hour") == {"succeeded": 1}


def test_counting_again_changes_nothing_and_late_commits_are_counted(lab: Lab) -> None:
    lab.end(START)
    lab.now = START + MINUTE
    lab.count()
    before = lab.rows()
    lab.count()
    assert lab.rows() == before
    lab.end(START + 30 * SECOND)  # committed after the minute was over
    lab.now = START + MINUTE + GRACE
    lab.count()
    assert lab.sums("hour") == {"succeeded": 2}


def test_what_is_pruned_stays_counted(lab: Lab) -> None:
    lab.end(START, count=3)
    lab.now = START + SECOND
    lab.count()
    lab.database.write(lambda tx: tx.plain("DELETE FROM attempts"))
    lab.count()
    assert lab.sums("hour") == lab.sums("day") == {"succeeded": 3}


def test_levels_are_the_highest_of_their_time(lab: Lab) -> None:
    lab.now = START + SECOND
    for held in (2, 5, 1):
        rows = " UNION ALL ".join(f"SELECT {1000 + n}, 9, 'x', '{{}}', 'held', 1" for n in range(held))
        columns = "id, mission_id, kind, params, state, created_at"
        lab.database.write(partial(Tx.plain, sql=f"INSERT INTO jobs ({columns}) {rows}"))
        lab.count()
        lab.database.write(lambda tx: tx.plain("DELETE FROM jobs WHERE id >= 1000"))
        lab.now += MINUTE
    assert lab.sums("hour")["waiting"] == 8
    assert lab.sums("day")["waiting"] == 5


def test_old_counts_go_and_the_rest_stays_small(lab: Lab) -> None:
    for day in range(40):
        for hour in range(0, 24, 6):
            lab.now = START + day * 24 * HOUR + hour * HOUR
            lab.end(lab.now)
            lab.count()
    ages = {step: [lab.now - at for each, at, _, _ in lab.rows() if each == step] for step in KEPT}
    for step, kept in KEPT.items():
        assert ages[step]
        assert max(ages[step]) <= kept + HOUR
    assert lab.sums("week") == {"succeeded": 28}


def test_the_sum_of_an_hour_does_not_depend_on_where_steps_end(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity, "MOST_MINUTES", 7)
    began = START - 3 * 24 * HOUR
    for minute in range(0, 180, 2):
        lab.end(began + minute * MINUTE)
    lab.count()
    assert lab.sums("week") == {"succeeded": 90}
    assert [amount for step, at, _, amount in lab.rows() if step == HOUR] == [30, 30, 30]


@pytest.mark.parametrize("seed", range(3))
def test_runners_that_stop_anywhere_count_once(lab: Lab, seed: int) -> None:
    """Each reads its step and stores it much later, or never, between those of others."""
    chance = random.Random(seed)
    under_way: list[activity._Step] = []
    total = 0
    for _ in range(120):
        lab.now += chance.randrange(40) * SECOND
        if chance.random() < 0.6:
            lab.end(lab.now)
            total += 1
        if chance.random() < 0.7:
            under_way.append(lab.database.read(partial(activity._count, runtime=lab.runtime)))
        if under_way and chance.random() < 0.5:
            step = under_way.pop(chance.randrange(len(under_way)))
            lab.database.write(partial(activity._store, step=step))
        if chance.random() < 0.1:
            under_way.clear()  # killed
    lab.count()
    assert lab.sums("week") == {"succeeded": total}
    assert lab.sums("day") == {"succeeded": total}


def test_an_idle_runner_counts_until_it_dies(lab: Lab) -> None:
    """It says seldom that it is there; the kernel says so always."""
    host = this_host()
    file = LivenessFile(lab.runtime, "idle")
    lab.database.write(lambda tx: add_runner(tx, uid="idle", host=host.name, boot=host.boot, pid=1))
    lab.now += HOUR
    lab.count()
    file.remove()
    assert lab.sums("hour") == {"runners": 1}
    lab.now += HOUR
    lab.count()
    assert lab.sums("hour") == {}


def test_a_chart_reads_no_more_beside_more_history(lab: Lab) -> None:
    for hour in range(200):
        lab.end(START - hour * HOUR, count=3)
    lab.now = START + SECOND
    lab.count()
    for over, span in SPANS.items():
        found = lab.database.read(partial(read_activity, over=over))
        assert len(found.of("succeeded")) == span.parts
        assert sum(map(len, found.amounts.values())) <= span.parts * len(found.amounts)


def test_a_runner_leaves_what_it_did(lab: Lab, tmp_path: Path) -> None:
    complete: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
    lab.engine.launch({"goal": "Look.", "planner": {"type": "script", "replies": [complete]}}, root=tmp_path)
    lab.engine.work(until_idle=True)
    assert lab.sums("hour")["succeeded"] == 1
