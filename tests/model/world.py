"""Everything that can happen to missions, in plain Python: runners claim, end and die, people steer (R5 to R19)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from tests.model.rules import EXECUTED, QUESTION, SECOND, TURN, Job, Limits, Mission, Reply, Runner, Spec

from lcp_engine.core.job_states import SETTLED, State

LEASE = 10 * SECOND
MAX_DEATHS = 5


class RefusedError(Exception):
    """A request of a person is not possible; `code` is the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(eq=False, repr=False)
class World:
    """Everything there is, and what can happen to it. What raises `RefusedError` changes nothing."""

    now: int
    missions: list[Mission] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def jobs(self) -> list[Job]:
        return sorted((job for mission in self.missions for job in mission.jobs), key=lambda job: job.number)

    def launch(self, spec: Spec) -> Mission:
        mission = Mission(self, spec)
        self.missions.append(mission)
        return mission

    # -- runners: leases and fences, R17

    def claim(self, runner: Runner, most: int, turns: Sequence[Mission]) -> list[Job]:
        """Turns first; of each mission whose turn it is the oldest job. Each claim raises `attempt`, the fence."""
        queued = (job for job in self.jobs if job.state is State.QUEUED and job.kind in EXECUTED)
        ready = [job for job in queued if job.run_after <= self.now]
        for job in ready:
            job.run_after = 0
        assert len(turns) == min(most, len(ready))
        claimed = []
        for mission in turns:
            asks = any(job.kind == TURN for job in ready)
            next_ = min(
                (job for job in ready if job.mission is mission and asks == (job.kind == TURN)),
                key=lambda job: job.number,
            )
            ready.remove(next_)
            claimed.append(next_)
        for job in claimed:
            job.mission.move(job, State.RUNNING)
            job.attempt, job.runner = job.attempt + 1, runner
        self.beat(runner)
        return claimed

    def beat(self, runner: Runner) -> None:
        until = self.now + LEASE
        runner.alive_until = until + (runner.alive_until == until)

    @staticmethod
    def holds(job: Job, attempt: int) -> bool:
        """Whether an attempt still has its lease; otherwise it does not count."""
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

    # -- outcomes of attempts: R10 and R19

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
        """Permanent errors are not retried; the others back off, twice as long each time."""
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
        if job.kind == QUESTION or job.is_relayed:
            raise RefusedError("WRONG_STATE")
        job.approved = job.was_decided = True
        job.wants_yes, job.of = False, job.of if revised is None else revised
        job.mission.move(job, State.QUEUED if job.role == "work" else State.BLOCKED)
        job.waits_for_step = job.is_early
        job.waits_for_turn = job.role != "work" and not job.is_early
        job.mission.advance()
        return True

    @staticmethod
    def reject(job: Job) -> bool:
        if job.state is State.REJECTED:
            return False
        if job.state is not State.HELD:
            raise RefusedError("CONFLICT" if job.was_decided else "WRONG_STATE")
        job.was_decided, was_relayed = True, job.is_relayed
        job.said_no = job.was_refused = True
        job.mission.move(job, State.REJECTED)
        job.mission.after_rejecting(job, was_relayed=was_relayed)
        return True

    def expire(self) -> None:
        """Reject held jobs that were not decided on in time."""
        for job in self.jobs:
            if job.held_until is not None and job.held_until <= self.now:
                said_no = job.said_no
                self.reject(job)
                job.said_no = said_no

    @staticmethod
    def answer(job: Job, text: str) -> bool:
        if job.kind != QUESTION:
            raise RefusedError("WRONG_STATE")
        if job.state is not State.HELD:
            if job.answer == text:
                return False
            raise RefusedError("WRONG_STATE")
        job.answer, job.was_decided = text, True
        job.mission.move(job, State.SUCCEEDED)
        job.mission.after_settling(job)
        return True

    @staticmethod
    def relay(turn: Job) -> None:
        """A person is the planner: the turn is held, and keeps its place, until the reply is submitted."""
        mission = turn.mission
        if mission.has_ended or turn.acting.outcome is not None:
            mission.drop(turn)
            return
        mission.move(turn, State.HELD)
        turn.is_relayed = True

    @staticmethod
    def bring(turn: Job, reply: Reply) -> bool:
        """The first reply to a question wins (R21); the turn goes on with it."""
        asked = turn.question
        if asked is None or not (turn.is_relayed or turn.was_brought):
            raise RefusedError("WRONG_STATE")
        if not turn.is_relayed:
            if asked.reply == reply:
                return False
            raise RefusedError("WRONG_STATE")
        asked.reply = asked.reply or reply
        turn.was_brought = turn.was_decided = True
        turn.mission.move(turn, State.QUEUED)
        return True

    @staticmethod
    def say(mission: Mission, text: str, about: Job | None) -> None:
        """The planner gets it in a new turn if none would follow anyway; nothing is approved or rejected."""
        if mission.has_ended:
            raise RefusedError("WRONG_STATE")
        plan = mission.root if about is None or about.plan.outcome is not None else about.plan
        mission.moment += 1
        plan.words.append((mission.moment, text))
        is_stuck = mission.asking is None and not mission.goes_on
        if (not plan.is_asked) if plan.is_at_rest else is_stuck:
            mission.queue_turn(plan)
        mission.advance()

    @staticmethod
    def cancel(mission: Mission) -> bool:
        """Cancel all of its jobs; a mission that has ended keeps its outcome."""
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
        for job in mission.jobs:
            job.said_no = False
        mission.root.reopen()
        if mission.root.is_at_rest:
            mission.queue_turn(mission.root)
        mission.advance()

    @staticmethod
    def retry(job: Job) -> None:
        """What was held and never approved, or a person rejected, is held again; a step goes on where it stopped.

        Those behind it wait.
        """
        mission = job.mission
        if job.role == "work" and job.state is State.REJECTED and job.was_refused:
            job.was_decided = True
            mission.move(job, State.HELD)
            return
        if job.role == "turn" or job.state not in (State.FAILED, State.CANCELLED, State.SKIPPED):
            raise RefusedError("WRONG_STATE")
        if job.kind == "unknown":
            raise RefusedError("NO_WORKER")
        is_over = mission.has_ended or job.plan.outcome is not None
        if job.role == "step" and (is_over or job.is_early):
            raise RefusedError("WRONG_STATE")
        job.failures = job.deaths = 0
        job.was_decided = True
        if job.role == "work":
            mission.move(job, State.HELD if job.was_left_held else State.QUEUED)
        elif job.begun is not None:
            mission.move(job, State.BLOCKED)
            job.begun.reopen()
            mission.queue_turn(job.begun)
        else:
            mission.wait_again(job)
        again = {job}
        for behind in job.plan.jobs:
            if behind.before in again and behind.state is State.SKIPPED:
                again.add(behind)
                mission.wait_again(behind)
        mission.advance()
