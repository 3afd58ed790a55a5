"""Drain a backlog of no-op jobs with one runner; print jobs per second. `most` jobs share a commit."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.kinds import nothing
from lcp_engine import Engine
from lcp_engine.engine import missions
from lcp_engine.runner.runner import MAX_CLAIM, Runner
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import ledger_of


def main(url: str, backlog: int, most: int = MAX_CLAIM) -> None:
    with Engine(url) as engine:
        engine.instance.database.write(lambda tx: fill(tx, backlog))
        began = time.perf_counter()
        Runner(engine.instance, until_idle=True, max_claim=most).run()
        seconds = time.perf_counter() - began
        check(engine, backlog)
    print(json.dumps(backlog / seconds))


def fill(tx: Tx, backlog: int) -> None:
    """Queue the backlog in one transaction."""
    ledger = ledger_of(tx)
    mission = missions.open_queue(ledger, "jobs")
    for _ in range(backlog):
        missions.enqueue(ledger, nothing, mission, {}, name=None, priority=0, run_after=None)


def check(engine: Engine, backlog: int) -> None:
    """Check that every job succeeded at its first attempt and has its whole history."""
    (mission,) = engine.missions()
    counts = engine.instance.database.read(
        lambda tx: tx.query_plain("SELECT (SELECT count(*) FROM attempts), (SELECT count(*) FROM events)")[0]
    )
    done = mission.jobs["succeeded"]
    if (done, *counts) != (backlog, backlog, 1 + 3 * backlog):
        raise SystemExit(
            f"{done} of {backlog} jobs succeeded; attempts and events are {counts}, expected one and 3 for each job"
        )


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
