"""Read the state of the queue and what has ended, at a cost that does not grow with history.

What is open is found by the index of jobs that are not settled, what has ended by the indexes of attempts and replies
by their end. Only so much is read at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import SUCCEED
from lcp_engine.store.conditions import LIVE
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx

LATENCIES = (0.01, 0.1, 1.0, 10.0, 60.0, 600.0)
"""Bounds of the buckets of claim latencies, in seconds."""
MOST_ATTEMPTS = 100_000
"""Attempts that are counted at a time."""
NEWEST_RUNNERS = 100_000
"""Runners that are looked at: no index has those that live, and their table has all that ever began."""

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
_RUNNERS = Sql(
    "SELECT count(*) FROM runners WHERE id > (SELECT coalesce(max(id), 0) FROM runners) - :newest "
    "AND ended_at IS NULL AND alive_until > :now",
    newest=int,
    now=int,
)
_MANY = Sql(
    f"SELECT ended_at FROM attempts WHERE ended_at >= :since ORDER BY ended_at LIMIT 1 OFFSET {MOST_ATTEMPTS}",
    since=int,
)
# The wait for a claim is known of first attempts that nothing but a runner was missing for.
_WAITED = (
    "CASE WHEN a.attempt = 1 AND j.approved = 0 AND j.waits_for IS NULL THEN a.started_at - j.created_at END"
)
_BUCKETS = ", ".join(f"sum(CASE WHEN wait <= {int(bound * SECOND)} THEN 1 ELSE 0 END)" for bound in LATENCIES)
_ENDED = Sql(
    f"SELECT kind, outcome, count(*), sum(took), sum(tokens_in), sum(tokens_out), count(wait), sum(wait), {_BUCKETS} "
    "FROM (SELECT j.kind AS kind, a.outcome AS outcome, a.ended_at - a.started_at AS took, "
    f"a.input_tokens AS tokens_in, a.output_tokens AS tokens_out, {_WAITED} AS wait FROM attempts a "
    "JOIN jobs j ON j.id = a.job_id WHERE a.ended_at >= :since AND a.ended_at < :until) e GROUP BY kind, outcome",
    since=int,
    until=int,
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
    """Open jobs and living runners at a time."""

    at: Micros
    jobs: Sequence[OpenJobs]
    runners: int


class EndedAttempts(NamedTuple):
    """Attempts at jobs of a kind that ended in one way: how many, how long they took, how long they waited for a claim.

    `waited` of them have a known wait; `waits` counts those up to each bound of `LATENCIES`.
    """

    kind: str
    outcome: str
    number: int
    took: Micros
    waited: int
    wait: Micros
    waits: Sequence[int]


@dataclass(frozen=True)
class Ended:
    """Attempts that ended before `until`, tokens as input and output, and money by its currency."""

    until: Micros
    attempts: Sequence[EndedAttempts]
    tokens: tuple[int, int]
    costs: Mapping[str, Decimal]


def read_levels(tx: Tx) -> Levels:
    jobs = [OpenJobs(*row) for row in tx.rows(_OPEN)]
    ((runners,),) = tx.rows(_RUNNERS, newest=NEWEST_RUNNERS, now=tx.now)
    return Levels(tx.now, jobs, int(runners))


def read_ended(tx: Tx, since: Micros, lag: Micros) -> Ended:
    """Count what ended from `since` until `lag` ago, or a part of that, if it is very much."""
    many = tx.row(_MANY, since=since)
    until = max(since, tx.now - lag if many is None else min(many[0], tx.now - lag))
    attempts, spent = list[EndedAttempts](), [0, 0]
    for kind, outcome, count, took, *others in tx.rows(_ENDED, since=since, until=until):
        tokens_in, tokens_out, waited, wait, *waits = (int(one or 0) for one in others)
        attempts.append(EndedAttempts(kind, outcome, count, int(took), waited, wait, waits))
        if outcome != SUCCEED.event:  # those of replies are with the replies
            spent = [spent[0] + tokens_in, spent[1] + tokens_out]
    costs: dict[str, Decimal] = {}
    for tokens_in, tokens_out, cost, currency in tx.rows(_REPLIED, since=since, until=until):
        spent = [spent[0] + tokens_in, spent[1] + tokens_out]
        if cost is not None and currency is not None:
            costs[currency] = costs.get(currency, Decimal()) + Decimal(cost)
    return Ended(until, attempts, (spent[0], spent[1]), costs)
