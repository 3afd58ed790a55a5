"""Store what people saw, viewed, approved and said, and how long held jobs wait for them (R5, R14)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from os.path import normpath

from sqlalchemy import bindparam, delete, literal_column, select, text, update

from lcp_engine.clock import Micros
from lcp_engine.core.job_states import (
    APPROVE,
    APPROVE_BLOCKED,
    HOLD,
    HOLD_AGAIN,
    REFUSE,
    REJECT,
    RETRY_HELD,
    State,
)
from lcp_engine.core.reasons import BY_PERSON, Reason, ReasonCode, because, recorded, recorded_code
from lcp_engine.store.db.json_text import JsonObject, from_json, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.row_types import JobRow
from lcp_engine.store.schema import approvals, events, jobs, reviews, turns, viewed_files


@dataclass(frozen=True, slots=True)
class Unseen:
    """Part of an approval that was not on the person's screen: so many `lines`, None if it is not known, `of` all."""

    lines: int | None
    of: int

    @property
    def json(self) -> JsonObject:
        """For the event of the decision."""
        return {"lines": self.lines, "of": self.of}


@dataclass(frozen=True, slots=True)
class Sight:
    """A job as a person saw it: its params by their fingerprint, and the file that it would change.

    `path` is relative to the root, None if the kind names no file. `found` is the file's SHA-256 in hex, None if there
    was none, or the error code if it could not be read. `at`: nothing that was seen is older than this. `after` is
    the SHA-256 of what the file would become, and `job_id` the job; None where they were not noted. `unseen` is stored
    with the decision, which it does not change.
    """

    fingerprint: str
    path: str | None
    found: str | None
    at: Micros
    after: str | None = None
    job_id: int | None = None
    unseen: Unseen | None = field(default=None, compare=False)

    @property
    def mark(self) -> str:
        """A short name for this very look; another one has another mark, even if it showed the same."""
        seen = "\0".join(map(repr, (self.fingerprint, self.path, self.found, self.at)))
        return hashlib.sha256(seen.encode()).hexdigest()[:12]


_SEEN = Statement(
    select(reviews.c.fingerprint, reviews.c.path, reviews.c.sha256, reviews.c.at).where(
        reviews.c.job_id == bindparam("job"), reviews.c.person == bindparam("who")
    )
)
_SEE = Statement(
    text(
        "INSERT INTO reviews (job_id, person, fingerprint, path, sha256, at) "
        "VALUES (:job, :who, :fingerprint, :path, :found, :at) "
        "ON CONFLICT (job_id, person) DO UPDATE SET fingerprint = excluded.fingerprint, path = excluded.path, "
        "sha256 = excluded.sha256, at = excluded.at"
    )
)
_APPROVED = Statement(
    select(approvals.c.fingerprint, approvals.c.path, approvals.c.sha256, approvals.c.at).where(
        approvals.c.job_id == bindparam("job"), approvals.c.attempt == bindparam("first")
    )
)
_APPROVE = Statement(
    text(
        "INSERT INTO approvals (job_id, attempt, person, fingerprint, path, sha256, at) "
        "VALUES (:job, :first, :who, :fingerprint, :path, :found, :at) "
        "ON CONFLICT (job_id, attempt) DO UPDATE SET person = excluded.person, fingerprint = excluded.fingerprint, "
        "path = excluded.path, sha256 = excluded.sha256, at = excluded.at"
    )
)
_SET_PARAMS = Statement(
    update(jobs)
    .where(jobs.c.id == bindparam("job"))
    .values(params=bindparam("new_params"), effect=bindparam("new_effect"))
)
# The mission's own effects in order; undone ones were not approved. Those of jobs that were settled after the approval
# count whatever their time is: the clock may have been set back.
_SINCE = Statement(
    text(
        "SELECT c.sha256_before, c.sha256_after FROM changes c JOIN jobs j ON j.id = c.job_id "
        "WHERE c.mission_id = :mission AND c.file = :file AND c.state = 'applied' AND c.undoes IS NULL "
        "AND (c.closed_at >= :since OR j.settled_seq > (SELECT max(e.seq) FROM events e WHERE e.mission_id = :mission "
        f"AND e.job_id = :approved AND e.event IN ('{APPROVE.event}', '{APPROVE_BLOCKED.event}'))) ORDER BY c.id"
    )
)

_WORKS_IN = Statement(
    text(
        "SELECT coalesce((SELECT path FROM stages WHERE mission_id = :mission), root) FROM missions "
        "WHERE id = :mission"
    )
)


def seen(tx: Tx, job_id: int, person: str) -> Sight | None:
    """Sight that the person last had of the job; None if they never saw it."""
    row = tx.row(_SEEN, job=job_id, who=person)
    return None if row is None else Sight(*row)


def see(tx: Tx, job_id: int, person: str, sight: Sight) -> None:
    """Store what a person was shown, replacing what they saw before."""
    tx.run(_SEE, job=job_id, who=person, **_columns(sight))


def keep_approval(tx: Tx, job_id: int, first: int, person: str, sight: Sight) -> None:
    """Store what a person approved; `first` is the first attempt that this allows."""
    tx.run(_APPROVE, job=job_id, first=first, who=person, **_columns(sight))


def set_params(tx: Tx, job_id: int, params: JsonObject, effect: str | None) -> None:
    """Replace the params of a job, and with them what it has an effect on."""
    tx.run(_SET_PARAMS, job=job_id, new_params=to_json(params), new_effect=effect)


def approved_sight(tx: Tx, job_id: int, first: int) -> Sight | None:
    """Sight that was approved before attempt `first`; None for a job that runs by policy."""
    row = tx.row(_APPROVED, job=job_id, first=first)
    return None if row is None else Sight(*row)


def still_leads_to(tx: Tx, mission_id: int, sight: Sight, found: str | None) -> bool:
    """Like `is_led_to`, of the file that was seen where the mission works: in its stage, or else in its root."""
    if sight.path is None:
        return True
    row = tx.row(_WORKS_IN, mission=mission_id)
    return row is not None and is_led_to(tx, mission_id, normpath(f"{row[0]}/{sight.path}"), sight, found)


def is_led_to(
    tx: Tx, mission_id: int, file: str, sight: Sight, found: str | None, *, approved: int | None = None
) -> bool:
    """True if the file is as it was seen, apart from later changes by jobs of the same mission.

    `approved` is the job that was approved with this sight.
    """
    state = sight.found
    for before, after in tx.rows(_SINCE, mission=mission_id, file=file, since=sight.at, approved=approved):
        if before == state:
            state = after
    return state == found


def _columns(sight: Sight) -> dict[str, object]:
    return {"fingerprint": sight.fingerprint, "path": sight.path, "found": sight.found, "at": sight.at}


_VIEWS = (viewed_files.c.mission_id == bindparam("mission"), viewed_files.c.person == bindparam("who"))
_VIEWED = Statement(select(viewed_files.c.mark, viewed_files.c.was_seen).where(*_VIEWS))
_VIEW = Statement(
    text(
        "INSERT INTO viewed_files (mission_id, person, mark, was_seen) VALUES (:mission, :who, :mark, :was_seen) "
        "ON CONFLICT (mission_id, person, mark) DO UPDATE SET was_seen = excluded.was_seen"
    )
)
_UNVIEW = Statement(delete(viewed_files).where(*_VIEWS, viewed_files.c.mark == bindparam("one")))


def viewed_by(tx: Tx, mission_id: int, person: str) -> dict[str, bool]:
    """The marks of what a person has viewed in a mission, each with whether all of it had been on the screen."""
    return {mark: bool(was_seen) for mark, was_seen in tx.rows(_VIEWED, mission=mission_id, who=person)}


def keep_viewed(tx: Tx, mission_id: int, person: str, mark: str, *, was_seen: bool) -> None:
    """Note that a person has viewed what has this mark."""
    tx.run(_VIEW, mission=mission_id, who=person, mark=mark, was_seen=int(was_seen))


def drop_viewed(tx: Tx, mission_id: int, person: str, mark: str) -> None:
    """Take such a note back; nothing happens without one."""
    tx.run(_UNVIEW, mission=mission_id, who=person, one=mark)


_HOLDS = (HOLD.event, HOLD_AGAIN.event, RETRY_HELD.event)
_WORDS = ", ".join(f"'{event}'" for event in (*_HOLDS, APPROVE.event, APPROVE_BLOCKED.event))
_LATEST_FIRST = Statement(
    select(events.c.event, events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text(f"event IN ({_WORDS})"))
    .order_by(events.c.seq.desc())
)
_ANY = Statement(
    select(events.c.seq)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(events.c.event == bindparam("event"))
)

_EQUAL_REJECTED = Statement(
    select(jobs.c.id)
    .where(text("fingerprint IS NOT NULL"), jobs.c.mission_id == bindparam("mission"))
    .where(jobs.c.fingerprint == bindparam("fingerprint"), text("state = 'rejected'"))
)
_EFFECTS = Statement(
    select(jobs.c.id, jobs.c.effect, jobs.c.state)
    .where(text("fingerprint IS NOT NULL"), jobs.c.mission_id == bindparam("mission"))
    .where(jobs.c.effect.is_not(None))
    .order_by(jobs.c.id)
)
_REJECTIONS = Statement(
    text(
        f"SELECT job_id, data FROM events WHERE mission_id = :mission AND event = '{REJECT.event}' AND seq > (SELECT "
        "coalesce(max(seq), 0) FROM events WHERE mission_id = :mission AND event = 'resumed') ORDER BY seq DESC"
    )
)
_LAST_NO = Statement(
    select(events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text(f"event IN ('{REJECT.event}', '{REFUSE.event}')"))
    .order_by(events.c.seq.desc())
)

_DECISIONS = Statement(
    select(events.c.data, events.c.at)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text("event = 'decided'"))
    .order_by(events.c.seq.desc())
)
_DID = {"approve": "approved", "reject": "rejected", "answer": "answered", "retry": "retried"}


def has_event(tx: Tx, job: JobRow, event: str) -> bool:
    """True if something of that name has happened to the job."""
    return tx.row(_ANY, mission=job.mission_id, job=job.id, event=event) is not None


def last_decision(tx: Tx, job: JobRow) -> str | None:
    """Last decision on the job and its person, as the end of a sentence; None if there was no decision."""
    row = tx.row(_DECISIONS, mission=job.mission_id, job=job.id)
    if row is None:
        return None
    data = from_json(row[0])
    how = " with other params" if data.get("params") else ""
    return f"{data.get('by')} has {_DID.get(str(data.get('decision')), 'decided')} it{how}"


def approved_at(tx: Tx, job: JobRow) -> Micros | None:
    """When the last approval let the job run."""
    rows = tx.rows(_DECISIONS, mission=job.mission_id, job=job.id)
    return next((at for data, at in rows if from_json(data).get("decision") == "approve"), None)


def unanswered_hold(tx: Tx, job: JobRow) -> Reason | None:
    """Reason why the job was held without an approval since; None if it was not held since the last approval."""
    row = tx.row(_LATEST_FIRST, mission=job.mission_id, job=job.id)
    if row is None or row[0] not in _HOLDS:
        return None
    reason = None if row[1] is None else recorded(from_json(row[1]))
    return reason if reason is not None and reason.text else because(ReasonCode.HELD_BEFORE)


def rejection_before(tx: Tx, mission_id: int, fingerprint: str) -> tuple[int, str] | None:
    """The newest equal job that a person has rejected since the mission was last resumed, and their reason."""
    equal = {row[0] for row in tx.rows(_EQUAL_REJECTED, mission=mission_id, fingerprint=fingerprint)}
    if not equal:
        return None
    return next(((job, words) for job, words in _rejections(tx, mission_id) if job in equal), None)


def declined_effects(tx: Tx, mission_id: int) -> frozenset[str]:
    """Effects that a person did not let jobs have, where nothing that was requested later is open or settled."""
    declined = {job for job, _ in _rejections(tx, mission_id)}
    last: dict[str, bool] = {}
    for job, effect, state in tx.rows(_EFFECTS, mission=mission_id):
        if job in declined or state != State.REJECTED:
            last[effect] = job in declined
    return frozenset(effect for effect, is_declined in last.items() if is_declined)


def rejected_effects(tx: Tx, mission_id: int) -> frozenset[str]:
    """Effects that jobs were to have where all of them are rejected."""
    states: dict[str, set[str]] = {}
    for _, effect, state in tx.rows(_EFFECTS, mission=mission_id):
        states.setdefault(effect, set()).add(state)
    return frozenset(effect for effect, found in states.items() if found == {State.REJECTED})


def was_rejected_by_person(tx: Tx, job: JobRow) -> bool:
    """True if the job is rejected because a person decided on it or on an equal one, or decided too late."""
    row = tx.row(_LAST_NO, mission=job.mission_id, job=job.id)
    return row is not None and row[0] is not None and recorded_code(from_json(row[0])) in BY_PERSON


def _rejections(tx: Tx, mission_id: int) -> list[tuple[int, str]]:
    """The jobs that people have rejected since the mission was last resumed, newest first, with their reasons."""
    found = ((row[0], from_json(row[1])) for row in tx.rows(_REJECTIONS, mission=mission_id))
    return [
        (job, str(data.get("reason"))) for job, data in found if recorded_code(data) is ReasonCode.REJECTED
    ]


def was_held_for(tx: Tx, job: JobRow, code: ReasonCode) -> bool:
    """True if an attempt of the job was held for this reason: if it runs again, a person has approved it since."""
    rows = tx.rows(_LATEST_FIRST, mission=job.mission_id, job=job.id)
    return any(
        recorded_code(from_json(data)) is code for event, data in rows if event == HOLD_AGAIN.event and data
    )


def hold_code(tx: Tx, mission_id: int, job_id: int) -> ReasonCode | None:
    """The code of the reason for which the job was held last; None if it has none."""
    rows = tx.rows(_LATEST_FIRST, mission=mission_id, job=job_id)
    data = next((data for event, data in rows if event in _HOLDS), None)
    return None if data is None else recorded_code(from_json(data))


_HELD = text("state = 'held'")
_DUE = Statement(
    select(jobs.c.id, jobs.c.mission_id)
    .where(_HELD, jobs.c.held_until <= bindparam("now"))
    .order_by(jobs.c.held_until)
    .limit(bindparam("most"))
    .offset(bindparam("none"))
)
MOST = 100


@lru_cache(maxsize=256)
def hold_seconds(spec: str) -> float | None:
    """Seconds that a person has to decide on a held job of a mission, whose spec is given as it is stored."""
    stated = json.loads(spec).get("hold_timeout")
    return None if stated is None else float(stated)


def due_holds(tx: Tx, now: Micros) -> Sequence[tuple[int, int]]:
    """Held jobs whose deadline has passed, at most `MOST`: each with its mission."""
    return [(row[0], row[1]) for row in tx.rows(_DUE, now=now, most=MOST, none=0)]


CONSENTED = "consented"
"""The event of an approval that waits for those of other people."""
_CONSENTS = Statement(
    select(events.c.event, events.c.data)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id == bindparam("job"))
    .where(text(f"event IN ({', '.join(repr(event) for event in (*_HOLDS, CONSENTED))})"))
    .order_by(events.c.seq.desc())
)
_REQUESTER = Statement(
    text(
        "SELECT (SELECT e.data FROM events e WHERE e.mission_id = m.id AND e.event = 'launched'), m.user_id "
        "FROM missions m WHERE m.id = :mission"
    )
)


def consents_since_hold(tx: Tx, mission_id: int, job_id: int) -> list[tuple[str, Sight]]:
    """People who have approved a job since it was held, while it waits for more, and what each saw."""
    found: list[tuple[str, Sight]] = []
    for event, data in tx.rows(_CONSENTS, mission=mission_id, job=job_id):
        if event != CONSENTED:
            break
        said = from_json(data)
        if said["mission"] == mission_id:  # a fork has its own people
            path, hash_found = (None if said[key] is None else str(said[key]) for key in ("path", "found"))
            sight = Sight(str(said["fingerprint"]), path, hash_found, int(str(said["seen_at"])))
            found.append((str(said["by"]), sight))
    return found


def requester_of(tx: Tx, mission_id: int) -> frozenset[str]:
    """People who launched a mission, or had it launched by a request, as far as that is known."""
    row = tx.row(_REQUESTER, mission=mission_id)
    if row is None:
        return frozenset()
    launched = {} if row[0] is None else from_json(row[0])
    return frozenset(str(person) for person in (launched.get("by"), row[1]) if person is not None)


SAID = "said"
_SAID = Statement(
    select(events.c.job_id, events.c.data)
    .where(events.c.mission_id == bindparam("mission"), text(f"event = '{SAID}'"))
    .where(events.c.seq > bindparam("after"), events.c.seq <= bindparam("until"))
    .order_by(events.c.seq)
)
_LAST_TURN = Statement(
    select(turns.c.until_seq)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.plan_id == bindparam("plan"))
    .where(turns.c.turn < bindparam("turn"))
    .order_by(turns.c.number.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)


def said_to(
    tx: Tx, mission_id: int, plan_id: int, after_seq: int, until_seq: int
) -> Sequence[tuple[int | None, JsonObject]]:
    """The messages to a plan in a range of events: the job that each is about, and the event's data."""
    rows = tx.rows(_SAID, mission=mission_id, after=after_seq, until=until_seq)
    found = [(row[0], from_json(row[1])) for row in rows]
    return [(job_id, said) for job_id, said in found if said.get("plan") == plan_id]


def heard_until(tx: Tx, mission_id: int, plan_id: int, turn: int) -> int:
    """Up to which event earlier turns of a plan got all messages; a corrective question belongs to its turn."""
    row = tx.row(_LAST_TURN, mission=mission_id, plan=plan_id, turn=turn)
    return 0 if row is None else int(row[0])
