"""Put a mission's question to the person at a client, as the form that their client shows (elicitation)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit
from pydantic import BaseModel, Field, JsonValue, create_model
from pydantic.config import JsonDict

from lcp_engine import Engine, LcpError, State
from lcp_engine.api.inbox import Question, question_in
from lcp_engine.core.protocol.question_form import FormField
from lcp_engine.errors import GENERAL, ErrorCode
from lcp_engine.features.mcp_server.clients import Served
from lcp_engine.features.mcp_server.values import untrusted
from lcp_engine.inbox import Awaits

_OWN_QUESTIONS = ("person_asked", "asked_for_more")
"""Events of a job that asks in the engine's name."""


@dataclass(frozen=True)
class Given:
    """An answer that the client gave itself."""

    text: str
    form: Mapping[str, JsonValue] | None


class AnswerForm(BaseModel):
    """The form of a question, which knows the question that the person saw."""

    question: ClassVar[Question]


def asked(
    ctx: Context[Served, object], job: int, text: str | None = None, form: dict[str, JsonValue] | None = None
) -> object:
    """Take the answer of a client itself, or put the question to its person. Raises `ToolError`."""
    if text is not None or form is not None:
        return Given(text or "", form)
    served = ctx.request_context.lifespan_context
    engine = served.engine
    try:
        question = held_question(engine, job)
        if is_engines(engine, job):
            served.approver(ctx)
    except LcpError as error:
        raise ToolError(f"{error.code}: {error}. {error.failed.recommendation}") from error
    can = ctx.client_capabilities
    if can is None or can.elicitation is None or (can.elicitation.form is None and can.elicitation.url):
        raise ToolError("INVALID_ARGUMENT: this client cannot ask its person; state text or form.")
    found = engine.job(job)
    words = untrusted(str(found.params.get("question", ""))).untrusted
    return Elicit(f"The planner of mission {found.mission_id} asks (job {job}):\n\n{words}", _form(question))


def held_question(engine: Engine, job: int) -> Question:
    """The question that a held job asks. Raises `NOT_FOUND`, and `WRONG_STATE` for any other job."""
    found = engine.job(job)
    held = engine.inbox.of([found.json]) if found.state is State.HELD else []
    if not held or held[0].awaits is not Awaits.ANSWER:
        message = f"job {job} is a {found.state} {found.kind}; only a held question can be put to a person"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    return question_in(found.params)


def is_engines(engine: Engine, job: int) -> bool:
    """True for a question of the engine itself: for more at a limit, or about checks that a mission does not pass."""
    mission = engine.job(job).mission_id
    return any(engine.events(mission, job_id=job, event=event, limit=1) for event in _OWN_QUESTIONS)


def filled_in(question: Question, values: dict[str, JsonValue]) -> Given:
    """The answer that a person's values are, of the form that `asked` made."""
    if question.fields:
        return Given("", values)
    return Given(str(values.get("option") or values.get("words") or ""), None)


def _form(question: Question) -> type[AnswerForm]:
    """Make the form. Names of fields may be anything, so that they are aliases."""
    stated: dict[str, object]
    if question.fields:
        stated = {f"field_{at}": _entry(one) for at, one in enumerate(question.fields)}
    elif question.options:
        options: JsonDict = {"enum": [*question.options]}
        stated = {
            "option": (Annotated[str | None, Field(json_schema_extra=options)], None),
            "words": (Annotated[str | None, Field(description="An answer in your own words.")], None),
        }
    else:
        stated = {"words": (Annotated[str, Field(description="Your answer.", min_length=1)], ...)}
    form: type[AnswerForm] = create_model("Answer", __base__=AnswerForm, **stated)  # type: ignore[call-overload]  # fields found at run time
    form.question = question
    return form


_KINDS: Mapping[str, tuple[object, object]] = {
    "number": (float, float | None),
    "checkbox": (bool, bool | None),
    "multi_select": (list[str], list[str] | None),
}
"""The types, required and not, of fields that are no text; clients can ask for few."""


def _entry(asked_for: FormField) -> object:
    required, optional = _KINDS.get(asked_for.type, (str, str | None))
    values = [option.value for option in asked_for.options or ()]
    more: JsonDict = {"enum": [*values]} if values else {}
    if asked_for.type == "multi_select":
        more = {"items": {"type": "string", **more}}
    words = untrusted(
        ". ".join(filter(None, (asked_for.label, asked_for.help, asked_for.expectation)))
    ).untrusted
    default = ... if asked_for.required else None
    described = Field(default, alias=asked_for.id, description=words, json_schema_extra=more)
    return (required if asked_for.required else optional, described)
