"""Every error of the engine: stable codes, what each means and advises, and the exceptions that carry them (R15)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Self, TypeAlias

Json: TypeAlias = "Mapping[str, Json] | list[Json] | tuple[Json, ...] | str | int | float | bool | None"


class ErrorType(StrEnum):
    """The six categories of `AgentError`."""

    INPUT = "input_error"
    EXECUTION = "execution_error"
    RESOURCE = "resource_error"
    PERMISSION = "permission_error"
    TIMEOUT = "timeout_error"
    SYSTEM = "system_error"


@dataclass(frozen=True)
class Meaning:
    """What a code means: its category, a sentence for the docs, advice, and whether another attempt can succeed."""

    type: ErrorType
    text: str
    advice: str
    retry: bool = False


class ErrorCode(StrEnum):
    """The stable name of an error, which scripts may rely on; `MEANINGS` explains each."""

    PATH_NOT_FOUND = "PATH_NOT_FOUND"
    PATH_OUTSIDE_ROOT = "PATH_OUTSIDE_ROOT"
    PATH_DENIED = "PATH_DENIED"
    NOT_A_FILE = "NOT_A_FILE"
    PATH_EXISTS = "PATH_EXISTS"
    TOO_LARGE = "TOO_LARGE"
    BINARY = "BINARY"
    NO_SINGLE_MATCH = "NO_SINGLE_MATCH"
    CONFLICT = "CONFLICT"
    ROOT_CHANGED = "ROOT_CHANGED"
    FILE_SYSTEM = "FILE_SYSTEM"
    INVALID_PARAMS = "INVALID_PARAMS"
    INVALID_PATTERN = "INVALID_PATTERN"
    OUTPUT_NOT_FOUND = "OUTPUT_NOT_FOUND"
    INVALID_MISSION = "INVALID_MISSION"
    INVALID_REPLY = "INVALID_REPLY"
    ECHO = "ECHO"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    SCRIPT_EXHAUSTED = "SCRIPT_EXHAUSTED"
    CLARIFICATION_EXHAUSTED = "CLARIFICATION_EXHAUSTED"
    PLANNER_FAILED = "PLANNER_FAILED"
    PLANNER_REFUSED = "PLANNER_REFUSED"
    PLANNER_GAVE_UP = "PLANNER_GAVE_UP"
    NO_PROGRESS = "NO_PROGRESS"
    NO_PLANNER = "NO_PLANNER"
    NO_WORKER = "NO_WORKER"
    WORKER_FAILED = "WORKER_FAILED"
    WORKER_DIED = "WORKER_DIED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NOT_ISOLATED = "NOT_ISOLATED"
    NOT_INSTALLED = "NOT_INSTALLED"
    RUNNER_DIED = "RUNNER_DIED"
    TIMEOUT = "TIMEOUT"
    LIMIT_REACHED = "LIMIT_REACHED"
    NOT_ALLOWED = "NOT_ALLOWED"
    NOT_SHOWN = "NOT_SHOWN"
    LINK_REFUSED = "LINK_REFUSED"
    TOKEN_REFUSED = "TOKEN_REFUSED"  # noqa: S105  # a name
    TOO_MANY_REQUESTS = "TOO_MANY_REQUESTS"
    WEBHOOK_FAILED = "WEBHOOK_FAILED"
    NOT_FOUND = "NOT_FOUND"
    WRONG_STATE = "WRONG_STATE"
    DATABASE_BUSY = "DATABASE_BUSY"
    DATABASE_VERSION = "DATABASE_VERSION"
    DATABASE_FAILED = "DATABASE_FAILED"


OF_DATABASE = frozenset({ErrorCode.DATABASE_BUSY, ErrorCode.DATABASE_VERSION, ErrorCode.DATABASE_FAILED})
"""Errors of the database itself: they are never a job's result."""

_T = ErrorType
MEANINGS: Mapping[ErrorCode, Meaning] = {
    ErrorCode.PATH_NOT_FOUND: Meaning(
        _T.INPUT, "No file or directory has that path.", "Check the path; list its directory first."
    ),
    ErrorCode.PATH_OUTSIDE_ROOT: Meaning(
        _T.PERMISSION,
        "The path leaves the mission's root.",
        "Name a path beneath the root, relative to it; `root_aliases` of the mission lists other names of the root.",
    ),
    ErrorCode.PATH_DENIED: Meaning(
        _T.PERMISSION,
        "Policy or the file system denies this path.",
        "Leave the file alone; the message names the rule or the permission that denies it.",
    ),
    ErrorCode.NOT_A_FILE: Meaning(
        _T.INPUT, "The path is a directory, FIFO, device or socket.", "Name a regular file."
    ),
    ErrorCode.PATH_EXISTS: Meaning(
        _T.INPUT,
        "Something has that path already, and is not replaced.",
        "Choose another path, or delete or move what is there first.",
    ),
    ErrorCode.TOO_LARGE: Meaning(
        _T.RESOURCE,
        "The file or the content is larger than its cap.",
        "Use less at once, or raise the cap in the configuration file.",
    ),
    ErrorCode.BINARY: Meaning(_T.INPUT, "The file is not text.", "Read text files only."),
    ErrorCode.NO_SINGLE_MATCH: Meaning(
        _T.INPUT,
        "The text to replace is not in the file, or more than once.",
        "Read the file, and give the text exactly as it is there, with enough of what surrounds it.",
    ),
    ErrorCode.CONFLICT: Meaning(
        _T.EXECUTION,
        "The file, or the row, has changed since the change was made or approved.",
        "Look at what has changed, then decide again.",
    ),
    ErrorCode.ROOT_CHANGED: Meaning(
        _T.EXECUTION,
        "The mission's root is a link now, or another directory than at its launch.",
        "Put the directory back, or accept the new one with `lcp resume M --root DIR`.",
    ),
    ErrorCode.FILE_SYSTEM: Meaning(
        _T.RESOURCE,
        "The file system refused the operation.",
        "Check space, permissions and mounts.",
        retry=True,
    ),
    ErrorCode.INVALID_PARAMS: Meaning(
        _T.INPUT,
        "The params of a job do not fit its kind.",
        "Correct the param that the message names.",
    ),
    ErrorCode.INVALID_PATTERN: Meaning(
        _T.INPUT,
        "A pattern is not a valid gitignore-style pattern, or costs too much to match.",
        "Write a simpler pattern.",
    ),
    ErrorCode.OUTPUT_NOT_FOUND: Meaning(
        _T.INPUT,
        "A reference of a plan's step names an output that the step before does not have.",
        "Correct the reference; `lcp job J` shows what the step before gave.",
    ),
    ErrorCode.INVALID_MISSION: Meaning(
        _T.INPUT, "The mission is not valid.", "Correct the key that the message names."
    ),
    ErrorCode.INVALID_REPLY: Meaning(
        _T.INPUT,
        "The planner's reply is not one valid LCP action.",
        "Correct the reply as its errors say; a planner that repeats them needs other instructions or another model.",
    ),
    ErrorCode.ECHO: Meaning(
        _T.INPUT,
        "The words that a model ends with repeat its goal, its instructions or themselves.",
        "Ask less at once, or another model; `lcp job J --prompt` shows what it was told. Then resume the mission.",
    ),
    ErrorCode.INVALID_ARGUMENT: Meaning(
        _T.INPUT,
        "An argument or a setting has a value that cannot be used.",
        "Correct the value that the message names.",
    ),
    ErrorCode.SCRIPT_EXHAUSTED: Meaning(
        _T.INPUT, "A scripted planner has no reply left.", "Add a reply that ends the mission."
    ),
    ErrorCode.CLARIFICATION_EXHAUSTED: Meaning(
        _T.INPUT,
        "The planner asked for clarification too often.",
        "State the goal more precisely, then launch the mission again.",
    ),
    ErrorCode.PLANNER_FAILED: Meaning(
        _T.SYSTEM,
        "The planner did not reply.",
        "Correct what the message names; `lcp doctor --planner NAME` tests a model's server.",
        retry=True,
    ),
    ErrorCode.PLANNER_REFUSED: Meaning(
        _T.INPUT,
        "The planner's server rejects the request: the key, the model, the address or an option is wrong.",
        "Correct what the message names; `lcp doctor --planner NAME` finds it. Then resume the mission.",
    ),
    ErrorCode.PLANNER_GAVE_UP: Meaning(
        _T.EXECUTION,
        "The planner ended the mission with an error of its own.",
        "Correct what its message names, then resume the mission.",
    ),
    ErrorCode.NO_PROGRESS: Meaning(
        _T.EXECUTION,
        "The planner asked for nothing new several times in a row.",
        "Look at what it repeated; resume the mission and tell its planner what to do instead.",
    ),
    ErrorCode.NO_PLANNER: Meaning(
        _T.INPUT,
        "No installed planner has that name.",
        "Use the name of an installed planner; the message lists them.",
    ),
    ErrorCode.NO_WORKER: Meaning(
        _T.INPUT,
        "No worker executes this kind of job.",
        "Install or register a worker for it, or reject the job.",
    ),
    ErrorCode.WORKER_FAILED: Meaning(
        _T.EXECUTION,
        "The worker raised an exception.",
        "Read the details of the attempt; they hold the traceback.",
        retry=True,
    ),
    ErrorCode.WORKER_DIED: Meaning(
        _T.SYSTEM,
        "The process that executed the job died.",
        "Find out what killed it; the log of the system names a lack of memory.",
        retry=True,
    ),
    ErrorCode.OUT_OF_MEMORY: Meaning(
        _T.RESOURCE,
        "The job used more memory than its process is allowed.",
        "Make the job smaller, or raise the caps: the memory limit follows from them.",
    ),
    ErrorCode.NOT_ISOLATED: Meaning(
        _T.SYSTEM,
        "Isolation is required, and this kernel cannot confine the processes of file kinds.",
        "Use a kernel with Landlock, or set isolation to auto.",
    ),
    ErrorCode.NOT_INSTALLED: Meaning(
        _T.SYSTEM,
        "A feature that this needs is not installed, or was left out.",
        "Install it; the log says why.",
    ),
    ErrorCode.RUNNER_DIED: Meaning(
        _T.SYSTEM,
        "The job was running in too many runners that died.",
        "Find out what kills the runner before you retry the job.",
    ),
    ErrorCode.TIMEOUT: Meaning(
        _T.TIMEOUT,
        "The attempt took longer than its timeout.",
        "Raise the timeout, or make the job smaller.",
        retry=True,
    ),
    ErrorCode.LIMIT_REACHED: Meaning(
        _T.RESOURCE,
        "A limit of the mission is used up.",
        "Resume the mission with a higher limit, once it has ended.",
    ),
    ErrorCode.NOT_ALLOWED: Meaning(
        _T.PERMISSION,
        "The job is not allowed: by the permission level or the needs of its kind, by a person, or by its deadline.",
        "Propose something else, or nothing.",
    ),
    ErrorCode.LINK_REFUSED: Meaning(
        _T.PERMISSION,
        "A signed link was edited, forwarded, used before, or has expired.",
        "Ask for a new link, or decide on the page or at the terminal.",
    ),
    ErrorCode.TOKEN_REFUSED: Meaning(
        _T.PERMISSION,
        "A program's token is missing, unknown, ended, has not the scope for this, or was sent in an address.",
        "Send the token of `lcp tokens add` in the header `Authorization`.",
    ),
    ErrorCode.TOO_MANY_REQUESTS: Meaning(
        _T.RESOURCE,
        "A program's token has made as many requests as it may for now.",
        "Ask again after the seconds of `Retry-After`.",
        retry=True,
    ),
    ErrorCode.WEBHOOK_FAILED: Meaning(
        _T.EXECUTION,
        "The webhook's server did not take a notice that was sent as a test.",
        "Check the address, the server and the secret that it verifies with; then send the test again.",
    ),
    ErrorCode.NOT_SHOWN: Meaning(
        _T.INPUT,
        "A page or list did not show in full what would run, so that it cannot be approved there.",
        "Look at the job alone, then decide.",
    ),
    ErrorCode.NOT_FOUND: Meaning(
        _T.INPUT, "Nothing has that id or name.", "List the ids and names that exist."
    ),
    ErrorCode.WRONG_STATE: Meaning(
        _T.INPUT,
        "The job or mission is in a state that does not permit this.",
        "Look at its state; the message says which one is expected.",
    ),
    ErrorCode.DATABASE_BUSY: Meaning(
        _T.RESOURCE,
        "The database stayed locked.",
        "Try again; stop the program that holds the lock.",
        retry=True,
    ),
    ErrorCode.DATABASE_VERSION: Meaning(
        _T.SYSTEM,
        "The database does not belong to this version of the engine.",
        "Use the engine of that version or a newer one, or another database.",
    ),
    ErrorCode.DATABASE_FAILED: Meaning(
        _T.SYSTEM, "The database refused a statement.", "Check that it is reachable, writable and not full."
    ),
}


GENERAL: Final = None
"""`advice=GENERAL` states that the advice of the code was judged to help at this place: with many codes it may not."""


@dataclass(frozen=True)
class Failed:
    """An expected failure as a value."""

    code: ErrorCode
    message: str
    """One sentence that names the thing, the fact and the expectation."""
    details: Mapping[str, Json] = field(default_factory=dict)
    """More about it, for programs."""
    advice: str | None = None
    """What to do about it, if the advice of the code does not fit."""

    @property
    def recommendation(self) -> str:
        """What to do about it: its own advice, else that of its code."""
        return self.advice or self.meaning.advice

    @property
    def meaning(self) -> Meaning:
        """What the code means, advises, and whether another attempt can succeed."""
        return MEANINGS[self.code]


def install(extra: str) -> str:
    """The command that installs an optional part of the engine, as an advice."""
    return f"pip install '.[{extra}]' in a clone of lcp-engine"


_BY_ERRNO: Mapping[int, str] = {
    errno.EACCES: "Change its permissions, or run lcp as the user who owns it.",
    errno.EPERM: "Change its permissions, or run lcp as the user who owns it.",
    errno.EROFS: "Use a file system that is mounted for writing.",
    errno.ENOSPC: "Free space on its disk.",
    errno.EDQUOT: "Free space within the quota.",
    errno.EMFILE: "Raise the number of open files (`ulimit -n`).",
    errno.ENFILE: "Close programs: the system has no open files left.",
    errno.ENOENT: "Check the path.",
    errno.ENOTDIR: "Check the path.",
    errno.ELOOP: "Check the path: its links lead in a circle.",
    errno.ENAMETOOLONG: "Use a shorter path.",
}


def refused_by_system(error: OSError) -> Failed:
    """`FILE_SYSTEM` for what the operating system refused, with the path and the reason it gives."""
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    about = f"{' to '.join(map(repr, paths))}: " if paths else "the operating system reported an error: "
    details: dict[str, Json] = {} if error.errno is None else {"errno": error.errno}
    return Failed(ErrorCode.FILE_SYSTEM, f"{about}{_reason(error)}", details, advice=system_advice(error))


def system_advice(error: OSError) -> str | None:
    """What to do about a refusal of the operating system; None if the advice of `FILE_SYSTEM` fits."""
    return _BY_ERRNO.get(error.errno or 0)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__


_C = ErrorCode


class UnexpectedValue(ValueError):
    """A validator's refusal of a value: its message says what the value should be, and the value is named behind it."""


class LcpError(Exception):
    """A failure that the caller has to handle, with its `Failed`.

    The class follows from the code, as it does for `OSError`: `LcpError(ErrorCode.NOT_FOUND, …)` makes a `NotFound`, so
    callers catch a class and need not compare codes.
    """

    codes: ClassVar[frozenset[ErrorCode]] = frozenset()
    """The codes of this class."""

    def __new__(cls, code: ErrorCode, *_: object, **__: object) -> Self:
        """An error of the subclass that `code` belongs to."""
        return super().__new__(next((one for one in cls.__subclasses__() if code in one.codes), cls))

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        details: Mapping[str, Json] | None = None,
        advice: str | None = None,
    ) -> None:
        """`advice` says what to do about it if the advice of the code does not fit here."""
        super().__init__(message)
        self.failed = Failed(code, message, details or {}, advice)

    @staticmethod
    def of(failed: Failed) -> LcpError:
        """The error that raises a failure."""
        return LcpError(failed.code, failed.message, failed.details, failed.advice)

    @property
    def code(self) -> ErrorCode:
        """The stable code of the failure."""
        return self.failed.code


class NotFound(LcpError):
    """A file, mission, job, worker or planner does not exist."""

    codes = frozenset({_C.PATH_NOT_FOUND, _C.NOT_FOUND, _C.NO_PLANNER, _C.NO_WORKER})


class InvalidInput(LcpError):
    """An argument, mission, params, pattern, reply or file cannot be used as given."""

    codes = frozenset(
        {
            _C.INVALID_ARGUMENT,
            _C.INVALID_MISSION,
            _C.INVALID_PARAMS,
            _C.INVALID_PATTERN,
            _C.OUTPUT_NOT_FOUND,
            _C.INVALID_REPLY,
            _C.ECHO,
            _C.SCRIPT_EXHAUSTED,
            _C.CLARIFICATION_EXHAUSTED,
            _C.NOT_A_FILE,
            _C.PATH_EXISTS,
            _C.BINARY,
            _C.NO_SINGLE_MATCH,
        }
    )


class WrongState(LcpError):
    """The job or mission is in a state that does not permit this."""

    codes = frozenset({_C.WRONG_STATE, _C.NOT_SHOWN})


class Conflict(LcpError):
    """A file, root or row has changed since it was read, shown or approved, or was decided on otherwise."""

    codes = frozenset({_C.CONFLICT, _C.ROOT_CHANGED})


class Refused(LcpError):
    """The root, policy, a permission level or a person does not allow this."""

    codes = frozenset(
        {_C.PATH_OUTSIDE_ROOT, _C.PATH_DENIED, _C.NOT_ALLOWED, _C.LINK_REFUSED, _C.TOKEN_REFUSED}
    )


class LimitReached(LcpError):
    """A cap, a limit of the mission, a timeout or the memory is used up."""

    codes = frozenset({_C.TOO_LARGE, _C.LIMIT_REACHED, _C.TIMEOUT, _C.OUT_OF_MEMORY, _C.TOO_MANY_REQUESTS})


class ExecutionFailed(LcpError):
    """A planner, worker, runner, webhook, the file system or the isolation did not work."""

    codes = frozenset(
        {
            _C.PLANNER_FAILED,
            _C.PLANNER_REFUSED,
            _C.PLANNER_GAVE_UP,
            _C.NO_PROGRESS,
            _C.WORKER_FAILED,
            _C.WORKER_DIED,
            _C.RUNNER_DIED,
            _C.FILE_SYSTEM,
            _C.NOT_ISOLATED,
            _C.NOT_INSTALLED,
            _C.WEBHOOK_FAILED,
        }
    )


class DatabaseFailed(LcpError):
    """The database is busy, out of date or refuses a statement; it is never a job's result."""

    codes = frozenset({_C.DATABASE_BUSY, _C.DATABASE_VERSION, _C.DATABASE_FAILED})


@dataclass(frozen=True)
class AgentError:
    """An error as it is stored and printed."""

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
        action = "system_retry" if failed.meaning.retry and failed.advice is None else "user_action"
        return cls(
            error_id=error_id,
            request_id=request_id,
            timestamp=timestamp,
            error_type=failed.meaning.type.value,
            error_code=failed.code.value,
            user_message=failed.message,
            technical_details=dict(failed.details),
            recommended_actions=[{"description": failed.recommendation, "action_type": action}],
        )

    def as_json(self) -> dict[str, Json]:
        return asdict(self)
