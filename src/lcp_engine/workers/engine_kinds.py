"""The kinds of jobs that the engine itself makes and a person approves; no planner can request them."""

from __future__ import annotations

from types import MappingProxyType

from lcp_engine.workers.apply import APPLY
from lcp_engine.workers.base import Workers
from lcp_engine.workers.merge import MERGE

ENGINE_WORKERS: Workers = MappingProxyType({worker.kind: worker for worker in (MERGE, APPLY)})
