"""Give a request up at its deadline, whatever it is doing: resolving a name, connecting, sending or receiving."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

from lcp_engine.sandbox.file_access import start_thread

T = TypeVar("T")


class TooLate(Exception):
    """The deadline has passed."""


@dataclass(frozen=True)
class Deadline:
    """The end of the `seconds` that were given to all of an answer, with its retries: `at` on the monotonic clock."""

    at: float
    seconds: float

    @classmethod
    def after(cls, seconds: float, now: float) -> Deadline:
        """The end of `seconds` that begin `now`."""
        return cls(now + seconds, seconds)


@runtime_checkable
class _Stream(Protocol):
    def get_extra_info(self, info: str, /) -> object: ...


class Line:
    """The connections of one request. Any thread can cut them, which ends whatever waits for them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def trace(self, step: str, info: Mapping[str, object]) -> None:
        """Note the connection that a step of the HTTP library made; its extension `trace` calls this at each step."""
        stream = info.get("return_value") if step.endswith("connect_tcp.complete") else None
        connected = stream.get_extra_info("socket") if isinstance(stream, _Stream) else None
        if isinstance(connected, socket.socket):
            self.hold(connected)

    def hold(self, connected: socket.socket) -> None:
        """Note a connection of the request."""
        with self._lock:
            # The library's own socket is replaced when TLS begins, and its number may be used again once it is closed.
            own = connected.dup()
            if self._is_cut:
                _shut(own)
            else:
                self._sockets.append(own)

    def cut(self) -> None:
        """Shut the connections down, and each that is made from now on."""
        with self._lock:
            self._is_cut = True
            for connected in self._sockets:
                _shut(connected)
            self._sockets.clear()


def within(seconds: float, request: Callable[[Line], T]) -> T:
    """Result of `request`, or its error; raises `TooLate` after `seconds`, when its line is cut.

    It runs in a thread of its own, because nothing interrupts the resolver of the system. Raises `Shortage`.
    """
    line, outcome = Line(), Future[T]()

    def run() -> None:
        try:
            outcome.set_result(request(line))
        except BaseException as raised:  # noqa: BLE001  # it is raised again in the thread that waits
            outcome.set_exception(raised)

    start_thread(threading.Thread(target=run, name="lcp-request", daemon=True))
    try:
        return outcome.result(min(max(seconds, 0), threading.TIMEOUT_MAX))
    except TimeoutError as late:
        if outcome.done() and outcome.exception() is late:
            raise
        raise TooLate from late
    finally:
        line.cut()


def _shut(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()
