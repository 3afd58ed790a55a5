"""Edit the params of a held job in a form, and see the diff before the decision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel, JsonValue, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine import Job
from lcp_engine.core.inbox import Act, why_not
from lcp_engine.core.job_states import State
from lcp_engine.core.kinds import MERGE
from lcp_engine.core.protocol.schema_model import SchemaModel
from lcp_engine.core.protocol.strict_json import Broken, StrictDecoder
from lcp_engine.core.refused_values import explain
from lcp_engine.core.safe_text import hides_nothing, json_block
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.stages.merge_form import edit_merge
from lcp_engine.inbox import Look, Sight
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import whole
from lcp_engine.web.error_pages import refusal_text
from lcp_engine.web.forms import SHOWN, Form, number, read_shown, shown_value, to_job
from lcp_engine.web.pages.ask_again import ask_again
from lcp_engine.web.pages.jobs import is_editable

PREVIEWED = "previewed"
"""The field with what the form's page showed of the edited params."""
UNSEEN = "nothing was decided: what it does with these params had not been shown; now it is shown below"
INVALID = "the params are not valid; nothing was decided"
_WIDTH = 120


def edit_form(request: Request) -> Response:
    """The form with the current params."""
    context = context_of(request)
    job = _job(context, request)
    if job.kind == MERGE:
        return edit_merge(context, request, job, Form({}))
    return _show(context, job, _fields(context, job))


def edit(context: PageContext, request: Request, form: Form) -> Response:
    """Show what the edited params would change, or approve the job with them. Invalid input stays in the form."""
    job = _job(context, request)
    if job.kind == MERGE:
        return edit_merge(context, request, job, form)
    typed = [
        replace(field, text=form.verbatim(f"param.{index}"))
        for index, field in enumerate(_fields(context, job))
    ]
    params, fields, is_valid = read_fields(context.engine.workers[job.kind].params, typed)
    opened = form.text(SHOWN)
    if not is_valid:
        return _show(context, job, fields, status=422, problem=INVALID, shown=opened)
    if form.text("decision") != "approve":
        return _show(context, job, fields, edited=params, shown=opened)
    look = context.engine.look(job.id, params=params)
    shown = _shown_for(form, look)
    is_other_file = look.sight.path and look.sight.found is not None
    if shown is None or (is_other_file and shown.path != look.sight.path):
        return _show(context, job, fields, status=409, problem=UNSEEN, edited=params, shown=opened)
    if not form.is_measured:
        return ask_again(context, request, form, {job.id: look}, params)
    try:
        context.engine.approve(job.id, params=params, shown=shown)
    except LcpError as refused:
        return _show(
            context, job, fields, status=refused.status, problem=refusal_text(refused), edited=params
        )
    return to_job(job.id, "approved", form)


def _shown_for(form: Form, look: Look) -> Sight | None:
    """The sight of these very params on the form's page, else of the job when the form was opened."""
    previewed = read_shown(form, PREVIEWED)
    is_of_these = previewed is not None and previewed.fingerprint == look.sight.fingerprint
    return previewed if is_of_these else read_shown(form)


@dataclass(frozen=True)
class Field:
    """A param in the form: text if it is `raw`, else JSON. An empty field that was not `given` is left out."""

    name: str
    text: str
    raw: bool
    given: bool
    description: str = ""
    error: str = ""

    @property
    def rows(self) -> int:
        """The height of its text area; 0 for an input of one line."""
        lines = self.text.count("\n") + len(self.text) // _WIDTH
        return min(24, lines + 2) if lines or not self.raw or "content" in self.name else 0


def fields_of(model: type[BaseModel], params: Mapping[str, JsonValue]) -> list[Field]:
    """The params that are given, then the others that the kind knows."""
    names = model.names if issubclass(model, SchemaModel) else model.model_fields
    descriptions = {name: str(_part(model, name).get("description", "")) for name in names}
    given = {name: value for name, value in params.items() if value is not None}
    return [
        *(_given(name, value, descriptions.get(name, "")) for name, value in given.items()),
        *(_absent(model, name, descriptions[name]) for name in descriptions if name not in given),
    ]


def read_fields(
    model: type[BaseModel], fields: Sequence[Field]
) -> tuple[dict[str, JsonValue], list[Field], bool]:
    """The params that were typed, the fields with their errors, and whether there are none."""
    params: dict[str, JsonValue] = {}
    errors: dict[str, str] = {}
    for field in fields:
        if not field.text and not (field.given and field.raw):
            continue
        try:
            params[field.name] = field.text if field.raw else read_value(field.text)
        except LcpError as refused:
            errors[field.name] = str(refused)
    errors = errors or _errors(model, params)
    names = {field.name for field in fields}
    # An error that concerns no field, or several, is shown at the first.
    rest = "; ".join(text for name, text in errors.items() if name not in names)
    marked = [replace(field, error=errors.get(field.name, "")) for field in fields]
    if rest and marked:
        marked[0] = replace(marked[0], error="; ".join(filter(None, [marked[0].error, rest])))
    return params, marked, not errors


def read_value(text: str) -> JsonValue:
    """The one JSON value in `text`. Raises `INVALID_PARAMS`."""
    stripped = text.strip()
    found = StrictDecoder(stripped).decode(0)
    if isinstance(found, Broken):
        raise LcpError(ErrorCode.INVALID_PARAMS, f"not valid JSON: {found.message}")
    if found.end != len(stripped):
        raise LcpError(
            ErrorCode.INVALID_PARAMS, "one JSON value is expected; there is more after it", advice=GENERAL
        )
    return found.value


def _given(name: str, value: JsonValue, description: str) -> Field:
    # Browsers change line ends, and invisible characters cannot be seen or typed: such a text is edited as JSON.
    if isinstance(value, str) and "\r" not in value and hides_nothing(value):
        return Field(name, value, raw=True, given=True, description=description)
    return Field(name, json_block(value), raw=False, given=True, description=description)


def _absent(model: type[BaseModel], name: str, description: str) -> Field:
    return Field(name, "", raw=_is_text(model, name), given=False, description=description)


def _part(model: type[BaseModel], name: str) -> Mapping[str, JsonValue]:
    """The part of the params' schema that is about one of them, if a schema can describe them."""
    try:
        part = model.model_json_schema().get("properties", {}).get(name, {})
    except PydanticInvalidForJsonSchema:
        return {}
    return part if isinstance(part, dict) else {}


def _is_text(model: type[BaseModel], name: str) -> bool:
    """True if a param is typed as text rather than as JSON."""
    schema = _part(model, name)
    branches = schema.get("anyOf")
    kinds = (schema, *(branches if isinstance(branches, list) else ()))
    return any(isinstance(kind, Mapping) and kind.get("type") == "string" for kind in kinds)


def _errors(model: type[BaseModel], params: Mapping[str, JsonValue]) -> dict[str, str]:
    try:
        model.model_validate(params)
    except ValidationError as refused:
        errors: dict[str, str] = {}
        for error in refused.errors(include_url=False):
            name = str(error["loc"][0]) if error["loc"] else ""
            errors[name] = "; ".join(filter(None, [errors.get(name), explain(error, model)]))
        return errors
    return {}


def _job(context: PageContext, request: Request) -> Job:
    """The job of the address. Raises `WRONG_STATE` unless it is held for an approval, `TOO_LARGE`."""
    job = context.engine.job(number(request.path_params["job"]))
    if job.state != State.HELD:
        raise LcpError(
            ErrorCode.WRONG_STATE,
            f"job {job.id} is {job.state}; only held jobs can be edited",
            advice=GENERAL,
        )
    (held,) = context.engine.inbox.of([job.json])
    if not held.acts & {Act.EDIT, Act.TAKE}:
        reason = why_not(Act.EDIT, held.awaits, job.id, job.mission_id, has_ended=held.has_ended)
        message = f"{reason}, and cannot be edited"
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)
    if Act.EDIT in held.acts and not is_editable(job):
        message = f"the params of job {job.id} are too large for a form; use `lcp approve {job.id} --edit`"
        raise LcpError(ErrorCode.TOO_LARGE, message, advice="Edit them with that command.")
    return job


def _fields(context: PageContext, job: Job) -> list[Field]:
    return fields_of(context.engine.workers[job.kind].params, job.params)


def _show(
    context: PageContext, job: Job, fields: Sequence[Field], *, status: int = 200, problem: str = "",
    edited: dict[str, JsonValue] | None = None, shown: str = "",
) -> Response:  # fmt: skip
    """The form. A decision binds to the file as it was when the form was opened, or shown again after a refusal."""
    look = None if edited is None else context.engine.look(job.id, params=edited)
    return context.render(
        "edit.html",
        status=status,
        job=job.json,
        mission=context.engine.mission(job.mission_id).json,
        fields=fields,
        problem=problem,
        diff=None if look is None or look.diff is None else whole(look.diff),
        previewed="" if look is None or not look.is_whole else shown_value(look.sight),
        shown=shown or shown_value(context.engine.look(job.id).sight),
    )
