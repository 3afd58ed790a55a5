"""Store the writes of programs (the table `api_writes`), each in the transaction of its effect; find events by time."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from pydantic import JsonValue
from sqlalchemy import BigInteger, Column, Integer, Table, Text

from lcp_engine.clock import SECOND, Micros
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.schema import metadata

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine

P = ParamSpec("P")
T = TypeVar("T")
KEPT: Micros = 24 * 3600 * SECOND
"""How long a key is known."""
MOST_KEPT = 256 * 1024
"""Characters of an answer that is kept; a larger one is made anew."""
BLOCK = 1024
"""Missions whose events are counted together, so that a look at all of them reads few rows."""
OVERLAP: Micros = 10 * SECOND
"""Transactions are shorter: what had begun before an event is committed so long after it."""

api_writes = Table(
    "api_writes",
    metadata,
    Column("token", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", Text, nullable=False),
    Column("done", Text),
    Column("status", Integer),
    Column("answer", Text),
    Column("at", BigInteger, nullable=False, index=True),
    sqlite_with_rowid=False,
)
"""Writes by the token and the key of their requests, of which `request` is a hash. `done` is the result of the write,
stored in the transaction of its effect; status and answer follow it."""

_FIND = Sql(
    "SELECT request, done, status, answer FROM api_writes WHERE token = :token AND key = :key",
    token=str,
    key=str,
)
_CLAIM = Sql(
    "INSERT INTO api_writes (token, key, request, done, at) VALUES (:token, :key, :request, :done, :now)",
    token=str, key=str, request=str, done=str, now=int,
)  # fmt: skip
_ANSWER = Sql(
    "INSERT INTO api_writes (token, key, request, done, status, answer, at) "
    "VALUES (:token, :key, :request, :done, :status, :answer, :now) "
    "ON CONFLICT (token, key) DO UPDATE SET done = excluded.done, status = excluded.status, answer = excluded.answer",
    token=str, key=str, request=str, done=str, status=int, answer=str, now=int,
)  # fmt: skip
_FORGET = Sql("DELETE FROM api_writes WHERE at < :before", before=int)
_LATE = Sql(
    "SELECT m.id, m.events FROM missions m JOIN events e ON e.mission_id = m.id AND e.seq = m.events "
    "WHERE e.at >= :since",
    since=int,
)
_SUMS = Sql(f"SELECT id / {BLOCK}, sum(events) FROM missions GROUP BY 1")
_COUNTS = Sql("SELECT id, events FROM missions WHERE id >= :first AND id < :end", first=int, end=int)
_BEFORE = Sql(
    "SELECT coalesce(max(seq), 0) FROM events WHERE mission_id = :mission AND at < :since",
    mission=int,
    since=int,
)


@dataclass(frozen=True)
class Claim:
    """A write by its token and key, with a hash of what was asked."""

    token: str
    key: str
    request: str


@dataclass(frozen=True)
class Written:
    """A write that was done; `status` is None, and `answer` is empty, if nothing is kept of its answer."""

    done: JsonValue
    status: int | None
    answer: str


def find_write(tx: Tx, claim: Claim) -> Written | None:
    """The write that this key was used for. Raises `CONFLICT` if something else was asked then."""
    row = tx.row(_FIND, token=claim.token, key=claim.key)
    if row is None:
        return None
    request, done, status, answer = row
    if request != claim.request:
        message = f"the key {claim.key!r} was used for another request; nothing was done"
        raise LcpError(ErrorCode.CONFLICT, message, advice="Use a new key for each thing that is to be done.")
    return Written(json.loads(done or "null"), status, answer or "")


def keep_answer(ledger: Ledger, claim: Claim, done: JsonValue, status: int, answer: str) -> None:
    """Store what a write was answered, and forget the keys of days ago."""
    is_kept = len(answer) <= MOST_KEPT
    ledger.tx.run(
        _ANSWER, token=claim.token, key=claim.key, request=claim.request, done=json.dumps(done),
        status=status if is_kept else None, answer=answer if is_kept else None, now=ledger.tx.now,
    )  # fmt: skip
    ledger.tx.run(_FORGET, before=ledger.tx.now - KEPT)


class WrittenBefore(Exception):
    """Another request has used the key meanwhile; nothing was done."""


@dataclass(frozen=True)
class _Claiming(Instance):
    """Stores a claim in the transaction of a call that decides, after so many others of it.

    A claim stays, whatever is refused after that transaction: its effect is there, and nothing may have it twice.
    """

    claim: Claim | None = None
    others: int = 0

    def write(self, use_case: Callable[Concatenate[Ledger, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Like that of the instance; the one that decides raises `WrittenBefore` if the claim is there already."""
        claim, left = self.claim, self.others

        def claimed(ledger: Ledger) -> T:
            if claim is None or left != 0:
                return use_case(ledger, *args, **kwargs)
            if find_write(ledger.tx, claim) is not None:
                raise WrittenBefore
            result = use_case(ledger, *args, **kwargs)
            done = result if isinstance(result, bool | int) else None
            ledger.tx.run(
                _CLAIM, token=claim.token, key=claim.key, request=claim.request, done=json.dumps(done),
                now=ledger.tx.now,
            )  # fmt: skip
            return result

        result = super().write(claimed)
        object.__setattr__(self, "others", left - 1)
        return result


def claiming(engine: Engine, claim: Claim, others: int) -> Engine:
    """The engine for one call, whose transaction after so many others stores the claim with what it came to."""
    own = {one.name: getattr(engine.instance, one.name) for one in fields(Instance)}
    made = copy.copy(engine)
    made.instance = _Claiming(**own, claim=claim, others=others)
    return made


def counts_since(tx: Tx, sums: Mapping[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """Sums of events by `BLOCK` missions, and numbers of the last events of the missions where one is another one."""
    found = {int(block): int(events) for block, events in tx.rows(_SUMS)}
    changed = [block for block, events in found.items() if events != sums.get(block)]
    rows = (tx.rows(_COUNTS, first=block * BLOCK, end=(block + 1) * BLOCK) for block in changed)
    return found, {int(mission): int(events) for counts in rows for mission, events in counts}


def positions_at(tx: Tx, since: Micros) -> dict[int, tuple[int, int]]:
    """The last event before a time, and the last one, of each mission with a later one.

    Raises `INVALID_ARGUMENT` for a time to come.
    """
    if since > tx.now:
        message = "the event that was named last is from the future; begin without one"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
    late = since - OVERLAP
    return {
        int(mission): (int(tx.rows(_BEFORE, mission=mission, since=late)[0][0]), int(last))
        for mission, last in tx.rows(_LATE, since=late)
    }
