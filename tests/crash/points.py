"""Name the points at which a process may die, and end it at one of them as the kernel would.

Nothing in the engine knows of them: commits are met at the database's cursor, everything else at the functions of `os`
and at the planner.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from lcp_engine.clock import Clock
from lcp_engine.errors import LcpError
from lcp_engine.planners.base import Question, Reply
from lcp_engine.planners.simple import ScriptPlanner
from lcp_engine.sandbox.atomic_write import is_temporary
from lcp_engine.sandbox.system import syscalls
from lcp_engine.store.db.transaction import Backend, Connection, Cursor, Lend, Params, Row
from lcp_engine.store.ledger_sql import EVENT

ON_FILES = ("fsync", "rename", "mkdir", "unlink", "rmdir")
T = TypeVar("T")


class Killer:
    """Counts the points that this process passes, writes their names to `trace`, ends it at point `at` (0: never)."""

    def __init__(self, at: int = 0, trace: Path | None = None) -> None:
        self._at = at
        self._passed = 0
        self._counts: Counter[str] = Counter()
        self._trace = None if trace is None else os.open(trace, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def around(self, what: str, detail: str, call: Callable[[], T]) -> T:
        """Make a call between two points."""
        self._counts[what] += 1
        name = f"{what} {self._counts[what]}"
        self._point(f"{name} before{detail}")
        done = call()
        self._point(f"{name} after{detail}")
        return done

    def _point(self, name: str) -> None:
        self._passed += 1
        if self._trace is not None:
            os.write(self._trace, f"{name}\n".encode())
        if self._passed == self._at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch_files(self) -> None:
        """Every change of a directory and every fsync of this process has a point before and after it."""
        for name in ON_FILES:
            setattr(os, name, self._watched(name, getattr(os, name)))
        syscalls.exchange = self._watched("exchange", syscalls.exchange)
        syscalls.move = self._watched("move", syscalls.move)

    def _watched(self, name: str, function: Callable[..., T]) -> Callable[..., T]:
        def watched(*given: object, **named: object) -> T:
            return self.around(name, f" ({_subject(given)})", lambda: function(*given, **named))

        return watched

    def watch_planner(self, calls: Path) -> None:
        """Each question to a script planner has a point before and after it; its number goes to the file `calls`."""
        answer = ScriptPlanner.answer

        def counted(planner: ScriptPlanner, question: Question) -> Reply:
            with calls.open("a") as file:
                file.write(f"{question.number}\n")
            return answer(planner, question)

        def watched(planner: ScriptPlanner, question: Question, /) -> Reply:
            detail = f" (question {question.number})"
            return self.around("planner call", detail, lambda: counted(planner, question))

        ScriptPlanner.answer = watched  # type: ignore[method-assign]  # it counts what is asked, and answers as before


def _subject(given: Sequence[object]) -> str:
    """The purpose of a call of `os`, the same in every run."""
    names = [one for one in given if not isinstance(one, int)]  # beside a name a number is a mode
    subject = names[-1] if names else given[-1]
    name = Path(f"/proc/self/fd/{subject}").readlink().name if isinstance(subject, int) else str(subject)
    return "temporary file" if is_temporary(name) else name


class WatchedCursor:
    """A cursor whose commits are named after the events that they store."""

    def __init__(self, cursor: Cursor, killer: Killer, events: list[str]) -> None:
        self._cursor = cursor
        self._killer = killer
        self._events = events  # of the transaction: all cursors of a connection share it

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @rowcount.setter
    def rowcount(self, value: int) -> None:
        raise AttributeError(value)

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    def execute(self, sql: str, params: Params | None = None, /) -> object:
        if sql == "COMMIT":
            detail = f" ({', '.join(self._events)})" if self._events else ""
            return self._killer.around("commit", detail, lambda: self._cursor.execute(sql))
        if params is None:
            return self._cursor.execute(sql)
        if "seq" in params and "event" in params:
            # Many rows are arrays on PostgreSQL: {"started","succeeded"}
            self._events += str(params["event"]).strip('{}"').split('","')
        return self._cursor.execute(sql, params)

    def executemany(self, sql: str, rows: Sequence[Row], /) -> object:
        if sql == EVENT.by_position[0]:
            self._events += [str(row[EVENT.names.index("event")]) for row in rows]
        return self._cursor.executemany(sql, rows)

    def fetchall(self) -> list[Row]:
        return self._cursor.fetchall()

    def fetchone(self) -> Row | None:
        return self._cursor.fetchone()

    def close(self) -> None:
        self._cursor.close()


class WatchedConnection:
    """The writer's connection, whose commits are points."""

    def __init__(self, connection: Connection, killer: Killer) -> None:
        self.watched = connection
        self._killer = killer
        self.events: list[str] = []

    @property
    def closed(self) -> bool:
        return bool(getattr(self.watched, "closed", False))

    def cursor(self) -> Cursor:
        return WatchedCursor(self.watched.cursor(), self._killer, self.events)

    def close(self) -> None:
        self.watched.close()


class WatchedBackend:
    """A backend whose writer's commits are points."""

    def __init__(self, backend: Backend, killer: Killer) -> None:
        self._backend = backend
        self._killer = killer
        self.name = backend.name
        self.away_seconds = backend.away_seconds

    def connect(self) -> Connection:
        return WatchedConnection(self._backend.connect(), self._killer)

    def begin(self, connection: Connection) -> None:
        assert isinstance(connection, WatchedConnection)
        connection.events.clear()
        self._backend.begin(connection.watched)

    def settle(self, connection: Connection) -> None:
        # A read is settled too, and its connection is not counted.
        self._backend.settle(connection.watched if isinstance(connection, WatchedConnection) else connection)

    def transaction(self, connection: Connection) -> str | None:
        assert isinstance(connection, WatchedConnection)
        return self._backend.transaction(connection.watched)

    def has_committed(self, connection: Connection, transaction: str, at: int) -> bool | None:
        assert isinstance(connection, WatchedConnection)
        return self._backend.has_committed(connection.watched, transaction, at)

    def connect_to_read(self) -> Connection:
        return self._backend.connect_to_read()

    def clock(self, lend: Lend) -> Clock:
        return self._backend.clock(lend)

    def explain(self, error: Exception) -> LcpError | None:
        return self._backend.explain(error)

    def may_retry(self, error: Exception) -> bool:
        return self._backend.may_retry(error)

    def is_away(self, error: Exception) -> bool:
        return self._backend.is_away(error)

    def sweeping(self) -> Backend:
        return WatchedBackend(self._backend.sweeping(), self._killer)

    def flush(self, connection: Connection) -> bool:
        return self._backend.flush(connection)

    def is_usable(self, connection: Connection) -> bool:
        return self._backend.is_usable(connection)
