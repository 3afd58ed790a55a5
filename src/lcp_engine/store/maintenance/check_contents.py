"""Read every stored content again, and compare it with its hash and size."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator

from sqlalchemy import bindparam, func, select

from lcp_engine.store.changes import sha256
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import blobs, results

_PIECE = 1 << 20
_SOME = 1000
_NEXT = Statement(
    select(blobs.c.sha256, blobs.c.size, func.length(blobs.c.data))
    .where(blobs.c.sha256 > bindparam("after"))
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


def content_faults(tx: Tx, kept_bytes: int | None) -> Iterator[str]:
    """Results and contents that are not what their hash says, or not there though they have at most `kept_bytes`.

    One content is in memory at a time, as it is stored.
    """
    yield from _result_faults(tx)
    after = ""
    while True:
        rows = tx.rows(_NEXT, after=after, most=_SOME, none=0)
        for sha, size, stored in rows:
            yield from _content_fault(tx, sha, size, stored) if stored else _absent(sha, size, kept_bytes)
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


def _content_fault(tx: Tx, sha: str, size: int, stored: int) -> Iterator[str]:
    row = tx.row(_DATA, hash=sha)
    assert row is not None
    try:
        found, length = _measure(row[0])
    except zlib.error as error:
        yield f"content {sha}: its {stored} stored bytes cannot be read: {error}"
        return
    if found != sha:
        yield f"content {sha}: it should have this SHA-256; what is stored has {found}"
    elif length != size:
        yield f"content {sha}: it should have {size} bytes; what is stored has {length}"


def _measure(data: bytes) -> tuple[str, int]:
    """SHA-256 and length of what was compressed, piece by piece. Raises `zlib.error`."""
    reader, digest, length = zlib.decompressobj(), hashlib.sha256(), 0
    rest = data
    while not reader.eof:
        piece = reader.decompress(rest, _PIECE)
        rest = reader.unconsumed_tail
        if not piece and not rest and not reader.eof:
            message = "it is cut short"
            raise zlib.error(message)
        digest.update(piece)
        length += len(piece)
    return digest.hexdigest(), length
