"""Take a person's decisions: approve, reject, retry, cancel, resume."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.desk import Desk
from lcp_engine.web.forms import NO_REASON, Form, number, read_object
from lcp_engine.web.jobs import show_job
from lcp_engine.web.missions import show_mission
from lcp_engine.web.refusals import status_of

LIMITS = ("max_turns", "max_jobs", "max_seconds", "max_tokens", "max_bytes_written")
"""What a person may raise when a mission goes on."""


def approve(desk: Desk, request: Request, form: Form) -> Response:
    """Let a held job run, with the params of the form if they are not what they were."""
    job_id = number(request.path_params["job"])
    typed = form.text("params")
    try:
        revised = read_object(typed) if typed else None
        if revised == desk.engine.job(job_id).params:
            revised = None
        decided = desk.engine.approve(job_id, params=revised)
    except LcpError as refused:
        return show_job(desk, request, status=status_of(refused), problem=str(refused), params=typed)
    return _to_job(job_id, "approved" if decided else "approved_before")


def reject(desk: Desk, request: Request, form: Form) -> Response:
    """Refuse a held job for a reason, which the planner reads."""
    job_id = number(request.path_params["job"])
    reason = form.text("reason")
    if not reason:
        return show_job(desk, request, status=422, problem=NO_REASON)
    try:
        decided = desk.engine.reject(job_id, reason)
    except LcpError as refused:
        return show_job(desk, request, status=status_of(refused), problem=str(refused), reason=reason)
    return _to_job(job_id, "rejected" if decided else "rejected_before")


def retry(desk: Desk, request: Request, form: Form) -> Response:
    """Queue a job again that failed, was skipped or was cancelled."""
    job_id = number(request.path_params["job"])
    try:
        job = desk.engine.retry(job_id)
    except LcpError as refused:
        return show_job(desk, request, status=status_of(refused), problem=str(refused))
    return _to_job(job_id, "retried_held" if job.state == "held" else "retried")


def cancel(desk: Desk, request: Request, form: Form) -> Response:
    """Stop a mission."""
    mission_id = number(request.path_params["mission"])
    try:
        decided = desk.engine.cancel(mission_id)
    except LcpError as refused:
        return show_mission(desk, request, status=status_of(refused), problem=str(refused))
    return _to_mission(mission_id, "cancelled" if decided else "cancelled_before")


def resume(desk: Desk, request: Request, form: Form) -> Response:
    """Go on with a mission that has ended, with the limits of the form where they are not what they were."""
    mission_id = number(request.path_params["mission"])
    entered: dict[str, JsonValue] = {name: form.text(name) for name in LIMITS if name in form.fields}
    try:
        limits = _changed(entered, desk.engine.mission(mission_id).json["limits"])
        desk.engine.resume(mission_id, limits=limits)
    except LcpError as refused:
        return show_mission(desk, request, status=status_of(refused), problem=str(refused), entered=entered)
    return _to_mission(mission_id, "resumed")


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


def _to_job(job_id: int, note: str) -> Response:
    return RedirectResponse(f"/jobs/{job_id}?note={note}", 303)


def _to_mission(mission_id: int, note: str) -> Response:
    return RedirectResponse(f"/missions/{mission_id}?note={note}", 303)
