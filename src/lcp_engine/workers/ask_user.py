"""The kind `ask_user`: ask a person a question."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.protocol.actions import RULE
from lcp_engine.core.protocol.question_form import MOST_FIELDS, FormField
from lcp_engine.workers.base import Example, ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, Result

KIND = QUESTION
MOST_OPTIONS = 20


_Words = Annotated[ContentText, Field(min_length=1)]
_Line = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\n\r]*$")]


class BriefQuestion(Params):
    """A question; a person may pick one of `options` or answer in words of their own."""

    question: _Words = Field(description="What a person is asked.")
    options: list[_Words] | None = Field(
        default=None, max_length=MOST_OPTIONS, description="At most 20 answers to choose from."
    )


class AskUserParams(BriefQuestion):
    """A question with a form: the person fills in `fields`, or answers in words of their own all the same."""

    fields: list[FormField] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_FIELDS,
        description="At most 20 fields to fill in; words of one's own are always possible.",
    )
    id: _Line | None = Field(default=None, description="An id of the form, for a program that shows it.")
    submit_label: _Line | None = Field(default=None, description="What the button that answers says.")

    @model_validator(mode="before")
    @classmethod
    def _read_form(cls, value: JsonValue) -> JsonValue:
        """Read a form of seed 004, `{"title": …, "fields": […]}`: title and description are the question."""
        if not isinstance(value, dict) or not _is_form(value):
            return value
        empty = [key for key in ("id", "submit_label") if value.get(key) == ""]
        rest = {key: part for key, part in value.items() if key not in (*_OF_FORM, *empty)}
        titles = [value[key] for key in ("title", "description") if isinstance(value.get(key), str)]
        return {"question": "\n".join(map(str, titles)), **rest} if titles else rest

    @field_validator("fields")
    @classmethod
    def _name_each_once(cls, fields: list[FormField] | None) -> list[FormField] | None:
        known: dict[str, int] = {}
        for index, field in enumerate(fields or ()):
            if field.id in known:
                places = {"id": field.id, "first": known[field.id], "second": index}
                message = "the id '{id}' is that of fields[{first}] and of fields[{second}]; each has its own"
                raise PydanticCustomError(RULE, message, places)
            known[field.id] = index
        return fields

    @model_validator(mode="after")
    def _asks_in_one_way(self) -> AskUserParams:
        if self.options and self.fields:
            raise PydanticCustomError(
                RULE, "options and fields are both given; a select in fields has options, too"
            )
        return self


_OF_FORM = ("type", "title", "description", "optional")


def _is_form(value: Mapping[str, JsonValue]) -> bool:
    return value.get("type") == "form" or ("fields" in value and "title" in value and "question" not in value)


def fields_of(params: Mapping[str, JsonValue]) -> tuple[FormField, ...]:
    """The fields that a question asks for; none if it asks for none, or its params are not valid."""
    asked = asked_in(params) if params.get("fields") else None
    return () if asked is None else tuple(asked.fields or ())


def asked_in(params: Mapping[str, JsonValue]) -> AskUserParams | None:
    """The question that params ask; None if they are not valid."""
    try:
        return AskUserParams.model_validate(dict(params))
    except ValidationError:
        return None


class AskUserResult(Result):
    """What a person answered; `option` is the number of the option that it is, from 1.

    `values` are those of the form by the ids of its fields, `words` what the person added to it; `answer` then has a
    line for each value, and these words.
    """

    action: Literal["ask_user_result"] = "ask_user_result"
    answer: str
    option: int | None = None
    values: dict[str, JsonValue] | None = None
    words: str | None = None
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
    brief_params=BriefQuestion,
    examples=(
        Example(
            params={"question": "Which licence?", "options": ["MIT", "Apache-2.0"]},
            result={"answer": "MIT", "option": 1, "by": "Ann"},
            is_run=False,
        ),
        Example(
            params={
                "question": "What shall the release be?",
                "fields": [
                    {"id": "version", "type": "text", "label": "Version", "required": True},
                    {"id": "day", "type": "date", "label": "Day", "default": "2026-12-01"},
                ],
            },
            result={
                "answer": "Version: 2.0\nDay: 2026-12-01",
                "values": {"version": "2.0", "day": "2026-12-01"},
                "by": "Ann",
            },
            is_run=False,
        ),
    ),
)
