"""Hand out permits to start jobs: limits of kinds, planners and missions, shared by all runners of a database.

A claim takes the permits of all its jobs at once. Jobs without one are set aside (`limited_by`), where they are in no
claim's way; once permits are due, a claim makes as many of them ready again, so that urgency alone orders what is
ready. A runner remembers when to look at each limit, and asks the database once a second what others have set aside.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import zip_longest
from operator import attrgetter

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Integer,
    Table,
    Text,
    bindparam,
    exists,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import Role
from lcp_engine.core.limits.permits import BLOCK, MINUTE, UNLIMITED, Limit, Permits, limit_of
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.store.conditions import READY, WAITING
from lcp_engine.store.db.json_text import to_json
from lcp_engine.store.db.statements import Statement, update_rows
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queue import (
    BY_URGENCY,
    MOST_DUE,
    ClaimGate,
    MissionFilter,
    Scope,
    in_scope,
    in_turn,
    line_of,
    of_mission,
    scope_params,
)
from lcp_engine.store.row_types import JobRow
from lcp_engine.store.schema import Id, jobs, metadata

limits = Table(
    "limits",
    metadata,
    Column("name", Text, primary_key=True),
    Column("kind", Text),
    Column("mission_id", Id),
    Column("spacing", BigInteger),
    Column("burst", Integer, nullable=False, server_default=text("1")),
    Column("max_running", Integer),
    Column("full_at", BigInteger, nullable=False, server_default=text("0")),
    Column("holders", Text, nullable=False, server_default=text("'[]'")),
    sqlite_with_rowid=False,
)
"""Limits that were met: of which kind and mission (NULL: of any), what they permit, and what was taken of it.
`spacing` is between two starts, NULL without a rate; the bucket has all `burst` permits again at `full_at`. `holders`
are the jobs that count for `max_running`, each with its attempt, in JSON: one that no longer runs holds nothing."""

LOOK_SECONDS = 1.0
"""How often a runner asks which jobs wait for permits; it knows at once of those that it has set aside itself."""
BUSY: Micros = SECOND // 200
"""When to look again at a limit that another claim has locked."""


@dataclass(frozen=True)
class Named:
    """A limit with the name under which all runners know it: for jobs of which kind and mission, None for any."""

    name: str
    limit: Limit
    kind: str | None = None
    mission_id: int | None = None

    @property
    def subject(self) -> str:
        """Whom it limits, in words."""
        kind = None if self.kind is None else f"kind {self.kind}"
        mission = None if self.mission_id is None else f"mission {self.mission_id}"
        return " of ".join(filter(None, (kind, mission))) or self.name.replace(":", " ", 1)

    @property
    def is_general(self) -> bool:
        """True if kind and mission of a job do not say that it is limited."""
        return self.kind is None and self.mission_id is None

    def is_about(self, kind: str, mission_id: int) -> bool:
        """True if kind and mission of a job say that it is limited."""
        return self.kind in (None, kind) and self.mission_id in (None, mission_id) and not self.is_general


def of_kind(kind: str, limit: Limit) -> Named:
    """The limit of a kind, whichever mission its jobs belong to."""
    return Named(f"kind:{kind}", limit, kind=kind)


@dataclass
class _Bucket:
    """A limit with what it permits now, its row locked; `is_locked`: by another claim, so that it permits nothing."""

    named: Named
    permits: Permits
    holders: list[tuple[int, int]]
    """The jobs that count for `max_running`, with their attempts."""
    is_locked: bool = False
    is_changed: bool = False

    @property
    def left(self) -> int | None:
        return 0 if self.is_locked else self.permits.left

    def take(self, job: JobRow) -> None:
        self.permits.take()
        if self.named.limit.max_running is not None:
            self.holders.append((job.id, job.attempt + 1))
        self.is_changed = True

    def give_back(self) -> None:
        self.permits.give_back()
        self.is_changed = not self.is_locked

    @property
    def look_at(self) -> Micros:
        """When jobs that wait for it should be looked at."""
        if self.is_locked:
            return self.permits.now + BUSY
        at = self.permits.next_at
        return at if self.permits.has_free_place else max(at, self.permits.now + int(LOOK_SECONDS * SECOND))

    @property
    def reason(self) -> Reason:
        """Reason why a job has no permit."""
        limit, of = self.named.limit, self.named.subject
        if limit.spacing is None or not self.permits.has_free_place:
            return because(ReasonCode.MAX_RUNNING, of=of, most=limit.max_running)
        return because(ReasonCode.RATE_LIMIT, of=of, often=how_often(limit.spacing))


def how_often(spacing: Micros) -> str:
    """A rate in words: `60 times a minute`."""
    return f"{MINUTE / spacing:.6g} times a minute"


_COLUMNS = (
    limits.c.name, limits.c.kind, limits.c.mission_id, limits.c.spacing, limits.c.burst, limits.c.max_running,
    limits.c.full_at, limits.c.holders,
)  # fmt: skip
_NAMED = {
    "sqlite": text("name IN (SELECT value FROM json_each(:names))"),
    "postgresql": text("name IN (SELECT jsonb_array_elements_text(CAST(:names AS jsonb)))"),
}
_THESE = {
    "sqlite": text("id IN (SELECT value FROM json_each(:ids)) AND state = 'running'"),
    "postgresql": text("id = ANY (CAST(:ids AS bigint[])) AND state = 'running'"),
}
_WAITING = text(WAITING)
_WAITING_FOR = f"{WAITING} AND limited_by = :limit"
_ZERO: ColumnElement[int] = literal_column("0")
_INSERT = "INSERT INTO limits (name, kind, mission_id, spacing, burst, max_running)"
# An INSERT would wait for another one of the same name, whose transaction may wait for this one.
_NEW = {
    "sqlite": Statement(
        text(
            f"{_INSERT} VALUES (:name, :kind, :mission, :spacing, :burst, :max_running) ON CONFLICT DO NOTHING"
        )
    ),
    "postgresql": Statement(
        text(
            f"{_INSERT} SELECT CAST(:name AS text), CAST(:kind AS text), CAST(:mission AS bigint), "
            "CAST(:spacing AS bigint), CAST(:burst AS integer), CAST(:max_running AS integer) "
            "WHERE pg_try_advisory_xact_lock(hashtextextended(:name, 0)) ON CONFLICT DO NOTHING"
        )
    ),
}
_STATE = Statement(
    text(
        f"{_INSERT} VALUES (:name, :kind, :mission, :spacing, :burst, :max_running) ON CONFLICT (name) DO UPDATE "
        "SET spacing = excluded.spacing, burst = excluded.burst, max_running = excluded.max_running"
    )
)
_TAKEN = Statement(
    update(limits)
    .where(limits.c.name == bindparam("limit"))
    .values(
        spacing=bindparam("new_spacing"),
        burst=bindparam("new_burst"),
        max_running=bindparam("new_max_running"),
        full_at=bindparam("new_full_at"),
        holders=bindparam("new_holders"),
    )
)
_OF_KINDS = Statement(select(*_COLUMNS).where(limits.c.kind.is_not(None), limits.c.mission_id.is_(None)))
_SET_ASIDE = update_rows(
    {"job": jobs.c.id, "limit": jobs.c.limited_by, "why": jobs.c.reason},
    lambda given: (
        update(jobs)
        .where(jobs.c.id == given("job"), text(READY))
        .values(limited_by=given("limit"), reason=given("why"))
    ),
)
_MAKE_READY = update_rows(
    {"job": jobs.c.id},
    lambda given: (
        update(jobs).where(jobs.c.id == given("job"), _WAITING).values(limited_by=null(), reason=null())
    ),
)


@cache
def _locked(database: str) -> Statement:
    """The rows of some limits; on PostgreSQL those that other claims have locked are left out."""
    clause = select(*_COLUMNS).where(_NAMED[database]).order_by(limits.c.name)
    return Statement(clause.with_for_update(skip_locked=True))


@cache
def _there(database: str) -> Statement:
    """Which of some limits have a row."""
    return Statement(select(limits.c.name).where(_NAMED[database]))


@cache
def _running(database: str) -> Statement:
    return Statement(select(jobs.c.id, jobs.c.attempt).where(_THESE[database]))


@cache
def _waited_for(scope: Scope, away: str | None) -> Statement:
    """All limits of kinds, and those of others for which jobs of a scope wait; whether such jobs wait."""
    waits = exists(literal_column("1")).where(_WAITING, jobs.c.limited_by == limits.c.name)
    waits = waits.where(*in_scope(scope, away)).correlate(limits)
    of_kinds = text("limits.mission_id IS NULL AND limits.kind IS NOT NULL")
    return Statement(select(*_COLUMNS, waits).where(or_(of_kinds, waits)))


@cache
def _waiting(scope: Scope) -> Statement:
    """The mission's next jobs of one priority that wait for a limit."""
    clause = select(jobs.c.id, jobs.c.mission_id).where(text(_WAITING_FOR), *of_mission(scope))
    return Statement(clause.order_by(*BY_URGENCY).limit(bindparam("most")).offset(_ZERO))


@cache
def _next_ready(scope: Scope, away: str | None) -> Statement:
    """The next jobs of a scope that are ready."""
    clause = select(jobs.c.id, jobs.c.kind, jobs.c.mission_id).where(text(READY), *in_scope(scope, away))
    return Statement(clause.order_by(*BY_URGENCY).limit(literal_column(f"{MOST_DUE}")).offset(_ZERO))


@lru_cache(maxsize=4096)
def _stated(mission_id: int, spec: str) -> Mapping[str | None, Named]:
    """The limits that a mission states for its jobs: by their kind, None for all."""
    known, name = spec_of(spec), f"mission:{mission_id}"
    stated: dict[str | None, Named] = {
        kind: Named(f"{name}:kind:{kind}", limit_of(one.rate_limit, one.max_running), kind, mission_id)
        for kind, one in known.kinds.items()
    }
    stated[None] = Named(name, limit_of(None, known.limits.max_running), mission_id=mission_id)
    return {kind: named for kind, named in stated.items() if not named.limit.is_none}


def state_kinds(tx: Tx, stated: Mapping[str, Limit]) -> None:
    """Store what a runner knows of the limits of kinds, for all runners: the one that was started last decides."""
    known = {str(row[1]): _limit(row) for row in tx.rows(_OF_KINDS)}
    for kind, limit in stated.items():
        if known.get(kind, UNLIMITED) != limit:
            tx.send(_STATE, **_values(of_kind(kind, limit)))


class PermitOffice:
    """Limits as one runner knows them: those of kinds, and when to look at each for which jobs of its scope wait.

    Any thread may call. If a transaction fails, what it remembers is wrong, for `LOOK_SECONDS` at most.
    """

    def __init__(
        self,
        scope: Scope,
        served: MissionFilter,
        monotonic: Callable[[], float] = time.monotonic,
        endpoint_of: Callable[[str], tuple[str, Limit] | None] = lambda spec: None,
    ) -> None:
        """`endpoint_of` names the server that the planner of a mission's spec asks, with its limit."""
        self._scope = scope
        self._served = served
        self._monotonic = monotonic
        self._endpoint_of = endpoint_of
        self._looked = -math.inf
        self._kinds: Mapping[str, Named] = {}
        self._waited_for: dict[str, Named] = {}
        self._looks: dict[str, Micros] = {}
        self._passed: dict[str, int] = {}

    def next_look(self, tx: Tx) -> Micros | None:
        """When jobs that wait for a permit should be looked at; None if none wait."""
        self._look_around(tx)
        return min([*self._looks.values()], default=None)

    def note_ended(self, ended: Sequence[JobRow]) -> None:
        """Look at the limits of these jobs with the next claim: others may run in their place."""
        for name, named in [*self._waited_for.items()]:
            if named.limit.max_running is not None and any(
                named.is_general or named.is_about(job.kind, job.mission_id) for job in ended
            ):
                self._looks[name] = 0

    def make_ready(self, ledger: Ledger) -> None:
        """Make jobs ready that were set aside, as far as there are permits for them now."""
        tx = ledger.tx
        self._look_around(tx)
        due = [self._waited_for[name] for name, at in [*self._looks.items()] if at <= tx.now]
        if due:
            buckets = self._open(tx, due).values()
            self._keep(tx, buckets)
            for bucket in buckets:
                if bucket.left != 0:
                    self._make_ready(ledger, bucket)

    def admit(self, ledger: Ledger, found: list[JobRow]) -> tuple[list[JobRow], bool]:
        """Those of the found jobs that have a permit, which is taken, and whether others were set aside."""
        limited = self._limited(ledger, found)
        if not limited:
            return found, False
        buckets = self._open(ledger.tx, {named for all_ in limited.values() for named in all_})
        admitted: list[JobRow] = []
        aside: dict[int, _Bucket] = {}
        for job in found:
            needed = [buckets[named.name] for named in limited.get(job.id, ())]
            lacking = next((bucket for bucket in needed if bucket.left == 0), None)
            if lacking is not None:
                aside[job.id] = lacking
                continue
            for bucket in needed:
                bucket.take(job)
            admitted.append(job)
        self._keep(ledger.tx, buckets.values())
        if 2 * len(aside) > len(found):
            aside |= self._ahead(ledger, [*buckets.values()], {job.id for job in found})
        self._set_aside(ledger.tx, aside)
        return admitted, bool(aside)

    def give_back(self, ledger: Ledger, released: Sequence[JobRow]) -> None:
        """Take back the starts of jobs that were claimed and have not begun; their missions are locked."""
        limited = self._limited(ledger, released)
        rated = {named for all_ in limited.values() for named in all_ if named.limit.spacing is not None}
        if rated:
            buckets = self._open(ledger.tx, rated)
            for bucket in buckets.values():
                for job in released:
                    if bucket.named in limited.get(job.id, ()):
                        bucket.give_back()
            self._keep(ledger.tx, buckets.values())

    def _limited(self, ledger: Ledger, found: Sequence[JobRow]) -> dict[int, tuple[Named, ...]]:
        """The limits of those jobs that have any, by the job."""
        specs = {one: ledger.mission(one).spec for one in {job.mission_id for job in found}}
        stated = {one: _stated(one, spec) for one, spec in specs.items()}
        asked = {
            job.id: self._endpoint_of(specs[job.mission_id]) for job in found if job.role is not Role.WORK
        }
        if not (any(stated.values()) or any(asked.values())) and self._kinds.keys().isdisjoint(
            {job.kind for job in found}
        ):
            return {}
        limited = {}
        for job in found:
            of_mission, endpoint = stated[job.mission_id], asked.get(job.id)
            applying = (
                self._kinds.get(job.kind),
                of_mission.get(None),
                of_mission.get(job.kind),
                None if endpoint is None else Named(f"planner:{endpoint[0]}", endpoint[1]),
            )
            if any(applying):
                limited[job.id] = tuple(named for named in applying if named is not None)
        return limited

    def _look_around(self, tx: Tx) -> None:
        """Find out which jobs wait, and what limits kinds have, if that is long ago."""
        if self._monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = self._monotonic()
        away, given = scope_params(tx, self._scope, self._served)
        found = [(_named(row), row) for row in tx.rows(_waited_for(self._scope, away), **given)]
        self._kinds = {
            named.kind: named
            for named, _ in found
            if named.kind is not None and named.mission_id is None and not named.limit.is_none
        }
        self._waited_for = {named.name: named for named, row in found if row[-1]}
        self._looks = {named.name: _look_at(named.limit, tx.now, row) for named, row in found if row[-1]}

    def _open(self, tx: Tx, wanted: Collection[Named]) -> dict[str, _Bucket]:
        """The buckets of limits by their names, as they are now."""
        names = sorted(named.name for named in wanted)
        given = to_json([*names])
        rows = {str(row[0]): row for row in tx.rows(_locked(tx.database), names=given)}
        # Others have locked those that are there and were left out.
        there = (
            names
            if len(rows) == len(names)
            else [row[0] for row in tx.rows(_there(tx.database), names=given)]
        )
        holders = {name: _holders(row) for name, row in rows.items() if row[5] is not None}
        running = self._running(tx, [job for jobs_ in holders.values() for job, _ in jobs_])
        buckets = {}
        for named in sorted(wanted, key=attrgetter("name")):
            row = rows.get(named.name)
            if row is None:
                is_new = named.name not in there and tx.run(_NEW[tx.database], **_values(named)) == 1
                permits = Permits(named.limit, tx.now)
                buckets[named.name] = _Bucket(named, permits, [], is_locked=not is_new)
                continue
            # Of a kind, its row says what holds for all runners; of a mission, its spec.
            limit = _limit(row) if named.mission_id is None and named.kind is not None else named.limit
            still = [held for held in holders.get(named.name, ()) if held in running]
            permits = Permits(limit, tx.now, row[6], len(still))
            was_set_back = permits.full_at != row[6]
            buckets[named.name] = _Bucket(
                replace(named, limit=limit), permits, still, is_changed=was_set_back
            )
        return buckets

    def _running(self, tx: Tx, ids: Sequence[int]) -> set[tuple[int, int]]:
        """The running jobs among these, with their attempts."""
        if not ids:
            return set()
        rows = tx.rows(_running(tx.database), ids=to_json([*ids]) if tx.is_sqlite else [*ids])
        return {(int(job), int(attempt)) for job, attempt in rows}

    def _keep(self, tx: Tx, buckets: Iterable[_Bucket]) -> None:
        """Store what was taken, and remember when to look at these limits again."""
        for bucket in buckets:
            if bucket.is_changed:
                values = _values(bucket.named)
                tx.send(
                    _TAKEN,
                    limit=values["name"],
                    new_spacing=values["spacing"],
                    new_burst=values["burst"],
                    new_max_running=values["max_running"],
                    new_full_at=bucket.permits.full_at,
                    new_holders=json.dumps(bucket.holders),
                )
            if bucket.named.name in self._looks:
                self._looks[bucket.named.name] = bucket.look_at

    def _make_ready(self, ledger: Ledger, bucket: _Bucket) -> None:
        tx, name, left = ledger.tx, bucket.named.name, bucket.left
        rows = self._waiting(ledger, name, MOST_DUE if left is None else min(left, MOST_DUE))
        if not rows:
            self._looks.pop(name, None)
            return
        ledger.lock_if_free(row[1] for row in rows)
        tx.many(_MAKE_READY, [(job_id,) for job_id, mission_id in rows if ledger.holds(mission_id)])
        # Unless this claim takes them: then it says when the next ones may be made ready.
        self._looks[name] = tx.now + BLOCK

    def _waiting(self, ledger: Ledger, name: str, most: int) -> list[Row]:
        """The next jobs that wait for a limit: the most urgent ones, in turn by mission."""
        tx, passed = ledger.tx, self._passed.get(name, 0)
        away, given = scope_params(tx, self._scope, self._served)
        in_line = line_of(self._scope, away, _WAITING_FOR, "CAST(:passed AS bigint)")
        line = in_turn(ledger, tx.rows(in_line, limit=name, passed=passed, now=tx.now, **given), most)
        self._passed[name] = line.passes
        of_each = {"limit": name, "priority": line.priority, "most": line.share}
        found = [tx.ask(_waiting(self._scope), mission=mission, **of_each) for mission in line.missions]
        return [row for rows in zip_longest(*(rows() for rows in found)) for row in rows if row][:most]

    def _ahead(
        self, ledger: Ledger, buckets: Sequence[_Bucket], known: Collection[int]
    ) -> dict[int, _Bucket]:
        """Jobs behind the found ones that the same limits keep from starting: they would be found one by one."""
        exhausted = [bucket for bucket in buckets if bucket.left == 0 and not bucket.named.is_general]
        away, given = scope_params(ledger.tx, self._scope, self._served)
        aside: dict[int, tuple[int, _Bucket]] = {}
        for job_id, kind, mission_id in ledger.tx.rows(_next_ready(self._scope, away), **given):
            lacking = next((one for one in exhausted if one.named.is_about(kind, mission_id)), None)
            if lacking is not None and job_id not in known:
                aside[job_id] = (mission_id, lacking)
        ledger.lock_if_free(mission_id for mission_id, _ in aside.values())
        return {job: lacking for job, (mission, lacking) in aside.items() if ledger.holds(mission)}

    def _set_aside(self, tx: Tx, aside: Mapping[int, _Bucket]) -> None:
        tx.many(_SET_ASIDE, [(job, one.named.name, one.reason.text) for job, one in aside.items()])
        for bucket in aside.values():
            self._waited_for[bucket.named.name] = bucket.named
            self._looks[bucket.named.name] = bucket.look_at


GATE = ClaimGate(state_kinds, PermitOffice)


def _look_at(limit: Limit, now: Micros, row: Row) -> Micros:
    """When to look at a limit for which jobs wait: now if the clock was set back, which is then stored."""
    permits = Permits(limit, now, row[6])
    return permits.next_at if permits.full_at == row[6] else now


def _named(row: Row) -> Named:
    return Named(row[0], _limit(row), row[1], row[2])


def _limit(row: Row) -> Limit:
    return Limit(row[3], row[4], row[5])


def _values(named: Named) -> dict[str, object]:
    """The params that state a limit."""
    limit = named.limit
    about = {"name": named.name, "kind": named.kind, "mission": named.mission_id}
    return {**about, "spacing": limit.spacing, "burst": limit.burst, "max_running": limit.max_running}


def _holders(row: Row) -> list[tuple[int, int]]:
    return [(int(job), int(attempt)) for job, attempt in json.loads(row[7])]
