"""Queue and loop do what the rules say, whatever happens in whatever order."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pydantic import JsonValue
from tests.engine.conftest import Lab, _empty, check_books
from tests.model.rules import (
    SECOND,
    TURN,
    Ask,
    Job,
    Limits,
    Mission,
    RefusedError,
    Reply,
    Runner,
    Spec,
    World,
)

from lcp_engine.engine.asking import keep_reply, open_question
from lcp_engine.engine.concluding import conclude_turn
from lcp_engine.engine.expiring import expire
from lcp_engine.engine.outcomes import Succeeded
from lcp_engine.engine.settling import Settling, rescue, settle_all
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.jobs import OPEN, State
from lcp_engine.protocol.reading import read_reply
from lcp_engine.store import queue
from lcp_engine.store.check import faults_in
from lcp_engine.store.expiries import due_holds
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.records import JobRow, TurnRow
from lcp_engine.store.schema import metadata
from lcp_engine.store.transaction import Tx
from lcp_engine.store.turns import StoredReply
from lcp_engine.workers.base import Hold

T = TypeVar("T")
Object = dict[str, JsonValue]
EXAMPLES = int(os.environ.get("LCP_TEST_EXAMPLES") or 30)
STEPS = 40
NUMBERS = count()

asks = st.builds(
    Ask,
    kind=st.sampled_from(["do", "do", "do", TURN, TURN, "change", "ask_user", "system", "admin", "unknown"]),
    of=st.integers(0, 2),
    is_step=st.booleans(),
    auto_dispatch=st.sampled_from([None, None, None, True, False]),
).map(lambda ask: ask if ask.kind == TURN else replace(ask, is_step=False))
replies = st.one_of(
    st.builds(Reply, st.just("jobs"), st.lists(asks, min_size=1, max_size=4).map(tuple)),
    st.builds(Reply, st.just("jobs"), st.lists(asks, min_size=1, max_size=3).map(tuple)),
    st.builds(
        Reply, st.just("write_file"), st.tuples(st.builds(Ask, st.just("write_file"), st.integers(0, 1)))
    ),
    st.sampled_from(
        ["mission_complete", "analysis_result", "no_followup_jobs", "error", "malformed", "malformed"]
    ).map(Reply),
)
limits = st.builds(
    Limits,
    max_turns=st.sampled_from([2, 4, 25]),
    max_seconds=st.sampled_from([30.0, 1800.0]),
    max_jobs=st.sampled_from([3, 100]),
    max_depth=st.sampled_from([1, 5]),
    max_followups=st.sampled_from([2, 5]),
    overflow=st.sampled_from(["refuse", "hold"]),
    max_corrections=st.sampled_from([0, 2]),
    max_stalled=st.sampled_from([1, 3]),
)
specs = st.builds(
    Spec,
    limits=limits,
    each_result=st.sampled_from([False, False, True]),
    fails_with_job=st.sampled_from([False, False, True]),
    hold_timeout=st.sampled_from([None, None, 20.0]),
)
outcomes = st.sampled_from(["done", "done", "written", "failed", "raised", "held"])


@dataclass(eq=False)
class Lease:
    """An attempt in the hands of a runner, which may have lost it; its job for the rules and for the engine."""

    job: Job
    attempt: int
    row: JobRow
    asked: TurnRow | None = None

    def __repr__(self) -> str:
        return f"<attempt {self.attempt} of {self.job}>"


class Even(Random):
    """Jitter that leaves each wait as it is."""

    def uniform(self, a: float, b: float) -> float:
        return 1.0


class EngineAndRules(RuleBasedStateMachine):
    """Does everything twice, to a real engine and to the rules, and compares."""

    def __init__(self, lab: Lab, now: list[int]) -> None:
        super().__init__()
        self.lab = lab
        self.database = lab.engine.site.database
        self.clock = now
        self.clock[0] = 1_000_000_000 * SECOND
        self.world = World(self.clock[0])
        self.runners: dict[Runner, int] = {}
        self.ids: dict[Mission, int] = {}
        self.known: dict[Mission, list[int]] = {}
        self.leases: list[Lease] = []

    # -- missions

    @initialize(spec=specs)
    def begin(self, spec: Spec) -> None:
        self.launch(spec)
        for _ in range(2):
            self.enter()

    @precondition(lambda self: len(self.ids) < 3)
    @rule(spec=specs)
    def launch(self, spec: Spec) -> None:
        self.ids[self.world.launch(spec)] = self.lab.engine.launch(file_of(spec), root=self.lab.root).id

    @precondition(lambda self: any(mission.has_ended for mission in self.world.missions))
    @rule(data=st.data(), new=limits)
    def resume(self, data: st.DataObject, new: Limits) -> None:
        mission = self.a_mission(data)
        changed = limits_of(new)
        self.same(
            lambda: self.world.resume(mission, new),
            lambda: self.lab.engine.resume(self.ids[mission], limits=changed),
        )

    @precondition(lambda self: len(self.world.jobs) > 5)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        mission = self.a_mission(data)
        self.same(lambda: self.world.cancel(mission), lambda: self.lab.engine.cancel(self.ids[mission]))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """No file was changed: nothing is to be undone, and that is told, unless jobs go on."""
        mission = self.a_mission(data)
        self.same(lambda: self.world.undo(mission), lambda: self.lab.engine.undo(self.ids[mission]).job_id)

    # -- people

    @precondition(lambda self: self.has(State.HELD))
    @rule(data=st.data(), revised=st.none() | st.integers(0, 2))
    def approve(self, data: st.DataObject, revised: int | None) -> None:
        job = self.a_job(data, State.HELD)
        revised = revised if job.kind in ("do", "change", "system") else None
        params: Object | None = None if revised is None else {"of": revised}
        self.same(
            lambda: self.world.approve(job, revised),
            lambda: self.lab.engine.approve(self.id_of(job), params=params),
        )

    @precondition(lambda self: self.has(State.HELD))
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        job = self.a_job(data, State.HELD)
        self.same(lambda: self.world.reject(job), lambda: self.lab.engine.reject(self.id_of(job), "no"))

    @precondition(lambda self: self.has(State.HELD))
    @rule(data=st.data(), text=st.sampled_from(["yes", "no"]))
    def answer(self, data: st.DataObject, text: str) -> None:
        job = self.a_job(data, State.HELD)
        self.same(lambda: self.world.answer(job, text), lambda: self.lab.engine.answer(self.id_of(job), text))

    @rule(data=st.data(), is_about_job=st.booleans())
    def say(self, data: st.DataObject, is_about_job: bool) -> None:
        mission = self.a_mission(data)
        about = data.draw(st.sampled_from(mission.jobs)) if is_about_job else None
        text = f"word {mission.moment}"
        about_id = None if about is None else self.id_of(about)
        self.same(
            lambda: self.world.say(mission, text, about),
            lambda: self.lab.engine.say(self.ids[mission], text, job_id=about_id),
        )

    @precondition(lambda self: self.has(State.FAILED, State.CANCELLED, State.SKIPPED))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = self.a_job(data, State.FAILED, State.CANCELLED, State.SKIPPED)
        self.same(lambda: self.world.retry(job), lambda: self.lab.engine.retry(self.id_of(job)))

    # -- time

    @rule(seconds=st.sampled_from([-3600, -7, -1, 0.5, 1, 3, 9, 11, 21, 40]))
    def pass_time(self, seconds: float) -> None:
        self.clock[0] += int(seconds * SECOND)
        self.world.now = self.clock[0]

    @precondition(lambda self: any(job.held_until or 0 for job in self.world.jobs))
    @rule()
    def expire(self) -> None:
        due = self.database.read(lambda tx: due_holds(tx, tx.now))
        self.write(lambda ledger: expire(ledger, due))
        self.world.expire()

    # -- runners

    @precondition(lambda self: len(self.runners) < 2)
    @rule()
    def enter(self) -> None:
        number = self.write(
            lambda ledger: queue.add_runner(ledger.tx, uid=f"r{next(NUMBERS)}", host="far", boot="1", pid=1)
        )
        self.runners[Runner(self.clock[0] + queue.LEASE)] = number

    @precondition(lambda self: self.runners)
    @rule(data=st.data(), most=st.sampled_from([1, 2, 10]))
    def claim(self, data: st.DataObject, most: int) -> None:
        self.take(data.draw(st.sampled_from([*self.runners])), most)

    def take(self, runner: Runner, most: int) -> list[Lease]:
        number, kinds = self.runners[runner], tuple(sorted(self.lab.engine.workers))

        def take(ledger: Ledger) -> list[JobRow]:
            claimed = queue.claim(ledger, queue.Scope(kinds), number, most)
            queue.beat(ledger.tx, number)
            return claimed

        rows, jobs = self.write(take), self.world.claim(runner, most)
        assert [row.id for row in rows] == [self.id_of(job) for job in jobs]
        leases = [Lease(job, job.attempt, row) for job, row in zip(jobs, rows, strict=True)]
        self.leases += leases
        return leases

    @precondition(lambda self: self.runners)
    @rule(data=st.data())
    def beat(self, data: st.DataObject) -> None:
        runner = data.draw(st.sampled_from([*self.runners]))
        self.write(lambda ledger: queue.beat(ledger.tx, self.runners[runner]))
        self.world.beat(runner)

    @precondition(lambda self: any(self.world.leased(runner) for runner in self.runners))
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A runner dies, and another one of its host notices that and what it had started."""
        runner = data.draw(st.sampled_from([runner for runner in self.runners if self.world.leased(runner)]))
        leased = self.world.leased(runner)
        started = set(data.draw(st.lists(st.sampled_from(leased))))
        self.take_back(runner, lambda job: job in started)
        del self.runners[runner]

    @precondition(lambda self: any(runner.alive_until < self.clock[0] for runner in self.runners))
    @rule()
    def take_back_what_expired(self) -> None:
        """A runner of another host is known by its leases only: it may be alive, and write what no longer counts."""
        for runner in list(self.runners):
            if runner.alive_until < self.clock[0]:
                self.take_back(runner, lambda job: True)

    def take_back(self, runner: Runner, started: Callable[[Job], bool]) -> None:
        number = self.runners[runner]
        has_started = {self.id_of(job): started(job) for job in self.world.leased(runner)}

        def take(ledger: Ledger) -> None:
            for row in queue.leasing_runners(ledger.tx, 0):
                if row.id == number:
                    assert row.alive_until == runner.alive_until
                    leased = queue.leased_by(ledger.tx, number)
                    ledger.lock(job.mission_id for job in leased)
                    for job in leased:
                        rescue(ledger, job, row, has_started=has_started[job.id])

        self.write(take)
        self.world.take_back(runner, started)

    # -- attempts

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.leases))
        is_held = self.world.holds(lease.job, lease.attempt)
        assert self.write(lambda ledger: queue.release(ledger, lease.row.copy(), "not started")) == is_held
        if is_held:
            self.world.release(lease.job)

    @precondition(lambda self: any(lease.job.role == "work" for lease in self.leases))
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Some attempts end in one transaction; those that lost their lease drop out alone."""
        works = [lease for lease in self.leases if lease.job.role == "work"]
        chosen = data.draw(st.lists(st.sampled_from(works), min_size=1, max_size=4))
        self.settle_each([(lease, data.draw(outcomes)) for lease in chosen])

    @precondition(lambda self: any(lease.job.role != "work" for lease in self.leases))
    @rule(data=st.data())
    def ask(self, data: st.DataObject) -> None:
        self.ask_for(data.draw(st.sampled_from([lease for lease in self.leases if lease.job.role != "work"])))

    @precondition(lambda self: any(lease.asked for lease in self.leases))
    @rule(data=st.data(), reply=replies)
    def receive(self, data: st.DataObject, reply: Reply) -> None:
        self.keep(data.draw(st.sampled_from([lease for lease in self.leases if lease.asked])), reply)

    @precondition(lambda self: any(lease.asked and lease.asked.reply for lease in self.leases))
    @rule(data=st.data())
    def conclude(self, data: st.DataObject) -> None:
        answered = [lease for lease in self.leases if lease.asked and lease.asked.reply]
        self.conclude_turn(data.draw(st.sampled_from(answered)))

    @precondition(lambda self: any(lease.job.role != "work" for lease in self.leases))
    @rule(data=st.data(), is_final=st.booleans())
    def get_no_reply(self, data: st.DataObject, is_final: bool) -> None:
        turns = [lease for lease in self.leases if lease.job.role != "work"]
        self.settle_each([(data.draw(st.sampled_from(turns)), "failed" if is_final else "raised")])

    @precondition(lambda self: self.runners)
    @rule(data=st.data(), rounds=st.integers(1, 6), most=st.sampled_from([1, 1, 3]))
    def work(self, data: st.DataObject, rounds: int, most: int) -> None:
        """A runner claims and does what it should, for a while."""
        runner = data.draw(st.sampled_from([*self.runners]))
        for _ in range(rounds):
            for lease in self.take(runner, most):
                if lease.job.role == "work":
                    self.settle_each([(lease, data.draw(outcomes))])
                else:
                    self.reply(lease, data.draw(replies))
                self.agree()

    def reply(self, lease: Lease, reply: Reply) -> None:
        if self.ask_for(lease):
            self.keep(lease, reply)
            self.conclude_turn(lease)

    def settle_each(self, ended: Sequence[tuple[Lease, str]]) -> None:
        settlings = [Settling(lease.row.copy(), OUTCOMES[outcome]) for lease, outcome in ended]

        def settle(ledger: Ledger) -> None:
            ledger.lock(settling.job.mission_id for settling in settlings)
            settle_all(ledger, [replace(one, job=one.job.copy()) for one in settlings], Even())

        self.write(settle)
        for lease, outcome in ended:
            if not self.world.holds(lease.job, lease.attempt):
                continue
            if outcome in ("done", "written"):
                self.world.succeed(lease.job, has_written=outcome == "written")
            elif outcome == "held":
                self.world.hold(lease.job)
            else:
                self.world.fail(lease.job, is_final=outcome == "failed")

    def ask_for(self, lease: Lease) -> bool:
        """Ask the question of a turn; whether there is one."""
        asked = self.write(lambda ledger: open_question(ledger, lease.row.copy()))
        is_held = self.world.holds(lease.job, lease.attempt)
        expected = lease.job.mission.ask(lease.job) if is_held else None
        assert (asked is None) == (expected is None)
        if asked is None or expected is None:
            return False
        lease.asked = asked.turn
        assert (asked.turn.turn, asked.turn.last_turn) == (expected.turn, expected.last_turn)
        mission = lease.job.mission
        assert [result.job_id for result in asked.results] == [
            self.id_of(job) for job in mission.results(lease.job)
        ]
        assert [said.text for said in asked.said] == mission.words(lease.job)
        held = [job for job in lease.job.acting.jobs if job.state is State.HELD]
        assert [result.job_id for result in asked.waiting] == [self.id_of(job) for job in held]
        return True

    def keep(self, lease: Lease, reply: Reply) -> None:
        """A reply comes in, perhaps too late: the first one to a question wins (R21)."""
        turn, question = lease.asked, lease.job.question
        assert turn is not None
        assert question is not None
        stored = StoredReply(text_of(reply), None, None, None, 0.0)
        kept = self.write(lambda ledger: keep_reply(ledger, turn, stored))
        question.reply = question.reply or reply
        assert kept.reply == text_of(question.reply)
        lease.asked = kept

    def conclude_turn(self, lease: Lease) -> None:
        assert lease.asked is not None
        assert lease.asked.reply is not None
        assert lease.job.question is not None
        reply = read_reply(
            lease.asked.reply, {kind: worker.params for kind, worker in self.lab.engine.workers.items()}
        )
        bench = self.lab.engine.site.bench
        is_held = self.world.holds(lease.job, lease.attempt)
        assert self.write(lambda ledger: conclude_turn(ledger, bench, lease.row.copy(), reply)) == is_held
        if is_held:
            assert lease.job.question.reply is not None
            lease.job.mission.conclude(lease.job, lease.job.question.reply)

    # -- what has to be the same

    @invariant()
    def agree(self) -> None:
        assert self.stored_missions() == [self.mission_of(mission) for mission in self.world.missions]
        assert self.stored_jobs() == [self.job_of(job) for job in self.world.jobs]

    @invariant()
    def keep_the_books(self) -> None:
        check_books(self.lab)

    def stored_missions(self) -> list[dict[str, object]]:
        rows = self.lab.rows(
            "SELECT id, status, outcome, turns, questions, requested, ran, asking FROM missions ORDER BY id"
        )
        names = ("id", "status", "outcome", "turns", "questions", "requested", "ran", "asking")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def mission_of(self, mission: Mission) -> dict[str, object]:
        turns = [job for job in mission.jobs if job.role != "work"]
        asking = [self.id_of(turn) for turn in turns if turn.state in OPEN]
        assert len(asking) < 2
        return {
            "id": self.ids[mission],
            "status": mission.status,
            "outcome": mission.outcome,
            "turns": mission.turns,
            "questions": mission.questions,
            "requested": mission.requested,
            "ran": mission.ran,
            "asking": asking[0] if asking and not mission.has_ended else None,
        }

    def stored_jobs(self) -> list[dict[str, object]]:
        counted = ("attempt", "failures", "deaths")
        names = ("id", "mission_id", "kind", "role", "state", *counted, "run_after", "held_until")
        columns = ", ".join(names).replace("run_after", "CASE WHEN state = 'queued' THEN run_after END")
        rows = self.lab.rows(f"SELECT {columns} FROM jobs ORDER BY id")
        return [dict(zip(names, row, strict=True)) for row in rows]

    def job_of(self, job: Job) -> dict[str, object]:
        return {
            "id": self.id_of(job),
            "mission_id": self.ids[job.mission],
            "kind": job.kind,
            "role": job.role,
            "state": job.state,
            "attempt": job.attempt,
            "failures": job.failures,
            "deaths": job.deaths,
            "run_after": job.run_after or None,
            "held_until": job.held_until,
        }

    # -- helpers of the rules above

    def write(self, work: Callable[[Ledger], T]) -> T:
        return self.database.write(lambda tx: work(ledger_of(tx)))

    def same(self, expected: Callable[[], object], real: Callable[[], object]) -> None:
        """Both come to the same, or are refused for the same reason."""
        assert _result(real) == _result(expected)

    def id_of(self, job: Job) -> int:
        """Jobs of a mission have ids in the order in which they were made."""
        mission = job.mission
        known = self.known.setdefault(mission, [])
        if len(known) < len(mission.jobs):
            rows = self.lab.rows(f"SELECT id FROM jobs WHERE mission_id = {self.ids[mission]} ORDER BY id")
            known[:] = [int(str(row[0])) for row in rows]
        return known[mission.jobs.index(job)] if mission.jobs.index(job) < len(known) else -job.number

    def a_mission(self, data: st.DataObject) -> Mission:
        return data.draw(st.sampled_from(self.world.missions))

    def a_job(self, data: st.DataObject, *likely: State) -> Job:
        """Any job, mostly one of these states."""
        jobs = self.world.jobs
        is_likely = self.has(*likely) and data.draw(st.sampled_from([True, True, True, False]))
        return data.draw(st.sampled_from([job for job in jobs if job.state in likely] if is_likely else jobs))

    def has(self, *states: State) -> bool:
        return any(job.state in states for job in self.world.jobs)

    def teardown(self) -> None:
        def empty(tx: Tx) -> None:
            for table in reversed(metadata.sorted_tables):
                if table.name != "alembic_version":
                    tx.plain(f"DELETE FROM {table.name}")

        assert self.database.read(faults_in) == []
        self.database.write(empty)


def _result(call: Callable[[], object]) -> object:
    try:
        result = call()
    except RefusedError as error:
        return error.code
    except LcpError as error:
        return str(error.code)
    return result if isinstance(result, bool) else None


OUTCOMES: dict[str, Succeeded | Failed | Hold] = {
    "done": Succeeded("{}"),
    "written": Succeeded("{}", written_bytes=3),
    "failed": Failed(ErrorCode.PATH_NOT_FOUND, "it is not there"),
    "raised": Failed(ErrorCode.WORKER_FAILED, "not this time"),
    "held": Hold("a link leads elsewhere"),
}


def file_of(spec: Spec) -> Object:
    return {
        "goal": "Find out.",
        "planner": {"type": "script", "replies": []},
        "limits": limits_of(spec.limits),
        "continue": "per_result" if spec.each_result else "per_batch",
        "on_job_failure": "fail" if spec.fails_with_job else "report",
        "hold_timeout": spec.hold_timeout,
    }


def limits_of(given: Limits) -> Object:
    return {**vars(given)}


def text_of(reply: Reply) -> str:
    """The reply as a planner writes it."""
    if reply.is_malformed:
        return "I would rather not."
    if reply.action == "error":
        return json.dumps({"ok": False, "action": "mission_complete", "error": "it cannot be done"})
    if reply.action == "write_file":
        return json.dumps(
            {"ok": True, "action": "write_file", "rel_path": f"{reply.asks[0].of}.txt", "content": "x"}
        )
    if reply.action in ("mission_complete", "analysis_result"):
        return json.dumps({"ok": True, "action": reply.action, "summary": "all done"})
    requested = [request_of(ask) for ask in reply.asks]
    return json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": requested})


def request_of(ask: Ask) -> Object:
    params: Object = {"of": ask.of}
    if ask.kind == "ask_user":
        params = {"question": f"Which {ask.of}?"}
    if ask.kind == TURN:
        params = {"user_prompt": f"Look at {ask.of}.", **({"scope": "step"} if ask.is_step else {})}
    dispatch: Object = {} if ask.auto_dispatch is None else {"auto_dispatch": ask.auto_dispatch}
    return {"kind": ask.kind, "params": params, **dispatch}


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database, which all examples use."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'lcp.db'}"
    else:
        url: str = request.getfixturevalue("shared_postgres_url")
        yield url
        _empty(url)


@pytest.fixture
def clock() -> list[int]:
    """The time, which stands still until it is moved."""
    return [1_000_000_000 * SECOND]


@pytest.fixture
def lab(database_url: str, tmp_path: Path, clock: list[int]) -> Iterator[Lab]:
    lab = Lab(database_url, tmp_path, clock=lambda: clock[0])
    yield lab
    lab.engine.close()


def test_queue_and_loop_do_what_the_rules_say_whatever_happens(lab: Lab, clock: list[int]) -> None:
    class Machine(EngineAndRules):
        def __init__(self) -> None:
            super().__init__(lab, clock)

    few = settings(max_examples=EXAMPLES, stateful_step_count=STEPS)
    run_state_machine_as_test(Machine, settings=few)


def test_a_mission_resumed_while_a_step_is_asked_goes_on_without_it(lab: Lab, clock: list[int]) -> None:
    both = EngineAndRules(lab, clock)
    both.begin(Spec(fails_with_job=True))
    mission, runner = both.world.missions[0], next(iter(both.runners))
    (first,) = both.take(runner, 1)
    both.reply(first, Reply("jobs", (Ask(TURN, is_step=True), Ask("do"))))
    step, work = both.take(runner, 2)
    both.ask_for(step)
    both.settle_each([(work, "failed")])
    assert mission.outcome == "job_failed"
    both.same(
        lambda: both.world.resume(mission, Limits()), lambda: lab.engine.resume(both.ids[mission], limits={})
    )
    both.keep(step, Reply("mission_complete"))
    both.conclude_turn(step)
    assert [job.state for job in mission.jobs] == ["succeeded", "cancelled", "failed", "queued"]
    both.agree()
    both.keep_the_books()
