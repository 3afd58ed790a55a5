"""Send what happens to browsers that look: server-sent events that follow the history."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.form_post import number

LOOK_SECONDS = 0.4
MOST_AT_ONCE = 1000
SIGN_OF_LIFE = 30
"""After so many looks without news a comment is sent, so that a connection that is gone is noticed."""


async def events(request: Request) -> Response:
    """News of one mission or of all, each with the number of the last event: `{"mission": 3, "seq": 41}`."""
    desk = desk_of(request)
    mission = number(request.path_params["mission"]) if "mission" in request.path_params else None
    seen = await run_sync(_begin, desk, mission)
    return StreamingResponse(_follow(request, desk, mission, seen), media_type="text/event-stream")


async def _follow(
    request: Request, desk: Desk, mission: int | None, seen: dict[int, int]
) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    quiet = 0
    while not (desk.closing.is_set() or await request.is_disconnected()):
        counts = await run_sync(_look, desk, mission, seen)
        news = [{"mission": key, "seq": count} for key, count in counts.items() if seen.get(key) != count]
        for line in news:
            yield f"event: news\ndata: {json.dumps(line)}\n\n"
        seen = counts
        quiet = 0 if news else quiet + 1
        if quiet == SIGN_OF_LIFE:
            quiet = 0
            yield ":\n\n"
        await anyio.sleep(LOOK_SECONDS)


def _begin(desk: Desk, mission: int | None) -> dict[int, int]:
    """The number of the last event by mission. Raises `NOT_FOUND`."""
    counts = desk.engine.event_counts()
    if mission is None:
        return counts
    return {mission: counts.get(desk.engine.mission(mission).id, 0)}


def _look(desk: Desk, mission: int | None, seen: dict[int, int]) -> dict[int, int]:
    """Like `_begin`, knowing what was seen before."""
    if mission is None:
        return desk.engine.event_counts()
    events = desk.engine.events(mission, after_seq=seen[mission], limit=MOST_AT_ONCE)
    last = events[-1]["seq"] if events else None
    return {mission: last} if isinstance(last, int) else seen
