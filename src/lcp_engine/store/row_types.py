"""Give rows a type: one class a table, its fields in the order of the columns read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from operator import attrgetter

from lcp_engine.core.job_states import OPEN, Role, State

COUNTED = tuple(state.value for state in State)


@dataclass(slots=True)
class MissionRow:
    """A mission as the loop needs it; the counters per state carry the names of the states."""

    id: int
    uid: str
    name: str
    goal: str
    root: str | None
    planner: str | None
    spec: str
    status: str
    outcome: str | None
    turns: int
    questions: int
    input_tokens: int
    output_tokens: int
    bytes_written: int
    requested: int
    events: int
    changed_seq: int
    root_plan: int | None
    asking: int | None
    ran: int
    running_since: int | None
    pruned_at: int | None
    started_at: int | None
    cost: str | None
    currency: str | None
    unpriced: int
    served_at: int | None
    held: int
    blocked: int
    queued: int
    running: int
    succeeded: int
    failed: int
    rejected: int
    skipped: int
    cancelled: int

    @property
    def has_ended(self) -> bool:
        return self.status not in ("running", "waiting")

    @property
    def open(self) -> int:
        """Jobs that will go on by themselves."""
        return self.queued + self.running + self.blocked

    def count(self, state: State, by: int) -> None:
        setattr(self, state, getattr(self, state) + by)


@dataclass(slots=True)
class PlanRow:
    """A plan: a first `agent_plan` and its continuations (R12)."""

    id: int
    mission_id: int
    job_id: int | None
    parent_id: int | None
    depth: int
    open: int
    held: int
    asked_seq: int
    corrections: int
    stalled: int
    refused: int
    outcome: str | None
    clarifications: int
    verifications: int
    stated: str | None
    on_failure: str | None
    failed_job: int | None

    @property
    def has_steps(self) -> bool:
        """True if its steps are stated, and no planner says what comes next."""
        return self.on_failure is not None

    def reopen(self) -> None:
        """Let it go on as if nothing had been counted against it."""
        self.outcome = None
        self.corrections = self.stalled = self.refused = self.clarifications = self.verifications = 0

    def count(self, state: State, by: int) -> None:
        if state in OPEN or state is State.BLOCKED:
            self.open += by
        elif state is State.HELD:
            self.held += by


@dataclass(slots=True)
class JobRow:
    """A job as the engine moves it."""

    id: int
    mission_id: int
    plan_id: int | None
    turn: int | None
    parent_id: int | None
    name: str | None
    kind: str
    params: str
    role: Role
    state: State
    reason: str | None
    depth: int
    fingerprint: str | None
    approved: int
    attempt: int
    failures: int
    deaths: int
    max_attempts: int
    runner_id: int | None
    started_at: int | None
    waits_for: int | None
    followers: int
    terms: str | None
    priority: int = 0

    def copy(self) -> JobRow:
        """Like copy.copy, but quick: work that may run again begins with what it was given."""
        return JobRow(*_JOB_VALUES(self))


_STATES: dict[str, State] = {
    state.value: state for state in State
}  # looked up in a third of the time of State(…)
_ROLES: dict[str, Role] = {role.value: role for role in Role}
_JOB_VALUES = attrgetter(*(field.name for field in fields(JobRow)))


def job_row(row: Sequence[object]) -> JobRow:
    """A job from its columns."""
    job = JobRow(*row)  # type: ignore[arg-type]  # a driver's row has no types
    job.state, job.role = _STATES[job.state], _ROLES[job.role]
    return job


@dataclass(slots=True)
class TurnRow:
    """A question and, once there is one, its reply."""

    mission_id: int
    number: int
    turn: int
    plan_id: int
    job_id: int
    corrects: int | None
    last_turn: str | None
    after_seq: int
    until_seq: int
    asked_at: int
    prompt: str | None
    reply: str | None
    errors: str | None
    input_tokens: int | None
    output_tokens: int | None
    memories: str | None = None
    until_ran: int | None = None
    waits_since: int | None = None


@dataclass(slots=True)
class ChangeRow:
    """A file effect with its intent. `file` is the absolute path, without links, in the place `root_identity`."""

    id: int
    mission_id: int
    job_id: int
    attempt: int
    root: str
    path: str
    file: str
    mode: str
    state: str
    sha256_before: str | None
    sha256_after: str | None
    size_bytes: int
    temporary: str
    made: str
    result: str
    undoes: int | None
    root_identity: str | None
    staged: int | None = None


@dataclass(slots=True)
class RunnerRow:
    """A process that executes jobs."""

    id: int
    uid: str
    host: str
    boot: str
    pid: int
    alive_until: int
