"""Read history a page at a time and without what may be large: missions, jobs, turns, moves (for the page)."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from lcp_engine.core.job_states import SETTLED, TRANSITIONS, State
from lcp_engine.core.json_values import JsonObject, JsonValue, int_in, object_in
from lcp_engine.core.safe_text import is_storable
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.history import LARGEST as LARGEST_ID
from lcp_engine.store.queries.history import find_where, in_column, with_records
from lcp_engine.store.queries.selection import Columns, Condition, among, equal, find, with_ids

LARGEST = 64 * 1024
"""Params and results with more characters are left out of a page."""

MISSIONS_SEARCHED = 4000
"""So many missions are looked through at once, so that a page with a search is as quick beside many of them."""

JOBS_SEARCHED = 10_000
"""So many ids of jobs are looked through at once for what no index finds: a kind or a text."""

_MISSIONS = Columns(
    "mission_overview",
    ("id", "name", "goal", "root", "status", "outcome", "turns", "jobs", "tokens", "created_at", "started_at",
     "ended_at", "waits_for", "open", "cost"),
)  # fmt: skip
_JOBS = Columns(
    "job_history",
    ("id", "mission_id", "turn", "parent_id", "name", "kind", "state", "reason", "attempt", "run_after", "created_at",
     "started_at", "ended_at", "error"),
    large={"params": LARGEST, "result": LARGEST},
)  # fmt: skip
_NAMES = Columns("missions", ("id", "name", "goal", "ended_at"))
_SAID = Columns("job_history", ("id",), large={"result": LARGEST})
_HELD = Columns("job_history", ("id", "mission_id", "kind", "reason"))
_TURN = (
    "number", "turn", "job_id", "corrects", "last_turn", "action", "errors", "warnings", "input_tokens",
    "output_tokens", "latency", "asked_at", "replied_at",
)  # fmt: skip
_TURNS = Columns("turn_history", _TURN)
_WHOLE_TURNS = Columns("turn_history", (*_TURN, "prompt", "reply", "completions", "cost"))
_MOVES = Columns("event_history", ("job_id", "at", "event"))
_COUNT_MISSIONS = "SELECT status, count(*) FROM missions"
_SEARCHED_FROM = Sql(
    f"SELECT id FROM missions WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET {MISSIONS_SEARCHED - 1}",
    before=int,
)
_SEARCHED_UNTIL = Sql(f"SELECT id FROM missions ORDER BY id LIMIT 1 OFFSET {MISSIONS_SEARCHED - 1}")
_ROOTS = Sql(
    "SELECT root, count(*), sum(CASE WHEN status IN ('running', 'waiting') THEN 1 ELSE 0 END), sum(held), max(id) "
    "FROM missions WHERE id >= :first AND root IS NOT NULL AND pruned_at IS NULL GROUP BY root ORDER BY max(id) DESC "
    "LIMIT :most",
    first=int,
    most=int,
)
ABOUT = ("root", "rel_path", "path", "mode", "patterns", "question", "options", "user_prompt")
"""Params that say what a job is about."""
_PARAMS = Sql("SELECT params FROM jobs WHERE id = :job", job=int)
_MARK = "SELECT count(*), coalesce(max(id), 0), coalesce(sum(events), 0) FROM missions"
_COUNT_HELD = "SELECT coalesce(sum(held), 0) FROM missions"
_ANY_CHANGE = Sql(
    "SELECT 1 FROM changes WHERE mission_id = :mission AND state = 'applied' AND staged IS NULL LIMIT 1",
    mission=int,
)
_EVENT_AT = Sql("SELECT at FROM events WHERE mission_id = :mission AND seq = :seq", mission=int, seq=int)
_LAST_EVENT = Sql("SELECT events FROM missions WHERE id = :mission", mission=int)
_SEARCHED_TEXT = ("name", "kind", "reason")
_SEARCHED_JSON = ("params", "error", "result")
_IS_MOVE = Condition(f"event IN ({', '.join(repr(transition.event) for transition in TRANSITIONS)})")


@dataclass(frozen=True)
class JobFilter:
    """Which jobs to find; an empty field does not filter. `text` may occur anywhere, in either case."""

    mission_id: int | None = None
    states: Sequence[str] = ()
    kind: str = ""
    text: str = ""


@dataclass(frozen=True)
class Page:
    """Some rows, and the id to go on behind; None at the end."""

    rows: Sequence[JsonObject]
    behind: int | None


def page_missions(tx: Tx, *, before: int | None, status: str, text: str = "", limit: int) -> Page:
    """Missions, the newest first. A search looks through `MISSIONS_SEARCHED` of them; the next page goes on there."""
    last = LARGEST_ID if before is None else in_column(before)
    where = [*_searched(text), *_with_status(status), Condition("id < :before", {"before": last})]
    if not (text or status):
        return _page(_MISSIONS.read(tx, *where, newest_first=True, limit=limit + 1), limit)
    first = _first_searched(tx, last)
    where.append(Condition("id >= :first", {"first": first}))
    page = _page(_MISSIONS.read(tx, *where, newest_first=True, limit=limit + 1), limit)
    return Page(page.rows, first) if page.behind is None and first else page


def oldest_missions(tx: Tx, *, status: str, text: str = "", limit: int) -> Page:
    """The oldest missions, the newest of them first; a search looks through `MISSIONS_SEARCHED` of them."""
    where = [*_searched(text), *_with_status(status)]
    if status or text:
        row = tx.row(_SEARCHED_UNTIL)
        where += [Condition("id <= :last", {"last": int(row[0])})] if row else []
    return Page(_MISSIONS.read(tx, *where, limit=limit)[::-1], None)


@dataclass(frozen=True)
class MissionCounts:
    """Numbers of missions by status, those without any left out; `are_all` if not only the newest were counted."""

    by_status: Mapping[str, int]
    are_all: bool

    @property
    def total(self) -> int:
        return sum(self.by_status.values())


def count_missions(tx: Tx, text: str = "") -> MissionCounts:
    """Count those of the newest `MISSIONS_SEARCHED` missions that fit, by their status."""
    first = _first_searched(tx, LARGEST_ID)
    where = (Condition("id >= :first AND pruned_at IS NULL", {"first": first}), *_searched(text))
    rows = find(tx, _COUNT_MISSIONS, *where, then="GROUP BY status")
    return MissionCounts({str(status): int(count) for status, count in rows}, not first)


@dataclass(frozen=True)
class RootUse:
    """A root with its missions: how many, how many of them have not ended, their held jobs, and the newest."""

    root: str
    missions: int
    open: int
    held: int
    newest: int


@dataclass(frozen=True)
class Roots:
    """The roots of the newest missions, that of the newest first; `are_all` if there are no older missions."""

    rows: Sequence[RootUse]
    are_all: bool


def find_roots(tx: Tx, limit: int) -> Roots:
    """The roots of the newest `MISSIONS_SEARCHED` missions."""
    first = _first_searched(tx, LARGEST_ID)
    rows = tx.rows(_ROOTS, first=first, most=limit)
    return Roots([RootUse(str(root), *map(int, figures)) for root, *figures in rows], not first)


def _first_searched(tx: Tx, before: int) -> int:
    """The id of the first mission that a search below an id looks through; 0 if that is the first there is."""
    row = tx.row(_SEARCHED_FROM, before=before)
    return int(row[0]) if row else 0


def _with_status(status: str) -> list[Condition]:
    if not status:
        return []
    return [equal("status", status) if is_storable(status) else Condition("1 = 0")]


def _searched(text: str) -> list[Condition]:
    """Conditions for missions with the text in their name, goal, root or summary, in either case."""
    if not text:
        return []
    if not is_storable(text):  # no text in a database has it, and a pattern would end there
        return [Condition("1 = 0")]
    each = (f"lower({name}) LIKE lower(:sought) ESCAPE '\\'" for name in ("name", "goal", "root", "summary"))
    return [Condition(f"({' OR '.join(each)})", {"sought": _pattern(text)})]


def page_jobs(
    tx: Tx, wanted: JobFilter, *, behind: int | None, limit: int, newest_first: bool = False
) -> Page:
    """Jobs that fit, in the order of their ids.

    Results above `LARGEST` read as None, and so do params, of which `about` then has what the job is about.
    What no index finds is looked for among `JOBS_SEARCHED` ids; the next page goes on behind them.
    """
    count, where = _find(tx, wanted)
    if not count:
        return Page([], None)
    if behind is not None:
        is_behind = "id < :behind" if newest_first else "id > :behind"
        where.append(Condition(is_behind, {"behind": in_column(behind)}))
    stretch = _stretch(tx, wanted, count, behind, newest_first=newest_first)
    if stretch is not None:
        where.append(
            Condition("id BETWEEN :least AND :most_id", {"least": stretch[0], "most_id": stretch[1]})
        )
    page = _page(_JOBS.read(tx, *where, newest_first=newest_first, limit=min(limit + 1, count)), limit)
    if stretch is not None and page.behind is None:
        page = Page(page.rows, stretch[2])
    for row in page.rows:
        if row["params"] is None:
            row["about"] = read_about(tx, int(str(row["id"])))
    return page


def read_about(tx: Tx, job_id: int) -> dict[str, JsonValue]:
    """Read of a job's params those in `ABOUT`."""
    text = tx.rows(_PARAMS, job=job_id)[0][0]
    params: JsonObject = json.loads(text)
    return {name: params[name] for name in ABOUT if name in params}


@dataclass(frozen=True)
class JobCounts:
    """Numbers of jobs by state; `are_all` if not only the newest were counted."""

    by_state: Mapping[str, int]
    are_all: bool


def count_jobs(tx: Tx, wanted: JobFilter) -> JobCounts:
    """Count the jobs that fit by state, whatever states are wanted; by kind or text of the newest `JOBS_SEARCHED`."""
    anyhow = replace(wanted, states=())
    count, where = _find(tx, anyhow)
    if not (wanted.kind or wanted.text):
        of_mission = [] if wanted.mission_id is None else [equal("id", in_column(wanted.mission_id))]
        sums = ", ".join(f"coalesce(sum({state}), 0)" for state in State)
        (row,) = find(tx, f"SELECT {sums} FROM missions", *of_mission)
        return JobCounts(dict(zip(map(str, State), map(int, row), strict=True)), are_all=True)
    stretch = _stretch(tx, anyhow, count, None, newest_first=True)
    if stretch is not None:
        where.append(
            Condition("id BETWEEN :least AND :most_id", {"least": stretch[0], "most_id": stretch[1]})
        )
    rows = find(tx, "SELECT state, count(*) FROM jobs", *where, then="GROUP BY state")
    are_all = stretch is None or stretch[2] is None
    return JobCounts({str(state): int(number) for state, number in rows}, are_all)


def _stretch(
    tx: Tx, wanted: JobFilter, count: int, behind: int | None, *, newest_first: bool
) -> tuple[int, int, int | None] | None:
    """The first and the last id to look through, and behind which id to go on, if there is more.

    None if an index finds what is wanted, or what may be wanted is not much: then there is no need to stop.
    """
    are_live = bool(wanted.states) and not any(State(state) in SETTLED for state in wanted.states)
    if not (wanted.kind or wanted.text) or (are_live and count <= JOBS_SEARCHED):
        return None
    _, where = _find(tx, JobFilter(wanted.mission_id))
    ends = [find(tx, f"SELECT {end}(id) FROM jobs", *where)[0][0] or 0 for end in ("min", "max")]
    if newest_first:
        last = min(ends[1], ends[1] if behind is None else behind - 1)
        first = last - JOBS_SEARCHED + 1
        return first, last, first if first > ends[0] else None
    first = max(ends[0], 0 if behind is None else behind + 1)
    last = first + JOBS_SEARCHED - 1
    return first, last, last if last < ends[1] else None


@dataclass(frozen=True)
class HeldHead:
    """A held job without what may be large."""

    id: int
    mission_id: int
    kind: str
    reason: str | None


def find_held_heads(
    tx: Tx, wanted: JobFilter, *, among: Collection[int] | None, limit: int
) -> list[HeldHead]:
    """Jobs that fit, in the order of their ids; only those with the ids `among`, where these are given."""
    _, where = _find(tx, wanted)
    if among is not None:
        where.append(with_ids(among))
    return [HeldHead(*row) for row in _HELD.rows(tx, *where, limit=limit)]


@dataclass(frozen=True)
class Setting:
    """Mission of a job, and what the planner said when it asked for the job; None if it said nothing."""

    mission: str
    goal: str
    words: str | None
    has_ended: bool


def find_settings(tx: Tx, jobs: Sequence[JsonObject]) -> dict[int, Setting]:
    """The setting of each job, by its id."""
    missions = {row[0]: row for row in _NAMES.rows(tx, _are(job["mission_id"] for job in jobs))}
    asked = _SAID.read(tx, _are(job["parent_id"] for job in jobs))
    said = {row["id"]: object_in(row["result"]).get("commentary") for row in asked}
    settings: dict[int, Setting] = {}
    for job in jobs:
        _, name, goal, ended_at = missions[job["mission_id"]]
        words = _text(said.get(job["parent_id"]))
        settings[int_in(job["id"])] = Setting(str(name), str(goal), words, ended_at is not None)
    return settings


def _are(ids: Iterable[JsonValue]) -> Condition:
    return with_ids({int_in(one) for one in ids if one})


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) else None


def find_turn_heads(tx: Tx, mission_id: int, first: int, last: int) -> list[JsonObject]:
    """The questions that jobs `first` to `last` asked, without prompt and reply."""
    return _TURNS.read(tx, equal("mission_id", in_column(mission_id)), _of_jobs(first, last), order="number")


def find_turn(tx: Tx, mission_id: int, number: int) -> JsonObject:
    """A question with prompt and reply. Raises `NOT_FOUND`."""
    where = (equal("mission_id", in_column(mission_id)), equal("number", in_column(number)))
    found = _WHOLE_TURNS.read(tx, *where, order="number")
    if not found:
        raise LcpError(
            ErrorCode.NOT_FOUND, f"question {number} of mission {mission_id} is not in the database"
        )
    return with_records(tx, in_column(mission_id), found)[0]


def find_moves(tx: Tx, mission_id: int, jobs: Sequence[JsonObject]) -> list[JsonObject]:
    """The changes of state of jobs of the mission, in order.

    Events have no index by job: of a long history, only the time of these jobs is read.
    """
    ids = [int_in(job["id"]) for job in jobs]
    if not ids:
        return []
    began = min(_micros(job["created_at"]) for job in jobs)
    ended = [job["ended_at"] for job in jobs]
    newest = last_event(tx, mission_id)
    first = _first_event_at(tx, mission_id, newest, began)
    last = newest if None in ended else _first_event_at(tx, mission_id, newest, max(map(_micros, ended)) + 1)
    span = Condition("seq BETWEEN :since AND :until", {"since": first, "until": last})
    of_jobs = _of_jobs(min(ids), max(ids))
    return _MOVES.read(tx, equal("mission_id", mission_id), span, of_jobs, _IS_MOVE, order="seq")


def find_named_events(tx: Tx, mission_id: int, names: Sequence[str], after_seq: int) -> list[tuple[int, str]]:
    """The events of these names after `after_seq`, in order: number and name."""
    later = Condition("seq > :after", {"after": after_seq})
    where = (equal("mission_id", mission_id), later, among("event", names))
    rows = find(tx, "SELECT seq, event FROM events", *where, then="ORDER BY seq")
    return [(int(seq), str(event)) for seq, event in rows]


def _first_event_at(tx: Tx, mission_id: int, newest: int, at: int) -> int:
    """The number of the mission's first event at a time or later; that of the newest if there is none."""
    first, last = 1, newest
    while first < last:
        middle = (first + last) // 2
        row = tx.row(_EVENT_AT, mission=mission_id, seq=middle)
        if row is None or row[0] < at:
            first = middle + 1
        else:
            last = middle
    return first


def _micros(at: JsonValue) -> int:
    return (datetime.fromisoformat(str(at)) - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


def find_mark(tx: Tx) -> tuple[int, int, int]:
    """Numbers of missions and events, and the newest mission: any event makes it another one."""
    missions, newest, events = tx.query_plain(_MARK)[0]
    return int(missions), int(newest), int(events)


def count_held(tx: Tx) -> int:
    """Count the jobs that wait for a person, in all missions."""
    return int(tx.query_plain(_COUNT_HELD)[0][0])


def last_event(tx: Tx, mission_id: int) -> int:
    """The number of the mission's last event, which is also how many it has had."""
    row = tx.row(_LAST_EVENT, mission=in_column(mission_id))
    return int(row[0]) if row else 0


def has_changed(tx: Tx, mission_id: int) -> bool:
    """True if the mission has done anything to a file."""
    return tx.row(_ANY_CHANGE, mission=in_column(mission_id)) is not None


def _find(tx: Tx, wanted: JobFilter) -> tuple[int, list[Condition]]:
    """Highest number of jobs that fit, and the conditions for them."""
    mission_id = None if wanted.mission_id is None else in_column(wanted.mission_id)
    found = find_where(tx, mission_id, wanted.states)
    where = list(found.conditions)
    if not is_storable(wanted.kind + wanted.text):  # no text in a database has it
        where.append(Condition("1 = 0"))
        return found.count, where
    if wanted.kind:
        where.append(equal("kind", wanted.kind))
    if wanted.text:
        where.append(_contains(wanted.text))
    return found.count, where


def _contains(sought: str) -> Condition:
    written = json.dumps(sought, ensure_ascii=False)[1:-1]
    searched = (
        *((name, "plain") for name in _SEARCHED_TEXT),
        *((name, "written") for name in _SEARCHED_JSON),
    )
    each = (f"lower({name}) LIKE lower(:{param}) ESCAPE '\\'" for name, param in searched)
    return Condition(f"({' OR '.join(each)})", {"plain": _pattern(sought), "written": _pattern(written)})


def _pattern(sought: str) -> str:
    literally = sought.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{literally}%"


def _of_jobs(first: int, last: int) -> Condition:
    return Condition("job_id BETWEEN :first AND :last", {"first": first, "last": last})


def _page(rows: list[JsonObject], limit: int) -> Page:
    last = rows[limit - 1]["id"] if len(rows) > limit else None
    return Page(rows[:limit], last if isinstance(last, int) else None)
