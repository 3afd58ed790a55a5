"""The rules of queue and loop (R4 to R19) in plain Python: what the real ones have to come to.

No database and no JSON: a world of missions, plans and jobs, and what each thing that can happen does to it. What can
be told from the jobs is not kept: the status, which turn is asked, the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from lcp_engine.jobs import OPEN, SETTLED, State

SECOND = 1_000_000
LEASE = 10 * SECOND
MAX_DEATHS = 5
TURN = "agent_plan"
QUESTION = "ask_user"
EXECUTED = frozenset({"do", "change", "system", TURN, "write_file"})
HELD_BY_POLICY = frozenset({"change", "system", "write_file", QUESTION, "unknown"})
DENIED = frozenset({"admin"})
"""Kinds by what becomes of them (R5); `do` and `agent_plan` run by themselves, `unknown` has no worker."""


class RefusedError(Exception):
    """What a person asks for is not possible; `code` says why."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Ask:
    """A job that a reply asks for; equal ones ask for the same."""

    kind: str
    of: int = 0
    is_step: bool = False
    auto_dispatch: bool | None = None

    @property
    def key(self) -> Ask:
        return replace(self, auto_dispatch=None)


@dataclass(frozen=True)
class Reply:
    """What a planner answers: an action, with the jobs that it asks for."""

    action: str
    asks: tuple[Ask, ...] = ()

    @property
    def is_malformed(self) -> bool:
        return self.action == "malformed"


@dataclass(frozen=True)
class Limits:
    max_turns: int = 25
    max_seconds: float = 1800
    max_jobs: int = 100
    max_depth: int = 5
    max_followups: int = 5
    overflow: str = "refuse"
    max_corrections: int = 2
    max_stalled: int = 3


@dataclass(frozen=True)
class Spec:
    """What of a mission's file matters here; `hold_timeout` in seconds."""

    limits: Limits = Limits()
    each_result: bool = False
    fails_with_job: bool = False
    hold_timeout: float | None = None


@dataclass(eq=False, repr=False)
class Runner:
    """`alive_until` is when its leases run out."""

    alive_until: int


@dataclass(eq=False, repr=False)
class Question:
    """A question to the planner: in which turn of the mission, and up to which moment it tells of what happened."""

    turn: int
    after: int
    until: int
    last_turn: str | None
    reply: Reply | None = None


@dataclass(eq=False, repr=False)
class Plan:
    """A first turn and all its continuations (R12); `owner` is the step that began it, None for the mission's own."""

    mission: Mission
    owner: Job | None
    depth: int
    outcome: str | None = None
    corrections: int = 0
    stalled: int = 0
    questions: list[Question] = field(default_factory=list)
    words: list[tuple[int, str]] = field(default_factory=list)

    @property
    def jobs(self) -> list[Job]:
        return [job for job in self.mission.jobs if job.plan is self]

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing of it goes on by itself."""
        return not any(job.state in (State.QUEUED, State.RUNNING, State.BLOCKED) for job in self.jobs)

    @property
    def has_held(self) -> bool:
        return any(job.state is State.HELD for job in self.jobs)

    @property
    def asked(self) -> int:
        """The moment of its newest question."""
        return self.questions[-1].until if self.questions else 0

    @property
    def has_news(self) -> bool:
        """Whether the planner has not heard yet of a job that was executed, or of what a person said."""
        executed = (
            job for job in self.jobs if job.role != "turn" and job.state in (State.SUCCEEDED, State.FAILED)
        )
        return any(job.settled > self.asked for job in executed) or self.has_words_since(self.asked)

    def has_words_since(self, moment: int) -> bool:
        return any(at > moment for at, _ in self.words)

    def reopen(self) -> None:
        self.outcome, self.corrections, self.stalled = None, 0, 0


@dataclass(eq=False, repr=False)
class Job:
    """`number` counts over all missions. `settled` is a moment of its mission, 0 while it is not."""

    number: int
    plan: Plan
    kind: str
    role: str
    depth: int
    state: State
    ask: Ask | None = None
    corrects: Question | None = None
    most_failures: int = 3
    waits_for_turn: bool = False
    begun: Plan | None = None
    question: Question | None = None
    attempt: int = 0
    failures: int = 0
    deaths: int = 0
    runner: Runner | None = None
    run_after: int = 0
    held_until: int | None = None
    approved: bool = False
    of: int = 0
    wants_yes: bool = False
    was_decided: bool = False
    answer: str | None = None
    settled: int = 0

    def __repr__(self) -> str:
        return f"<job {self.number}: {self.kind} {self.state}>"

    @property
    def mission(self) -> Mission:
        return self.plan.mission

    @property
    def acting(self) -> Plan:
        """The plan that a turn speaks for: a step's own, else the one it belongs to."""
        if self.role == "step" and self.begun is None:
            self.begun = Plan(self.mission, self, self.depth)
            self.mission.plans.append(self.begun)
        return self.begun or self.plan


@dataclass(eq=False, repr=False)
class Mission:
    """`moment` counts what was settled and said: the order of its history. Times are in microseconds."""

    world: World
    spec: Spec
    jobs: list[Job] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    ended_as: str | None = None
    outcome: str | None = None
    turns: int = 0
    questions: int = 0
    requested: int = 0
    moment: int = 0
    changed: int = 0
    ran: int = 0
    since: int = 0

    def __repr__(self) -> str:
        return f"<mission {self.world.missions.index(self) + 1}: {self.status}>"

    def __post_init__(self) -> None:
        self.plans.append(Plan(self, None, 0))
        self.queue_turn(self.root)

    # -- what it is

    @property
    def root(self) -> Plan:
        return self.plans[0]

    @property
    def has_ended(self) -> bool:
        return self.ended_as is not None

    @property
    def goes_on(self) -> bool:
        return any(job.state in OPEN for job in self.jobs)

    @property
    def is_running(self) -> bool:
        return any(job.state is State.RUNNING for job in self.jobs)

    @property
    def status(self) -> str:
        """Waiting: nothing is queued or running anywhere, and something is held (R7)."""
        if self.ended_as is not None:
            return self.ended_as
        return (
            "waiting" if not self.goes_on and any(job.state is State.HELD for job in self.jobs) else "running"
        )

    # -- jobs

    def move(self, job: Job, state: State, until: int | None = None) -> None:
        """A job changes its state; `until` is when it stopped running, where that was before now."""
        was_running, now = self.is_running, self.world.now
        job.state, job.run_after, job.held_until, job.waits_for_turn = state, 0, None, False
        if self.is_running and not was_running:
            self.since = now
        if was_running and not self.is_running:
            self.ran += max(0, min(now if until is None else until, now) - self.since)
        if state is State.HELD:
            self._hold(job)
        self._date(job)

    def create(self, plan: Plan, kind: str, role: str, state: State, depth: int) -> Job:
        job = Job(next(self.world.numbers), plan, kind, role, depth, state)
        self.jobs.append(job)
        if state is State.HELD:
            self._hold(job)
        self._date(job)
        # Turns are asked one at a time, in the order of job ids (R7): each waits until `advance` lets it.
        if role != "work" and state is State.QUEUED:
            job.state, job.waits_for_turn = State.BLOCKED, True
        return job

    def queue_turn(self, plan: Plan, corrects: Job | None = None) -> None:
        turn = self.create(
            plan, TURN, "turn", State.QUEUED, plan.depth if corrects is None else corrects.depth
        )
        turn.corrects = None if corrects is None else corrects.question
        self.advance()

    def advance(self) -> None:
        """Ask the oldest turn that waits for that, once no other one is asked (R7)."""
        turns = [job for job in self.jobs if job.role != "work"]
        if self.has_ended or any(turn.state in OPEN for turn in turns):
            return
        for turn in turns:
            if turn.waits_for_turn:
                self.move(turn, State.QUEUED)
                return

    def _date(self, job: Job) -> None:
        self.moment += job.state in SETTLED
        job.settled = self.moment if job.state in SETTLED else 0

    def _hold(self, job: Job) -> None:
        job.wants_yes = True
        if self.spec.hold_timeout is not None:
            job.held_until = self.world.now + int(self.spec.hold_timeout * SECOND)

    # -- what follows when a job is settled or held

    def after_settling(self, job: Job) -> None:
        """The next turn of its plan, once nothing of that goes on by itself; or one on each result (R7)."""
        plan = job.plan
        if self.has_ended:
            return
        if job.state is State.FAILED and self.spec.fails_with_job:  # R10
            self.end("failed", "job_failed")
        elif plan.outcome is None and (self.spec.each_result or plan.is_at_rest):
            self.queue_turn(plan)
        self.advance()

    def after_rejecting(self, job: Job) -> None:
        """When the last held job of a plan is rejected, a turn is queued with the reasons (R7)."""
        plan = job.plan
        if not self.has_ended and plan.outcome is None and plan.is_at_rest and not plan.has_held:
            self.queue_turn(plan)

    def after_holding(self, plan: Plan) -> None:
        """A plan that stops at held jobs is asked again where the planner has not heard what else happened."""
        is_over = self.has_ended or plan.outcome is not None
        if not is_over and plan.is_at_rest and (plan.has_news or not plan.has_held):
            self.queue_turn(plan)

    # -- ends

    def end(self, status: str, outcome: str) -> None:
        """Queued work completes, held work can still be approved, no turn follows (R8)."""
        self.close(status, outcome)
        self._settle(State.SKIPPED, lambda job: job.role != "work" and job.state is not State.RUNNING)

    def close(self, status: str, outcome: str) -> None:
        self.ended_as, self.outcome = status, outcome
        self._end_plans(self.plans)

    def end_plan(self, plan: Plan, outcome: str, *, succeeded: bool) -> None:
        """The end of the root plan is the mission's; that of a step's plan is the step's (R12)."""
        if plan.owner is None:
            self.end("completed" if succeeded else "failed", outcome)
            return
        over = self.within(plan)
        self._end_plans(over)
        self._settle(
            State.SKIPPED,
            lambda job: job.plan in over and job.role != "work" and job.state is not State.RUNNING,
        )
        if plan.owner.state is State.BLOCKED:
            self.move(plan.owner, State.SUCCEEDED if succeeded else State.FAILED)
            self.after_settling(plan.owner)
        self.advance()

    def within(self, plan: Plan) -> list[Plan]:
        """The plan, and those that were begun in it."""
        begun = [other for other in self.plans if other.owner is not None and other.owner.plan is plan]
        return [plan, *(inner for other in begun for inner in self.within(other))]

    def cancel_sub_plans(self) -> None:
        """A limit is reached: sub-plans are cancelled, the root plan gets the last turn (R6)."""
        over = [plan for plan in self.plans if plan.owner is not None and plan.outcome is None]
        self._end_plans(over)
        owners = [plan.owner for plan in over]
        self._settle(
            State.CANCELLED,
            lambda job: (
                (job.plan in over or job in owners) and (job.role != "work" or job.state is not State.RUNNING)
            ),
        )
        if self.root.is_at_rest:
            self.queue_turn(self.root)
        self.advance()

    def _end_plans(self, plans: Iterable[Plan]) -> None:
        for plan in plans:
            plan.outcome = plan.outcome or "over"

    def _settle(self, state: State, chosen: Callable[[Job], bool]) -> None:
        for job in self.jobs:
            if job.state not in SETTLED and chosen(job):
                self.move(job, state)

    # -- turns

    def limit_reached(self, *, is_counted: bool) -> str | None:
        """The first cap that is used up; a corrective turn, or one asked again, counts no second time (R6)."""
        limits, now = self.spec.limits, self.world.now
        if self.turns - is_counted >= limits.max_turns:
            return "max_turns"
        ran = self.ran + (max(0, now - self.since) if self.is_running else 0)
        return "max_seconds" if ran / SECOND >= limits.max_seconds else None

    def ask(self, turn: Job) -> Question | None:
        """The question of a turn: new, or that of an earlier attempt (R21); None where none is needed."""
        plan = turn.acting
        if self.has_ended or plan.outcome is not None:
            self.drop(turn)
            return None
        again = turn.question
        if again is not None and (again.reply is not None or again.last_turn is not None):
            return again
        limit = self.limit_reached(is_counted=turn.corrects is not None or again is not None)
        if limit is not None and plan.owner is not None:
            self.move(turn, State.CANCELLED)
            self.cancel_sub_plans()
            return None
        if limit is not None:
            self.cancel_sub_plans()
        if again is not None:
            again.last_turn = limit
            return again
        self.questions += 1
        self.turns += turn.corrects is None
        after = 0 if self.spec.each_result else plan.asked
        after = after if turn.corrects is None else turn.corrects.after
        turn.question = Question(self.turns, after, self.moment, limit)
        plan.questions.append(turn.question)
        return turn.question

    def results(self, turn: Job) -> list[Job]:
        """What the question tells of: the plan's jobs that were settled since the last one, in that order (R7)."""
        asked = turn.question
        assert asked is not None
        told = [
            job for job in turn.acting.jobs if job.role != "turn" and asked.after < job.settled <= asked.until
        ]
        return sorted(told, key=lambda job: job.settled)

    def words(self, turn: Job) -> list[str]:
        """What people said to the plan since its last turn; a turn's corrections hear the same (R14)."""
        asked, plan = turn.question, turn.acting
        assert asked is not None
        after = max((other.until for other in plan.questions if other.turn < asked.turn), default=0)
        return [text for at, text in plan.words if after < at <= asked.until]

    def drop(self, turn: Job) -> None:
        """A turn of a plan that has ended settles nothing, but the plan it belongs to may go on without it (R7)."""
        self.move(turn, State.CANCELLED)
        if turn.role == "step":
            self.after_settling(turn)
        self.advance()

    def conclude(self, turn: Job, reply: Reply) -> None:
        """Decide on a reply, and do what follows (the table of DESIGN)."""
        plan, asked, limits = turn.acting, turn.question, self.spec.limits
        if self.has_ended or plan.outcome is not None:
            self.drop(turn)
            return
        assert asked is not None
        is_refused = len(reply.asks) > limits.max_followups and limits.overflow == "refuse"
        if reply.action == "error":
            self._end_turn(turn, "error", succeeded=False)
        elif asked.last_turn is not None and reply.action not in ("mission_complete", "analysis_result"):
            self._end_turn(
                turn, f"limit:{asked.last_turn}", succeeded=False, can_be_read=not reply.is_malformed
            )
        elif reply.is_malformed or is_refused:
            if plan.corrections >= limits.max_corrections:
                self._end_turn(turn, "invalid_reply", succeeded=False, can_be_read=not reply.is_malformed)
            else:
                self._go_on(turn, can_be_read=False)
                plan.corrections += 1
                self.queue_turn(plan, corrects=turn)
        elif not reply.asks and plan.has_words_since(asked.until) and asked.last_turn is None:
            self._go_on(turn)
            self.queue_turn(plan)
        elif not reply.asks:
            self._end_turn(turn, reply.action, succeeded=True)
        else:
            self._take_jobs(turn, reply.asks)
        self.advance()

    def _take_jobs(self, turn: Job, asks: tuple[Ask, ...]) -> None:
        plan = turn.acting
        is_nothing_new = all(self._was_requested(ask) for ask in asks)  # R11
        placed = self._place(turn, asks)
        all_rejected = len(placed) == len(asks) and all(state is State.REJECTED for _, state in placed)
        stalled = plan.stalled + 1 if is_nothing_new or all_rejected else 0
        if stalled >= self.spec.limits.max_stalled:
            self._end_turn(turn, "no_progress", succeeded=False)
            return
        self._go_on(turn)
        plan.stalled = stalled
        for ask, state in placed:
            self._store(turn, ask, state)
        if all_rejected:
            self.queue_turn(plan)
        elif not any(state is State.QUEUED for _, state in placed):
            self.after_holding(plan)

    def _go_on(self, turn: Job, *, can_be_read: bool = True) -> None:
        """Settle a turn whose plan goes on; a step is blocked until the plan that it began has ended (R12)."""
        plan = turn.acting
        if can_be_read:
            plan.corrections = 0
        if turn.role == "step":
            self.move(turn, State.BLOCKED)
        else:
            self.move(turn, State.SUCCEEDED if can_be_read else State.FAILED)

    def _end_turn(self, turn: Job, outcome: str, *, succeeded: bool, can_be_read: bool = True) -> None:
        plan = turn.acting
        plan.corrections = 0
        is_well = succeeded if turn.role == "step" else can_be_read
        self.move(turn, State.SUCCEEDED if is_well else State.FAILED)
        self.end_plan(plan, outcome, succeeded=succeeded)
        if turn.role == "step":
            self.after_settling(turn)

    # -- gates

    def _place(self, turn: Job, asks: tuple[Ask, ...]) -> list[tuple[Ask, State]]:
        """The state of each requested job, within the caps (R5, R6); one equal to a held one is not stored (R11)."""
        limits, left = self.spec.limits, self.spec.limits.max_jobs - self.requested
        placed: list[tuple[Ask, State]] = []
        held = {job.ask.key for job in self.jobs if job.ask is not None and job.state is State.HELD}
        for index, ask in enumerate(asks):
            is_held = (
                ask.kind in HELD_BY_POLICY or ask.auto_dispatch is False or index >= limits.max_followups
            )
            if ask.kind in DENIED:
                state = State.REJECTED
            elif ask.key in held:
                continue
            elif left < 1 or turn.depth + (ask.kind == TURN) > limits.max_depth:
                state = State.REJECTED
            else:
                state, left = State.HELD if is_held else State.QUEUED, left - 1
            if state is State.HELD:
                held.add(ask.key)
            placed.append((ask, state))
        return placed

    def _was_requested(self, ask: Ask) -> bool:
        """Whether the same was asked for before, with no change to a file since (R11)."""
        equal = [job for job in self.jobs if job.ask is not None and job.ask.key == ask.key]
        known = (State.SUCCEEDED, State.FAILED, State.REJECTED)
        return any(
            job.state is State.HELD or (job.state in known and job.settled >= self.changed) for job in equal
        )

    def _store(self, turn: Job, ask: Ask, state: State) -> None:
        role = "work" if ask.kind != TURN else "step" if ask.is_step else "turn"
        job = self.create(turn.acting, ask.kind, role, state, turn.depth + (ask.kind == TURN))
        job.ask, job.of, job.most_failures = ask, ask.of, 1 if ask.kind == "unknown" else 3
        self.requested += state is not State.REJECTED


@dataclass(eq=False, repr=False)
class World:
    """Everything there is, and what can happen to it. What raises `RefusedError` changes nothing."""

    now: int
    missions: list[Mission] = field(default_factory=list)
    numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def jobs(self) -> list[Job]:
        return sorted((job for mission in self.missions for job in mission.jobs), key=lambda job: job.number)

    def launch(self, spec: Spec) -> Mission:
        mission = Mission(self, spec)
        self.missions.append(mission)
        return mission

    # -- runners: leases and fences, R17

    def claim(self, runner: Runner, most: int) -> list[Job]:
        """Turns first, then the oldest; each claim raises `attempt`, which is the fence."""
        queued = (job for job in self.jobs if job.state is State.QUEUED and job.kind in EXECUTED)
        ready = [job for job in queued if job.run_after <= self.now]
        for job in ready:
            job.run_after = 0
        claimed = sorted(ready, key=lambda job: (job.kind != TURN, job.number))
        for job in claimed[:most]:
            job.mission.move(job, State.RUNNING)
            job.attempt, job.runner = job.attempt + 1, runner
        self.beat(runner)
        return claimed[:most]

    def beat(self, runner: Runner) -> None:
        runner.alive_until = self.now + LEASE

    @staticmethod
    def holds(job: Job, attempt: int) -> bool:
        """Whether an attempt still has its lease: else nothing of it counts."""
        return job.state is State.RUNNING and job.attempt == attempt

    @staticmethod
    def release(job: Job) -> None:
        job.mission.move(job, State.QUEUED)

    def take_back(self, runner: Runner, started: Callable[[Job], bool]) -> None:
        """A runner died: its jobs are queued again, and only what it had started is charged with a death."""
        for job in self.leased(runner):
            job.deaths += started(job)
            if job.deaths >= MAX_DEATHS:
                self._give_up(job)
            else:
                job.mission.move(job, State.QUEUED, until=runner.alive_until)

    def leased(self, runner: Runner) -> list[Job]:
        return [job for job in self.jobs if job.state is State.RUNNING and job.runner is runner]

    # -- what an attempt comes to: R10 and R19

    @staticmethod
    def succeed(job: Job, *, has_written: bool) -> None:
        mission = job.mission
        mission.move(job, State.SUCCEEDED)
        if has_written:
            mission.changed = mission.moment
        mission.after_settling(job)

    @staticmethod
    def hold(job: Job) -> None:
        job.mission.move(job, State.HELD)
        job.mission.after_holding(job.plan)

    def fail(self, job: Job, *, is_final: bool) -> None:
        """Errors that would come again are not retried; the others back off, twice as long each time."""
        job.failures += 1
        if is_final or job.failures >= job.most_failures:
            self._give_up(job)
            return
        job.mission.move(job, State.QUEUED)
        job.run_after = self.now + SECOND * 2 ** (job.failures - 1)

    @staticmethod
    def _give_up(job: Job) -> None:
        """A failed job is a result like any other; a turn without a reply ends its plan."""
        mission = job.mission
        mission.move(job, State.FAILED)
        if job.role != "work" and not mission.has_ended:
            mission.end_plan(job.acting, "job_failed", succeeded=False)
        if job.role != "turn":
            mission.after_settling(job)
        mission.advance()

    # -- people: R5, R13 and R14

    @staticmethod
    def approve(job: Job, revised: int | None) -> bool:
        """Let a held job run, perhaps with other params; turns wait for their turn."""
        is_same = revised in (None, job.of)
        if job.state is not State.HELD:
            if job.approved and job.state is not State.REJECTED and is_same:
                return False
            raise RefusedError("CONFLICT" if job.was_decided else "WRONG_STATE")
        if job.kind == "unknown":
            raise RefusedError("NO_WORKER")
        if job.kind == QUESTION:
            raise RefusedError("INVALID_ARGUMENT")
        job.approved = job.was_decided = True
        job.wants_yes, job.of = False, job.of if revised is None else revised
        job.mission.move(job, State.QUEUED if job.role == "work" else State.BLOCKED)
        job.waits_for_turn = job.role != "work"
        job.mission.advance()
        return True

    @staticmethod
    def reject(job: Job) -> bool:
        if job.state is State.REJECTED:
            return False
        if job.state is not State.HELD:
            raise RefusedError("CONFLICT" if job.was_decided else "WRONG_STATE")
        job.was_decided = True
        job.mission.move(job, State.REJECTED)
        job.mission.after_rejecting(job)
        return True

    def expire(self) -> None:
        """Held jobs that nobody decided on in time are rejected."""
        for job in self.jobs:
            if job.held_until is not None and job.held_until <= self.now:
                self.reject(job)

    @staticmethod
    def answer(job: Job, text: str) -> bool:
        if job.kind != QUESTION:
            raise RefusedError("INVALID_ARGUMENT")
        if job.state is not State.HELD:
            if job.answer == text:
                return False
            raise RefusedError("WRONG_STATE")
        job.answer, job.was_decided = text, True
        job.mission.move(job, State.SUCCEEDED)
        job.mission.after_settling(job)
        return True

    @staticmethod
    def say(mission: Mission, text: str, about: Job | None) -> None:
        """The planner hears it in a new turn, where none would come by itself; nothing is approved or rejected."""
        if mission.has_ended:
            raise RefusedError("WRONG_STATE")
        plan = mission.root if about is None or about.plan.outcome is not None else about.plan
        mission.moment += 1
        plan.words.append((mission.moment, text))
        if plan.is_at_rest or not mission.goes_on:
            mission.queue_turn(plan)
        mission.advance()

    @staticmethod
    def cancel(mission: Mission) -> bool:
        """Nothing of it runs any more; a mission that has ended keeps its outcome."""
        left = [job for job in mission.jobs if job.state not in SETTLED]
        if mission.has_ended and not left:
            if mission.ended_as == "cancelled":
                return False
            raise RefusedError("WRONG_STATE")
        if not mission.has_ended:
            mission.close("cancelled", "cancelled")
        for job in left:
            mission.move(job, State.CANCELLED)
        return True

    @staticmethod
    def undo(mission: Mission) -> None:
        """Not while jobs go on; these jobs change no file that could be taken back."""
        if mission.goes_on:
            raise RefusedError("WRONG_STATE")

    @staticmethod
    def resume(mission: Mission, limits: Limits) -> None:
        if not mission.has_ended:
            raise RefusedError("WRONG_STATE")
        mission.spec = replace(mission.spec, limits=limits)
        mission.ended_as = mission.outcome = None
        mission.root.reopen()
        if mission.root.is_at_rest:
            mission.queue_turn(mission.root)
        mission.advance()

    @staticmethod
    def retry(job: Job) -> None:
        """What was held and never approved is held again; a step goes on where it stopped."""
        mission = job.mission
        if job.role == "turn" or job.state not in (State.FAILED, State.CANCELLED, State.SKIPPED):
            raise RefusedError("WRONG_STATE")
        if job.kind == "unknown":
            raise RefusedError("NO_WORKER")
        if job.role == "step" and (mission.has_ended or job.plan.outcome is not None):
            raise RefusedError("WRONG_STATE")
        is_held = job.wants_yes and job.state is not State.FAILED and job.begun is None
        job.failures = job.deaths = 0
        job.was_decided = True
        if is_held:
            mission.move(job, State.HELD)
        elif job.role == "work":
            mission.move(job, State.QUEUED)
        else:
            mission.move(job, State.BLOCKED)
            job.waits_for_turn = job.begun is None
            if job.begun is not None:
                job.begun.reopen()
                mission.queue_turn(job.begun)
        mission.advance()
