"""Planners that need no model: a script of replies, the stored turns of a mission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.protocol.actions import Action, Malformed, Problem
from lcp_engine.core.protocol.read_reply import Dialect, reader_of
from lcp_engine.core.protocol.result_schema import ResultSchema
from lcp_engine.core.refused_values import Fault, details_of
from lcp_engine.core.safe_text import one_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Planner, Question, Reply


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ScriptPlanner:
    """Answers question N with reply N; objects are written as JSON, strings are the raw text."""

    replies: tuple[dict[str, JsonValue] | str, ...]

    def answer(self, question: Question, /) -> Reply:
        if not 1 <= question.number <= len(self.replies):
            return Reply(json.dumps(self._exhausted(question), ensure_ascii=False))
        return Reply(_text_of(self.replies[question.number - 1]))

    def read(
        self, dialect: Dialect, kinds: Mapping[str, type[BaseModel]], result: ResultSchema | None = None
    ) -> list[Action | Malformed]:
        """The replies as they will be read; `kinds` and `result` are those of `read_reply`.

        None of them has to carry the result: which of them completes the mission is not known yet.
        """
        read, stated = reader_of(dialect), None if result is None else replace(result, required=False)
        return [read(_text_of(reply), kinds, stated) for reply in self.replies]

    def invalid_replies(
        self, dialect: Dialect, kinds: Mapping[str, type[BaseModel]], result: ResultSchema | None = None
    ) -> list[InvalidReply]:
        """The replies that are not valid in a dialect, as `read` reads them."""
        found = zip(self.replies, self.read(dialect, kinds, result), strict=True)
        return [
            InvalidReply(number, isinstance(reply, str), tuple(map(_sentence, malformed.errors)))
            for number, (reply, malformed) in enumerate(found, 1)
            if isinstance(malformed, Malformed)
        ]

    def _exhausted(self, question: Question) -> dict[str, JsonValue]:
        count, code = len(self.replies), str(ErrorCode.SCRIPT_EXHAUSTED)
        replies = "reply" if count == 1 else "replies"
        error = f"the script has {count} {replies}, question {question.number} has none"
        return reader_of(question.dialect).give_up(error, code)


@dataclass(frozen=True)
class InvalidReply:
    """A reply of a script that leads to a corrective turn, with every reason."""

    number: int
    is_text: bool
    """Whether it is given as text: that is how a planner's mistakes are played; one in an object is the author's."""
    problems: tuple[str, ...]

    def __str__(self) -> str:
        more = len(self.problems) - _MOST_PROBLEMS
        shown = "; ".join(self.problems[:_MOST_PROBLEMS])
        return f"reply {self.number} is not valid: {shown}{f'; and {more} more' if more > 0 else ''}"


_MOST_PROBLEMS = 3
_MOST_REPLIES = 5


def check_script(
    planner: Planner,
    spec: PlannerSpec,
    kinds: Mapping[str, type[BaseModel]],
    result: ResultSchema | None = None,
    *,
    source: str = "mission",
) -> list[str]:
    """Check the replies of a script before anything runs; planners of other types have none.

    `result` is the schema of the mission's result. Returns a sentence for each text that is not valid: the next reply
    is then played as its correction. Raises `INVALID_MISSION` if an object is not valid, with the number and the errors
    of each such reply; `source` names the mission in it.
    """
    invalid = (
        planner.invalid_replies(spec.dialect, kinds, result) if isinstance(planner, ScriptPlanner) else []
    )
    faults = [
        Fault(f"planner.replies: {reply}", ("planner", "replies", reply.number - 1))
        for reply in invalid
        if not reply.is_text
    ]
    if faults:
        left_out = len(faults) - _MOST_REPLIES
        more = [f"and {left_out} more replies"] if left_out > 0 else []
        message = one_line(
            f"{source}: {'; '.join([*(fault.line for fault in faults[:_MOST_REPLIES]), *more])}"
        )
        raise LcpError(ErrorCode.INVALID_MISSION, message, details_of(faults))
    return [f"{reply}; the next reply is its correction" for reply in invalid]


def _text_of(reply: dict[str, JsonValue] | str) -> str:
    return reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False)


def _sentence(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class StoredTurn:
    """A row of `turn_history`, or what `Engine.turns` returns; further keys are ignored."""

    number: int = Field(ge=1)
    reply: str | None = None
    prompt: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ReplayPlanner:
    """Answers each question with the stored reply to the question of that number, and its tokens."""

    turns: tuple[StoredTurn, ...]

    def answer(self, question: Question, /) -> Reply:
        stored = next((turn for turn in self.turns if turn.number == question.number), None)
        if stored is None or stored.reply is None:
            message = f"question {question.number} has no stored reply to replay"
            advice = "Fork the mission at its last turn to go on with a planner."
            raise LcpError(ErrorCode.SCRIPT_EXHAUSTED, message, advice=advice)
        return Reply(stored.reply, stored.prompt, stored.input_tokens, stored.output_tokens)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class NoPlanner:
    """The planner of a mission whose plan asks none."""

    def answer(self, question: Question, /) -> Reply:
        message = f"mission {question.mission_id} has no planner to ask"
        advice = "Name one in the mission file (`planner:`), or with --planner NAME."
        raise LcpError(ErrorCode.PLANNER_FAILED, message, advice=advice)
