"""Show everything that waits for a person, and take decisions on several at once."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.errors import LcpError
from lcp_engine.jobs import State
from lcp_engine.store import paging
from lcp_engine.web.desk import Desk, desk_of
from lcp_engine.web.forms import NO_REASON, Form
from lcp_engine.web.jobs import read_filter
from lcp_engine.web.missions import cursor

JOBS = 50


def inbox(request: Request) -> Response:
    """The held jobs, the oldest first."""
    return _show(desk_of(request), request)


def decide(desk: Desk, request: Request, form: Form) -> Response:
    """Approve or reject what is ticked. One that cannot be decided does not keep the others from it."""
    ids, decision, reason = form.ids("job"), form.text("decision"), form.text("reason")
    if decision not in ("approve", "reject"):
        return _show(desk, request, 422, ["a decision is to approve or to reject; nothing was decided"], ids)
    if not ids:
        return _show(desk, request, 422, ["no job is ticked; nothing was decided"])
    if decision == "reject" and not reason:
        return _show(desk, request, 422, [NO_REASON], ids)
    refused = _decide_each(desk, ids, None if decision == "approve" else reason)
    if refused:
        done = f"{len(ids) - len(refused)} of {len(ids)} jobs were decided; these were not:"
        return _show(desk, request, 409, [done, *refused])
    # What was looked at stays in sight; what was decided is gone from it.
    kept = {
        name: value for name, value in request.query_params.items() if name in ("mission", "kind", "text")
    }
    note = "approved" if decision == "approve" else "rejected"
    return RedirectResponse(f"/inbox?{urlencode({**kept, 'note': note})}", 303)


def _decide_each(desk: Desk, ids: Sequence[int], reason: str | None) -> list[str]:
    """Reject for the reason, or approve where there is none; what was in the way of any."""
    refused = []
    for job_id in ids:
        try:
            if reason is None:
                desk.engine.approve(job_id)
            else:
                desk.engine.reject(job_id, reason)
        except LcpError as error:
            refused.append(str(error))
    return refused


def _show(
    desk: Desk, request: Request, status: int = 200, problems: Sequence[str] = (), ticked: Sequence[int] = ()
) -> Response:
    wanted = read_filter(request, [State.HELD])
    after = cursor(request, "after")
    page = desk.read(lambda tx: paging.page_jobs(tx, wanted, behind=after, limit=JOBS))
    return desk.page(
        "inbox.html",
        status=status,
        page=page,
        wanted=wanted,
        after=after,
        problems=problems,
        ticked=set(ticked),
        note=request.query_params.get("note"),
        kinds=desk.engine.workers,
    )
