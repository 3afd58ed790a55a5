"""Define what a worker is: one kind of job, its params, its result, its defaults."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from enum import StrEnum
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, Protocol, TypeAlias, TypeVar, assert_never

from pydantic import BaseModel, JsonValue

from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import WRITE, KindRole
from lcp_engine.core.limits.permits import RateLimit
from lcp_engine.core.policy import (
    EVERYBODYS,
    USUAL,
    Consent,
    KindNames,
    PathPolicy,
    Policy,
    Ruling,
    Verdict,
    as_named,
)
from lcp_engine.core.protocol.actions import Findings, param_names
from lcp_engine.core.reasons import Reason
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.new_content import compose, edit
from lcp_engine.sandbox.paths import Names, Place, names_of
from lcp_engine.sandbox.reading.encoding import encoding_named, encoding_of
from lcp_engine.sandbox.root import Root

if TYPE_CHECKING:
    # Of the mission file, which is more than what executes jobs has to load.
    from lcp_engine.core.mission.spec import KindSettings, MissionSpec

P = TypeVar("P", bound=BaseModel)


class Permission(StrEnum):
    """Who decides whether the jobs of a kind may run (R5)."""

    USER = "user"
    """Planner and policy."""
    SYSTEM = "system"
    """A person: every job is held."""
    ADMIN = "admin"
    """A person, if the mission was launched with this permission; otherwise every job is refused."""


class ExecutedBy(StrEnum):
    """Who executes the jobs of a kind."""

    RUNNER = "runner"
    """A runner calls the worker's `execute`."""
    PLANNER = "planner"
    """The mission's planner: the job is a turn, and what its plan ends with is the result."""
    PERSON = "person"
    """A person: the job is held, and the answer completes it."""
    ENGINE = "engine"
    """The engine itself; no planner can request such a job."""


@dataclass(frozen=True)
class Context:
    """What a worker is given beside the params of a job."""

    mission_root: Root | None
    """The mission's root, if it has one."""
    aliases: tuple[str, ...]
    """Further names that params may use for the root (R22)."""
    policy: PathPolicy
    """Judges resolved paths."""
    caps: Caps
    approved: bool = False
    """Whether a person approved this job."""
    granted: Consent = EVERYBODYS
    """Whose approvals these were, if it was approved."""
    job_id: int | None = None
    """The job; None outside a mission's queue. With `attempt`, it tells one execution from every other."""
    attempt: int = 1
    """Which execution of the job this is, from 1 on."""
    earlier_job: Callable[[int], EarlierJob | Failed] | None = None
    """Finds a job of the same mission by its number; None outside a mission's queue and in another process."""

    @property
    def root(self) -> Root:
        """The mission's root. Raises `INVALID_PARAMS` if the mission has none."""
        if self.mission_root is None:
            raise LcpError(
                ErrorCode.INVALID_PARAMS,
                "this kind of job needs a mission that has a root; this one has none",
                advice="Launch a mission with a root, and enqueue the job in that.",
            )
        return self.mission_root

    @property
    def names(self) -> Names:
        """The names that params may use for the root."""
        return names_of(self.root.spellings, self.aliases)

    def judge(self, path: str) -> Failed | Hold | None:
        """Reason why policy refuses or holds a resolved path; an approval overrules its hold, never a denial."""
        ruling = self.policy(path)
        if ruling.verdict is Verdict.DENY:
            message = f"{path!r} is denied: {ruling.reason}"
            return Failed(ErrorCode.PATH_DENIED, message, advice=ruling.reason.advice)
        if ruling.verdict is Verdict.HOLD and not self.approved:
            return Hold(ruling.reason.text)
        if ruling.verdict is Verdict.HOLD and not self.is_granted(ruling):
            message = f"{path!r} needs approvals that this job was not asked for: {ruling.reason}"
            advice = "Request the job with the path as it is in the root, so that those people are asked."
            return Failed(ErrorCode.NOT_ALLOWED, message, advice=advice)
        return None

    def is_granted(self, ruling: Ruling) -> bool:
        """True if those have approved the job who have to for a held path; it may be led to by a link."""
        return self.approved and self.granted.joined(ruling.consent) == self.granted

    def to_change(
        self, find: Callable[[Names], Place], *, is_directory: bool = False
    ) -> Place | Hold | Failed:
        """The place of a file that a job is to change, which is not opened; or why it is not to be changed."""
        try:
            place = find(self.names)
            if (refused := self.judge(place.path)) is not None:
                return refused
            self.root.check_place(place)
        except LcpError as error:
            return error.failed
        if not is_directory and (place.is_directory or not place.path):
            message = f"{place.shown or '.'!r} is named as a directory, a file is needed"
            return Failed(ErrorCode.NOT_A_FILE, message)
        return place


@dataclass(frozen=True)
class EarlierJob:
    """A job of the same mission, as it was when it was looked for."""

    number: int
    """Its place among the jobs of the mission, from 1: unlike its id the same in a replay and a fork."""
    kind: str
    state: State
    reason: str | None
    """Why it is in its state, if it has not succeeded."""
    result: Mapping[str, JsonValue] | None
    error: Mapping[str, JsonValue] | None
    """The `AgentError` of a job that failed."""
    shows: str | None
    """The key of the result that prompts show; None shows the whole result."""


@dataclass(frozen=True)
class Caps:
    """The most that one job may read, write and list."""

    read_bytes: int = 10 * 1024 * 1024
    write_bytes: int = 10 * 1024 * 1024
    preimage_bytes: int = 10 * 1024 * 1024
    """How much of a replaced file is stored, so that the change can be undone."""
    listed_paths: int = 100_000


class FoundFile(Protocol):
    """A file as it was found."""

    @property
    def sha256(self) -> str: ...
    @property
    def mode(self) -> int: ...


@dataclass(frozen=True)
class Applied:
    """A file effect that the runner has applied; hashes are SHA-256 in hex."""

    sha256_before: str | None
    """None for a new file."""
    sha256_after: str | None
    """None for a file that was deleted."""
    size_bytes: int
    """The size of the file after the change."""
    mode_before: int | None = None
    """The mode bits that the file had."""
    encodings: tuple[str | None, str] | None = None
    """The encoding of the file before, None without text, and after, if the job named one that it did not have."""
    is_new: bool = False
    """True if there was no file."""
    is_told: bool = True
    """False of a file that was there and may not be read without a person: hashes are None, and the size is 0."""

    def untold(self) -> Applied:
        """The same without anything that tells what was in the file."""
        if self.is_new:
            return self
        return Applied(None, None, 0, self.mode_before, is_told=False)


def applied_of(
    before: FoundFile | None, after: bytes | None, encodings: tuple[str | None, str] | None = None
) -> Applied:
    """What is said of a change from `before` to `after`; None where there is no file."""
    return Applied(
        sha256_before=None if before is None else before.sha256,
        sha256_after=None if after is None else hashlib.sha256(after).hexdigest(),
        size_bytes=len(after or b""),
        mode_before=None if before is None else before.mode,
        encodings=encodings,
        is_new=before is None,
    )


Mode: TypeAlias = Literal["overwrite", "append", "edit", "delete", "move", "make"]


@dataclass(frozen=True)
class FileEffect:
    """A change of one file that a worker returns and the runner applies exactly once (R20)."""

    path: str
    """Relative to the mission's root, resolved and checked, with `/`; in mode make, of a directory, it ends in one."""
    content: str
    """The text to write, if the mode needs one. Byte order mark, encoding and line ends of a file are kept."""
    mode: Mode
    result: Callable[[Applied], BaseModel]
    """Makes the job's result once the change is applied."""
    replaced: str = ""
    """In mode edit, the text that `content` takes the place of; it must be in the file."""
    everywhere: bool = False
    """In mode edit, whether `replaced` may be in the file more than once; each is replaced then."""
    source: str = ""
    """In mode move, the file that goes to `path`, with its content and its mode bits."""
    encoding: str = ""
    """The codec to write with, or that the file has; without one it keeps its own."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that change: the one whose content matters, then where a move takes it."""
        return (self.source, self.path) if self.mode == "move" else (self.path,)

    def encodings(self, before: bytes | None, after: bytes | None) -> tuple[str | None, str] | None:
        """The encodings for `Applied`, if the file is written in another one than it had, or than new files have."""
        if not self.encoding or self.mode != "overwrite" or not after or after.isascii():
            return None
        old = encoding_of(before or b"")
        new, known = encoding_named(self.encoding, after).name, None if old is None else old.name
        return None if new == known else (known if before else None, new)

    @property
    def needs_content(self) -> bool:
        """True if the new file depends on the content of the current one."""
        return self.mode in ("append", "edit", "move")

    def is_done(self, *, is_there: bool) -> bool:
        """True if nothing is left to do, since the directory to make is there."""
        return self.mode == "make" and is_there

    def check_names(self, root: Root) -> None:
        """Raises `PATH_EXISTS` for a path that is not there, and looks like another one that is."""
        for path in self.paths:
            root.refuse_twin(path, beside=self.paths)

    def check_free(self, *, is_there: bool) -> None:
        """Raises `PATH_EXISTS` if a move would replace a file."""
        if is_there:
            message = f"{self.path!r} is there already; {self.source!r} is not moved over it"
            raise LcpError(ErrorCode.PATH_EXISTS, message)

    def compose(self, before: bytes | None, cap: int, *, is_there: bool) -> bytes | None:
        """The whole new file, None if it is deleted; `before` may be None, too, for a file that is too large to read.

        Raises `LcpError`: TOO_LARGE above `cap` bytes, PATH_NOT_FOUND, and what `compose` and `edit` raise.
        """
        if self.mode in ("delete", "move") and not is_there:
            message = f"{self.paths[0]!r}: there is no file that could be {self.mode}d"
            raise LcpError(ErrorCode.PATH_NOT_FOUND, message)
        if self.mode == "delete":
            return None
        try:
            match self.mode:
                case "move" | "make":
                    data = before or b""
                case "edit":
                    data = edit(
                        before,
                        self.replaced,
                        self.content,
                        everywhere=self.everywhere,
                        encoding=self.encoding,
                    )
                case "overwrite" | "append" as mode:
                    data = compose(before, self.content, mode, self.encoding)
                case _:
                    assert_never(self.mode)
        except LcpError as error:
            failed = error.failed
            raise LcpError.of(replace(failed, message=f"{self.path!r}: {failed.message}")) from error
        if len(data) > cap:
            raise LcpError.of(_too_large_to_write(self.path, len(data), cap))
        return data


@dataclass(frozen=True)
class Hold:
    """The job must wait for a person: policy holds the path that its params resolved to (R5)."""

    reason: str | Reason
    """A plug-in may give a sentence."""


class Stored:
    """An outcome of which more than the result is stored together with the job's success (R18), or refused.

    `stored_by` is where the engine finds how, as "module:attribute" (`engine/points.py`).
    """

    result: BaseModel
    stored_by: ClassVar[str]


@dataclass(frozen=True)
class Kept:
    """The result of a program that ran over the root, and what became of its changes.

    `is_whole` is true if all that it changed is there for the next one. `written_bytes` are those of files that became
    part of a stage; None if none did.
    """

    result: BaseModel
    is_whole: bool = True
    written_bytes: int | None = None


@dataclass(frozen=True)
class Answered:
    """What a program answered to a job, and the end of what it wrote to stderr meanwhile."""

    outcome: BaseModel | Kept | Failed
    stderr: str


Outcome: TypeAlias = BaseModel | FileEffect | Stored | Hold | Failed


@dataclass(frozen=True)
class Example:
    """A job of a kind, for planners and people; `lcp kinds --check` runs it in a directory that has only `files`."""

    params: Mapping[str, JsonValue]
    result: Mapping[str, JsonValue] = field(default_factory=dict)
    """What the result has at least; compared only where the example is run."""
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that it needs, by path, with their content."""
    is_run: bool = True
    """Whether the self-test runs it. If not, only its params and its result are validated."""


class Execution(Protocol):
    """Statement of a kind whose jobs are not executed by a call of its worker."""

    @property
    def place(self) -> str:
        """Where a runner finds how they are executed, as "module:attribute" (`runner/execution.py`)."""


class ProcessNeeds(Protocol):
    """Needs of a function that a process of its own calls."""

    @property
    def root(self) -> bool | str: ...
    def execution_of(self, function: Callable[..., object], kind: str) -> Execution: ...


@dataclass(frozen=True)
class Worker(Generic[P]):
    """One kind of job: its name, its params and result, its defaults, and the function that executes it."""

    kind: str
    """The name that planners use, of the characters A-Z a-z 0-9 _ . - (at most 64)."""
    params: type[P]
    """The model of the params; they are validated when a job is requested (R3)."""
    result: type[BaseModel]
    """The model of the result, for schemas and documentation."""
    execute: Callable[[P, Context], Outcome]
    """Returns the result, a change for the runner to apply, or why the job is held or has failed. An exception fails
    the attempt. May run in another process, so it must not rely on the state of this one."""
    description: str = ""
    """One sentence for planners and people."""
    has_effects: bool = True
    """Whether jobs change anything; those that do are held by default (R5)."""
    writes: bool = False
    """Whether jobs write files: their paths are then judged by the rules for writing instead of those for reading."""
    permission: Permission = Permission.USER
    timeout: float = 60.0
    """Seconds that one attempt may take."""
    max_attempts: int = 3
    """How many executions may fail before the job does."""
    backoff: float = 1.0
    """Seconds before the second attempt; they double with each failure."""
    rate_limit: RateLimit | None = None
    """How often jobs may start, of all missions and runners together; beyond it they wait."""
    max_running: int | None = None
    """How many jobs may run at once, of all missions and runners together; beyond it they wait."""
    asks_planner: InitVar[bool | None] = None
    """Accepted for `executed_by=ExecutedBy.PLANNER`."""
    asks_person: InitVar[bool | None] = None
    """Accepted for `executed_by=ExecutedBy.PERSON`."""
    paths: Callable[[P], tuple[str, ...]] = lambda params: ()
    """The paths that policy judges when the job is requested, relative to the root if possible."""
    written_bytes: Callable[[P], int] = lambda params: 0
    """What the job counts for `max_bytes_written`."""
    preview: Callable[[P, Context], Outcome] | None = None
    """Returns what `execute` would return, without any effect. People then see a diff before they decide, and their
    approval binds to the file as it was."""
    looks: InitVar[bool | None] = None
    """Accepted for `reads_files`."""
    executed_by: ExecutedBy = ExecutedBy.RUNNER
    reads_files: bool = True
    """Whether `execute` reads anything that other jobs may change. If not, its effects follow from the params alone,
    and the runner applies those of many jobs together."""
    role: KindRole = KindRole.OTHER
    """What the kind is for. Kinds that ask a planner or a person, or write files, need not state it."""
    shows: str | None = None
    """The key of the result that later prompts show, a text or a list of texts; None shows the whole result."""
    examples: tuple[Example, ...] = ()
    included_in: str | None = None
    """A kind that can do all that this one can: a model that may use both is offered only that one."""
    brief_params: type[BaseModel] | None = None
    """A model of the most important params, for planners with little room; it accepts nothing that `params` refuses."""
    command: Callable[[P], tuple[str, ...]] | None = None
    """The program that the job runs, with its arguments, if the mission allows it."""
    in_mission: Callable[[MissionSpec], str] | None = None
    """Sentences about the kind's jobs in a mission, for its planner."""
    execution: Execution | None = None
    """States who executes the jobs, such as an `ExternalProgram`; `execute` is not called then."""
    is_offered: Callable[[MissionSpec], bool] = lambda spec: True
    """Whether the planner of a mission is told of the kind."""
    judged_as: tuple[str, ...] = ()
    """Kinds whose rules are about this one, too, since it does to files what they do."""
    denied_as: tuple[str, ...] = ()
    """Kinds whose denying rules are about this one, too."""
    restricted_as: tuple[str, ...] = ()
    """Kinds whose rules that hold or deny are about this one, too. Of a kind that `writes`, `write_file` is one."""
    denied_with: tuple[str, ...] = ()
    """Kinds that tell what this one tells: a file that may not be used by them may not be used by this one."""
    confined: str | None = None
    """Where a process confined to the root finds this worker, as "module:attribute"; None runs it in the runner's."""

    def __post_init__(self, asks_planner: bool | None, asks_person: bool | None, looks: bool | None) -> None:
        """Translate the fields of earlier versions."""
        if asks_planner:
            object.__setattr__(self, "executed_by", ExecutedBy.PLANNER)
        elif asks_person:
            object.__setattr__(self, "executed_by", ExecutedBy.PERSON)
        if looks is not None:
            object.__setattr__(self, "reads_files", looks)
        if self.role is KindRole.OTHER:
            object.__setattr__(self, "role", self._usual_role())

    def _usual_role(self) -> KindRole:
        if self.executed_by is ExecutedBy.PLANNER:
            return KindRole.PLANS
        if self.executed_by is ExecutedBy.PERSON:
            return KindRole.ASKS
        return KindRole.WRITES if self.writes else KindRole.OTHER

    @property
    def named(self) -> KindNames:
        """By which names of kinds rules of a policy are about its jobs."""
        puts_bytes = self.writes and self.executed_by is ExecutedBy.RUNNER
        restricted = (*self.restricted_as, *((WRITE,) if puts_bytes else ()))
        return KindNames((self.kind, *self.judged_as), self.denied_as, restricted, self.denied_with)

    @property
    def may_have_rule(self) -> bool:
        """True if a rule of one person can let jobs of the kind run, if no other gate holds them."""
        return (
            self.executed_by is ExecutedBy.RUNNER
            and self.command is None
            and self.permission is Permission.USER
        )

    def under(self, settings: KindSettings | None) -> Worker[P]:
        """The worker as a mission sets it."""
        if settings is None:
            return self
        retry = settings.retry
        return replace(
            self,
            timeout=self.timeout if settings.timeout is None else settings.timeout,
            max_attempts=self.max_attempts if retry.max_attempts is None else retry.max_attempts,
            backoff=self.backoff if retry.delay is None else retry.delay,
        )

    def read(self, params: Mapping[str, JsonValue], of: str | None = None) -> P:
        """The params as this kind's model; a null for a known param reads as absent.

        Raises `INVALID_PARAMS` with every reason; `of` names the job in the message.
        """
        known = param_names(self.params)
        given = {key: value for key, value in params.items() if value is not None or key not in known}
        findings = Findings()
        read = findings.validate(self.params, given, "params", self.kind)
        if read is not None:
            return read
        first, problems = findings.problems[0], [problem.record for problem in findings.problems]
        message = f"{first.path}: {first.message}"
        raise LcpError(
            ErrorCode.INVALID_PARAMS, message if of is None else f"{of}: {message}", {"errors": [*problems]}
        )

    def normal(self, given: dict[str, JsonValue], read: BaseModel) -> dict[str, JsonValue]:
        """The params to store: in the model's own words if it was `given` others (a form of seed 004), else as given.

        So every view of a job finds the names it expects. A model that cannot read its own words keeps those given.
        """
        try:
            own: dict[str, JsonValue] = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if own == given or self.params.model_validate(own) != read:
                return given
        except ValueError:  # also of pydantic, for what it cannot write or read
            return given
        return own

    def allowed_paths(self, policy: Policy) -> Callable[[str], bool]:
        """Returns whether policy does not deny jobs of this kind a path."""
        judge = policy.for_kind(self.named, has_effects=self.has_effects, writes=self.writes)
        return lambda path: judge(path).verdict is not Verdict.DENY

    def granting(self, params: P, context: Context) -> Context:
        """The context of a job with these params, with whose approvals it has if it was approved."""
        named = self.paths(params)
        if not context.approved or (self.writes and not named):
            return context
        names = None if context.mission_root is None else context.names
        relative = [path if names is None else names.relative(path) for path in named]
        consents = (context.policy(path).consent for path in as_named(relative, writes=self.writes))
        return replace(context, granted=reduce(Consent.joined, consents, USUAL))

    def for_any_params(self) -> Worker[BaseModel]:
        """The same worker for a table of kinds; its functions raise TypeError for the params of another kind."""

        def mine(params: BaseModel) -> P:
            if not isinstance(params, self.params):
                raise TypeError(f"{self.kind} takes {self.params.__name__}, not {type(params).__name__}")
            return params

        preview, command = self.preview, self.command
        return replace(  # type: ignore[return-value]  # its functions take any params now
            self,
            execute=lambda params, context: self.execute(mine(params), context),
            paths=lambda params: self.paths(mine(params)),
            written_bytes=lambda params: self.written_bytes(mine(params)),
            preview=None if preview is None else lambda params, context: preview(mine(params), context),
            command=None if command is None else lambda params: command(mine(params)),
        )


WRITE_LESS = "Write less at once, or raise caps.write_bytes in the configuration file."
"""The advice to a write above the cap."""


def _too_large_to_write(path: str, size: int, cap: int) -> Failed:
    """The failure of a write that would make a file larger than the cap."""
    message = f"{path!r} would have {size} bytes, at most {cap} are written"
    return Failed(ErrorCode.TOO_LARGE, message, advice=WRITE_LESS)


def too_large_to_change(path: str, size: int, cap: int) -> Failed:
    """The failure of a change within a file that is larger than the cap."""
    message = f"{path!r} has {size} bytes already, at most {cap} are written"
    return Failed(ErrorCode.TOO_LARGE, message, advice=WRITE_LESS)


def params_of(workers: Workers) -> dict[str, type[BaseModel]]:
    """The model of the params of each kind, as readers of replies need them."""
    return {kind: worker.params for kind, worker in workers.items()}


def refuse_to_execute(reason: str) -> Callable[[BaseModel, Context], Failed]:
    """The `execute` of a kind that no runner executes."""

    def execute(params: BaseModel, context: Context) -> Failed:
        return Failed(
            ErrorCode.NOT_ALLOWED, reason, advice="Use it in a mission: only its loop executes this kind."
        )

    return execute


Workers: TypeAlias = Mapping[str, Worker[BaseModel]]
