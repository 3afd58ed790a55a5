"""Say how many jobs may start under a limit now, and when the next one may. Pure: the time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import UnexpectedValue

MINUTE: Micros = 60 * SECOND
MOST_PER_MINUTE = 60_000
MOST_RUNNING = 10_000
BLOCK: Micros = SECOND // 20
"""Permits are waited for together, those of so long a time: each wait costs every runner a transaction."""


class RateLimit(BaseModel):
    """Rate at which jobs may start: `requests_per_minute` on average, up to `burst` at once."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    requests_per_minute: float = Field(
        ge=0.001, le=MOST_PER_MINUTE, description="How many jobs may start in a minute."
    )
    burst: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="How many of them may start at once after a pause; those of one second, if not stated.",
    )

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_booleans(cls, value: JsonValue) -> JsonValue:
        if isinstance(value, bool):
            raise UnexpectedValue("should be a number")
        return value


@dataclass(frozen=True)
class Limit:
    """Rate of starts, one each `spacing` and `burst` at once, and the number that may run; None: without limit."""

    spacing: Micros | None = None
    burst: int = 1
    max_running: int | None = None

    @property
    def is_none(self) -> bool:
        return self.spacing is None and self.max_running is None


UNLIMITED = Limit()


def limit_of(rate: RateLimit | None, max_running: int | None) -> Limit:
    """The limit that a rate and a number of running jobs make."""
    if rate is None:
        return Limit(max_running=max_running)
    spacing = math.ceil(MINUTE / rate.requests_per_minute)  # never more often than stated
    return Limit(spacing, rate.burst or max(1, SECOND // spacing), max_running)


@dataclass
class Permits:
    """State of a limit at one moment: its permits, and those that are taken.

    The bucket is one time: `full_at`, when it has all `burst` permits again. Taking one moves that time by `spacing`
    (the virtual scheduling of the generic cell rate algorithm, ITU-T I.371).
    """

    limit: Limit
    now: Micros
    full_at: Micros = 0
    running: int = 0

    def __post_init__(self) -> None:
        """Take a bucket that would be full later than an empty one for empty: the clock was set back, or the limit."""
        if self.limit.spacing is not None:
            self.full_at = min(self.full_at, self.now + self.limit.burst * self.limit.spacing)

    @property
    def left(self) -> int | None:
        """Number of jobs that may still start now; None: any number."""
        counts = [count for count in (self._tokens, self._free) if count is not None]
        return max(0, min(counts)) if counts else None

    @property
    def has_free_place(self) -> bool:
        """True if `max_running` lets one more job run."""
        return self._free is None or self._free > 0

    def take(self) -> None:
        """Start a job."""
        self.running += 1
        if self.limit.spacing is not None:
            self.full_at = max(self.full_at, self.now) + self.limit.spacing

    def give_back(self) -> None:
        """Take back the start of a job that has not begun after all."""
        if self.limit.spacing is not None:
            self.full_at -= self.limit.spacing

    @property
    def next_at(self) -> Micros:
        """When jobs that wait for this limit should be looked at: once the permits of a block are there."""
        limit = self.limit
        if limit.spacing is None:
            return self.now
        block = max(1, min(limit.burst // 2, BLOCK // limit.spacing))
        return max(self.now, self.full_at - (limit.burst - block) * limit.spacing)

    @property
    def _tokens(self) -> int | None:
        if self.limit.spacing is None:
            return None
        return self.limit.burst - -(-max(0, self.full_at - self.now) // self.limit.spacing)

    @property
    def _free(self) -> int | None:
        return None if self.limit.max_running is None else self.limit.max_running - self.running
