"""Make a form of each thing that waits for a person (pure)."""

from __future__ import annotations

import json

from pydantic import JsonValue

from lcp_engine.core.safe_text import shortened
from lcp_engine.core.summaries import subject
from lcp_engine.engine.reports.markdown import explain_reason
from lcp_engine.engine.reports.structured_model import Form, FormField, Option
from lcp_engine.store.queries.mission_facts import Object

QUESTION = "ask_user"
MOST_SHOWN = 4000
"""Params with more characters are not put into a form."""
_NO_WORKER = "no_worker"


def form_of(job: Object, mission_id: int) -> Form:
    """The form of a held job: an answer to a question, a decision on anything else."""
    return _answer(job, mission_id) if job["kind"] == QUESTION else _decision(job, mission_id)


def commands_for(job: Object) -> list[str]:
    """The commands that decide a held job, the most likely first."""
    number = job["id"]
    if job["kind"] == QUESTION:
        return [f"lcp answer {number} TEXT"]
    refuse = f"lcp reject {number} --reason TEXT"
    return [refuse] if job["reason"] == _NO_WORKER else [f"lcp approve {number}", refuse]


def _answer(job: Object, mission_id: int) -> Form:
    params = _params(job)
    choices = _choices(params.get("options"))
    own = "Or in your own words" if choices else "Your answer"
    fields = [FormField(id="answer", type="textarea", label=own, help_text=f"lcp answer {job['id']} TEXT")]
    if choices:
        fields.insert(0, FormField(id="choice", type="radio", label="Your choice", options=choices))
    return Form(
        id=f"job_{job['id']}",
        title=f"Question {job['id']}",
        description=str(params.get("question") or job["name"] or ""),
        fields=[*fields, _words(mission_id)],
        submit_label="Answer",
    )


def _choices(stated: JsonValue) -> list[Option]:
    """The options of a question, each a text or an object with a value and perhaps a label."""
    found: list[Option] = []
    for option in stated if isinstance(stated, list) else []:
        value = option.get("value", option.get("label")) if isinstance(option, dict) else option
        label = option.get("label", value) if isinstance(option, dict) else option
        if value is not None:
            found.append(Option(value=_text(value), label=_text(label)))
    return found


def _decision(job: Object, mission_id: int) -> Form:
    number = job["id"]
    options = [
        Option(value="approve", label="Approve: let it run"),
        Option(value="reject", label="Reject: the planner reads the reason"),
        Option(value="edit", label="Edit: let it run with other params"),
        Option(value="later", label="Later: it stays held"),
    ]
    fields = [
        FormField(id="reason", type="text", label="Why not", help_text=f"lcp reject {number} --reason TEXT"),
        FormField(
            id="params", type="textarea", label="Params, to edit", placeholder=_shown(job),
            help_text=f"lcp approve {number} --params JSON",
        ),
    ]  # fmt: skip
    if job["reason"] == _NO_WORKER:
        options, fields = [option for option in options if option.value in ("reject", "later")], fields[:1]
    decision = FormField(id="decision", type="radio", label="What is to become of it?", options=options)
    return Form(
        id=f"job_{number}",
        title=f"{job['kind']} {subject(job)}".strip(),
        description=f"Job {number} waits: {explain_reason(str(job['reason'] or 'it needs a person'))}.",
        fields=[decision, *fields, _words(mission_id)],
        submit_label="Decide",
    )


def _words(mission_id: int) -> FormField:
    """Free text is always possible instead of a yes or no (R14)."""
    return FormField(
        id="words",
        type="textarea",
        label="Or say something to the planner; nothing is decided by that",
        help_text=f"lcp say {mission_id} TEXT",
    )


def _shown(job: Object) -> str | None:
    if job["cut"]:
        return None
    return shortened(json.dumps(_params(job), ensure_ascii=False, indent=2), MOST_SHOWN)


def _params(job: Object) -> dict[str, JsonValue]:
    params = job["params"]
    return params if isinstance(params, dict) else {}


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
