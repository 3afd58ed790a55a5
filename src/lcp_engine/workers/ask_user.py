"""The kind `ask_user`: ask a person a question."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lcp_engine.core.kinds import QUESTION
from lcp_engine.workers.base import Example, ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, Result

KIND = QUESTION
MOST_OPTIONS = 20


_Words = Annotated[ContentText, Field(min_length=1)]


class AskUserParams(Params):
    """A question; a person may pick one of `options` or answer in words of their own."""

    question: _Words = Field(description="What a person is asked.")
    options: list[_Words] | None = Field(
        default=None, max_length=MOST_OPTIONS, description="At most 20 answers to choose from."
    )


class AskUserResult(Result):
    """What a person answered; `option` is the number of the option that it is, from 1."""

    action: Literal["ask_user_result"] = "ask_user_result"
    answer: str
    option: int | None = None
    by: str


WORKER = Worker(
    kind=KIND,
    params=AskUserParams,
    result=AskUserResult,
    execute=refuse_to_execute(
        "ask_user asks a person of a mission, who answers with `lcp answer`; nothing executes it"
    ),
    description="Ask a person; the answer comes with a later turn.",
    has_effects=False,
    executed_by=ExecutedBy.PERSON,
    examples=(
        Example(
            params={"question": "Which licence?", "options": ["MIT", "Apache-2.0"]},
            result={"answer": "MIT", "option": 1, "by": "Ann"},
            is_run=False,
        ),
    ),
)
