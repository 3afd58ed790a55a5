"""Every error of the engine: stable codes, what each means and advises, and the exceptions that carry them (R15)."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import EnumMeta, ReprEnum, StrEnum
from typing import TYPE_CHECKING, Final, Self, TypeAlias
from warnings import warn

Json: TypeAlias = "Mapping[str, Json] | list[Json] | tuple[Json, ...] | str | int | float | bool | None"


class ErrorType(StrEnum):
    """The six categories of `AgentError`."""

    INPUT = "input_error"
    EXECUTION = "execution_error"
    RESOURCE = "resource_error"
    PERMISSION = "permission_error"
    TIMEOUT = "timeout_error"
    SYSTEM = "system_error"


GENERAL: Final = None
"""`advice=GENERAL` states that the advice of the code was judged to help at this place: with many codes it may not."""


@dataclass(frozen=True)
class Failed:
    """An expected failure as a value."""

    code: Code
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
        return self.code.meaning


class UnexpectedValue(ValueError):
    """A validator's refusal of a value: its message says what the value should be, and the value is named behind it."""


class LcpError(Exception):
    """A failure that the caller has to handle, with its `Failed`.

    The class follows from the code, as it does for `OSError`: `LcpError(ErrorCode.NOT_FOUND, …)` makes a `NotFound`, so
    callers catch a class and need not compare codes.
    """

    def __new__(cls, code: Code, *_: object, **__: object) -> Self:
        """An error of the subclass that `code` belongs to."""
        stated: object = code  # a plug-in is not type-checked
        made = stated.meaning.error if isinstance(stated, Code) else cls
        return super().__new__(made if issubclass(made, cls) else cls)

    def __init__(
        self,
        code: Code,
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
    def code(self) -> Code:
        """The stable code of the failure."""
        return self.failed.code

    @property
    def status(self) -> int:
        """The HTTP status of its code."""
        return self.code.meaning.status


class NotFound(LcpError):
    """A file, mission, job, worker or planner does not exist."""


class InvalidInput(LcpError):
    """An argument, mission, params, pattern, reply or file cannot be used as given."""


class WrongState(LcpError):
    """The job or mission is in a state that does not permit this."""


class Conflict(LcpError):
    """A file, root or row has changed since it was read, shown or approved, or was decided on otherwise."""


class Refused(LcpError):
    """The root, policy, a permission level or a person does not allow this."""


class LimitReached(LcpError):
    """A cap, a limit of the mission, a timeout or the memory is used up."""


class ExecutionFailed(LcpError):
    """A planner, worker, runner, webhook, the file system or the isolation did not work."""


class DatabaseFailed(LcpError):
    """The database is busy, out of date or refuses a statement; it is never a job's result."""


@dataclass(frozen=True)
class Meaning:
    """Everything about an error code: what programs, people, pages and commands make of it."""

    name: str
    error: type[LcpError]
    """The class as which it is raised."""
    type: ErrorType
    text: str
    """A sentence for the docs."""
    advice: str
    retry: bool = False
    """True if another attempt can succeed."""
    status: int = 422
    """The HTTP status; 422 for the many that concern what was entered."""
    exit_code: int = 1
    is_own: bool = False
    """True for what the engine alone finds: planners that give up may not name it, as its advice would not help."""
    is_executed: bool = True
    """False if nothing was executed: no plan gets another attempt, even if it says `retry`."""


class Code(str):  # noqa: SLOT000  # enums need a dict
    """The stable name of an error, which scripts may rely on, with its meaning; a feature states its own."""

    meaning: Meaning

    def __new__(cls, meaning: Meaning) -> Self:
        code = super().__new__(cls, meaning.name)
        code.meaning = meaning
        return code

    def __getnewargs__(self) -> tuple[Meaning]:  # type: ignore[override]  # copies have the meaning, too
        return (self.meaning,)


class _Moved(EnumMeta):
    """Finds codes that were here before they were their features'."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Code:
            from lcp_engine.feature import find_code  # it imports this module

            if not name.isupper() or (code := find_code(name)) is None:
                raise AttributeError(name)
            warn(f"ErrorCode.{name} is a feature's now: compare codes with {name!r}", DeprecationWarning, 2)
            return code


_T = ErrorType


class ErrorCode(Code, ReprEnum, metaclass=_Moved):
    """The codes of the kernel."""

    # fmt: off
    PATH_NOT_FOUND = Meaning("PATH_NOT_FOUND", NotFound, _T.INPUT,
        "No file or directory has that path.", "Check the path; list its directory first.")
    PATH_OUTSIDE_ROOT = Meaning("PATH_OUTSIDE_ROOT", Refused, _T.PERMISSION,
        "The path leaves the mission's root.",
        "Name a path beneath the root, relative to it; `root_aliases` of the mission lists other names of the root.")
    PATH_DENIED = Meaning("PATH_DENIED", Refused, _T.PERMISSION,
        "Policy or the file system denies this path.",
        "Leave the file alone; the message names the rule or the permission that denies it.", is_executed=False)
    NOT_A_FILE = Meaning("NOT_A_FILE", InvalidInput, _T.INPUT,
        "The path is a directory, FIFO, device or socket.", "Name a regular file.")
    PATH_EXISTS = Meaning("PATH_EXISTS", InvalidInput, _T.INPUT,
        "Something has that path already, and is not replaced.",
        "Choose another path, or delete or move what is there first.")
    TOO_LARGE = Meaning("TOO_LARGE", LimitReached, _T.RESOURCE,
        "The file or the content is larger than its cap.",
        "Use less at once, or raise the cap in the configuration file.", status=413)
    BINARY = Meaning("BINARY", InvalidInput, _T.INPUT,
        "The file is not text.", "Read text files only.")
    NO_SINGLE_MATCH = Meaning("NO_SINGLE_MATCH", InvalidInput, _T.INPUT,
        "The text to replace is not in the file, or more than once.",
        "Read the file, and give the text exactly as it is there, with enough of what surrounds it.")
    CONFLICT = Meaning("CONFLICT", Conflict, _T.EXECUTION,
        "The file, or the row, has changed since the change was made or approved.",
        "Look at what has changed, then decide again.", status=409, exit_code=5)
    ROOT_CHANGED = Meaning("ROOT_CHANGED", Conflict, _T.EXECUTION,
        "The mission's root is a link now, or another directory than at its launch.",
        "Put the directory back, or accept the new one with `lcp resume M --root DIR`.", exit_code=5, is_own=True)
    FILE_SYSTEM = Meaning("FILE_SYSTEM", ExecutionFailed, _T.RESOURCE,
        "The file system refused the operation.", "Check space, permissions and mounts.", retry=True)
    INVALID_PARAMS = Meaning("INVALID_PARAMS", InvalidInput, _T.INPUT,
        "The params of a job do not fit its kind.", "Correct the param that the message names.", exit_code=2,
        is_executed=False)
    INVALID_PATTERN = Meaning("INVALID_PATTERN", InvalidInput, _T.INPUT,
        "A pattern is not a valid gitignore-style pattern, or costs too much to match.", "Write a simpler pattern.")
    INVALID_MISSION = Meaning("INVALID_MISSION", InvalidInput, _T.INPUT,
        "The mission is not valid.", "Correct the key that the message names.")
    INVALID_REPLY = Meaning("INVALID_REPLY", InvalidInput, _T.INPUT,
        "The planner's reply is not one valid LCP action.",
        "Correct the reply as its errors say; a planner that repeats them needs other instructions or another model.",
        is_own=True)
    INVALID_ARGUMENT = Meaning("INVALID_ARGUMENT", InvalidInput, _T.INPUT,
        "An argument or a setting has a value that cannot be used.", "Correct the value that the message names.",
        exit_code=2)
    SCRIPT_EXHAUSTED = Meaning("SCRIPT_EXHAUSTED", InvalidInput, _T.INPUT,
        "A scripted planner has no reply left.", "Add a reply that ends the mission.")
    CLARIFICATION_EXHAUSTED = Meaning("CLARIFICATION_EXHAUSTED", InvalidInput, _T.INPUT,
        "The planner asked for clarification too often.",
        "State the goal more precisely, then launch the mission again.")
    PLANNER_FAILED = Meaning("PLANNER_FAILED", ExecutionFailed, _T.SYSTEM,
        "The planner did not reply.",
        "Correct what the message names; `lcp doctor --planner NAME` tests a model's server.", retry=True, is_own=True)
    PLANNER_REFUSED = Meaning("PLANNER_REFUSED", ExecutionFailed, _T.INPUT,
        "The planner's server rejects the request: the key, the model, the address or an option is wrong.",
        "Correct what the message names; `lcp doctor --planner NAME` finds it. Then resume the mission.", is_own=True)
    PLANNER_GAVE_UP = Meaning("PLANNER_GAVE_UP", ExecutionFailed, _T.EXECUTION,
        "The planner ended the mission with an error of its own.",
        "Correct what its message names, then resume the mission.")
    NO_PROGRESS = Meaning("NO_PROGRESS", ExecutionFailed, _T.EXECUTION,
        "The planner asked for nothing new several times in a row.",
        "Look at what it repeated; resume the mission and tell its planner what to do instead.", is_own=True)
    NO_PLANNER = Meaning("NO_PLANNER", NotFound, _T.INPUT,
        "No installed planner has that name.", "Use the name of an installed planner; the message lists them.",
        is_own=True)
    NO_WORKER = Meaning("NO_WORKER", NotFound, _T.INPUT,
        "No worker executes this kind of job.", "Install or register a worker for it, or reject the job.", status=409)
    WORKER_FAILED = Meaning("WORKER_FAILED", ExecutionFailed, _T.EXECUTION,
        "The worker raised an exception.", "Read the details of the attempt; they hold the traceback.", retry=True,
        is_own=True)
    WORKER_DIED = Meaning("WORKER_DIED", ExecutionFailed, _T.SYSTEM,
        "The process that executed the job died.",
        "Find out what killed it; the log of the system names a lack of memory.", retry=True, is_own=True)
    OUT_OF_MEMORY = Meaning("OUT_OF_MEMORY", LimitReached, _T.RESOURCE,
        "The job used more memory than its process is allowed.",
        "Make the job smaller, or raise the caps: the memory limit follows from them.")
    NOT_ISOLATED = Meaning("NOT_ISOLATED", ExecutionFailed, _T.SYSTEM,
        "Isolation is required, and this kernel cannot confine the processes of file kinds.",
        "Use a kernel with Landlock, or set isolation to auto.", is_own=True)
    NOT_INSTALLED = Meaning("NOT_INSTALLED", ExecutionFailed, _T.SYSTEM,
        "A feature that this needs is not installed, or was left out.", "Install it; the log says why.", status=501)
    RUNNER_DIED = Meaning("RUNNER_DIED", ExecutionFailed, _T.SYSTEM,
        "The job was running in too many runners that died.",
        "Find out what kills the runner before you retry the job.", is_own=True)
    TIMEOUT = Meaning("TIMEOUT", LimitReached, _T.TIMEOUT,
        "The attempt took longer than its timeout.", "Raise the timeout, or make the job smaller.", retry=True,
        is_own=True)
    LIMIT_REACHED = Meaning("LIMIT_REACHED", LimitReached, _T.RESOURCE,
        "A limit of the mission is used up.", "Resume the mission with a higher limit, once it has ended.", is_own=True)
    NOT_ALLOWED = Meaning("NOT_ALLOWED", Refused, _T.PERMISSION,
        "The job is not allowed: by the permission level or the needs of its kind, by a person, or by its deadline.",
        "Propose something else, or nothing.", status=403, is_executed=False)
    NOT_SHOWN = Meaning("NOT_SHOWN", WrongState, _T.INPUT,
        "A page or list did not show in full what would run, so that it cannot be approved there.",
        "Look at the job alone, then decide.", exit_code=3)
    NOT_FOUND = Meaning("NOT_FOUND", NotFound, _T.INPUT,
        "Nothing has that id or name.", "List the ids and names that exist.", status=404)
    WRONG_STATE = Meaning("WRONG_STATE", WrongState, _T.INPUT,
        "The job or mission is in a state that does not permit this.",
        "Look at its state; the message says which one is expected.", status=409, exit_code=5)
    DATABASE_BUSY = Meaning("DATABASE_BUSY", DatabaseFailed, _T.RESOURCE,
        "The database stayed locked.", "Try again; stop the program that holds the lock.", retry=True, status=503,
        is_own=True)
    DATABASE_VERSION = Meaning("DATABASE_VERSION", DatabaseFailed, _T.SYSTEM,
        "The database does not belong to this version of the engine.",
        "Use the engine of that version or a newer one, or another database.", status=500, is_own=True)
    DATABASE_FAILED = Meaning("DATABASE_FAILED", DatabaseFailed, _T.SYSTEM,
        "The database refused a statement.", "Check that it is reachable, writable and not full.", status=500,
        is_own=True)
    # fmt: on


OF_DATABASE = frozenset({ErrorCode.DATABASE_BUSY, ErrorCode.DATABASE_VERSION, ErrorCode.DATABASE_FAILED})
"""Errors of the database itself: they are never a job's result."""


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
            error_code=str(failed.code),
            user_message=failed.message,
            technical_details=dict(failed.details),
            recommended_actions=[{"description": failed.recommendation, "action_type": action}],
        )

    def as_json(self) -> dict[str, Json]:
        return asdict(self)


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
    """Advice about a refusal of the operating system; None if the advice of `FILE_SYSTEM` fits."""
    return _BY_ERRNO.get(error.errno or 0)


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
