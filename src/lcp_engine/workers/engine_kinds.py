"""The kinds of jobs that the engine itself makes and a person approves; no planner can request them."""

from __future__ import annotations

from functools import cache

from lcp_engine.feature import installed, load
from lcp_engine.workers.base import Worker, Workers


@cache
def engine_workers() -> Workers:
    """Workers that state their params and results; none of them is called."""
    return {kind: load(place, Worker) for kind, (place, _) in installed().engine_kinds.items()}
