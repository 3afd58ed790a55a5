"""Define what a worker is: one kind of job, its params, its result, its defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, JsonValue

from lcp_engine.core.policy import PathPolicy, Verdict
from lcp_engine.core.protocol.problems import Findings, param_names
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.sandbox.paths import Names, names_of
from lcp_engine.sandbox.root import Root

P = TypeVar("P", bound=BaseModel)


class Permission(StrEnum):
    """Who may let a kind run (R5): `user` is up to planner and policy, `system` holds, `admin` needs a launch too."""

    USER = "user"
    SYSTEM = "system"
    ADMIN = "admin"


@dataclass(frozen=True)
class Context:
    """What a worker knows of the job it executes.

    `root` is the mission's root, `aliases` further names that `params.root` may use for it (R22); `policy` judges
    resolved paths; `caps` are sizes in bytes. `approved`: a person let this job run.
    """

    mission_root: Root | None
    aliases: tuple[str, ...]
    policy: PathPolicy
    caps: Caps
    approved: bool = False

    @property
    def root(self) -> Root:
        """The mission's root. Raises `LcpError` for a job whose mission has none."""
        if self.mission_root is None:
            raise LcpError(
                ErrorCode.INVALID_PARAMS,
                "this kind of job needs a mission that has a root; this one has none",
            )
        return self.mission_root

    @property
    def names(self) -> Names:
        """What the root may be called in params."""
        return names_of(self.root.spellings, self.aliases)

    def judge(self, path: str) -> Failed | Hold | None:
        """What policy has against a resolved path; a person's approval answers a hold, never a denial."""
        ruling = self.policy(path)
        if ruling.verdict is Verdict.DENY:
            return Failed(ErrorCode.PATH_DENIED, f"{path!r} is denied: {ruling.reason}")
        if ruling.verdict is Verdict.HOLD and not self.approved:
            return Hold(ruling.reason)
        return None


@dataclass(frozen=True)
class Caps:
    """The most that one job may move: bytes read, bytes written, bytes kept of what it replaces, paths listed."""

    read_bytes: int = 10 * 1024 * 1024
    write_bytes: int = 10 * 1024 * 1024
    preimage_bytes: int = 10 * 1024 * 1024
    listed_paths: int = 100_000


@dataclass(frozen=True)
class Applied:
    """What a file effect came to: hashes are SHA-256 in hex, `sha256_before` is None for a new file."""

    sha256_before: str | None
    sha256_after: str
    size_bytes: int


@dataclass(frozen=True)
class FileEffect:
    """A change of one file, wished for by a worker and applied by the runner exactly once (R20).

    `path` is relative to the mission's root, resolved and checked, with `/`. `content` is the text to write;
    byte order mark, encoding and line ends of the file that is there are kept. `result` makes the job's result.
    """

    path: str
    content: str
    mode: Literal["overwrite", "append"]
    result: Callable[[Applied], BaseModel]


@dataclass(frozen=True)
class Hold:
    """The job has to wait for a person after all: the resolved path is one that policy holds back (R5)."""

    reason: str


Outcome: TypeAlias = BaseModel | FileEffect | Hold | Failed


@dataclass(frozen=True)
class Worker(Generic[P]):
    """One kind of job.

    `has_effects` holds the job by default (R5). `timeout` and `backoff` are seconds; `backoff` doubles with each
    failure. `asks_planner` marks the kind whose execution is a turn, `asks_person` a kind that is never executed: a
    person's answer completes its jobs. `paths` names the paths that policy judges when
    the job is requested, relative to the root where that can be told; `written_bytes` is what counts for
    `max_bytes_written`. `preview` tells the file effect that the job would return, and has none of its own: people
    see a diff before they decide, and their approval binds to the file as it was then. `looks`: whether its execution
    looks at anything; effects of a kind that does not are known before others are applied, and are applied together.
    `is_undo` marks the kind that takes changes back, which the engine alone queues and carries out.
    """

    kind: str
    params: type[P]
    result: type[BaseModel]
    execute: Callable[[P, Context], Outcome]
    description: str = ""
    has_effects: bool = True
    writes: bool = False
    permission: Permission = Permission.USER
    timeout: float = 60.0
    max_attempts: int = 3
    backoff: float = 1.0
    asks_planner: bool = False
    asks_person: bool = False
    paths: Callable[[P], tuple[str, ...]] = lambda params: ()
    written_bytes: Callable[[P], int] = lambda params: 0
    preview: Callable[[P, Context], Outcome] | None = None
    looks: bool = True
    is_undo: bool = False

    def read(self, params: Mapping[str, JsonValue], of: str | None = None) -> P:
        """The params as this kind's model; a null in a known place reads as absent.

        Raises `INVALID_PARAMS` with every reason; `of` names the job whose params they are.
        """
        known = param_names(self.params)
        given = {key: value for key, value in params.items() if value is not None or key not in known}
        findings = Findings()
        read = findings.validate(self.params, given, "params", self.kind)
        if read is not None:
            return read
        first, problems = findings.problems[0], [problem.model_dump() for problem in findings.problems]
        message = f"{first.path}: {first.message}"
        raise LcpError(
            ErrorCode.INVALID_PARAMS, message if of is None else f"{of}: {message}", {"errors": [*problems]}
        )

    def for_any_params(self) -> Worker[BaseModel]:
        """The same worker where kinds stand side by side; it raises TypeError for the params of another kind."""

        def mine(params: BaseModel) -> P:
            if not isinstance(params, self.params):
                raise TypeError(f"{self.kind} takes {self.params.__name__}, not {type(params).__name__}")
            return params

        preview = self.preview
        return Worker(
            kind=self.kind,
            params=self.params,
            result=self.result,
            execute=lambda params, context: self.execute(mine(params), context),
            description=self.description,
            has_effects=self.has_effects,
            writes=self.writes,
            permission=self.permission,
            timeout=self.timeout,
            max_attempts=self.max_attempts,
            backoff=self.backoff,
            asks_planner=self.asks_planner,
            asks_person=self.asks_person,
            paths=lambda params: self.paths(mine(params)),
            written_bytes=lambda params: self.written_bytes(mine(params)),
            preview=None if preview is None else lambda params, context: preview(mine(params), context),
            looks=self.looks,
            is_undo=self.is_undo,
        )


Workers: TypeAlias = Mapping[str, Worker[BaseModel]]
