"""Run the commands of missions: those of jobs, whose changes may be kept, and those of acceptance checks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

from pydantic import BaseModel

from lcp_engine.changes.change_set import Carried
from lcp_engine.changes.journal import Tracker
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.policy import Verdict
from lcp_engine.core.programs.network import NO_NETWORK_GRANTED, granted
from lcp_engine.engine.admission import too_many_bytes
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import KeptForPerson, Succeeded, outcome_of
from lcp_engine.engine.settle import FinishedJob, label
from lcp_engine.engine.settle import finish as finish_job
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.features.programs.apply import Apply, Changed, finish, note_of
from lcp_engine.features.programs.held_changes import Judge, hold_changes, judge_of
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import (
    WORKER,
    Surroundings,
    refuse_unallowed,
    run_and_keep,
    run_behind_wall,
)
from lcp_engine.features.programs.servers.external import ExternalPrograms, ProgramRoot, over_copy
from lcp_engine.features.programs.servers.external_worker import Keep, program_of, with_left_out
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.stage_work import StageWork, WorksInStage
from lcp_engine.features.programs.wall.layers.upper import Change, Changes, Type
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.steps import step_here
from lcp_engine.features.programs.wall.views.git_view import tracked
from lcp_engine.features.programs.wall.views.masks import Rights, opened
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.features.programs.wall.workspace import Ground, Workspace, owner_of
from lcp_engine.planners.base import Question
from lcp_engine.runner.confined.channel import Attempt
from lcp_engine.runner.confined.checks import Undecided
from lcp_engine.runner.execution import ExecutionType
from lcp_engine.runner.open_missions import OpenMission, OpenMissions
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.own_places import make_private
from lcp_engine.store.changes import changed_paths
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.missions import uid_of
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Answered, Context, FileEffect, Hold, Kept, Outcome, Worker
from lcp_engine.workers.read_file import WORKER as READ_FILE

RUN_COMMAND = WORKER.for_any_params()
_KEPT = frozenset({Verdict.AUTO})
_HELD = frozenset({Verdict.AUTO, Verdict.HOLD})
"""The verdicts on changes that wait for a person."""
_NO_BYTES = sha256(b"").hexdigest()


class Commands:
    """Runs commands and external programs for a runner (an `Executing`).

    Each is behind the strongest wall that its user allows and this machine offers.
    """

    def __init__(self, instance: Instance, missions: OpenMissions, threads: ConfinedThreads) -> None:
        self._instance = instance
        self._missions = missions
        self._threads = threads
        self._under_way = ProgramsUnderWay()
        self._programs = ExternalPrograms(self._under_way)

    @property
    def attempts(self) -> frozenset[Attempt]:
        return self._under_way.attempts

    def end(self, attempts: Iterable[Attempt]) -> None:
        self._under_way.end(attempts)

    def close(self) -> None:
        self._programs.close()

    def permit(self, worker: Worker[BaseModel]) -> AbstractContextManager[None]:
        return self._programs.permit(worker)

    def execute_ahead(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], tracker: Tracker
    ) -> Sequence[FinishedJob | None]:
        program, found = program_of(worker), list[Answered | None]()
        if program is not None and program.long_lived and not worker.reads_files:
            with suppress(LcpError):  # each job meets the error alone
                mission = self._missions.of_jobs(jobs)
                asked = [
                    (
                        worker.read(from_json(job.params), label(job)),
                        self._missions.context(mission, job, worker),
                    )
                    for job in jobs
                ]
                found = self._programs.execute_ahead(worker, asked, lambda nth: tracker.start(jobs[nth]))
        return [
            None if answer is None else _answered(job, worker, answer)
            for job, answer in zip_longest(jobs, found)
        ]

    def execute(
        self,
        job: JobRow,
        worker: Worker[BaseModel],
        mission: OpenMission,
        params: BaseModel,
        context: Context,
    ) -> Succeeded | FileEffect | Hold | Failed:
        """Execute a job; what it changed is kept, or held for a person, with its success or not at all."""

        def run() -> Kept | Answered:
            keep = self._keep(job, mission, context.root)
            if worker.command is not None:
                command, around = worker.command(params), self._surroundings(mission, context, job.mission_id)
                refuse_unallowed(command, around.commands)
                return run_and_keep(command, around, keep)
            over = ProgramRoot(self._access(mission, context, job.mission_id), keep)
            return self._programs.execute(worker, params, context, over)

        program = program_of(worker)
        if program is not None and not program.needs.root:
            return outcome_of(
                worker, label(job), lambda: self._programs.execute(worker, params, context, None)
            )
        return outcome_of(worker, label(job), lambda: self._earlier(job, worker, mission) or run())

    def ask(self, job: JobRow, mission: OpenMission, question: Question) -> object:
        """Answer of the mission's planner, which may have a program work in the mission's stage."""
        planner = mission.made_planner()
        if not isinstance(planner, WorksInStage):
            return planner.answer(question)
        if not mission.is_private:
            message = f"planner {mission.spec.planner.type!r} works in a stage, and the mission has none"
            raise LcpError(ErrorCode.PLANNER_REFUSED, message, advice="Add `stage: true` to the mission.")
        worker = self._instance.admission.workers[job.kind].under(mission.spec.kinds.get(job.kind))
        context = self._missions.context_of_kind(mission, RUN_COMMAND)
        context = replace(context, job_id=job.id, attempt=job.attempt)
        around = self._surroundings(mission, context, job.mission_id)
        keep = partial(self._keep_of_turn, job, mission, context.root)
        seconds = min(worker.timeout, question.seconds_left or worker.timeout)
        policy = self._missions.policy(mission)
        work = StageWork(job, self._instance, policy, around, self._under_way, keep, seconds)
        return planner.work(question, work)

    def may_repeat(self, worker: Worker[BaseModel]) -> bool:
        """True for commands, and programs that may leave changes: a later call for the same job finds what was kept."""
        program = program_of(worker)
        return program is None or program.needs.root == "write"

    def _earlier(self, job: JobRow, worker: Worker[BaseModel], mission: OpenMission) -> Kept | None:
        """The result of an attempt that was interrupted once it had decided what is kept; None if none had."""
        carried = self._finished(job) if mission.is_private else None
        return None if carried is None else _kept(worker.result.model_validate(note_of(carried)), (), carried)

    def _finished(self, job: JobRow) -> Carried | None:
        """Changes that an interrupted attempt had decided on, carried out; None if it had not. Raises their refusal."""
        carried = finish(self._instance.database, job, self._threads)
        if carried is not None and carried.refused is not None:
            raise LcpError.of(carried.refused)
        return carried

    def _keep(self, job: JobRow, mission: OpenMission, root: Root) -> Keep | None:
        """Keeper of the changes of a job's program: as part of the stage, or for a person; None if they are dropped."""
        if mission.is_private:
            return partial(self._keep_in_stage, job, mission, root)
        return None if mission.spec.commands.changes == "drop" else partial(self._hold, job, mission, root)

    def _hold(  # noqa: PLR0917 -- the first ones are bound
        self,
        job: JobRow,
        mission: OpenMission,
        root: Root,
        place: Workspace,
        changes: Changes,
        result: BaseModel,
    ) -> Kept:
        """Have a person decide on what a program changed, as far as that may be written and deleted."""
        chosen, left_out = self._chosen(job, mission, changes, _HELD)
        place.open_to_owner(one.path for one in chosen if one.after is not None)
        request = hold_changes(self._instance, job, root, place.made.up, chosen) if chosen else None
        result = with_left_out(result, left_out)
        return KeptForPerson(result, is_whole=not changes.changes, request=request)

    def fault_of_check(
        self, job: JobRow, mission: OpenMission, spec: MissionSpec, command: Sequence[str]
    ) -> str | Undecided | None:
        """Reason why the command of a check does not pass; None if it does. Its time is added to that of the turn."""
        began, commands = time.monotonic(), spec.commands
        try:
            context = replace(
                self._missions.context_of_kind(mission, RUN_COMMAND), job_id=job.id, attempt=job.attempt
            )
            around = replace(self._surroundings(mission, context, job.mission_id), commands=commands)
            result = run_behind_wall(command, around)
        except LcpError as error:
            return str(error)
        if result.exit_code is None and time.monotonic() - began >= commands.seconds:
            return Undecided(result.how)
        return None if result.exit_code == 0 else result.how

    def surroundings_of_person(self, mission_id: int, run: Callable[[Root, Program], Ended]) -> Surroundings:
        """Surroundings of the commands of a mission, without network, for a person who runs a program by `run`.

        Raises as `OpenMissions.of`, and `INVALID_PARAMS` if the mission has no root.
        """
        mission = self._missions.of(mission_id)
        context = self._missions.context_of_kind(mission, RUN_COMMAND)
        context = replace(context, job_id=0, attempt=os.getpid())
        around = self._surroundings(mission, context, mission_id)
        return replace(around, run=run, network=NO_NETWORK_GRANTED)

    def _surroundings(self, mission: OpenMission, context: Context, mission_id: int) -> Surroundings:
        """Surroundings that a command is run with.

        Raises `INVALID_PARAMS` if the mission has no root, `NOT_ALLOWED` for a network that the user does not allow.
        """
        settings, commands = self._instance.settings(ProgramSettings), mission.spec.commands
        attempt = (context.job_id or 0, context.attempt)
        return Surroundings(
            self._access(mission, context, mission_id),
            commands,
            settings.places,
            partial(run_program, attempt=attempt, under_way=self._under_way),
            network=granted(commands.network, settings.commands_network),
        )

    def _access(self, mission: OpenMission, context: Context, mission_id: int) -> RootAccess:
        """Access of a program to the root. Raises `INVALID_PARAMS` if the mission has none."""
        return RootAccess(
            context.root,
            self._missions.readable(mission, context),
            self._rights(mission, context),
            ground_of(self._instance, context.root, mission_id, (context.job_id or 0, context.attempt)),
        )

    def _rights(self, mission: OpenMission, context: Context) -> Rights:
        """Paths of the root that commands may see."""
        policy, may_read = self._missions.policy(mission), self._missions.readable(mission, context)
        shown = mission.spec.commands.show
        may_show = policy.apart_from_secrets(READ_FILE.named)
        root, files = context.root, frozenset[str]()
        with ExitStack() as stack, suppress(ValueError):  # an index of another form
            if shown:  # git tracks no file of a stage
                files = tracked(root if root.copy_of is None else stack.enter_context(root.open_copied()))
        return Rights(
            lambda path: may_read(f"{path}x" if path.endswith("/") else path),
            repr((mission.spec.policy, self._instance.admission.user_rules, sorted(policy.origins.items()))),
            opened(shown, files, may_show),
        )

    def _keep_of_turn(  # noqa: PLR0917 -- the first ones are bound
        self,
        job: JobRow,
        mission: OpenMission,
        root: Root,
        place: Workspace,
        changes: Changes,
        result: BaseModel,
    ) -> Kept:
        """Like `_keep_in_stage`; what an attempt that was interrupted has decided is finished instead."""
        carried = self._finished(job)
        if carried is None:
            return self._keep_in_stage(job, mission, root, place, changes, result)
        return _kept(result, (), carried)

    def _keep_in_stage(  # noqa: PLR0917 -- the first ones are bound
        self,
        job: JobRow,
        mission: OpenMission,
        root: Root,
        place: Workspace,
        changes: Changes,
        result: BaseModel,
    ) -> Kept:
        """Make what a program changed part of the stage, as far as files may be written and deleted there.

        Raises `CONFLICT` for a file that something else has changed since the program began.
        """
        chosen, left_out = self._chosen(job, mission, changes, _KEPT)
        result = with_left_out(result, left_out)
        if not chosen:
            return Kept(result, is_whole=not left_out)
        place.open_to_owner(one.path for one in chosen if one.after is not None)
        kept_in = place.layer.place / "kept"  # not with the run: what is decided outlasts it
        make_private(kept_in)
        with Root(str(place.made.up)) as source:
            carried = Apply(
                self._instance.database,
                job,
                self._threads,
                root,
                source,
                kept_in / place.made.run.id,
                self._instance.caps.preimage_bytes,
                in_stage=True,
                note=result.model_dump(mode="json"),
            ).perform(chosen)
        if carried.refused is not None:
            raise LcpError.of(carried.refused)
        return _kept(result, left_out, carried)

    def _chosen(
        self, job: JobRow, mission: OpenMission, changes: Changes, verdicts: Container[Verdict]
    ) -> tuple[list[Changed], list[str]]:
        """Like `_judged`; none is kept of changes that are more than the mission may still write."""
        kept, left_out = _judged(changes, judge_of(self._missions.policy(mission)), verdicts)
        written = {one.path for one in kept if one.after not in {None, one.before}}
        made = (one.after for one in changes.changes if one.path in written)
        size = sum(one.size for one in made if one is not None)
        reason = None
        if size and mission.spec.limits.max_bytes_written is not None:
            admission = self._instance.admission
            reason = self._instance.write(lambda ledger: too_many_bytes(ledger, admission, job, size))
        return (
            (kept, left_out) if reason is None else ([], [*left_out, f"{len(kept):,} files: {reason.text}"])
        )


def _answered(job: JobRow, worker: Worker[BaseModel], answer: Answered) -> FinishedJob:
    outcome = outcome_of(worker, label(job), lambda: answer)
    assert not isinstance(outcome, FileEffect)
    return finish_job(job, worker, outcome)


def execute_once(
    worker: Worker[BaseModel], params: BaseModel, context: Context, may_read: Callable[[str], bool]
) -> Outcome | Kept:
    """Have a program execute a job outside of missions: over a copy of the root if it needs that."""
    program, programs = program_of(worker), ExternalPrograms()
    if program is None:
        return worker.execute(params, context)
    try:
        over = over_copy(context.root, may_read) if program.needs.root else None
        return programs.execute(worker, params, context, over).outcome
    finally:
        programs.close()


EXECUTION = ExecutionType(open=Commands, execute_once=execute_once)


def ground_of(instance: Instance, root: Root, mission_id: int, attempt: Attempt) -> Ground | None:
    """Where the wall keeps what a command of a mission needs, and how strong it is here; None if nothing is kept here.

    Raises `FILE_SYSTEM` if there is no room for it.
    """
    walls, database = instance.walls, instance.database
    if walls is None:
        return None
    allowed = instance.settings(ProgramSettings).walls(instance.isolation)
    found = step_here(walls, Path(root.copy_of or root.path), owner_of(root), walls=allowed)
    run, uid = "-".join(map(str, attempt)), database.read(lambda tx: uid_of(tx, mission_id)) or ""
    written = partial(database.read, partial(changed_paths, mission_id=mission_id))
    return Ground(walls / str(mission_id), uid, run, found, partial(_is_settled, database), written)


def _is_settled(database: Database, run: str) -> bool | None:
    """True of a run whose job has succeeded with it; None while the job is leased to it."""
    job_id, attempt = map(int, run.split("-"))
    found = database.read(lambda tx: find_jobs(tx, [job_id]))
    if not found or found[0].attempt != attempt:
        return False
    return None if found[0].state is State.RUNNING else found[0].state is State.SUCCEEDED


def _judged(changes: Changes, judge: Judge, verdicts: Container[Verdict]) -> tuple[list[Changed], list[str]]:
    """The changes that are kept, for which policy has one of the verdicts, and the others, each with the reason."""
    kept: list[Changed] = []
    left_out: list[str] = []
    for one in changes.changes:
        why = _why_not(one, judge, verdicts)
        if why is None:
            kept.append(_as_changed(one))
        else:
            left_out.append(f"{one.path}: {why}")
    if changes.is_whole:
        return kept, left_out
    return [], [*left_out, f"{changes.more:,} further changes: too many to be kept"]


def _why_not(one: Change, judge: Judge, verdicts: Container[Verdict]) -> str | None:
    """Reason why a change is not kept; None if it is."""
    if one.problem is not None:
        return str(one.problem)
    if one.is_whole:
        return "too many files at once"
    types = {entry.type for entry in (one.before, one.after) if entry is not None}
    if len(types) > 1 or not types <= {Type.FILE, Type.DIRECTORY}:
        return "links, and what becomes something else, are not kept"
    ruling = judge(one.path, one.after is None)
    return None if ruling.verdict in verdicts else str(ruling.reason)


def _as_changed(one: Change) -> Changed:
    entries = [entry for entry in (one.before, one.after) if entry is not None]
    if entries[0].type is Type.DIRECTORY:
        before, after = (None if entry is None else _NO_BYTES for entry in (one.before, one.after))
        path = f"{one.path}/"
    else:
        before, after = (None if entry is None else entry.sha256 for entry in (one.before, one.after))
        path = one.path
    mode = None if one.before is None else one.before.mode
    owners = 0o700 if path.endswith("/") else 0o400
    return Changed(
        path, before, after, mode, None if one.after is None else _mode_after(mode, one.after.mode, owners)
    )


def _mode_after(before: int | None, after: int, owners: int) -> int:
    """Mode that a change is kept with: nothing that a command made runs as its owner or group, or is closed to them."""
    return after if after == before else after & 0o777 | owners


def _kept(result: BaseModel, left_out: Sequence[str], carried: Carried) -> Kept:
    """The result of a program whose changes became part of a stage, as far as nothing else changed the files."""
    unmade = [f"{one.path}: changed meanwhile" for one in carried.unmade]
    return Kept(with_left_out(result, unmade), not (left_out or unmade), carried.written_bytes)
