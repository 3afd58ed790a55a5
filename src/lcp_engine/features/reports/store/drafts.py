"""Store what planners are writing, so that other processes can show it before the reply is there."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Integer,
    Table,
    Text,
    bindparam,
    delete,
    or_,
    select,
    text,
)

from lcp_engine.clock import SECOND, Micros
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.file_access import Shortage, start_thread
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import storable
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import Id, jobs, metadata, turns

REST_SECONDS = 1.0
"""All drafts of a process share one transaction in so many seconds; a reply that takes less is never written."""
_LIFETIME: Micros = 3600 * SECOND
"""A draft that has not grown for so long was left by a process that died."""
_Key: TypeAlias = tuple[int, int]

drafts = Table(
    "drafts",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("text", Text, nullable=False),
    Column("at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""The end of what a planner has written of the reply to a question, for people; removed when it is there."""

_KEEP = Statement(
    text(
        "INSERT INTO drafts (mission_id, number, text, at) VALUES (:mission, :number, :said, :at) "
        "ON CONFLICT (mission_id, number) DO UPDATE SET text = excluded.text, at = excluded.at"
    )
)
_DROP = Statement(
    delete(drafts).where(
        or_(
            (drafts.c.mission_id == bindparam("mission")) & (drafts.c.number == bindparam("number")),
            drafts.c.at < bindparam("since"),
        )
    )
)
_FIND = Statement(
    select(turns.c.job_id, drafts.c.text)
    .join_from(
        drafts, turns, (turns.c.mission_id == drafts.c.mission_id) & (turns.c.number == drafts.c.number)
    )
    .join(jobs, jobs.c.id == turns.c.job_id)
    .where(
        drafts.c.mission_id == bindparam("mission"), turns.c.reply.is_(None), text("jobs.state = 'running'")
    )
)


def find_drafts(tx: Tx, mission_id: int) -> dict[int, str]:
    """The end of each reply that is being written in a mission, by the job of its turn."""
    return {row[0]: row[1] for row in tx.rows(_FIND, mission=mission_id)}


@dataclass
class StoredDrafts:
    """The `Drafts` of `planners.environment` in the database; usable from any thread.

    Drafts are only looked at: while the database is busy or away, the planner goes on without them.
    """

    database: Database
    _new: dict[_Key, str] = field(default_factory=dict)
    """What is to be written next."""
    _written: set[_Key] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writes: threading.Lock = field(default_factory=threading.Lock)
    """Held during each write, so that none comes after the one that removes."""
    _is_writing: bool = False

    def keep(self, mission_id: int, number: int, said: str, /) -> None:
        """Have the words of a reply written instead of earlier ones, soon."""
        with self._lock:
            self._new[mission_id, number] = said
            if self._is_writing:
                return
            try:
                start_thread(threading.Thread(target=self._write, name="lcp-drafts", daemon=True))
            except Shortage:
                return  # the next words try again
            self._is_writing = True

    def drop(self, mission_id: int, number: int, /) -> None:
        """Remove what was written of a reply."""
        with self._writes:
            with self._lock:
                self._new.pop((mission_id, number), None)
                if (mission_id, number) not in self._written:
                    return
                self._written.discard((mission_id, number))
            with suppress(LcpError):
                self.database.write(
                    lambda tx: tx.run(_DROP, mission=mission_id, number=number, since=tx.now - _LIFETIME)
                )

    def _write(self) -> None:
        while True:
            time.sleep(REST_SECONDS)
            with self._writes:
                with self._lock:
                    new, self._new = self._new, {}
                    self._written |= new.keys()
                    self._is_writing = bool(new)
                if not new:
                    return
                with suppress(LcpError):
                    self.database.write(partial(_keep_all, new=new))


def _keep_all(tx: Tx, new: dict[_Key, str]) -> None:
    for (mission_id, number), said in new.items():
        tx.run(_KEEP, mission=mission_id, number=number, said=storable(said), at=tx.now)
