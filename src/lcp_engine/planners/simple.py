"""Planners that need no model: a script of replies, the stored turns of a mission, a person."""

from __future__ import annotations

import json
from typing import assert_never

from pydantic import ConfigDict, Field, JsonValue
from pydantic.dataclasses import dataclass

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Question, Relayed, Reply

CONTEXT_TOKENS = 32_000


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ScriptPlanner:
    """Answers question N with reply N; objects are written as JSON, strings are the raw text."""

    replies: tuple[dict[str, JsonValue] | str, ...]

    def answer(self, question: Question, /) -> Reply:
        if not 1 <= question.number <= len(self.replies):
            return Reply(json.dumps(self._exhausted(question), ensure_ascii=False))
        reply = self.replies[question.number - 1]
        return Reply(reply if isinstance(reply, str) else json.dumps(reply, ensure_ascii=False))

    def _exhausted(self, question: Question) -> dict[str, JsonValue]:
        count, code = len(self.replies), ErrorCode.SCRIPT_EXHAUSTED.value
        replies = "reply" if count == 1 else "replies"
        error = f"the script has {count} {replies}, question {question.number} has none"
        match question.dialect:
            case "lcp":
                return {"ok": False, "action": "error", "error": error, "error_code": code}
            case "universal":
                details: dict[str, JsonValue] = {"error_code": code}
                return {
                    "response_type": "error", "status": "error", "message": error, "error_details": details,
                }  # fmt: skip
            case _:
                assert_never(question.dialect)


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


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class HumanPlanner:
    """Writes the prompt that a model would get, for a person who answers it or pastes it into a chat window."""

    context_tokens: int = Field(default=CONTEXT_TOKENS, ge=1000)
    """About how many tokens the chat window takes."""

    def answer(self, question: Question, /) -> Relayed:
        from lcp_engine.planners.llm.prompt import write_prompt  # only this planner needs it

        prompt = write_prompt(question, budget_tokens=self.context_tokens, dialect=question.dialect)
        return Relayed(prompt=prompt.text)
