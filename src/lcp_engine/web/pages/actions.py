"""Decisions of a person on one job or mission: approve, reject, retry, answer, say, cancel, resume."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.bulk import last_decision, missing_approvals
from lcp_engine.api.inbox import question_in
from lcp_engine.api.user import user_name
from lcp_engine.core.inbox import Awaits
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import object_in
from lcp_engine.core.policy import Rule
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.question_form import Unfilled, fill_in
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.rules.calls import add_rule_with_approval
from lcp_engine.features.stages.merge_form import choice_in
from lcp_engine.inbox import Sight
from lcp_engine.web.context import PageContext
from lcp_engine.web.error_pages import refusal_text
from lcp_engine.web.forms import NO_REASON, SHOWN, Form, number, read_shown, shown_name, to_job, to_mission
from lcp_engine.web.pages.ask_again import ask_again
from lcp_engine.web.pages.jobs import entered_in, show_job
from lcp_engine.web.pages.missions import show_mission
from lcp_engine.web.pages.review import words_in

MOST_FAULTS = 10
NO_WORDS = "say what is to become of the rest, in words or comments; nothing was decided"
NOTHING_SHOWN = Sight("", None, None, 0)
"""Of whatever is held by the time of its approval, this is not what was shown."""
SCOPES = ("mission", "user")
"""Where a rule holds that a form adds."""
LIMITS = ("max_turns", "max_jobs", "max_seconds", "max_tokens", "max_cost", "max_bytes_written")
"""The limits that can be changed when a mission is resumed."""


def approve(context: PageContext, request: Request, form: Form) -> Response:
    """Approve a held job as the form's page showed it; if it has changed since, show it again and do nothing."""
    job_id = number(request.path_params["job"])
    try:
        params = None
        if "offered" in form.fields:
            params = choice_in(form, context.engine.job(job_id), context.engine.look(job_id))
        # In the inbox one form has the marks of all jobs.
        name = SHOWN if SHOWN in form.fields else shown_name(job_id)
        shown, words = read_shown(form, name), words_in(form) if form.text("rest") else None
        if words == "":
            raise LcpError(ErrorCode.INVALID_ARGUMENT, NO_WORDS)
        if may_ask(context, job_id, form, shown):
            return ask_again(
                context, request, form, {job_id: context.engine.look(job_id, params=params)}, params
            )
        decided = approve_shown(context, job_id, shown, params=params, words=words)
    except LcpError as refused:
        entered: dict[str, JsonValue] = {"back_words": form.text("back_words")} if form.text("rest") else {}
        problem = refusal_text(refused)
        return show_job(context, request, status=refused.status, problem=problem, entered=entered)
    if missing_approvals(context.engine, [job_id])[0]:
        return to_job(job_id, "consented", form)
    return to_job(
        job_id, _said(context, job_id, "approved" if words is None else "sent_back", decided=decided), form
    )


def _said(context: PageContext, job_id: int, word: str, *, decided: bool) -> str:
    """The message for a decision; one that this person had made before is theirs, sent twice on a slow connection."""
    is_own = decided or last_decision(context.engine, job_id).get("by") == user_name()
    return word if is_own else "approved_before" if word == "sent_back" else f"{word}_before"


def approve_always(context: PageContext, request: Request, form: Form) -> Response:
    """Approve a held job as the form's page showed it, and add the rule that the form shows."""
    job_id = number(request.path_params["job"])
    try:
        rule, scope = _rule_in(context, job_id, form), form.text("scope")
        if scope not in SCOPES:
            message = f"scope: {scope[:40]!r} is neither {' nor '.join(SCOPES)}; nothing was decided"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        shown = read_shown(form) or NOTHING_SHOWN
        if may_ask(context, job_id, form, shown):
            return ask_again(context, request, form, {job_id: context.engine.look(job_id)})
        add_rule_with_approval(context.engine, job_id, rule, scope, shown=shown)
    except LcpError as refused:
        entered: dict[str, JsonValue] = {"paths": form.verbatim("paths"), "scope": form.text("scope")}
        problem = refusal_text(refused)
        return show_job(context, request, status=refused.status, problem=problem, entered=entered)
    return to_job(job_id, "always", form)


def _rule_in(context: PageContext, job_id: int, form: Form) -> Rule:
    """The narrowest rule for the job, about the paths that were typed. Raises for a rule that no job can have."""
    rules = context.engine.rules_for(job_id)
    if not rules:
        message = f"no rule can let jobs like job {job_id} run: a person decides each of them"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=GENERAL)
    if rules[0].paths is None:
        return rules[0]
    paths = tuple(line for line in form.verbatim("paths").split("\n") if line.strip())
    if not paths:
        message = "paths: enter the paths that such jobs may have; nothing was decided"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return rules[0].model_copy(update={"paths": paths})


def remove_rule(context: PageContext, request: Request, form: Form) -> Response:
    """Take a rule of a mission back, if it is still the one that the page showed."""
    mission_id, place = number(request.path_params["mission"]), number(request.path_params["number"])
    try:
        rules = context.engine.rules(mission_id)
        if form.text("rule") not in [json_line(rule.as_json()) for rule in rules[place - 1 : place]]:
            message = f"rule {place} of mission {mission_id} is another one by now; nothing was removed"
            raise LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)
        context.engine.remove_rule(mission_id, place)
    except LcpError as refused:
        return show_mission(context, request, status=refused.status, problem=refusal_text(refused))
    return to_mission(mission_id, "rule_removed")


def approve_shown(
    context: PageContext, job_id: int, shown: Sight | None, *, params: dict[str, JsonValue] | None = None,
    words: str | None = None,
) -> bool:  # fmt: skip
    """Approve what a form's page showed in full. Raises `NOT_SHOWN` if it did not, and like `Engine.approve`."""
    engine = context.engine
    if shown is None:
        job = engine.job(job_id)
        awaited = engine.inbox.awaited([(job.id, job.kind)])[job.id]
        if job.state == State.HELD and awaited is Awaits.APPROVAL:
            message = f"job {job_id} was not shown in full where it was approved: open it and decide there"
            raise LcpError(ErrorCode.NOT_SHOWN, message)
    return engine.approve(job_id, params=params, shown=shown or NOTHING_SHOWN, words=words)


def may_ask(context: PageContext, job_id: int, form: Form, shown: Sight | None) -> bool:
    """True if a person is asked again before a held job is approved: no script has measured what they saw of it."""
    return not form.is_measured and shown is not None and context.engine.job(job_id).state == State.HELD


def reject(context: PageContext, request: Request, form: Form) -> Response:
    """Reject a held job with a reason for the planner."""
    job_id = number(request.path_params["job"])
    reason = form.text("reason") or words_in(form)
    if not reason:
        return show_job(context, request, status=422, problem=NO_REASON)
    try:
        decided = context.engine.reject(job_id, reason)
    except LcpError as refused:
        return show_job(
            context, request, status=refused.status, problem=str(refused), entered={"reason": reason}
        )
    has_ended = context.engine.mission(context.engine.job(job_id).mission_id).ended_at is not None
    note = _said(context, job_id, "rejected", decided=decided)
    return to_job(job_id, "rejected_unread" if has_ended and note == "rejected" else note, form)


def retry(context: PageContext, request: Request, form: Form) -> Response:
    """Queue a failed, skipped or cancelled job again."""
    job_id = number(request.path_params["job"])
    try:
        job = context.engine.retry(job_id)
    except LcpError as refused:
        return show_job(context, request, status=refused.status, problem=str(refused))
    return to_job(job_id, "retried_held" if job.state == "held" else "retried", form)


def answer(context: PageContext, request: Request, form: Form) -> Response:
    """Answer a question, or give the reply of a turn (R13); free text takes precedence over an option (R14)."""
    job_id = number(request.path_params["job"])
    text, typed = form.text("answer"), _typed(context, job_id, form)
    if typed and form.text("way") == "form":
        return _fill_in(context, request, form, job_id)
    if text and not form.text("anyway") and (problem := _fault_of(context, job_id, text)):
        entered: dict[str, JsonValue] = {"answer": text, "invalid": "yes"}
        return show_job(context, request, status=422, problem=problem, entered=entered)
    try:
        said = text or _option(context, job_id, form.text("option"))
        shown = form.text("question") or None
        # An option is sent as its whole text.
        decided = context.engine.answer(job_id, said, words=True, shown=shown)
    except LcpError as refused:
        entered = {"answer": text, **typed}
        return show_job(context, request, status=refused.status, problem=str(refused), entered=entered)
    return to_job(job_id, _said(context, job_id, "answered", decided=decided), form)


def _typed(context: PageContext, job_id: int, form: Form) -> dict[str, JsonValue]:
    """The values that were entered in the form of a question, as `form`; nothing if it has none."""
    fields = question_in(context.engine.job(job_id).params).fields
    return {"form": {field.id: entered_in(form, field) for field in fields}} if fields else {}


def _fill_in(context: PageContext, request: Request, form: Form, job_id: int) -> Response:
    """Answer a question with its form; what does not fit is shown beside its field, and all that was typed stays."""
    text, typed = form.text("answer"), _typed(context, job_id, form)
    entered: dict[str, JsonValue] = {"answer": text, **typed}
    read = fill_in(question_in(context.engine.job(job_id).params).fields, object_in(typed["form"]))
    if isinstance(read, Unfilled):
        entered["faults"] = {problem.path: problem.message for problem in read.problems}
        count = len(read.problems)
        problem = (
            f"{count} field{'' if count == 1 else 's'} of the form cannot be read; nothing was submitted"
        )
        return show_job(context, request, status=422, problem=problem, entered=entered)
    try:
        shown = form.text("question") or None
        decided = context.engine.answer(job_id, text, words=True, form=read.values, shown=shown)
    except LcpError as refused:
        return show_job(context, request, status=refused.status, problem=str(refused), entered=entered)
    return to_job(job_id, _said(context, job_id, "answered", decided=decided), form)


def _fault_of(context: PageContext, job_id: int, text: str) -> str:
    """Faults of a text as the reply of a planner that is a person; empty if it is valid, or the job is a question."""
    if job_id not in context.engine.awaited_replies():
        return ""
    read = context.engine.read_reply(context.engine.job(job_id).mission_id, text)
    if not isinstance(read, Malformed):
        return ""
    faults = "; ".join(f"{fault.path or 'reply'}: {fault.message}" for fault in read.errors[:MOST_FAULTS])
    return f"the reply is not valid, and nothing was submitted: {faults}"


def say_about_job(context: PageContext, request: Request, form: Form) -> Response:
    """Send the planner a message about a job, which stays as it is."""
    job_id = number(request.path_params["job"])
    words = form.text("words") or words_in(form)
    try:
        context.engine.say(context.engine.job(job_id).mission_id, words, job_id=job_id)
    except LcpError as refused:
        return show_job(
            context, request, status=refused.status, problem=str(refused), entered={"words": words}
        )
    return to_job(job_id, "said", form)


def say(context: PageContext, request: Request, form: Form) -> Response:
    """Send a mission's planner a message."""
    mission_id = number(request.path_params["mission"])
    words = form.text("words")
    try:
        context.engine.say(mission_id, words)
    except LcpError as refused:
        return show_mission(
            context, request, status=refused.status, problem=str(refused), entered={"words": words}
        )
    return to_mission(mission_id, "said")


def cancel(context: PageContext, request: Request, form: Form) -> Response:
    """Cancel a mission."""
    mission_id = number(request.path_params["mission"])
    try:
        decided = context.engine.cancel(mission_id)
    except LcpError as refused:
        return show_mission(context, request, status=refused.status, problem=str(refused))
    return to_mission(mission_id, "cancelled" if decided else "cancelled_before")


def resume(context: PageContext, request: Request, form: Form) -> Response:
    """Resume a mission that has ended, with the limits that were changed in the form."""
    mission_id = number(request.path_params["mission"])
    entered: dict[str, JsonValue] = {name: form.text(name) for name in LIMITS if name in form.fields}
    try:
        limits = _changed(entered, context.engine.mission(mission_id).limits)
        context.engine.resume(mission_id, limits=limits)
    except LcpError as refused:
        return show_mission(context, request, status=refused.status, problem=str(refused), entered=entered)
    return to_mission(mission_id, "resumed")


def _option(context: PageContext, job_id: int, chosen: str) -> str:
    """The text of the option with the number `chosen`; empty if none was chosen."""
    if not chosen:
        return ""
    options = question_in(context.engine.job(job_id).params).options
    if not 1 <= number(chosen) <= len(options):
        message = f"job {job_id} has no option {chosen}; its options are 1 to {len(options)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return options[number(chosen) - 1]


def _changed(entered: Mapping[str, JsonValue], before: JsonValue) -> dict[str, JsonValue]:
    old = before if isinstance(before, dict) else {}
    limits = {name: _limit(name, str(text)) for name, text in entered.items()}
    return {name: limit for name, limit in limits.items() if limit != old.get(name)}


def _limit(name: str, text: str) -> int | float | None:
    """A limit as it was typed; an empty field is not a limit. Raises `INVALID_MISSION`."""
    if not text:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError as refused:
        raise LcpError(
            ErrorCode.INVALID_MISSION, f"limits.{name}: {text[:40]!r} is not a number"
        ) from refused
