"""Read the plans of a mission as graphs of their steps."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import groupby

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import SETTLED, Need, State
from lcp_engine.core.reasons import explain_reason
from lcp_engine.core.summaries import subject_of
from lcp_engine.features.plans.graph import GraphStep, Link, PlanGraph
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.queries.mission_spec import spec_and_root

_STEPS = Sql(
    "SELECT p.id, p.stated, p.on_failure, p.outcome, p.job_id, j.id, j.terms, j.name, j.kind, j.params, j.state, "
    "j.reason, j.started_at, j.ended_at FROM jobs j JOIN plans p ON p.id = j.plan_id WHERE j.mission_id = :mission "
    "AND (j.terms IS NOT NULL OR j.waits_for IS NOT NULL OR j.followers > 0) ORDER BY p.id, j.id",
    mission=int,
)
_EDGES = Sql(
    "SELECT e.job_id, e.after_id, e.needs FROM edges e JOIN jobs j ON j.id = e.job_id "
    "WHERE j.mission_id = :mission ORDER BY e.job_id, e.after_id",
    mission=int,
)


def find_plan_graphs(tx: Tx, mission_id: int) -> list[PlanGraph]:
    """The plans of a mission that have steps, the first one first. Raises `NOT_FOUND`."""
    spec_and_root(tx, mission_id)
    links: dict[int, list[Link]] = defaultdict(list)
    for job, after, needs in tx.rows(_EDGES, mission=mission_id):
        links[job].append(Link(after, Need(needs)))
    rows = tx.rows(_STEPS, mission=mission_id)
    graphs: list[PlanGraph] = []
    for (_, name, on_failure, outcome, owner), found in groupby(rows, lambda row: tuple(row[:5])):
        steps = tuple(_step(row, tuple(links[row[5]]), tx.now) for row in found)
        graphs.append(PlanGraph(name, on_failure, outcome, steps, None if name is None else owner))
    return graphs


def _step(row: Row, after: tuple[Link, ...], now: int) -> GraphStep:
    job, terms, name, kind, params, state, reason, started, ended = row[5:]
    end = (now if ended is None else ended) if started is not None else None
    is_over = State(state) in SETTLED or state == State.RUNNING
    return GraphStep(
        step=str(json.loads(terms)["step"]) if terms else f"job {job}",
        job=job,
        kind=kind,
        about=subject_of(json.loads(params), name),
        state=State(state),
        reason=None if reason is None else explain_reason(reason),
        seconds=None if end is None or not is_over else round((end - started) / SECOND, 3),
        after=after,
        name=name,
    )
