"""Decide on all held jobs that fit kind, mission and text at once: first the table, then the decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.bulk import each_outcome
from lcp_engine.changes.recovery import CONFLICT
from lcp_engine.core.job_states import State
from lcp_engine.engine.people.approval_binding import DRIFT
from lcp_engine.errors import LcpError
from lcp_engine.store.queries import pages
from lcp_engine.store.queries.pages import HeldHead
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.error_pages import told
from lcp_engine.web.form_post import NO_REASON, Form, number
from lcp_engine.web.held_kind import wish_of
from lcp_engine.web.jobs import read_filter
from lcp_engine.web.redirects import to_inbox

MOST = 1000
"""So many are decided at once; the next ones come with the next form."""


@dataclass(frozen=True)
class _Found:
    """The jobs that fit: those that take a yes, and those that take a no."""

    yes: Sequence[HeldHead]
    no: Sequence[HeldHead]
    all: Sequence[HeldHead]


def clear_form(request: Request) -> Response:
    """What would be decided."""
    return _show(desk_of(request), request)


def clear(desk: Desk, request: Request, form: Form) -> Response:
    """Approve or reject what the form's page listed; what is held since then is left alone."""
    decision, reason = form.text("decision"), form.text("reason")
    if decision not in ("approve", "reject"):
        return _show(desk, request, 422, ["a decision is to approve or to reject; nothing was decided"])
    if decision == "reject" and not reason:
        return _show(desk, request, 422, [NO_REASON])
    found = _find(desk, request, among={number(listed) for listed in form.text("jobs").split(",")})
    engine = desk.engine
    if decision == "approve":
        refused = _each(found.yes, engine.approve)
    else:
        refused = _each(found.no, lambda job_id: engine.reject(job_id, reason))
    if refused:
        which = "1 job was" if len(refused) == 1 else f"{len(refused)} jobs were"
        return _show(desk, request, 409, [f"{which} not decided, all others were:", *refused])
    return to_inbox(request.url.query, "approved" if decision == "approve" else "rejected")


def _each(jobs: Sequence[HeldHead], decide: Callable[[int], object]) -> list[str]:
    """Decide on each; what was in the way of any."""
    outcomes = each_outcome([job.id for job in jobs], decide)
    return [told(outcome) for _, outcome in outcomes if isinstance(outcome, LcpError)]


def _find(desk: Desk, request: Request, among: Collection[int] | None = None) -> _Found:
    wanted = read_filter(request, [State.HELD])
    heads = desk.read(lambda tx: pages.find_held_heads(tx, wanted, among=among, limit=MOST))
    workers = desk.engine.workers
    wishes = [(head, wish_of({"kind": head.kind, "reason": head.reason}, workers)) for head in heads]
    # A file that is another now is something new to decide.
    yes = [head for head, wish in wishes if wish == "yes" and head.reason not in (CONFLICT, DRIFT)]
    return _Found(yes, [head for head, wish in wishes if wish != "reply"], heads)


def _show(desk: Desk, request: Request, status: int = 200, problems: Sequence[str] = ()) -> Response:
    found = _find(desk, request)
    yes = Counter((head.mission_id, head.kind) for head in found.yes)
    every = Counter((head.mission_id, head.kind) for head in found.all)
    return desk.page(
        "clear.html",
        status=status,
        problems=problems,
        groups=[
            (mission, kind, count, yes[mission, kind]) for (mission, kind), count in sorted(every.items())
        ],
        yes=len(found.yes),
        no=len(found.no),
        listed=",".join(str(head.id) for head in found.all),
        is_cut=len(found.all) == MOST,
        most=MOST,
        asked=request.url.query,
    )
