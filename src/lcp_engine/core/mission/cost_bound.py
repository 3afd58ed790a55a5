"""Say the most that a mission can cost before a limit ends it (R6, R11). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import JsonValue

from lcp_engine.core.mission.spec import Limits
from lcp_engine.core.summaries import duration, size

_BEYOND = 2
"""Questions that a limit on tokens does not stop: the one that reaches it, and the last turn."""


@dataclass(frozen=True)
class WorstCase:
    """The most of everything, the last turn included (R6).

    `question_tokens` is the most that one question takes with all that is tried for it: 0 where no model is asked,
    None where only the model's server knows.
    """

    limits: Limits
    question_tokens: int | None

    @property
    def questions(self) -> int:
        """Questions to the planner: each turn with all its corrections, and the last turn, which has none."""
        return self.limits.max_turns * (1 + self.limits.max_corrections) + 1

    @property
    def tokens(self) -> int | None:
        """Tokens of prompts and replies; None where nothing bounds them."""
        if self.question_tokens is None:
            return None
        most = self.questions * self.question_tokens
        limit = self.limits.max_tokens
        return most if limit is None else min(most, limit + _BEYOND * self.question_tokens)

    @property
    def json(self) -> dict[str, JsonValue]:
        """The figures; null is without limit."""
        return {
            "turns": self.limits.max_turns + 1,
            "questions": self.questions,
            "jobs": self.limits.max_jobs,
            "seconds": self.limits.max_seconds,
            "bytes_written": self.limits.max_bytes_written,
            "tokens": self.tokens,
        }

    @property
    def lines(self) -> list[str]:
        """The worst case in one or two lines for people; what nothing bounds names the limit to set."""
        limits = self.limits
        time, written = limits.max_seconds, limits.max_bytes_written
        parts = [
            f"{limits.max_turns + 1:,} turns",
            f"{self.questions:,} questions",
            f"{limits.max_jobs:,} jobs",
            "no limit of time (set limits.max_seconds)" if time is None else f"{duration(time)} of running",
            "no limit of bytes (set limits.max_bytes_written)"
            if written is None
            else f"{size(written)} written",
        ]
        lines = [f"worst case: {', '.join(parts)}"]
        return lines if self.question_tokens == 0 else [*lines, f"worst case: {self._told_tokens()}"]

    def _told_tokens(self) -> str:
        limit = self.limits.max_tokens
        if self.tokens is None:
            if limit is None:
                return "no limit of tokens (set limits.max_tokens)"
            return f"{limit:,} tokens, and what {_BEYOND} questions take beyond them"
        if limit is None:
            return f"{self.tokens:,} tokens, with all that is tried again (limits.max_tokens sets less)"
        return f"{self.tokens:,} tokens: limits.max_tokens, and {_BEYOND} questions beyond it at most"
