"""Start a new mission from a turn of another one, and tell what has changed in the root since."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.core.mission.spec import MissionSpec, PlannerSpec
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.engine.instance import Site
from lcp_engine.engine.plans.progress import refresh
from lcp_engine.engine.plans.turn_queue import acting_plan
from lcp_engine.engine.question import keep_reply, new_question
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.registry import make_planner
from lcp_engine.replay.root_drift import Drift, find_drift
from lcp_engine.sandbox.confined_thread import walls_of
from lcp_engine.sandbox.preload import load_late
from lcp_engine.sandbox.root import Root
from lcp_engine.store.copy_mission import Copied, copy_until
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.queries.archive import Archive, PastEvent, PastTurn, read_archive
from lcp_engine.store.queries.states_at import lives_until
from lcp_engine.store.turns import StoredReply

MOST_TOLD = 100
"""Paths that the history names."""


@dataclass(frozen=True)
class Forked:
    """The id of the new mission, and what has changed in its root. `unknown` jobs saw what cannot be compared."""

    id: int
    changed: tuple[Drift, ...]
    unknown: tuple[int, ...]

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "id": self.id,
            "changed": [drift.as_json() for drift in self.changed],
            "unknown": list(self.unknown),
        }


def fork(
    site: Site, mission_id: int, turn: int, *, reply: str | None, planner: PlannerSpec | None, by: str
) -> Forked:
    """Queue a new mission that stands where mission `mission_id` stood when it asked `turn`, on the root as it is.

    The turn is answered by `reply` if given, else by `planner` or the mission's own. Raises `NOT_FOUND`,
    `WRONG_STATE` for a mission without a planner, `NO_PLANNER`, `PATH_NOT_FOUND` for a root that is gone.
    """
    past = site.database.read(lambda tx: read_archive(tx, mission_id))
    asked, _ = _find_turn(past, turn)
    spec = spec_of(past.spec)
    if planner is not None:
        spec = spec.model_copy(update={"planner": planner})
    make_planner(spec.planner, site.surroundings)
    assert past.root is not None
    with Root(past.root) as root:
        lives = lives_until(past, asked)
        load_late()
        changed, unknown = walls_of(site.isolation).look(root, lambda: find_drift(site, past, lives, root))

    told: dict[str, JsonValue] = {"by": by, "mission": mission_id, "turn": turn}
    told["changed"] = [drift.path for drift in changed[:MOST_TOLD]]

    def work(tx: Tx) -> int:
        branch = _store(ledger_of(tx), mission_id, turn, spec)
        return _begin(ledger_of(tx), branch, reply, told, has_changed=bool(changed))

    return Forked(site.database.write(work), changed, unknown)


def _find_turn(past: Archive, turn: int) -> tuple[PastEvent, PastTurn]:
    """The first question of a turn, with its event. Raises `WRONG_STATE`, `NOT_FOUND`."""
    if past.root is None or not past.turns:
        fact = "it has no planner" if past.root is None else "none is asked yet"
        raise LcpError(ErrorCode.WRONG_STATE, f"mission {past.id} needs turns to be forked; {fact}")
    question = next((one for one in past.turns.values() if one.turn == turn), None)
    number = None if question is None else question.number
    told = (event for event in past.events if event.event == "asked" and event.data.get("question") == number)
    asked = next(told, None)
    if question is None or asked is None:
        last = max(one.turn for one in past.turns.values())
        raise LcpError(
            ErrorCode.NOT_FOUND, f"mission {past.id} has the turns 1 to {last}; there is no turn {turn}"
        )
    return asked, question


def _store(ledger: Ledger, mission_id: int, turn: int, spec: MissionSpec) -> Copied:
    ledger.lock([mission_id])
    ledger.keep_results()
    past = read_archive(ledger.tx, mission_id)
    asked, question = _find_turn(past, turn)
    stated = spec.model_dump_json(by_alias=True)
    lives = lives_until(past, asked)
    return copy_until(ledger.tx, past, question, asked, lives, spec=stated, planner=spec.planner.type)


def _begin(
    ledger: Ledger, copied: Copied, reply: str | None, told: dict[str, JsonValue], *, has_changed: bool
) -> int:
    mission = ledger.mission(copied.mission_id)
    if has_changed:
        # What was read before may be asked for again: it is no repetition (R11).
        mission.changed_seq = mission.events + 1
    used: dict[str, JsonValue] = {
        "changed_seq": mission.changed_seq,
        "bytes_written": mission.bytes_written,
    }
    ledger.note(mission, "forked", None, {**told, **used})
    if reply is not None:
        _answer(ledger, copied.job_id, reply)
    refresh(ledger, mission)
    ledger.tx.wakes = True
    return mission.id


def _answer(ledger: Ledger, job_id: int, reply: str) -> None:
    """Store the reply before anybody asks: whoever takes the turn finds it and uses it (R21)."""
    job = ledger.job(job_id)
    mission, plan = ledger.mission(job.mission_id), acting_plan(ledger, job)
    asked = new_question(ledger, job, mission, plan, from_json(job.params))
    if asked is None:
        raise LcpError(ErrorCode.LIMIT_REACHED, "a limit leaves the turn no question that could be answered")
    keep_reply(ledger, asked, StoredReply(reply, None, None, None, 0.0))
