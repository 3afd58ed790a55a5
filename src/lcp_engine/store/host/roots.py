"""Find the roots of missions on this machine, and so the missions that a runner here can serve."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, func, select, text

from lcp_engine.sandbox.root_identity import RootIdentity, identity_at
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.mission_spec import last_place, spec_and_root
from lcp_engine.store.schema import jobs, missions

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_SECONDS = 0.5
"""How long a claim waits for the file system of a root."""
_LOG = logging.getLogger("lcp_engine")
_SIBLINGS = Statement(
    select(missions.c.id).where(missions.c.root == bindparam("root"), missions.c.ended_at.is_(None))
)


@dataclass(frozen=True)
class Roots:
    """Where the roots of missions are on this machine.

    `named` maps names of roots to directories here: the path that a mission was launched with, one of its
    `root_aliases`, or the path's last part; then no other root is served. Without names a root is at its own path:
    with `only_here` even if that is missing, since no other machine could serve it. A mission that has changed
    files goes on where it did that, unless its root is named.
    """

    named: Mapping[str, Path] = field(default_factory=dict)
    only_here: bool = True

    @property
    def serves_all(self) -> bool:
        return self.only_here and not self.named

    def find(self, root: str, spec: str) -> str | None:
        """The directory of a mission's root here, None if it is not served; `spec` is the mission's, in JSON."""
        if not self.named:
            return root if self.only_here or Path(root).is_dir() else None
        return self.named_for(root, spec)

    def named_for(self, root: str, spec: str) -> str | None:
        """The directory that is named for a mission's root."""
        return next((str(self.named[name]) for name in _names(root, spec) if name in self.named), None)


EVERY_ROOT = Roots()


@dataclass(frozen=True)
class _Place:
    """What is at the path of a root on this machine."""

    is_directory: bool
    identity: RootIdentity | None


class _Disk:
    """Looks at roots, each in a thread of its own: where a file system hangs, the caller goes on without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[str, Future[_Place]] = {}

    def look(self, root: str) -> _Place | None:
        """What is at the path of a root; None if its file system does not answer in `LOOK_SECONDS`."""
        from concurrent.futures import Future

        with self._lock:
            look = self._looks.get(root)
            is_first = look is None
            if look is None:
                look = self._looks[root] = Future()
                threading.Thread(target=_look, args=(root, look), name="lcp-look", daemon=True).start()
        try:
            place = look.result(LOOK_SECONDS if is_first else 0.0)
        except TimeoutError:
            if is_first:
                _LOG.warning("root %s does not answer; its missions have to wait", root)
            return None
        with self._lock:
            self._looks.pop(root, None)
        return place


def _look(root: str, found: Future[_Place]) -> None:
    try:
        found.set_result(_Place(os.path.isdir(root), identity_at(root)))  # noqa: PTH112 -- it raises nothing
    except OSError:  # the directory is there, and cannot be told from others
        found.set_result(_Place(is_directory=True, identity=None))


def _names(root: str, spec: str) -> Iterable[str]:
    aliases = from_json(spec).get("root_aliases")
    more = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
    return (root, *more, PurePath(root).name)


class ServedMissions:
    """The missions that a runner serves, found as it meets their jobs; it leaves those in `elsewhere` to others."""

    def __init__(self, roots: Roots) -> None:
        self.elsewhere: frozenset[int] = frozenset()
        self._roots = roots
        self._disk = _Disk()
        self._here: set[int] = set()
        self._lock = threading.Lock()

    def includes(self, tx: Tx, mission_id: int) -> bool:
        """Whether the mission's root is served here, or it has none."""
        if self._roots.serves_all or mission_id in self._here:
            return True
        if mission_id in self.elsewhere:
            return False
        away = self._away(tx, mission_id)
        if not away:
            self._here.add(mission_id)
            return True
        with self._lock:
            self.elsewhere |= away
        return False

    def _away(self, tx: Tx, mission_id: int) -> set[int]:
        """The mission, with those that are known to share its fate, if it is left to others; empty if it is served."""
        spec, root = spec_and_root(tx, mission_id)
        if root is None:
            return set()
        if self._roots.named:
            return set() if self._roots.named_for(root, spec) is not None else {mission_id}
        place = self._disk.look(root)
        if place is None or not place.is_directory:
            # With all missions of that root: a claim meets few roots, and may meet many missions of each.
            return {mission_id, *(int(row[0]) for row in tx.rows(_SIBLINGS, root=root))}
        changed = last_place(tx, mission_id, root)
        is_here = changed is None or place.identity is None or changed.shares_files_with(place.identity)
        return set() if is_here else {mission_id}

    def forget(self) -> None:
        """Search every root again: directories come and go."""
        with self._lock:
            self.elsewhere = frozenset()
            self._here = set()

    def left_jobs(self, tx: Tx) -> dict[str, int]:
        """How many jobs wait for a runner that serves their root, by the root."""
        if not self.elsewhere:
            return {}
        query = (
            select(missions.c.root, func.count())
            .join_from(jobs, missions, jobs.c.mission_id == missions.c.id)
            .where(missions.c.id.in_(sorted(self.elsewhere)), text("jobs.state = 'queued'"))
            .group_by(missions.c.root)
            .order_by(missions.c.root)
        )
        return {str(root): int(count) for root, count in tx.query(query)}
