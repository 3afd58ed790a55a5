"""Bound what connections cost: how many there are, and how long a request may take to arrive."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import ClassVar

import h11
from uvicorn import Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from lcp_engine.web.access import ACCESS

BACKLOG = 32
"""Connections that wait to be accepted. asyncio accepts so many at once before it counts any of them."""
FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 53\r\n\r\n"
    b"All connections of this server are in use. Try later."
)
"""The answer to whoever connects while no connection can be closed for theirs."""
_LAST_SECONDS = 1.0
_ARRIVED = frozenset({h11.DONE, h11.MUST_CLOSE, h11.CLOSED, h11.ERROR})


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of the page. Connections of browsers with access are not closed for others."""

    request_seconds: float = 30
    """From connecting, or from the last answer, until a request has arrived as a whole; and for any part of an answer
    to be read."""
    connections: int = 256
    without_access: int = 64
    """Of those. Beyond, the oldest one is closed, so that the newest one is always heard."""

    def within(self, descriptors: int) -> ConnectionLimits:
        """These limits in a process that may open so many files: at most a quarter, so that jobs have the rest."""
        most = max(4, min(self.connections, descriptors // 4))
        return replace(self, connections=most, without_access=max(2, min(self.without_access, most // 2)))


def descriptor_limit() -> int:
    """The number of files that this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**20 if soft == resource.RLIM_INFINITY else soft


class LimitedProtocol(H11Protocol):
    """uvicorn's protocol within limits: it has no time for requests of its own, and no bound for silent peers."""

    limits: ClassVar[ConnectionLimits]
    _deadline: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    opened_at = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        super().connection_made(transport)
        self.opened_at = self.loop.time()
        self._expect_request()
        self._make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self._stop_watching()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reader(None)

    def resume_writing(self) -> None:
        self._stop_watching()
        super().resume_writing()

    def _watch_reader(self, before: int | None) -> None:
        """Close the connection of a peer that has read nothing of an answer since there were `before` bytes left."""
        left = self.transport.get_write_buffer_size()
        if left == before:
            self.transport.abort()
            return
        self._reading = self.loop.call_later(self.limits.request_seconds, self._watch_reader, left)

    def _stop_watching(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state in _ARRIVED:
            self._expect_nothing()

    def on_response_complete(self) -> None:
        # Before the next request, which may have arrived by now.
        self._expect_request()
        super().on_response_complete()

    @property
    def has_access(self) -> bool:
        """True if the last request came from a browser with access."""
        return bool(self.scope) and ACCESS in self.scope["state"]

    def _expect_request(self) -> None:
        self._expect_nothing()
        self._deadline = self.loop.call_later(self.limits.request_seconds, self.transport.abort)

    def _expect_nothing(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _make_room(self) -> None:
        """Close the oldest connections without access that are too many."""
        own = [one for one in self.connections if isinstance(one, LimitedProtocol)]
        # Also those that are being closed: they have a file until their peers have read the rest.
        strangers = sorted((one for one in own if not one.has_access), key=lambda one: one.opened_at)
        excess = max(len(strangers) - self.limits.without_access, len(own) - self.limits.connections, 0)
        for one in strangers[:excess]:
            if one is self:  # all others have access, and keep their connections
                self.transport.write(FULL)
                self.transport.close()
            else:
                one.transport.abort()


def limited_protocol(given: ConnectionLimits) -> type[LimitedProtocol]:
    """The protocol with these limits, as uvicorn takes it: a class."""

    class Protocol(LimitedProtocol):
        limits = given

    return Protocol


class ClosingServer(Server):
    """uvicorn's server, which leaves connections open whose peers keep them longer than its patience."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        for one in self.server_state.connections:
            one.transport.abort()
        await asyncio.sleep(0)  # in which the transports close their sockets
        if tasks := self.server_state.tasks:  # cancelled by now: they close their files
            await asyncio.wait(tasks, timeout=_LAST_SECONDS)


@contextmanager
def saying_errors_once() -> Iterator[None]:
    """Let asyncio log each kind of error once, on a line. It logs a traceback for each refused descriptor."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        kind = record.getMessage().partition("\n")[0]
        record.msg, record.args, record.exc_info = kind, (), None
        is_first = kind not in said
        said.add(kind)
        return is_first

    logger = logging.getLogger("asyncio")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
