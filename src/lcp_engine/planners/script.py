"""Answer with given replies, in order: a mission without a model."""

from __future__ import annotations

import json
from typing import assert_never

from pydantic import ConfigDict, JsonValue
from pydantic.dataclasses import dataclass

from lcp_engine.errors import ErrorCode
from lcp_engine.planners.base import Question, Reply


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ScriptPlanner:
    """Reply N belongs to question N; objects are written as JSON, strings are the raw text."""

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
