"""Take what a person says: the answer to a question, the reply of a planner, words to a planner (R13, R14)."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.context import Desk
from lcp_engine.web.error_pages import status_of
from lcp_engine.web.form_post import Form, number
from lcp_engine.web.held_kind import options_of
from lcp_engine.web.jobs import show_job
from lcp_engine.web.missions import show_mission
from lcp_engine.web.redirects import to_job, to_mission


def answer(desk: Desk, request: Request, form: Form) -> Response:
    """Answer a question, or bring the reply to a turn; words of one's own count before an option."""
    job_id = number(request.path_params["job"])
    said = form.text("answer")
    try:
        decided = desk.engine.answer(job_id, said or _option(desk, job_id, form.text("option")))
    except LcpError as refused:
        return show_job(
            desk, request, status=status_of(refused), problem=str(refused), entered={"answer": said}
        )
    return to_job(job_id, "answered" if decided else "answered_before", form)


def say_of_job(desk: Desk, request: Request, form: Form) -> Response:
    """Tell the planner something about a job, which stays as it is."""
    job_id = number(request.path_params["job"])
    words = form.text("words")
    try:
        desk.engine.say(desk.engine.job(job_id).mission_id, words, job_id=job_id)
    except LcpError as refused:
        return show_job(
            desk, request, status=status_of(refused), problem=str(refused), entered={"words": words}
        )
    return to_job(job_id, "said", form)


def say(desk: Desk, request: Request, form: Form) -> Response:
    """Tell a mission's planner something."""
    mission_id = number(request.path_params["mission"])
    words = form.text("words")
    try:
        desk.engine.say(mission_id, words)
    except LcpError as refused:
        return show_mission(
            desk, request, status=status_of(refused), problem=str(refused), entered={"words": words}
        )
    return to_mission(mission_id, "said")


def _option(desk: Desk, job_id: int, chosen: str) -> str:
    """The text of the option that was chosen by its number; empty where none was."""
    if not chosen:
        return ""
    options = options_of(desk.engine.job(job_id).params)
    if not 1 <= number(chosen) <= len(options):
        message = f"job {job_id} has the options 1 to {len(options)}; {chosen} is none of them"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return options[number(chosen) - 1]
