"""Find what is remembered of roots. Needs no SQLAlchemy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from lcp_engine.clock import Micros, iso
from lcp_engine.core.json_values import JsonObject, list_in
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.memory.choice import IMPORTANT, MOST_CUES, MOST_MATCHES, MOST_RECENT, Found, Match
from lcp_engine.features.memory.entries import Entry, file_term, tag_term, within_root, words_of
from lcp_engine.sandbox.root_identity import is_same_place
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
    """A query with `{memories}` for the table, as m, and `{terms}` for the condition that an entry has all `terms`.

    `{id}` is the number of the entry. SQLite's index gives its rows in their order, and only as many as are read.
    """

    def __init__(self, text: str, **types: type[int | str]) -> None:
        named = {**types, "terms": str}
        self._sqlite = Sql(
            text.replace("{memories}", "memory_terms CROSS JOIN memories m ON m.id = memory_terms.rowid")
            .replace("{terms}", "memory_terms MATCH :terms")
            .replace("{id}", "memory_terms.rowid"),
            **named,
        )
        self._postgresql = Sql(
            text.replace("{memories}", "memories m")
            .replace("{terms}", "array_to_tsvector(string_to_array(m.terms, ' ')) @@ :terms::tsquery")
            .replace("{id}", "m.id"),
            **named,
        )

    def sql(self, database: str) -> str:
        return (self._sqlite if database == "sqlite" else self._postgresql).sql(database)


def all_terms(tx: Tx, root_id: int, terms: Iterable[str]) -> str:
    """The value of `terms` for entries of a root that have all of these, each of letters and digits alone."""
    own = [within_root(root_id, term) for term in terms]
    return " AND ".join(f'"{one}"' for one in own) if tx.is_sqlite else " & ".join(f"'{one}'" for one in own)


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
_NEWEST_WITH = ByTerms(
    f"SELECT {_COLUMNS} FROM {{memories}} JOIN memory_roots r ON r.id = m.root_id WHERE {{terms}} AND {{id}} < :before "
    "ORDER BY {id} DESC LIMIT :most",
    before=int,
    most=int,
)
_ROOTS = Sql("SELECT id, path, entries FROM memory_roots WHERE entries > 0 ORDER BY path, id")
_NAMED = Sql(
    "SELECT m.root, m.spec FROM missions m WHERE m.pruned_at IS NULL AND m.root IN (SELECT path FROM memory_roots) "
    "ORDER BY m.id DESC LIMIT :most",
    most=int,
)

_OF_MISSION = Sql(
    "SELECT r.id, r.path, r.identity, m.root, m.root_identity FROM missions m JOIN memory_roots r "
    "ON r.path = m.root OR r.identity = m.root_identity WHERE m.id = :mission AND r.entries > 0 ORDER BY r.id",
    mission=int,
)
_MATCH = "m.id, m.importance, m.updated_at, m.size, m.files"
# What the mission itself has found out is in its history.
_SHOWABLE = (
    "(m.expires_at IS NULL OR m.expires_at > :now) AND (m.mission_id IS NULL OR m.mission_id <> :mission)"
)
_MATCHES = ByTerms(
    f"SELECT {_MATCH} FROM {{memories}} WHERE {{terms}} AND {_SHOWABLE} ORDER BY {{id}} DESC LIMIT :most",
    now=int,
    mission=int,
    most=int,
)
_OF_ROOT = f"SELECT {_MATCH} FROM memories m WHERE m.root_id = :root AND {_SHOWABLE}"
_IMPORTANT = Sql(
    f"{_OF_ROOT} AND m.importance >= :least ORDER BY m.importance DESC, m.id DESC LIMIT :most",
    root=int,
    now=int,
    mission=int,
    least=int,
    most=int,
)
_RELATED = Sql(f"{_OF_ROOT} AND m.uid = :uid", root=int, now=int, mission=int, uid=str)
_RECENT = Sql(f"{_OF_ROOT} ORDER BY m.id DESC LIMIT :most", root=int, now=int, mission=int, most=int)


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
    if wanted.terms:
        roots = [root for root, _, _ in known_roots(tx)] if wanted.root_id is None else [wanted.root_id]
        each = (tx.rows(_NEWEST_WITH, terms=all_terms(tx, root, wanted.terms), **params) for root in roots)
        found = sorted(chain.from_iterable(each), key=lambda row: -int(row[0]))[:most]
    elif wanted.root_id is not None:
        found = tx.rows(_NEWEST_OF_ROOT, root=wanted.root_id, **params)
    else:
        found = tx.rows(_NEWEST, **params)
    return [_read(row) for row in found]


def known_roots(tx: Tx) -> list[tuple[int, str, int]]:
    """The number and the path of each root of which something is remembered, and how many entries it has."""
    return [(row[0], row[1], row[2]) for row in tx.rows(_ROOTS)]


def root_of_mission(tx: Tx, mission_id: int) -> int | None:
    """The number of the mission's root if something is remembered of it."""
    rows = tx.rows(_OF_MISSION, mission=mission_id)
    alike = [row for row in rows if row[2] is not None and row[2] == row[4]]
    here = [row for row in rows if row[1] == row[3] and (tx.is_sqlite or is_same_place(row[2], row[4]))]
    return next((int(row[0]) for row in (*alike, *here)), None)


def find_matches(tx: Tx, root_id: int, cues: Iterable[str], *, mission_id: int) -> Found:
    """Entries that each cue finds in a root, without what the mission itself has found out."""
    own = {"now": tx.now, "mission": mission_id}
    asked = {
        cue: tx.ask(_MATCHES, terms=all_terms(tx, root_id, [cue]), most=MOST_MATCHES, **own) for cue in cues
    }
    important = tx.ask(_IMPORTANT, root=root_id, least=IMPORTANT, most=MOST_MATCHES, **own)
    newest = tx.rows(_RECENT, root=root_id, most=MOST_RECENT, **own)
    return Found(
        {cue: _matches(rows()) for cue, rows in asked.items()}, _matches(important()), _matches(newest)
    )


def find_related(tx: Tx, root_id: int, rows: Sequence[MemoryRow], *, mission_id: int) -> list[Match]:
    """Entries of the same root that these name as related, at most `MOST_CUES`."""
    uids = [*dict.fromkeys(uid for row in rows for uid in row.entry.related)][:MOST_CUES]
    own = {"root": root_id, "now": tx.now, "mission": mission_id}
    asked = [tx.ask(_RELATED, uid=uid, **own) for uid in uids]
    return [match for found in asked for match in _matches(found())]


def find_shown(tx: Tx, numbers: Sequence[int]) -> list[MemoryRow]:
    """Entries in this order."""
    asked = [tx.ask(_BY_ID, wanted=number) for number in numbers]
    return [_read(row) for rows in asked for row in rows()]


def _matches(rows: Sequence[Row]) -> list[Match]:
    return [
        Match(number, importance, updated_at, size, _texts(files))
        for number, importance, updated_at, size, files in rows
    ]


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
