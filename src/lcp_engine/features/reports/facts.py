"""Facts about a mission when it is reported, however large it is (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.core.paths.change_history import DiskState
from lcp_engine.store.queries.records import Mission

RowT_co = TypeVar("RowT_co", covariant=True)


@dataclass(frozen=True)
class Excerpt(Generic[RowT_co]):
    """The first and the last rows of a list, in its order."""

    rows: Sequence[RowT_co] = ()
    total: int = 0
    """How many rows the whole list has."""

    @property
    def omitted(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, kw_only=True)
class JobFact:
    """A job in a report."""

    id: int
    kind: str
    name: str | None
    state: State
    reason: str | None
    error: JsonObject | None
    """Its `AgentError`."""
    params: JsonObject
    is_cut: bool = False
    """Whether large params were left out, except those that say what the job is about."""
    ended_at: str | None = None
    """ISO 8601."""


@dataclass(frozen=True, kw_only=True)
class TurnFact:
    """A question to the planner, with what came back."""

    number: int
    turn: int
    job_id: int
    action: str | None
    errors: list[JsonValue] | None
    """What was wrong with a reply that was not valid: `{path, message}` each."""
    input_tokens: int | None
    output_tokens: int | None
    latency: float | None
    """Seconds."""


@dataclass(frozen=True, kw_only=True)
class FileFact:
    """A file that the mission changed, from its first change to its last."""

    path: str
    created: bool
    changes: int
    """How many times it was changed."""
    size_bytes: int | None
    sha256: str | None
    """Of what the last change wrote; None if that removed the file."""
    job_id: int
    """The job of the last change."""
    changed_at: str
    """ISO 8601."""
    disk: DiskState | None = None
    """None if that is not known: the root is not on this machine, or the file could not be read."""


@dataclass(frozen=True, kw_only=True)
class UndoneFact:
    """A file that was restored, and the job that did so."""

    path: str
    job_id: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The history of a mission in short."""

    mission: Mission
    done: Mapping[str, int] = field(default_factory=dict)
    """How many jobs of each kind succeeded."""
    done_among: int | None = None
    """Of how many of the newest jobs `done` counts those that succeeded; None for all."""
    turns: Excerpt[TurnFact] = Excerpt()
    invalid_replies: Excerpt[TurnFact] = Excerpt()
    files: Excerpt[FileFact] = Excerpt()
    undone: Excerpt[UndoneFact] = Excerpt()
    held: Excerpt[JobFact] = Excerpt()
    failures: Excerpt[JobFact] = Excerpt()
    acted: Excerpt[JobFact] = Excerpt()
    """The jobs of certain kinds that succeeded."""
    limits: Sequence[str] = ()
    """Limits that were reached, and the reasons of jobs that were refused for one."""
    said: JsonObject = field(default_factory=dict)
    """The newest reply that could be read."""


@dataclass(frozen=True, kw_only=True)
class Course:
    """The progress of a mission."""

    event: int
    """The number of the newest event."""
    at: str
    """The time of that event, ISO 8601."""
    since: int
    """The number of the event that `before` and `news` refer to."""
    percentage: int
    """It never falls while history grows."""
    before: int
    """The percentage at event `since`."""
    covered: Excerpt[JobFact] = Excerpt()
    """Jobs that succeeded."""
    news: Excerpt[JobFact] = Excerpt()
    """Jobs that succeeded after event `since`."""
    running: Excerpt[JobFact] = Excerpt()
    seconds: float = 0.0
    """For how long at least one job of the mission was running."""
