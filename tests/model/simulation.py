"""Let runners of two machines work in virtual time while they stall, sleep and die and clocks are set (R17, R21).

One thread and one source of chance: a scheduler takes the next step of a program, each step one transaction of the
engine, and the same step of the rules. The seed repeats an example.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.engine.conftest import Lab, check_books
from tests.model.rules import QUESTION, SECOND, TURN, Ask, Job, Limits, Mission, Reply, Runner, Spec
from tests.model.test_model import NUMBERS, EngineAndRules, Lease

from lcp_engine.core.job_states import State
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.lease_watch import LONGEST_GAP
from lcp_engine.runner.leases import Leases
from lcp_engine.runner.maintenance import Maintenance
from lcp_engine.runner.runner import WATCH_SECONDS
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.store import queue
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import LOCK, Host, LivenessFile
from lcp_engine.store.host.roots import Roots, ServedMissions

T = TypeVar("T")
Steps = Iterator[float]
"""A program: each step ends with the seconds until the next one."""
LONG = 75.0
"""For so many seconds things go wrong."""
QUIET = 35.0
"""And for so many nothing does: afterwards every dead runner's jobs are taken back."""
SHIFTS = (-3600, -12, 12, 3600)
BUSY_SECONDS = (5.0, 30.0)


class _KilledError(Exception):
    """The process that waits has been killed."""


@dataclass(eq=False)
class Machine:
    """`slept`: for so long its monotonic clock stood still, the last time until `awake_at`."""

    name: str
    lab: Lab
    instance: Instance
    slept: float = 0.0
    awake_at: float = 0.0

    @property
    def host(self) -> Host:
        return Host(self.name, f"boot-{self.name}")


@dataclass(eq=False)
class Process:
    """A runner. `away` are the times, from and until, in which it did not run; `renewed` when it last renewed.

    `goes_on` is when it should go on that waits: it is away from then on, while steps of others that wait hold it up.
    """

    machine: Machine
    uid: str
    runner: Runner
    number: int
    leases: Leases
    maintenance: Maintenance
    liveness: LivenessFile
    renewed: float
    away: list[tuple[float, float]] = field(default_factory=list)
    started: tuple[Job, int] | None = None
    is_dead: bool = False
    goes_on: float = math.inf

    @property
    def back_at(self) -> float:
        return max((until for _, until in self.away), default=0.0)

    def naps_since(self, moment: float, now: float) -> list[float]:
        """How long it was away, each time, between two moments."""
        naps: list[float] = []
        for since, until in sorted([*self.away, (self.goes_on, math.inf)]):
            nap = min(now, until) - max(moment, since)
            if nap > 0:
                naps.append(nap)
                moment = max(moment, until)
        return naps


class Simulation(EngineAndRules):
    """Everything that an example of one seed does, and what must be true of it."""

    def __init__(self, labs: Sequence[Lab], clock: list[int], place: Path, seed: int) -> None:
        super().__init__(labs[0], clock)
        self.chance = Random(seed)
        self.time = 0.0
        self.start = clock[0]
        self.busy_seconds = self.chance.choice(BUSY_SECONDS)
        self.held_until = 0.0
        self.shift = 0
        self.counts: Counter[str] = Counter()
        self._agenda: list[tuple[float, int, Process | None, Steps]] = []
        self._order = count()
        self._acting: Process | None = None
        self._may_wait = False
        self.machines = [_machine(name, lab, place) for name, lab in zip("ab", labs, strict=True)]
        self._writes = [machine.lab.engine.instance.database.write for machine in self.machines]
        self.processes: list[Process] = []

    def run(self) -> None:
        """Carry the example out. Raises AssertionError."""
        for machine, write in zip(self.machines, self._writes, strict=True):
            machine.lab.engine.instance.database.write = self._guarded(write)  # type: ignore[method-assign, assignment]
        try:
            self._act_as(None)
            for _ in range(self.chance.choice([1, 2])):
                self.launch(self._spec())
            for machine in self.machines:
                self._begin(machine)
            self._schedule(self._go_wrong(), None, 0.0)
            self._schedule(self._attend(), None, 0.0)
            self._advance(LONG)
            self._advance(max(self.time, self.held_until) + QUIET)
            self._act_as(None)
            self._nobody_dead_has_jobs()
            self.agree()
            for machine in self.machines:
                check_books(machine.lab)
        finally:
            for machine, write in zip(self.machines, self._writes, strict=True):
                machine.lab.engine.instance.database.write = write  # type: ignore[method-assign]
            for process in self.processes:
                process.liveness.remove()

    # -- The scheduler

    def _schedule(self, steps: Steps, process: Process | None, pause: float) -> None:
        heappush(self._agenda, (self.time + pause, next(self._order), process, steps))

    def _advance(self, until: float) -> None:
        """Take every step that is due until then."""
        while self._agenda and self._agenda[0][0] <= until:
            at, _, process, steps = heappop(self._agenda)
            self.time = max(self.time, at)
            if process is not None and process.is_dead:
                continue
            if process is not None and process.back_at > self.time:
                self._schedule(steps, process, process.back_at - self.time + self.chance.random() / 100)
                continue
            self._act_as(process)
            self._may_wait = False
            self.counts["steps"] += 1
            try:
                pause = next(steps, None)
            except _KilledError:
                continue
            if pause is not None:
                self._schedule(steps, process, pause)
        self.time = max(self.time, until)

    def _act_as(self, process: Process | None) -> None:
        """See the world as this process does; people sit at the first machine."""
        machine = self.machines[0] if process is None else process.machine
        self._acting = process
        self.lab, self.database = machine.lab, machine.lab.engine.instance.database
        self.clock[0] = self.world.now = self.start + int(self.time * SECOND) + self.shift * SECOND

    def _wait(self, process: Process, until: float) -> None:
        """Let others go on until then; what is late counts as if the process had been stopped."""
        process.goes_on = until
        self._advance(until)
        process.goes_on = math.inf
        if self.time > until:
            process.away.append((until, self.time))
        if process.is_dead:
            raise _KilledError
        if process.back_at > self.time:
            self._wait(process, process.back_at)
        self._act_as(process)
        self._may_wait = True

    def _guarded(self, write: Callable[[Callable[[Tx], T]], T]) -> Callable[[Callable[[Tx], T]], T]:
        """A write waits while another program holds the database, and its process may be stopped just before it."""

        def guarded(work: Callable[[Tx], T]) -> T:
            process = self._acting
            if process is None or not self._may_wait:
                return write(work)
            if self.time < LONG and self.chance.random() < 0.05:
                self._suspend(process)
                self._wait(process, process.back_at)
            patience = self.time + self.busy_seconds
            while self.held_until > self.time:
                self._wait(process, min(self.held_until, patience))
                if self.held_until > self.time >= patience:
                    raise LcpError(ErrorCode.DATABASE_BUSY, "another program holds the database")
            done = write(work)
            self._notice(process)
            return done

        return guarded

    def _when_free(self) -> float:
        """How long the other threads of a process, which write at once, wait for the database; 0: it is free."""
        return max(0.0, self.held_until - self.time) + self.chance.random() / 20

    # -- Runners

    def _begin(self, machine: Machine) -> None:
        """Start a runner."""
        instance, uid = machine.instance, f"s{next(NUMBERS)}"
        scope = queue.Scope(tuple(sorted(machine.lab.engine.workers)))
        leases = Leases(
            instance.database, scope, ServedMissions(Roots()), Random(0), lambda: self._monotonic(machine)
        )
        maintenance = Maintenance(
            instance, ConfinedThreads(active=False), machine.host, monotonic=lambda: self._monotonic(machine)
        )  # fmt: skip
        before, self._acting = self._acting, None
        leases.register(uid, machine.host, {})
        self._acting = before
        runner = Runner(self.clock[0] + queue.LEASE)
        self.runners[runner] = leases.runner_id
        process = Process(
            machine,
            uid,
            runner,
            leases.runner_id,
            leases,
            maintenance,
            LivenessFile(instance.runtime, uid),
            self.time,
        )
        self.processes.append(process)
        self._schedule(self._watch(process), process, self.chance.random())
        self._schedule(self._lane(process), process, self.chance.random())

    def _monotonic(self, machine: Machine) -> float:
        return 1000.0 + self.time - machine.slept

    def _watch(self, process: Process) -> Steps:
        """What the watchdog of a runner does (`Runner._watch`)."""
        while True:
            began, self._may_wait = self.time, True
            try:
                process.leases.renew()
                process.maintenance.rescue(process.number)
            except LcpError as error:
                if error.code is not ErrorCode.DATABASE_BUSY:
                    raise
            else:
                self._the_dead_of_this_machine_are_gone(process, began)
            yield WATCH_SECONDS

    def _lane(self, process: Process) -> Steps:
        """What a thread of a runner does."""
        while True:
            while self.held_until > self.time:
                yield self._when_free()
            leases = self.take(process.runner, self.chance.choice([1, 1, 2, 10]))
            process.renewed = self.time
            self.agree()
            for lease in leases:
                yield 0.01
                if self.chance.random() < 0.1:
                    yield from self._freely(lambda lease=lease: self.give_back_lease(lease))  # type: ignore[misc]
                    continue
                process.liveness.note_start(0, lease.row.id, lease.attempt)
                process.started = (lease.job, lease.attempt)
                yield from self._work(lease) if lease.job.role == "work" else self._turn(lease)
            yield 0.1 + self.chance.random()

    def _work(self, lease: Lease) -> Steps:
        yield self.chance.choice([0.01, 0.5, 4.0, 14.0])
        outcome = self.chance.choice(["done", "done", "done", "written", "failed", "raised"])
        yield from self._freely(lambda: self.settle_each([(lease, outcome)]))

    def _turn(self, lease: Lease) -> Steps:
        """The planner takes its time; a reply that arrives when the lease is lost is the first one all the same."""
        asked: list[bool] = []
        yield from self._freely(lambda: asked.append(self.ask_for(lease)))
        if not asked[0]:
            return
        yield self.chance.choice([0.1, 2.0, 13.0])
        reply = self._reply(lease)
        yield from self._freely(lambda: self.keep(lease, reply))
        yield self.chance.choice([0.0, 0.1])
        yield from self._freely(lambda: self.conclude_turn(lease))

    def _freely(self, step: Callable[[], object]) -> Steps:
        """Do it once the database is free."""
        while self.held_until > self.time:
            yield self._when_free()
        step()
        self.agree()

    # -- What goes wrong

    def _go_wrong(self) -> Steps:
        """Kill, stop, let sleep, set clocks, hold the database, until it is quiet."""
        while True:
            yield 1 + 7 * self.chance.random()
            if self.time >= LONG:
                return
            alive = [process for process in self.processes if not process.is_dead]
            machine, process = self.chance.choice(self.machines), self.chance.choice(alive)
            match self.chance.randrange(5):
                case 0:
                    self._kill(process)
                case 1:
                    self._suspend(process)
                case 2:
                    self._sleep(machine, alive)
                case 3:
                    self._set_clock()
                case _:
                    self.counts["databases held"] += 1
                    until = self.time + self.chance.choice([3.0, 12.0, 40.0])
                    self.held_until = max(self.held_until, until)

    def _kill(self, process: Process) -> None:
        self.counts["kills"] += 1
        process.is_dead = True
        process.away.append((self.time, math.inf))
        _die(process.machine.instance.runtime / f"{process.uid}{LOCK}", process.liveness)
        self._begin(self.chance.choice(self.machines))

    def _suspend(self, process: Process) -> None:
        self.counts["stops"] += 1
        process.away.append((self.time, self.time + self.chance.choice([0.5, 3.0, 7.0, 11.0, 15.0])))

    def _sleep(self, machine: Machine, alive: Sequence[Process]) -> None:
        self.counts["sleeps"] += 1
        seconds = self.chance.choice([6.0, 15.0])
        since = max(self.time, machine.awake_at)  # one that sleeps does so for longer
        machine.slept += seconds
        machine.awake_at = since + seconds
        for process in alive:
            if process.machine is machine:
                process.away.append((since, machine.awake_at))

    def _set_clock(self) -> None:
        """Of the database: that of the server, or the one that all processes of a machine share."""
        self.counts["clocks set"] += 1
        self.shift += self.chance.choice(SHIFTS)
        self._act_as(None)

    # -- People

    def _attend(self) -> Steps:
        """Approve, reject, answer, launch and cancel."""
        while True:
            yield 2 + 8 * self.chance.random()
            while self.held_until > self.time:
                yield self._when_free()
            for job in [job for job in self.world.jobs if job.state is State.HELD]:
                self._decide(job)
            if len(self.ids) < 3:
                self.launch(self._spec())
            elif self.chance.random() < 0.1:
                self._cancel(self.chance.choice(self.world.missions))
            self.agree()

    def _cancel(self, mission: Mission) -> None:
        self.same(lambda: self.world.cancel(mission), lambda: self.lab.engine.cancel(self.ids[mission]))

    def _decide(self, job: Job) -> None:
        if job.kind == QUESTION:
            self.give_answer(job, "yes")
        elif self.chance.random() < 0.8:
            self.let_run(job, None)
        else:
            self.refuse(job)

    def _spec(self) -> Spec:
        chance = self.chance
        return Spec(
            Limits(max_turns=chance.choice([4, 25]), max_seconds=chance.choice([60.0, 1800.0])),
            each_result=chance.random() < 0.3,
            fails_with_job=chance.random() < 0.3,
        )

    def _reply(self, lease: Lease) -> Reply:
        chance = self.chance
        if chance.random() < 0.3:
            return Reply(chance.choice(["mission_complete", "analysis_result", "malformed", "malformed"]))
        kinds = [chance.choice(["do", "do", "do", "change", TURN]) for _ in range(chance.randint(1, 4))]
        return Reply(
            "jobs",
            tuple(
                Ask(kind, chance.randrange(3), is_step=kind == TURN and chance.random() < 0.5)
                for kind in kinds
            ),
        )

    # -- What must be true

    def _notice(self, process: Process) -> None:
        """Do in the rules what a watchdog has written, and judge whether it was right."""
        until = {row[0]: row[1] for row in self.lab.rows("SELECT id, alive_until FROM runners")}
        if until[process.number] != process.runner.alive_until:
            self.world.beat(process.runner)
            process.renewed = self.time
        assert until[process.number] == process.runner.alive_until
        leasing = {row[0] for row in self.lab.rows("SELECT runner_id FROM jobs WHERE state = 'running'")}
        for other in self.processes:
            if other is not process and other.number not in leasing and self.world.leased(other.runner):
                self._judge(process, other)
                self.world.take_back(other.runner, _started(process, other))
                self.counts["runners judged dead"] += 1
                self.agree()

    def _judge(self, observer: Process, other: Process) -> None:
        """Jobs are taken from the dead, and from runners that were away for as long as leases last."""
        if other.is_dead and other.machine is observer.machine:
            return
        silent = round(self.time - other.renewed, 6)  # the engine counts microseconds
        assert silent >= queue.LEASE_SECONDS, f"taken back {silent:.1f} s after the runner renewed"
        assert other.naps_since(other.renewed, self.time), "taken from a runner that was never away"
        naps = observer.naps_since(other.renewed, self.time)
        watched = round(silent - sum(naps) + LONGEST_GAP * len(naps), 6)
        assert watched >= queue.LEASE_SECONDS, f"taken by a runner that watched for {watched:.1f} s"

    def _the_dead_of_this_machine_are_gone(self, process: Process, since: float) -> None:
        for other in self.processes:
            if other.is_dead and other.machine is process.machine and other.away[-1][0] < since:
                assert not self.world.leased(other.runner), "a runner of this machine died and has jobs"

    def _nobody_dead_has_jobs(self) -> None:
        for process in self.processes:
            assert not process.is_dead or not self.world.leased(process.runner), "a dead runner has jobs"


def _started(observer: Process, other: Process) -> Callable[[Job], bool]:
    """What a runner had started as far as an observer knows: on another machine, perhaps everything."""
    is_far = other.machine is not observer.machine
    return lambda job: is_far or (job, job.attempt) == other.started


def _machine(name: str, lab: Lab, place: Path) -> Machine:
    runtime = place / f"runtime-{name}"
    runtime.mkdir(exist_ok=True)
    return Machine(name, lab, replace(lab.engine.instance, runtime=runtime))


def _die(file: Path, liveness: LivenessFile) -> None:
    """Unlock the file and leave it, as the kernel does."""
    kept = file.with_suffix(".kept")
    os.link(file, kept)
    liveness.remove()
    kept.rename(file)
