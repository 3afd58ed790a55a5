"""Name everything that can go wrong: one taxonomy with stable codes and words for people (R15)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TypeAlias

Json: TypeAlias = "Mapping[str, Json] | list[Json] | tuple[Json, ...] | str | int | float | bool | None"


class ErrorType(StrEnum):
    """The six categories of `AgentError` (seed 001)."""

    INPUT = "input_error"
    EXECUTION = "execution_error"
    RESOURCE = "resource_error"
    PERMISSION = "permission_error"
    TIMEOUT = "timeout_error"
    SYSTEM = "system_error"


@dataclass(frozen=True)
class Meaning:
    """What a code stands for: its category, a sentence for the docs, what to do, and whether trying again can help."""

    type: ErrorType
    text: str
    advice: str
    retry: bool = False


class ErrorCode(StrEnum):
    """Stable names of errors; scripts may rely on them. `MEANINGS` explains each."""

    PATH_NOT_FOUND = "PATH_NOT_FOUND"
    PATH_OUTSIDE_ROOT = "PATH_OUTSIDE_ROOT"
    PATH_DENIED = "PATH_DENIED"
    NOT_A_FILE = "NOT_A_FILE"
    TOO_LARGE = "TOO_LARGE"
    BINARY = "BINARY"
    CONFLICT = "CONFLICT"
    FILE_SYSTEM = "FILE_SYSTEM"
    INVALID_PARAMS = "INVALID_PARAMS"
    INVALID_PATTERN = "INVALID_PATTERN"
    INVALID_MISSION = "INVALID_MISSION"
    INVALID_REPLY = "INVALID_REPLY"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    SCRIPT_EXHAUSTED = "SCRIPT_EXHAUSTED"
    CLARIFICATION_EXHAUSTED = "CLARIFICATION_EXHAUSTED"
    PLANNER_FAILED = "PLANNER_FAILED"
    PLANNER_REFUSED = "PLANNER_REFUSED"
    NO_PLANNER = "NO_PLANNER"
    NO_WORKER = "NO_WORKER"
    WORKER_FAILED = "WORKER_FAILED"
    WORKER_DIED = "WORKER_DIED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NOT_ISOLATED = "NOT_ISOLATED"
    RUNNER_DIED = "RUNNER_DIED"
    TIMEOUT = "TIMEOUT"
    LIMIT_REACHED = "LIMIT_REACHED"
    NOT_ALLOWED = "NOT_ALLOWED"
    NOT_FOUND = "NOT_FOUND"
    WRONG_STATE = "WRONG_STATE"
    DATABASE_BUSY = "DATABASE_BUSY"
    DATABASE_VERSION = "DATABASE_VERSION"
    DATABASE_FAILED = "DATABASE_FAILED"


OF_DATABASE = frozenset({ErrorCode.DATABASE_BUSY, ErrorCode.DATABASE_VERSION, ErrorCode.DATABASE_FAILED})
"""Trouble with the database itself; no job is to blame for it."""

_T = ErrorType
MEANINGS: Mapping[ErrorCode, Meaning] = {
    ErrorCode.PATH_NOT_FOUND: Meaning(
        _T.INPUT, "No file or directory has that path.", "Check the path; list the directory first."
    ),
    ErrorCode.PATH_OUTSIDE_ROOT: Meaning(
        _T.PERMISSION, "The path leaves the mission's root.", "Name a path beneath the root, relative to it."
    ),
    ErrorCode.PATH_DENIED: Meaning(
        _T.PERMISSION,
        "Policy or the file system denies this path.",
        "Leave the file alone, or let a user's rule or its permissions allow it.",
    ),
    ErrorCode.NOT_A_FILE: Meaning(
        _T.INPUT, "The path is a directory, FIFO, device or socket.", "Name a regular file."
    ),
    ErrorCode.TOO_LARGE: Meaning(
        _T.RESOURCE,
        "The file or the content is above its cap.",
        "Read a part with offset and limit, or raise the cap.",
    ),
    ErrorCode.BINARY: Meaning(_T.INPUT, "The file is not text.", "Read text files only."),
    ErrorCode.CONFLICT: Meaning(
        _T.EXECUTION,
        "The file is not what the change was made for.",
        "Look at the difference, then decide again.",
    ),
    ErrorCode.FILE_SYSTEM: Meaning(
        _T.RESOURCE, "The file system refused.", "Check space, permissions and mounts.", retry=True
    ),
    ErrorCode.INVALID_PARAMS: Meaning(
        _T.INPUT,
        "The params of a job do not fit its kind.",
        "Correct the params; `lcp schema KIND` shows them.",
    ),
    ErrorCode.INVALID_PATTERN: Meaning(
        _T.INPUT, "A pattern is not a usable gitignore-style pattern.", "Write a simpler pattern."
    ),
    ErrorCode.INVALID_MISSION: Meaning(_T.INPUT, "The mission file is not valid.", "Correct the named key."),
    ErrorCode.INVALID_REPLY: Meaning(
        _T.INPUT,
        "The planner's reply is not one valid LCP action.",
        "See the turn's errors; try another planner.",
    ),
    ErrorCode.INVALID_ARGUMENT: Meaning(_T.INPUT, "An argument is not usable.", "Correct the argument."),
    ErrorCode.SCRIPT_EXHAUSTED: Meaning(
        _T.INPUT, "A scripted planner has no reply left.", "Add a reply that ends the mission."
    ),
    ErrorCode.CLARIFICATION_EXHAUSTED: Meaning(
        _T.INPUT,
        "The planner asked for clarification too often.",
        "State the goal more exactly, then launch the mission anew.",
    ),
    ErrorCode.PLANNER_FAILED: Meaning(
        _T.SYSTEM, "The planner gave no reply.", "Check that it is reachable.", retry=True
    ),
    ErrorCode.PLANNER_REFUSED: Meaning(
        _T.INPUT,
        "The planner's server refuses the question: its key, model, address or options do not fit.",
        "Correct what the message names; `lcp doctor --planner NAME` finds it. Then resume the mission.",
    ),
    ErrorCode.NO_PLANNER: Meaning(_T.INPUT, "No planner has that name.", "Name one that is installed."),
    ErrorCode.NO_WORKER: Meaning(
        _T.INPUT,
        "No worker executes this kind of job.",
        "Install or register a worker for it, or reject the job.",
    ),
    ErrorCode.WORKER_FAILED: Meaning(
        _T.EXECUTION, "The worker raised an exception.", "Look at the attempt's details.", retry=True
    ),
    ErrorCode.WORKER_DIED: Meaning(
        _T.SYSTEM, "The process that executed the job ended.", "Find out what ends it.", retry=True
    ),
    ErrorCode.OUT_OF_MEMORY: Meaning(
        _T.RESOURCE,
        "The job took more memory than the process that executed it may.",
        "Make the job smaller, or raise the caps: the memory follows them.",
    ),
    ErrorCode.NOT_ISOLATED: Meaning(
        _T.SYSTEM,
        "File kinds have to run in confined processes, and cannot.",
        "Use a kernel with Landlock, or set isolation to auto.",
    ),
    ErrorCode.RUNNER_DIED: Meaning(
        _T.SYSTEM, "The runner died during the job too often.", "Find out what kills it before a retry."
    ),
    ErrorCode.TIMEOUT: Meaning(
        _T.TIMEOUT,
        "The attempt took longer than it may.",
        "Raise the timeout, or make the job smaller.",
        retry=True,
    ),
    ErrorCode.LIMIT_REACHED: Meaning(
        _T.RESOURCE, "A limit of the mission is used up.", "Resume the mission with a higher limit."
    ),
    ErrorCode.NOT_ALLOWED: Meaning(
        _T.PERMISSION,
        "The permission level of the kind forbids it.",
        "Launch the mission with that permission.",
    ),
    ErrorCode.NOT_FOUND: Meaning(_T.INPUT, "Nothing has that id or name.", "List what there is."),
    ErrorCode.WRONG_STATE: Meaning(
        _T.INPUT, "The job or mission is in another state than this needs.", "Look at its state first."
    ),
    ErrorCode.DATABASE_BUSY: Meaning(
        _T.RESOURCE, "The database stayed locked.", "Try again; end what holds the lock.", retry=True
    ),
    ErrorCode.DATABASE_VERSION: Meaning(
        _T.SYSTEM,
        "The database does not belong to this version of the engine.",
        "Upgrade the engine or the database.",
    ),
    ErrorCode.DATABASE_FAILED: Meaning(
        _T.SYSTEM, "The database refused a statement.", "Check that it is reachable, writable and not full."
    ),
}


@dataclass(frozen=True)
class Failed:
    """Expected trouble as a value: a code, one sentence (thing, expectation, fact), and details for machines."""

    code: ErrorCode
    message: str
    details: Mapping[str, Json] = field(default_factory=dict)

    @property
    def meaning(self) -> Meaning:
        return MEANINGS[self.code]


class LcpError(Exception):
    """Trouble that a caller has to see; carries a `Failed`."""

    def __init__(self, code: ErrorCode, message: str, details: Mapping[str, Json] | None = None) -> None:
        super().__init__(message)
        self.failed = Failed(code, message, details or {})

    @property
    def code(self) -> ErrorCode:
        return self.failed.code


@dataclass(frozen=True)
class AgentError:
    """An error as it is stored and printed (seed 001, `AgentError`)."""

    error_id: str
    request_id: str
    timestamp: str
    error_type: str
    error_code: str
    user_message: str
    technical_details: Mapping[str, Json]
    recommended_actions: list[Mapping[str, Json]]

    @classmethod
    def of(cls, failed: Failed, *, error_id: str, request_id: str, timestamp: str) -> AgentError:
        """`failed` in the published form; ids are typed (`err-…`, `req-…`), the timestamp is ISO 8601."""
        action = "system_retry" if failed.meaning.retry else "user_action"
        return cls(
            error_id=error_id,
            request_id=request_id,
            timestamp=timestamp,
            error_type=failed.meaning.type.value,
            error_code=failed.code.value,
            user_message=failed.message,
            technical_details=dict(failed.details),
            recommended_actions=[{"description": failed.meaning.advice, "action_type": action}],
        )

    def as_json(self) -> dict[str, Json]:
        return asdict(self)
