"""Store what is remembered of roots: roots, entries, and how many each root has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    bindparam,
    delete,
    insert,
    literal_column,
    select,
    text,
    update,
)

from lcp_engine.clock import Micros
from lcp_engine.features.memory.entries import MOST_ENTRIES, Entry, within_root
from lcp_engine.sandbox.root_identity import RootIdentity, is_same_place
from lcp_engine.store.conditions import EXPIRING, TERMS_ON_POSTGRES
from lcp_engine.store.db.json_text import storable, to_json
from lcp_engine.store.db.statements import NewRow, Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import Id, counter, metadata, partial_index

memory_roots = Table(
    "memory_roots",
    metadata,
    Column("id", Id, primary_key=True),
    Column("path", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("identity", Text),
    counter("entries"),
    UniqueConstraint("path", "machine"),
    Index("ix_memory_roots_identity", "identity"),
)
"""The roots of which something is remembered: where each was last, on which machine (empty if only one has the
database), and which directory it is, if that is known. `entries` counts those of `memories`."""

_TERMS_ON_SQLITE = (
    """CREATE VIRTUAL TABLE memory_terms
    USING fts5(terms, content='memories', content_rowid='id', detail='none', columnsize=0, tokenize='ascii')""",
    """CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
    """CREATE TRIGGER memories_removed AFTER DELETE ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms); END""",
    """CREATE TRIGGER memories_changed AFTER UPDATE OF terms ON memories BEGIN
    INSERT INTO memory_terms (memory_terms, rowid, terms) VALUES ('delete', old.id, old.terms);
    INSERT INTO memory_terms (rowid, terms) VALUES (new.id, new.terms); END""",
)
_INDEX_OF_TERMS = {
    "sqlite": _TERMS_ON_SQLITE,
    "postgresql": (f"CREATE INDEX ix_memories_terms ON memories USING gin ({TERMS_ON_POSTGRES})",),
}
"""The index of the terms of memories by database, which metadata cannot describe."""

# SQLite would give the number of an entry that is gone to another one.
memories = Table(
    "memories",
    metadata,
    Column("id", Id, primary_key=True),
    Column("uid", Text, nullable=False, unique=True),
    Column("root_id", ForeignKey("memory_roots.id"), nullable=False),
    Column("title", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column("size", Integer, nullable=False),
    Column("tags", Text, nullable=False),
    Column("files", Text, nullable=False),
    Column("related", Text, nullable=False),
    Column("terms", Text, nullable=False),
    Column("importance", SmallInteger, nullable=False),
    Column("source", Text, nullable=False),
    Column("author", Text),
    Column("mission_id", ForeignKey("missions.id"), index=True),
    Column("job_id", Id),
    Column("fingerprint", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    UniqueConstraint("root_id", "fingerprint"),
    CheckConstraint("importance BETWEEN 1 AND 10", name="importance"),
    Index("ix_memories_newest", "root_id", "id"),
    Index("ix_memories_important", "root_id", "importance", "id"),
    partial_index("ix_memories_expiring", "expires_at", where=EXPIRING),
    sqlite_autoincrement=True,
    info=_INDEX_OF_TERMS,
)
"""What is remembered of a root (memory.md). `size`: characters of title and content. `tags`, `files` and `related` are
lists in JSON, `terms` what finds the entry, separated by spaces. The job that it is from may be pruned."""

MOST_EXPIRED = 1_000
"""Entries that are removed at once when a root is full, or expired ones are asked to go."""


@dataclass(frozen=True)
class RootRow:
    """A root of which something is remembered."""

    id: int
    path: str
    machine: str
    identity: str | None
    entries: int


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where an entry is from: a person, or a job of a mission; or another database, with its id and times there."""

    author: str | None = None
    mission_id: int | None = None
    job_id: int | None = None
    uid: str | None = None
    created_at: Micros | None = None
    updated_at: Micros | None = None


_ROOT = select(
    memory_roots.c.id,
    memory_roots.c.path,
    memory_roots.c.machine,
    memory_roots.c.identity,
    memory_roots.c.entries,
)
_ROOTS_AT = Statement(_ROOT.where(memory_roots.c.path == bindparam("wanted")).order_by(memory_roots.c.id))
_ROOTS_LIKE = Statement(
    _ROOT.where(memory_roots.c.identity == bindparam("known")).order_by(memory_roots.c.id)
)
_NEW_ROOT = Statement(
    text(
        "INSERT INTO memory_roots (path, machine, identity) VALUES (:path, :machine, :identity) ON CONFLICT DO NOTHING"
    )
)
_MOVE_ROOT = Statement(
    text(
        "UPDATE memory_roots SET path = :path, machine = :machine, identity = :identity WHERE id = :id AND NOT EXISTS "
        "(SELECT 1 FROM memory_roots o WHERE o.path = :path AND o.machine = :machine AND o.id <> :id)"
    )
)
# It locks the row: of two entries with the same words at the same moment, one waits for the other.
_COUNT = Statement(
    update(memory_roots)
    .where(
        memory_roots.c.id == bindparam("root"),
        memory_roots.c.entries + bindparam("more") <= bindparam("most"),
    )
    .values(entries=memory_roots.c.entries + bindparam("more"))
)
_SAME = Statement(
    select(memories.c.id, memories.c.expires_at).where(
        memories.c.root_id == bindparam("root"), memories.c.fingerprint == bindparam("words")
    )
)
_GIVEN = (
    "uid", "root_id", "title", "content", "size", "tags", "files", "related", "terms", "importance", "source", "author",
    "mission_id", "job_id", "fingerprint", "created_at", "updated_at", "expires_at",
)  # fmt: skip
_INSERT = NewRow(insert(memories).values({name: bindparam(name) for name in _GIVEN}), memories.c.id)
_CHANGED = (
    "title", "content", "size", "tags", "files", "related", "terms", "importance", "source", "fingerprint",
    "updated_at", "expires_at",
)  # fmt: skip
_UPDATE = Statement(
    update(memories)
    .where(memories.c.id == bindparam("entry"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGED})
)
_REFRESH = Statement(
    update(memories)
    .where(memories.c.id == bindparam("entry"))
    .values(updated_at=bindparam("new_updated_at"), expires_at=bindparam("new_expires_at"))
)
_REMOVE = Statement(delete(memories).where(memories.c.id == bindparam("entry")))
_SOME = select(memories.c.id).order_by(memories.c.id).limit(literal_column(str(MOST_EXPIRED)))
_SOME_OF_ROOT = Statement(_SOME.where(memories.c.root_id == bindparam("root")).offset(literal_column("0")))
_SOME_EXPIRED = Statement(
    select(memories.c.id, memories.c.root_id)
    .where(text("expires_at IS NOT NULL"), memories.c.expires_at <= bindparam("now"))
    .order_by(memories.c.expires_at)
    .limit(literal_column(str(MOST_EXPIRED)))
    .offset(literal_column("0"))
)


def find_root(tx: Tx, path: str, identity: RootIdentity | None) -> RootRow | None:
    """The root that is this directory, wherever it was last, or else the one that was at this path.

    On PostgreSQL the path means nothing on another machine, unless the directory can be recognised there.
    """
    if identity is not None and (alike := tx.rows(_ROOTS_LIKE, known=identity.text)):
        return RootRow(*alike[0])
    known = None if identity is None else identity.text
    for row in (RootRow(*found) for found in tx.rows(_ROOTS_AT, wanted=path)):
        if tx.is_sqlite or is_same_place(row.identity, known):
            return row
    return None


def open_root(tx: Tx, path: str, identity: RootIdentity | None) -> RootRow:
    """Like `find_root`, but it is created if it is not known; one that is at another place now is stored there."""
    text_ = None if identity is None else identity.text
    machine = "" if tx.is_sqlite or identity is None else identity.machine
    row = find_root(tx, path, identity)
    if row is None:
        tx.run(_NEW_ROOT, path=path, machine=machine, identity=text_)
        row = find_root(tx, path, identity)
        assert row is not None, path
    elif text_ is not None and (row.path, row.identity) != (path, text_):
        tx.run(_MOVE_ROOT, id=row.id, path=path, machine=machine, identity=text_)
    return row


def add_entry(tx: Tx, root_id: int, entry: Entry, origin: Origin) -> int | None:
    """Store an entry; its number. None if the root is full.

    One with the same words that is there already counts as new again.
    """
    if (known := _refresh(tx, root_id, entry)) is not None:
        return known
    if not (_take_place(tx, root_id) or (remove_expired(tx, root_id) and _take_place(tx, root_id))):
        return None
    # The row of the root is locked by now: what another transaction has stored meanwhile can be seen.
    if (known := _refresh(tx, root_id, entry)) is not None:
        tx.run(_COUNT, root=root_id, more=-1, most=MOST_ENTRIES)
        return known
    at = tx.now if origin.created_at is None else origin.created_at
    row = {
        "uid": origin.uid or f"mem-{uuid4()}",
        "root_id": root_id,
        "author": origin.author,
        "mission_id": origin.mission_id,
        "job_id": origin.job_id,
        "created_at": at,
        "updated_at": tx.now if origin.updated_at is None else origin.updated_at,
    }
    return tx.insert(_INSERT, {**_columns(entry, root_id), **row})


def change_entry(tx: Tx, number: int, root_id: int, entry: Entry, updated_at: Micros | None = None) -> None:
    """Replace what an entry says; the change is of now, or of another time."""
    values = {**_columns(entry, root_id), "updated_at": tx.now if updated_at is None else updated_at}
    tx.run(_UPDATE, entry=number, **{f"new_{name}": values[name] for name in _CHANGED})


def find_same(tx: Tx, root_id: int, entry: Entry) -> int | None:
    """The entry of a root with the same words."""
    row = tx.row(_SAME, root=root_id, words=entry.fingerprint)
    return None if row is None else int(row[0])


def remove_entry(tx: Tx, number: int, root_id: int) -> bool:
    """Forget an entry. False if it is gone."""
    gone = tx.run(_REMOVE, entry=number) == 1
    if gone:
        tx.run(_COUNT, root=root_id, more=-1, most=MOST_ENTRIES)
    return gone


def remove_some(tx: Tx, root_id: int) -> int:
    """Forget some entries of a root, the oldest first; how many."""
    return sum(remove_entry(tx, row[0], root_id) for row in tx.rows(_SOME_OF_ROOT, root=root_id))


def remove_expired(tx: Tx, root_id: int | None = None) -> int:
    """Forget some entries that have expired, of any root or of this one; how many."""
    rows = tx.rows(_SOME_EXPIRED, now=tx.now)
    return sum(remove_entry(tx, entry, root) for entry, root in rows if root_id in (None, root))


def _take_place(tx: Tx, root_id: int) -> bool:
    return tx.run(_COUNT, root=root_id, more=1, most=MOST_ENTRIES) == 1


def _refresh(tx: Tx, root_id: int, entry: Entry) -> int | None:
    """Make the entry with the same words as new as if it were stored now; its number, None if there is none."""
    row = tx.row(_SAME, root=root_id, words=entry.fingerprint)
    if row is None:
        return None
    number, expires = row
    later = None if expires is None or entry.expires_at is None else max(int(expires), entry.expires_at)
    tx.run(_REFRESH, entry=number, new_updated_at=tx.now, new_expires_at=later)
    return int(number)


def _columns(entry: Entry, root_id: int) -> dict[str, object]:
    title, content = storable(entry.title), storable(entry.content)
    return {
        "title": title,
        "content": content,
        "size": len(title) + len(content),
        "tags": _listed(entry.tags),
        "files": _listed(entry.files),
        "related": _listed(entry.related),
        "terms": " ".join(within_root(root_id, term) for term in entry.terms),
        "importance": entry.importance,
        "source": storable(entry.source),
        "fingerprint": entry.fingerprint,
        "expires_at": entry.expires_at,
    }


def _listed(values: Sequence[str]) -> str:
    return to_json([storable(value) for value in values])
