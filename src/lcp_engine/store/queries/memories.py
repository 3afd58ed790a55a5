"""Find what is remembered of roots. Needs no SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import JsonObject, list_in
from lcp_engine.core.memory import Entry, file_term, root_term, tag_term, words_of
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.sql import Sql
from lcp_engine.store.db.transaction import Row, Tx

Key: TypeAlias = int | str
PAGE = 200
"""Entries that are read at once."""


@dataclass(frozen=True)
class MemoryRow:
    """An entry as it is stored, with the path of its root."""

    id: int
    uid: str
    root_id: int
    root: str
    entry: Entry
    author: str | None
    mission_id: int | None
    job_id: int | None
    created_at: Micros
    updated_at: Micros


@dataclass(frozen=True)
class Wanted:
    """Which entries: of a root, with a tag, about a file, with all words of a text."""

    root_id: int | None = None
    tag: str | None = None
    file: str | None = None
    text: str | None = None

    @property
    def terms(self) -> list[str]:
        """The terms that an entry has to have."""
        tags = [] if self.tag is None else [tag_term(self.tag)]
        files = [] if self.file is None else [file_term(self.file)]
        return [*tags, *files, *dict.fromkeys(words_of(self.text or ""))]


class ByTerms:
    """A query with `{terms}` for the condition that an entry has all terms of the param `terms`."""

    def __init__(self, text: str, **types: type[int | str]) -> None:
        named = {**types, "terms": str}
        self._sqlite = Sql(
            text.replace(
                "{terms}", "m.id IN (SELECT rowid FROM memory_terms WHERE memory_terms MATCH :terms)"
            ),
            **named,
        )
        self._postgresql = Sql(
            text.replace("{terms}", "array_to_tsvector(string_to_array(m.terms, ' ')) @@ :terms::tsquery"),
            **named,
        )

    def sql(self, database: str) -> str:
        return (self._sqlite if database == "sqlite" else self._postgresql).sql(database)


def all_terms(tx: Tx, terms: Sequence[str]) -> str:
    """The value of `terms`, each of letters and digits alone, for entries that have all of them."""
    return (" AND " if tx.is_sqlite else " & ").join(
        f'"{term}"' if tx.is_sqlite else f"'{term}'" for term in terms
    )


_COLUMNS = (
    "m.id, m.uid, m.root_id, r.path, m.title, m.content, m.tags, m.files, m.importance, m.source, m.related, "
    "m.expires_at, m.author, m.mission_id, m.job_id, m.created_at, m.updated_at"
)
_FROM = f"SELECT {_COLUMNS} FROM memories m JOIN memory_roots r ON r.id = m.root_id"
_BY_ID = Sql(f"{_FROM} WHERE m.id = :wanted", wanted=int)
_BY_UID = Sql(f"{_FROM} WHERE m.uid = :wanted", wanted=str)
_BEFORE = f"{_FROM} WHERE m.id < :before"
_LAST = "ORDER BY m.id DESC LIMIT :most"
_NEWEST = Sql(f"{_BEFORE} {_LAST}", before=int, most=int)
_NEWEST_OF_ROOT = Sql(f"{_BEFORE} AND m.root_id = :root {_LAST}", before=int, root=int, most=int)
_NEWEST_WITH = ByTerms(f"{_BEFORE} AND {{terms}} {_LAST}", before=int, most=int)
_ROOTS = Sql("SELECT id, path, entries FROM memory_roots WHERE entries > 0 ORDER BY path, id")
_NAMED = Sql(
    "SELECT m.root, m.spec FROM missions m WHERE m.pruned_at IS NULL AND m.root IN (SELECT path FROM memory_roots) "
    "ORDER BY m.id DESC LIMIT :most",
    most=int,
)


def find_entry(tx: Tx, key: Key) -> MemoryRow:
    """The entry with a number or an id. Raises `NOT_FOUND`."""
    row = tx.row(_BY_ID if isinstance(key, int) else _BY_UID, wanted=key)
    if row is None:
        message = f"memory {key} is not in the database"
        raise LcpError(ErrorCode.NOT_FOUND, message, advice="`lcp memory list` shows what is remembered.")
    return _read(row)


def find_by_uid(tx: Tx, uid: str) -> MemoryRow | None:
    """The entry with an id."""
    row = tx.row(_BY_UID, wanted=uid)
    return None if row is None else _read(row)


def find_entries(tx: Tx, wanted: Wanted, *, before: int | None = None, most: int = PAGE) -> list[MemoryRow]:
    """Entries, the newest first; with `before` those with a lower number."""
    params = {"before": 2**62 if before is None else before, "most": most}
    terms = wanted.terms
    if terms:
        of_root = [] if wanted.root_id is None else [root_term(wanted.root_id)]
        found = tx.rows(_NEWEST_WITH, terms=all_terms(tx, [*of_root, *terms]), **params)
    elif wanted.root_id is not None:
        found = tx.rows(_NEWEST_OF_ROOT, root=wanted.root_id, **params)
    else:
        found = tx.rows(_NEWEST, **params)
    return [_read(row) for row in found]


def known_roots(tx: Tx) -> list[tuple[int, str, int]]:
    """The number and the path of each root of which something is remembered, and how many entries it has."""
    return [(row[0], row[1], row[2]) for row in tx.rows(_ROOTS)]


def root_with_alias(tx: Tx, alias: str, most: int = 200) -> str | None:
    """The root that one of the newest missions over it calls by another name (R22)."""
    for root, spec in tx.rows(_NAMED, most=most):
        if alias in list_in(from_json(spec).get("root_aliases")):
            return str(root)
    return None


def entry_json(row: MemoryRow) -> JsonObject:
    """The entry as a MemoryEntry; an optional key that has no value is left out."""
    entry = row.entry
    metadata: JsonObject = {
        "source": entry.source,
        "associated_files": [*entry.files],
        "importance": entry.importance,
        "root": row.root,
        "author": row.author,
        "mission_id": row.mission_id,
        "job_id": row.job_id,
        "expires_at": None if entry.expires_at is None else iso(entry.expires_at),
    }
    return {
        "id": row.uid,
        "number": row.id,
        "title": entry.title,
        "content": entry.content,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "tags": [*entry.tags],
        "metadata": {key: value for key, value in metadata.items() if value not in (None, [])},
        **({"related_memories": [*entry.related]} if entry.related else {}),
    }


def _read(row: Row) -> MemoryRow:
    (
        number, uid, root_id, root, title, content, tags, files, importance, source, related, expires_at, author,
        mission_id, job_id, created_at, updated_at,
    ) = row  # fmt: skip
    entry = Entry(
        title=title,
        content=content,
        tags=_texts(tags),
        files=_texts(files),
        importance=importance,
        source=source,
        related=_texts(related),
        expires_at=expires_at,
    )
    return MemoryRow(number, uid, root_id, root, entry, author, mission_id, job_id, created_at, updated_at)


def _texts(stored: str) -> tuple[str, ...]:
    return tuple(map(str, list_in(json.loads(stored))))
