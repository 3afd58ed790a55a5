"""Show everything that waits for a person, and take decisions on several at once."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.bulk import each_outcome
from lcp_engine.changes.show import Look
from lcp_engine.core.job_states import State
from lcp_engine.errors import LcpError
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.queries import pages
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.diff_excerpt import drawn
from lcp_engine.web.error_pages import told
from lcp_engine.web.form_post import NO_REASON, Form
from lcp_engine.web.held_kind import options_of, wish_of
from lcp_engine.web.jobs import read_filter
from lcp_engine.web.missions import cursor
from lcp_engine.web.redirects import to_inbox
from lcp_engine.web.shown_token import mark_name, mark_of, read_mark

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
    refused = _decide_each(desk, ids, None if decision == "approve" else reason, form)
    if refused:
        done = f"{len(ids) - len(refused)} of {len(ids)} jobs were decided; these were not:"
        return _show(desk, request, 409, [done, *refused])
    # What was looked at stays in sight; what was decided is gone from it.
    return to_inbox(request.url.query, "approved" if decision == "approve" else "rejected")


def _decide_each(desk: Desk, ids: Sequence[int], reason: str | None, form: Form) -> list[str]:
    """Reject for the reason, or approve where there is none; what was in the way of any."""

    def decide(job_id: int) -> bool:
        if reason is None:
            return desk.engine.approve(job_id, shown=read_mark(form, mark_name(job_id)))
        return desk.engine.reject(job_id, reason)

    return [told(outcome) for _, outcome in each_outcome(ids, decide) if isinstance(outcome, LcpError)]


def _show(
    desk: Desk, request: Request, status: int = 200, problems: Sequence[str] = (), ticked: Sequence[int] = ()
) -> Response:
    wanted = read_filter(request, [State.HELD])
    after = cursor(request, "after")
    page = desk.read(lambda tx: pages.page_jobs(tx, wanted, behind=after, limit=JOBS))
    looks = desk.engine.look_over([job for job in page.rows if job["params"] is not None])
    workers = desk.engine.workers
    return desk.page(
        "inbox.html",
        status=status,
        page=page,
        wanted=wanted,
        after=after,
        problems=problems,
        ticked=set(ticked),
        note=request.query_params.get("note"),
        rows=[_row(job, looks.get(int(str(job["id"]))), wish_of(job, workers)) for job in page.rows],
        expiries=desk.engine.expiries(),
        asked=request.url.query,
    )


def _row(job: JsonObject, look: Look | None, wish: str) -> dict[str, object]:
    """A held job as the list shows it; the params and the diff of a large one are on its own page."""
    params = job["params"]
    return {
        "job": job,
        "wish": wish,
        "options": options_of(params) if isinstance(params, dict) else [],
        "diff": drawn(look.diff) if look and look.diff else None,
        "shown": mark_of(look.sight) if look else "",
        "mark_name": mark_name(int(str(job["id"]))),
    }
