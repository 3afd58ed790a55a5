"""The calls of the kernel: launch missions, execute jobs, look, decide, undo."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, JsonValue

from lcp_engine.api.arguments import (
    check_delay,
    check_priority,
    checked_spec,
    existing_directory,
    known_worker,
    new_root,
)
from lcp_engine.api.inbox import Inbox
from lcp_engine.api.kernel_history import KernelHistory
from lcp_engine.api.queries import approvals_for, read_reply_to
from lcp_engine.api.user import user_name
from lcp_engine.changes import show
from lcp_engine.changes.show import FileNow, Look
from lcp_engine.changes.unified_diff import Contents, Diff
from lcp_engine.clock import Clock
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.policy import Approvals, Rule
from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.settings.feature_settings import FeatureSettings, read_keys
from lcp_engine.engine import missions
from lcp_engine.engine.instance import Options, open_instance
from lcp_engine.engine.missions import LaunchRequest
from lcp_engine.engine.people.approvals import answer, approve, reject
from lcp_engine.engine.people.messages import say
from lcp_engine.engine.points import noted_at_launch, steps
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import Factory
from lcp_engine.runner.runner import Runner, Runs
from lcp_engine.runner.undo import Undo, finish_undo, undo, undo_diffs
from lcp_engine.sandbox.root_identity import identity_at
from lcp_engine.sandbox.system.landlock import Isolation, isolation_named
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.db.sqlite import BUSY_SECONDS
from lcp_engine.store.db.transaction import Connection
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import Sight, see, seen
from lcp_engine.store.queries.history import known_id
from lcp_engine.store.queries.records import Job, Mission
from lcp_engine.workers.base import Caps, Worker, Workers

if TYPE_CHECKING:
    from lcp_engine.core.limits.prices import Prices

QUEUE = "jobs"
"""The mission of jobs that are enqueued without one."""


class KernelEngine(KernelHistory):
    """The engine without the calls of features; `Engine` documents its arguments and what it raises."""

    def __init__(
        self,
        database_url: str,
        *,
        workers: Sequence[Worker[BaseModel]] = (),
        user_rules: Sequence[Rule] = (),
        caps: Caps | None = None,
        clock: Clock | None = None,
        busy_seconds: float = BUSY_SECONDS,
        away_seconds: float | None = None,
        planners: Mapping[str, Mapping[str, JsonValue] | Planner | Factory] | None = None,
        prices: Prices | None = None,
        isolation: Isolation | str = Isolation.AUTO,
        settings: Sequence[FeatureSettings] = (),
        **keys: object,
    ) -> None:
        isolation = isolation_named(isolation, "isolation")
        options = Options(
            workers=workers,
            user_rules=user_rules,
            caps=caps or Caps(),
            clock=clock,
            busy_seconds=busy_seconds,
            away_seconds=away_seconds,
            planners=planners or {},
            prices=prices,
            isolation=isolation,
            settings=read_keys(keys, settings),
        )
        self.instance = open_instance(database_url, options)
        super().__init__(self.instance.database, isolation, self.instance.runtime)
        self._queue: int | None = None
        self._runs = Runs()

    def close(self) -> None:
        """Stop `work` and every runner, and wait for the jobs under way; then close every connection."""
        try:
            self._runs.close()
        finally:  # an interrupt of the wait, too
            self.instance.close()

    @property
    def workers(self) -> Workers:
        """The worker of each kind."""
        return self.instance.admission.workers

    def _known_kinds(self) -> Workers:
        return self.workers

    @property
    def inbox(self) -> Inbox:
        """The held jobs, for people who decide on them."""
        return Inbox(self.instance)

    # -- Launch and execute

    def launch(
        self,
        spec: MissionSpec | Mapping[str, JsonValue],
        *,
        root: str | os.PathLike[str],
        key: str | None = None,
        allow_admin: bool = False,
        request: LaunchRequest | None = None,
        by: str | None = None,
    ) -> Mission:
        """Store a mission over the directory `root`; nothing runs until a runner is started.

        `allow_admin` lets it request kinds of the permission level `admin`, which are held for a person; without it
        they are refused. The mission itself cannot grant that.
        With a `key` that was used before, returns the mission that was launched with it. So does a
        `request` that a mission was launched for; its id becomes the mission's `uid`, its session and user are stored.
        Raises `INVALID_MISSION`,
        `PATH_NOT_FOUND`, `NOT_A_FILE`, `NO_PLANNER`.
        """
        checked = checked_spec(self.instance, spec, allow_admin=allow_admin)
        directory = existing_directory(root)
        identity = identity_at(directory)
        begin = steps().prepare(checked, self.workers, str(directory))
        noted = noted_at_launch(self.instance.admission, checked, directory)
        return self.mission(
            self.instance.write(
                missions.launch,
                checked,
                directory,
                key=key,
                identity=identity,
                request=request,
                begin=begin,
                about={"by": by or user_name(), **noted},
            )
        )

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
        check_delay(delay)
        check_priority(priority)
        if mission_id is not None:
            known_id("mission", mission_id)
        worker = known_worker(self.workers, kind)
        given = dict(params or {})
        given = worker.normal(given, worker.read(given))
        enqueue = partial(
            missions.enqueue_alone, worker=worker, params=given, mission_id=mission_id, queue=(QUEUE, self._queue),
            name=name, priority=priority, delay=delay,
        )  # fmt: skip
        if connection is None:
            mission, job_id = self.instance.write(enqueue)
            if mission_id is None:
                self._queue = mission  # only now: it is committed
            return job_id
        tx = self.instance.database.join(connection)
        _, job_id = enqueue(ledger_of(tx))
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
        """Execute jobs in this process, until `stop` is called; with the same arguments as `runner`."""
        self.runner(until_idle=until_idle, threads=threads, mission_id=mission_id, kinds=kinds).run()

    def stop(self) -> None:
        """Stop `work` and every runner: they finish the jobs under way, give back the others, and return.

        Does not wait for that, and may be called from any thread and from a signal handler. If nothing runs, the next
        run without `until_idle` ends at once, so that a thread that is about to work is stopped, too.
        """
        self._runs.stop()

    def runner(
        self,
        *,
        until_idle: bool = False,
        threads: int = 1,
        mission_id: int | None = None,
        kinds: Sequence[str] | None = None,
        roots: Mapping[str, Path] | None = None,
    ) -> Runner:
        """A runner to run in a thread of your own (`run`) and to stop from another one (`stop`).

        `until_idle`: return once nothing is queued, delayed or leased. `threads`: how many jobs run at a time, from 1.
        `mission_id`: execute the jobs of this mission only. `kinds`: execute these kinds only; None for every kind that
        has a worker. `roots`: serve only missions whose root has one of these names (its path, an alias, the last part
        of its path), and use the directory it maps to. Raises `INVALID_ARGUMENT`, `NOT_FOUND`, `NO_WORKER`.
        """
        return Runner(
            self.instance,
            threads=threads,
            mission_id=mission_id,
            kinds=kinds,
            until_idle=until_idle,
            roots=self.instance.roots(roots),
            runs=self._runs,
        )

    # -- Look at changes and policy

    def diff(self, job_id: int, *, by: str | None = None) -> list[Diff]:
        """Changes that a held job would make now, then recorded as seen by `by`; or those that it has made.

        Empty for a job that changes no file. Raises `NOT_FOUND`.
        """
        return show.show_job(self.instance, known_id("job", job_id), by or user_name())

    def mission_diff(self, mission_id: int) -> list[Diff]:
        """Changes of the mission: each file from its first content to its last. Raises `NOT_FOUND`."""
        return show.show_mission(self.instance, known_id("mission", mission_id))

    def subject(self, job: Job) -> str:
        """Subject of a job, on one line: its path in full, relative to the root of its mission, or other params."""
        return self.subjects()(job.json)

    def look(self, job_id: int, *, params: Mapping[str, JsonValue] | None = None) -> Look:
        """Changes that a held job would make now, with other `params` if given. Raises `NOT_FOUND`.

        Nothing is recorded; `approve(job_id, shown=look.sight)` approves exactly this.
        """
        job = self.job(job_id)
        if params is None:
            return show.look_over(self.instance, [job.json])[job.id]
        return show.look_at_params(self.instance, job.json, dict(params))

    def merged_text(self, job_id: int, path: str, *, params: Mapping[str, JsonValue] | None = None) -> str:
        """The text that a held merge, with other `params` if given, would give a file, to be edited.

        `edits` of the params take the edited text. Raises `NOT_FOUND`; `WRONG_STATE` for any other job;
        `INVALID_PARAMS` for a file that it does not have, or that is not text; `TOO_LARGE`.
        """
        chosen = None if params is None else dict(params)
        return show.text_to_edit(self.instance, known_id("job", job_id), path, chosen)

    def contents(self, job_id: int, path: str) -> Contents:
        """Both contents that the diff of a file compares, of a held job or one that has changed it.

        Nothing but what `diff` or `look` compare is read. Raises `NOT_FOUND` for a job or a path that they do not show,
        or a content that is not kept; `PATH_DENIED` where policy keeps jobs from reading the file; `TOO_LARGE`.
        """
        return show.contents_of(self.instance, known_id("job", job_id), path)

    def last_seen(self, job_id: int, *, by: str | None = None) -> Sight | None:
        """Sight of a job that `diff` last showed this person; None if it showed none."""
        return self.instance.read(seen, known_id("job", job_id), by or user_name())

    def note_sight(self, job_id: int, sight: Sight, *, by: str) -> None:
        """Record what was shown of a held job (`look`), so that `last_seen` gives it. Raises `NOT_FOUND`."""
        job = known_id("job", job_id)
        self.instance.database.write(lambda tx: see(tx, job, by, sight))

    def look_over(self, jobs: Sequence[JsonObject]) -> dict[int, Look]:
        """Changes that held jobs would make now, by their ids; like `look`."""
        return show.look_over(self.instance, jobs)

    def changed_files(self, mission_id: int, *, first: int, most: int) -> tuple[list[FileNow], int]:
        """Like `mission_diff`, compared with the disk: at most `most` files from index `first`, and the total.

        Raises `NOT_FOUND`.
        """
        return show.show_files(self.instance, known_id("mission", mission_id), first=first, most=most)

    def saw(self, jobs: Sequence[Job], *, by: str | None = None) -> None:
        """Record that a person saw a list of held jobs. It never replaces what that person saw of a job before."""
        show.note_first_sight(self.instance, [job.json for job in jobs], by or user_name())

    def read_reply(self, mission_id: int, text: str) -> Action | Malformed:
        """The action that `text` states, in the mission's dialect and with its kinds; nothing is stored.

        Raises `NOT_FOUND`.
        """
        return read_reply_to(self.instance, known_id("mission", mission_id), text)

    # -- Decide

    def approve(
        self,
        job_id: int,
        *,
        params: Mapping[str, JsonValue] | None = None,
        by: str | None = None,
        shown: Sight | None = None,
        words: str | None = None,
    ) -> bool:
        """Let a held job run, with other `params` if given. False if it was approved before.

        A job that needs the approvals of several people stays held until the last of them. Where there are approvers,
        the user of this process is none of them; a program that states `by` has checked who it is.

        The approval is for what was `shown`, the sight of a `look`; else for what this person last saw (`diff`), else
        for what the file was when the job was held. Of a merge, `params` may take some files (`only`), of some files
        some of the hunks that `look` names in its `files`, and edited texts (`params_taking`). The planner gets
        `words`, such as about what is left out of a merge, in another turn, before its mission ends. Raises
        `NOT_FOUND`; `CONFLICT` if the file has changed since or someone decided otherwise; `ROOT_CHANGED`,
        `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`, `INVALID_ARGUMENT`, `TOO_LARGE`, `PATH_DENIED`, `NOT_ALLOWED`.
        """
        job, revised = known_id("job", job_id), None if params is None else dict(params)
        now = show.sight_now(self.instance, job, revised)
        return self.instance.write(
            approve, self.instance.admission, job, by=by or user_name(), now=now, params=revised, shown=shown,
            is_known=by is not None, words=words,
        )  # fmt: skip

    def approvals(self, jobs: Sequence[Job]) -> dict[int, Approvals]:
        """By job id, of those held jobs for which one person's yes is not enough: who has approved, who may not."""
        return approvals_for(self.instance, jobs)

    def reject(self, job_id: int, reason: str, *, by: str | None = None) -> bool:
        """Refuse a held job; the planner reads the reason. False if it was rejected before.

        Raises `NOT_FOUND`, `CONFLICT`, `WRONG_STATE`.
        """
        return self.instance.write(reject, known_id("job", job_id), reason, by=by or user_name())

    def answer(
        self,
        job_id: int,
        text: str = "",
        *,
        by: str | None = None,
        words: bool = False,
        form: Mapping[str, JsonValue] | None = None,
        shown: str | None = None,
    ) -> bool:
        """Answer a held question (R13). False if it was given the same answer before.

        If the question has options, `text` may be the number of one, or the beginning of exactly one; `words` takes it
        as the person's own words (R14). `form` fills in the question's form, by the ids of its fields, with JSON values
        or with what a person typed; `text` is then added to it. `shown` is the fingerprint of the question that the
        person saw (`question_shown`). Raises `NOT_FOUND`, `WRONG_STATE`, `CONFLICT`, and `INVALID_ARGUMENT`, also for a
        number that no option has, the beginning of several, and a form that is not filled in.
        """
        return self.instance.write(
            answer, known_id("job", job_id), text, by=by or user_name(), words=words, form=form, shown=shown
        )

    def say(self, mission_id: int, text: str, *, job_id: int | None = None, by: str | None = None) -> None:
        """Send the planner a message, perhaps about a job, for its next turn; it decides nothing (R14).

        Raises `NOT_FOUND`, `INVALID_ARGUMENT`, and `WRONG_STATE` for a mission that has ended.
        """
        job = None if job_id is None else known_id("job", job_id)
        self.instance.write(say, known_id("mission", mission_id), text, by=by or user_name(), job_id=job)

    def cancel(self, mission_id: int, *, by: str | None = None) -> bool:
        """Stop a mission. False if it was cancelled before. Raises `NOT_FOUND`, `WRONG_STATE`."""
        return self.instance.write(missions.cancel, known_id("mission", mission_id), by=by or user_name())

    def resume(
        self,
        mission_id: int,
        *,
        limits: Mapping[str, JsonValue] | None = None,
        root: str | os.PathLike[str] | None = None,
        by: str | None = None,
    ) -> Mission:
        """Continue a mission that has ended, with other `limits` if given.

        `root` is the directory that it works in from now on, after its root was moved, restored or replaced; then only
        a mission that failed continues. Raises `NOT_FOUND`, `WRONG_STATE`, `INVALID_MISSION`, and for `root`
        `PATH_NOT_FOUND` and `NOT_A_FILE`.
        """
        known, person = known_id("mission", mission_id), by or user_name()
        if root is None:
            self.instance.write(missions.resume, known, limits or {}, by=person)
        else:
            new = new_root(self.instance, known, existing_directory(root))
            self.instance.write(missions.accept_root, new, limits or {}, by=person)
        return self.mission(mission_id)

    def retry(self, job_id: int, *, by: str | None = None) -> Job:
        """Queue a failed, skipped or cancelled job again; one that was held and never approved is held again.

        Raises `NOT_FOUND`, `WRONG_STATE`, `NO_WORKER`, `INVALID_PARAMS`.
        """
        self.instance.write(
            missions.retry, known_id("job", job_id), by=by or user_name(), workers=self.workers
        )
        return self.job(job_id)

    def undo(
        self,
        mission_id: int | None = None,
        *,
        job_id: int | None = None,
        dry_run: bool = False,
        shown: str | None = None,
        by: str | None = None,
    ) -> Undo:
        """Restore the files that a mission, or one job, has changed; with `dry_run` only report what would be done.

        With `shown`, which a dry run gives, exactly that is done or nothing. Raises `INVALID_ARGUMENT` unless exactly
        one of `mission_id` and `job_id` is given; `NOT_FOUND`; `WRONG_STATE` while jobs of the mission are queued or
        running; `CONFLICT`, before anything is restored, for a file that is not what the last change left, and if
        something else was `shown`; and the error of a restoration that failed, which lists the files not restored.
        """
        who = by or user_name()
        return undo(self.instance, mission_id, job_id=job_id, dry_run=dry_run, shown=shown, by=who)

    def undo_diffs(
        self, mission_id: int | None = None, *, job_id: int | None = None, shown: str | None = None
    ) -> list[Diff]:
        """Changes that an undo of a mission or a job would make. Raises `NOT_FOUND`, and `CONFLICT` like `undo`."""
        return undo_diffs(self.instance, mission_id, job_id=job_id, shown=shown)

    def finish_undo(self, job_id: int) -> Undo:
        """Undo that was decided by a job, after it was interrupted. Raises `NOT_FOUND`, and like `undo`."""
        return finish_undo(self.instance, known_id("job", job_id))
