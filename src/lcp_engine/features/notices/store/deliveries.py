"""Store which notices a webhook is still to be sent, and what became of the others (the table `deliveries`).

A notice is stored by the transaction that lets its mission wait. Only the oldest one that is not over is sent, by
whoever took it last: they arrive in order, however many runners there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    func,
    literal_column,
    select,
    text,
    update,
)

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.settings.feature_settings import FeatureSettings, settings_in
from lcp_engine.features.notices.settings import NoticeSettings
from lcp_engine.store.conditions import OUTCOMES, UNSENT
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import Id, counter, metadata, missions, one_of, partial_index

# SQLite would give the number of a row that is gone to another one.
deliveries = Table(
    "deliveries",
    metadata,
    Column("id", Id, primary_key=True),
    Column("mission_id", ForeignKey("missions.id"), nullable=False),
    Column("seq", Integer, nullable=False),
    Column("state", Text, nullable=False),
    counter("attempts"),
    Column("created_at", BigInteger, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("tried_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("http_status", Integer),
    Column("error", Text),
    UniqueConstraint("mission_id", "seq"),
    one_of("state", OUTCOMES),
    partial_index("ix_deliveries_unsent", "id", where=UNSENT),
    sqlite_autoincrement=True,
)
"""The notices of the webhook, in the order in which missions `mission_id` started to wait with their event `seq`. One
is sent at `next_at` next, which is after `tried_at` while an attempt is under way. `http_status` and `error`: what the
last attempt met. One is `outdated` if its mission did not wait any more, or waited anew, when its turn came."""

ATTEMPT_SECONDS = 10.0
"""How long one attempt may take."""
_LEASE: Micros = 30 * SECOND
"""After so long it is sent again if nothing is known of an attempt: whoever made it has died."""
FIRST_PAUSE: Micros = 5 * SECOND
LONGEST_PAUSE: Micros = 3600 * SECOND
"""After a failure it is sent again after five seconds, then after twice as long each time, up to an hour."""
GIVE_UP_AFTER: Micros = 86_400 * SECOND

_ADD = Statement(
    text(
        "INSERT INTO deliveries (mission_id, seq, state, created_at, next_at) "
        "VALUES (:mission, :seq, 'unsent', :now, :now) ON CONFLICT (mission_id, seq) DO NOTHING"
    )
)
_newer = deliveries.alias("newer")
_IS_CURRENT = (
    select(func.count())
    .select_from(missions)
    .where(missions.c.id == deliveries.c.mission_id, missions.c.status == text("'waiting'"))
    .where(
        ~select(_newer.c.id)
        .where(_newer.c.mission_id == deliveries.c.mission_id, _newer.c.seq > deliveries.c.seq)
        .correlate(
            deliveries
        )  # by itself a SELECT sees only the table of the one around it, which is `missions`
        .exists()
    )
    .scalar_subquery()
)
_OLDEST = Statement(
    select(
        deliveries.c.id,
        deliveries.c.mission_id,
        deliveries.c.seq,
        deliveries.c.created_at,
        deliveries.c.next_at,
        deliveries.c.attempts,
        _IS_CURRENT,
    )
    .where(text(UNSENT))
    .order_by(deliveries.c.id)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_AS_FOUND = (
    deliveries.c.id == bindparam("this"),
    deliveries.c.attempts == bindparam("known"),
    text(UNSENT),
)
_TAKE = Statement(
    update(deliveries)
    .where(*_AS_FOUND)
    .values(attempts=text("attempts + 1"), tried_at=bindparam("now"), next_at=bindparam("until"))
)
_END = Statement(
    update(deliveries)
    .where(*_AS_FOUND)
    .values(
        state=bindparam("outcome"),
        ended_at=bindparam("now"),
        http_status=bindparam("answered"),
        error=bindparam("fault"),
    )
)
_AGAIN = Statement(
    update(deliveries)
    .where(*_AS_FOUND)
    .values(next_at=bindparam("again_at"), http_status=bindparam("answered"), error=bindparam("fault"))
)
_NEXT = Statement(
    select(deliveries.c.next_at)
    .where(text(UNSENT))
    .order_by(deliveries.c.id)
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


@dataclass(frozen=True)
class Delivery:
    """A notice that is being sent: the event with which its mission started to wait, and which attempt this is."""

    id: int
    mission_id: int
    seq: int
    created_at: Micros
    attempt: int


def note_waits(settings: Sequence[FeatureSettings]) -> Callable[[Tx], None] | None:
    """Function that has notices sent of the missions that a transaction lets wait, if there is a webhook."""
    return None if settings_in(settings, NoticeSettings).webhook is None else _note_waits


def _note_waits(tx: Tx) -> None:
    for mission_id, seq in tx.now_waiting.items():
        add(tx, mission_id, seq)


def add(tx: Tx, mission_id: int, seq: int) -> None:
    """Have the notice of a mission's wait sent."""
    tx.run(_ADD, mission=mission_id, seq=seq, now=tx.now)


def take(tx: Tx) -> Delivery | None:
    """Take the oldest notice, if it is due. One whose mission waits no more, or waits anew, is not sent any more."""
    while (row := tx.row(_OLDEST)) is not None:
        number, mission_id, seq, created_at, next_at, attempts, is_current = row
        if next_at > tx.now:
            return None
        if not is_current:
            tx.run(
                _END, this=number, known=attempts, outcome="outdated", now=tx.now, answered=None, fault=None
            )
            continue
        taken = tx.run(_TAKE, this=number, known=attempts, now=tx.now, until=tx.now + _LEASE)
        return Delivery(number, mission_id, seq, created_at, attempts + 1) if taken else None
    return None


def next_at(tx: Tx) -> Micros | None:
    """When the oldest notice is due; None if all have been sent."""
    row = tx.row(_NEXT)
    return None if row is None else int(row[0])


def note_delivered(tx: Tx, delivery: Delivery, status: int) -> None:
    """Store that the server took the notice, unless it was sent anew meanwhile."""
    tx.run(
        _END, this=delivery.id, known=delivery.attempt, outcome="delivered", now=tx.now, answered=status, fault=None
    )  # fmt: skip


def note_failed(tx: Tx, delivery: Delivery, status: int | None, why: str) -> Micros | None:
    """Store why the server did not take it, and when it is sent again; None if it was given up."""
    found: dict[str, object] = {
        "this": delivery.id, "known": delivery.attempt, "answered": status, "fault": why,
    }  # fmt: skip
    if tx.now - delivery.created_at >= GIVE_UP_AFTER:
        tx.run(_END, **found, outcome="given_up", now=tx.now)
        return None
    again = tx.now + min(LONGEST_PAUSE, FIRST_PAUSE << min(delivery.attempt - 1, 20))
    tx.run(_AGAIN, **found, again_at=again)
    return again
