"""Check that a database is intact, and measure its tables; nothing is changed."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

from sqlalchemy import bindparam, func, select

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.check.store.history import history_faults
from lcp_engine.features.check.store.rows import broken_rules
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.open import opened, tables_of, version_of
from lcp_engine.store.db.sqlite import BUSY_SECONDS, OTHER_DATABASE
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.schema import blobs, every_table, results
from lcp_engine.store.version import HEAD

MOST_FAULTS = 100


@dataclass(frozen=True)
class TableSize:
    """The size of a table; bytes with its indexes, None if the database cannot measure them."""

    name: str
    rows: int
    bytes: int | None


def check_database(
    url: str,
    busy_seconds: float = BUSY_SECONDS,
    *,
    kept_bytes: int | None = None,
    is_stopping: Callable[[], bool] | None = None,
) -> list[str]:
    """The faults of the database, a sentence each, at most `MOST_FAULTS`; others may use it meanwhile.

    `kept_bytes` is the size up to which contents that are replaced are kept. Raises `DATABASE_FAILED` if there is no
    database, or, with SQLite, once it `is_stopping`.
    """
    with opened(url, busy_seconds, is_stopping) as database:
        broken = database.read(_broken_pages)
        if broken:
            return broken
        version = database.read(version_of)
        if version is None:
            return ["the database is empty; one of lcp-engine is expected"]
        if version != HEAD:
            way = "`lcp db upgrade` brings it there" if version < HEAD else "a newer engine reads it"
            return [f"the database is at version {version!r}, this engine at {HEAD!r}: {way}"]
        return database.read(lambda tx: faults_in(tx, kept_bytes))


def faults_in(tx: Tx, kept_bytes: int | None = None) -> list[str]:
    """Like `check_database` for a database that is open and whose pages are whole."""
    found = chain(broken_rules(tx), history_faults(tx), content_faults(tx, kept_bytes))
    return [*islice(found, MOST_FAULTS)]


def try_writing(url: str, busy_seconds: float = BUSY_SECONDS) -> None:
    """Begin and end a transaction that could write. Raises `DATABASE_BUSY` or `DATABASE_FAILED` if none can."""
    with opened(url, busy_seconds) as database:
        database.write(lambda tx: None)


def measure(url: str, busy_seconds: float = BUSY_SECONDS) -> list[TableSize]:
    """The size of every table. Raises `DATABASE_FAILED` if there is no database."""
    with opened(url, busy_seconds) as database:
        return database.read(_sizes)


def _broken_pages(tx: Tx) -> list[str]:
    if not tx.is_sqlite:
        return []
    found = [str(row[0]) for row in tx.query_plain(f"PRAGMA integrity_check({MOST_FAULTS})")]
    return [] if found == ["ok"] else [f"the file is damaged: {fault}" for fault in found]


def _sizes(tx: Tx) -> list[TableSize]:
    if version_of(tx) is None:
        raise LcpError(
            ErrorCode.DATABASE_VERSION,
            "the database is empty; one of lcp-engine is expected",
            advice=OTHER_DATABASE,
        )
    taken, there = _bytes(tx), set(tables_of(tx))
    return [
        TableSize(table.name, tx.query(select(func.count()).select_from(table))[0][0], taken.get(table.name))
        for table in every_table()
        if table.name in there
    ]


def _bytes(tx: Tx) -> dict[str, int]:
    if not tx.is_sqlite:
        sql = "SELECT relname, pg_total_relation_size(oid) FROM pg_class WHERE relkind = 'r'"
        return {str(name): int(size) for name, size in tx.query_plain(sql)}
    if not tx.query_plain("SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"):
        return {}  # SQLite may be built without it
    sql = "SELECT m.tbl_name, sum(s.pgsize) FROM dbstat s JOIN sqlite_master m ON m.name = s.name GROUP BY 1"
    return {str(name): int(size) for name, size in tx.query_plain(sql)}


_PIECE = 1 << 20
_SOME = 1000
_NEXT = Statement(
    select(blobs.c.sha256, blobs.c.size, func.length(blobs.c.data))
    .where(blobs.c.sha256 > bindparam("after"), blobs.c.base.is_(None))
    .order_by(blobs.c.sha256)
    .limit(bindparam("most"))
    .offset(bindparam("none"))
)
_NEXT_RESULT = Statement(
    select(results.c.sha256, results.c.size, results.c.text)
    .where(results.c.sha256 > bindparam("after"))
    .order_by(results.c.sha256)
    .limit(bindparam("most"))
    .offset(bindparam("none"))
)
_DATA = Statement(select(blobs.c.data).where(blobs.c.sha256 == bindparam("hash")))
_STORED_ON = Statement(select(blobs.c.sha256, blobs.c.size).where(blobs.c.base == bindparam("hash")))
_WITHOUT_BASE = (
    "SELECT d.sha256, d.base FROM blobs d LEFT JOIN blobs b ON b.sha256 = d.base "
    "WHERE d.base IS NOT NULL AND (b.sha256 IS NULL OR length(b.data) = 0) ORDER BY d.sha256"
)


def content_faults(tx: Tx, kept_bytes: int | None) -> Iterator[str]:
    """Results and contents that are not what their hash says, or not there though they have at most `kept_bytes`.

    One content is in memory at a time, as it is stored.
    """
    yield from _result_faults(tx)
    for sha, base in tx.query_plain(_WITHOUT_BASE):
        yield f"content {sha}: it follows the content {base}, of which nothing is stored"
    after = ""
    while True:
        rows = tx.rows(_NEXT, after=after, most=_SOME, none=0)
        for sha, size, stored in rows:
            yield from _content_fault(tx, sha, size) if stored else _absent(sha, size, kept_bytes)
        if len(rows) < _SOME:
            return
        after = rows[-1][0]


def _result_faults(tx: Tx) -> Iterator[str]:
    after = ""
    while (row := tx.row(_NEXT_RESULT, after=after, most=1, none=0)) is not None:
        after, size, told = row
        found = told.encode()
        if (sha256(found), len(found)) != (after, size):
            yield f"result {after}: it should have this SHA-256 and {size} bytes; what is stored has {sha256(found)}"


def _absent(sha: str, size: int, kept_bytes: int | None) -> Iterator[str]:
    if kept_bytes is not None and size <= kept_bytes:
        caps = f"up to {kept_bytes} are (caps.preimage_bytes)"
        yield f"content {sha}: its {size} bytes should be kept, as all {caps}; none is"


def _content_fault(tx: Tx, sha: str, size: int) -> Iterator[str]:
    """Faults of a content, and of all that are stored as what follows it."""
    pending: list[tuple[str, int, _Measured]] = [(sha, size, _Measured(hashlib.sha256(), 0))]
    while pending:
        sha, size, before = pending.pop()
        row = tx.row(_DATA, hash=sha)
        assert row is not None
        try:
            found = _measure(row[0], before)
        except zlib.error as error:
            yield f"content {sha}: its {len(row[0])} stored bytes cannot be read: {error}"
            continue
        if found.sha256 != sha:
            yield f"content {sha}: it should have this SHA-256; what is stored has {found.sha256}"
        elif found.size != size:
            yield f"content {sha}: it should have {size} bytes; what is stored has {found.size}"
        pending += [(after, length, found) for after, length in tx.rows(_STORED_ON, hash=sha)]


class _Measured(NamedTuple):
    """The hash and the length of a content up to its end."""

    digest: hashlib._Hash
    size: int

    @property
    def sha256(self) -> str:
        return self.digest.hexdigest()


def _measure(data: bytes, before: _Measured) -> _Measured:
    """Measure what follows `before`, decompressed piece by piece. Raises `zlib.error`."""
    reader, digest, length = zlib.decompressobj(), before.digest.copy(), before.size
    rest = data
    while not reader.eof:
        piece = reader.decompress(rest, _PIECE)
        rest = reader.unconsumed_tail
        if not piece and not rest and not reader.eof:
            message = "it is cut short"
            raise zlib.error(message)
        digest.update(piece)
        length += len(piece)
    return _Measured(digest, length)
