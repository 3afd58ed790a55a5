"""Server-sent events: tell open pages that a mission's history has grown."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import anyio
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import number

POLL_SECONDS = 0.4
MOST_EVENTS = 1000
RUNNER_POLLS = 5
"""After so many polls it is looked whether the same runners are there: one that was killed writes no event."""
KEEPALIVE_POLLS = 30
"""After so many polls without news a comment is sent, which detects a connection that is gone."""


async def events(request: Request) -> Response:
    """The number of the last event of one mission, or of each: `{"mission": 3, "seq": 41}`, whenever it grows.

    And the runners, whenever others are there: `{"runners": [2]}`.
    """
    context = context_of(request)
    mission = number(request.path_params["mission"]) if "mission" in request.path_params else None
    seen = await run_sync(_first_counts, context, mission)
    return StreamingResponse(_stream(request, context, mission, seen), media_type="text/event-stream")


async def _stream(
    request: Request, context: PageContext, mission: int | None, seen: dict[int, int]
) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    quiet = polls = 0
    runners = await run_sync(_runner_ids, context)
    while not (context.closing.is_set() or await request.is_disconnected()):
        counts = await run_sync(_new_counts, context, mission, seen)
        news: list[dict[str, int | list[int]]] = [
            {"mission": key, "seq": count} for key, count in counts.items() if seen.get(key) != count
        ]
        polls += 1
        if polls % RUNNER_POLLS == 0 and (there := await run_sync(_runner_ids, context)) != runners:
            runners = there
            news.append({"runners": runners})
        for line in news:
            yield f"event: news\ndata: {json.dumps(line)}\n\n"
        seen = counts
        quiet = 0 if news else quiet + 1
        if quiet == KEEPALIVE_POLLS:
            quiet = 0
            yield ":\n\n"
        await anyio.sleep(POLL_SECONDS)


def _runner_ids(context: PageContext) -> list[int]:
    return [runner.id for runner in context.queries.runners()]


def _first_counts(context: PageContext, mission: int | None) -> dict[int, int]:
    """The number of the last event by mission. Raises `NOT_FOUND`."""
    counts = context.engine.event_counts()
    if mission is None:
        return counts
    return {mission: counts.get(context.engine.mission(mission).id, 0)}


def _new_counts(context: PageContext, mission: int | None, seen: dict[int, int]) -> dict[int, int]:
    """Like `_first_counts`; of one mission it reads only the events after `seen`."""
    if mission is None:
        return context.engine.event_counts()
    events = context.engine.events(mission, after_seq=seen[mission], limit=MOST_EVENTS)
    last = events[-1]["seq"] if events else None
    return {mission: last} if isinstance(last, int) else seen
