"""Send statements to PostgreSQL one after another, and wait only for what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psycopg

from lcp_engine.store.transaction import Params, Row


class Piped:
    """A connection whose statements travel without waiting for each other's results (libpq's pipeline mode).

    The server executes them in their order, while the next ones are put together here. What is wrong with one shows
    at the latest when a result, a count, `settle` or the end of the transaction is waited for; those behind it are
    not executed.
    """

    def __init__(self, driver: psycopg.Connection) -> None:
        self.driver = driver
        self._mode = driver.pipeline()
        self._pipeline = self._mode.__enter__()
        self.begun: PipedCursor | None = None

    @property
    def closed(self) -> bool:
        return self.driver.closed

    def cursor(self) -> PipedCursor:
        return PipedCursor(self)

    def settle(self) -> None:
        """Wait for everything that was sent. Raises what is wrong with it."""
        self._pipeline.sync()

    def close(self) -> None:
        with suppress(psycopg.Error):  # a connection that broke has nothing to end
            self._mode.__exit__(None, None, None)
        self.driver.close()


class PipedCursor:
    """Statements on a connection; `rowcount` and what is fetched are those of the last one."""

    def __init__(self, connection: Piped) -> None:
        self._connection = connection
        self._last: psycopg.Cursor | None = None

    def execute(self, sql: str, params: Params | None = None, /) -> None:
        """Send a statement; the end of a transaction is waited for."""
        if sql == "ROLLBACK":
            with suppress(psycopg.Error):  # behind an error, nothing is executed until it is told
                self._connection.settle()
        self._new().execute(sql.encode(), params)
        if sql in ("COMMIT", "ROLLBACK"):
            self._connection.settle()

    def executemany(self, sql: str, rows: Sequence[Params], /) -> None:
        self._new().executemany(sql.encode(), rows)

    @property
    def rowcount(self) -> int:
        cursor = self._cursor()
        if cursor.rowcount < 0:
            self._connection.settle()
        return cursor.rowcount

    @property
    def lastrowid(self) -> None:
        """PostgreSQL has none."""

    def fetchall(self) -> list[Row]:
        return list(self._cursor().fetchall())

    def fetchone(self) -> Row | None:
        return self._cursor().fetchone()

    def close(self) -> None:
        self._last = None

    def _new(self) -> psycopg.Cursor:
        # One for each statement: a result that nobody asks for must not be taken for that of the next.
        self._last = self._connection.driver.cursor()
        return self._last

    def _cursor(self) -> psycopg.Cursor:
        assert self._last is not None, "a statement has to be executed first"
        return self._last
