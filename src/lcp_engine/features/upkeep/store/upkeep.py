"""Record what runners do regularly for the database itself: each due time belongs to one living runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, null, select, text, update

from lcp_engine.clock import SECOND, Micros, iso
from lcp_engine.core.times.recurrence import Every, go_on
from lcp_engine.features.upkeep.settings import Duty
from lcp_engine.store.db.json_text import JsonObject, from_json, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import Id, counter, metadata, runners

upkeep = Table(
    "upkeep",
    metadata,
    Column("duty", Text, primary_key=True),
    Column("due_at", BigInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("runner_id", Id),
    Column("done_at", BigInteger),
    Column("found", Text),
    counter("failures"),
    Column("failed_at", BigInteger),
    Column("error", Text),
    sqlite_with_rowid=False,
)
"""What runners do for the database itself: what is due at `due_at` is begun at `next_at`, which is later after a
failure, and then belongs to `runner_id` for as long as that lives. `found` is the result of the last success, `error`
what went wrong since."""

FIRST_PAUSE: Micros = 60 * SECOND
LONGEST_PAUSE: Micros = 3600 * SECOND
"""After a failure it is tried again after a minute, then after twice as long each time, up to an hour."""
_GRACE: Micros = 60 * SECOND
"""How long after its last sign of life a runner keeps what it has begun."""

_ROW = (
    upkeep.c.duty,
    upkeep.c.due_at,
    upkeep.c.next_at,
    upkeep.c.done_at,
    upkeep.c.found,
    upkeep.c.failures,
    upkeep.c.failed_at,
    upkeep.c.error,
)
_THIS = upkeep.c.duty == bindparam("this")
_ALL = Statement(select(*_ROW))
_BEGIN = Statement(
    text(
        "INSERT INTO upkeep (duty, due_at, next_at) VALUES (:this, :now, :now) ON CONFLICT (duty) DO NOTHING"
    )
)
_LIVES = (
    select(runners.c.id)
    .where(
        runners.c.id == upkeep.c.runner_id,
        runners.c.id != bindparam("runner"),
        runners.c.ended_at.is_(None),
        runners.c.alive_until > bindparam("since"),
    )
    .exists()
)
_FREE = Statement(select(*_ROW).where(_THIS, ~_LIVES).with_for_update(of=upkeep))
_TAKE = Statement(update(upkeep).where(_THIS).values(runner_id=bindparam("runner")))
_MINE = (_THIS, upkeep.c.runner_id == bindparam("runner"), upkeep.c.due_at == bindparam("due"))
_DONE = Statement(
    update(upkeep)
    .where(*_MINE)
    .values(
        due_at=bindparam("next_due"),
        next_at=bindparam("next_due"),
        runner_id=null(),
        done_at=bindparam("now"),
        found=bindparam("found_text"),
        failures=text("0"),
        failed_at=null(),
        error=null(),
    )
)
_FAILED = Statement(
    update(upkeep)
    .where(*_MINE)
    .values(
        next_at=bindparam("again_at"),
        runner_id=null(),
        failures=text("failures + 1"),
        failed_at=bindparam("now"),
        error=bindparam("message"),
    )
)


@dataclass(frozen=True)
class UpkeepRow:
    """A duty: when it is due, and what became of it last."""

    duty: str
    due_at: Micros
    next_at: Micros
    done_at: Micros | None
    found: str | None
    failures: int
    failed_at: Micros | None
    error: str | None

    def begins_at(self, every: Micros) -> Micros:
        """When it is done next, if that is to be `every` so long: what is left of a longer rhythm counts no more."""
        return self.next_at if self.done_at is None or self.error else min(self.next_at, self.done_at + every)

    def json(self, every: Micros | None) -> JsonObject:
        """As programs read it; `next_at` is None if it is not done any more."""
        return {
            "last_at": None if self.done_at is None else iso(self.done_at),
            "found": None if self.found is None else from_json(self.found),
            "next_at": None if every is None else iso(self.begins_at(every)),
            "failures": self.failures,
            "failed_at": None if self.failed_at is None else iso(self.failed_at),
            "error": self.error,
        }


@dataclass(frozen=True)
class Taken:
    """A due time that belongs to one runner until it is done or has failed."""

    duty: Duty
    runner_id: int
    due_at: Micros
    failures: int


def duties(tx: Tx) -> Mapping[str, UpkeepRow]:
    """Duties that have been due, by their names."""
    return {row[0]: UpkeepRow(*row) for row in tx.rows(_ALL)}


def take(tx: Tx, duty: Duty, runner_id: int, every: Micros) -> Taken | None:
    """Take what is due, for the first time at once; None if it is not, or if another living runner has it."""
    tx.run(_BEGIN, this=duty.value, now=tx.now)
    row = tx.row(_FREE, this=duty.value, runner=runner_id, since=tx.now - _GRACE)
    if row is None or (found := UpkeepRow(*row)).begins_at(every) > tx.now:
        return None
    tx.run(_TAKE, this=duty.value, runner=runner_id)
    return Taken(duty, runner_id, found.due_at, found.failures)


def note_done(tx: Tx, taken: Taken, every: Micros, found: JsonObject) -> None:
    """Store the result, and when it is due next, unless another runner has taken it meanwhile."""
    onward = go_on(Every(every), min(taken.due_at, tx.now), tx.now)
    tx.run(
        _DONE,
        this=taken.duty.value,
        runner=taken.runner_id,
        due=taken.due_at,
        next_due=onward.next_due,
        now=tx.now,
        found_text=to_json(found),
    )


def note_failed(tx: Tx, taken: Taken, message: str) -> Micros:
    """Store why it could not be done; when it is tried again."""
    again = tx.now + min(LONGEST_PAUSE, FIRST_PAUSE << min(taken.failures, 10))
    tx.run(
        _FAILED,
        this=taken.duty.value,
        runner=taken.runner_id,
        due=taken.due_at,
        again_at=again,
        now=tx.now,
        message=message,
    )
    return again
