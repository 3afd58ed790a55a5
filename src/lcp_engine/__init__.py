"""Run missions over a directory: a planner replies with LCP actions, and a durable queue executes them as jobs.

Programs use `Engine`, `run_job` and `read_reply`; docs/python.md shows how to write a worker and a planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lcp_engine.api.decision_links import DecisionLinks, LinkedJob
    from lcp_engine.api.engine import Engine
    from lcp_engine.api.memory import Memory, MemoryEdit, Remembered
    from lcp_engine.api.read_reply import read_reply
    from lcp_engine.api.run_job import JobResult, run_job
    from lcp_engine.changes.show import FileNow, Forecast, Look
    from lcp_engine.changes.unified_diff import Diff
    from lcp_engine.clock import Clock
    from lcp_engine.core.decision_link import SignedLinks
    from lcp_engine.core.job_states import Need, State
    from lcp_engine.core.kinds import KindRole
    from lcp_engine.core.memory import Entry
    from lcp_engine.core.mission.plan import (
        StatedCondition,
        StatedErrorHandling,
        StatedPlan,
        StatedRetry,
        StatedStep,
    )
    from lcp_engine.core.mission.spec import (
        AcceptCheck,
        Commands,
        FileMatch,
        FileQuotes,
        KindSettings,
        Limits,
        MemoryUse,
        MissionSpec,
        PlannerSpec,
        ResultSpec,
        Retry,
    )
    from lcp_engine.core.permits import RateLimit
    from lcp_engine.core.plan_graph import GraphStep, Link, PlanGraph
    from lcp_engine.core.policy import (
        Consent,
        Explained,
        KindNames,
        Looked,
        PathPolicy,
        Policy,
        Rule,
        Ruling,
        Verdict,
    )
    from lcp_engine.core.protocol.actions import (
        Action,
        AnalysisResult,
        CreateFollowupJobs,
        ErrorAction,
        JobSpec,
        Malformed,
        MissionComplete,
        Problem,
        WriteFile,
    )
    from lcp_engine.core.protocol.request import AgentRequest, RequestMetadata, RequestProject
    from lcp_engine.core.reasons import Reason, ReasonCode
    from lcp_engine.core.upkeep import Backups, Checks, Retention, Upkeep
    from lcp_engine.core.webhook import Webhook
    from lcp_engine.engine.memory import Imported
    from lcp_engine.engine.schedules import Overlap
    from lcp_engine.errors import (
        AgentError,
        Conflict,
        DatabaseFailed,
        ErrorCode,
        ErrorType,
        ExecutionFailed,
        Failed,
        InvalidInput,
        LcpError,
        LimitReached,
        Meaning,
        NotFound,
        Refused,
        WrongState,
    )
    from lcp_engine.planners.base import (
        Correction,
        Kind,
        Planner,
        PlannerError,
        Question,
        Relayed,
        Reply,
        Said,
        SeenJob,
        SeenMemory,
    )
    from lcp_engine.replay.compare import Difference
    from lcp_engine.replay.fork import Drift, Forked
    from lcp_engine.replay.replay import Replayed
    from lcp_engine.runner.runner import Runner
    from lcp_engine.runner.undo import Undo
    from lcp_engine.sandbox.landlock import Isolation
    from lcp_engine.sandbox.paths import Names, Place
    from lcp_engine.sandbox.root import Opened, Root
    from lcp_engine.store.db.transaction import Connection, Cursor
    from lcp_engine.store.people import Sight
    from lcp_engine.store.queries.mission_facts import (
        Course,
        DiskState,
        Excerpt,
        Facts,
        FileFact,
        JobFact,
        TurnFact,
        UndoneFact,
    )
    from lcp_engine.store.queries.records import ActiveRunner, Job, Mission, MissionStatus, Schedule
    from lcp_engine.workers.base import (
        Applied,
        Caps,
        Context,
        EarlierJob,
        Example,
        ExecutedBy,
        FileEffect,
        Hold,
        MemoryEffect,
        Outcome,
        Permission,
        Worker,
        Workers,
    )
    from lcp_engine.workers.external import ExternalProgram, Needs
    from lcp_engine.workers.registry import worker

__all__ = [
    "AcceptCheck",
    "Action",
    "ActiveRunner",
    "AgentError",
    "AgentRequest",
    "AnalysisResult",
    "Applied",
    "Backups",
    "Caps",
    "Checks",
    "Clock",
    "Commands",
    "Conflict",
    "Connection",
    "Consent",
    "Context",
    "Correction",
    "Course",
    "CreateFollowupJobs",
    "Cursor",
    "DatabaseFailed",
    "DecisionLinks",
    "Diff",
    "Difference",
    "DiskState",
    "Drift",
    "EarlierJob",
    "Engine",
    "Entry",
    "ErrorAction",
    "ErrorCode",
    "ErrorType",
    "Example",
    "Excerpt",
    "ExecutedBy",
    "ExecutionFailed",
    "Explained",
    "ExternalProgram",
    "Facts",
    "Failed",
    "FileEffect",
    "FileFact",
    "FileMatch",
    "FileNow",
    "FileQuotes",
    "Forecast",
    "Forked",
    "GraphStep",
    "Hold",
    "Imported",
    "InvalidInput",
    "Isolation",
    "Job",
    "JobFact",
    "JobResult",
    "JobSpec",
    "Kind",
    "KindNames",
    "KindRole",
    "KindSettings",
    "LcpError",
    "LimitReached",
    "Limits",
    "Link",
    "LinkedJob",
    "Look",
    "Looked",
    "Malformed",
    "Meaning",
    "Memory",
    "MemoryEdit",
    "MemoryEffect",
    "MemoryUse",
    "Mission",
    "MissionComplete",
    "MissionSpec",
    "MissionStatus",
    "Names",
    "Need",
    "Needs",
    "NotFound",
    "Opened",
    "Outcome",
    "Overlap",
    "PathPolicy",
    "Permission",
    "Place",
    "PlanGraph",
    "Planner",
    "PlannerError",
    "PlannerSpec",
    "Policy",
    "Problem",
    "Question",
    "RateLimit",
    "Reason",
    "ReasonCode",
    "Refused",
    "Relayed",
    "Remembered",
    "Replayed",
    "Reply",
    "RequestMetadata",
    "RequestProject",
    "ResultSpec",
    "Retention",
    "Retry",
    "Root",
    "Rule",
    "Ruling",
    "Runner",
    "Said",
    "Schedule",
    "SeenJob",
    "SeenMemory",
    "Sight",
    "SignedLinks",
    "State",
    "StatedCondition",
    "StatedErrorHandling",
    "StatedPlan",
    "StatedRetry",
    "StatedStep",
    "TurnFact",
    "Undo",
    "UndoneFact",
    "Upkeep",
    "Verdict",
    "Webhook",
    "Worker",
    "Workers",
    "WriteFile",
    "WrongState",
    "read_reply",
    "run_job",
    "worker",
]

# The names of each module, for `__getattr__`.
_MODULES = {
    "api.decision_links": ("DecisionLinks", "LinkedJob"),
    "api.engine": ("Engine",),
    "api.memory": ("Memory", "MemoryEdit", "Remembered"),
    "api.read_reply": ("read_reply",),
    "changes.show": ("FileNow", "Forecast", "Look"),
    "changes.unified_diff": ("Diff",),
    "clock": ("Clock",),
    "core.decision_link": ("SignedLinks",),
    "core.job_states": ("Need", "State"),
    "core.kinds": ("KindRole",),
    "core.mission.plan": (
        "StatedCondition",
        "StatedErrorHandling",
        "StatedPlan",
        "StatedRetry",
        "StatedStep",
    ),
    "core.memory": ("Entry",),
    "core.mission.spec": (
        "AcceptCheck",
        "Commands",
        "FileMatch",
        "FileQuotes",
        "KindSettings",
        "Limits",
        "MemoryUse",
        "MissionSpec",
        "PlannerSpec",
        "ResultSpec",
        "Retry",
    ),
    "core.permits": ("RateLimit",),
    "core.plan_graph": ("GraphStep", "Link", "PlanGraph"),
    "core.policy": (
        "Consent",
        "Explained",
        "KindNames",
        "Looked",
        "PathPolicy",
        "Policy",
        "Rule",
        "Ruling",
        "Verdict",
    ),
    "core.protocol.actions": (
        "Action",
        "AnalysisResult",
        "CreateFollowupJobs",
        "ErrorAction",
        "JobSpec",
        "Malformed",
        "MissionComplete",
        "Problem",
        "WriteFile",
    ),
    "core.protocol.request": ("AgentRequest", "RequestMetadata", "RequestProject"),
    "core.reasons": ("Reason", "ReasonCode"),
    "core.upkeep": ("Backups", "Checks", "Retention", "Upkeep"),
    "core.webhook": ("Webhook",),
    "api.run_job": ("JobResult", "run_job"),
    "engine.memory": ("Imported",),
    "engine.schedules": ("Overlap",),
    "errors": (
        "AgentError",
        "Conflict",
        "DatabaseFailed",
        "ErrorCode",
        "ErrorType",
        "ExecutionFailed",
        "Failed",
        "InvalidInput",
        "LcpError",
        "LimitReached",
        "Meaning",
        "NotFound",
        "Refused",
        "WrongState",
    ),
    "planners.base": (
        "Correction",
        "Kind",
        "Planner",
        "PlannerError",
        "Question",
        "Relayed",
        "Reply",
        "Said",
        "SeenJob",
        "SeenMemory",
        "SeenMemory",
    ),
    "replay.compare": ("Difference",),
    "replay.fork": ("Drift", "Forked"),
    "replay.replay": ("Replayed",),
    "runner.runner": ("Runner",),
    "runner.undo": ("Undo",),
    "sandbox.landlock": ("Isolation",),
    "sandbox.paths": ("Names", "Place"),
    "sandbox.root": ("Opened", "Root"),
    "store.db.transaction": ("Connection", "Cursor"),
    "store.people": ("Sight",),
    "store.queries.mission_facts": (
        "Course",
        "DiskState",
        "Excerpt",
        "Facts",
        "FileFact",
        "JobFact",
        "TurnFact",
        "UndoneFact",
    ),
    "store.queries.records": ("ActiveRunner", "Job", "Mission", "MissionStatus", "Schedule"),
    "workers.base": (
        "Applied",
        "Caps",
        "Context",
        "EarlierJob",
        "Example",
        "ExecutedBy",
        "FileEffect",
        "Hold",
        "MemoryEffect",
        "Outcome",
        "Permission",
        "Worker",
        "Workers",
    ),
    "workers.external": ("ExternalProgram", "Needs"),
    "workers.registry": ("worker",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import lcp_engine` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
