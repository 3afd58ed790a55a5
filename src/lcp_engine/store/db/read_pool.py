"""Lend connections that read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lcp_engine.store.db.transaction import Connection, Reading


class Readers:
    """As many connections as there are reads at the same moment; whoever ends one leaves it to the next."""

    def __init__(self, backend: Reading) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._is_closed = False

    @contextmanager
    def lend(self) -> Iterator[Connection]:
        """A connection for one read; one that broke is not lent again."""
        connection = self._take()
        try:
            yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._is_closed = self._idle, [], True
        for connection in idle:
            _close(connection)

    def _take(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if self._backend.is_usable(connection):
                    return connection
        return self._backend.connect_to_read()

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if self._backend.is_usable(connection) and not self._is_closed:
                self._idle.append(connection)
                return
        _close(connection)


def _close(connection: Connection) -> None:
    with suppress(Exception):  # closing is the last thing, and nothing was written
        connection.close()
