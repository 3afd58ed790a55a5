"""The inbox: all held jobs, and decisions on several at once."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.api.bulk import each_outcome
from lcp_engine.api.pages import HeldHead, JsonObject, Setting
from lcp_engine.changes.show import Look
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import object_in
from lcp_engine.core.policy import Approvals
from lcp_engine.core.reasons import FILE_CHANGED
from lcp_engine.engine.always import can_have_rule
from lcp_engine.errors import LcpError
from lcp_engine.store.people import Sight
from lcp_engine.web.actions import approve_shown, may_ask
from lcp_engine.web.ask_again import ask_again
from lcp_engine.web.changes import wants_split
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import CHARACTERS_IN_LIST, LINES_IN_LIST, Excerpt, excerpt
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
from lcp_engine.web.jobs import AskedForm, Need, asked_form, is_shown, need_of, options_of, read_filter

JOBS = 50
MOST_DECIDED = 1000
"""Jobs that one form for all matching jobs decides; the next form has the next ones."""
LONGEST_PARAM = 4000
"""Characters of a param that a list shows."""
CHARACTERS_COMPARED = 8_000_000
"""Of the params of all jobs of a list; what exceeds them is compared on the page of its job only."""
LINES_OF_ALL = 5_000
CHARACTERS_OF_ALL = 500_000
CHARACTERS_OF_MARKS = 400_000
"""Of all `shown` fields of a form, which has to fit into a request."""
NONE_SHOWN = "none of the jobs was shown in full; nothing was decided"
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

    shown = _read_all_shown(form, ids) if decision == "approve" else {}
    if looks := _looks_to_ask_about(context, form, shown):
        return ask_again(context, request, form, looks)

    def decide(job_id: int) -> bool:
        if decision == "reject":
            return context.engine.reject(job_id, reason)
        return approve_shown(context, job_id, shown[job_id])

    refused = _refusals(ids, decide)
    if refused:
        done = f"{len(ids) - len(refused)} of {len(ids)} jobs were decided; these were not:"
        return _show_inbox(context, request, 409, [done, *refused])
    word = "approved" if decision == "approve" else "rejected"
    return to_inbox(str(request.query_params), word, count=len(ids))


def _read_all_shown(form: Form, ids: Iterable[int]) -> dict[int, Sight | None]:
    """What the form's page showed in full of these jobs. Raises a 422 before anything is decided."""
    return {job_id: read_shown(form, shown_name(job_id)) for job_id in ids}


def _looks_to_ask_about(
    context: PageContext, form: Form, shown: Mapping[int, Sight | None]
) -> dict[int, Look]:
    """What the jobs would change that nothing measured on the form's page; nothing if it did."""
    some = [job_id for job_id, sight in shown.items() if may_ask(context, job_id, form, sight)]
    return context.engine.look_over([context.engine.job(job_id).json for job_id in some])


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
        marks = _read_all_shown(form, [head.id for head in matching.approvable])
        shown = {job_id: sight for job_id, sight in marks.items() if sight is not None}
        if marks and not shown:
            return _show_decide_all(context, request, 422, [NONE_SHOWN])
        if looks := _looks_to_ask_about(context, form, shown):
            return ask_again(context, request, form, looks)
        refused = _refusals([*shown], lambda job_id: approve_shown(context, job_id, shown[job_id]))
        decided = len(shown) - len(refused)
    else:
        refused = _refusals([job.id for job in matching.rejectable], reject)
        decided = len(matching.rejectable) - len(refused)
    word = "approved" if decision == "approve" else "rejected"
    skipped = _skipped(context, listed - {head.id for head in matching.all})
    if refused or skipped:
        done = f"{_jobs_were(decided)} {word}; {_jobs_were(len(refused) + len(skipped))} not decided here:"
        return _show_decide_all(context, request, 409, [done, *refused, *skipped])
    return to_inbox(str(request.query_params), word, count=decided)


def _jobs_were(count: int) -> str:
    return "1 job was" if count == 1 else f"{count:,} jobs were"


MOST_SKIPPED = 20


def _skipped(context: PageContext, ids: Collection[int]) -> list[str]:
    """The states of jobs that the form listed and that no longer wait, a line each."""
    jobs = [context.engine.job(job_id) for job_id in sorted(ids)[:MOST_SKIPPED]]
    lines = [f"job {job.id} is {job.state} in the meantime" for job in jobs]
    more = len(ids) - len(jobs)
    return [*lines, f"and {more:,} more, which no longer wait"] if more else lines


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
    jobs = [_in_full(context, job) for job in page.rows]
    looks, settings = _look_over(context, jobs), context.queries.settings_of(jobs)
    workers, awaited = context.engine.workers, context.engine.awaited_replies()
    approvals = _approvals_of(context, jobs)
    rows = [
        replace(
            _row(
                job,
                looks.get(int(str(job["id"]))),
                need_of(job["kind"], job["id"], awaited, workers),
                LINES_IN_LIST,
                is_split=wants_split(request),
            ),
            setting=settings[int(str(job["id"]))],
            approvals=approvals.get(int(str(job["id"]))),
            may_have_rule=can_have_rule(workers.get(str(job["kind"]))),
        )
        for job in jobs
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
        count=cursor(request, "count"),
        rows=rows,
        shown_or_named=shown_or_named,
        kinds=sorted({str(row.job["kind"]) for row in rows if row.need is Need.APPROVAL}),
        held=",".join(str(job["id"]) for job in jobs),
        expiries=context.engine.expiries(),
        asked=str(request.query_params),
        longest=LONGEST_PARAM,
        is_split=wants_split(request),
    )


def _approvals_of(context: PageContext, jobs: Sequence[JsonObject]) -> dict[int, Approvals]:
    """Whose approvals those jobs need that one person alone cannot let run."""
    engine = context.engine
    missions = {int(str(job["mission_id"])) for job in jobs}
    if not engine.ask_several(missions, engine.instance.admission.user_rules):
        return {}
    return engine.approvals([engine.job(int(str(job["id"]))) for job in jobs])


def _in_full(context: PageContext, job: JsonObject) -> JsonObject:
    """A job with its params, however large: what is not shown cannot be decided on."""
    return (
        job
        if job["params"] is not None
        else {**job, "params": context.engine.job(int(str(job["id"]))).params}
    )


@dataclass(frozen=True)
class Row:
    """A held job as a list shows it. Without `shown` it cannot be approved there."""

    job: JsonObject
    need: Need
    diff: Excerpt | None
    caveat: str
    shown: str
    setting: Setting | None = None
    """Of which mission it is, and what its planner said; in the inbox."""

    approvals: Approvals | None = None
    """Whose approvals it needs, if one person alone cannot let it run."""
    may_have_rule: bool = False
    """Whether a rule can let jobs of its kind run."""

    @property
    def options(self) -> list[str]:
        return options_of(object_in(self.job["params"]))

    @property
    def asked(self) -> AskedForm | None:
        return asked_form(object_in(self.job["params"])) if self.need is Need.ANSWER else None

    @property
    def shown_name(self) -> str:
        return shown_name(int(str(self.job["id"])))


def _look_over(context: PageContext, jobs: Sequence[JsonObject]) -> dict[int, Look]:
    """What the jobs would change, as long as their texts are not too large to be compared for a list."""
    left = CHARACTERS_COMPARED
    some: list[JsonObject] = []
    for job in jobs:
        left -= sum(len(value) for value in object_in(job["params"]).values() if isinstance(value, str))
        if left >= 0 or not some:
            some.append(job)
    return context.engine.look_over(some)


def shown_or_named(card: Callable[..., Markup], row: Row, *more: object) -> Markup:
    """The card of a job; of one that cannot be shown its name, so that it costs its own card and not the page."""
    try:
        return card(row, *more)
    except Exception:
        job = row.job["id"]
        logging.getLogger("lcp_engine").exception("job %s cannot be shown in a list", job)
        return Markup(
            '<li class="card held-job" id="job-{0}" tabindex="-1"><h2><a href="/jobs/{0}">{1} job {0}</a></h2>'
            '<p class="note warn">This job cannot be shown here. <code>lcp job {0}</code> prints it, '
            "<code>lcp reject {0}</code> rejects it; the log of <code>lcp serve</code> has the reason.</p></li>"
        ).format(job, row.job["kind"])


def _row(
    job: JsonObject, look: Look | None, need: Need, lines: int, characters: int = CHARACTERS_IN_LIST,
    *, is_split: bool,
) -> Row:  # fmt: skip
    if look is None:
        return Row(job, need, None, "", "")
    diff = None if look.diff is None else excerpt(look.diff, lines, characters, is_split=is_split)
    parts = [] if diff is None else [diff]
    is_shown_here = is_shown(look, parts, object_in(job["params"]), longest=LONGEST_PARAM)
    shown = shown_value(look.sight) if need is Need.APPROVAL and is_shown_here else ""
    return Row(job, need, diff, look.caveat, shown)


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
    approvable = [head for head, need in needs if need is Need.APPROVAL and head.reason not in FILE_CHANGED]
    return _Matching(approvable, [head for head, need in needs if need is not Need.REPLY], heads)


def _show_decide_all(
    context: PageContext, request: Request, status: int = 200, problems: Sequence[str] = ()
) -> Response:
    matching = _find_matching(context, request)
    approvable = Counter((head.mission_id, head.kind) for head in matching.approvable)
    held = Counter((head.mission_id, head.kind) for head in matching.all)
    rows = _rows_of(context, request, {head.id for head in matching.approvable})
    return context.render(
        "decide_all.html",
        status=status,
        problems=problems,
        groups=[
            (mission, kind, count, approvable[mission, kind])
            for (mission, kind), count in sorted(held.items())
        ],
        rows=rows,
        shown_or_named=shown_or_named,
        approvable=sum(bool(row.shown) for row in rows),
        rejectable=len(matching.rejectable),
        listed=",".join(str(head.id) for head in matching.all),
        is_cut=len(matching.all) == MOST_DECIDED,
        most=MOST_DECIDED,
        asked=str(request.query_params),
        longest=LONGEST_PARAM,
        is_split=wants_split(request),
    )


def _rows_of(context: PageContext, request: Request, approvable: Collection[int]) -> list[Row]:
    """The jobs that a decision on all may approve, as far as the page has room to show them in full."""
    page = context.queries.jobs(read_filter(request, [State.HELD]), behind=None, limit=MOST_DECIDED)
    jobs = [_in_full(context, job) for job in page.rows if job["id"] in approvable]
    looks = _look_over(context, jobs)
    approvals = _approvals_of(context, jobs)
    rows: list[Row] = []
    lines, characters, marks = LINES_OF_ALL, CHARACTERS_OF_ALL, CHARACTERS_OF_MARKS
    for job in jobs:
        look, is_split = looks.get(int(str(job["id"]))), wants_split(request)
        row = _row(job, look, Need.APPROVAL, lines, characters, is_split=is_split)
        if row.diff is not None and not row.diff.is_whole:
            # What has no room leaves it to the jobs below.
            few = min(lines, LINES_IN_LIST), min(characters, CHARACTERS_IN_LIST)
            row = _row(job, look, Need.APPROVAL, *few, is_split=is_split)
        row = replace(row, approvals=approvals.get(int(str(job["id"]))))
        if len(row.shown) > marks:
            row = replace(row, shown="")
        marks -= len(row.shown)
        if row.diff is not None:
            lines -= len(row.diff.lines)
            characters -= sum(len(line.text) for line in row.diff.lines)
        rows.append(row)
    return rows
