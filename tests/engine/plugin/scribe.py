"""Play a planner that answers with given replies and writes every question down."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Question, Reply


class Scribe:
    """Reply N belongs to question N, as with `script`; to a null it gives none, ever.

    The questions in `refuse` get no answer at first.
    """

    def __init__(
        self, replies: list[JsonValue], log: str, tokens: int | None = None, refuse: tuple[int, ...] = ()
    ) -> None:
        self._replies = replies
        self._log = Path(log)
        self._tokens = tokens
        self._refuse = set(refuse)

    def answer(self, question: Question, /) -> Reply:
        if question.number in self._refuse:
            self._refuse.discard(question.number)
            raise LcpError(ErrorCode.PLANNER_FAILED, f"question {question.number} is refused once")
        with self._log.open("a", encoding="utf-8") as log:
            log.write(json.dumps(self._written(question), default=str) + "\n")
        reply = self._replies[question.number - 1]
        if reply is None:
            raise LcpError(ErrorCode.NOT_ALLOWED, f"question {question.number} is never answered")
        text = reply if isinstance(reply, str) else json.dumps(reply)
        return Reply(text, prompt="as asked", input_tokens=self._tokens, output_tokens=self._tokens)

    @staticmethod
    def _written(question: Question) -> dict[str, object]:
        correction = question.correction
        return {
            "number": question.number,
            "turn": question.turn,
            "goal": question.goal,
            "prompt": question.prompt,
            "context": question.context,
            "results": [asdict(result) for result in question.results],
            "waiting": [asdict(result) for result in question.waiting],
            "history": [asdict(result) for result in question.history()],
            "notices": list(question.notices),
            "warnings": list(question.warnings),
            "said": [said.text for said in question.said],
            "said_before": [said.text for said in question.said_before()],
            "memories": [memory.title for memory in question.memories],
            "of_step": question.of_step,
            "last_turn": question.last_turn,
            "dialect": question.dialect,
            "correction": {
                "reply": None if correction is None else correction.reply,
                "errors": [] if correction is None else [p.record for p in correction.malformed.errors],
            },
        }
