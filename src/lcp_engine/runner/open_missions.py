"""Keep the missions of a runner open between its jobs: their roots, their planners, the contexts of their jobs."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from pydantic import BaseModel

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import PathPolicy, Policy, Verdict
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import root_provider
from lcp_engine.engine.question import earlier_job
from lcp_engine.errors import Failed
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import PlannerEnvironment, refuse_without_price
from lcp_engine.planners.registry import make_planner
from lcp_engine.runner.confined.server import Setup
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import KnownRoot, RootIdentity, check_same, open_known
from lcp_engine.sandbox.system.own_places import beneath
from lcp_engine.store.changes import brought_after
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.roots import Roots
from lcp_engine.store.people import approved_at
from lcp_engine.store.queries.mission_spec import known_root, spec_and_root
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Context, EarlierJob, Worker
from lcp_engine.workers.read_file import WORKER as READ_FILE

MAX_OPEN = 64
"""Missions whose roots and planners are kept open between jobs."""


@dataclass(frozen=True)
class Followed:
    """The policy of a mission as it was after that change, with what it makes of each kind."""

    policy: Policy
    change: int = 0
    judges: dict[str, PathPolicy] = field(default_factory=dict)


@dataclass
class OpenMission:
    """A mission with its open root and planner; `key` names it to confined processes.

    `root_path` is where its root is on this machine, also if `root` is its stage: policy is about the root.
    `turn` is the last turn whose jobs are known to have been requested under this spec.
    """

    spec_text: str
    spec: MissionSpec
    root: Root | None
    planner_environment: PlannerEnvironment
    root_path: str | None = None
    aliases: tuple[str, ...] = ()
    planner: Planner | None = None
    followed: Followed | None = None
    is_private: bool = False
    turn: int = 0
    key: str = field(default_factory=lambda: uuid4().hex)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._place = None if self.root is None else Path(self.root.path)

    def made_planner(self) -> Planner:
        """The planner, made when it is first needed. Raises `LcpError`."""
        with self.lock:
            if self.planner is None:
                planner = make_planner(self.spec.planner, self.planner_environment)
                refuse_without_price(planner, self.spec.limits, self.planner_environment.prices)
                self.planner = planner
            return self.planner

    @property
    def is_current(self) -> bool:
        """True if the root's path still leads to the directory that was opened."""
        if self.root is None or self._place is None:
            return True
        try:
            return os.path.samestat(self._place.stat(), os.fstat(self.root.descriptor))
        except OSError:
            return False


class OpenMissions:
    """The missions whose jobs a runner executes. `roots` say where their roots are on this machine."""

    def __init__(self, instance: Instance, roots: Roots) -> None:
        self._instance = instance
        self._roots = roots
        self._elsewhere = root_provider()
        self._missions: dict[int, OpenMission] = {}
        self._first: dict[tuple[KnownRoot, str], RootIdentity] = {}
        self._lock = threading.Lock()

    def of(self, mission_id: int) -> OpenMission:
        """The mission; opened again, and its root checked, if another directory is there now. Raises `LcpError`."""
        with self._lock:
            before = self._missions.get(mission_id)
        # Not under the lock: the file system of one root may hang.
        known = before if before is not None and before.is_current else self._open(mission_id)
        with self._lock:
            now = self._missions.pop(mission_id, None)
            if now is not None and now is not before:  # another thread was faster
                known = now
            self._missions[mission_id] = known  # the last one is the one used last
            while len(self._missions) > MAX_OPEN:
                self._missions.pop(next(iter(self._missions)))
            return known

    def close(self) -> None:
        """Close the roots that no job uses any more, without waiting for the garbage collector."""
        with self._lock:
            self._missions.clear()

    def of_jobs(self, jobs: Sequence[JobRow]) -> OpenMission:
        """The mission of these jobs, with the rules under which they were requested: people may have added some since
        it was opened.
        """
        mission = self.of(jobs[0].mission_id)
        turn = max(job.turn or 0 for job in jobs)
        if turn <= mission.turn and jobs[0].terms is None:
            return mission
        text, _ = self._instance.database.read(lambda tx: spec_and_root(tx, jobs[0].mission_id))
        if text == mission.spec_text:
            mission.turn = max(turn, mission.turn)
            return mission
        reopened = self._open(jobs[0].mission_id)
        reopened.turn = turn
        if reopened.spec.planner == mission.spec.planner:
            reopened.planner = mission.planner
        with self._lock:
            self._missions[jobs[0].mission_id] = reopened
        return reopened

    def follow(self, mission: OpenMission, mission_id: int) -> Followed:
        """The policy of a mission after all that its jobs have moved until now."""
        admission = self._instance.admission
        known = self._followed(mission)
        if not known.policy.follows_moves:
            return known
        policy, change = self._instance.database.read(
            lambda tx: admission.followed(tx, mission_id, known.policy, known.change)
        )
        with self._lock:
            if change > self._followed(mission).change:  # another thread may know more by now
                mission.followed = Followed(policy, change)
            return self._followed(mission)

    def _followed(self, mission: OpenMission) -> Followed:
        if mission.followed is None:
            mission.followed = Followed(self._instance.admission.policy(mission.spec, mission.root_path))
        return mission.followed

    def context(self, mission: OpenMission, job: JobRow, worker: Worker[BaseModel]) -> Context:
        """The context of a job of the mission."""
        context = self.context_of_kind(mission, worker)
        find = partial(self._earlier_job, job.mission_id)
        return replace(
            context,
            approved=self.is_approved(mission, job),
            job_id=job.id,
            attempt=job.attempt,
            earlier_job=find,
        )

    def is_approved(self, mission: OpenMission, job: JobRow) -> bool:
        """True if a person approved the job after all that was moved: what was not there then was not approved."""
        if not job.approved or not self._followed(mission).policy.origins:
            return bool(job.approved)

        def is_newest(tx: Tx) -> bool:
            at = approved_at(tx, job)
            return at is None or all(one.at <= at for one in brought_after(tx, job.mission_id, 0))

        return self._instance.database.read(is_newest)

    def _earlier_job(self, mission_id: int, number: int) -> EarlierJob | Failed:
        workers = self._instance.admission.workers

        def shows(kind: str) -> str | None:
            worker = workers.get(kind)
            return None if worker is None else worker.shows

        return self._instance.database.read(lambda tx: earlier_job(tx, mission_id, number, shows))

    def context_of_kind(self, mission: OpenMission, worker: Worker[BaseModel]) -> Context:
        """The context of jobs of one kind that no person approved."""
        followed = self._followed(mission)
        judge = followed.judges.get(worker.kind)
        if judge is None:
            judge = followed.policy.for_kind(
                worker.named, has_effects=worker.has_effects, writes=worker.writes
            )
            followed.judges[worker.kind] = judge
        return Context(mission.root, mission.aliases, judge, self._instance.caps)

    def readable(self, mission: OpenMission, context: Context) -> Callable[[str], bool]:
        """Which files a program may be given a copy of. Raises `INVALID_PARAMS` if the mission has no root.

        Those that a job could read now without a person: who approves a program has not seen what it reads.
        """
        may_read = self.may_read(mission)
        return lambda path: may_read(path) and context.policy(path).verdict is not Verdict.DENY

    def policy(self, mission: OpenMission) -> Policy:
        """The policy of a mission after all that its jobs are known to have moved."""
        return self._followed(mission).policy

    def may_read(self, mission: OpenMission) -> Callable[[str], bool]:
        """Returns whether a job of the mission could read a path now without a person."""
        policy = self._followed(mission).policy
        judge = policy.for_kind(READ_FILE.named, has_effects=False, writes=False)
        return lambda path: judge(path).verdict is Verdict.AUTO

    def setup(self, mission: OpenMission) -> tuple[Setup, str]:
        """Setup from which a confined process makes the same context as `context`, and its name."""
        admission, spec, followed = self._instance.admission, mission.spec, self._followed(mission)
        inner = () if mission.root_path is None else beneath(admission.engine_files, mission.root_path)
        setup = Setup(
            self._instance.caps, mission.aliases, spec.policy, admission.user_rules, inner,
            root_provider().is_private(spec),
            dict(followed.policy.origins),
        )  # fmt: skip
        return setup, f"{mission.key}-{followed.change}"

    def _open(self, mission_id: int) -> OpenMission:
        spec_text, root, known = self._instance.database.read(
            lambda tx: (*spec_and_root(tx, mission_id), known_root(tx, mission_id))
        )
        spec = spec_of(spec_text)
        if root is None or known is None:
            environment = self._instance.planner_environment
            return OpenMission(spec_text, spec, None, environment, aliases=spec.root_aliases)
        here = self._roots.find(root, spec_text) or root
        opened = self._elsewhere.open(self._instance, mission_id, spec, partial(self.open_root, mission_id))
        is_private, opened = opened is not None, opened or self._open_root(known, here)
        if is_private:
            weakref.finalize(opened, os.close, opened.descriptor)
            opened.set_copied(here, partial(self._open_root, known, here, is_kept=False))
        # The root's path on the machine of the launch stays a name of it, and in a stage that of the root here.
        names = dict.fromkeys(name for name in (root, here) if name != opened.path)
        aliases = (*spec.root_aliases, *names)
        environment = self._instance.planner_environment
        place = here if is_private else opened.path
        return OpenMission(spec_text, spec, opened, environment, place, aliases, is_private=is_private)

    def open_root(self, mission_id: int) -> Root:
        """The root of a mission itself, opened for the caller."""
        spec_text, root, known = self._instance.database.read(
            lambda tx: (*spec_and_root(tx, mission_id), known_root(tx, mission_id))
        )
        assert root is not None
        assert known is not None
        return self._open_root(known, self._roots.find(root, spec_text) or root, is_kept=False)

    def _open_root(self, known: KnownRoot, here: str, *, is_kept: bool = True) -> Root:
        """A root; if it is kept, it is closed when it is no longer used: a job may outlast the entry of its mission.

        Where no directory is known to be the root, the first one that this runner opens is.
        """
        is_named = here != known.path
        root = Root(here) if is_named else open_known(known)
        if is_kept:
            weakref.finalize(root, os.close, root.descriptor)
        if is_named or not known.is_from_here:
            first = self._first.setdefault((known, here), RootIdentity.of(root.descriptor))
            check_same(known, first, root)
        return root
