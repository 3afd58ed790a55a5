"""The page of a signed link: it shows one job, and decides it by POST alone, without access to any other page.

Programs that read mail open every link in it, so opening one decides nothing and uses nothing up.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from lcp_engine.api.bulk import missing_approvals
from lcp_engine.core.json_values import object_in
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.approvers.link import PATH
from lcp_engine.features.approvers.link_decisions import LINK_REFUSED
from lcp_engine.web.context import LONGEST, PageContext, context_of
from lcp_engine.web.diff_view import is_shown, whole
from lcp_engine.web.forms import FLASH_MESSAGES, NO_REASON, Form, read_form, read_shown, shown_value
from lcp_engine.web.pages.ask_again import asked_about

_GONE = ("used", "expired")


def link(request: Request) -> Response:
    """What the link decides, with the forms that decide it."""
    return _show(context_of(request), request.path_params["token"])


async def decide(request: Request) -> Response:
    """Approve or reject the job as the page of the link has shown it."""
    try:
        form = await read_form(request)
    except ClientDisconnect as gone:
        raise HTTPException(400, "the request ended before its form did") from gone
    return await run_in_threadpool(_decide, context_of(request), request.path_params["token"], form)


def _decide(context: PageContext, token: str, form: Form) -> Response:
    links, reason, key = context.engine.links, form.text("reason"), form.text("key")
    try:
        match form.text("decision"):
            case "approve":
                shown = read_shown(form)
                if not {"take", "hunk", "edit_path"}.isdisjoint(form.fields):
                    message = "a link decides all that its page shows, no part of it; nothing was decided"
                    raise LcpError(
                        ErrorCode.INVALID_ARGUMENT, message, advice="Reject it with words instead."
                    )
                if shown is None:
                    message = "the form does not say what its page showed; nothing was decided"
                    raise LcpError(ErrorCode.NOT_SHOWN, message)
                if not form.is_measured:
                    return _ask_again(context, token, form)
                job_id = links.approve(token, shown=shown, approver_token=key)
                waiting, awaited = missing_approvals(context.engine, [job_id])
                said = f"Approved. It waits for {awaited}." if waiting else FLASH_MESSAGES["approved"]
            case "reject" if not reason:
                return _show(context, token, status=422, problem=NO_REASON)
            case "reject":
                job_id = links.reject(token, reason, approver_token=key)
                said = FLASH_MESSAGES["rejected"]
            case _:
                raise HTTPException(422, "a decision is approve or reject")
    except LcpError as error:
        if reason:
            return _show(context, token, status=error.status, problem=str(error), reason=reason)
        return _refuse(context, error)
    return _page(context, 200, title=f"Job {job_id}", said=said)


def _show(
    context: PageContext, token: str, *, status: int = 200, problem: str = "", reason: str = ""
) -> Response:
    try:
        linked = context.engine.links.open(token)
        mission = context.engine.mission(linked.job.mission_id)
    except LcpError as error:
        return _refuse(context, error)
    job, look = linked.job, linked.look
    parts = [] if look.diff is None else [whole(look.diff)]
    turn = None if job.parent_id is None else context.engine.job(job.parent_id)
    return _page(
        context,
        status,
        title=f"{job.kind} · job {job.id}",
        linked=linked,
        job=job.json,
        mission=mission.json,
        words=object_in(turn.result).get("commentary") if turn is not None else None,
        about=context.engine.subject(job),
        diffs=parts,
        approvals=context.engine.approvals([job]).get(job.id),
        caveat=look.caveat,
        shown=shown_value(look.sight) if is_shown(look, parts, job.params, longest=LONGEST) else "",
        problem=problem,
        reason=reason,
    )


def _ask_again(context: PageContext, token: str, form: Form) -> Response:
    """State what the link would approve, and ask once more; a token of an approver is entered again."""
    linked = context.engine.links.open(token)
    asked = asked_about(context, form, {linked.job.id: linked.look})
    return _page(context, 200, title=asked.title, asked=asked, linked=linked)


def _refuse(context: PageContext, error: LcpError) -> Response:
    is_gone = error.code is LINK_REFUSED and error.failed.details.get("why") in _GONE
    status = HTTPStatus.GONE if is_gone else HTTPStatus(error.status)
    return _page(
        context, status, title="Nothing was decided", problem=str(error), advice=error.failed.recommendation
    )


def _page(context: PageContext, status: int, **values: object) -> Response:
    """A page that names nothing but the job of the link."""
    empty = {
        "linked": None,
        "said": "",
        "problem": "",
        "advice": "",
        "reason": "",
        "longest": LONGEST,
        "asked": None,
    }
    template = context.templates.get_template("link.html")
    return HTMLResponse(template.render({**empty, **values}), status)


ROUTES = (Route(f"{PATH}{{token}}", link), Route(f"{PATH}{{token}}", decide, methods=["POST"]))
"""What a signed link opens, without access to the rest."""
