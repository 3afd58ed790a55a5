"""Define what a planner is: it is asked a question and replies with text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, Self, runtime_checkable

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.paths.secret_files import is_secret as is_secret  # noqa: PLC0414 -- also for planners
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.errors import Code, ErrorCode, Json, LcpError


@runtime_checkable
class Planner(Protocol):
    """Answers the questions of missions. One that speaks a single dialect names it in an attribute `speaks`."""

    def answer(self, question: Question, /) -> Reply:
        """The reply to one question, in `question.dialect`; the engine reads it and asks for corrections if need be.

        Called once for each question, also after a crash if no reply was stored; questions of several missions may be
        asked at the same time. A planner should not remember earlier questions: `question.history` has what they led
        to, and a mission goes on in other processes. The time is limited by the timeout of `agent_plan` (600 s).

        Raises `PlannerError`, or any `LcpError`, if there is no reply: after `PLANNER_FAILED` the engine asks again,
        after `PLANNER_REFUSED` it does not; after `AskedToWait` it asks again later, and no attempt is charged. Any
        other exception counts as `PLANNER_FAILED`.
        """


@dataclass(frozen=True)
class Question:
    """The question of one turn."""

    mission_id: int
    number: int
    """Counts all questions of the mission from 1, corrective ones included."""
    turn: int
    """Counts the turns of the mission from 1."""
    goal: str
    """The goal of the mission."""
    root: str
    """The absolute path of the mission's root; empty if it has none."""
    prompt: str
    """The `user_prompt` of the `agent_plan` job; for the mission's own plan, the goal."""
    context: str | None = None
    """The `context` of the `agent_plan` job."""
    results: Sequence[SeenJob] = ()
    """The jobs that were settled since the last turn of this plan."""
    waiting: Sequence[SeenJob] = ()
    """The held jobs of this plan."""
    notices: Sequence[str] = ()
    """Sentences of the engine: jobs repeated, a limit reached, checks not passed."""
    warnings: Sequence[str] = ()
    """What was ignored in the last reply of this plan, such as unknown keys; a sentence each."""
    correction: Correction | None = None
    """The reply that is to be corrected, if the last one was not valid (R4)."""
    last_turn: str | None = None
    """The limit that was reached: only `mission_complete`, `analysis_result` and `error` are allowed then (R6)."""
    memories: Sequence[SeenMemory] = ()
    """Instructions in files of the root, then what is remembered of it and may concern this turn, the best first; text
    that is not to be trusted."""
    said: Sequence[Said] = ()
    """Messages of people since the last turn."""
    said_before: Callable[[], Sequence[Said]] = tuple
    """Queries the messages of people that earlier turns had."""
    history: Callable[[], Sequence[SeenJob]] = tuple
    """Queries every settled job of the plan, oldest first; in a step, after the steps before it."""
    prompts: Callable[[], Sequence[PromptRecord]] = tuple
    """Queries what the earlier prompts of the plan showed and left out, oldest first, where that is known."""
    numbers: Callable[[], Mapping[int, int]] = dict
    """Queries the number of each job of the mission, by its id: its place in the order in which they were requested,
    from 1. Params can name a job by it, since unlike an id it is the same in a replay and a fork."""
    kinds: Sequence[Kind] = ()
    """The kinds of jobs that may be requested."""
    max_followups: int = 5
    """The most jobs in one reply."""
    jobs_left: int | None = None
    """How many more jobs the mission may request; None without a limit."""
    turns_left: int | None = None
    """How many turns follow this one at most; None without a limit."""
    seconds_left: float | None = None
    """How much running time the mission has left for the reply, with all that is tried again; None without a limit."""
    stalled: int = 0
    """How many replies in a row requested nothing new (R11)."""
    aliases: Sequence[str] = ()
    """Further names of the root that params may use (R22)."""
    may_read: Callable[[str], bool] = lambda path: True
    """Whether policy lets jobs read a path, relative to the root."""
    writable: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The only files that policy lets jobs of a kind write; a kind that is not in it may write any."""
    dialect: Dialect = "lcp"
    """The dialect that the reply is read in."""
    verifies: bool = False
    """Whether the question is if the goal has been reached (R9)."""
    result: Mapping[str, JsonValue] | None = field(default=None, hash=False)
    """The JSON Schema of the `result` that a reply which completes the mission has to carry; None if there is none."""
    endings: Sequence[str] = ()
    """The actions that may complete the mission; any if there are none."""
    of_step: bool = False
    """Whether the question is about one step of a plan: what ends it is the step's result, and the mission goes on."""
    attempt: int = 1
    """Counts how often the question was asked, from 1: earlier attempts failed or died."""
    resumed: bool = False
    """Whether a person has just resumed the mission: what was refused before may be asked for again."""


class Fault(StrEnum):
    """Reason why a completion was not enough. Stored in the history: never rename one."""

    LENGTH = "length"
    """It had no room to end."""
    REPEATS = "repeats"
    """It repeated itself until it had no room left."""
    TOO_LONG = "too_long"
    """It has more bytes than are read."""
    CONTEXT = "context"
    """Its prompt did not fit into the model's context."""
    FAILED = "failed"
    """The server refused, broke off or was too slow."""


@dataclass(frozen=True, kw_only=True)
class CompletionRecord:
    """One request to a model on the way to a reply: how it was asked, what it cost, and why it was not enough."""

    model: str
    mode: str = ""
    """How the server was asked to keep to the form of a reply, such as `json_schema`."""
    temperature: float | None = None
    max_tokens: int | None = None
    seconds: float = 0.0
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    """Those of the prompt that the server had in its cache; None if it does not say."""
    fault: Fault | None = None
    """None if it is the reply."""
    said: str = ""
    """The fault as a sentence."""
    text: str = ""
    """The beginning of what was written, unless it is the reply."""


@dataclass(frozen=True)
class LeftOut:
    """The result of a job, or the end of it, that a prompt did not show."""

    number: int
    """The job, by its number in the mission."""
    what: str
    """The job in words, such as `read_file "a.txt"`."""
    first: int
    """The first line that is left out, from 0; of a file that was read in part, in the file."""
    lines: int
    bytes: int
    """How much is left out."""
    is_whole: bool
    """Whether nothing of the result is shown."""


@dataclass(frozen=True)
class PromptRecord:
    """Record of what a prompt showed of the findings of its plan's jobs."""

    shown: tuple[int, ...] = ()
    """The jobs whose results it showed to their end, by number."""
    left_out: tuple[LeftOut, ...] = ()
    tokens: int | None = None
    """How many tokens it was counted to have before it was sent; None if they were not counted."""
    context_tokens: int | None = None
    """The size of the model's context; None if it is not known."""


@dataclass(frozen=True)
class Reply:
    """A planner's reply, as it came."""

    text: str
    prompt: str | None = None
    """The prompt that led to it, stored for people; None if there was none."""
    input_tokens: int | None = None
    """What the prompt cost; None if not counted. Counts in the mission's `max_tokens`."""
    output_tokens: int | None = None
    """What the text cost; None if not counted."""
    record: PromptRecord | None = None
    """What the prompt showed and left out; None if that is not known."""
    completions: Sequence[CompletionRecord] = ()
    """The requests to a model that it took, in their order; the tokens above are those of all of them."""


@dataclass(frozen=True)
class Relayed(Reply):
    """No reply yet: a person answers `prompt` with `lcp answer`, and the turn is held until then."""

    text: str = ""


class PlannerError(LcpError):
    """Raised by a planner that has no reply. The tokens were paid for all the same: they count in the mission's."""

    def __new__(cls, code: Code, *_: object, **__: object) -> Self:
        return super().__new__(cls, code)

    def __init__(
        self,
        code: Code,
        message: str,
        details: Mapping[str, Json] | None = None,
        advice: str | None = None,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        completions: Sequence[CompletionRecord] = (),
    ) -> None:
        """`code` is `PLANNER_FAILED`, or `PLANNER_REFUSED` if asking again would not help."""
        # The engine reads the tokens of any `LcpError` from its details, where they are stored too.
        tokens: dict[str, Json] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        super().__init__(code, message, {**(details or {}), **tokens}, advice)
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens
        self.completions = completions


NO_PLANNER = "none"
"""The type of a mission's planner if it has none."""
MAX_WAIT = 3600.0
"""For so many seconds a question waits, unless its planner states another limit."""


class AskedToWait(PlannerError):
    """Raised by a planner whose server asks to wait: the question goes back to the queue, and no attempt is charged.

    It is asked again after `seconds`, without them after pauses that grow, and fails with `PLANNER_FAILED` if that has
    lasted `MAX_WAIT`. A planner that has the method `server_wait() -> tuple[str, float]` names its server there, so
    that other questions to it wait too, and states the most seconds. The name is stored: it must hold no secret.
    """

    def __new__(cls, *_: object, **__: object) -> Self:
        return super().__new__(cls, ErrorCode.PLANNER_FAILED)

    def __init__(
        self,
        message: str,
        *,
        seconds: float | None = None,
        details: Mapping[str, Json] | None = None,
        input_tokens: int = 0,
        output_tokens: int = 0,
        completions: Sequence[CompletionRecord] = (),
    ) -> None:
        super().__init__(
            ErrorCode.PLANNER_FAILED,
            message,
            details,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            completions=completions,
        )
        self.seconds = seconds


@dataclass(frozen=True)
class Kind:
    """A kind of job that a planner may request."""

    name: str
    description: str
    params: type[BaseModel]
    is_held: bool
    """Whether policy holds such a job until a person approves it (R5)."""
    role: KindRole = KindRole.OTHER
    """What the kind is for."""
    shows: str | None = None
    """The key of the result that prompts show, a text or a list of texts; None shows the whole result."""
    example: Mapping[str, JsonValue] | None = field(default=None, hash=False)
    """Params of such a job."""
    included_in: str | None = None
    """A kind that can do all that this one can."""
    brief_params: type[BaseModel] | None = None
    """A model of the most important params; None if all are."""


@dataclass(frozen=True)
class SeenJob:
    """A job as planners see it, once it is settled or held."""

    job_id: int
    name: str | None
    kind: str
    params: Mapping[str, JsonValue]
    state: str
    """`held`, or the state that it ended in."""
    reason: str | None
    """Why it is held, rejected, skipped or cancelled."""
    result: Mapping[str, JsonValue] | None
    """What a job that succeeded returned."""
    error: Mapping[str, JsonValue] | None
    """The `AgentError` of a job that failed."""
    turn: int | None = None
    """The turn that requested it; None if no turn did."""


@dataclass(frozen=True)
class Said:
    """A message of a person to the planner (R14)."""

    text: str
    by: str
    job: SeenJob | None = None
    """The job that it is about."""


OF_FILE = "sha256-"


@dataclass(frozen=True)
class SeenMemory:
    """An entry of memory as a question is asked with it, whatever became of the entry since."""

    id: str
    """`mem-` and a UUID; of instructions in a file of the root, `sha256-` and the hash of that file."""
    title: str
    content: str
    source: str
    """What kind of statement it is, such as `user_statement` or `analysis_result`."""
    created_at: str
    """ISO 8601."""
    tags: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The files that it is about, relative to the root."""
    importance: int = 5
    """From 1, low, to 10, high."""
    left_out: int = 0
    """How many characters of the content are left out."""

    @property
    def is_of_file(self) -> bool:
        """True for instructions in a file of the root, as it was at the launch."""
        return self.id.startswith(OF_FILE)


@dataclass(frozen=True)
class Correction:
    """The last reply, which was not valid, with every reason."""

    reply: str
    malformed: Malformed
