"""The list of missions, and one mission as tree, timeline, history, report and question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from lcp_engine import Mission
from lcp_engine.api.pages import STATUSES, JobFilter, JsonObject
from lcp_engine.core.json_values import JsonValue, int_in, object_in
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.safe_text import block
from lcp_engine.errors import NotFound
from lcp_engine.features.activity.charts import recent_chart
from lcp_engine.features.plans.chart import draw_plan
from lcp_engine.features.reports.progress import milestone_of
from lcp_engine.features.reports.reports import as_markdown, make_report
from lcp_engine.features.universal.structured import next_step
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import cursor, number
from lcp_engine.web.pages.turns import by_turn
from lcp_engine.web.timeline_chart import draw

MISSIONS = 25
JOBS = 200
EVENTS = 300
LISTED = 100
COUNTED = 20_000
"""Of a report: the newest jobs of which those that succeeded are counted by kind."""
LONGEST_TEXT = 200


def missions(request: Request) -> Response:
    """The missions, the newest first, with a search and the number of each status."""
    context = context_of(request)
    status = request.query_params.get("status", "")
    text = request.query_params.get("text", "").strip()[:LONGEST_TEXT]
    before, is_oldest = cursor(request, "before"), "oldest" in request.query_params
    queries = context.queries
    return context.render(
        "missions.html",
        chart=recent_chart(context.engine.instance),
        page=queries.oldest_missions(status=status, text=text, limit=MISSIONS)
        if is_oldest
        else queries.missions(before=before, status=status, text=text, limit=MISSIONS),
        is_oldest=is_oldest,
        text=text,
        counts=context.queries.mission_counts(text),
        before=before,
        chosen=status,
        statuses=STATUSES,
        note=request.query_params.get("note"),
        runners=context.runners(),
    )


def tree(request: Request) -> Response:
    """A mission's turns, and below each the jobs that it requested."""
    return show_mission(context_of(request), request)


def show_mission(
    context: PageContext,
    request: Request,
    *,
    status: int = 200,
    problem: str = "",
    entered: JsonObject | None = None,
) -> Response:
    """A mission's own page; with a problem, its form contains what was `entered`."""
    mission = _mission(context, request)
    stretch = _jobs(context, request, mission)
    percentage, spec = context.measure(mission).percentage, _spec_if_kept(context, mission)
    return context.render(
        "mission.html",
        status=status,
        mission=mission.json,
        tab="",
        stretch=stretch,
        branches=build_tree(stretch.rows, context.queries.turn_heads(mission.id, *_id_range(stretch)))[::-1],
        note=request.query_params.get("note"),
        problem=problem,
        entered=entered or {},
        percentage=percentage,
        milestone=milestone_of(0, percentage),
        runners=context.runners(),
        may_undo=context.queries.has_changes(mission.id),
        rules=() if spec is None else spec.policy,
        stage=context.engine.stage(mission.id),
        drafts=context.engine.drafts(mission.id),
    )


def timeline(request: Request) -> Response:
    """When the jobs of a mission waited and ran."""
    context = context_of(request)
    mission = _mission(context, request)
    stretch = _jobs(context, request, mission)
    state_changes = context.queries.state_changes(mission.id, stretch.rows)
    return context.render(
        "timeline.html",
        mission=mission.json,
        tab="timeline",
        stretch=stretch,
        chart=draw(stretch.rows, state_changes, datetime.now(UTC)),
    )


def plan(request: Request) -> Response:
    """The steps of the mission's plans as a drawing: what follows what, the longest path, and what waits."""
    context = context_of(request)
    mission = _mission(context, request)
    drawings = [draw_plan(graph) for graph in context.engine.plan_graphs(mission.id)]
    return context.render("plan.html", mission=mission.json, tab="plan", drawings=drawings)


def history(request: Request) -> Response:
    """The events of a mission, the newest first."""
    context = context_of(request)
    mission = _mission(context, request)
    newest = context.queries.last_event(mission.id)
    until = min(newest, (cursor(request, "before") or newest + 1) - 1)
    since = max(0, until - EVENTS)
    events = context.engine.events(mission.id, after_seq=since, limit=max(0, until - since))
    stretch = Stretch(events, since + 1 if since else None, until == newest)
    return context.render(
        "history.html",
        mission=mission.json,
        tab="history",
        groups=by_turn(events),
        stretch=stretch,
        oldest=EVENTS + 1,
    )


def settings(request: Request) -> Response:
    """The settings of the mission: limits with what of them is used, policy, checks and the rest."""
    context = context_of(request)
    mission = _mission(context, request)
    spec = context.queries.spec(mission.id)
    # As they are now: a resume may have changed the limits.
    limits = {**spec.limits.model_dump(mode="json"), **object_in(mission.json["limits"])}
    rest = spec.model_dump(
        mode="json", by_alias=True, include=_OTHER_SETTINGS, exclude_none=True, exclude_defaults=True
    )
    tokens = object_in(mission.json["tokens"])
    return context.render(
        "settings.html",
        mission=mission.json,
        tab="settings",
        spec=spec,
        limits=limits,
        limit_text=_limit_text,
        used={
            "max_turns": mission.turns,
            "max_tokens": sum(int_in(tokens[one]) for one in ("input", "output")),
            "max_cost": mission.cost.get("amount") or "0",
        },
        checks=[check.model_dump(mode="json", by_alias=True, exclude_none=True) for check in spec.accept],
        rest=rest,
        noted=context.engine.launch_notes(mission.id)[1],
    )


_OTHER_SETTINGS = {
    "root_aliases", "stage", "git", "commands", "memory", "instructions", "kinds", "result", "continue_",
    "on_job_failure", "on_limit", "unfulfilled", "allow_admin", "hold_timeout",
}  # fmt: skip


def _limit_text(limit: JsonValue) -> str:
    if limit is None:
        return "none"
    return f"{limit:,.15g}" if isinstance(limit, int | float) else str(limit)


def report(request: Request) -> Response:
    """The report: what was done, written and refused, what waits, and what the planner said."""
    context = context_of(request)
    mission = _mission(context, request)
    facts = context.engine.facts(mission.id, most=LISTED, most_counted=COUNTED)
    percentage = context.measure(mission).percentage
    return context.render(
        "report.html",
        mission=mission.json,
        tab="report",
        report=make_report(facts),
        done_among=facts.done_among,
        next_step=next_step(facts).prompt,
        percentage=percentage,
        milestone=milestone_of(0, percentage),
    )


def report_text(request: Request) -> Response:
    """The report as Markdown."""
    context = context_of(request)
    mission = _mission(context, request)
    facts = context.engine.facts(mission.id, most=LISTED, most_counted=COUNTED)
    return PlainTextResponse(block(as_markdown(facts)))


def _spec_if_kept(context: PageContext, mission: Mission) -> MissionSpec | None:
    """The spec of the mission, and the rules that people added; None if it was pruned."""
    try:
        return context.queries.spec(mission.id)
    except NotFound:
        return None


@dataclass(frozen=True)
class Branch:
    """A job with the questions that it asked, if it is a turn, and the jobs that it led to."""

    job: JsonObject
    questions: list[JsonObject] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 1 + sum(branch.size for branch in self.branches)


def build_tree(jobs: Sequence[JsonObject], questions: Sequence[JsonObject]) -> list[Branch]:
    """The jobs without a parent among `jobs`, each with its descendants; all in the order of their ids. Pure."""
    branches = {job["id"]: Branch(job) for job in jobs}
    for question in questions:
        if question["job_id"] in branches:
            branches[question["job_id"]].questions.append(question)
    roots: list[Branch] = []
    for branch in branches.values():
        parent = branches.get(branch.job["parent_id"])
        (parent.branches if parent else roots).append(branch)
    return roots


def _mission(context: PageContext, request: Request) -> Mission:
    return context.engine.mission(number(request.path_params["mission"]))


@dataclass(frozen=True)
class Stretch:
    """Some rows of a list that begins with the newest; `older` is the id before which the rest is, None at its end."""

    rows: Sequence[JsonObject]
    older: int | None
    is_newest: bool


def _jobs(context: PageContext, request: Request, mission: Mission) -> Stretch:
    """Jobs of the mission in the order of their ids: the newest, those before an id, or the oldest."""
    jobs = partial(context.queries.jobs, JobFilter(mission.id), limit=JOBS)
    if "oldest" in request.query_params:
        page = jobs(behind=None)
        return Stretch(page.rows, None, page.behind is None)
    before = cursor(request, "before")
    page = jobs(behind=before, newest_first=True)
    return Stretch(page.rows[::-1], page.behind, before is None)


def _id_range(stretch: Stretch) -> tuple[int, int]:
    ids = [row["id"] for row in stretch.rows if isinstance(row["id"], int)]
    return (ids[0], ids[-1]) if ids else (0, 0)
