"""Copy a mission as it was before a question or a step, from its rows and its history; nothing is decided again."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from uuid import uuid4

from sqlalchemy import Table, bindparam, insert, select, update

from lcp_engine.core.job_states import (
    BACK_OFF,
    FAIL,
    REFUSE,
    RESCUE,
    SETTLED,
    START,
    Need,
    Role,
    State,
    fulfils,
)
from lcp_engine.core.limits.money import add_amounts
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.features.plans.store.stated_plans import RESOLVED, keep_plans
from lcp_engine.features.replay.store.archive import Archive, PastAttempt, PastEvent, PastTurn
from lcp_engine.features.replay.store.states_at import JobHistory
from lcp_engine.store import ledger_sql
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.edges import Edge, connect, edges_of
from lcp_engine.store.people import SAID
from lcp_engine.store.schema import approvals, attempts, jobs, missions, plans, turns
from lcp_engine.store.turns import MEMORIES


def _insert(table: Table) -> Statement:
    return Statement(insert(table).values({column.name: bindparam(column.name) for column in table.c}))


def _insert_one(table: Table) -> Statement:
    names = [column.name for column in table.c if column.name != "id"]
    return Statement(insert(table).values({name: bindparam(name) for name in names}).returning(table.c.id))


_NEW_MISSION = _insert_one(missions)
_NEW_PLAN = _insert_one(plans)
_NEW_JOB = _insert_one(jobs)
_NEW_TURN = _insert(turns)
_NEW_APPROVAL = _insert(approvals)
_JOBS_OF_PLAN = Statement(
    update(plans)
    .where(plans.c.id == bindparam("plan"))
    .values(job_id=bindparam("owner"), failed_job=bindparam("failed"))
)
_FAILED = (State.FAILED, State.REJECTED, State.CANCELLED)


@dataclass(frozen=True)
class Copied:
    """The new mission, and the job that it begins with: the turn to ask, or the step."""

    mission_id: int
    job_id: int


def plan_ids(tx: Tx) -> list[int]:
    """The ids of all plans in a database that holds the copy of one mission."""
    return [int(row[0]) for row in tx.query_plain("SELECT id FROM plans")]


def copy_until(
    tx: Tx,
    past: Archive,
    question: PastTurn | None,
    point: PastEvent,
    histories: Mapping[int, JobHistory],
    *,
    spec: str,
    planner: str,
    root_identity: str,
) -> Copied:
    """Store a new mission as `past` was before `point`: the event of `question`, or the first start of a step.

    `spec` is JSON.
    """
    return _Copy(tx, past, question, point, histories).store(spec, planner, root_identity)


class _Copy:
    def __init__(
        self,
        tx: Tx,
        past: Archive,
        question: PastTurn | None,
        point: PastEvent,
        histories: Mapping[int, JobHistory],
    ) -> None:
        self._tx = tx
        self._past = past
        self._question = question
        self._histories = histories
        self._point = point
        dropped = {event.seq for event in past.events if event.seq < point.seq and event.job_id is not None}
        dropped -= {event.seq for history in histories.values() for event in history.events}
        self._events = [event for event in past.events if event.seq < point.seq and event.seq not in dropped]
        self._seqs = [event.seq for event in self._events]
        asked = {event.data.get("question") for event in self._events if event.event == "asked"}
        self._turns = [turn for turn in past.turns.values() if turn.number in asked]
        self._plans: dict[object, int] = {}
        self._root: object = None
        self._jobs: dict[object, int] = {}
        self._later = [event for event in past.events if event.seq > point.seq]

    def store(self, spec: str, planner: str, root_identity: str) -> Copied:
        tx, mission_id = self._tx, self._store_mission(spec, planner, root_identity)
        self._store_plans(mission_id)
        keep_plans(tx, mission_id, self._past.plans)
        self._store_jobs(mission_id)
        connect(
            tx,
            [
                edge._replace(after_id=self._jobs[edge.after_id], job_id=self._jobs[edge.job_id])
                for edge in self._edges
            ],
        )
        for row in self._rows(plans):
            if row["id"] in self._plans:
                owner, failed = self._jobs.get(row["job_id"]), self._jobs.get(self._first_failed(row["id"]))
                tx.run(_JOBS_OF_PLAN, plan=self._plans[row["id"]], owner=owner, failed=failed)
        self._store_turns(mission_id)
        attempt = ledger_sql.ATTEMPT_WITH_STDERR
        tx.many(attempt, [attempt.row(one) for one in self._copied_attempts()])
        for approval in self._copied_approvals():
            tx.send(_NEW_APPROVAL, **approval)
        tx.many(ledger_sql.EVENT, [ledger_sql.EVENT.row(one) for one in self._copied_events(mission_id)])
        after = update(missions).where(missions.c.id == bindparam("mission"))
        tx.run(
            Statement(after.values(root_plan=bindparam("root"), asking=bindparam("job"))),
            mission=mission_id,
            root=self._plans[self._root],
            job=self._jobs.get(self._asking()),
        )
        return Copied(mission_id, self._jobs[self._point.job_id])

    def _asking(self) -> int | None:
        """The job of the turn to ask, or of the one that was open when the step began."""
        if self._question is not None:
            return self._question.job_id
        asks = (job.id for job in self._past.jobs if job.role is not Role.WORK)
        return next(
            (one for one in asks if one in self._histories and self._histories[one].state is State.QUEUED),
            None,
        )

    def _store_mission(self, spec: str, planner: str, root_identity: str) -> int:
        states = Counter(history.state for history in self._histories.values())
        requested = [
            job for job in self._past.jobs
            if job.id in self._histories and job.fingerprint is not None and (job.parent_id or not job.terms)
            and self._histories[job.id].events[0].event != REFUSE.event
        ]  # fmt: skip
        costs: list[PastTurn | PastAttempt] = [*self._turns]
        costs += [one for one in self._past.attempts.values() if self._is_copied(one)]
        values: dict[str, object] = {
            **dict.fromkeys(column.name for column in missions.c if column.name != "id"),
            **{state.value: states[state] for state in State},
            "uid": f"req-{uuid4()}",
            "name": self._past.name,
            "goal": self._row(missions)["goal"],
            "root": self._past.root,
            "root_identity": root_identity,
            "planner": planner,
            "spec": spec,
            "status": "running",
            "turns": max((turn.turn for turn in self._turns), default=0),
            "questions": max((turn.number for turn in self._turns), default=0),
            "input_tokens": sum(one.input_tokens or 0 for one in costs),
            "output_tokens": sum(one.output_tokens or 0 for one in costs),
            **self._costs(),
            "bytes_written": self._inherited("bytes_written")
            + sum(change.size_bytes for change in self._past.changes if self._has_applied(change.job_id)),
            "requested": len(requested),
            "events": len(self._events),
            "changed_seq": self._changed_seq(),
            "ran": 0,
            "created_at": self._tx.now,
        }
        return self._one(_NEW_MISSION, values)

    def _costs(self) -> dict[str, object]:
        """Cost of the copied turns, in the currency of the mission."""
        currency = self._row(missions)["currency"]
        amount: str | None = None
        for turn in self._turns:
            if turn.cost is not None and turn.currency == currency:
                amount = add_amounts(amount, Decimal(turn.cost))
        return {"cost": amount, "currency": None if amount is None else currency, "unpriced": 0}

    def _store_plans(self, mission_id: int) -> None:
        asked = {turn.job_id: turn for turn in self._turns}
        root = self._row(missions)["root_plan"]
        until: dict[object, int] = {}
        rows = self._rows(turns)
        for row in rows:
            if row["job_id"] in asked:
                until[row["plan_id"]] = max(until.get(row["plan_id"], 0), _int(row["until_seq"]))
        begun = [row for row in self._rows(plans) if self._is_begun(row, {root, *until})]
        gave_way = {row["parent_id"] for row in begun if row["job_id"] is None}
        for row in begun:
            if row["job_id"] is None:
                self._root = row["id"]
            states = [self._histories[job_id].state for job_id in self._members.get(row["id"], ())]
            owner = None if row["job_id"] is None else self._histories.get(_int(row["job_id"]))
            has_ended = row["id"] in gave_way or (owner is not None and owner.state in SETTLED)
            values = {
                **row,
                "mission_id": mission_id,
                "job_id": None,
                "parent_id": self._plans.get(row["parent_id"]),
                "open": sum(state in (State.QUEUED, State.BLOCKED) for state in states),
                "held": states.count(State.HELD),
                "asked_seq": self._number(until.get(row["id"], 0)),
                "outcome": row["outcome"] if has_ended else None,
                "failed_job": None,
                **dict.fromkeys(("corrections", "stalled", "refused", "clarifications", "verifications"), 0),
            }
            self._plans[row["id"]] = self._one(_NEW_PLAN, values)

    def _is_begun(self, row: Mapping[str, object], asked: set[object]) -> bool:
        """True if a plan was there by then: a planner's that has been `asked`, or one whose steps are stored."""
        return row["id"] in (asked if row["stated"] is None else self._members)

    def _first_failed(self, plan_id: object) -> int | None:
        """The step of a stated plan that failed first by then, and that no other one handles."""
        handled = {edge.after_id for edge in self._edges if edge.needs is not Need.SUCCESS}
        failed = [
            (self._histories[job_id].last.seq, job_id)
            for job_id in self._members.get(plan_id, ())
            if self._histories[job_id].state in _FAILED and job_id in self._steps and job_id not in handled
        ]
        return min(failed)[1] if failed else None

    @cached_property
    def _members(self) -> dict[object, list[int]]:
        """The jobs of each plan that are copied."""
        found: dict[object, list[int]] = {}
        for job in self._past.jobs:
            if job.id in self._histories:
                found.setdefault(job.plan_id, []).append(job.id)
        return found

    @cached_property
    def _steps(self) -> set[int]:
        return {job.id for job in self._past.jobs if job.terms is not None}

    @cached_property
    def _edges(self) -> list[Edge]:
        """The edges between the jobs that are copied, with the ids of the original mission."""
        found = edges_of(self._tx, self._past.id)
        return [edge for edge in found if edge.after_id in self._histories and edge.job_id in self._histories]

    def _store_jobs(self, mission_id: int) -> None:
        edges = self._edges
        followers = Counter(edge.after_id for edge in edges)
        unmet = Counter(
            edge.job_id for edge in edges if edge.needs not in fulfils(self._histories[edge.after_id].state)
        )
        waiting = {edge.job_id: unmet[edge.job_id] for edge in edges}
        for row in self._rows(jobs):
            history = self._histories.get(_int(row["id"]))
            if history is None:
                continue
            values = {
                **row,
                **self._state_then(row, history),
                "mission_id": mission_id,
                "plan_id": self._plans.get(row["plan_id"]),
                "parent_id": self._jobs.get(row["parent_id"]),
                "waits_for": waiting.get(_int(row["id"])),
                "followers": followers[_int(row["id"])],
                "params": self._params_then(row),
                **self._terms_then(row),
                "approved": history.approved,
                "attempt": history.starts,
                "failures": history.since_retry(BACK_OFF.event, FAIL.event),
                "deaths": history.since_retry(RESCUE.event),
                **dict.fromkeys(("runner_id", "run_after", "held_until", "limited_by")),
            }
            if self._question is not None and row["id"] == self._question.job_id:
                values["params"] = to_json({
                    **from_json(str(values["params"])), MEMORIES: self._question.memories,
                })  # fmt: skip
                values["turn"] = next((t.turn for t in self._turns if t.job_id == row["parent_id"]), None)
            self._jobs[row["id"]] = self._one(_NEW_JOB, values)

    def _state_then(self, row: Mapping[str, object], history: JobHistory) -> dict[str, object]:
        """State, reason, result and times as they were."""
        last, started = history.last, [event.at for event in history.events if event.event == START.event]
        then: dict[str, object] = {
            "state": history.state.value,
            "started_at": started[-1] if started else None,
            **dict.fromkeys(("reason", "result", "result_sha256", "error", "settled_seq", "ended_at")),
        }
        if history.state not in SETTLED:
            return {**then, "reason": last.data.get("reason")}
        then |= {"settled_seq": self._number(last.seq), "ended_at": last.at}
        if row["settled_seq"] == last.seq:
            return {
                **then,
                **{name: row[name] for name in ("reason", "result", "result_sha256", "error")},
            }
        attempt = self._past.attempts.get((_int(row["id"]), history.starts))
        error = attempt.error if attempt is not None and history.state is State.FAILED else None
        return {**then, "reason": last.data.get("reason"), "error": error}

    def _terms_then(self, row: Mapping[str, object]) -> dict[str, object]:
        """Values that a step had before its references were resolved, if that was later."""
        terms = row["terms"]
        events = (event for event in self._later if event.event == RESOLVED and event.job_id == row["id"])
        resolved = next(events, None)
        if resolved is None or not isinstance(terms, str):
            return {}
        return {
            "terms": replace(terms_of(terms), has_references=True).text,
            "fingerprint": resolved.data.get("fingerprint"),
            "effect": resolved.data.get("effect"),
        }

    def _params_then(self, row: Mapping[str, object]) -> object:
        """The params, before a person revised them or their references were resolved later."""
        for event in self._later:
            before = event.data.get("before")
            if (
                event.event in ("decided", RESOLVED)
                and event.job_id == row["id"]
                and isinstance(before, dict)
            ):
                return to_json(before)
        return row["params"]

    def _store_turns(self, mission_id: int) -> None:
        numbers = {turn.number for turn in self._turns}
        for row in self._rows(turns):
            if row["number"] in numbers:
                known = {
                    "mission_id": mission_id,
                    "plan_id": self._plans[row["plan_id"]],
                    "job_id": self._jobs[row["job_id"]],
                    "after_seq": self._number(_int(row["after_seq"])),
                    "until_seq": self._number(_int(row["until_seq"])),
                }
                self._tx.send(_NEW_TURN, **{**row, **known})

    def _copied_attempts(self) -> list[dict[str, object]]:
        return self._of_jobs(attempts, lambda history, attempt: attempt <= history.starts)

    def _copied_approvals(self) -> list[dict[str, object]]:
        """The approvals that still bind: a retry of a failed job is bound to what was approved."""
        return self._of_jobs(approvals, lambda history, attempt: attempt == history.approved)

    def _of_jobs(self, table: Table, is_copied: Callable[[JobHistory, int], bool]) -> list[dict[str, object]]:
        """The rows of a table that belong to attempts of jobs."""
        clause = select(table).join_from(table, jobs, table.c.job_id == jobs.c.id)
        names = [column.name for column in table.c]
        rows = self._tx.query(clause.where(jobs.c.mission_id == self._past.id))
        found = (dict(zip(names, row, strict=True)) for row in rows)
        return [
            {**row, "job_id": self._jobs[row["job_id"]]}
            for row in found
            if (history := self._histories.get(_int(row["job_id"])))
            and is_copied(history, _int(row["attempt"]))
        ]

    def _copied_events(self, mission_id: int) -> list[dict[str, object]]:
        return [
            {
                "mission_id": mission_id,
                "seq": seq,
                "job_id": None if event.job_id is None else self._jobs[event.job_id],
                "at": event.at,
                "event": event.event,
                "data": self._data_of(event),
            }
            for seq, event in enumerate(self._events, start=1)
        ]

    def _data_of(self, event: PastEvent) -> str | None:
        """The data of the event, with the plan's id in the copy."""
        plan = self._plans.get(event.data.get("plan")) if event.event == SAID else None
        data = event.data if plan is None else {**event.data, "plan": plan}
        return to_json(data) if data else None

    def _is_copied(self, attempt: PastAttempt) -> bool:
        history = self._histories.get(attempt.job_id)
        return history is not None and attempt.attempt <= history.starts

    def _has_applied(self, job_id: int) -> bool:
        history = self._histories.get(job_id)
        return history is not None and history.state is State.SUCCEEDED

    def _changed_seq(self) -> int:
        """The last event that changed a file."""
        changed = {change.job_id for change in self._past.changes if self._has_applied(change.job_id)}
        seqs = [self._histories[job_id].last.seq for job_id in changed]
        return self._number(max((*seqs, self._inherited("changed_seq"))))

    def _inherited(self, name: str) -> int:
        """A figure taken over from the mission that this one was forked from, whose file changes are not copied."""
        found = (event.data.get(name) for event in reversed(self._events) if event.event == "forked")
        return next((value for value in found if isinstance(value, int)), 0)

    def _number(self, seq: int) -> int:
        """The number in the copy of the last event up to event `seq`."""
        return bisect_right(self._seqs, seq)

    def _row(self, table: Table) -> dict[str, object]:
        return next(row for row in self._rows(table))

    def _rows(self, table: Table) -> list[dict[str, object]]:
        """The rows of the original mission, ordered by key."""
        own = table.c.id if table is missions else table.c.mission_id
        order = table.c.number if table is turns else table.c.id
        rows: list[Row] = self._tx.query(select(table).where(own == self._past.id).order_by(order))
        names = [column.name for column in table.c]
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _one(self, statement: Statement, values: Mapping[str, object]) -> int:
        row = self._tx.row(statement, **{name: value for name, value in values.items() if name != "id"})
        assert row is not None
        return int(row[0])


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
