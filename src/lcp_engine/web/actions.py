"""Take a person's decisions: approve, reject, retry, cancel, resume."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.context import Desk
from lcp_engine.web.error_pages import status_of, told
from lcp_engine.web.form_post import NO_REASON, Form, number
from lcp_engine.web.jobs import show_job
from lcp_engine.web.missions import show_mission
from lcp_engine.web.redirects import to_job, to_mission
from lcp_engine.web.shown_token import read_mark

LIMITS = ("max_turns", "max_jobs", "max_seconds", "max_tokens", "max_bytes_written")
"""What a person may raise when a mission goes on."""


def approve(desk: Desk, request: Request, form: Form) -> Response:
    """Let a held job run as the form's page showed it; where it is another now, show it anew and do nothing."""
    job_id = number(request.path_params["job"])
    try:
        decided = desk.engine.approve(job_id, shown=read_mark(form))
    except LcpError as refused:
        return show_job(desk, request, status=status_of(refused), problem=told(refused))
    return to_job(job_id, "approved" if decided else "approved_before", form)


def reject(desk: Desk, request: Request, form: Form) -> Response:
    """Refuse a held job for a reason, which the planner reads."""
    job_id = number(request.path_params["job"])
    reason = form.text("reason")
    if not reason:
        return show_job(desk, request, status=422, problem=NO_REASON)
    try:
        decided = desk.engine.reject(job_id, reason)
    except LcpError as refused:
        return show_job(
            desk, request, status=status_of(refused), problem=str(refused), entered={"reason": reason}
        )
    return to_job(job_id, "rejected" if decided else "rejected_before", form)


def retry(desk: Desk, request: Request, form: Form) -> Response:
    """Queue a job again that failed, was skipped or was cancelled."""
    job_id = number(request.path_params["job"])
    try:
        job = desk.engine.retry(job_id)
    except LcpError as refused:
        return show_job(desk, request, status=status_of(refused), problem=str(refused))
    return to_job(job_id, "retried_held" if job.state == "held" else "retried", form)


def cancel(desk: Desk, request: Request, form: Form) -> Response:
    """Stop a mission."""
    mission_id = number(request.path_params["mission"])
    try:
        decided = desk.engine.cancel(mission_id)
    except LcpError as refused:
        return show_mission(desk, request, status=status_of(refused), problem=str(refused))
    return to_mission(mission_id, "cancelled" if decided else "cancelled_before")


def resume(desk: Desk, request: Request, form: Form) -> Response:
    """Go on with a mission that has ended, with the limits of the form where they are not what they were."""
    mission_id = number(request.path_params["mission"])
    entered: dict[str, JsonValue] = {name: form.text(name) for name in LIMITS if name in form.fields}
    try:
        limits = _changed(entered, desk.engine.mission(mission_id).json["limits"])
        desk.engine.resume(mission_id, limits=limits)
    except LcpError as refused:
        return show_mission(desk, request, status=status_of(refused), problem=str(refused), entered=entered)
    return to_mission(mission_id, "resumed")


def _changed(entered: Mapping[str, JsonValue], before: JsonValue) -> dict[str, JsonValue]:
    old = before if isinstance(before, dict) else {}
    limits = {name: _limit(name, str(text)) for name, text in entered.items()}
    return {name: limit for name, limit in limits.items() if limit != old.get(name)}


def _limit(name: str, text: str) -> int | float | None:
    """A limit as it is typed; nothing is none. Raises `INVALID_MISSION`."""
    if not text:
        return None
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError as refused:
        raise LcpError(
            ErrorCode.INVALID_MISSION, f"limits.{name}: should be a number, not {text[:40]!r}"
        ) from refused
