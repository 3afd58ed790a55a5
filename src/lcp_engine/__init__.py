"""Run missions over a directory: a planner replies with LCP actions, and a durable queue executes them as jobs.

Programs use `Engine`, `run_job` and `read_reply`; docs/python.md shows how to write a worker and a planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from warnings import warn

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine
    from lcp_engine.api.read_reply import read_reply
    from lcp_engine.clock import Clock
    from lcp_engine.core.job_states import State
    from lcp_engine.core.mission.spec import Limits, MissionSpec, PlannerSpec
    from lcp_engine.core.policy import Policy, Rule
    from lcp_engine.core.protocol.actions import Action, Malformed
    from lcp_engine.errors import (
        AgentError,
        Conflict,
        DatabaseFailed,
        ErrorCode,
        ExecutionFailed,
        Failed,
        InvalidInput,
        LcpError,
        LimitReached,
        NotFound,
        Refused,
        WrongState,
    )
    from lcp_engine.features.authoring.run_job import JobResult, run_job
    from lcp_engine.features.programs.servers.external_worker import ExternalProgram, Needs
    from lcp_engine.planners.base import Planner, PlannerError, Question, Reply
    from lcp_engine.runner.runner import Runner
    from lcp_engine.sandbox.system.landlock import Isolation
    from lcp_engine.store.queries.records import Job, Mission, MissionStatus
    from lcp_engine.workers.base import Caps, Context, Example, Hold, Outcome, Worker, Workers
    from lcp_engine.workers.registry import worker

__all__ = [
    "Action",
    "AgentError",
    "Caps",
    "Clock",
    "Conflict",
    "Context",
    "DatabaseFailed",
    "Engine",
    "ErrorCode",
    "Example",
    "ExecutionFailed",
    "ExternalProgram",
    "Failed",
    "Hold",
    "InvalidInput",
    "Isolation",
    "Job",
    "JobResult",
    "LcpError",
    "LimitReached",
    "Limits",
    "Malformed",
    "Mission",
    "MissionSpec",
    "MissionStatus",
    "Needs",
    "NotFound",
    "Outcome",
    "Planner",
    "PlannerError",
    "PlannerSpec",
    "Policy",
    "Question",
    "Refused",
    "Reply",
    "Rule",
    "Runner",
    "State",
    "Worker",
    "Workers",
    "WrongState",
    "read_reply",
    "run_job",
    "worker",
]

_MODULES = {
    "api.engine": ("Engine",),
    "api.read_reply": ("read_reply",),
    "clock": ("Clock",),
    "core.job_states": ("State",),
    "core.mission.spec": ("Limits", "MissionSpec", "PlannerSpec"),
    "core.policy": ("Policy", "Rule"),
    "core.protocol.actions": ("Action", "Malformed"),
    "errors": (
        "AgentError",
        "Conflict",
        "DatabaseFailed",
        "ErrorCode",
        "ExecutionFailed",
        "Failed",
        "InvalidInput",
        "LcpError",
        "LimitReached",
        "NotFound",
        "Refused",
        "WrongState",
    ),
    "features.authoring.run_job": ("JobResult", "run_job"),
    "features.programs.servers.external_worker": ("ExternalProgram", "Needs"),
    "planners.base": ("Planner", "PlannerError", "Question", "Reply"),
    "runner.runner": ("Runner",),
    "sandbox.system.landlock": ("Isolation",),
    "store.queries.records": ("Job", "Mission", "MissionStatus"),
    "workers.base": ("Caps", "Context", "Example", "Hold", "Outcome", "Worker", "Workers"),
    "workers.registry": ("worker",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

_MOVED = {
    "evaluation": (
        "CheckResult",
        "Evaluation",
        "Expectation",
        "FigureDifference",
        "FinishedTrial",
        "PlannerSummary",
        "Score",
        "Share",
        "Suite",
        "SuiteMission",
        "Trial",
        "TrialRecord",
        "compare_scores",
        "summarize_scores",
    ),
    "inbox": (
        "Act",
        "Awaits",
        "Contents",
        "Decision",
        "Decisions",
        "Diff",
        "DiskState",
        "FileNow",
        "Forecast",
        "Gap",
        "HeldJob",
        "Hunk",
        "Inbox",
        "Look",
        "Need",
        "Reason",
        "ReasonCode",
        "Review",
        "Sight",
        "Undo",
        "Unseen",
    ),
    "kinds": (
        "Applied",
        "Connection",
        "Cursor",
        "EarlierJob",
        "ExecutedBy",
        "Execution",
        "FileEffect",
        "KindRole",
        "Names",
        "Opened",
        "Permission",
        "Place",
        "ProcessNeeds",
        "Root",
        "Stored",
    ),
    "memory": ("Entry", "Imported", "Memory", "MemoryEdit", "MemoryEffect", "Remembered"),
    "mission": (
        "AcceptCheck",
        "Background",
        "Commands",
        "FileMatch",
        "FileQuotes",
        "KindSettings",
        "MemoryUse",
        "NetworkUse",
        "RateLimit",
        "ResultSpec",
        "Retry",
    ),
    "operation": (
        "ActiveRunner",
        "AllowedHost",
        "Backups",
        "Checks",
        "NetworkGrant",
        "Price",
        "Prices",
        "Retention",
        "SignedLinks",
        "Upkeep",
        "Webhook",
    ),
    "planning": (
        "AskedToWait",
        "CompletionRecord",
        "Correction",
        "Fault",
        "Kind",
        "LeftOut",
        "PromptRecord",
        "Relayed",
        "Said",
        "SeenJob",
        "SeenMemory",
    ),
    "policy": ("Approvals", "Consent", "Explained", "KindNames", "Looked", "PathPolicy", "Ruling", "Verdict"),
    "protocol": (
        "AnalysisResult",
        "CreateFollowupJobs",
        "ErrorAction",
        "JobSpec",
        "MissionComplete",
        "Problem",
        "WriteFile",
    ),
    "plans": (
        "GraphStep",
        "Link",
        "PlanGraph",
        "StatedCondition",
        "StatedErrorHandling",
        "StatedPlan",
        "StatedRetry",
        "StatedStep",
    ),
    "replay": ("Difference", "Drift", "Forked", "Replayed"),
    "reports": ("Course", "Excerpt", "Facts", "FileFact", "JobFact", "TurnFact", "UndoneFact"),
    "approvers": ("DecisionLinks", "LinkedJob"),
    "stages": ("MergeParams", "params_taking"),
    "schedules": ("Overlap", "Schedule"),
    "universal": (
        "AgentRequest",
        "CursorPosition",
        "RequestEnvironment",
        "RequestMetadata",
        "RequestProject",
    ),
    "errors": ("Code", "ErrorType", "Meaning"),
}
"""Names that were public here until 0.3, by the module that has them now; they still work until 0.4."""
_NEW_HOMES = {name: module for module, names in _MOVED.items() for name in names}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used, so that `import lcp_engine` costs nothing."""
    if name in _MOVED:
        return import_module(f"{__name__}.{name}")
    module = _HOMES.get(name)
    if module is None and name in _NEW_HOMES:
        module = _NEW_HOMES[name]
        warn(f"{__name__}.{name} is {__name__}.{module}.{name} now", DeprecationWarning, stacklevel=2)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
