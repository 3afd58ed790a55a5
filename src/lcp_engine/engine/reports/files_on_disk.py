"""Compare the files that a mission has written with what is on the disk now (R9)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from pydantic import JsonValue

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root import Root
from lcp_engine.store.queries.mission_facts import Facts, Object

AS_WRITTEN, CHANGED, GONE = "as_written", "changed_since", "gone"
_CHUNK = 1 << 20
T = TypeVar("T")


class Look(Protocol):
    """Calls what only reads beneath a root, and returns what that does."""

    def __call__(self, root: Root, work: Callable[[], T], /) -> T: ...


def _here(root: Root, work: Callable[[], T], /) -> T:
    return work()


def compared(facts: Facts, look: Look = _here) -> Facts:
    """The facts, where each of `files` says in `disk` how it is now: `as_written`, `changed_since`, `gone`.

    None where that cannot be told: the root is not on this machine, or the file may not be read.
    """
    path = facts.mission["root"]
    found = on_disk(facts.files.rows, path, look) if isinstance(path, str) and facts.files.rows else {}
    rows = [{**row, "disk": found.get(str(row["path"]))} for row in facts.files.rows]
    return replace(facts, files=replace(facts.files, rows=rows))


def on_disk(rows: Sequence[Object], path: str, look: Look = _here) -> dict[str, str | None]:
    """What became of files of the root `path`: `path`, `size_bytes` and `sha256` of each row are what was written."""
    try:
        root = Root(path)
    except LcpError:
        return {}
    with root:
        if root.path != path:  # a link stands there now, and leads elsewhere
            return {}
        return look(root, lambda: {
            str(row["path"]): _look(root, str(row["path"]), row["size_bytes"], row["sha256"]) for row in rows
        })  # fmt: skip


def _look(root: Root, path: str, size: JsonValue, sha256: JsonValue) -> str | None:
    try:
        opened = root.open_file(path)
    except LcpError as error:
        return {ErrorCode.PATH_NOT_FOUND: GONE, ErrorCode.NOT_A_FILE: CHANGED}.get(error.code)
    try:
        if opened.size != size:
            return CHANGED
        return AS_WRITTEN if _hash(opened.descriptor) == sha256 else CHANGED
    except OSError:
        return None
    finally:
        os.close(opened.descriptor)


def _hash(descriptor: int) -> str:
    found = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK):
        found.update(chunk)
    return found.hexdigest()
