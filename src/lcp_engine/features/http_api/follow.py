"""Follow missions: wait for one, and stream events that go on after the last one that was received."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias
from weakref import WeakSet

from anyio.to_thread import run_sync

from lcp_engine.api.engine import Engine
from lcp_engine.api.pages import PageQueries
from lcp_engine.clock import Micros
from lcp_engine.core.json_values import JsonObject, JsonValue
from lcp_engine.errors import LcpError
from lcp_engine.features.http_api.store import counts_since, positions_at
from lcp_engine.features.tokens.calls import Token

POLL_SECONDS = 0.1
LEAST_REST = 10
"""The pause after a look is at least so many times the processor time of the look."""
KEEPALIVE_SECONDS = 12.0
"""After so long without events a comment is sent, and it is looked whether the token still lets in."""
AT_ONCE = 200
"""Events that are read at a time: a stream whose reader is slow holds no more."""

MOST_STREAMS, MOST_OF_TOKEN = 128, 32
"""Streams and waits of one server at a time, and of one token."""
KEPT_FREE = 32
"""So many of them are for tokens that have none."""

_Mark: TypeAlias = tuple[int, int, int]


@dataclass(eq=False)
class News:
    """Missions with events that one stream has not sent: the last event that it has, and the last one that there is."""

    changes: dict[int, tuple[int, int]]


@dataclass
class Pulse:
    """Notices events of any mission, with one query for all who wait, and none while nobody does."""

    engine: Engine
    mark: _Mark | None = None
    """Another one after any event."""
    counted_at: Micros = 0
    """All events before this time are counted, but for those of transactions that were open then."""
    is_closing: bool = False
    followers: Counter[str] = field(default_factory=Counter)
    """Streams and waits that are open, by token."""
    failure: LcpError | None = None
    _streams: WeakSet[News] = field(default_factory=WeakSet)
    """Those of all missions."""
    _counts: dict[int, int] = field(default_factory=dict)
    """The number of the last event by mission, while there are such streams."""
    _sums: Mapping[int, int] = field(default_factory=dict)
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _waiting: int = 0
    _task: asyncio.Task[None] | None = None

    def enter(self, token: Token) -> str | None:
        """Count a stream or a wait of a token; otherwise the reason why it may have no more."""
        own, most = self.followers[token.uid], MOST_STREAMS
        if own >= MOST_OF_TOKEN:
            return f"token {token.name} has {own} streams and waits open, which is its limit"
        if self.followers.total() >= most - (KEPT_FREE if own else 0):
            return f"{self.followers.total()} streams and waits are open at this server; its limit is {most}"
        self.followers[token.uid] += 1
        return None

    def leave(self, token: Token) -> None:
        """Count a stream or a wait no more."""
        self.followers[token.uid] -= 1
        self.followers += Counter()  # without those that have none

    async def follow(self, since: Micros | None) -> News:
        """News of all missions from now on, or from a time on, as long as it is kept. Raises like `positions_at`."""
        async with self._reading:
            if not self._streams:
                self._counts, self._sums = {}, {}
                await run_sync(self._changes)
            read = self.engine.instance.read
            news = News({} if since is None else await run_sync(read, positions_at, since))
            self._streams.add(news)
        return news

    def _changes(self) -> Mapping[int, tuple[int, int]]:
        """Missions with new events: their last one before, and now."""
        self._sums, counts = self.engine.instance.read(counts_since, self._sums)
        found = {id_: (self._counts.get(id_, 0), last) for id_, last in counts.items()}
        self._counts |= counts
        return {id_: (before, last) for id_, (before, last) in found.items() if before < last}

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

        def look() -> tuple[_Mark, Micros, Mapping[int, tuple[int, int]], float]:
            began = time.thread_time()
            now = self.engine.instance.database.now()
            found = queries.mark()
            changes = self._changes() if found != self.mark and self._streams else {}
            return found, now, changes, time.thread_time() - began

        try:
            while self._waiting and not self.is_closing:
                async with self._reading:
                    found, now, changes, spent = await run_sync(look)
                    self._note(changes)
                if found != self.mark:
                    self.mark, self.counted_at = found, now
                    self._tell()
                await asyncio.sleep(max(POLL_SECONDS, LEAST_REST * spent))
        except LcpError as away:  # those who wait hear it; the next one to wait looks again
            self.failure = away
        finally:
            self._task = None
            self._tell()

    def _note(self, changes: Mapping[int, tuple[int, int]]) -> None:
        for news in self._streams:
            for id_, (before, last) in changes.items():
                news.changes[id_] = (news.changes.get(id_, (before, last))[0], last)

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


async def stream_all(pulse: Pulse, news: News, *, may_go_on: Callable[[], bool]) -> AsyncIterator[str]:
    """The events of all missions that are news; then, as an id, the time up to which all were sent."""
    yield "retry: 2000\n\n"
    seen, access = None, _Access(may_go_on)
    with suppress(LcpError):
        while not pulse.is_closing and await access.holds():
            before, seen = seen, await pulse.changed(seen, KEEPALIVE_SECONDS)
            if seen == before:
                yield ":\n\n"
                continue
            counted_at, changes = pulse.counted_at, news.changes
            news.changes = {}
            for mission, (sent, last) in changes.items():
                after = sent
                while after < last:
                    if not await access.holds():
                        return
                    most = min(AT_ONCE, last - after)
                    found = await run_sync(partial(pulse.engine.events, mission, after_seq=after, limit=most))
                    for event in found:
                        yield _framed(event)
                    # Without events it was pruned.
                    after = int(str(found[-1]["seq"])) if found else last
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
