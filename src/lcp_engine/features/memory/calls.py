"""What is remembered of roots, for programs: add, find, correct, forget, export, import."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.api.arguments import existing_directory
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.user import user_name
from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.protocol.actions import Findings
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, Json, LcpError
from lcp_engine.features.memory import remember as memory
from lcp_engine.features.memory.entries import (
    MOST_ENTRIES,
    USUAL_IMPORTANCE,
    USUAL_TAG,
    Entry,
    checked,
    entry_key,
    unknown_root,
)
from lcp_engine.features.memory.remember import Given, Imported, RootPlace
from lcp_engine.features.memory.store.memories import Origin, RootRow, find_root
from lcp_engine.features.memory.store.queries import (
    PAGE,
    MemoryRow,
    Wanted,
    entry_json,
    find_entries,
    find_entry,
    known_roots,
    root_with_alias,
)
from lcp_engine.features.universal.envelopes import MemoryEntry, MemoryMetadata
from lcp_engine.sandbox.root_identity import identity_at
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.transaction import Tx


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """An entry of memory as it was when it was read."""

    number: int
    """Its number in the database, from 1."""
    id: str
    """Its id in every database: `mem-` and a UUID."""
    root: str
    """The absolute path of the directory that it is about."""
    title: str
    content: str
    tags: tuple[str, ...]
    files: tuple[str, ...]
    """The files that it is about, relative to the root."""
    importance: int
    """From 1, low, to 10, high."""
    source: str
    """What kind of statement it is, such as `user_statement`."""
    author: str | None
    """Who said it; None if a mission found it out."""
    mission_id: int | None
    """The mission that found it out."""
    job_id: int | None
    """The job of that mission."""
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    """When it is forgotten; None if never."""
    json: JsonObject = field(repr=False)
    """The whole MemoryEntry, as `lcp memory show --json` prints it."""


@dataclass(frozen=True, kw_only=True)
class MemoryEdit:
    """What to change of an entry; None leaves it as it is."""

    title: str | None = None
    content: str | None = None
    tags: Sequence[str] | None = None
    files: Sequence[str] | None = None
    importance: int | None = None
    expires_at: datetime | None = None
    never_expires: bool = False


@dataclass(frozen=True)
class Memory:
    """What is remembered of roots; `Engine.memory` is one. Its methods may be called from any thread.

    A root is a directory, or the name that missions used for one: its path, or one of its aliases.
    """

    _instance: Instance

    def add(
        self,
        title: str,
        content: str,
        *,
        root: str | os.PathLike[str],
        tags: Sequence[str] = (),
        files: Sequence[str] = (),
        importance: int = USUAL_IMPORTANCE,
        expires_at: datetime | None = None,
        by: str | None = None,
    ) -> Remembered:
        """Remember something of the directory `root`; the entry, or the one with the same words.

        Raises `INVALID_ARGUMENT`, `PATH_NOT_FOUND`, `NOT_A_FILE`, `PATH_DENIED` for a file that may hold secrets, and
        `LIMIT_REACHED` for a root with 100,000 entries.
        """
        entry = Entry(
            title=title,
            content=content,
            tags=tuple(tags) or (USUAL_TAG,),
            files=_within(files, Path(root)),
            importance=importance,
            expires_at=None if expires_at is None else _micros(expires_at),
        )
        origin = Origin(author=by or user_name())
        return self.find(self._instance.write(memory.add, _place(root), entry, origin))

    def find(self, key: int | str) -> Remembered:
        """The entry with a number or an id. Raises `NOT_FOUND`, `INVALID_ARGUMENT`."""
        return _remembered(self._instance.read(find_entry, _key(key)))

    def entries(
        self,
        *,
        root: str | os.PathLike[str] | None = None,
        tag: str | None = None,
        file: str | None = None,
        text: str | None = None,
        before: int | None = None,
        limit: int | None = None,
    ) -> Iterator[Remembered]:
        """Entries that match every filter, the newest first: of a root, with a tag, about a file, with all words.

        With `before` those with a lower number.

        Raises `NOT_FOUND` for a root of which nothing is remembered.
        """
        root_id = None if root is None else self._instance.read(_known, root).id
        wanted, left = Wanted(root_id, tag, file, text), limit
        while left is None or left > 0:
            most = PAGE if left is None else min(PAGE, left)
            rows = self._instance.read(find_entries, wanted, before=before, most=most)
            yield from map(_remembered, rows)
            if len(rows) < most:
                return
            before, left = rows[-1].id, None if left is None else left - most

    def roots(self) -> dict[str, int]:
        """How many entries there are of each root, by its path."""
        found: dict[str, int] = {}
        for _, path, entries in self._instance.read(known_roots):
            found[path] = found.get(path, 0) + entries
        return found

    def edit(self, key: int | str, change: MemoryEdit, *, seen: datetime | None = None) -> Remembered:
        """Change an entry. Raises like `add`, `NOT_FOUND`, and `CONFLICT` if it was changed after `seen`."""
        row = self._instance.read(find_entry, _key(key))
        entry = row.entry
        expires = entry.expires_at if change.expires_at is None else _micros(change.expires_at)
        changed = replace(
            entry,
            title=entry.title if change.title is None else change.title,
            content=entry.content if change.content is None else change.content,
            tags=entry.tags if change.tags is None else tuple(change.tags),
            files=entry.files if change.files is None else _within(change.files, Path(row.root)),
            importance=entry.importance if change.importance is None else change.importance,
            expires_at=None if change.never_expires else expires,
        )
        shown = row.updated_at if seen is None else _micros(seen)
        self._instance.write(memory.edit, row.id, changed, seen=shown)
        return self.find(row.id)

    def forget(self, *keys: int | str) -> int:
        """Remove entries for good; how many. Raises `NOT_FOUND` before any is removed, `INVALID_ARGUMENT`."""
        return self._instance.write(memory.forget, [_key(key) for key in keys])

    def forget_root(self, root: str | os.PathLike[str]) -> int:
        """Remove everything that is remembered of a root; how many entries. Raises `NOT_FOUND`."""
        root_id, count = self._instance.read(_known, root).id, 0
        while gone := self._instance.write(memory.forget_some, root_id):
            count += gone
        return count

    def forget_expired(self) -> int:
        """Remove the entries that have expired; how many."""
        count = 0
        while gone := self._instance.write(memory.forget_expired):
            count += gone
        return count

    def take_in(
        self,
        entries: Iterable[Mapping[str, JsonValue]],
        *,
        root: str | os.PathLike[str],
        by: str | None = None,
    ) -> Imported:
        """Remember MemoryEntry objects of the directory `root`, all of them or none.

        One whose id is known takes the place of that entry. Raises `INVALID_ARGUMENT` that names the entry by its
        position, from 1, and the field; and like `add`.
        """
        given: list[Given] = []
        for number, one in enumerate(entries, 1):
            if number > MOST_ENTRIES:
                message = f"entry {number:,}: at most {MOST_ENTRIES:,} entries are kept of a root"
                raise LcpError(ErrorCode.LIMIT_REACHED, message, advice="Import the most important ones.")
            given.append(_given(f"entry {number}", one))
        return self._instance.write(memory.take_in, _place(root), given, Origin(author=by or user_name()))


def _remembered(row: MemoryRow) -> Remembered:
    entry = row.entry
    return Remembered(
        number=row.id,
        id=row.uid,
        root=row.root,
        title=entry.title,
        content=entry.content,
        tags=entry.tags,
        files=entry.files,
        importance=entry.importance,
        source=entry.source,
        author=row.author,
        mission_id=row.mission_id,
        job_id=row.job_id,
        created_at=_time(row.created_at),
        updated_at=_time(row.updated_at),
        expires_at=None if entry.expires_at is None else _time(entry.expires_at),
        json=entry_json(row),
    )


def _place(root: str | os.PathLike[str]) -> RootPlace:
    directory = existing_directory(root)
    return RootPlace(str(directory), identity_at(directory))


def _known(tx: Tx, root: str | os.PathLike[str]) -> RootRow:
    """The root of which something is remembered. Raises `NOT_FOUND`."""
    name = os.fspath(root)
    try:
        directory = str(Path(name).resolve()) if Path(name).is_dir() else None
    except OSError:  # such as a name that is too long
        directory = None
    for path in (directory, name, root_with_alias(tx, name)):
        identity = identity_at(path) if path is not None and path == directory else None
        found = None if path is None else find_root(tx, path, identity)
        if found is not None:
            return found
    raise unknown_root(name, [path for _, path, _ in known_roots(tx)])


def _within(files: Sequence[str], root: Path) -> tuple[str, ...]:
    """Absolute paths beneath the root, relative to it; others as they are."""
    top = root.resolve()
    return tuple(
        str(Path(file).relative_to(top))
        if Path(file).is_absolute() and Path(file).is_relative_to(top)
        else file
        for file in files
    )


def _given(place: str, stated: Mapping[str, JsonValue]) -> Given:
    findings = Findings()
    read = findings.validate(MemoryEntry, dict(stated), place, "a MemoryEntry")
    if read is None:
        first = findings.problems[0]
        problems: list[Json] = [f"{problem.path}: {problem.message}" for problem in findings.problems]
        message = f"{first.path}: {first.message}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, {"problems": problems})
    metadata = read.metadata or MemoryMetadata()
    entry = Entry(
        title=read.title,
        content=read.content,
        tags=tuple(read.tags),
        files=tuple(metadata.associated_files or ()),
        importance=USUAL_IMPORTANCE if metadata.importance is None else metadata.importance,
        source=metadata.source or "import",
        related=tuple(read.related_memories or ()),
        expires_at=None
        if metadata.expires_at is None
        else _micros(datetime.fromisoformat(metadata.expires_at)),
    )
    changed = None if read.updated_at is None else _micros(datetime.fromisoformat(read.updated_at))
    return Given(read.id, _micros(datetime.fromisoformat(read.created_at)), changed, checked(entry, place))


def _key(key: int | str) -> int | str:
    return key if isinstance(key, int) else entry_key(key)


def _micros(at: datetime) -> Micros:
    aware = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return round(aware.timestamp() * SECOND)


def _time(at: Micros) -> datetime:
    return datetime.fromtimestamp(at / SECOND, UTC)


class MemoryCalls(KernelEngine):
    """Calls about what is remembered."""

    @property
    def memory(self) -> Memory:
        """What is remembered of roots beyond single missions."""
        return Memory(self.instance)
