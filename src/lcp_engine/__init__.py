"""Run missions over a directory: a planner answers with LCP actions, the engine does the work, safely and explained."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcp_engine.api import Engine, read_reply
    from lcp_engine.core.mission.spec import MissionSpec
    from lcp_engine.core.protocol.actions import Action, Malformed
    from lcp_engine.engine.run_job import JobResult, run_job
    from lcp_engine.errors import AgentError, ErrorCode, LcpError
    from lcp_engine.store.queries.records import Job, Mission
    from lcp_engine.workers.registry import worker

_HOMES = {
    "Action": "core.protocol.actions",
    "AgentError": "errors",
    "Engine": "api",
    "ErrorCode": "errors",
    "Job": "store.queries.records",
    "JobResult": "engine.run_job",
    "LcpError": "errors",
    "Malformed": "core.protocol.actions",
    "Mission": "store.queries.records",
    "MissionSpec": "core.mission.spec",
    "read_reply": "api",
    "run_job": "engine.run_job",
    "worker": "workers.registry",
}

__all__ = [
    "Action",
    "AgentError",
    "Engine",
    "ErrorCode",
    "Job",
    "JobResult",
    "LcpError",
    "Malformed",
    "Mission",
    "MissionSpec",
    "read_reply",
    "run_job",
    "worker",
]


def __getattr__(name: str) -> object:
    """Load a public name where it is first used, so that importing the package costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
