"""The inbox: all held jobs, and decisions on several at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.bulk import each_outcome
from lcp_engine.api.pages import HeldHead, JsonObject
from lcp_engine.changes.recovery import CONFLICT
from lcp_engine.changes.show import Look
from lcp_engine.core.job_states import State
from lcp_engine.engine.approvals import DRIFT
from lcp_engine.errors import LcpError
from lcp_engine.web.changes import excerpt
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.error_pages import refusal_text
from lcp_engine.web.forms import (
    NO_REASON,
    Form,
    cursor,
    number,
    read_shown,
    shown_name,
    shown_value,
    to_inbox,
)
from lcp_engine.web.jobs import Need, need_of, options_of, read_filter

JOBS = 50
MOST_DECIDED = 1000
"""Jobs that one form for all matching jobs decides; the next form has the next ones."""
NO_DECISION = "choose to approve or to reject; nothing was decided"


def inbox(request: Request) -> Response:
    """The held jobs, the oldest first."""
    return _show_inbox(context_of(request), request)


def decide_ticked(context: PageContext, request: Request, form: Form) -> Response:
    """Approve or reject the ticked jobs, each independently of the others."""
    ids, decision, reason = form.ids("job"), form.text("decision"), form.text("reason")
    if decision not in ("approve", "reject"):
        return _show_inbox(context, request, 422, [NO_DECISION], ids)
    if not ids:
        return _show_inbox(context, request, 422, ["no job is ticked; nothing was decided"])
    if decision == "reject" and not reason:
        return _show_inbox(context, request, 422, [NO_REASON], ids)

    def decide(job_id: int) -> bool:
        if decision == "approve":
            return context.engine.approve(job_id, shown=read_shown(form, shown_name(job_id)))
        return context.engine.reject(job_id, reason)

    refused = _refusals(ids, decide)
    if refused:
        done = f"{len(ids) - len(refused)} of {len(ids)} jobs were decided; these were not:"
        return _show_inbox(context, request, 409, [done, *refused])
    return to_inbox(request.url.query, "approved" if decision == "approve" else "rejected")


def decide_all_form(request: Request) -> Response:
    """What a decision on all matching jobs would cover."""
    return _show_decide_all(context_of(request), request)


def decide_all(context: PageContext, request: Request, form: Form) -> Response:
    """Approve or reject the jobs that the form's page listed, and none that was held since."""
    decision, reason = form.text("decision"), form.text("reason")
    if decision not in ("approve", "reject"):
        return _show_decide_all(context, request, 422, [NO_DECISION])
    if decision == "reject" and not reason:
        return _show_decide_all(context, request, 422, [NO_REASON])
    listed = {number(job_id) for job_id in form.text("jobs").split(",")}
    matching = _find_matching(context, request, among=listed)

    def reject(job_id: int) -> bool:
        return context.engine.reject(job_id, reason)

    if decision == "approve":
        refused = _refusals([job.id for job in matching.approvable], context.engine.approve)
    else:
        refused = _refusals([job.id for job in matching.rejectable], reject)
    if refused:
        which = "1 job was" if len(refused) == 1 else f"{len(refused)} jobs were"
        return _show_decide_all(context, request, 409, [f"{which} not decided, all others were:", *refused])
    return to_inbox(request.url.query, "approved" if decision == "approve" else "rejected")


def _refusals(ids: Sequence[int], decide: Callable[[int], bool]) -> list[str]:
    """Decide on each job; why any of the decisions was refused."""
    return [
        refusal_text(outcome) for _, outcome in each_outcome(ids, decide) if isinstance(outcome, LcpError)
    ]


def _show_inbox(
    context: PageContext,
    request: Request,
    status: int = 200,
    problems: Sequence[str] = (),
    ticked: Sequence[int] = (),
) -> Response:
    wanted = read_filter(request, [State.HELD])
    after = cursor(request, "after")
    page = context.queries.jobs(wanted, behind=after, limit=JOBS)
    views = context.engine.look_over([job for job in page.rows if job["params"] is not None])
    workers, awaited = context.engine.workers, context.engine.awaited_replies()
    rows = [
        _row(job, views.get(int(str(job["id"]))), need_of(job["kind"], job["id"], awaited, workers))
        for job in page.rows
    ]
    return context.render(
        "inbox.html",
        status=status,
        page=page,
        wanted=wanted,
        after=after,
        problems=problems,
        ticked=set(ticked),
        note=request.query_params.get("note"),
        rows=rows,
        expiries=context.engine.expiries(),
        asked=request.url.query,
    )


def _row(job: JsonObject, view: Look | None, need: Need) -> dict[str, object]:
    """A held job as the list shows it; a large job has its params and diff on its own page."""
    params = job["params"]
    return {
        "job": job,
        "need": need,
        "options": options_of(params) if isinstance(params, dict) else [],
        "diff": excerpt(view.diff) if view and view.diff else None,
        "shown": shown_value(view.sight) if view else "",
        "shown_name": shown_name(int(str(job["id"]))),
    }


@dataclass(frozen=True)
class _Matching:
    """The held jobs that match, and those of them that a decision on all can approve or reject."""

    approvable: Sequence[HeldHead]
    rejectable: Sequence[HeldHead]
    all: Sequence[HeldHead]


def _find_matching(context: PageContext, request: Request, among: Collection[int] | None = None) -> _Matching:
    wanted = read_filter(request, [State.HELD])
    heads = context.queries.held_heads(wanted, among=among, limit=MOST_DECIDED)
    workers, awaited = context.engine.workers, context.engine.awaited_replies()
    needs = [(head, need_of(head.kind, head.id, awaited, workers)) for head in heads]
    # A file that has changed since an approval needs a decision of its own.
    approvable = [
        head for head, need in needs if need is Need.APPROVAL and head.reason not in (CONFLICT, DRIFT)
    ]
    return _Matching(approvable, [head for head, need in needs if need is not Need.REPLY], heads)


def _show_decide_all(
    context: PageContext, request: Request, status: int = 200, problems: Sequence[str] = ()
) -> Response:
    matching = _find_matching(context, request)
    approvable = Counter((head.mission_id, head.kind) for head in matching.approvable)
    held = Counter((head.mission_id, head.kind) for head in matching.all)
    return context.render(
        "decide_all.html",
        status=status,
        problems=problems,
        groups=[
            (mission, kind, count, approvable[mission, kind])
            for (mission, kind), count in sorted(held.items())
        ],
        approvable=len(matching.approvable),
        rejectable=len(matching.rejectable),
        listed=",".join(str(head.id) for head in matching.all),
        is_cut=len(matching.all) == MOST_DECIDED,
        most=MOST_DECIDED,
        asked=request.url.query,
    )
