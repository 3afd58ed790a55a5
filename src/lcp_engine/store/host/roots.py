"""Find the roots of missions on this machine, and so the missions that a runner here can serve."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from sqlalchemy import bindparam, func, select, text

from lcp_engine.sandbox.file_access import start_thread
from lcp_engine.sandbox.root_identity import RootIdentity, identity_at, this_machine
from lcp_engine.sandbox.system.file_systems import shared_file_system
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.queries.mission_spec import last_place, spec_and_root
from lcp_engine.store.schema import jobs, missions, network_roots

if TYPE_CHECKING:
    from concurrent.futures import Future

LOOK_SECONDS = 0.5
"""How long a claim waits for the file system of a root."""
PATIENCE_SECONDS = 3.0
"""How long a runner that has nothing else to do waits for it."""
_LOG = logging.getLogger("lcp_engine")
_SIBLINGS = Statement(
    select(missions.c.id).where(missions.c.root == bindparam("root"), missions.c.ended_at.is_(None))
)
_NETWORK_ROOT = select(network_roots.c.machine).where(network_roots.c.root == bindparam("root"))
_WRITER = Statement(_NETWORK_ROOT)
# Whoever takes the root over waits for those who are about to write.
_KEEP_WRITER = Statement(_NETWORK_ROOT.with_for_update(read=True))
_NEW_WRITER = (
    "INSERT INTO network_roots (root, machine, since) VALUES (:root, :machine, :now) ON CONFLICT (root) DO "
)
_CLAIM_ROOT = Statement(text(f"{_NEW_WRITER} NOTHING"))
_TAKE_OVER = Statement(text(f"{_NEW_WRITER} UPDATE SET machine = excluded.machine, since = excluded.since"))


@dataclass(frozen=True)
class Roots:
    """Where the roots of missions are on this machine.

    `named` maps names of roots to directories here: the path that a mission was launched with, one of its
    `root_aliases`, or the path's last part; then no other root is served. Without names a root is at its own path:
    with `only_here` even if that is missing, since no other machine could serve it. A mission that has changed
    files goes on where it did that, and a root on a network file system is left to the machine that writes to it,
    unless the root is named.
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
    """Directory at the path of a root on this machine; `network`: its file system, if other machines share it."""

    is_directory: bool
    identity: RootIdentity | None
    network: str | None = None


@dataclass(frozen=True, eq=False)
class _Look:
    """A look at a root that `began` then, on the monotonic clock."""

    found: Future[_Place]
    began: float


class _Disk:
    """Looks at roots, each in a thread of its own: where a file system hangs, the caller goes on without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def silent(self, seconds: float = LOOK_SECONDS) -> frozenset[str]:
        """The roots that have not answered for so long."""
        began = time.monotonic() - seconds
        with self._lock:
            looks = [*self._looks.items()]
        return frozenset(root for root, look in looks if not look.found.done() and look.began <= began)

    def look(self, root: str) -> _Place | None:
        """Directory at the path of a root; None if its file system does not answer in `LOOK_SECONDS`.

        Raises `Shortage`.
        """
        from concurrent.futures import Future

        with self._lock:
            look = self._looks.get(root)
            is_first = look is None
            if look is None:
                look = _Look(Future(), began=time.monotonic())
                start_thread(
                    threading.Thread(target=_look, args=(root, look.found), name="lcp-look", daemon=True)
                )
                self._looks[root] = look
        try:
            # Others that look meanwhile wait as well: the root is not silent before its time is over.
            place = look.found.result(max(0.0, look.began + LOOK_SECONDS - time.monotonic()))
        except TimeoutError:
            if is_first:
                _LOG.warning("root %s does not answer; its missions have to wait", root)
            return None
        with self._lock:
            if self._looks.get(root) is look:
                del self._looks[root]
        return place


def _look(root: str, found: Future[_Place]) -> None:
    try:
        is_directory = os.path.isdir(root)  # noqa: PTH112 -- it raises nothing
        found.set_result(_Place(is_directory, identity_at(root), shared_file_system(Path(root))))
    except OSError:  # the directory is there, and cannot be told from others
        found.set_result(_Place(is_directory=True, identity=None))


def claim_root(tx: Tx, root: str) -> bool:
    """Make this machine the one that writes to a root on a network file system; False if another one is.

    Until the transaction ends, no other machine can take the root over. A SQLite database has one machine.
    """
    if tx.is_sqlite:
        return True
    tx.run(_CLAIM_ROOT, root=root, machine=this_machine(), now=tx.now)
    writer = tx.row(_KEEP_WRITER, root=root)
    return writer is not None and writer[0] == this_machine()


def _names(root: str, spec: str) -> Iterable[str]:
    aliases = from_json(spec).get("root_aliases")
    more = [str(alias) for alias in aliases] if isinstance(aliases, list) else []
    return (root, *more, PurePath(root).name)


class ServedMissions:
    """The missions that a runner serves, found as it meets their jobs; it leaves those in `elsewhere` to others.

    `is_elsewhere` is true of a mission whose files are on another machine, wherever its root is.
    `returned` counts the missions that were left because their root did not answer, and are served again.
    """

    def __init__(
        self, roots: Roots, is_elsewhere: Callable[[Tx, int, str], bool] = lambda tx, mission_id, spec: False
    ) -> None:
        self.elsewhere: frozenset[int] = frozenset()
        self._roots = roots
        self._is_elsewhere = is_elsewhere
        self._disk = _Disk()
        self._here: set[int] = set()
        self._named_on_network: frozenset[str] = frozenset()
        self._taken_over: frozenset[str] = frozenset()
        self._left: set[str] = set()
        self._waiting: dict[int, str] = {}
        self.returned = 0
        self._lock = threading.Lock()

    def includes(self, tx: Tx, mission_id: int) -> bool:
        """True if the mission's root is served here, or it has none."""
        if mission_id in self.elsewhere:
            return False
        if self._roots.serves_all or mission_id in self._here:
            return True
        spec, root = spec_and_root(tx, mission_id)
        if root is None:
            self._here.add(mission_id)
            return True
        away = self._away_from(tx, mission_id, root, spec)
        with self._lock:
            self.elsewhere |= away
        return not away

    def _away_from(self, tx: Tx, mission_id: int, root: str, spec: str) -> set[int]:
        """The mission, with those that are known to share its fate, if it is left to others; empty if it is served."""
        if self._is_elsewhere(tx, mission_id, spec):
            return self._decided(mission_id, is_here=False)
        named = self._roots.named_for(root, spec)
        if self._roots.named and (named is None or self._roots.only_here):
            return self._decided(mission_id, is_here=named is not None)
        place = self._disk.look(named or root)
        if named is None and (place is None or not place.is_directory):
            # With all missions of that root: a claim meets few roots, and may meet many missions of each.
            return self._over(tx, mission_id, root, silent=root if place is None else None)
        if place is not None and place.network is not None:
            is_here = self._may_write(tx, root, place.network, is_named=named is not None)
            # Asked again each time: another machine may write first.
            return set() if is_here else {mission_id}
        if named is not None or place is None:
            return self._decided(mission_id, is_here=True)
        changed = last_place(tx, mission_id, root)
        is_here = changed is None or place.identity is None or changed.shares_files_with(place.identity)
        return self._decided(mission_id, is_here=is_here)

    def _over(self, tx: Tx, mission_id: int, root: str, silent: str | None) -> set[int]:
        """The missions over a root; they wait for the place that is `silent`, if there is one."""
        over_it = {mission_id, *(int(row[0]) for row in tx.rows(_SIBLINGS, root=root))}
        if silent is not None:
            with self._lock:
                self._waiting |= dict.fromkeys(over_it, silent)
        return over_it

    def _decided(self, mission_id: int, *, is_here: bool) -> set[int]:
        if is_here:
            self._here.add(mission_id)
        return set() if is_here else {mission_id}

    def _may_write(self, tx: Tx, root: str, network: str, *, is_named: bool) -> bool:
        """True if no other machine writes to a root on a network; one that is named is to be taken over, once."""
        if is_named and root not in self._taken_over:
            with self._lock:
                self._named_on_network |= {root}
            return True
        writer = tx.row(_WRITER, root=root)
        if writer is None or writer[0] == this_machine():
            return True
        if root not in self._left:
            self._left.add(root)
            _LOG.warning(
                "root %s is on %s, and another machine writes to it, whose locks may exclude nobody here: its "
                "missions are left to that machine; `lcp work --root NAME=DIR` takes them over",
                root,
                network,
            )
        return False

    @property
    def silent_roots(self) -> frozenset[str]:
        """The directories of roots here that did not answer when they were looked at, and have not answered since."""
        return self._disk.silent()

    @property
    def is_waiting(self) -> bool:
        """True if missions are left for a root that may still answer, or has answered meanwhile."""
        given_up = self._disk.silent(PATIENCE_SECONDS)
        with self._lock:
            return any(place not in given_up for place in self._waiting.values())

    def does_answer(self, tx: Tx, mission_id: int) -> bool:
        """True if the root of a mission answers; until it does, all missions over it are left."""
        spec, root = spec_and_root(tx, mission_id)
        if root is None:
            return True
        place = self._roots.named_for(root, spec) or root
        if self._disk.look(place) is not None:
            return True
        over_it = self._over(tx, mission_id, root, silent=place)
        with self._lock:
            self.elsewhere |= over_it
        return False

    def take_over(self, tx: Tx) -> frozenset[str]:
        """Make this machine the one that writes to the roots on a network that are named and were met; these roots."""
        due = self._named_on_network - self._taken_over
        for root in sorted(due):
            tx.run(_TAKE_OVER, root=root, machine=this_machine(), now=tx.now)
        return due

    def note_taken_over(self, roots: frozenset[str]) -> None:
        """Note that `take_over` was committed."""
        with self._lock:
            self._taken_over |= roots

    def return_answered(self) -> bool:
        """Serve missions again whose roots have answered since. Whether there are any."""
        silent = self._disk.silent()
        with self._lock:
            answered = {mission for mission, place in self._waiting.items() if place not in silent}
            self._waiting = {one: place for one, place in self._waiting.items() if one not in answered}
            self.elsewhere -= answered
            self.returned += len(answered)
        return bool(answered)

    def forget(self) -> None:
        """Search every root again: directories come and go. Those that do not answer still have to wait."""
        self.return_answered()
        with self._lock:
            self.elsewhere = frozenset(self._waiting)
            self._here = set()

    def left_jobs(self, tx: Tx) -> dict[str, int]:
        """Number of jobs that wait for a runner that serves their root, by the root."""
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
