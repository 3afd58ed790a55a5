"""Answer with the stored turns of an earlier mission, question by question."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Question, Reply


@dataclass(frozen=True, config=ConfigDict(extra="ignore"))
class StoredTurn:
    """A row of `turn_history`, or what `Engine.turns` gives; further keys are left alone."""

    number: int = Field(ge=1)
    reply: str | None = None
    prompt: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ReplayPlanner:
    """Gives each question the raw reply that the turn of its number got, with what that cost then."""

    turns: tuple[StoredTurn, ...]

    def answer(self, question: Question, /) -> Reply:
        stored = next((turn for turn in self.turns if turn.number == question.number), None)
        if stored is None or stored.reply is None:
            message = f"question {question.number} needs a stored reply to be replayed; there is none"
            raise LcpError(ErrorCode.SCRIPT_EXHAUSTED, message)
        return Reply(stored.reply, stored.prompt, stored.input_tokens, stored.output_tokens)
