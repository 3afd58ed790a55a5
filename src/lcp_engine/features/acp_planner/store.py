"""Read and write what the turns of an agent share: the calls under way, those that wait behind a turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from sqlalchemy import text

from lcp_engine.core.job_states import Need, State
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.edges import Edge, connect

USED = "permission_used"
"""The event of an approval that was given to a later, equal call."""
_UNDER_WAY = Statement(
    text(
        "SELECT id FROM jobs WHERE mission_id = :mission AND parent_id = :turn AND state = 'blocked' ORDER BY id"
    )
)
_EARLIER = Statement(
    text(
        "SELECT id, state, reason, params, result FROM jobs WHERE mission_id = :mission AND kind = :kind "
        "AND state IN ('held', 'succeeded', 'rejected') AND waits_for IS NOT NULL ORDER BY id DESC"
    )
)
_USED = Statement(
    text(f"SELECT 1 FROM events WHERE mission_id = :mission AND job_id = :job AND event = '{USED}'")
)
_NAME = Statement(text("UPDATE jobs SET name = :called WHERE id = :job"))
_WAITS = Statement(text("UPDATE jobs SET waits_for = 1 WHERE id = :job"))
_FOLLOWED = Statement(text("UPDATE jobs SET followers = followers + 1 WHERE id = :job"))


def calls_under_way(tx: Tx, mission_id: int, turn: int) -> list[int]:
    """The jobs of calls of a turn that have no end yet and wait for no person."""
    return [int(row[0]) for row in tx.rows(_UNDER_WAY, mission=mission_id, turn=turn)]


class EarlierCall(NamedTuple):
    """A call of a mission that a person was asked about; `result` and `reason` are those of its job."""

    job_id: int
    state: State
    reason: str | None
    params: JsonObject
    result: JsonObject


def earlier_calls(tx: Tx, mission_id: int, kind: str) -> Iterator[EarlierCall]:
    """Calls of a kind that were asked about and are held, allowed or rejected, the newest first."""
    for row in tx.rows(_EARLIER, mission=mission_id, kind=kind):
        result = {} if row[4] is None else from_json(str(row[4]))
        yield EarlierCall(int(row[0]), State(row[1]), row[2], from_json(str(row[3])), result)


def is_used(tx: Tx, mission_id: int, job_id: int) -> bool:
    """True if the approval of a call has been given to a later, equal one."""
    return tx.row(_USED, mission=mission_id, job=job_id) is not None


def name_call(tx: Tx, job_id: int, name: str | None) -> None:
    """Give the job of a call its name: agents say late what they do."""
    tx.run(_NAME, job=job_id, called=name)


def put_behind(tx: Tx, turn: int, job: int) -> None:
    """Let a job wait for the end of a turn: while that lives, an approval reaches the agent, and no runner."""
    connect(tx, [Edge(turn, job, Need.END)])
    tx.run(_WAITS, job=job)
    tx.run(_FOLLOWED, job=turn)
