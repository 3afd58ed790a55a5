"""Values that the API takes and gives, from which its OpenAPI document is made."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from types import UnionType
from typing import Annotated, Generic, Literal, TypeVar, get_origin, get_type_hints

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    RootModel,
    create_model,
)

from lcp_engine import Job, Mission, MissionStatus
from lcp_engine.core.inbox import Act, Awaits
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import JsonObject
from lcp_engine.core.safe_text import one_line
from lcp_engine.features.tokens.calls import Scope
from lcp_engine.inbox import Decision
from lcp_engine.operation import ActiveRunner
from lcp_engine.schedules import Overlap

T = TypeVar("T")
MOST = 200
Id = Annotated[int, Field(ge=1, lt=2**62)]
Cursor = Annotated[int, Field(ge=0, lt=2**62)]
Words = Annotated[str, Field(min_length=1, max_length=100_000)]
Time = Annotated[AwareDatetime, BeforeValidator(datetime.fromisoformat)]
"""A time in a query, which is text: pydantic would take numbers, too."""
Path = Annotated[str, Field(min_length=1, max_length=4096)]
Mark = Annotated[str, Field(min_length=1, max_length=100, description="The `shown` of what is decided on.")]


# -- What it takes


class Asked(BaseModel):
    """The fields of a query."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Listed(Asked):
    """A page of a list."""

    limit: int = Field(default=50, ge=1, le=MOST, description="At most so many items.")
    cursor: Cursor | None = Field(default=None, description="`next` of the page before.")


class MissionsAsked(Listed):
    """Which missions to list."""

    status: MissionStatus | None = None
    text: str = Field(default="", max_length=200, description="Occurs in name, goal, root or summary.")


class Waited(Asked):
    """A wait for a mission."""

    wait: float = Field(default=0, ge=0, le=60, description="Seconds to wait until it rests or has ended.")
    until: Literal["rest", "end"] = Field(
        default="rest", description="`rest`: until nothing of it runs. `end`: until it has ended."
    )


class JobsAsked(Listed):
    """Which jobs to list."""

    mission: Id | None = None
    state: tuple[State, ...] = Field(default=(), description="May be repeated.")
    kind: str = Field(default="", max_length=64)
    text: str = Field(
        default="", max_length=200, description="Occurs in name, kind, reason, params or result."
    )
    newest_first: bool = False


class HeldAsked(Listed):
    """Which held jobs to list."""

    mission: Id | None = None
    kind: str = Field(default="", max_length=64)
    text: str = Field(default="", max_length=200)


class EventsAsked(Asked):
    """Which events of a mission to send."""

    after: Cursor = Field(default=0, description="Only those with a higher `seq`.")
    limit: int = Field(default=MOST, ge=1, le=1000, description="At most so many; a stream has no limit.")
    until: Literal["never", "end"] = Field(
        default="never", description="A stream ends with the mission, after its last event (`end`), or never."
    )


class DecisionsAsked(Asked):
    """Which decisions of people to list."""

    limit: int = Field(default=50, ge=1, le=MOST, description="At most so many items.")
    cursor: str | None = Field(default=None, max_length=100, description="`next` of the page before.")
    by: str | None = Field(default=None, max_length=200, description="Who decided.")
    kind: str | None = Field(default=None, max_length=64)
    mission: Id | None = None
    since: Time | None = None
    until: Time | None = None


class ActivityAsked(Asked):
    """The time of which to read the activity."""

    over: Literal["hour", "day", "week"] = "hour"


class ContentsAsked(Asked):
    """The file of which to read the contents."""

    path: Path


class MemoryAsked(Listed):
    """Which entries of memory to list."""

    root: str | None = Field(default=None, max_length=4096)
    tag: str | None = Field(default=None, max_length=200)
    text: str | None = Field(default=None, max_length=200)


class Body(BaseModel):
    """The body of a request, as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Launch(Body):
    """A mission to launch: one that the operator listed, or any over a root that the operator listed."""

    mission: str | None = Field(default=None, max_length=200, description="The name of a listed mission.")
    spec: dict[str, JsonValue] | None = Field(
        default=None, description="A mission as a mission file states it, without `root`; needs a root."
    )
    root: str | None = Field(default=None, max_length=4096, description="A listed root.")
    variables: dict[str, str] = Field(default={}, description="Variables of a listed mission.")
    planner: dict[str, JsonValue] | None = Field(default=None, description="Another planner than it states.")


class Checking(Launch):
    """A mission to check before it is launched."""

    ask: bool = Field(
        default=False, description="Also ask its model ten short questions, which costs tokens."
    )


class NewSchedule(Launch):
    """A mission to launch repeatedly, or once at a time; `every`, `cron` and `at` as `lcp schedule add` takes them."""

    name: str = Field(min_length=1, max_length=64)
    every: str | None = Field(default=None, max_length=100)
    cron: str | None = Field(default=None, max_length=200)
    at: str | None = Field(default=None, max_length=100)
    timezone: str = Field(default="UTC", max_length=100)
    overlap: Overlap = "skip"
    replace: bool = Field(default=False, description="Change the settings of the schedule of that name.")


class Params(Body):
    """Other params of a held job."""

    params: dict[str, JsonValue]


class Merged(Body):
    """A file of a held merge, whose text is to be edited."""

    path: Path
    params: dict[str, JsonValue] | None = Field(default=None, description="Other params of the merge.")


class Comment(Body):
    """Words about a line of a file; the planner reads them with its place."""

    path: Path
    line: int = Field(ge=1, lt=2**31)
    removed: bool = Field(default=False, description="It is the number of a line that is removed.")
    text: str = Field(min_length=1, max_length=4000)

    def __str__(self) -> str:
        return f"{one_line(self.path)}, {'removed ' if self.removed else ''}line {self.line}: {self.text}"


class Commented(Body):
    """A body with comments, which are sent together."""

    comments: tuple[Comment, ...] = Field(
        default=(), max_length=400, description="They follow the words, each with its place."
    )

    def with_comments(self, words: str | None) -> str | None:
        """The words, then the comments; None without any."""
        return "\n".join(filter(None, [words, *map(str, self.comments)])) or None


class Approve(Commented):
    """An approval of what was shown."""

    shown: Mark
    params: dict[str, JsonValue] | None = Field(
        default=None,
        description="Other params, as they were shown by `look`; of a merge, a choice of its parts.",
    )
    words: Words | None = Field(default=None, description="Words for the planner.")


class Always(Body):
    """An approval with a rule that lets such jobs run from now on."""

    shown: Mark
    rule: int = Field(ge=0, lt=100, description="Which of the `rules` of the held job, counted from 0.")
    paths: tuple[Path, ...] | None = Field(
        default=None, min_length=1, max_length=100, description="Other paths than that rule has."
    )
    scope: Literal["mission", "user"] = Field(
        default="mission", description="`user`: for all missions to come, too; with the scope `admin`."
    )


class Reject(Commented):
    """A rejection."""

    reason: Words = Field(description="The planner reads it.")
    shown: Mark | None = None


class OneHeld(Body):
    """A held job of several that are decided on."""

    job: Id
    shown: Mark | None = Field(default=None, description="Needed to approve: `shown` of this job.")


class DecideHeld(Body):
    """One decision on several held jobs, each as it was shown and independently of the others."""

    decision: Literal["approve", "reject"]
    reason: Words | None = Field(default=None, description="Of a rejection; the planner reads it.")
    jobs: tuple[OneHeld, ...] = Field(min_length=1, max_length=1000)


class View(Body):
    """A file of a job that the token's person has viewed, or no longer."""

    mark: str = Field(pattern="^[0-9a-f]{32}$", description="The `mark` of its diff.")
    seen: bool = Field(default=False, description="All of it was on the person's screen.")
    viewed: bool = True


class Answer(Body):
    """An answer to a question, or the reply of a planner who is a person."""

    text: str = Field(default="", max_length=1_000_000)
    words: bool = Field(
        default=False, description="Take the text as words, also if it is the number of an option."
    )
    form: dict[str, JsonValue] | None = Field(default=None, description="Values by the ids of the fields.")
    shown: Mark | None = Field(default=None, description="Needed for a question: `shown` of it.")


class Say(Body):
    """A message to the planner, which decides nothing."""

    text: Words


class SayAbout(Say, Commented):
    """A message to the planner about a job."""


class Undo(Body):
    """An undo of what was shown."""

    shown: Mark


class RuleOf(Body):
    """A rule of a mission as it was listed."""

    rule: dict[str, JsonValue]


class Resume(Body):
    """A mission that goes on."""

    limits: dict[str, JsonValue] = Field(default={}, description="Other limits.")


class Fork(Body):
    """A new mission in the state that one had."""

    turn: Id | None = None
    step: str | None = Field(default=None, min_length=1, max_length=200)
    reply: str | None = Field(default=None, max_length=1_000_000, description="Answers the turn.")
    planner: str | None = Field(default=None, max_length=200, description="The type of another planner.")


class Edit(Body):
    """Changes of an entry of memory; what is left out stays."""

    title: str | None = Field(default=None, max_length=1000)
    content: str | None = Field(default=None, max_length=100_000)
    tags: tuple[str, ...] | None = None
    files: tuple[str, ...] | None = None
    importance: int | None = Field(default=None, ge=1, le=10)
    seen: AwareDatetime | None = Field(
        default=None, description="`updated_at` as it was read: a conflict if the entry has changed since."
    )


# -- What it gives


class Page(BaseModel, Generic[T]):
    """A page of a list; `next` is the cursor of the one behind it, null at the end."""

    items: list[T]
    next: int | None


def _published(kind: type, **renamed: str) -> type[BaseModel]:
    """The model of the object that a record is read from, where objects and lists may be null."""
    hints = get_type_hints(kind)

    def may_be_null(of: type) -> type | UnionType:
        return of | None if get_origin(of) in (dict, list) else of

    made = {
        renamed.get(one.name, one.name): (may_be_null(hints[one.name]), ...)
        for one in fields(kind)
        if one.name != "json"
    }
    first, _, _ = (kind.__doc__ or "").partition("\n")
    return create_model(kind.__name__, __doc__=first, **made)  # type: ignore[call-overload, no-any-return]


MissionObject = _published(Mission, session="session_id", user="user_id")
JobObject = _published(Job)
RunnerObject = _published(ActiveRunner)
DecisionObject = _published(Decision)


RunnerPage = Page[RunnerObject]  # type: ignore[valid-type]  # made above


class MissionHead(BaseModel):
    """A mission in a list."""

    id: int
    name: str
    goal: str
    root: str | None
    status: MissionStatus
    outcome: str | None
    turns: int
    jobs: dict[str, int]
    open: int
    created_at: str
    ended_at: str | None


class JobHead(BaseModel):
    """A job in a list: params and result are null where they are large; `about` then has what it is about."""

    id: int
    mission_id: int
    turn: int | None
    parent_id: int | None
    name: str | None
    kind: str
    state: State
    reason: str | None
    params: JsonObject | None
    result: JsonObject | None
    error: JsonObject | None
    about: JsonObject | None = None


class TurnHead(BaseModel):
    """A question to the planner in a list."""

    number: int
    turn: int
    job_id: int
    corrects: int | None
    action: str | None
    input_tokens: int | None
    output_tokens: int | None
    asked_at: str
    replied_at: str | None


class Turn(TurnHead):
    """A question to the planner, with its prompt and the reply as it came."""

    prompt: str | None
    reply: str | None


class EventObject(BaseModel):
    """An event of a mission; `seq` counts from 1 without gaps."""

    mission_id: int
    seq: int
    job_id: int | None
    at: str
    event: str
    data: JsonObject | None


class DiffObject(BaseModel):
    """The change of a file, as a unified diff; `note` says what that cannot show."""

    path: str
    added: int
    removed: int
    note: str | None
    diff: str
    hunks: list[str]
    mark: str = Field(description="Names what is shown here of the file.")


class Changed(DiffObject):
    """The change of a file by a mission, and whether the file is as it was left."""

    jobs: list[int]
    disk: str | None


class HeldObject(BaseModel):
    """A held job in a list."""

    id: int
    mission_id: int
    kind: str
    about: str
    reason: str | None
    awaits: Awaits
    acts: list[Act]
    expires_at: str | None
    has_ended: bool = Field(description="Whether its mission has.")


class Asks(BaseModel):
    """A question to a person."""

    text: str
    options: list[str]
    fields: list[JsonObject] = Field(description="Its form; empty without one.")
    shown: str = Field(description="Names the question; an answer states it.")


class Shown(HeldObject):
    """A held job with all that a person has to know before they decide."""

    params: JsonObject
    diffs: list[DiffObject]
    caveat: str = Field(description="What the diffs do not show; empty if there is nothing to say.")
    shown: str | None = Field(description="Names what is shown here; an approval states it. Null for words.")
    approvals: JsonObject | None
    question: Asks | None
    prompt: str | None = Field(description="Of a turn: what the planner is asked.")
    rules: list[JsonObject] = Field(
        description="The rules that would let such jobs run, the narrowest first."
    )


class Looked(BaseModel):
    """The changes that a held job would make."""

    diffs: list[DiffObject]
    caveat: str
    shown: str | None


class Text(BaseModel):
    """The text of a file."""

    text: str


class Sides(BaseModel):
    """Both contents that a diff compares, in base64; null where there is no file."""

    before: str | None
    after: str | None


class DecidedEach(BaseModel):
    """The jobs by what became of the decision."""

    done: list[int]
    waiting: list[int] = Field(description="Approved, and held until other people have approved them, too.")
    before: list[int] = Field(description="Decided so before, by another person.")
    refused: list[RefusedJob]


class RefusedJob(BaseModel):
    """A job on which nothing was decided, and why."""

    job: int
    code: str
    detail: str


class DecisionPage(BaseModel):
    """A page of decisions; `next` is the cursor of the one behind it, null at the end."""

    items: list[DecisionObject]  # type: ignore[valid-type]  # made above
    next: str | None


class ActivityObject(BaseModel):
    """The amounts of each measure by the minute or the hour, the oldest first."""

    begin: str
    step_seconds: int
    amounts: dict[str, list[int]]


class Marks(RootModel[dict[str, bool]]):
    """The marks of files that a person has viewed, each with whether all of it had been on their screen."""


class ToUndo(BaseModel):
    """The plan of an undo, file by file."""

    files: list[JsonObject]
    diffs: list[DiffObject]
    shown: str


class ScheduleObject(BaseModel):
    """A schedule, its last due time and its newest mission."""

    name: str
    rule: str
    next_due_at: str | None
    missed: int
    skipped: int
    last: JsonObject | None
    mission: JsonObject | None
    error: str | None


class MemoryObject(BaseModel):
    """An entry of memory."""

    number: int
    id: str
    root: str
    title: str
    content: str
    tags: list[str]
    files: list[str]
    importance: int
    source: str
    author: str | None
    mission_id: int | None
    created_at: str
    updated_at: str
    expires_at: str | None


class Drafts(RootModel[dict[str, str]]):
    """The end of each reply that is being written, by the job of its turn."""


class Ruling(RootModel[JsonObject]):
    """The rule that decides about a job, and every one that was considered."""


class Outlook(RootModel[JsonObject]):
    """Facts about a mission before its first turn, like those of `lcp validate --json`, and `findings` of its model."""


class Stated(RootModel[JsonObject]):
    """A mission as a mission file states it, with what differs from the defaults."""


class Report(BaseModel):
    """A report as JSON, and for people."""

    report: JsonObject
    markdown: str


class Statistics(BaseModel):
    """Figures of the database."""

    missions: dict[str, int]
    jobs: dict[str, int]
    held: int
    pruned: int
    waiting: dict[str, int]
    oldest_mission: str | None
    bytes: int
    roots: list[JsonObject]


class Offered(BaseModel):
    """Roots and missions that may be launched, and the token that asked for them."""

    roots: list[str]
    missions: list[str]
    token: str
    scopes: list[Scope]
    person: str


class Decided(BaseModel):
    """The job after a decision; `changed` is false if it had been decided so before."""

    job: JobObject  # type: ignore[valid-type]  # made above
    changed: bool


class Steered(BaseModel):
    """The mission after an act; `changed` is false if nothing was to be done."""

    mission: MissionObject  # type: ignore[valid-type]  # made above
    changed: bool


class Undone(BaseModel):
    """The result of an undo; `job_id` is its job, null if nothing was to be undone."""

    mission_id: int
    job_id: int | None
    files: list[JsonObject]


class Replayed(BaseModel):
    """The result of a replay: how much was compared, and every difference; `stopped` says why it ended early."""

    jobs: int
    questions: int
    differences: list[JsonObject]
    stopped: str | None


class Removed(BaseModel):
    """The name or number of something that is gone."""

    removed: str


class Problem(BaseModel):
    """A refusal, by RFC 9457; `code` is one of docs/errors.md, or `DEFECT`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    advice: str
    details: JsonObject
