"""Remember, correct and forget what is known of a root. One transaction each; the text is free of keys."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from lcp_engine.clock import Micros, iso
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.paths.secret_files import is_secret
from lcp_engine.engine.admission import Admission, may_read
from lcp_engine.engine.points import Section
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.memory.choice import RELATED, Cue, Found, choose, cues_of, shown_part
from lcp_engine.features.memory.entries import MOST_ENTRIES, Entry, checked
from lcp_engine.features.memory.mission_keys import MemoryKeys
from lcp_engine.features.memory.store import memories
from lcp_engine.features.memory.store.memories import Origin
from lcp_engine.features.memory.store.queries import (
    Key,
    MemoryRow,
    find_by_uid,
    find_entry,
    find_matches,
    find_related,
    find_shown,
    root_of_mission,
)
from lcp_engine.features.models.endpoints.scrub import without_secrets
from lcp_engine.planners.base import SeenMemory
from lcp_engine.sandbox.paths import Names, names_of
from lcp_engine.sandbox.root_identity import RootIdentity
from lcp_engine.store.ledger import Ledger

if TYPE_CHECKING:
    from lcp_engine.engine.question import Asked


@dataclass(frozen=True)
class RootPlace:
    """A root of which something is remembered: its path, and which directory that is, if it is there."""

    path: str
    identity: RootIdentity | None


@dataclass(frozen=True)
class Given:
    """An entry from outside, with its id and the times when it was made and last changed; None is now."""

    uid: str
    created_at: Micros
    updated_at: Micros | None
    entry: Entry


@dataclass(frozen=True)
class Imported:
    """Numbers of entries that were new, that took the place of one with their id, and how many were there already."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0


def add(ledger: Ledger, root: RootPlace, entry: Entry, origin: Origin) -> int:
    """Remember an entry; its number, or that of the entry with the same words.

    Raises `INVALID_ARGUMENT`, `PATH_DENIED` for a file that holds secrets, `LIMIT_REACHED` for a root that is full.
    """
    kept = clean(entry)
    known = memories.open_root(ledger.tx, root.path, root.identity)
    number = memories.add_entry(ledger.tx, known.id, kept, origin)
    if number is None:
        raise _full(root.path)
    return number


def edit(ledger: Ledger, key: Key, entry: Entry, *, seen: Micros | None = None) -> None:
    """Replace what an entry says.

    Raises `NOT_FOUND`; `CONFLICT` if it was changed after `seen`, or if another entry of the root has the same words;
    and like `add`.
    """
    row = find_entry(ledger.tx, key)
    if seen is not None and row.updated_at != seen:
        message = f"memory {row.id} was changed at {iso(row.updated_at)}, after it was shown"
        raise LcpError(ErrorCode.CONFLICT, message, advice="Look at it again, then decide.")
    kept = clean(entry)
    same = memories.find_same(ledger.tx, row.root_id, kept)
    if same not in (None, row.id):
        message = f"memory {same} has the same words; memory {row.id} cannot have them too"
        raise LcpError(ErrorCode.CONFLICT, message, advice="Forget one of them.")
    memories.change_entry(ledger.tx, row.id, row.root_id, kept)


def forget(ledger: Ledger, keys: Sequence[Key]) -> int:
    """Remove entries for good; how many. Raises `NOT_FOUND` before any is removed."""
    rows = {row.id: row for row in (find_entry(ledger.tx, key) for key in keys)}
    return sum(memories.remove_entry(ledger.tx, row.id, row.root_id) for row in rows.values())


def forget_some(ledger: Ledger, root_id: int) -> int:
    """Remove some of what is remembered of a root; how many, 0 once nothing is left."""
    return memories.remove_some(ledger.tx, root_id)


def forget_expired(ledger: Ledger) -> int:
    """Remove some entries that have expired; how many, 0 once none is left."""
    return memories.remove_expired(ledger.tx)


def take_in(ledger: Ledger, root: RootPlace, given: Iterable[Given], origin: Origin) -> Imported:
    """Remember entries from outside. One whose id is known takes the place of that entry.

    Raises like `add`, and `CONFLICT` for an id that an entry of another root has; nothing is remembered then.
    """
    known, counts = memories.open_root(ledger.tx, root.path, root.identity), [0, 0, 0]
    for one in given:
        kept, row = clean(one.entry), find_by_uid(ledger.tx, one.uid)
        if row is None:
            there = memories.find_same(ledger.tx, known.id, kept) is not None
            from_there = replace(origin, uid=one.uid, created_at=one.created_at, updated_at=one.updated_at)
            if memories.add_entry(ledger.tx, known.id, kept, from_there) is None:
                raise _full(root.path)
            counts[2 if there else 0] += 1
        elif row.root_id != known.id:
            message = f"memory {row.uid} is one of root {row.root!r}; it cannot be one of {root.path!r} too"
            raise LcpError(
                ErrorCode.CONFLICT, message, advice="Forget it there, or import it under another id."
            )
        else:
            counts[2 if row.entry == kept else 1] += 1
            if row.entry != kept:
                memories.change_entry(ledger.tx, row.id, known.id, kept, one.updated_at)
    return Imported(*counts)


def choose_memories(ledger: Ledger, asked: Asked, admission: Admission | None) -> Sequence[SeenMemory]:
    """Entries that a new question is shown of the memory of its root.

    They are about its texts, the jobs that it is told of, and the files that its user has open; nothing about a file
    that policy (`admission`) lets no job of the mission read.
    """
    tx, mission, spec = ledger.tx, asked.mission, spec_of(asked.mission.spec)
    if (
        mission.root is None
        or not MemoryKeys.of(spec).memory.read
        or not MemoryKeys.of(spec).memory.characters
    ):
        return ()
    root_id = root_of_mission(tx, mission.id)
    if root_id is None:
        return ()
    named = [job.params for job in (*asked.results, *asked.waiting)]
    opened: list[Mapping[str, JsonValue]] = [
        {"path": file} for file in (spec.background.files if spec.background else ())
    ]
    texts = (mission.goal, asked.prompt, asked.context or "", *(said.text for said in asked.said))
    files = _paths_in([*named, *opened], names_of((mission.root,), spec.root_aliases))
    cues = cues_of(texts, files, MemoryKeys.of(spec).memory.tags)
    may_show = None if admission is None else may_read(admission, spec, mission.root)
    found = find_matches(tx, root_id, cues, mission_id=mission.id)

    def chosen(among: Found) -> list[MemoryRow]:
        if may_show is not None:
            among = among.without(lambda match: not all(map(may_show, match.files)))
        return find_shown(
            tx, choose(among, cues, now=tx.now, characters=MemoryKeys.of(spec).memory.characters)
        )

    rows = chosen(found)
    related = find_related(tx, root_id, rows, mission_id=mission.id)
    if related:
        cues[RELATED] = Cue.RELATED
        rows = chosen(replace(found, by_cue={**found.by_cue, RELATED: related}))
    return [_shown(row) for row in rows]


SECTION = Section(choose_memories)


def _shown(row: MemoryRow) -> SeenMemory:
    content, left_out = shown_part(row.entry.content)
    entry = row.entry
    return SeenMemory(
        id=row.uid,
        title=entry.title,
        content=content,
        source=entry.source,
        created_at=iso(row.created_at),
        tags=entry.tags,
        files=entry.files,
        importance=entry.importance,
        left_out=left_out,
    )


def _paths_in(jobs: Iterable[Mapping[str, JsonValue]], names: Names) -> Iterator[str]:
    """The files that params of jobs name, relative to the root."""
    for params in jobs:
        root, rel_path, path = (
            value if isinstance(value := params.get(key), str) else None
            for key in ("root", "rel_path", "path")
        )
        if rel_path or path:
            with suppress(LcpError):  # such a job fails
                yield names.place(root=root, rel_path=rel_path, path=None if rel_path else path).path


def clean(entry: Entry) -> Entry:
    """The entry as it is kept. Raises `INVALID_ARGUMENT`, and `PATH_DENIED` for a file that holds secrets."""
    kept = checked(
        replace(entry, title=_without_secrets(entry.title), content=_without_secrets(entry.content))
    )
    for file in kept.files:
        if is_secret(file.casefold()):
            message = f"{file!r} may hold secrets, and nothing about such a file is remembered"
            raise LcpError(ErrorCode.PATH_DENIED, message, advice="Leave the file out, and what it holds.")
    return kept


def _without_secrets(text: str) -> str:
    return without_secrets(text, os.environ)


def _full(path: str) -> LcpError:
    message = f"root {path!r} has {MOST_ENTRIES:,} entries of memory, the most that a root may have"
    advice = "Forget some: `lcp memory forget`, with --expired or --all for many."
    return LcpError(ErrorCode.LIMIT_REACHED, message, advice=advice)
