"""Store which files of held jobs a person has viewed, by what was shown of each."""

from __future__ import annotations

from sqlalchemy import Column, ForeignKey, SmallInteger, Table, Text, bindparam, delete, select, text

from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import Id, metadata

viewed_files = Table(
    "viewed_files",
    metadata,
    Column("mission_id", Id, ForeignKey("missions.id"), primary_key=True),
    Column("person", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("was_seen", SmallInteger, nullable=False),
    sqlite_with_rowid=False,
)
"""What a person has viewed of the files of held jobs, by a hash of what was shown, and whether all of that had been on
the screen."""

_OF_PERSON = (viewed_files.c.mission_id == bindparam("mission"), viewed_files.c.person == bindparam("who"))
_FIND = Statement(select(viewed_files.c.mark, viewed_files.c.was_seen).where(*_OF_PERSON))
_KEEP = Statement(
    text(
        "INSERT INTO viewed_files (mission_id, person, mark, was_seen) VALUES (:mission, :who, :mark, :was_seen) "
        "ON CONFLICT (mission_id, person, mark) DO UPDATE SET was_seen = excluded.was_seen"
    )
)
_DROP = Statement(delete(viewed_files).where(*_OF_PERSON, viewed_files.c.mark == bindparam("one")))


def viewed_by(tx: Tx, mission_id: int, person: str) -> dict[str, bool]:
    """The marks of what a person has viewed in a mission, each with whether all of it had been on the screen."""
    return {mark: bool(was_seen) for mark, was_seen in tx.rows(_FIND, mission=mission_id, who=person)}


def keep_viewed(tx: Tx, mission_id: int, person: str, mark: str, *, was_seen: bool) -> None:
    """Note that a person has viewed what has this mark."""
    tx.run(_KEEP, mission=mission_id, who=person, mark=mark, was_seen=int(was_seen))


def drop_viewed(tx: Tx, mission_id: int, person: str, mark: str) -> None:
    """Take such a note back; nothing happens without one."""
    tx.run(_DROP, mission=mission_id, who=person, one=mark)
