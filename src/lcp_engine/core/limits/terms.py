"""Terms of one job, which hold in place of what its kind states: retries, delay, time, condition. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Terms of a plan for a step's job: its id, and what holds for it in place of what its kind states.

    `has_references`: its params are not resolved yet. `retries`: failures of every kind are retried.
    """

    step: str
    condition: str | None = None
    has_references: bool = False
    retries: bool = False
    delay_ms: int | None = None
    timeout_ms: int | None = None

    @property
    def text(self) -> str:
        """The terms as they are stored."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value not in (None, False)},
            separators=(",", ":"),
        )


@lru_cache(maxsize=1024)
def terms_of(text: str) -> Terms:
    """The terms that are stored with a job."""
    return Terms(**json.loads(text))
