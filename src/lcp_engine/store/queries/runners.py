"""Find the processes that execute jobs of a database now."""

from __future__ import annotations

import json
from pathlib import Path

from lcp_engine.clock import iso
from lcp_engine.core.json_values import JsonObject
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import is_dead, this_host
from lcp_engine.store.row_types import RunnerRow

_LEFT = Sql(
    "SELECT r.id, r.uid, r.host, r.boot, r.pid, r.alive_until, r.started_at, r.silent_roots, "
    "(SELECT count(*) FROM jobs j WHERE j.runner_id = r.id AND j.state = 'running') "
    "FROM runners r WHERE r.ended_at IS NULL ORDER BY r.id"
)


def find_runners(tx: Tx, runtime: Path) -> list[JsonObject]:
    """The runners, oldest first. `runtime` is the runtime directory of the database.

    Whether one of this machine lives the kernel tells; one of another machine does while it says so.
    """
    host = this_host()
    found: list[JsonObject] = []
    for *columns, started_at, silent_roots, running in tx.rows(_LEFT):
        runner = RunnerRow(*columns)
        dead = is_dead(runner, host, runtime)
        if dead or (dead is None and runner.alive_until <= tx.now):
            continue
        found.append(
            {
                "id": runner.id,
                "host": runner.host,
                "pid": runner.pid,
                "started_at": iso(started_at),
                "running": int(running),
                "silent_roots": json.loads(silent_roots),
            }
        )
    return found
