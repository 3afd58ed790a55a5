"""Queue and loop follow the rules, whatever happens in whatever order."""

from __future__ import annotations

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
from tests.engine.conftest import Lab, check_books
from tests.model.replies import (
    answers,
    dialect_of,
    file_of,
    limits,
    limits_of,
    outcomes,
    replies_to,
    specs,
    steps_of,
    text_of,
)
from tests.model.rules import DONE, QUESTION, SECOND, TURN, Ask, Job, Limits, Mission, Reply, Runner, Spec
from tests.model.world import RefusedError, World

from lcp_engine.core.decide import FailedCheck
from lcp_engine.core.job_states import State
from lcp_engine.core.protocol.read_reply import reader_of
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.engine.people.approvals import expire
from lcp_engine.engine.question import hold_turn, keep_reply, open_question
from lcp_engine.engine.reply import FinishedTurn, apply_reply
from lcp_engine.engine.settle import FinishedJob, rescue, settle_all
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.check.store.examination import faults_in
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.people import due_holds
from lcp_engine.store.row_types import JobRow, TurnRow
from lcp_engine.store.schema import every_table
from lcp_engine.store.turns import StoredReply
from lcp_engine.workers.base import Hold

T = TypeVar("T")
Object = dict[str, JsonValue]
EXAMPLES = int(os.environ.get("LCP_TEST_EXAMPLES") or 30)
STEPS = 40
NUMBERS = count()


@dataclass(eq=False)
class Lease:
    """An attempt that a runner has, or has lost; its job in the rules and in the engine."""

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
    """Does everything to a real engine and to the rules, and compares."""

    def __init__(self, lab: Lab, now: list[int]) -> None:
        super().__init__()
        self.lab = lab
        self.database = lab.engine.instance.database
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

    @precondition(lambda self: len(self.world.jobs) > 12)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        mission = self.a_mission(data)
        self.same(lambda: self.world.cancel(mission), lambda: self.lab.engine.cancel(self.ids[mission]))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """No file was changed: there is nothing to undo, and the engine reports that unless jobs are unfinished."""
        mission = self.a_mission(data)
        self.same(lambda: self.world.undo(mission), lambda: self.lab.engine.undo(self.ids[mission]).job_id)

    # -- people

    @precondition(lambda self: self.has(State.HELD))
    @rule(data=st.data(), revised=st.none() | st.integers(0, 2))
    def approve(self, data: st.DataObject, revised: int | None) -> None:
        job = self.a_job(data, State.HELD)
        self.let_run(job, revised if job.kind in ("do", "change", "system") else None)

    def let_run(self, job: Job, revised: int | None) -> None:
        params: Object | None = None if revised is None else {"of": revised}
        self.same(
            lambda: self.world.approve(job, revised),
            lambda: self.lab.engine.approve(self.id_of(job), params=params),
        )

    @precondition(lambda self: self.has(State.HELD))
    @rule(data=st.data())
    def reject(self, data: st.DataObject) -> None:
        self.refuse(self.a_job(data, State.HELD))

    def refuse(self, job: Job) -> None:
        self.same(lambda: self.world.reject(job), lambda: self.lab.engine.reject(self.id_of(job), "no"))

    @precondition(lambda self: any(job.role == "work" for job in self.world.jobs))
    @rule(data=st.data(), text=answers)
    def answer(self, data: st.DataObject, text: str) -> None:
        jobs = [job for job in self.world.jobs if job.role == "work"]
        questions = [job for job in jobs if job.kind == QUESTION and job.state is State.HELD]
        self.give_answer(data.draw(st.sampled_from(questions or jobs)), text)

    def give_answer(self, job: Job, text: str) -> None:
        self.same(lambda: self.world.answer(job, text), lambda: self.lab.engine.answer(self.id_of(job), text))

    @precondition(lambda self: any(job.is_relayed or job.was_brought for job in self.world.jobs))
    @rule(data=st.data())
    def bring(self, data: st.DataObject) -> None:
        """A person submits the reply to a turn that waits for it, or submits it again."""
        turns = [job for job in self.world.jobs if job.role != "work" and job.question is not None]
        relayed = [turn for turn in turns if turn.is_relayed]
        turn = data.draw(st.sampled_from(relayed or turns))
        self.bring_reply(turn, data.draw(replies_to(turn)))

    def bring_reply(self, turn: Job, reply: Reply) -> None:
        text = text_of(reply, turn.mission.spec)
        self.same(
            lambda: self.world.bring(turn, reply), lambda: self.lab.engine.answer(self.id_of(turn), text)
        )

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

    @precondition(lambda self: self.has(State.FAILED, State.CANCELLED, State.SKIPPED, State.REJECTED))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job = self.a_job(data, State.FAILED, State.CANCELLED, State.SKIPPED, State.REJECTED)
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

        rows = self.write(take)
        missions = {self.id_of(job): job.mission for job in self.world.jobs}
        jobs = self.world.claim(runner, most, [missions[row.id] for row in rows])
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
        """A runner dies, and another one on its host notices that, and which jobs it had started."""
        runner = data.draw(st.sampled_from([runner for runner in self.runners if self.world.leased(runner)]))
        leased = self.world.leased(runner)
        started = set(data.draw(st.lists(st.sampled_from(leased))))
        self.take_back(runner, lambda job: job in started)
        del self.runners[runner]

    @precondition(lambda self: any(runner.alive_until < self.clock[0] for runner in self.runners))
    @rule()
    def take_back_what_expired(self) -> None:
        """Only the leases of a runner on another host are known: it may live, and write what no longer counts."""
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
        self.give_back_lease(data.draw(st.sampled_from(self.leases)))

    def give_back_lease(self, lease: Lease) -> None:
        is_held = self.world.holds(lease.job, lease.attempt)
        assert self.write(lambda ledger: queue.release(ledger, lease.row.copy())) == is_held
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
    @rule(data=st.data())
    def receive(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from([lease for lease in self.leases if lease.asked]))
        self.keep(lease, data.draw(replies_to(lease.job)))

    @precondition(lambda self: any(lease.asked and lease.asked.reply is None for lease in self.leases))
    @rule(data=st.data())
    def relay(self, data: st.DataObject) -> None:
        """The planner is a person: the turn is held until the reply is submitted."""
        unanswered = [lease for lease in self.leases if lease.asked and lease.asked.reply is None]
        self.hand_over(data.draw(st.sampled_from(unanswered)))

    @precondition(lambda self: any(lease.asked and lease.asked.reply for lease in self.leases))
    @rule(data=st.data(), is_unmet=st.booleans())
    def conclude(self, data: st.DataObject, is_unmet: bool) -> None:
        answered = [lease for lease in self.leases if lease.asked and lease.asked.reply]
        self.conclude_turn(data.draw(st.sampled_from(answered)), is_unmet=is_unmet)

    @precondition(lambda self: any(lease.job.role != "work" for lease in self.leases))
    @rule(data=st.data(), is_final=st.booleans())
    def get_no_reply(self, data: st.DataObject, is_final: bool) -> None:
        turns = [lease for lease in self.leases if lease.job.role != "work"]
        self.settle_each([(data.draw(st.sampled_from(turns)), "failed" if is_final else "raised")])

    @precondition(lambda self: self.runners)
    @rule(data=st.data(), rounds=st.integers(1, 6), most=st.sampled_from([1, 1, 3]))
    def work(self, data: st.DataObject, rounds: int, most: int) -> None:
        """A runner claims and executes for a while."""
        runner = data.draw(st.sampled_from([*self.runners]))
        for _ in range(rounds):
            for lease in self.take(runner, most):
                if lease.job.role == "work":
                    self.settle_each([(lease, data.draw(outcomes))])
                else:
                    self.take_turn(data, lease, replies_to(lease.job))
                self.agree()

    @precondition(lambda self: self.runners and any(not m.has_ended for m in self.world.missions))
    @rule(data=st.data(), rounds=st.integers(4, 12))
    def go_on(self, data: st.DataObject, rounds: int) -> None:
        """Like `work`, but nothing ends early: chance seldom reaches what comes late in a mission."""
        runner = data.draw(st.sampled_from([*self.runners]))
        for _ in range(rounds):
            for lease in self.take(runner, 1):
                if lease.job.role == "work":
                    self.settle_each(
                        [(lease, data.draw(st.sampled_from(["done", "done", "written", "failed"])))]
                    )
                else:
                    self.take_turn(data, lease, replies_to(lease.job, goes_on=lease.job.acting.owner is None))
                self.agree()
            if data.draw(st.booleans()):
                self.attend(data)

    def take_turn(self, data: st.DataObject, lease: Lease, likely: st.SearchStrategy[Reply]) -> None:
        """The planner replies, or is a person who will reply."""
        is_relayed = data.draw(st.sampled_from([False] * 5 + [True]))
        is_unmet = lease.job.mission.spec.is_checked and data.draw(st.booleans())
        if not self.ask_for(lease):
            return
        assert lease.asked is not None
        if is_relayed and lease.asked.reply is None:
            self.hand_over(lease)
            return
        self.keep(lease, data.draw(likely))
        self.conclude_turn(lease, is_unmet=is_unmet)

    def attend(self, data: st.DataObject) -> None:
        """A person approves everything that is held."""
        for job in self.world.jobs:
            if job.state is not State.HELD:
                continue
            if job.is_relayed:
                self.bring_reply(job, data.draw(replies_to(job, goes_on=True)))
            elif job.kind == QUESTION:
                self.give_answer(job, data.draw(answers))
            elif job.kind == "unknown":
                self.refuse(job)
            else:
                self.let_run(job, None)

    def reply(self, lease: Lease, reply: Reply, *, is_unmet: bool = False) -> None:
        if self.ask_for(lease):
            self.keep(lease, reply)
            self.conclude_turn(lease, is_unmet=is_unmet)

    def hand_over(self, lease: Lease) -> None:
        asked = lease.asked
        assert asked is not None
        is_held = self.world.holds(lease.job, lease.attempt)
        self.write(lambda ledger: hold_turn(ledger, lease.row.copy(), asked, "What next?"))
        if is_held:
            self.world.relay(lease.job)

    def settle_each(self, ended: Sequence[tuple[Lease, str]]) -> None:
        settlings = [FinishedJob(lease.row.copy(), OUTCOMES[outcome]) for lease, outcome in ended]

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
        assert asked.verifies == (lease.job.claim is not None)
        assert [result.job_id for result in asked.results] == [
            self.id_of(job) for job in mission.results(lease.job)
        ]
        assert [said.text for said in asked.said] == mission.words(lease.job)
        held = [job for job in lease.job.acting.jobs if job.state is State.HELD]
        assert [result.job_id for result in asked.waiting] == [self.id_of(job) for job in held]
        return True

    def keep(self, lease: Lease, reply: Reply) -> None:
        """A reply arrives, perhaps too late: the first one to a question wins (R21)."""
        turn, question = lease.asked, lease.job.question
        assert turn is not None
        assert question is not None
        spec = lease.job.mission.spec
        stored = StoredReply(text_of(reply, spec), None, None, None, 0.0)
        kept = self.write(lambda ledger: keep_reply(ledger, turn, stored))
        question.reply = question.reply or reply
        assert kept.reply == text_of(question.reply, spec)
        lease.asked = kept

    def conclude_turn(self, lease: Lease, *, is_unmet: bool = False) -> None:
        """`is_unmet`: if the planner claims to be done and the mission checks files, one check does not pass."""
        assert lease.asked is not None
        assert lease.asked.reply is not None
        assert lease.job.question is not None
        mission, spec = lease.job.mission, lease.job.mission.spec
        expected = lease.job.question.reply
        assert expected is not None
        is_unmet = is_unmet and spec.is_checked and expected.action in (*DONE, "no_followup_jobs")
        unmet = (FailedCheck(0, "the file done.txt exists"),) if is_unmet else ()
        kinds = {kind: worker.params for kind, worker in self.lab.engine.workers.items()}
        reply = reader_of(dialect_of(spec))(lease.asked.reply, kinds)
        admission = self.lab.engine.instance.admission
        is_held = self.world.holds(lease.job, lease.attempt)
        concluded = self.write(
            lambda ledger: apply_reply(ledger, FinishedTurn(lease.row.copy(), reply, admission, unmet))
        )
        assert concluded == is_held
        if is_held:
            mission.conclude(lease.job, expected, is_unmet=is_unmet)

    # -- what must be the same

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
        asking = mission.asking
        return {
            "id": self.ids[mission],
            "status": mission.status,
            "outcome": mission.outcome,
            "turns": mission.turns,
            "questions": mission.questions,
            "requested": mission.requested,
            "ran": mission.ran,
            "asking": None if asking is None else self.id_of(asking),
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
        """Both have the same outcome, or are refused for the same reason."""
        assert _result(real) == _result(expected)

    def id_of(self, job: Job) -> int:
        """Jobs of a mission have ids in the order of their creation."""
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
            for table in reversed(every_table()):
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


@pytest.fixture(params=["sqlite_copy_url", "emptied_postgres_url"], ids=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of a database without rows, which all examples use."""
    url: str = request.getfixturevalue(request.param)
    return url


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
    both.agree()
    both.keep_the_books()
    both.same(
        lambda: both.world.resume(mission, Limits()), lambda: lab.engine.resume(both.ids[mission], limits={})
    )
    both.keep(step, Reply("mission_complete"))
    both.conclude_turn(step)
    assert [job.state for job in mission.jobs] == ["succeeded", "cancelled", "failed", "queued"]
    both.agree()
    both.keep_the_books()


def test_the_step_that_becomes_due_is_asked_before_younger_turns(lab: Lab, clock: list[int]) -> None:
    both = EngineAndRules(lab, clock)
    both.begin(Spec(is_universal=True))
    runner = next(iter(both.runners))
    (first,) = both.take(runner, 1)
    both.reply(first, Reply("jobs", (Ask(TURN, 0, is_step=True), Ask(TURN, 1, is_step=True))))
    (one,) = both.take(runner, 1)
    both.reply(one, Reply("jobs", (Ask("do"),)))
    both.agree()
    leases = {lease.job.role: lease for lease in both.take(runner, 2)}
    both.reply(leases["step"], steps_of([0, 0]))
    (step,) = both.take(runner, 1)
    both.reply(step, Reply("jobs", (Ask("do", 1),)))
    both.settle_each([(both.take(runner, 1)[0], "done")])
    (last,) = both.take(runner, 1)
    both.settle_each([(leases["work"], "done")])
    both.agree()
    both.reply(last, Reply("analysis_result"))
    both.agree()
    both.keep_the_books()
