"""Count what happens by the minute and by the hour, so that charts read as few rows beside any history.

Attempts and replies are counted by when they ended, from where the last step stopped (35 days back at first) up to now,
in steps of bounded size. A minute is counted again until it is over for long enough that no transaction of that time is
still open. What is stored only grows: whoever counts what, however often, and is killed where, the largest count is the
whole one, and what `lcp db prune` deletes later stays counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, TypeAlias

from sqlalchemy import BigInteger, Column, Table, Text, text

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import BACK_OFF, FAIL, SUCCEED
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.statements import Many, insert_rows
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.runners import find_runners
from lcp_engine.store.schema import metadata

MINUTE: Micros = 60 * SECOND
HOUR: Micros = 60 * MINUTE
KEPT: Mapping[Micros, Micros] = {MINUTE: 26 * HOUR, HOUR: 35 * 24 * HOUR}
"""How long the counts of each length stay."""
GRACE: Micros = MINUTE
"""How long after its end a minute may still grow: transactions are shorter."""
EVERY_SECONDS = 20
MOST_MINUTES = 60
MOST_ATTEMPTS = 100_000
"""A step counts no more than that, or one minute."""
WAITING, RUNNERS = "waiting", "runners"
"""Levels of the moment: the highest of a minute or hour counts. All other measures are sums."""
COST = "cost:"
"""Followed by a currency, the measure of money, in billionths."""
BILLION = 10**9

_Counts: TypeAlias = "dict[tuple[Micros, str], int]"

activity = Table(
    "activity",
    metadata,
    Column("step", BigInteger, primary_key=True),
    Column("at", BigInteger, primary_key=True),
    Column("measure", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What happened by the minute and by the hour, from `at` on; `step` is that length in microseconds. With `step` 0: how
far it is counted."""


_MARK = Sql("SELECT measure, amount FROM activity WHERE step = 0 AND at = 0")
_NEXT = Sql(
    "SELECT (SELECT min(ended_at) FROM attempts WHERE ended_at >= :since), "
    "(SELECT min(replied_at) FROM turns WHERE input_tokens IS NOT NULL AND replied_at >= :since)",
    since=int,
)
_MANY = Sql(
    f"SELECT ended_at FROM attempts WHERE ended_at >= :since ORDER BY ended_at LIMIT 1 OFFSET {MOST_ATTEMPTS}",
    since=int,
)
_ENDED = Sql(
    f"SELECT ended_at - ended_at % {MINUTE}, CASE outcome WHEN '{SUCCEED.event}' THEN 'succeeded' ELSE 'failed' END, "
    f"count(*) FROM attempts WHERE ended_at >= :since AND ended_at < :until AND outcome IN ('{SUCCEED.event}', "
    f"'{FAIL.event}', '{BACK_OFF.event}') GROUP BY 1, 2",
    since=int,
    until=int,
)
_LOST = Sql(
    f"SELECT ended_at - ended_at % {MINUTE}, coalesce(sum(input_tokens + output_tokens), 0) FROM attempts "
    f"WHERE ended_at >= :since AND ended_at < :until AND outcome <> '{SUCCEED.event}' GROUP BY 1",
    since=int,
    until=int,
)
_REPLIED = Sql(
    f"SELECT replied_at - replied_at % {MINUTE}, input_tokens + coalesce(output_tokens, 0), cost, currency FROM turns "
    "WHERE input_tokens IS NOT NULL AND replied_at >= :since AND replied_at < :until",
    since=int,
    until=int,
)
_HELD = Sql("SELECT count(*) FROM jobs WHERE state = 'held'")
_GROW = (
    "ON CONFLICT (step, at, measure) DO UPDATE SET amount = CASE WHEN excluded.amount > activity.amount "
    "THEN excluded.amount ELSE activity.amount END"
)
_ROWS = insert_rows(activity, ("step", "at", "measure", "amount"))
_STORE = Many(
    _ROWS.names,
    text(f"INSERT INTO activity (step, at, measure, amount) VALUES (:step, :at, :measure, :amount) {_GROW}"),
    text(
        "INSERT INTO activity (step, at, measure, amount) SELECT * FROM unnest(CAST(:step AS BIGINT[]), "
        f"CAST(:at AS BIGINT[]), CAST(:measure AS TEXT[]), CAST(:amount AS BIGINT[])) {_GROW}"
    ),
    _ROWS.gather,
)
_SUM_UP = Sql(
    f"INSERT INTO activity (step, at, measure, amount) SELECT {HOUR}, at - at % {HOUR}, measure, "
    f"CASE WHEN measure IN ('{WAITING}', '{RUNNERS}') THEN max(amount) ELSE sum(amount) END "
    f"FROM activity WHERE step = {MINUTE} AND at >= :since AND at < :until GROUP BY 2, 3 {_GROW}",
    since=int,
    until=int,
)
_FORGET = Sql("DELETE FROM activity WHERE step = :step AND at < :until", step=int, until=int)
_READ = Sql(
    "SELECT at, measure, amount FROM activity WHERE step = :step AND at >= :since AND at < :until",
    step=int,
    since=int,
    until=int,
)


class Span(NamedTuple):
    """A period up to now, of so many parts that last a `step` each."""

    step: Micros
    parts: int


SPANS: Mapping[str, Span] = {"hour": Span(MINUTE, 60), "day": Span(HOUR, 24), "week": Span(HOUR, 168)}


@dataclass(frozen=True)
class Activity:
    """Counts from `begin` on: by measure the amount of each part of the span, the oldest first."""

    span: Span
    begin: Micros
    amounts: Mapping[str, Sequence[int]]

    def of(self, measure: str) -> Sequence[int]:
        return self.amounts.get(measure) or (0,) * self.span.parts

    @property
    def currencies(self) -> Sequence[str]:
        return sorted(name.removeprefix(COST) for name in self.amounts if name.startswith(COST))


def read_activity(tx: Tx, over: str) -> Activity:
    """Read what happened during the last `hour`, `day` or `week`, the part that is not over included."""
    span = SPANS[over]
    until = tx.now - tx.now % span.step + span.step
    begin = until - span.parts * span.step
    amounts: dict[str, list[int]] = {}
    for at, measure, amount in tx.rows(_READ, step=span.step, since=begin, until=until):
        amounts.setdefault(measure, [0] * span.parts)[(at - begin) // span.step] = amount
    return Activity(span, begin, amounts)


def read_recent(tx: Tx) -> tuple[str, Activity]:
    """The shortest span in which jobs ended, with what happened in it; the longest if there is none."""
    found = {}
    for over in SPANS:
        found = {over: read_activity(tx, over)}
        if any(found[over].of("succeeded")) or any(found[over].of("failed")):
            break
    return found.popitem()


def is_due(tx: Tx) -> bool:
    """True if no other runner has just done it."""
    return tx.now - _marks(tx).get("looked", 0) > EVERY_SECONDS * SECOND // 2


def count_up(database: Database, runtime: Path) -> bool:
    """Count one step more; true if it has come to the present. `runtime` is the runtime directory of the database."""
    step = database.read(lambda tx: _count(tx, runtime))
    database.write(lambda tx: _store(tx, step))
    return step.is_last


@dataclass(frozen=True)
class _Step:
    """The counts by minute and measure since a minute until another one; `is_last` if that is to come."""

    since: Micros
    until: Micros
    counts: _Counts
    is_last: bool


def _count(tx: Tx, runtime: Path) -> _Step:
    since = _marks(tx).get("counted", _floor(tx.now - KEPT[HOUR], HOUR))
    present = _floor(tx.now, MINUTE) + MINUTE
    # Whatever comes later is not older than that, so that a pause of any length is one step.
    found = min((at for at in tx.rows(_NEXT, since=since)[0] if at is not None), default=present)
    since = max(since, _floor(min(found, tx.now - GRACE - MINUTE), MINUTE))
    many = tx.row(_MANY, since=since)
    most = since + MOST_MINUTES * MINUTE if many is None else max(_floor(many[0], MINUTE), since + MINUTE)
    until = max(min(most, present), since)
    counts: _Counts = {}
    for at, measure, amount in _amounts(tx, since, until):
        counts[at, measure] = counts.get((at, measure), 0) + amount
    if until == present:
        ((held,),) = tx.rows(_HELD)
        counts[present - MINUTE, WAITING] = held
        counts[present - MINUTE, RUNNERS] = len(find_runners(tx, runtime))
    return _Step(since, until, counts, until >= present)


def _marks(tx: Tx) -> dict[str, Micros]:
    """Until when everything is `counted`, and when a runner has `looked` last."""
    return {str(measure): int(amount) for measure, amount in tx.rows(_MARK)}


def _amounts(tx: Tx, since: Micros, until: Micros) -> Iterator[tuple[Micros, str, int]]:
    for at, measure, count in tx.rows(_ENDED, since=since, until=until):
        yield at, measure, count
    for at, tokens in tx.rows(_LOST, since=since, until=until):
        yield at, "tokens", int(tokens)
    for at, tokens, cost, currency in tx.rows(_REPLIED, since=since, until=until):
        yield at, "tokens", tokens
        if cost is not None and currency is not None:
            yield at, COST + currency, round(Decimal(cost) * BILLION)


def _store(tx: Tx, step: _Step) -> None:
    """Store what was counted, and how far; what is too old goes."""
    tx.many(_STORE, [(MINUTE, *key, amount) for key, amount in sorted(step.counts.items()) if amount])
    tx.run(_SUM_UP, since=_floor(step.since, HOUR), until=step.until)
    closed = min(step.until, _floor(tx.now - GRACE, MINUTE))
    tx.many(_STORE, [(0, 0, "counted", closed), (0, 0, "looked", tx.now)])
    # The sum of an hour that is still counted needs all its minutes.
    ends = {MINUTE: min(tx.now - KEPT[MINUTE], _floor(step.since, HOUR)), HOUR: tx.now - KEPT[HOUR]}
    for length, end in ends.items():
        tx.run(_FORGET, step=length, until=end)


def _floor(at: Micros, step: Micros) -> Micros:
    return at - at % step
