"""Keep the roots, planners and policies of missions open between jobs (an LRU cache)."""

from __future__ import annotations

import os
import threading
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import PathPolicy
from lcp_engine.engine.admission import beneath
from lcp_engine.engine.instance import Site
from lcp_engine.planners.base import Planner, Question
from lcp_engine.planners.environment import Surroundings
from lcp_engine.planners.registry import make_planner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.store.host.roots import Roots
from lcp_engine.store.ledger import spec_and_root
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Context, Worker

MAX_OPEN = 64
"""Missions whose roots and planners are kept open between jobs."""


@dataclass
class OpenMission:
    """A mission with its open root and planner; `key` names it to confined processes."""

    spec: MissionSpec
    root: Root | None
    surroundings: Surroundings
    aliases: tuple[str, ...] = ()
    planner: Planner | None = None
    judges: dict[str, PathPolicy] = field(default_factory=dict)
    key: str = field(default_factory=lambda: uuid4().hex)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._place = None if self.root is None else Path(self.root.path)

    def ask(self, question: Question) -> object:
        """The planner's answer, not validated: its code may be a plug-in's."""
        with self.lock:
            if self.planner is None:
                self.planner = make_planner(self.spec.planner, self.surroundings)
        return self.planner.answer(question)

    @property
    def is_current(self) -> bool:
        """Whether the root's path still leads to the directory that was opened."""
        if self.root is None or self._place is None:
            return True
        try:
            return os.path.samestat(self._place.stat(), os.fstat(self.root.descriptor))
        except OSError:
            return False


class OpenMissions:
    """The missions whose jobs a runner executes. `roots` say where their roots are on this machine."""

    def __init__(self, site: Site, roots: Roots) -> None:
        self._site = site
        self._roots = roots
        self._missions: dict[int, OpenMission] = {}
        self._lock = threading.Lock()

    def of(self, mission_id: int) -> OpenMission:
        """The mission; opened again if its root is another directory now. Raises `LcpError`."""
        with self._lock:
            known = self._missions.pop(mission_id, None)
            if known is None or not known.is_current:
                known = self._open(mission_id)
            self._missions[mission_id] = known  # the last one is the one used last
            while len(self._missions) > MAX_OPEN:
                self._missions.pop(next(iter(self._missions)))
            return known

    def context(self, mission: OpenMission, job: JobRow, worker: Worker[BaseModel]) -> Context:
        """The context of a job of the mission."""
        judge = mission.judges.get(worker.kind)
        if judge is None:
            root = None if mission.root is None else mission.root.path
            policy = self._site.admission.policy(mission.spec, root)
            judge = policy.for_kind(worker.kind, has_effects=worker.has_effects, writes=worker.writes)
            mission.judges[worker.kind] = judge
        return Context(mission.root, mission.aliases, judge, self._site.caps, approved=bool(job.approved))

    def setup(self, mission: OpenMission, root: str) -> Setup:
        """What a confined process needs of the mission, to make the same context as `context`."""
        admission, spec = self._site.admission, mission.spec
        inner = beneath(admission.engine_files, root)
        return Setup(self._site.caps, mission.aliases, spec.policy, admission.user_rules, inner)

    def _open(self, mission_id: int) -> OpenMission:
        spec_text, root = self._site.database.read(lambda tx: spec_and_root(tx, mission_id))
        spec = spec_of(spec_text)
        if root is None:
            return OpenMission(spec, None, self._site.surroundings, spec.root_aliases)
        here = self._roots.find(root, spec_text) or root
        # The root's path on the machine of the launch stays a name of it.
        aliases = spec.root_aliases if here == root else (*spec.root_aliases, root)
        return OpenMission(spec, _open_root(here), self._site.surroundings, aliases)


def _open_root(path: str) -> Root:
    """A root that is closed when it is no longer used: a job may outlast the cache entry of its mission."""
    root = Root(path)
    weakref.finalize(root, os.close, root.descriptor)
    return root
