"""Do what follows an event in the old way and in the new one, and compare what both write and read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any  # noqa: TID251 -- rows and statements of a driver

import pytest
from tests.model import progress_before

from lcp_engine.engine import approvals, progress, question, reply, settle
from lcp_engine.store.ledger import Ledger

COUNTS: Counter[str] = Counter()
"""Calls that were compared, and the statements that each way read with."""
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_CALLERS = (approvals, question, reply, settle)
_COLLECTED = ("_events", "_attempts", "_attempts_with_stderr", "_large")


@contextmanager
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both ways run on SQLite, the old one first, which is taken back."""
    with monkeypatch.context() as patch:
        for name in ("after_settling", "after_rejecting", "after_holding", "end_plan", "cancel_sub_plans"):
            both = _both(getattr(progress_before, name), getattr(progress, name))
            for module in _CALLERS:
                if hasattr(module, name):
                    patch.setattr(module, name, both)
        yield


def _both(old: Callable[..., None], new: Callable[..., None]) -> Callable[..., None]:
    def run(ledger: Ledger, *args: Any, **named: Any) -> None:
        tx: Any = ledger.tx
        if not tx.is_sqlite:
            new(ledger, *args, **named)
            return
        cursor, kept = tx._cursor, _Kept(ledger, args)
        cursor.execute("SAVEPOINT both_ways", {})
        before = _Recorded(cursor)
        tx._cursor = before
        old(ledger, *args, **named)
        expected = _told(ledger, args)
        cursor.execute("ROLLBACK TO both_ways", {})
        cursor.execute("RELEASE both_ways", {})
        kept.restore()
        after = _Recorded(cursor)
        tx._cursor = after
        try:
            new(ledger, *args, **named)
        finally:
            tx._cursor = cursor
        assert after.writes == before.writes
        assert _told(ledger, args) == expected
        assert after.reads <= before.reads, (before.read, after.read)
        COUNTS.update({f"{old.__name__}": 1, "reads before": before.reads, "reads now": after.reads})
        COUNTS["writes"] += len(after.writes)

    return run


class _Recorded:
    """A cursor that notes what it is asked to do."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor
        self.read: list[str] = []
        self.writes: list[object] = []

    @property
    def reads(self) -> int:
        return len(self.read)

    def execute(self, sql: str, params: Any = ()) -> object:
        if sql.lstrip().startswith(("SELECT", "WITH")):
            self.read.append(sql)
        else:
            self.writes.append(_plain((sql, params)))
        return self._cursor.execute(sql, params)

    def executemany(self, sql: str, rows: Any) -> object:
        self.writes.append(_plain((sql, rows)))
        return self._cursor.executemany(sql, rows)

    def __getattr__(self, name: str) -> object:
        return getattr(self._cursor, name)


class _Kept:
    """All that a ledger, its transaction and the rows that were passed hold."""

    def __init__(self, ledger: Ledger, args: tuple[Any, ...]) -> None:
        self.ledger = ledger
        self.rows = [(row, _values(row)) for row in _rows(ledger, args)]
        self.maps = {
            name: dict(getattr(ledger, name))
            for name in ("_missions", "_plans", "_saved_missions", "_saved_plans")
        }
        self.lists = {name: list(getattr(ledger, name)) for name in _COLLECTED}
        tx = ledger.tx
        self.tx = (tx.made_ready, dict(tx.now_waiting), list(tx.at_end), ledger._highest)

    def restore(self) -> None:
        for row, values in self.rows:
            for name, value in values.items():
                setattr(row, name, value)
        for name, kept in self.maps.items():
            _refill(getattr(self.ledger, name), kept)
        for name, listed in self.lists.items():
            getattr(self.ledger, name)[:] = listed
        tx = self.ledger.tx
        tx.made_ready, waiting, tx.at_end[:], self.ledger._highest = self.tx
        _refill(tx.now_waiting, waiting)


def _refill(known: Any, kept: Any) -> None:
    known.clear()
    known.update(kept)


def _rows(ledger: Ledger, args: tuple[Any, ...]) -> list[Any]:
    passed = [arg for arg in args if hasattr(type(arg), "__slots__") and is_dataclass(arg)]
    return [*ledger._missions.values(), *ledger._plans.values(), *passed]


def _values(row: Any) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def _told(ledger: Ledger, args: tuple[Any, ...]) -> object:
    tx = ledger.tx
    collected = [list(getattr(ledger, name)) for name in _COLLECTED]
    rows = sorted(str(_values(row)) for row in _rows(ledger, args))
    return _plain((rows, collected, tx.made_ready, dict(tx.now_waiting), len(tx.at_end)))


def _plain(told: object) -> str:
    """Without the ids of errors, which are random."""
    return _UID.sub("uid", str(told))
