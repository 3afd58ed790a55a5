"""Fork a mission at a turn, or replay it from its history and compare."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.replay.fork import Forked
from lcp_engine.features.replay.replay import Replayed
from lcp_engine.planners.registry import planner_names
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import Form, cursor, number, to_mission

MOST_SHOWN = 200
"""Differences, and changed files, that a page lists."""


def fork_form(request: Request) -> Response:
    """The form, with the turn and, as the reply to edit, that of the question that the address names."""
    context = context_of(request)
    mission_id = number(request.path_params["mission"])
    question, reply = cursor(request, "question"), ""
    if question is not None:
        reply = str(context.queries.turn(mission_id, question)["reply"] or "")
    return _show_fork(context, mission_id, turn=request.query_params.get("turn", ""), reply=reply)


def fork(context: PageContext, request: Request, form: Form) -> Response:
    """Queue the new mission, and go to it; first name the files that have changed since, where there are some."""
    mission_id = number(request.path_params["mission"])
    turn, reply, planner = form.text("turn"), form.verbatim("reply"), form.text("planner")
    try:
        if not (turn.isascii() and turn.isdigit()):
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"turn: {turn[:40]!r} is not the number of a turn")
        forked = context.engine.fork(
            mission_id, turn=number(turn), reply=reply if reply.strip() else None,
            planner=PlannerSpec(type=planner) if planner else None,
        )  # fmt: skip
    except LcpError as refused:
        return _show_fork(context, mission_id, turn=turn, reply=reply, planner=planner, refused=refused)
    if not (forked.changed or forked.unknown):
        return to_mission(forked.id, "forked")
    return _show_fork(context, mission_id, turn=turn, reply=reply, planner=planner, forked=forked)


def _show_fork(
    context: PageContext,
    mission_id: int,
    *,
    turn: str,
    reply: str,
    planner: str = "",
    refused: LcpError | None = None,
    forked: Forked | None = None,
) -> Response:
    mission = context.engine.mission(mission_id)
    asked = context.queries.turn_heads(mission_id, 0, 2**62)
    return context.render(
        "fork.html",
        status=200 if refused is None else refused.status,
        mission=mission.json,
        turns=sorted({int(str(one["turn"])) for one in asked}),
        turn=turn,
        reply=reply,
        planner=planner,
        planners=[name for name in planner_names() if name not in ("none", "script")],
        problem="" if refused is None else str(refused),
        forked=forked,
        most=MOST_SHOWN,
    )


def replay_form(request: Request) -> Response:
    """What a replay is, with its button."""
    return _show_replay(context_of(request), request)


def replay(context: PageContext, request: Request, form: Form) -> Response:
    """Replay the mission in a scratch directory, and show what differs."""
    try:
        replayed = context.engine.replay(number(request.path_params["mission"]))
    except LcpError as refused:
        return _show_replay(context, request, refused=refused)
    return _show_replay(context, request, replayed=replayed)


def _show_replay(
    context: PageContext,
    request: Request,
    *,
    refused: LcpError | None = None,
    replayed: Replayed | None = None,
) -> Response:
    return context.render(
        "replay.html",
        status=200 if refused is None else refused.status,
        mission=context.engine.mission(number(request.path_params["mission"])).json,
        problem="" if refused is None else str(refused),
        replayed=replayed,
        most=MOST_SHOWN,
    )
