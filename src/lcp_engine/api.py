"""Offer the engine to programs: launch missions, work, decide, look (CONTRACT.md, Python)."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from pydantic import BaseModel, JsonValue

from lcp_engine.clock import SECOND, Clock
from lcp_engine.deliverables import compared
from lcp_engine.differences import (
    FileNow,
    Look,
    look_over,
    note_first_sight,
    show_files,
    show_job,
    show_mission,
    sight_now,
)
from lcp_engine.diffs import Diff
from lcp_engine.engine import answering, deciding, saying, steering
from lcp_engine.engine.explaining import explain_job
from lcp_engine.engine.plans import spec_of
from lcp_engine.engine.records import Job, Mission
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.forking import Forked, fork
from lcp_engine.isolation.mode import Isolation
from lcp_engine.jobs import State
from lcp_engine.mission import MissionSpec, PlannerSpec, build_mission, nearest
from lcp_engine.planners.registry import make_planner
from lcp_engine.policy import Rule
from lcp_engine.protocol.actions import Action, Malformed
from lcp_engine.protocol.dialects import reader_of
from lcp_engine.replaying import Replayed, replay
from lcp_engine.reporting.facts import Course, Facts
from lcp_engine.roots import Roots
from lcp_engine.runner import Runner
from lcp_engine.site import open_site
from lcp_engine.store import history
from lcp_engine.store.course import find_course
from lcp_engine.store.expiries import find_expiries
from lcp_engine.store.facts import MOST, find_facts
from lcp_engine.store.history import known_id
from lcp_engine.store.ledger import Ledger, ledger_of, spec_and_root
from lcp_engine.store.reviews import Sight
from lcp_engine.store.sqlite import BUSY_SECONDS
from lcp_engine.store.text import JsonObject
from lcp_engine.store.transaction import Connection, Tx
from lcp_engine.undoing import Undo, undo
from lcp_engine.workers.base import Caps, Worker, Workers
from lcp_engine.workers.registry import BUILT_IN

T = TypeVar("T")
_STATES = [str(state) for state in State]
QUEUE = "jobs"
LONGEST_DELAY = 100 * 365 * 24 * 3600
MOST_PRIORITY = 2**31 - 1


def read_reply(
    text: str, dialect: str = "lcp", kinds: Mapping[str, type[BaseModel]] | None = None
) -> Action | Malformed:
    """The action that `text` states, or every reason why it is none (R1 to R3). Pure; no text raises.

    `dialect` is `lcp` or `universal`, which is translated. `kinds` maps kinds of jobs to models of their params; the
    default is the built-in ones. Raises `INVALID_ARGUMENT` for a dialect that there is not.
    """
    known = {kind: worker.params for kind, worker in BUILT_IN.items()} if kinds is None else kinds
    return reader_of(dialect)(text, known)


class Engine:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self.site.bell.close()

    @property
    def workers(self) -> Workers:
        return self.site.bench.workers

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
        if not isinstance(spec, MissionSpec):
            spec = build_mission(dict(spec), source="mission")
        make_planner(
            spec.planner, self.site.surroundings
        )  # a planner that is not there is known now, not at the first turn
        directory = _directory(root)
        mission_id = self._books(lambda ledger: steering.launch(ledger, spec, directory, key=key))
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

        def put(ledger: Ledger) -> int:
            mission = mission_id if mission_id is not None else steering.open_queue(ledger, QUEUE)
            after = None if delay <= 0 else ledger.tx.now + int(delay * SECOND)
            return steering.enqueue(
                ledger, worker, mission, given, name=name, priority=priority, run_after=after
            )

        if connection is None:
            return self._books(put)
        tx = self._database.join(connection)
        job_id = put(ledger_of(tx))
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

    def mission(self, mission_id: int) -> Mission:
        """The mission as it is now. Raises `NOT_FOUND`."""
        return Mission(self._database.read(lambda tx: history.find_mission(tx, mission_id)))

    def missions(self, *, limit: int | None = None) -> list[Mission]:
        """Missions, the newest first."""
        return [
            Mission(row) for row in self._database.read(lambda tx: history.find_missions(tx, limit=limit))
        ]

    def job(self, job_id: int) -> Job:
        """The job with its attempts. Raises `NOT_FOUND`."""
        return Job(self._database.read(lambda tx: history.find_job(tx, job_id)))

    def jobs(
        self,
        *,
        mission_id: int | None = None,
        states: Sequence[str] = (),
        kinds: Sequence[str] = (),
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Job]:
        """Jobs that fit every filter, in the order of their ids. Raises `INVALID_ARGUMENT` for an unknown state."""
        for state in states:
            if state not in _STATES:
                raise LcpError(
                    ErrorCode.INVALID_ARGUMENT, f"no state is named {state!r}; {nearest(state, _STATES)}"
                )

        def find(tx: Tx) -> list[JsonObject]:
            return history.find_jobs(
                tx, mission_id=mission_id, states=states, kinds=kinds, limit=limit, newest_first=newest_first
            )

        return [Job(row) for row in self._database.read(find)]

    def read_reply(self, mission_id: int, text: str) -> Action | Malformed:
        """The action that `text` states to this mission, in its dialect and with its kinds; nothing is stored.

        Raises `NOT_FOUND`.
        """
        known = known_id("mission", mission_id)
        spec = spec_of(self._database.read(lambda tx: spec_and_root(tx, known))[0])
        kinds = {kind: worker.params for kind, worker in self.workers.items()}
        return reader_of(spec.planner.dialect)(text, kinds)

    def events(
        self,
        mission_id: int,
        *,
        after_seq: int = 0,
        job_id: int | None = None,
        event: str | None = None,
        limit: int | None = None,
    ) -> list[JsonObject]:
        """The mission's history after event `after_seq`, in order; with `event` only the events of that name."""
        return self._database.read(
            lambda tx: history.find_events(
                tx, mission_id, after_seq=after_seq, job_id=job_id, event=event, limit=limit
            )
        )

    def event_counts(self) -> dict[int, int]:
        """The number of the last event of every mission, by the mission's id."""
        return self._database.read(history.count_events)

    def turns(self, mission_id: int, *, job_id: int | None = None) -> list[JsonObject]:
        """Questions and replies, in order; with `job_id` those of one job."""
        return self._database.read(lambda tx: history.find_turns(tx, mission_id, job_id=job_id))

    def steps(self, mission_id: int) -> dict[int, int]:
        """The job that began the sub-plan of each later turn of one, by the turn's job."""
        return self._database.read(lambda tx: history.find_steps(tx, mission_id))

    def changes(self, mission_id: int) -> list[JsonObject]:
        """The mission's file effects in order, with what became of them."""
        return self._database.read(lambda tx: history.find_changes(tx, mission_id))

    def diff(self, job_id: int, *, by: str | None = None) -> list[Diff]:
        """What a held job would change now, which counts as seen by that person; or what the job has changed.

        Empty for a job that changes no file. Raises `NOT_FOUND`.
        """
        return show_job(self.site, known_id("job", job_id), by or _user())

    def mission_diff(self, mission_id: int) -> list[Diff]:
        """What the mission has changed: each file from its first content to its last. Raises `NOT_FOUND`."""
        return show_mission(self.site, known_id("mission", mission_id))

    def look_over(self, jobs: Sequence[JsonObject], *, by: str | None = None) -> dict[int, Look]:
        """What held jobs would change now, by their ids, which counts as seen by that person."""
        return look_over(self.site, jobs, by or _user())

    def changed_files(self, mission_id: int, *, first: int, most: int) -> tuple[list[FileNow], int]:
        """Like `mission_diff`, with what is on the disk: `most` files behind the `first` ones, and how many there are.

        Raises `NOT_FOUND`.
        """
        return show_files(self.site, known_id("mission", mission_id), first=first, most=most)

    def saw(self, jobs: Sequence[Job], *, by: str | None = None) -> None:
        """Note that a person was shown a list of held jobs: what they see later takes its place, not the reverse."""
        note_first_sight(self.site, [job.json for job in jobs], by or _user())

    def undo(
        self,
        mission_id: int | None = None,
        *,
        job_id: int | None = None,
        dry_run: bool = False,
        by: str | None = None,
    ) -> Undo:
        """Take back what a mission, or one job, did to files. Raises as `lcp_engine.undoing.undo` says."""
        if (mission_id is None) == (job_id is None):
            raise LcpError(
                ErrorCode.INVALID_ARGUMENT, "either a mission or a job is undone; name one of both"
            )
        return undo(self.site, mission_id=mission_id, job_id=job_id, dry_run=dry_run, by=by or _user())

    def facts(self, mission_id: int, *, most: int = MOST) -> Facts:
        """What a report says of the mission, at most `most` rows of each list; files are compared with the disk.

        Raises `NOT_FOUND`.
        """
        return compared(self._database.read(lambda tx: find_facts(tx, mission_id, most=most)))

    def standing(
        self, mission_id: int, *, since: int | None = None, most: int = MOST
    ) -> tuple[Facts, Course]:
        """Like `facts`, with all that is held, and how far the mission has come since event `since`.

        Without `since`: since the newest question to the planner.
        """

        def find(tx: Tx) -> tuple[Facts, Course]:
            facts = find_facts(tx, mission_id, most=most, most_held=MOST)
            return facts, find_course(tx, mission_id, since)

        facts, course = self._database.read(find)
        return compared(facts), course

    def explain_policy(self, job_id: int) -> JsonObject:
        """Which rule decides about a job, and every one that was looked at. Raises `NOT_FOUND`."""
        job = self.job(job_id)
        spec, root = self._database.read(lambda tx: spec_and_root(tx, job.mission_id))
        return explain_job(self.site.bench, job.json, spec, root)

    def approve(
        self,
        job_id: int,
        *,
        params: Mapping[str, JsonValue] | None = None,
        by: str | None = None,
        shown: Sight | None = None,
    ) -> bool:
        """Let a held job run, with other `params` if given; False if that was decided before.

        It binds to what this person was `shown` (`look_over`), else to what they last saw (`diff`), or else to what was
        there when the job was held. Raises `NOT_FOUND`, `CONFLICT` where the file has changed since or somebody decided
        otherwise, `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`, `PATH_DENIED`.
        """
        revised = None if params is None else dict(params)
        known, bench, who = known_id("job", job_id), self.site.bench, by or _user()
        now = sight_now(self.site, known, revised)
        return self._books(
            lambda ledger: deciding.approve(
                ledger, bench, known, by=who, now=now, params=revised, shown=shown
            )
        )

    def reject(self, job_id: int, reason: str, *, by: str | None = None) -> bool:
        """Refuse a held job; the planner reads the reason. False if that was decided before.

        Raises `CONFLICT`, `WRONG_STATE`.
        """
        return self._books(
            lambda ledger: deciding.reject(ledger, known_id("job", job_id), reason, by=by or _user())
        )

    def answer(self, job_id: int, text: str, *, by: str | None = None) -> bool:
        """Answer a held question (R13); False if it was answered so before.

        With options, the number of one or the beginning of exactly one stands for it. Raises `NOT_FOUND`,
        `INVALID_ARGUMENT`, `WRONG_STATE`.
        """
        return self._books(
            lambda ledger: answering.answer(ledger, known_id("job", job_id), text, by=by or _user())
        )

    def say(self, mission_id: int, text: str, *, job_id: int | None = None, by: str | None = None) -> None:
        """Tell the planner something, perhaps about a job, in a new turn; nothing is approved or rejected (R14).

        Raises `NOT_FOUND`, `INVALID_ARGUMENT`, and `WRONG_STATE` for a mission that has ended.
        """
        mission = known_id("mission", mission_id)
        about = None if job_id is None else known_id("job", job_id)
        self._books(lambda ledger: saying.say(ledger, mission, text, by=by or _user(), job_id=about))

    def expiries(self) -> dict[int, str]:
        """When each held job that expires is rejected (ISO 8601), by the job's id."""
        return self._database.read(find_expiries)

    def cancel(self, mission_id: int, *, by: str | None = None) -> bool:
        """Stop a mission; False if it is cancelled already. Raises `NOT_FOUND`, `WRONG_STATE`."""
        return self._books(
            lambda ledger: steering.cancel(ledger, known_id("mission", mission_id), by=by or _user())
        )

    def resume(
        self, mission_id: int, *, limits: Mapping[str, JsonValue] | None = None, by: str | None = None
    ) -> Mission:
        """Go on with a mission that ended, with other limits if given. Raises `WRONG_STATE`, `INVALID_MISSION`."""
        self._books(
            lambda ledger: steering.resume(
                ledger, known_id("mission", mission_id), limits or {}, by=by or _user()
            )
        )
        return self.mission(mission_id)

    def retry(self, job_id: int, *, by: str | None = None) -> Job:
        """Queue a failed, skipped or cancelled job again; one that nobody had approved is held again.

        Raises `NOT_FOUND`, `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`.
        """
        known = known_id("job", job_id)
        self._books(lambda ledger: steering.retry(ledger, known, by=by or _user(), workers=self.workers))
        return self.job(job_id)

    def replay(self, mission_id: int, *, keep: Path | None = None) -> Replayed:
        """Run a finished mission again from its history, without a planner; what came out differently.

        Its root is not touched. With `keep` the scratch database and root are left in that directory. Raises
        `NOT_FOUND`, `WRONG_STATE` for a mission that goes on or whose history is not whole, `INVALID_ARGUMENT`.
        """
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
        known = known_id("mission", mission_id)
        return fork(self.site, known, turn, reply=reply, planner=planner, by=by or _user())

    def _books(self, work: Callable[[Ledger], T]) -> T:
        return self._database.write(lambda tx: work(ledger_of(tx)))

    def _worker(self, kind: str) -> Worker[BaseModel]:
        worker = self.workers.get(kind)
        if worker is None:
            known = ", ".join(sorted(self.workers))
            raise LcpError(ErrorCode.NO_WORKER, f"no worker executes kind {kind!r}; there are {known}")
        return worker


def _directory(root: str | os.PathLike[str]) -> Path:
    path = Path(root)
    if not path.exists():
        raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root {path} has to be a directory; it is not there")
    if not path.is_dir():
        raise LcpError(ErrorCode.NOT_A_FILE, f"root {path} has to be a directory; it is a file")
    return path.resolve()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
