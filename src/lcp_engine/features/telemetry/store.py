"""Read the state of the queue and what has ended, at a cost that does not grow with history.

What is open is found by the index of jobs that are not settled, what has ended by the indexes of attempts and replies
by their end. Only so much is read at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import SUCCEED
from lcp_engine.store.conditions import LIVE
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.runners import find_runners
from lcp_engine.store.queries.selection import Condition, find, with_ids

LATENCIES = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
"""Bounds of the buckets of claim latencies, in seconds."""
MOST_ATTEMPTS = 1_000_000
"""Attempts that are counted at a time, by an index alone."""
MOST_SAMPLED = 1000
"""Attempts of which it is read what they were and how long they took."""

# What a job waits for says since when: a person since it was held, a claim since it was due. Of steps and of approved
# jobs only the events of their mission say that.
_OPEN = Sql(
    "SELECT kind, CASE WHEN state <> 'queued' THEN state WHEN run_after IS NOT NULL THEN 'delayed' "
    "WHEN limited_by IS NOT NULL THEN 'limited' ELSE 'ready' END, count(*), min(CASE "
    "WHEN state = 'held' THEN "
    "coalesce((SELECT r.at FROM reviews r WHERE r.job_id = jobs.id AND r.person = ''), created_at) "
    "WHEN state = 'running' THEN started_at WHEN state = 'blocked' THEN created_at "
    "WHEN run_after IS NOT NULL THEN run_after WHEN waits_for IS NOT NULL OR approved > 0 THEN NULL "
    f"ELSE coalesce(started_at, created_at) END) FROM jobs WHERE {LIVE} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
)
_MANY = Sql(
    f"SELECT ended_at FROM attempts WHERE ended_at >= :since ORDER BY ended_at LIMIT 1 OFFSET {MOST_ATTEMPTS}",
    since=int,
)
_COUNTED = Sql(
    "SELECT outcome, count(*) FROM attempts WHERE ended_at >= :since AND ended_at < :until GROUP BY outcome",
    since=int,
    until=int,
)
_WITHOUT_REPLY = Sql(
    "SELECT coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0) FROM attempts "
    f"WHERE ended_at >= :since AND ended_at < :until AND outcome <> '{SUCCEED.event}'",
    since=int,
    until=int,
)
# The wait for a claim is known of first attempts that nothing but a runner was missing for.
_BUCKETS = ", ".join(f"sum(CASE WHEN wait <= {int(bound * SECOND)} THEN 1 ELSE 0 END)" for bound in LATENCIES)
_SAMPLED = Sql(
    f"SELECT kind, count(*), sum(took), count(wait), coalesce(sum(wait), 0), {_BUCKETS} FROM (SELECT j.kind AS kind, "
    "a.ended_at - a.started_at AS took, CASE WHEN a.attempt = 1 AND j.approved = 0 AND j.waits_for IS NULL "
    "THEN a.started_at - j.created_at END AS wait FROM (SELECT job_id, attempt, started_at, ended_at FROM attempts "
    "WHERE ended_at >= :since AND ended_at < :until ORDER BY ended_at LIMIT :most) a "
    "JOIN jobs j ON j.id = a.job_id) e GROUP BY kind",
    since=int,
    until=int,
    most=int,
)
_REPLIED = Sql(
    "SELECT input_tokens, coalesce(output_tokens, 0), cost, currency FROM turns "
    "WHERE input_tokens IS NOT NULL AND replied_at >= :since AND replied_at < :until",
    since=int,
    until=int,
)


class OpenJobs(NamedTuple):
    """So many jobs of a kind in a state, and since when the first of them is in it; None where that is not known."""

    kind: str
    state: str
    number: int
    since: Micros | None


@dataclass(frozen=True)
class Levels:
    """Open jobs at a time, and how many runners live then."""

    at: Micros
    jobs: Sequence[OpenJobs]
    runners: int


class SampledAttempts(NamedTuple):
    """Attempts at jobs of a kind that ended: how many, how long they took, how long they waited for a claim.

    `waited` of them have a known wait; `waits` counts those up to each bound of `LATENCIES`.
    """

    kind: str
    number: int
    took: Micros
    waited: int
    wait: Micros
    waits: Sequence[int]


@dataclass(frozen=True)
class Ended:
    """Attempts that ended before `until` by their outcome, tokens as input and output, and money by its currency.

    Of the first attempts it is known of which kinds they were.
    """

    until: Micros
    attempts: Mapping[str, int]
    sampled: Sequence[SampledAttempts]
    tokens: tuple[int, int]
    costs: Mapping[str, Decimal]


def read_levels(tx: Tx, runtime: Path) -> Levels:
    """`runtime` is the runtime directory of the database: the kernel says which runners of this machine live."""
    jobs = [OpenJobs(*row) for row in tx.rows(_OPEN)]
    return Levels(tx.now, jobs, len(find_runners(tx, runtime)))


def read_ended(tx: Tx, since: Micros, lag: Micros) -> Ended:
    """Count what ended from `since` until `lag` ago, or a part of that, if it is very much."""
    many = tx.row(_MANY, since=since)
    until = max(since, tx.now - lag if many is None else min(many[0], tx.now - lag))
    span = {"since": since, "until": until}
    attempts = {str(outcome): int(count) for outcome, count in tx.rows(_COUNTED, **span)}
    sampled = [
        SampledAttempts(kind, int(number), int(took), int(waited), int(wait), [int(one) for one in waits])
        for kind, number, took, waited, wait, *waits in tx.rows(_SAMPLED, **span, most=MOST_SAMPLED)
    ]
    ((spent_in, spent_out),) = tx.rows(_WITHOUT_REPLY, **span)
    spent = [int(spent_in), int(spent_out)]
    costs: dict[str, Decimal] = {}
    for tokens_in, tokens_out, cost, currency in tx.rows(_REPLIED, **span):
        spent = [spent[0] + tokens_in, spent[1] + tokens_out]
        if cost is not None and currency is not None:
            costs[currency] = costs.get(currency, Decimal()) + Decimal(cost)
    return Ended(until, attempts, sampled, (spent[0], spent[1]), costs)


class SettledAttempt(NamedTuple):
    """An attempt that ended, with what its span says. A turn has the planner's reply besides."""

    job_id: int
    attempt: int
    started_at: Micros
    ended_at: Micros
    outcome: str
    error: str | None
    mission_id: int
    kind: str
    role: str
    created_at: Micros
    waits_for: int | None
    approved: int
    number: int | None
    latency: float | None
    completions: str | None
    input_tokens: int | None
    output_tokens: int | None
    cost: str | None
    currency: str | None
    asked: str | None
    said: str | None


class TracedMission(NamedTuple):
    """A mission as its span needs it; `last_runner` executed the last attempt before its end."""

    id: int
    uid: str
    name: str
    planner: str | None
    session_id: str | None
    created_at: Micros
    ended_at: Micros | None
    status: str
    outcome: str | None
    input_tokens: int
    output_tokens: int
    cost: str | None
    currency: str | None
    last_runner: int | None


# What a turn was asked and said, and what a job was given and returned, is read only if it is to be shown.
_SETTLED = (
    "SELECT a.job_id, a.attempt, a.started_at, a.ended_at, a.outcome, a.error, j.mission_id, j.kind, j.role, "
    "j.created_at, j.waits_for, j.approved, t.number, t.latency, t.completions, "
    "coalesce(t.input_tokens, a.input_tokens), coalesce(t.output_tokens, a.output_tokens), t.cost, t.currency, {} "
    "FROM attempts a JOIN jobs j ON j.id = a.job_id LEFT JOIN turns t ON t.job_id = a.job_id AND j.role <> 'work' "
    "WHERE a.ended_at >= :since AND a.ended_at < :until AND a.runner_id = :runner "
    "ORDER BY a.ended_at, a.job_id LIMIT :most"
)
_TYPES: Mapping[str, type[int | str]] = {"since": int, "until": int, "runner": int, "most": int}
_SETTLED_WITHOUT = Sql(_SETTLED.format("NULL, NULL"), **_TYPES)
_SETTLED_WITH = Sql(_SETTLED.format("coalesce(t.prompt, j.params), coalesce(t.reply, j.result)"), **_TYPES)
_MISSIONS = (
    "SELECT m.id, m.uid, m.name, m.planner, m.session_id, m.created_at, m.ended_at, m.status, m.outcome, "
    "m.input_tokens, m.output_tokens, m.cost, m.currency, CASE WHEN m.ended_at IS NOT NULL THEN (SELECT a.runner_id "
    "FROM attempts a WHERE a.job_id = (SELECT e.job_id FROM events e WHERE e.mission_id = m.id "
    "AND e.event = 'started' AND e.at <= m.ended_at ORDER BY e.seq DESC LIMIT 1) AND a.ended_at <= m.ended_at "
    "ORDER BY a.attempt DESC LIMIT 1) END FROM missions m"
)


def read_settled(
    tx: Tx, runner: int, since: Micros, until: Micros, *, most: int, with_content: bool
) -> list[SettledAttempt]:
    """The first attempts of a runner that ended in a time, `most` of them."""
    statement = _SETTLED_WITH if with_content else _SETTLED_WITHOUT
    rows = tx.rows(statement, since=since, until=until, runner=runner, most=most)
    return [SettledAttempt(*row) for row in rows]


def read_missions(tx: Tx, ids: Collection[int]) -> list[TracedMission]:
    """These missions, as far as they were not pruned."""
    are_kept = Condition("m.pruned_at IS NULL")
    return [TracedMission(*row) for row in find(tx, _MISSIONS, with_ids(ids, "m.id"), are_kept)]


def read_uids(tx: Tx, ids: Collection[int]) -> dict[int, str]:
    return {int(id_): str(uid) for id_, uid in find(tx, "SELECT id, uid FROM missions", with_ids(ids))}


def read_attempts(tx: Tx, ids: Collection[int]) -> dict[int, tuple[str, int]]:
    """Kind and last attempt of each of these jobs, 0 if there was none."""
    rows = find(tx, "SELECT id, kind, attempt FROM jobs", with_ids(ids))
    return {int(id_): (str(kind), int(attempt)) for id_, kind, attempt in rows}
