"""Let a person be the planner: the question is held until somebody brings the reply."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lcp_engine.planners.base import Question, Relayed
from lcp_engine.planners.llm.prompt import write_prompt

CONTEXT_TOKENS = 32_000


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class HumanPlanner:
    """Writes each question down as a model would get it, for a person who answers or carries it to any chat window.

    `context_tokens` is about how much that chat window takes.
    """

    context_tokens: int = Field(default=CONTEXT_TOKENS, ge=1000)

    def answer(self, question: Question, /) -> Relayed:
        prompt = write_prompt(question, budget_tokens=self.context_tokens, dialect=question.dialect)
        return Relayed(prompt=prompt.text)
