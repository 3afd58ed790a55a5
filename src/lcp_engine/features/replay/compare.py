"""Compare two runs of one mission, in words and as data. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from pydantic import JsonValue

from lcp_engine.core.reasons import Reason
from lcp_engine.core.safe_text import one_line, shortened
from lcp_engine.core.summaries import subject

MOST_KEYS = 3
_ADDED = frozenset({"assessment"})
"""Keys of results that older versions did not keep: a run that they recorded differs in nothing by them."""
MISSION = "the mission"
READ = "read differently"
"""The field of a difference in how the engine reads a reply that is the same."""
INVALID = "invalid_reply"
_WIDTH = 80


@dataclass(frozen=True)
class ComparedJob:
    """A job of one run. `is_final`: its state did not change later, so that reason and result are compared, too."""

    id: int
    turn: int | None
    parent_id: int | None
    name: str | None
    kind: str
    params: Mapping[str, JsonValue]
    state: str
    reason: Reason | None = None
    error_code: str | None = None
    result: Mapping[str, JsonValue] | None = None
    is_final: bool = True

    @property
    def title(self) -> str:
        """The kind with its subject."""
        return f"{self.kind} {subject({'params': dict(self.params), 'name': self.name})}".rstrip()

    @property
    def state_and_code(self) -> str:
        return self.state if self.error_code is None else f"{self.state} {self.error_code}"


@dataclass(frozen=True)
class ComparedReading:
    """The action that a reply was read as, or `INVALID`, with the job of its question."""

    job: int
    action: str


@dataclass(frozen=True)
class ComparedMission:
    """A mission of one run, with its jobs in the order in which they were stored, and its replies by question."""

    status: str
    outcome: str | None
    turns: int
    jobs: Sequence[ComparedJob]
    readings: Mapping[int, ComparedReading] = field(default_factory=dict)


@dataclass(frozen=True)
class Difference:
    """One difference. `job` is the id in the first run; None for the mission or a new job."""

    job: int | None
    title: str
    field: str
    was: JsonValue
    now: JsonValue

    def __str__(self) -> str:
        """The difference as a sentence."""
        shown = {"state": "", READ: f"{READ}, as "}.get(self.field, f"{self.field} ")
        return f"{self.title}: {shown}{_text_of(self.now)}, was {_text_of(self.was)}"

    @property
    def is_of_mission(self) -> bool:
        return self.title == MISSION

    def as_json(self) -> dict[str, JsonValue]:
        return {"job": self.job, "title": self.title, "field": self.field, "was": self.was, "is": self.now}


def compare(was: ComparedMission, now: ComparedMission) -> list[Difference]:
    """The differences, first those of reading, which explain others, and those of the mission last.

    Ids and times always differ and are not compared.
    """
    pairs = _match_jobs(was.jobs, now.jobs)
    same = {new.id: old.id for old, new in pairs if old is not None and new is not None}
    found = [*_compare_readings(was.readings, now.readings)]
    found += [difference for old, new in pairs for difference in _compare_jobs(old, new, same)]
    for name in ("turns", "status", "outcome"):
        before, after = getattr(was, name), getattr(now, name)
        if before != after:
            found.append(Difference(None, MISSION, name, before, after))
    return found


def _compare_readings(
    was: Mapping[int, ComparedReading], now: Mapping[int, ComparedReading]
) -> Iterator[Difference]:
    for number, old in was.items():
        new = now.get(number)
        if new is not None and new.action != old.action:
            yield Difference(old.job, f"question {number}", READ, old.action, new.action)


_Pair = tuple[ComparedJob | None, ComparedJob | None]


def _match_jobs(was: Sequence[ComparedJob], now: Sequence[ComparedJob]) -> list[_Pair]:
    """Match jobs of equal kind and params, and those between them by position."""
    if len(was) == len(now):
        return list(zip(was, now, strict=True))
    pairs: list[_Pair] = []
    matcher = SequenceMatcher(None, [_key(job) for job in was], [_key(job) for job in now], autojunk=False)
    for _, low, high, new_low, new_high in matcher.get_opcodes():
        for step in range(max(high - low, new_high - new_low)):
            old = was[low + step] if low + step < high else None
            new = now[new_low + step] if new_low + step < new_high else None
            pairs.append((old, new))
    return pairs


def _key(job: ComparedJob) -> tuple[str, str]:
    return job.kind, json.dumps(job.params, sort_keys=True)


def _compare_jobs(
    old: ComparedJob | None, new: ComparedJob | None, same: Mapping[int, int]
) -> Iterator[Difference]:
    if old is None or new is None:
        there = old or new
        assert there is not None
        title = f"job {there.id} {there.title}" if old else f"a new job {there.title}"
        yield Difference(
            None if old is None else old.id,
            f"{title} (turn {there.turn})",
            "state",
            None if old is None else old.state_and_code,
            None if new is None else new.state_and_code,
        )
        return
    title = f"job {old.id} {old.title}"
    parent = None if new.parent_id is None else same.get(new.parent_id)
    fields: list[tuple[str, JsonValue, JsonValue]] = [
        ("kind", old.kind, new.kind),
        ("name", old.name, new.name),
        ("turn", old.turn, new.turn),
        ("parent", old.parent_id, parent),
        *_keys("params", old.params, new.params),
        ("state", old.state_and_code, new.state_and_code)
        if old.is_final
        else ("state", old.state, new.state),
    ]
    if old.is_final:
        if not _is_same_reason(old.reason, new.reason):
            fields.append(("reason", _text(old.reason), _text(new.reason)))
        recorded = old.result or {}
        shared = {
            key: value for key, value in (new.result or {}).items() if key in recorded or key not in _ADDED
        }
        fields += _keys("result", recorded, shared)
    for name, before, after in fields:
        if before != after:
            yield Difference(old.id, title, name, before, after)


def _is_same_reason(old: Reason | None, new: Reason | None) -> bool:
    """True if two reasons have one code and, if both have data, the same data but for ids; else one text."""
    if old is None or new is None or old.code is None:
        return _text(old) == _text(new)
    if old.code is not new.code:
        return False
    return not (old.data and new.data) or _without_id(old.data) == _without_id(new.data)


def _without_id(data: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {name: value for name, value in data.items() if name != "job"}


def _text(reason: Reason | None) -> str | None:
    return None if reason is None else reason.text


def _keys(
    name: str, old: Mapping[str, JsonValue], new: Mapping[str, JsonValue]
) -> list[tuple[str, JsonValue, JsonValue]]:
    """The first keys whose values differ."""
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return [(f"{name}.{key}", old.get(key), new.get(key)) for key in differing[:MOST_KEYS]]


def _text_of(value: JsonValue) -> str:
    if value is None:
        return "not there"
    return one_line(shortened(value if isinstance(value, str) else json.dumps(value), _WIDTH))
