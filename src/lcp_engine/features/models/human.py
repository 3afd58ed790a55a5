"""Planner for a person, who gets the prompt of a model."""

from __future__ import annotations

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lcp_engine.features.models.prompts.prompt import write_prompt
from lcp_engine.planners.base import Question, Relayed

CONTEXT_TOKENS = 32_000


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class HumanPlanner:
    """Writes the prompt that a model would get, for a person who answers it or pastes it into a chat window."""

    context_tokens: int = Field(default=CONTEXT_TOKENS, ge=1000)
    """About how many tokens the chat window takes."""

    def answer(self, question: Question, /) -> Relayed:
        prompt = write_prompt(question, budget_tokens=self.context_tokens, dialect=question.dialect)
        return Relayed(prompt=prompt.text, record=prompt.record)
