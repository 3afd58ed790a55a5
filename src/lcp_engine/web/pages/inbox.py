"""The inbox: all held jobs, and decisions on several at once."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.api.bulk import MORE_APPROVALS, Tally, decide_each, last_decision, missing_approvals, told
from lcp_engine.api.inbox import HeldJob, question_in
from lcp_engine.api.pages import HeldHead, JsonObject, Setting
from lcp_engine.api.user import user_name
from lcp_engine.core.inbox import Act, Awaits
from lcp_engine.core.job_states import State
from lcp_engine.core.json_values import object_in
from lcp_engine.core.policy import Approvals
from lcp_engine.core.reasons import FILE_CHANGED
from lcp_engine.errors import LcpError
from lcp_engine.inbox import Look, Sight
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.diff_view import CHARACTERS_IN_LIST, LINES_IN_LIST, Excerpt, excerpt, is_shown
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
from lcp_engine.web.pages.actions import approve_shown, may_ask
from lcp_engine.web.pages.ask_again import ask_again, lines_of
from lcp_engine.web.pages.changes import wants_split
from lcp_engine.web.pages.jobs import AskedForm, asked_form, read_filter
from lcp_engine.web.pages.review import changed_since

JOBS = 50
FEW = 8
"""Jobs whose rows have at once what each would do."""
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
TOO_MANY = f"a form decides at most {MOST_DECIDED:,} jobs, and this one lists more; nothing was decided"
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

    tally = decide_each(context.engine, [*dict.fromkeys(ids)], decide, _WORDS[decision], by=user_name())
    if tally.refused:
        return _show_inbox(context, request, 409, _problems(tally))
    return _to_inbox(request, tally)


_WORDS = {"approve": "approved", "reject": "rejected"}


def _to_inbox(request: Request, tally: Tally) -> Response:
    done, waits, before = len(tally.done), len(tally.waiting), len(tally.before)
    is_same = tally.waiting and tally.awaited != MORE_APPROVALS
    job = tally.waiting[0] if is_same else 0
    return to_inbox(str(request.query_params), tally.word, count=done, waits=waits, before=before, job=job)


def _problems(tally: Tally, others: Sequence[str] = ()) -> list[str]:
    """The counts of a decision, then a line for each job that it was not made for."""
    lines = [*map(refusal_text, tally.refused), *others]
    were = "1 job was" if len(lines) == 1 else f"{len(lines):,} jobs were"
    return [f"{tally}; {were} not decided here:", *lines]


def _read_all_shown(form: Form, ids: Iterable[int]) -> dict[int, Sight | None]:
    """The sights of these jobs that the form's page showed in full. Raises a 422 before anything is decided."""
    return {job_id: read_shown(form, shown_name(job_id)) for job_id in ids}


def _looks_to_ask_about(
    context: PageContext, form: Form, shown: Mapping[int, Sight | None]
) -> dict[int, Look]:
    """Look at what the jobs would change that nothing measured on the form's page; nothing if it did."""
    some = [job_id for job_id, sight in shown.items() if may_ask(context, job_id, form, sight)]
    return context.engine.look_over([context.engine.job(job_id).json for job_id in some])


def decide_all_form(request: Request) -> Response:
    """Show what a decision on all matching jobs would cover."""
    return _show_decide_all(context_of(request), request)


def decide_all(context: PageContext, request: Request, form: Form) -> Response:
    """Approve or reject the jobs that the form's page listed, and none that was held since."""
    decision, reason = form.text("decision"), form.text("reason")
    if decision not in ("approve", "reject"):
        return _show_decide_all(context, request, 422, [NO_DECISION])
    if decision == "reject" and not reason:
        return _show_decide_all(context, request, 422, [NO_REASON])
    listed = {number(job_id) for job_id in form.text("jobs").split(",")}
    if len(listed) > MOST_DECIDED:
        return _show_decide_all(context, request, 422, [TOO_MANY])
    matching = _find_matching(context, request, among=listed)
    elsewhere = _read_elsewhere(context, listed - {head.id for head in matching.all}, _WORDS[decision])

    def reject(job_id: int) -> bool:
        return context.engine.reject(job_id, reason)

    left_out = elsewhere.left_out
    if decision == "approve":
        marks = _read_all_shown(form, [head.id for head in matching.approvable])
        shown = {job_id: sight for job_id, sight in marks.items() if sight is not None}
        if marks and not shown:
            return _show_decide_all(context, request, 422, [NONE_SHOWN])
        if looks := _looks_to_ask_about(context, form, shown):
            return ask_again(context, request, form, looks)
        left_out = [*left_out, *_left_out(matching, shown)]
        tally = decide_each(
            context.engine, [*shown], lambda job_id: approve_shown(context, job_id, shown[job_id]), "approved",
            by=user_name(),
        )  # fmt: skip
    else:
        ids = [head.id for head in matching.rejectable]
        tally = decide_each(context.engine, ids, reject, "rejected", by=user_name())
    tally = replace(tally, done=[*tally.done, *elsewhere.own], before=[*tally.before, *elsewhere.before])
    if tally.refused or left_out:
        return _show_decide_all(context, request, 409, _problems(tally, left_out))
    return _to_inbox(request, tally)


def _left_out(matching: _Matching, shown: Collection[int]) -> list[str]:
    """A line for each job that needs an approval of its own: what it would do was not shown, or is another by now."""
    changed = [
        f"job {head.id}: its file has changed since an approval; decide it alone" for head in matching.changed
    ]
    unseen = [head.id for head in matching.approvable if head.id not in shown]
    return [*changed, *(f"job {job_id} was not shown in full; open it and decide there" for job_id in unseen)]


@dataclass(frozen=True)
class _Elsewhere:
    """Jobs that a form listed and that no longer match: decided so by this person or before, and those left out."""

    own: Sequence[int]
    before: Sequence[int]
    left_out: Sequence[str]


def _read_elsewhere(context: PageContext, ids: Collection[int], word: str) -> _Elsewhere:
    own: list[int] = []
    before: list[int] = []
    left_out: list[str] = []
    for job_id in sorted(ids):
        try:
            state, decision = context.engine.job(job_id).state, last_decision(context.engine, job_id)
        except LcpError as refused:
            left_out.append(str(refused))
            continue
        if state == State.HELD:
            left_out.append(f"job {job_id} is held, but the filter does not match it")
        elif _WORDS.get(str(decision.get("decision"))) == word:
            (own if decision.get("by") == user_name() else before).append(job_id)
        else:
            left_out.append(f"job {job_id} is {state} in the meantime")
    return _Elsewhere(own, before, left_out)


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
    settings = context.queries.settings_of(jobs)
    rows = sorted(_rows_in_inbox(context, request, jobs), key=lambda row: row.held.mission_id)
    below = dict(pairwise(row.held.id for row in rows))
    rows = [replace(row, setting=settings[row.held.id], next_id=below.get(row.held.id)) for row in rows]
    return context.render(
        "inbox.html",
        status=status,
        page=page,
        wanted=wanted,
        after=after,
        problems=problems,
        ticked=set(ticked),
        note=request.query_params.get("note"),
        awaited=_awaited(context, request),
        counted=_counted(context, request),
        rows=rows,
        shown_or_named=shown_or_named,
        kinds=sorted({row.held.kind for row in rows if Act.APPROVE in row.held.acts}),
        held=",".join(str(job["id"]) for job in jobs),
        asked=str(request.query_params),
        longest=LONGEST_PARAM,
        few=FEW,
        is_split=wants_split(request),
    )


def _rows_in_inbox(context: PageContext, request: Request, jobs: Sequence[JsonObject]) -> list[Row]:
    looks, approvals = _look_over(context, jobs), _approvals_of(context, jobs)
    is_split = wants_split(request)
    return [
        replace(
            _row(held, looks.get(held.id), LINES_IN_LIST, is_split=is_split),
            approvals=approvals.get(held.id),
        )
        for held in context.engine.inbox.of(jobs)
    ]


def row_of_job(request: Request) -> Response:
    """Body of a row of a long inbox: what its job would do; without `part`, the page of the job."""
    context, asked = context_of(request), request.query_params
    job = context.engine.job(number(request.path_params["job"]))
    if "part" not in asked:
        return RedirectResponse(f"/jobs/{job.id}", 303)
    if job.state != State.HELD:
        raise changed_since(job.id)
    row = replace(_rows_in_inbox(context, request, [job.json])[0], next_id=cursor(request, "next"))
    return context.render("part.html", row=row, asked=asked.get("back", ""), longest=LONGEST_PARAM)


def _awaited(context: PageContext, request: Request) -> str:
    """The approvals that the job of the note still misses; empty for a note without one."""
    job = cursor(request, "job")
    waiting, awaited = missing_approvals(context.engine, [] if job is None else [job])
    return awaited if waiting else ""


def _counted(context: PageContext, request: Request) -> str:
    """Counts of a decision on several jobs; empty for the note of another one."""
    done, waits, before = (cursor(request, name) or 0 for name in ("count", "waits", "before"))
    word = request.query_params.get("note", "")
    if word not in _NEXT or not (done or waits or before):
        return ""
    said = told(word, done, waits, before, _awaited(context, request) or MORE_APPROVALS)
    return f"{said}. {_NEXT[word] if done else ''}".strip()


_NEXT = {
    "approved": "A runner will execute what has every approval that it needs.",
    "rejected": "The planner will read the reason.",
}


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

    held: HeldJob
    diff: Excerpt | None
    caveat: str
    shown: str
    lines: int = 0
    """Lines of its diff or its params, if it can be approved."""

    sight: str = ""
    setting: Setting | None = None
    """Of which mission it is, and what its planner said; in the inbox."""

    approvals: Approvals | None = None
    """Whose approvals it needs, if one person alone cannot let it run."""

    next_id: int | None = None
    """The job below it, in the inbox."""

    @property
    def job(self) -> JsonObject:
        return self.held.job

    @property
    def options(self) -> Sequence[str]:
        return question_in(object_in(self.job["params"])).options

    @property
    def asked(self) -> AskedForm | None:
        return asked_form(object_in(self.job["params"])) if Act.ANSWER in self.held.acts else None

    @property
    def mark(self) -> str:
        """A short name for what its row shows, the same until something else is to be shown."""
        said = f"{self.sight.partition(' ')[2]}\0{self.approvals}"
        return hashlib.sha256(said.encode()).hexdigest()[:8]

    @property
    def shown_name(self) -> str:
        return shown_name(self.held.id)


def _look_over(context: PageContext, jobs: Sequence[JsonObject]) -> dict[int, Look]:
    """Look at what the jobs would change, as long as their texts are not too large to be compared for a list."""
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
    held: HeldJob, look: Look | None, lines: int, characters: int = CHARACTERS_IN_LIST, *, is_split: bool
) -> Row:
    if look is None:
        return Row(held, None, "", "")
    diff = None if look.diff is None else excerpt(look.diff, lines, characters, is_split=is_split)
    parts = [] if diff is None else [diff]
    params, sight = object_in(held.job["params"]), shown_value(look.sight)
    if Act.APPROVE not in held.acts or not is_shown(look, parts, params, longest=LONGEST_PARAM):
        return Row(held, diff, look.caveat, "", sight=sight)
    return Row(held, diff, look.caveat, sight, lines_of(look, params), sight)


@dataclass(frozen=True)
class _Matching:
    """The held jobs that match, and those of them that a decision on all can approve or reject."""

    approvable: Sequence[HeldHead]
    changed: Sequence[HeldHead]
    """Those whose file has changed since an approval."""
    rejectable: Sequence[HeldHead]
    all: Sequence[HeldHead]


def _find_matching(context: PageContext, request: Request, among: Collection[int] | None = None) -> _Matching:
    wanted = read_filter(request, [State.HELD])
    heads = context.queries.held_heads(wanted, among=among, limit=MOST_DECIDED)
    awaited = context.engine.inbox.awaited((head.id, head.kind) for head in heads)
    asking = [head for head in heads if awaited[head.id] is Awaits.APPROVAL]
    # A file that has changed since an approval needs a decision of its own.
    changed = [head for head in asking if head.reason in FILE_CHANGED]
    approvable = [head for head in asking if head.reason not in FILE_CHANGED]
    return _Matching(
        changed=changed,
        approvable=approvable,
        rejectable=[head for head in heads if awaited[head.id] is not Awaits.REPLY],
        all=heads,
    )


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
    for held in context.engine.inbox.of(jobs):
        look, is_split = looks.get(held.id), wants_split(request)
        row = _row(held, look, lines, characters, is_split=is_split)
        if row.diff is not None and not row.diff.is_whole:
            # What has no room leaves it to the jobs below.
            few = min(lines, LINES_IN_LIST), min(characters, CHARACTERS_IN_LIST)
            row = _row(held, look, *few, is_split=is_split)
        row = replace(row, approvals=approvals.get(held.id))
        if len(row.shown) > marks:
            row = replace(row, shown="")
        marks -= len(row.shown)
        if row.diff is not None:
            lines -= len(row.diff.lines)
            characters -= sum(len(line.text) for line in row.diff.lines)
        rows.append(row)
    return rows
