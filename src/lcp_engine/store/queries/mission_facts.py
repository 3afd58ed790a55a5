"""Hold what is known of a mission when it is reported on, however large it is (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

Object = Mapping[str, JsonValue]


@dataclass(frozen=True)
class Excerpt:
    """The first and the last rows of a list, in its order. `total` is how many rows the list has."""

    rows: Sequence[Object] = ()
    total: int = 0

    @property
    def omitted(self) -> int:
        return self.total - len(self.rows)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The history of a mission, summed up.

    `mission` is its object of CONTRACT.md. `done` counts the jobs that succeeded by kind. `files` are the files that
    were changed, `undone` those that were taken back, each with the job that did it. `limits` is what was reached, and
    why jobs were refused for a limit. `said` is the newest reply that could be read.
    """

    mission: Object
    done: Mapping[str, int] = field(default_factory=dict)
    turns: Excerpt = Excerpt()
    invalid_replies: Excerpt = Excerpt()
    files: Excerpt = Excerpt()
    undone: Excerpt = Excerpt()
    held: Excerpt = Excerpt()
    failures: Excerpt = Excerpt()
    limits: Sequence[str] = ()
    said: Object = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Course:
    """How far a mission has come.

    `percentage` is that of now and `before` that of event `since`; both never fall while history grows. `event` is the
    number of the newest event and `at` its time. `covered` are the jobs that succeeded, `news` those of them after
    event `since`.
    """

    event: int
    at: str
    since: int
    percentage: int
    before: int
    covered: Excerpt = Excerpt()
    news: Excerpt = Excerpt()
    running: Excerpt = Excerpt()
    seconds: float = 0.0
