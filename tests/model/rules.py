"""The rules of the loop (R4 to R14) in plain Python: what the engine must do too.

No database and no JSON: missions, plans and jobs, and what follows in a mission from a reply or an ended job. What can
be told from the jobs is not kept: the status, which turn is asked, the counters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

from lcp_engine.core.job_states import OPEN, SETTLED, State

SECOND = 1_000_000
TURN = "agent_plan"
QUESTION = "ask_user"
EXECUTED = frozenset({"do", "change", "system", TURN, "write_file"})
HELD_BY_POLICY = frozenset({"change", "system", "write_file", QUESTION, "unknown"})
DENIED = frozenset({"admin"})
"""Kinds by their verdict (R5); `do` and `agent_plan` run without approval, `unknown` has no worker."""
MAX_REFUSED = 3
MAX_CLARIFICATIONS = 5
MAX_VERIFICATIONS = 3
ACCEPT, GIVE_UP = "accept as it is", "give up"
ENDED_BADLY = frozenset({State.FAILED, State.REJECTED, State.SKIPPED, State.CANCELLED})
DONE = frozenset({"mission_complete", "analysis_result", "passed"})
"""Replies that claim success; `passed` is a verification without a fault."""


@dataclass(frozen=True)
class Ask:
    """A job that a reply requests; equal values request the same.

    `whole` is the plan that a step stands in, `place` where it stands there, from 1. `mends`: it is to mend what a
    verification found.
    """

    kind: str
    of: int = 0
    is_step: bool = False
    auto_dispatch: bool | None = None
    whole: tuple[int, ...] = ()
    place: int = 0
    mends: bool = False

    @property
    def key(self) -> Ask:
        return replace(self, auto_dispatch=None)


@dataclass(frozen=True)
class Reply:
    """A planner's reply: an action, with the jobs that it requests.

    Besides those of LCP there are `steps`, one after another, `unclear`, a question to a person, `passed` and `faulty`,
    the two verdicts of a verification.
    """

    action: str
    asks: tuple[Ask, ...] = ()

    @property
    def is_malformed(self) -> bool:
        return self.action == "malformed"


def outcome_of(reply: Reply) -> str:
    """The outcome of a plan that is done."""
    return "mission_complete" if reply.action == "passed" else reply.action


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
    """The parts of a mission file that matter here; `hold_timeout` in seconds.

    `is_checked`: it has acceptance checks on files; `is_verified`: one that the planner answers.
    """

    limits: Limits = Limits()
    each_result: bool = False
    fails_with_job: bool = False
    hold_timeout: float | None = None
    holds_turns: bool = False
    is_universal: bool = False
    is_checked: bool = False
    is_verified: bool = False


class Time(Protocol):
    """What a mission sees of the world: the time, and the number of the next job."""

    now: int
    numbers: Iterator[int]


@dataclass(eq=False, repr=False)
class Runner:
    """`alive_until` is when its leases expire."""

    alive_until: int


@dataclass(eq=False, repr=False)
class Question:
    """A question to the planner: the turn of the mission, and the moment up to which it reports what happened."""

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
    refused: int = 0
    clarifications: int = 0
    verifications: int = 0
    questions: list[Question] = field(default_factory=list)
    words: list[tuple[int, str]] = field(default_factory=list)

    @property
    def jobs(self) -> list[Job]:
        return [job for job in self.mission.jobs if job.plan is self]

    @property
    def is_at_rest(self) -> bool:
        """Whether none of its jobs will run without a decision."""
        return not any(job.state in (State.QUEUED, State.RUNNING, State.BLOCKED) for job in self.jobs)

    @property
    def is_asked(self) -> bool:
        """Whether a turn that it waits for is held until a person submits the reply."""
        return any(job.is_relayed for job in self.jobs)

    @property
    def has_held(self) -> bool:
        return any(job.state is State.HELD for job in self.jobs)

    @property
    def asked(self) -> int:
        """The moment of its newest question."""
        return self.questions[-1].until if self.questions else 0

    @property
    def has_news(self) -> bool:
        """Whether a job was executed, or a person said something, since the planner was last asked."""
        executed = (
            job for job in self.jobs if job.role != "turn" and job.state in (State.SUCCEEDED, State.FAILED)
        )
        return any(job.settled > self.asked for job in executed) or self.has_words_since(self.asked)

    def has_words_since(self, moment: int) -> bool:
        return any(at > moment for at, _ in self.words)

    def reopen(self) -> None:
        self.outcome = None
        self.corrections = self.stalled = self.refused = self.clarifications = self.verifications = 0


@dataclass(eq=False, repr=False)
class Job:
    """`number` counts over all missions. `settled` is a moment of its mission, 0 while it is not.

    `before` is the step that has to succeed first. `claim` is what a plan would end with: of a turn that verifies it,
    and of a question to a person whether it may. `said_no`: a person has rejected it since the mission was last
    resumed; `was_refused`: it is rejected because of a person, who may change their mind.
    """

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
    waits_for_step: bool = False
    before: Job | None = None
    claim: str | None = None
    is_relayed: bool = False
    was_brought: bool = False
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
    said_no: bool = False
    was_refused: bool = False
    answer: str | None = None
    settled: int = 0

    def __repr__(self) -> str:
        return f"<job {self.number}: {self.kind} {self.state}>"

    @property
    def mission(self) -> Mission:
        return self.plan.mission

    @property
    def was_left_held(self) -> bool:
        """Whether it ended while it was held and had not been approved."""
        return self.wants_yes and self.state is not State.FAILED

    @property
    def is_early(self) -> bool:
        """Whether the step before it has not succeeded yet."""
        return self.before is not None and self.before.state is not State.SUCCEEDED

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

    world: Time
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
        return f"<mission of job {self.jobs[0].number}: {self.status}>"

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
    def turns_and_steps(self) -> list[Job]:
        return [job for job in self.jobs if job.role != "work"]

    @property
    def asking(self) -> Job | None:
        """The turn that is being asked: of a planner, or of a person instead."""
        asked = [job for job in self.turns_and_steps if job.state in OPEN or job.is_relayed]
        assert len(asked) < 2
        return asked[0] if asked and not self.has_ended else None

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
        """Change the state of a job; `until` is when it stopped running, if that was before now."""
        was_running, now = self.is_running, self.world.now
        job.state, job.run_after, job.held_until = state, 0, None
        job.waits_for_turn = job.waits_for_step = job.is_relayed = False
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

    def queue_turn(self, plan: Plan, *, corrects: Job | None = None, claim: str | None = None) -> None:
        """Create the next turn of a plan, one that repeats a question, or one that verifies a claim."""
        turn = self.create(
            plan, TURN, "turn", State.QUEUED, plan.depth if corrects is None else corrects.depth
        )
        turn.claim = claim
        if corrects is not None:
            turn.corrects, turn.claim = corrects.question, corrects.claim
        self.advance()

    def advance(self) -> None:
        """Ask the oldest waiting turn once no other one is being asked (R7)."""
        if self.has_ended or self.asking is not None:
            return
        for turn in self.turns_and_steps:
            if turn.waits_for_turn or (turn.waits_for_step and not turn.is_early):
                self.move(turn, State.QUEUED)
                return

    def skip_stranded(self) -> None:
        """Skip the steps after one that did not succeed, one after the other (R12)."""
        for job in self.jobs:
            is_stranded = job.before is not None and job.before.state in ENDED_BADLY
            if is_stranded and job.state in (State.HELD, State.BLOCKED, State.QUEUED):
                self.move(job, State.SKIPPED)

    def _date(self, job: Job) -> None:
        self.moment += job.state in SETTLED
        job.settled = self.moment if job.state in SETTLED else 0

    def _hold(self, job: Job) -> None:
        job.wants_yes = True
        if self.spec.hold_timeout is not None:
            job.held_until = self.world.now + int(self.spec.hold_timeout * SECOND)

    def wait_again(self, step: Job) -> None:
        """A step that was not asked yet is held unless it was approved; then it waits for the one before it."""
        if step.was_left_held:
            self.move(step, State.HELD)
            return
        self.move(step, State.BLOCKED)
        step.waits_for_step = step.is_early
        step.waits_for_turn = not step.is_early

    # -- what follows when a job is settled or held

    def after_settling(self, job: Job) -> None:
        """The next turn of its plan, once nothing of that goes on by itself; or one on each result (R7)."""
        plan = job.plan
        if self.has_ended:
            return
        if job.claim is not None and job.kind == QUESTION and plan.outcome is None and job.answer == ACCEPT:
            self.end_plan(plan, job.claim, succeeded=True)
            return
        if job.claim is not None and job.kind == QUESTION and plan.outcome is None and job.answer == GIVE_UP:
            self.end_plan(plan, "no_progress", succeeded=False)
            return
        if job.state is State.FAILED and self.spec.fails_with_job:  # R10
            self.end("failed", "job_failed")
            return
        if job.role == "step":
            self.skip_stranded()
            self.advance()
        # If the next step is held, an approval continues the plan, not another turn.
        is_followed = any(other.before is job and other.state not in SETTLED for other in self.jobs)
        waits = plan.has_held and is_followed
        is_over = plan.is_at_rest and not plan.is_asked
        if plan.outcome is None and not waits and (self.spec.each_result or is_over):
            self.queue_turn(plan)
        self.advance()

    def after_rejecting(self, job: Job, *, was_relayed: bool) -> None:
        """Queue a turn with the reasons when the last held job of a plan is rejected (R7).

        A turn to which nobody brings a reply ends its plan, like one whose planner gives none.
        """
        plan = job.plan
        if was_relayed:
            self.end_plan(job.acting, "job_failed", succeeded=False)
            if job.role == "step":
                self.after_settling(job)
            self.advance()
            return
        if job.role == "step" and not self.has_ended:
            self.skip_stranded()
        if not self.has_ended and plan.outcome is None and plan.is_at_rest and not plan.has_held:
            self.queue_turn(plan)

    def after_holding(self, plan: Plan) -> None:
        """Ask a plan that stops at held jobs again if anything else happened since its last question."""
        is_over = self.has_ended or plan.outcome is not None
        if not is_over and plan.is_at_rest and not plan.is_asked and (plan.has_news or not plan.has_held):
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
        """The end of the root plan ends the mission; the end of a step's plan ends the step (R12)."""
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
        """The plan and those begun in it."""
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
        self.skip_stranded()
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
        """The first limit that is used up; a correction or a repeated turn is not counted again (R6)."""
        limits, now = self.spec.limits, self.world.now
        if self.turns - is_counted >= limits.max_turns:
            return "max_turns"
        ran = self.ran + (max(0, now - self.since) if self.is_running else 0)
        return "max_seconds" if ran / SECOND >= limits.max_seconds else None

    def ask(self, turn: Job) -> Question | None:
        """The question of a turn: new, or that of an earlier attempt (R21); None if none is needed."""
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
        # A verification gets everything that was done.
        after = 0 if self.spec.each_result or turn.claim is not None else plan.asked
        after = after if turn.corrects is None else turn.corrects.after
        turn.question = Question(self.turns, after, self.moment, limit)
        plan.questions.append(turn.question)
        return turn.question

    def results(self, turn: Job) -> list[Job]:
        """The results in the question: the plan's jobs that were settled since the last one, in that order (R7)."""
        asked = turn.question
        assert asked is not None
        told = [
            job for job in turn.acting.jobs if job.role != "turn" and asked.after < job.settled <= asked.until
        ]
        return sorted(told, key=lambda job: job.settled)

    def words(self, turn: Job) -> list[str]:
        """What people said to the plan since its last turn; a turn's corrections get the same (R14)."""
        asked, plan = turn.question, turn.acting
        assert asked is not None
        after = max((other.until for other in plan.questions if other.turn < asked.turn), default=0)
        return [text for at, text in plan.words if after < at <= asked.until]

    def drop(self, turn: Job) -> None:
        """A turn of a plan that has ended settles nothing, but the plan it belongs to may continue (R7)."""
        self.move(turn, State.CANCELLED)
        if turn.role == "step":
            self.after_settling(turn)
        self.advance()

    def conclude(self, turn: Job, reply: Reply, *, is_unmet: bool) -> None:
        """Decide on a reply and apply the decision. `is_unmet`: a check on a file does not pass."""
        plan = turn.acting
        if self.has_ended or plan.outcome is not None:
            self.drop(turn)
            return
        is_unmet = is_unmet and plan.owner is None
        if reply.is_malformed or (turn.claim is not None and self._is_no_verdict(reply)):
            self._correct(turn, is_last_read=False)
        elif turn.claim is not None and (is_unmet or reply.action not in DONE):
            self._refuse(turn, turn.claim)
        elif turn.claim is not None:
            self._finish(turn, turn.claim)
        elif reply.action == "error":
            self._end_turn(turn, "error", succeeded=False)
        elif self._is_last(turn) and reply.action not in DONE:
            self._end_on_limit(turn)
        elif reply.asks:
            self._take_jobs(turn, reply)
        else:
            self._claim(turn, outcome_of(reply), is_unmet=is_unmet)
        self.advance()

    def _is_no_verdict(self, reply: Reply) -> bool:
        """In a dialect with replies for a verdict, only those count (R9)."""
        return self.spec.is_universal and reply.action in ("mission_complete", "analysis_result")

    @staticmethod
    def _is_last(turn: Job) -> bool:
        assert turn.question is not None
        return turn.question.last_turn is not None

    def _correct(self, turn: Job, *, is_last_read: bool) -> None:
        """Ask the same question once more (R4). `is_last_read`: if that exceeds the limit, the reply has been read."""
        plan = turn.acting
        if self._is_last(turn):
            self._end_on_limit(turn, can_be_read=is_last_read)
        elif plan.corrections >= self.spec.limits.max_corrections:
            self._end_turn(turn, "invalid_reply", succeeded=False, can_be_read=is_last_read)
        else:
            self._go_on(turn, can_be_read=False)
            plan.corrections += 1
            self.queue_turn(plan, corrects=turn)

    def _claim(self, turn: Job, outcome: str, *, is_unmet: bool) -> None:
        """The planner claims to be done, which counts if the acceptance checks pass (R9)."""
        is_verified = self.spec.is_verified and turn.acting.owner is None
        if is_unmet:
            self._refuse(turn, outcome)
        elif not is_verified:
            self._finish(turn, outcome)
        elif self._is_last(turn):
            self._end_on_limit(turn)
        else:
            self._go_on(turn)
            self.queue_turn(turn.acting, claim=outcome)

    def _finish(self, turn: Job, outcome: str) -> None:
        """End the plan, unless a person said something that was not in this turn's question (R14)."""
        plan, asked = turn.acting, turn.question
        assert asked is not None
        if plan.has_words_since(asked.until) and asked.last_turn is None:
            self._go_on(turn)
            self.queue_turn(plan)
        else:
            self._end_turn(turn, outcome, succeeded=True)

    def _refuse(self, turn: Job, outcome: str) -> None:
        """The planner gets the failed checks, three times at most, then a person is asked (R9)."""
        plan = turn.acting
        if self._is_last(turn):
            self._end_on_limit(turn)
        elif plan.refused < MAX_REFUSED:
            self._go_on(turn)
            plan.refused += 1
            self.queue_turn(plan)
        else:
            self._ask_person(turn, outcome)

    def _ask_person(self, turn: Job, claim: str | None) -> None:
        """A question by the engine itself; after any answer the planner's failures are counted from zero."""
        plan = turn.acting
        self._go_on(turn)
        plan.refused = plan.verifications = 0
        question = self.create(plan, QUESTION, "work", State.HELD, plan.depth)
        question.claim = claim

    def _end_on_limit(self, turn: Job, *, can_be_read: bool = True) -> None:
        assert turn.question is not None
        self._end_turn(turn, f"limit:{turn.question.last_turn}", succeeded=False, can_be_read=can_be_read)

    def _take_jobs(self, turn: Job, reply: Reply) -> None:
        plan, asks, limits = turn.acting, reply.asks, self.spec.limits
        is_refused = len(asks) > limits.max_followups and limits.overflow == "refuse"
        if reply.action == "unclear" and plan.clarifications >= MAX_CLARIFICATIONS:
            self._end_turn(turn, "error", succeeded=False)
        elif reply.action == "faulty" and plan.verifications >= MAX_VERIFICATIONS:
            self._ask_person(turn, None)
        elif is_refused and reply.action != "steps":
            self._correct(turn, is_last_read=True)
        else:
            self._place_jobs(turn, reply)

    def _place_jobs(self, turn: Job, reply: Reply) -> None:
        plan, asks = turn.acting, reply.asks
        is_nothing_new = all(self._was_requested(ask) for ask in asks)  # R11
        placed = self._place(turn, asks, in_order=reply.action == "steps")
        stored = len(asks) if reply.action == "steps" else len({ask.key for ask in asks})
        all_rejected = len(placed) == stored and all(state is State.REJECTED for _, state in placed)
        stalled = plan.stalled + 1 if is_nothing_new or all_rejected else 0
        if stalled >= self.spec.limits.max_stalled:
            self._end_turn(turn, "no_progress", succeeded=False)
            return
        self._go_on(turn)
        plan.stalled = stalled
        plan.clarifications += reply.action == "unclear"
        plan.verifications += reply.action == "faulty" and bool(placed)
        before: Job | None = None
        for ask, state in placed:
            job = self._store(turn, ask, state)
            if reply.action == "steps" and before is not None and state is not State.REJECTED:
                job.before = before
                job.waits_for_step = state is State.BLOCKED
            before = job
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

    def _place(self, turn: Job, asks: tuple[Ask, ...], *, in_order: bool) -> list[tuple[Ask, State]]:
        """The state of each requested job, within the caps (R5, R6); one equal to a held one is not stored, nor one
        that is equal to an earlier one of the reply (R11).

        In order: each waits for the one before it, and behind one that is refused or not stored none follows (R12).
        """
        limits, left = self.spec.limits, self.spec.limits.max_jobs - self.requested
        placed: list[tuple[Ask, State]] = []
        held = {job.ask.key for job in self.jobs if job.ask is not None and job.state is State.HELD}
        for index, ask in enumerate(asks):
            equal = [other for other in asks if other.key == ask.key]
            if not in_order and ask.key in {other.key for other in asks[:index]}:
                continue
            is_for_review = any(one.auto_dispatch is False for one in ([ask] if in_order else equal))
            is_surplus = index >= limits.max_followups and not in_order
            is_held = self._holds(ask) or is_for_review or is_surplus
            before = placed[-1][1] if in_order and placed else None
            is_too_deep = turn.depth + (ask.kind == TURN) > limits.max_depth
            if ask.kind in DENIED or self._was_decided(ask):
                state = State.REJECTED
            elif ask.key in held and in_order:
                break
            elif ask.key in held:
                continue
            elif before is State.REJECTED or left < 1 or is_too_deep:
                state = State.REJECTED
            else:
                goes_on = State.QUEUED if before is None else State.BLOCKED
                state, left = State.HELD if is_held else goes_on, left - 1
            if state is State.HELD:
                held.add(ask.key)
            placed.append((ask, state))
        return placed

    def _holds(self, ask: Ask) -> bool:
        return ask.kind in HELD_BY_POLICY or (ask.kind == TURN and self.spec.holds_turns)

    def _was_declined(self, ask: Ask) -> bool:
        """Whether a person said no to the same: nobody is asked twice (R5)."""
        return any(
            job.said_no and job.state is State.REJECTED and job.ask is not None and job.ask.key == ask.key
            for job in self.jobs
        )

    def _was_decided(self, ask: Ask) -> bool:
        """Whether a person said no to the same, or answered it and no file has changed since (R5, R11)."""
        is_answered = ask.kind == QUESTION and any(
            job.state is State.SUCCEEDED and job.settled >= self.changed
            for job in self.jobs
            if job.ask is not None and job.ask.key == ask.key
        )
        return is_answered or self._was_declined(ask)

    def _was_requested(self, ask: Ask) -> bool:
        """Whether the same was requested before, with no change to a file since, or declined by a person (R11)."""
        if self._was_declined(ask):
            return True
        equal = [job for job in self.jobs if job.ask is not None and job.ask.key == ask.key]
        known = (State.SUCCEEDED, State.FAILED, State.REJECTED)
        return any(
            job.state is State.HELD or (job.state in known and job.settled >= self.changed) for job in equal
        )

    def _store(self, turn: Job, ask: Ask, state: State) -> Job:
        role = "work" if ask.kind != TURN else "step" if ask.is_step else "turn"
        job = self.create(turn.acting, ask.kind, role, state, turn.depth + (ask.kind == TURN))
        job.was_refused = state is State.REJECTED and ask.kind not in DENIED and self._was_decided(ask)
        job.ask, job.of, job.most_failures = ask, ask.of, 1 if ask.kind == "unknown" else 3
        self.requested += state is not State.REJECTED
        return job
