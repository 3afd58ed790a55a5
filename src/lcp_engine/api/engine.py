"""Offer the engine to programs: launch missions, work, run missions again (CONTRACT.md, Python)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, JsonValue

from lcp_engine.api.base import user_name
from lcp_engine.api.records import Mission
from lcp_engine.api.schedules import Scheduling, existing_directory
from lcp_engine.clock import SECOND, Clock
from lcp_engine.core.mission.spec import MissionSpec, PlannerSpec
from lcp_engine.core.policy import Rule
from lcp_engine.engine.instance import open_site
from lcp_engine.engine.missions import steer
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.runner import Runner
from lcp_engine.sandbox.isolation_mode import Isolation
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.store.db.transaction import Connection
from lcp_engine.store.host.roots import Roots
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.queries.history import known_id
from lcp_engine.workers.base import Caps, Worker

if TYPE_CHECKING:
    from lcp_engine.replay.fork import Forked
    from lcp_engine.replay.replay import Replayed

QUEUE = "jobs"
LONGEST_DELAY = 100 * 365 * 24 * 3600
MOST_PRIORITY = 2**31 - 1


class Engine(Scheduling):
    """The engine over one database; a context manager, usable from any thread.

    `database_url` is `sqlite:///PATH` or `postgresql://…`; a new database is created. `workers` are added to the
    built-in and the installed ones. `user_rules` are policy rules of the person who runs this (R5),
    `planners` options for planners by their type, where a mission leaves them open. `on_wait` is a command that is
    run when a mission starts to wait for a person while this works. `isolation`: whether file kinds run in confined
    processes, which `lcp` does where it can; with `require` runners raise `NOT_ISOLATED` on a kernel without Landlock.
    """

    def __init__(
        self,
        database_url: str,
        *,
        workers: Sequence[Worker[BaseModel]] = (),
        user_rules: Sequence[Rule] = (),
        caps: Caps | None = None,
        clock: Clock | None = None,
        busy_seconds: float = BUSY_SECONDS,
        planners: Mapping[str, Mapping[str, JsonValue]] | None = None,
        on_wait: Sequence[str] = (),
        isolation: Isolation = Isolation.OFF,
    ) -> None:
        self.site = open_site(
            database_url,
            workers=workers,
            user_rules=user_rules,
            caps=caps,
            clock=clock,
            busy_seconds=busy_seconds,
            planners=planners,
            on_wait=on_wait,
            isolation=isolation,
        )
        self._database = self.site.database
        self._queue: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self.site.bell.close()

    def launch(
        self,
        spec: MissionSpec | Mapping[str, JsonValue],
        *,
        root: str | os.PathLike[str],
        key: str | None = None,
    ) -> Mission:
        """Store a mission over the directory `root`; nothing runs before somebody works.

        With a `key` that was used before, the mission of then. Raises `INVALID_MISSION`, `PATH_NOT_FOUND`,
        `NOT_A_FILE`, `NO_PLANNER`.
        """
        checked, directory = self._checked(spec), existing_directory(root)
        mission_id = self._books(lambda ledger: steer.launch(ledger, checked, directory, key=key))
        return self.mission(mission_id)

    def enqueue(
        self,
        kind: str,
        params: Mapping[str, JsonValue] | None = None,
        *,
        mission_id: int | None = None,
        name: str | None = None,
        priority: int = 0,
        delay: float = 0.0,
        connection: Connection | None = None,
    ) -> int:
        """Queue a job without a planner; its id. It is durable when this returns.

        `delay` is in seconds; higher priorities run first. With `connection` (a DB-API connection inside the caller's
        transaction) the job exists when the caller commits. Raises `NO_WORKER`, `INVALID_PARAMS`, `NOT_FOUND`,
        `INVALID_ARGUMENT`.
        """
        if not 0 <= delay <= LONGEST_DELAY:  # false for what is no number, too
            message = f"delay has to be between 0 and {LONGEST_DELAY} seconds; it is {delay}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
            message = f"priority has to be between {-MOST_PRIORITY} and {MOST_PRIORITY}; it is {priority}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        if mission_id is not None:
            known_id("mission", mission_id)
        worker = self._worker(kind)
        given = dict(params or {})
        worker.read(given)

        def put(ledger: Ledger) -> tuple[int, int]:
            mission = mission_id or steer.open_queue(ledger, QUEUE, self._queue)
            after = None if delay <= 0 else ledger.tx.now + int(delay * SECOND)
            return mission, steer.enqueue(
                ledger, worker, mission, given, name=name, priority=priority, run_after=after
            )

        if connection is None:
            mission, job_id = self._books(put)
            if mission_id is None:
                self._queue = mission  # committed now
            return job_id
        tx = self._database.join(connection)
        _, job_id = put(ledger_of(tx))
        tx.end()
        return job_id

    def work(
        self,
        *,
        until_idle: bool = False,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        """Execute jobs in this process: until nothing is queued, delayed or leased, or else until it is stopped."""
        self.runner(until_idle=until_idle, threads=threads, mission_id=mission_id, kinds=kinds).run()

    def runner(
        self,
        *,
        until_idle: bool = False,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
        roots: Mapping[str, Path] | None = None,
    ) -> Runner:
        """What `work` runs, to be run in a thread of your own and stopped from another one.

        With `roots` it takes the missions alone whose root has one of these names (its path, an alias, the last part of
        its path), and works in the directory that stands for it.
        """
        return Runner(
            self.site,
            threads=threads,
            mission_id=mission_id,
            kinds=kinds,
            until_idle=until_idle,
            roots=Roots(roots) if roots else None,
        )

    def replay(self, mission_id: int, *, keep: Path | None = None) -> Replayed:
        """Run a finished mission again from its history, without a planner; what came out differently.

        Its root is not touched. With `keep` the scratch database and root are left in that directory. Raises
        `NOT_FOUND`, `WRONG_STATE` for a mission that goes on or whose history is not whole, `INVALID_ARGUMENT`.
        """
        from lcp_engine.replay.replay import replay  # seldom needed, and slow to load

        return replay(self.site, known_id("mission", mission_id), keep=keep)

    def fork(
        self,
        mission_id: int,
        *,
        turn: int,
        reply: str | None = None,
        planner: PlannerSpec | None = None,
        by: str | None = None,
    ) -> Forked:
        """Queue a new mission that stands where this one stood when it asked `turn`, on the root as it is.

        The turn is answered by `reply` if given, else by `planner` or the mission's own. Raises `NOT_FOUND`,
        `WRONG_STATE` for a mission without turns, `NO_PLANNER`, `PATH_NOT_FOUND` for a root that is gone.
        """
        from lcp_engine.replay.fork import fork  # seldom needed, and slow to load

        known = known_id("mission", mission_id)
        return fork(self.site, known, turn, reply=reply, planner=planner, by=by or user_name())

    def _worker(self, kind: str) -> Worker[BaseModel]:
        worker = self.workers.get(kind)
        if worker is None:
            known = ", ".join(sorted(self.workers))
            raise LcpError(ErrorCode.NO_WORKER, f"no worker executes kind {kind!r}; there are {known}")
        return worker
