"""Server-sent events: tell open pages that a mission's history has grown, or that a runner came or went."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from lcp_engine.errors import LcpError
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import number

POLL_SECONDS = 0.1
LEAST_REST = 10
"""The pause after a look is at least so many times the processor time of the look, so that looking costs little."""
RUNNER_POLLS = 20
"""After so many polls it is looked whether the same runners are there: one that was killed writes no event."""
DRAFT_POLLS = 10
"""After so many polls it is looked what planners have written since."""
KEEPALIVE_SECONDS = 12
"""After so long without news a comment is sent, which detects a connection that is gone."""

_Queue: TypeAlias = "asyncio.Queue[str | None]"
_News: TypeAlias = dict[str, int | list[int]]


async def events(request: Request) -> Response:
    """The number of the last event of one mission, or of each: `{"mission": 3, "seq": 41}`, whenever it grows.

    And the runners, whenever others are there: `{"runners": [2]}`.
    """
    context = context_of(request)
    mission = number(request.path_params["mission"]) if "mission" in request.path_params else None
    if mission is not None:
        await run_sync(context.engine.mission, mission)
    watch = context.single(Watch, partial(Watch, context))
    await watch.begin(mission)
    return StreamingResponse(_stream(request, context, watch, mission), media_type="text/event-stream")


async def _stream(
    request: Request, context: PageContext, watch: Watch, mission: int | None
) -> AsyncIterator[str]:
    with watch.listening(mission) as queue:
        yield "retry: 2000\n\n"
        quiet_since = time.monotonic()
        while not (context.closing.is_set() or await request.is_disconnected()):
            try:
                # Not longer, so that a server that is told to stop does not wait for its open pages.
                line = await asyncio.wait_for(queue.get(), timeout=0.4)
            except TimeoutError:
                if time.monotonic() - quiet_since < KEEPALIVE_SECONDS:
                    continue
                line = ":\n\n"
            if line is None:  # the browser connects again
                return
            quiet_since = time.monotonic()
            yield line


@dataclass
class Watch:
    """Looks for news, once for all open pages, as long as there are any."""

    context: PageContext
    _listeners: dict[_Queue, int | None] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)
    """The number of the last event by mission, of those that are listened to."""
    _drafts: dict[int, dict[int, str]] = field(default_factory=dict)
    """What planners of these missions were writing."""
    _mark: tuple[int, int, int] | None = None
    _runners: tuple[int, ...] | None = None
    _task: asyncio.Task[None] | None = None

    async def begin(self, mission: int | None) -> None:
        """Note what is there before someone listens: only what comes later is news."""
        counts = await run_sync(self._counts, {mission})
        self._seen = {**counts, **self._seen}

    @contextmanager
    def listening(self, mission: int | None) -> Iterator[_Queue]:
        """A queue of what is to be sent about one mission, or about all; None at its end."""
        queue: _Queue = asyncio.Queue()
        self._listeners[queue] = mission
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        try:
            yield queue
        finally:
            del self._listeners[queue]

    async def _run(self) -> None:
        polls = 0
        try:
            while self._listeners:
                found, spent = await run_sync(self._look, polls % RUNNER_POLLS == 0, polls % DRAFT_POLLS == 0)
                for news in found:
                    self._tell(news)
                polls += 1
                await asyncio.sleep(max(POLL_SECONDS, LEAST_REST * spent))
        except LcpError:  # such as a database that is away: the browsers ask again, and read what is wrong
            pass
        finally:
            self._task, self._mark, self._runners, self._seen = None, None, None, {}
            for queue in self._listeners:
                queue.put_nowait(None)

    def _tell(self, news: _News) -> None:
        line = f"event: news\ndata: {json.dumps(news)}\n\n"
        for queue, mission in self._listeners.items():
            if mission is None or news.get("mission", mission) == mission:
                queue.put_nowait(line)

    def _look(self, with_runners: bool, with_drafts: bool = False) -> tuple[list[_News], float]:
        """Look for news; with them, the seconds of processor time that it took."""
        began = time.thread_time()
        counts = self._counts(set(self._listeners.values()))
        news: list[_News] = [
            {"mission": key, "seq": count} for key, count in counts.items() if self._seen.get(key) != count
        ]
        self._seen |= counts
        if with_drafts:
            drafts = {
                key: self.context.engine.drafts(key) for key in counts if key in self._listeners.values()
            }
            told = {one["mission"] for one in news}
            changed = [
                key for key, found in drafts.items() if found != self._drafts.get(key, {}) and key not in told
            ]
            news += [{"mission": key, "seq": counts[key]} for key in changed]
            self._drafts = drafts
        if with_runners:
            # Also what a page showed of a runner that came and was killed between two looks.
            known = {self._runners}
            while self.context.shown_runners:
                known.add(self.context.shown_runners.pop())
            self._runners = tuple(runner.id for runner in self.context.queries.runners())
            if known - {None, self._runners}:
                news.append({"runners": [*self._runners]})
        return news, time.thread_time() - began

    def _counts(self, missions: set[int | None]) -> dict[int, int]:
        """The number of the last event of each mission that is listened to and may have news."""
        queries = self.context.queries
        if None not in missions:
            return {mission: queries.last_event(mission) for mission in missions if mission is not None}
        mark = queries.mark()
        if mark == self._mark:
            return {}
        self._mark = mark
        return self.context.engine.event_counts()
