"""Define what a planner is: it gets a question and answers with text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, JsonValue

from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.read_reply import Dialect


@dataclass(frozen=True)
class Kind:
    """A kind of job that a planner may ask for; `is_held`: by policy such a job waits for a person first (R5)."""

    name: str
    description: str
    params: type[BaseModel]
    is_held: bool


@dataclass(frozen=True)
class SeenJob:
    """A job as the planner sees it once it is settled, or while it waits for a person (`state` `held`).

    `turn` is the turn that asked for it, None where nobody did.
    """

    job_id: int
    name: str | None
    kind: str
    params: Mapping[str, JsonValue]
    state: str
    reason: str | None
    result: Mapping[str, JsonValue] | None
    error: Mapping[str, JsonValue] | None
    turn: int | None = None


@dataclass(frozen=True)
class Said:
    """What a person said to the planner, perhaps about a job of the plan (R14)."""

    text: str
    by: str
    job: SeenJob | None = None


@dataclass(frozen=True)
class Correction:
    """The reply before this question was not LCP: what it was, and every reason."""

    reply: str
    malformed: Malformed


@dataclass(frozen=True)
class Question:
    """One turn's question.

    `number` counts all questions of the mission from 1, corrective ones included; `turn` counts turns. `results` are
    the jobs that were settled since the last turn of this plan, `waiting` those that are held. `prompt` is the
    `user_prompt` and `context` the `context` of the `agent_plan` job; for the mission's own plan the prompt is the
    goal. `notices` are sentences of the engine (jobs repeated, a limit reached, checks not passed). `last_turn` names
    the limit that was reached: only `mission_complete`, `analysis_result` and `error` are allowed then (R6).
    `said` are words of people since the last turn; `said_before` gives those that earlier turns had, for a query.
    `history` gives every settled job of the plan from the start, oldest first; it costs a query.

    What the rules allow: `kinds` are those that may be asked for at all, `max_followups` jobs in one reply, `jobs_left`
    in the mission and `turns_left` behind this one (None where nothing limits them); `may_read` is False for a path
    that policy denies, and `writable` has the files of a kind that policy lets write these and no others. `stalled`
    replies in a row asked for nothing new (R11). `aliases` are further names of the root. `dialect` is what the reply
    is read as. `verifies`: the planner is asked whether its goal is reached (R9).
    """

    mission_id: int
    number: int
    turn: int
    goal: str
    root: str
    prompt: str
    context: str | None = None
    results: Sequence[SeenJob] = ()
    waiting: Sequence[SeenJob] = ()
    notices: Sequence[str] = ()
    correction: Correction | None = None
    last_turn: str | None = None
    said: Sequence[Said] = ()
    said_before: Callable[[], Sequence[Said]] = tuple
    history: Callable[[], Sequence[SeenJob]] = tuple
    kinds: Sequence[Kind] = ()
    max_followups: int = 5
    jobs_left: int | None = None
    turns_left: int | None = None
    stalled: int = 0
    aliases: Sequence[str] = ()
    may_read: Callable[[str], bool] = lambda path: True
    writable: Mapping[str, Sequence[str]] = field(default_factory=dict)
    dialect: Dialect = "lcp"
    verifies: bool = False


@dataclass(frozen=True)
class Reply:
    """What a planner answered: the raw text, and what it cost (tokens; None where nobody counted)."""

    text: str
    prompt: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True)
class Relayed(Reply):
    """A reply that a person has yet to bring (`lcp answer`): `prompt` is what they are asked. The turn is held."""

    text: str = ""


class Planner(Protocol):
    """Answers questions, each in its dialect; one that speaks a single dialect names it in an attribute `speaks`.

    Raises `LcpError` where it cannot: after `PLANNER_FAILED` the engine tries again, after `PLANNER_REFUSED` not.
    `input_tokens` and `output_tokens` in the error's details are what the question cost all the same; they count in
    the mission's tokens.
    """

    def answer(self, question: Question, /) -> Reply: ...
