"""Find the roots of missions on this machine, and so the missions that a runner here can serve."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from sqlalchemy import bindparam, func, select, text

from lcp_engine.sandbox.root_identity import identity_at
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.mission_spec import last_place, spec_and_root
from lcp_engine.store.schema import jobs, missions

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
        return next((str(self.named[name]) for name in _names(root, spec) if name in self.named), None)


EVERY_ROOT = Roots()


def _is_changed_here(tx: Tx, mission_id: int, root: str) -> bool:
    """Whether the mission has changed nothing in that root, or the directory that is at that path here."""
    place = last_place(tx, mission_id, root)
    here = None if place is None else identity_at(root)
    return place is None or here is None or place.shares_files_with(here)


def _names(root: str, spec: str) -> Iterable[str]:
    aliases = from_json(spec).get("root_aliases")
    more = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
    return (root, *more, PurePath(root).name)


class ServedMissions:
    """The missions that a runner serves, found as it meets their jobs; it leaves those in `elsewhere` to others."""

    def __init__(self, roots: Roots) -> None:
        self.elsewhere: frozenset[int] = frozenset()
        self._roots = roots
        self._here: set[int] = set()
        self._lock = threading.Lock()

    def includes(self, tx: Tx, mission_id: int) -> bool:
        """Whether the mission's root is served here, or it has none."""
        if self._roots.serves_all or mission_id in self._here:
            return True
        if mission_id in self.elsewhere:
            return False
        spec, root = spec_and_root(tx, mission_id)
        if root is None or self._roots.find(root, spec) is not None:
            if root is not None and not self._roots.named and not _is_changed_here(tx, mission_id, root):
                with self._lock:
                    self.elsewhere |= {mission_id}
                return False
            self._here.add(mission_id)
            return True
        # With all missions of that root: a claim meets few roots, and may meet many missions of each.
        alike = {mission_id} if self._roots.named else {int(row[0]) for row in tx.rows(_SIBLINGS, root=root)}
        with self._lock:
            self.elsewhere |= {mission_id, *alike}
        return False

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
