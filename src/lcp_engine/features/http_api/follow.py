"""Follow missions: wait for one, and stream events that go on after the last one that was received."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from anyio.to_thread import run_sync

from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import PageQueries
from lcp_engine.clock import Micros
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.errors import LcpError

POLL_SECONDS = 0.1
LEAST_REST = 10
"""The pause after a look is at least so many times the processor time of the look."""
KEEPALIVE_SECONDS = 12.0
"""After so long without events a comment is sent, and it is looked whether the token still lets in."""
AT_ONCE = 200
"""Events that are read at a time: a stream whose reader is slow holds no more."""

_Mark: TypeAlias = tuple[int, int, int]


@dataclass
class Pulse:
    """Notices events of any mission, with one query for all who wait, and none while nobody does."""

    engine: Engine
    mark: _Mark | None = None
    """Another one after any event."""
    counts: Mapping[int, int] = field(default_factory=dict)
    """The number of the last event by mission, at that mark."""
    counted_at: Micros = 0
    """All events before this time are counted, but for those of transactions that were open then."""
    is_closing: bool = False
    followers: int = 0
    """Streams and waits that are open."""
    failure: LcpError | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: int = 0
    _task: asyncio.Task[None] | None = None

    def enter(self, most: int) -> bool:
        """Count a stream or a wait; False if so many are open."""
        if self.followers >= most:
            return False
        self.followers += 1
        return True

    def leave(self) -> None:
        """Count a stream or a wait no more."""
        self.followers -= 1

    def close(self) -> None:
        """End every wait within a second."""
        self.is_closing = True

    async def changed(self, seen: _Mark | None, seconds: float) -> _Mark | None:
        """The mark once it is not `seen`, or after so many seconds. Raises what a look raises."""
        ends = time.monotonic() + seconds
        self._waiting += 1
        try:
            while not self.is_closing and (left := ends - time.monotonic()) > 0:
                if self._task is None:
                    self.mark, self.failure = None, None
                    self._task = asyncio.get_running_loop().create_task(self._look())
                if self.mark not in (None, seen):
                    break
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), min(left, 0.5))
                if self.failure is not None:
                    raise self.failure
        finally:
            self._waiting -= 1
        return self.mark if self.mark is not None else seen

    async def _look(self) -> None:
        queries = PageQueries(self.engine.instance)

        def look() -> float:
            began = time.thread_time()
            now = self.engine.instance.database.now()
            if (found := queries.mark()) != self.mark:
                self.counts, self.counted_at, self.mark = self.engine.event_counts(), now, found
            return time.thread_time() - began

        try:
            while self._waiting and not self.is_closing:
                before = self.mark
                spent = await run_sync(look)
                if self.mark != before:
                    self._tell()
                await asyncio.sleep(max(POLL_SECONDS, LEAST_REST * spent))
        except LcpError as away:  # those who wait hear it; the next one to wait looks again
            self.failure = away
        finally:
            self._task = None
            self._tell()

    def _tell(self) -> None:
        before, self._news = self._news, asyncio.Event()
        before.set()


async def wait_for(
    pulse: Pulse, read: Callable[[], JsonObject], is_met: Callable[[JsonObject], bool], seconds: float,
    *, may_go_on: Callable[[], bool],
) -> JsonObject | None:  # fmt: skip
    """The result of `read` once it is met, or after so many seconds; None once it may not go on."""
    ends = time.monotonic() + seconds
    seen: _Mark | None = None
    access = _Access(may_go_on)
    while await access.holds():
        found = await run_sync(read)
        left = ends - time.monotonic()
        if left <= 0 or pulse.is_closing or is_met(found):
            return found if await run_sync(may_go_on) else None
        seen = await pulse.changed(seen, min(left, KEEPALIVE_SECONDS))
    return None


async def stream_mission(
    pulse: Pulse, mission: int, after: int, *, may_go_on: Callable[[], bool], until_end: bool
) -> AsyncIterator[str]:
    """The events of a mission after one, each as soon as it is there; with `until_end` up to the mission's last."""
    yield "retry: 2000\n\n"
    seen, access = None, _Access(may_go_on)
    with suppress(LcpError):  # the database is away: the client asks again, with the id of the last event
        while not pulse.is_closing and await access.holds():
            has_ended = until_end and (await run_sync(pulse.engine.mission, mission)).status.has_ended
            start = after
            while (await access.holds()) and (
                found := await run_sync(partial(pulse.engine.events, mission, after_seq=after, limit=AT_ONCE))
            ):
                for event in found:
                    yield _framed(event, event["seq"])
                after = int(str(found[-1]["seq"]))
            if has_ended and after == start:
                return
            before, seen = seen, await pulse.changed(seen, KEEPALIVE_SECONDS)
            if seen == before:
                yield ":\n\n"


async def stream_all(
    pulse: Pulse, positions: dict[int, int], *, may_go_on: Callable[[], bool]
) -> AsyncIterator[str]:
    """The events of all missions after `positions`; then, as an id, the time up to which all were sent."""
    yield "retry: 2000\n\n"
    seen, access = None, _Access(may_go_on)
    with suppress(LcpError):
        while not pulse.is_closing and await access.holds():
            before, seen = seen, await pulse.changed(seen, KEEPALIVE_SECONDS)
            if seen == before:
                yield ":\n\n"
                continue
            counts, counted_at = pulse.counts, pulse.counted_at
            for mission, last in counts.items():
                while (after := positions.get(mission, 0)) < last:
                    if not await access.holds():
                        return
                    found = await run_sync(
                        partial(pulse.engine.events, mission, after_seq=after, limit=AT_ONCE)
                    )
                    for event in found:
                        yield _framed(event)
                    # Without events it was pruned.
                    positions[mission] = int(str(found[-1]["seq"])) if found else last
            yield f"id: {counted_at}\n\n"


@dataclass
class _Access:
    """Asks regularly whether a stream may go on: its token may have ended, or been removed."""

    may_go_on: Callable[[], bool]
    asked_at: float = field(default_factory=time.monotonic)
    held: bool = True

    async def holds(self) -> bool:
        if self.held and time.monotonic() - self.asked_at >= KEEPALIVE_SECONDS:
            self.held = await run_sync(self.may_go_on)
            self.asked_at = time.monotonic()
        return self.held


def _framed(event: JsonObject, name: JsonValue = None) -> str:
    line = "" if name is None else f"id: {name}\n"
    return f"{line}data: {json.dumps(event)}\n\n"
