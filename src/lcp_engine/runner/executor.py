"""Execute leased jobs: a turn asks the planner, work calls its worker."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from posixpath import normpath
from types import FunctionType
from typing import TypeVar

from pydantic import BaseModel, JsonValue

from lcp_engine.changes.journal import UNTRACKED, JobEffect, Journal, Tracker
from lcp_engine.changes.own_kinds import LeasedJob, own_kind
from lcp_engine.changes.preview import Preview, preview_of, sight_of
from lcp_engine.changes.undo import execute_undo
from lcp_engine.clock import SECOND
from lcp_engine.core.claims import deliverables_of, faults_of_issues
from lcp_engine.core.decide import FailedCheck
from lcp_engine.core.limits.prices import cost_of
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import Policy
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    Malformed,
    MissionComplete,
    Problem,
    WriteFile,
)
from lcp_engine.core.protocol.read_reply import Dialect, reader_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.engine.admission import allowed_kinds, may_read, writable
from lcp_engine.engine.failure import MAX_TOKENS, WAITED, completions_of, paid_tokens
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.outcome import Succeeded, failure_from_exception, outcome_of, storable_failure
from lcp_engine.engine.people.messages import earlier_messages
from lcp_engine.engine.points import steps
from lcp_engine.engine.question import (
    Asked,
    Server,
    history,
    hold_turn,
    keep_cost,
    keep_reply,
    numbers,
    open_question,
    prompts,
    put_off,
    readings,
    record_json,
    seconds_left,
    wait_with_others,
)
from lcp_engine.engine.reply import FinishedTurn
from lcp_engine.engine.settle import Finished, FinishedJob, finish, finish_raised, label
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.feature import added, load
from lcp_engine.planners.base import MAX_WAIT, AskedToWait, Correction, PlannerError, Question, Relayed, Reply
from lcp_engine.planners.environment import server_wait_of
from lcp_engine.planners.registry import is_model
from lcp_engine.runner.confined.channel import Attempt
from lcp_engine.runner.confined.checks import Checks, Undecided
from lcp_engine.runner.confined.pool import Assignment, Confinement, file_access
from lcp_engine.runner.execution import Executing, execution_at
from lcp_engine.runner.open_missions import OpenMission, OpenMissions
from lcp_engine.sandbox.file_access import Shortage, confined_threads
from lcp_engine.sandbox.synced_copy import sync_copy
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.roots import EVERY_ROOT, Roots
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import Sight
from lcp_engine.store.queue import release
from lcp_engine.store.row_types import JobRow, TurnRow
from lcp_engine.store.server_waits import end_wait, waits_until
from lcp_engine.store.turns import StoredReply
from lcp_engine.workers.base import ExecutedBy, FileEffect, Hold, Worker, params_of

MOST_TOGETHER = 1024 * 1024
"""Characters of params; the contents of files in memory are bounded in changes/journal.py."""
PAID_SECONDS = 0.1
"""Between two attempts to store what was paid for."""
MOST_AHEAD = 16
MOST_AHEAD_SIZE = 16 * 1024
"""Characters of params: they have to fit into the buffer of a socket."""

T = TypeVar("T")
SHORTAGE_SECONDS = 2
"""A job that the system had no process for is tried again after so long."""


@dataclass(frozen=True)
class BatchLimit:
    """Numbers of jobs that may execute together, and of characters in their params; one job always may."""

    jobs: int
    characters: int


_ALONE = BatchLimit(1, 0)
_TOGETHER = BatchLimit(sys.maxsize, MOST_TOGETHER)
_AHEAD = BatchLimit(MOST_AHEAD, MOST_AHEAD_SIZE)


class Executor:
    """Executes jobs for the lanes of a runner. `settle` settles one in the transaction of its file effect."""

    def __init__(
        self, instance: Instance, settle: Callable[[Tx, FinishedJob], None], roots: Roots = EVERY_ROOT
    ) -> None:
        self._instance = instance
        self._database = instance.database
        self._settle = settle
        self.on_shortage: Callable[[Shortage], None] = lambda shortage: None
        self._missions = OpenMissions(instance, roots)
        self._threads = confined_threads(instance.isolation)
        self._confinement = Confinement(instance.caps) if self._threads.active else None
        executions = (one.execution for one in instance.admission.workers.values())
        commands = added().command_execution or ""
        self._executing: Mapping[str, Executing] = {
            place: execution_at(place).open(instance, self._missions, self._threads)
            for place in {commands, *(one.place for one in executions if one is not None)} - {""}
        }
        self._turns = Turns(instance, self._missions, self._confinement, self._executing.get(commands))

    def close(self) -> None:
        """Stop the confined processes, and what else waits for jobs; close the roots."""
        for one in self._executing.values():
            one.close()
        if self._confinement is not None:
            self._confinement.close()
        self._missions.close()

    @property
    def attempts(self) -> frozenset[Attempt]:
        """Attempts under way that `end` ends."""
        return frozenset().union(*(one.attempts for one in self._executing.values()))

    def end(self, attempts: Iterable[Attempt]) -> None:
        """End what is executed for these attempts, as far as that is not a call of a worker."""
        for one in self._executing.values():
            one.end(attempts)

    def batch_limit(self, worker: Worker[BaseModel]) -> BatchLimit:
        """Number of the worker's jobs that may execute together."""
        if not worker.reads_files:
            return _TOGETHER
        confined = self._confinement is not None and self._confinement.executes(worker.kind)
        return _AHEAD if confined and not worker.has_effects else _ALONE

    def execute(
        self,
        jobs: Sequence[JobRow],
        worker: Worker[BaseModel],
        tracker: Tracker = UNTRACKED,
    ) -> Iterator[Finished]:
        """Execute jobs of one mission and kind; yields each when it is finished, unless it is settled already.

        Several jobs only within the worker's `batch_limit`. Re-raises database errors: no job is to blame.
        """
        executing = self._executing_of(worker)
        with nullcontext() if executing is None else executing.permit(worker):
            yield from self._execute(jobs, worker, tracker)

    def _executing_of(self, worker: Worker[BaseModel]) -> Executing | None:
        return None if worker.execution is None else self._executing[worker.execution.place]

    def _execute(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], tracker: Tracker
    ) -> Iterator[Finished]:
        effects: list[JobEffect] = []
        for job, ahead in zip(jobs, self._ahead(jobs, worker, tracker), strict=True):
            if ahead is None and not tracker.start(job):
                continue
            match ahead or self._attempt(job, worker):
                case FileEffect() as effect:
                    effects.append(JobEffect(job, effect))
                case FinishedJob() | FinishedTurn() as finished:
                    yield finished
            if effects and worker.reads_files:  # the next job may read this file
                yield from self._apply(effects, worker, tracker)
                effects = []
        if effects:
            yield from self._apply(effects, worker, tracker)

    def _ahead(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], tracker: Tracker
    ) -> Sequence[FinishedJob | None]:
        """The outcomes of jobs that other processes execute together; None for the others."""
        executing = self._executing_of(worker)
        if len(jobs) > 1 and executing is not None:
            return executing.execute_ahead(jobs, worker, tracker)
        if len(jobs) > 1 and worker.reads_files and self._confinement is not None:
            with suppress(LcpError):  # each job meets the error alone
                mission = self._missions.of_jobs(jobs)
                if mission.root is not None:
                    before = self._missions.follow(mission, jobs[0].mission_id)
                    given = [self._assignment(job, worker, mission) for job in jobs]
                    found = self._confinement.work_ahead(
                        mission.root, given, lambda nth: tracker.start(jobs[nth])
                    )
                    if self._missions.follow(mission, jobs[0].mission_id).change != before.change:
                        return [None] * len(jobs)  # a file was moved meanwhile
                    return [
                        None if one is None else finish(job, worker, one)
                        for job, one in zip(jobs, found, strict=True)
                    ]
        return [None] * len(jobs)

    def _attempt(self, job: JobRow, worker: Worker[BaseModel]) -> Finished | FileEffect | None:
        try:
            if job.terms is not None:
                admitted = self._admit(job, worker)
                if not isinstance(admitted, JobRow):
                    return finish(job, worker, admitted)
                job = admitted
            if worker.executed_by is ExecutedBy.PLANNER:
                return self._turns.take(job)
            outcome = (
                self._execute_own(job) if worker.executed_by is ExecutedBy.ENGINE else self._work(job, worker)
            )
        except Shortage as error:
            self._give_back(job, error)
            return None
        except BaseException as error:  # noqa: BLE001 -- a plug-in may raise anything, and must not end the runner
            return finish_raised(job, worker, error)
        return outcome if isinstance(outcome, FileEffect) else finish(job, worker, outcome)

    def _give_back(self, job: JobRow, shortage: Shortage) -> None:
        """Queue a job again that the system had no process or thread for: no attempt is charged."""
        self.on_shortage(shortage)

        def work(tx: Tx) -> None:
            ledger = ledger_of(tx)
            ledger.lock([job.mission_id])
            release(
                ledger, job.copy(), because(ReasonCode.SHORTAGE), run_after=tx.now + SHORTAGE_SECONDS * SECOND
            )

        self._database.write(work)

    def _execute_own(self, job: JobRow) -> Succeeded | Failed | Hold:
        """Execute a job of the engine itself."""
        own = own_kind(job.kind)
        if own is None:
            return execute_undo(self._database, job, self._threads)
        open_root, policy = partial(self._missions.open_root, job.mission_id), partial(self._policy_for, job)
        return own.execute(LeasedJob(job, self._instance, self._threads, open_root, policy))

    def _policy_for(self, job: JobRow) -> Policy:
        return self._missions.policy(self._missions.of_jobs([job]))

    def _admit(self, job: JobRow, worker: Worker[BaseModel]) -> JobRow | Failed | Hold:
        """The step of a plan, if it may run now."""
        mission, admission = self._missions.of_jobs([job]), self._instance.admission

        def look(step: JobRow, params: Mapping[str, JsonValue]) -> Sight:
            return sight_of(job.kind, params, self._turns.preview(step, worker, params), self._database.now())

        return steps().admit(self._database, admission, job, (mission.spec, mission.root_path), look)

    def _work(self, job: JobRow, worker: Worker[BaseModel]) -> Succeeded | FileEffect | Hold | Failed:
        """Execute a job; one that reads is executed again if a file was moved meanwhile that may be held there."""
        mission = self._missions.of_jobs([job])
        if worker.writes:
            self._missions.follow(mission, job.mission_id)
            return self._judged(self._call(job, worker, mission), worker, mission, job)
        executing = self._executing_of(worker)
        while True:
            before = self._missions.follow(mission, job.mission_id)
            outcome = self._call(job, worker, mission)
            if self._missions.follow(mission, job.mission_id).change == before.change:
                return self._judged(outcome, worker, mission, job)
            if executing is not None and not executing.may_repeat(worker):
                message = f"{label(job)}: files were moved while its program ran, which may have read them"
                return Failed(ErrorCode.CONFLICT, message, advice="Request it again, after the moves.")

    def _judged(
        self,
        outcome: Succeeded | FileEffect | Hold | Failed,
        worker: Worker[BaseModel],
        mission: OpenMission,
        job: JobRow,
    ) -> Succeeded | FileEffect | Hold | Failed:
        """Judge a change of files that a plug-in returned by the rules; the engine's own kinds ask policy first."""
        if not isinstance(outcome, FileEffect) or worker.confined is not None:
            return outcome
        policy = self._missions.follow(mission, job.mission_id).policy
        writes = replace(worker, writes=True)
        judge = policy.for_kind(writes.named, has_effects=True, writes=True)
        context = replace(self._missions.context(mission, job, worker), policy=judge)
        context = worker.granting(worker.read(from_json(job.params), label(job)), context)
        paths = map(normpath, outcome.paths)
        by_rule = (path for path in paths if judge(path).reason.code is ReasonCode.RULE)
        refused = (context.judge(path) for path in by_rule)
        return next((one for one in refused if one is not None), outcome)

    def _call(
        self, job: JobRow, worker: Worker[BaseModel], mission: OpenMission
    ) -> Succeeded | FileEffect | Hold | Failed:
        confinement = self._confinement
        is_confined = confinement is not None and worker.reads_files and confinement.executes(worker.kind)
        if confinement is not None and mission.root is not None and is_confined:
            return confinement.work(mission.root, self._assignment(job, worker, mission))
        params = worker.read(from_json(job.params), label(job))
        context = worker.granting(params, self._missions.context(mission, job, worker))
        if (executing := self._executing_of(worker)) is not None:
            return executing.execute(job, worker, mission, params, context)
        return outcome_of(worker, label(job), lambda: worker.execute(params, context))

    def _assignment(self, job: JobRow, worker: Worker[BaseModel], mission: OpenMission) -> Assignment:
        setup, key = self._missions.setup(mission)
        return Assignment(
            worker, label(job), job.params, key, setup, self._missions.is_approved(mission, job)
        )

    def _apply(
        self, effects: Sequence[JobEffect], worker: Worker[BaseModel], tracker: Tracker
    ) -> list[FinishedJob]:
        def settle_one(tx: Tx, leased: JobRow, outcome: Succeeded | Failed | Hold) -> None:
            self._settle(tx, FinishedJob(leased, outcome, worker.backoff))

        tracker.settle_finished()
        try:
            job = effects[0].job
            mission = self._missions.of_jobs([effect.job for effect in effects])
            self._missions.follow(mission, job.mission_id)
            context = self._missions.context(mission, job, worker)
            caps, files = context.caps, file_access(self._confinement, worker.timeout)
            if mission.is_private:
                tracker.pause(one.job for one in effects)  # it may take as long as the disk needs
                sync_copy(context.root)
            Journal(
                self._database,
                settle_one,
                context.root,
                caps.write_bytes,
                caps.preimage_bytes,
                files,
                tracker,
                may_repeat=worker.confined is not None,
                is_private=mission.is_private,
                may_read=self._missions.may_read(mission),
            ).perform(effects)
        except BaseException as error:  # a plug-in's effect may raise anything
            if len(effects) == 1 and isinstance(error, Shortage):
                self._give_back(effects[0].job, error)
                return []
            if len(effects) == 1:
                return [finish_raised(effects[0].job, worker, error)]
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
        else:
            return []
        # One of them is to blame: alone, each finds out what happened to its own file.
        return [finished for effect in effects for finished in self._apply([effect], worker, tracker)]


class Turns:
    """Takes the turns of missions for a runner, confined to their roots."""

    def __init__(
        self,
        instance: Instance,
        missions: OpenMissions,
        confinement: Confinement | None,
        commands: Executing | None,
    ) -> None:
        self._instance = instance
        self._database = instance.database
        self._missions = missions
        self._confinement = confinement
        self._commands = commands
        self._kinds = params_of(instance.admission.workers)
        self._prices = instance.planner_environment.prices
        self._chance = random.Random()  # noqa: S311 -- no secret

    def take(self, job: JobRow) -> FinishedTurn | None:
        """Ask the planner and read its reply; None if the turn is settled already. Raises `LcpError`."""
        asked = self._database.write(
            lambda tx: open_question(ledger_of(tx), job.copy(), self._instance.admission)
        )
        if asked is None:
            return None
        # Not the spec of the cache: a person may have changed the limits since.
        spec = spec_of(asked.mission.spec)
        turn = asked.turn if asked.turn.reply is not None else self._ask(job, asked, spec)
        if turn is None:
            return None
        reply = reader_of(spec.planner.dialect)(turn.reply or "", self._kinds, asked.expected)
        mission = self._missions.of(job.mission_id)
        objection = _objection_to(reply, asked, turn, mission)
        if objection is not None:
            return FinishedTurn(job, reply, self._instance.admission, objection=objection)
        failed: tuple[FailedCheck, ...] = ()
        if spec.accept and mission.root and not isinstance(reply, Malformed) and _says_done(reply):
            self._missions.follow(mission, job.mission_id)
            setup, _ = self._missions.setup(mission)
            run = partial(_fault_of_check, self._commands, job, mission, spec)
            with Checks(mission.root, setup, confined=self._confinement is not None, run=run) as checks:
                failed = (*checks.failed(spec.accept), *self._failed_claims(reply, asked, spec, checks))
        return FinishedTurn(job, reply, self._instance.admission, failed, self._previews(job, reply))

    def _failed_claims(
        self, reply: Action, asked: Asked, spec: MissionSpec, checks: Checks
    ) -> Iterator[FailedCheck]:
        """The checks that the reply itself does not pass; a verifying turn has passed them before."""
        stated = (
            [] if asked.verifies else [one for one in enumerate(spec.accept) if one[1].claims is not None]
        )
        for index, check in stated:
            if check.claims == "issues":
                fault = faults_of_issues(reply, self._readings(asked.mission.id))
            else:
                fault = checks.missing(deliverables_of(reply))
            if fault is not None:
                yield FailedCheck(index, f"{check.description}: {fault}")

    def _readings(self, mission_id: int) -> Mapping[str, str]:
        workers = self._instance.admission.workers
        return self._database.read(lambda tx: readings(tx, mission_id, workers))

    def _previews(self, job: JobRow, reply: Action | Malformed) -> tuple[Sight, ...]:
        """The sight of each requested job: an approval binds to it unless a person has viewed the job since."""
        if not isinstance(reply, CreateFollowupJobs | WriteFile):
            return ()
        if isinstance(reply, CreateFollowupJobs) and reply.is_plan:
            return ()  # a step is looked at when its turn comes
        at = self._database.now()
        workers = self._instance.admission.workers
        return tuple(
            sight_of(spec.kind, spec.params, self.preview(job, workers.get(spec.kind), spec.params), at)
            for spec in reply.requested
        )

    def preview(
        self, job: JobRow, worker: Worker[BaseModel] | None, params: Mapping[str, JsonValue]
    ) -> Preview | None:
        """Preview of a job with these params now, in the mission of `job`."""
        if worker is None or worker.preview is None:
            return None
        mission = self._missions.of(job.mission_id)
        context = replace(self._missions.context(mission, job, worker), approved=True)
        return preview_of(worker, params, context, file_access(self._confinement, worker.timeout))

    def _ask(self, job: JobRow, asked: Asked, spec: MissionSpec) -> TurnRow | None:
        """Ask the planner and store its reply before it is read (R21).

        None if a person is the planner: the turn is held then.
        """
        mission = self._missions.of(asked.mission.id)
        if self._confinement is not None and mission.root is not None:
            self._confinement.start()
        question = replace(self._question(asked, spec), attempt=job.failures + job.deaths + 1)
        if question.seconds_left == 0:
            message = f"{label(job)}: no running time is left to ask the planner (limits.max_seconds)"
            advice = f"Resume mission {asked.mission.id} with a higher max_seconds."
            raise LcpError(ErrorCode.PLANNER_FAILED, message, advice=advice)
        if spec.limits.max_cost is not None:
            self._check_prices(asked)
        began, server, is_waited_for = time.monotonic(), Server("", MAX_WAIT), False
        try:
            server = Server(*server_wait_of(planner := mission.made_planner()))
            is_waited_for = self._is_waited_for(server)
            if is_waited_for and self._database.write(
                lambda tx: wait_with_others(ledger_of(tx), job.copy(), asked, server)
            ):
                return None
            ask = planner.answer if self._commands is None else partial(self._commands.ask, job, mission)
            reply = _storable_reply(job, ask(question))
        except Shortage:  # the question was not asked
            raise
        except LcpError as error:
            failure = self._failure_unless_put_off(job, asked, server, error)
            if failure is None:
                return None
            raise LcpError.of(failure) from error
        except BaseException as error:  # a plug-in may raise anything, and must not end the runner
            failed = failure_from_exception(
                label(job), error, by="the planner", code=ErrorCode.PLANNER_FAILED
            )
            raise LcpError.of(failed) from error
        record = None if reply.record is None else record_json(reply.record)
        if isinstance(reply, Relayed):
            prompt = reply.prompt or ""
            self._database.write(lambda tx: hold_turn(ledger_of(tx), job.copy(), asked.turn, prompt, record))
            return None
        stored = StoredReply(
            reply.text, reply.prompt, reply.input_tokens, reply.output_tokens, time.monotonic() - began, record,
            cost_of(self._prices, completions_of(reply.completions, job.attempt) or (), _tokens_of(reply)),
        )  # fmt: skip
        return self._keep_reply(asked, stored, server.name if is_waited_for else "")

    def _keep_reply(self, asked: Asked, reply: StoredReply, waited_for: str) -> TurnRow:
        """Store a reply, with the end of the wait for a server that has answered before."""

        def keep(tx: Tx) -> TurnRow:
            if waited_for:
                end_wait(tx, waited_for)
            return keep_reply(ledger_of(tx), asked.turn, reply)

        return self._write_paid(keep)

    def _is_waited_for(self, server: Server) -> bool:
        """True if the server asks all questions to wait now."""
        if not server.name:
            return False
        return self._database.read(lambda tx: waits_until(tx, server.name)) > self._database.now()

    def _failure_unless_put_off(
        self, job: JobRow, asked: Asked, server: Server, error: LcpError
    ) -> Failed | None:
        """Failure of a question without a reply, its cost counted; None if its server asks to wait, and it can."""
        failed = storable_failure(label(job), error.failed, ErrorCode.PLANNER_FAILED)
        self._keep_cost(job, asked, error, failed)
        # The last turn is paid for once (R6).
        if not isinstance(error, AskedToWait) or (asked.turn.last_turn and paid_tokens(failed) is not None):
            return failed
        seconds, turn, chance = error.seconds, asked.turn, self._chance
        is_put_off = self._database.write(
            lambda tx: put_off(ledger_of(tx), job.copy(), turn, server, asked=seconds, chance=chance)
        )
        return None if is_put_off else _not_waited_for(failed, server)

    def _keep_cost(self, job: JobRow, asked: Asked, error: LcpError, failed: Failed) -> None:
        """Count what a question cost that got no reply."""
        records = error.completions if isinstance(error, PlannerError) else ()
        made = completions_of(records, job.attempt) or []
        if (tokens := paid_tokens(failed)) is not None or made:
            paid = tokens or (0, 0)
            spent = cost_of(self._prices, made, sum(paid))
            self._write_paid(lambda tx: keep_cost(ledger_of(tx), asked.turn, paid, spent))

    def _check_prices(self, asked: Asked) -> None:
        """Refuse to ask for a mission whose cost is limited and cannot be counted. Raises `PLANNER_REFUSED`."""
        mission = asked.mission
        now = None if self._prices is None else self._prices.currency
        fact = None
        if mission.unpriced:
            fact = f"{mission.unpriced} of its questions had no price"
        elif mission.currency not in (None, now):
            fact = f"it was counted in {mission.currency}, and prices.currency is {now or 'not set'}"
        if fact is not None:
            message = f"limits.max_cost of mission {mission.id} cannot be kept: {fact}"
            advice = "State the prices of its models in the configuration, then resume the mission without max_cost."
            raise LcpError(ErrorCode.PLANNER_REFUSED, message, advice=advice)

    def _write_paid(self, work: Callable[[Tx], T]) -> T:
        """Write what was paid for, however long others keep the database locked: it is only in memory."""
        while True:
            try:
                return self._database.write(work)
            except LcpError as error:
                if error.code is not ErrorCode.DATABASE_BUSY or self._database.outage.has_hurry:
                    raise
            time.sleep(PAID_SECONDS)

    def _question(self, asked: Asked, spec: MissionSpec) -> Question:
        turn, admission, correction = asked.turn, self._instance.admission, None
        if asked.corrected is not None:
            correction = Correction(asked.corrected.reply or "", Malformed(errors=asked.problems))
        return Question(
            mission_id=turn.mission_id,
            number=turn.number,
            turn=turn.turn,
            goal=asked.mission.goal,
            root=asked.mission.root or "",
            prompt=asked.prompt,
            context=asked.context,
            results=asked.results,
            waiting=asked.waiting,
            notices=asked.notices,
            warnings=asked.warnings,
            correction=correction,
            last_turn=turn.last_turn,
            kinds=allowed_kinds(admission, spec, asked.mission.root),
            max_followups=spec.limits.max_followups,
            jobs_left=max(spec.limits.max_jobs - asked.mission.requested, 0),
            turns_left=max(spec.limits.max_turns - turn.turn, 0),
            seconds_left=seconds_left(asked.mission, asked.turn, self._database.now()),
            stalled=asked.stalled,
            aliases=spec.root_aliases,
            may_read=may_read(admission, spec, asked.mission.root),
            writable=writable(admission, spec, asked.mission.root),
            dialect=spec.planner.dialect,
            verifies=asked.verifies,
            endings=() if asked.verifies or asked.of_step else spec.endings,
            of_step=asked.of_step,
            resumed=asked.resumed,
            result=None if asked.expected is None else asked.expected.schema,
            said=asked.said,
            memories=asked.memories,
            said_before=lambda: self._database.read(lambda tx: earlier_messages(tx, turn)),
            history=lambda: self._database.read(lambda tx: history(tx, turn.plan_id)),
            prompts=lambda: self._database.read(lambda tx: prompts(tx, turn)),
            numbers=lambda: self._database.read(lambda tx: numbers(tx, turn.mission_id)),
        )


def _not_waited_for(failed: Failed, server: Server) -> Failed:
    """The failure of a question whose server asks to wait longer than the question may."""
    message = f"{failed.message}; it asks to wait, for which planner.max_wait allows {server.most:g} s"
    advice = "Resume the mission once the server answers again; a higher planner.max_wait lets later ones wait longer."
    return Failed(failed.code, message, {**failed.details, WAITED: server.most}, advice)


def _objection_to(
    reply: Action | Malformed, asked: Asked, turn: TurnRow, mission: OpenMission
) -> Problem | None:
    """Why the words of a model that end its plan are not an answer; the verdict of a verifying turn needs none."""
    if isinstance(reply, Malformed) or asked.verifies or turn.prompt is None:
        return None
    try:
        if not is_model(mission.made_planner()):
            return None
    except LcpError:  # the reply was stored by an earlier attempt, and the planner is not needed any more
        return None
    refused = next((problem for problem in asked.problems if problem.code is not None), None)
    if refused is not None and asked.corrected is not None and asked.corrected.reply == turn.reply:
        return refused  # the prompt that it repeats may have been the one before
    place, told = added().refuse_echo, asked.mission
    if place is None:
        return None
    refuse: Callable[[Action, str, Dialect, str, bool], Problem | None] = load(place, FunctionType)
    return refuse(reply, told.goal, mission.spec.planner.dialect, turn.prompt, told.changed_seq > 0)


def _fault_of_check(
    commands: Executing | None, job: JobRow, mission: OpenMission, spec: MissionSpec, command: Sequence[str]
) -> str | Undecided | None:
    if commands is None:
        return "no feature is installed that runs commands"
    return commands.fault_of_check(job, mission, spec, command)


def _says_done(reply: Action) -> bool:
    if isinstance(reply, CreateFollowupJobs):
        return not reply.new_jobs
    return isinstance(reply, MissionComplete | AnalysisResult)


def _tokens_of(reply: Reply) -> int:
    return (reply.input_tokens or 0) + (reply.output_tokens or 0)


_WRONG_REPLY = "Correct the planner: what it returns has to be a whole Reply."


def _storable_reply(job: JobRow, reply: object) -> Reply:
    """Reply of the planner, if it can be stored. Raises `PLANNER_FAILED`."""
    if not isinstance(reply, Reply):
        fact = f"the planner returned {type(reply).__name__}, a Reply is expected"
        raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {fact}", advice=_WRONG_REPLY)
    texts: tuple[tuple[str, object], ...] = (("text", reply.text), ("prompt", reply.prompt or ""))
    for name, text in texts:
        if not isinstance(text, str):
            fact = f"the planner's reply has {name} of type {type(text).__name__}, a str is expected"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {fact}", advice=_WRONG_REPLY)
    if reply.record is not None and record_json(reply.record) is None:
        fact = "the planner's reply has a record that is no PromptRecord as it is declared"
        raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {fact}", advice=_WRONG_REPLY)
    if completions_of(reply.completions, job.attempt) is None:
        fact = "the planner's reply has completions that are no CompletionRecord as they are declared"
        raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {fact}", advice=_WRONG_REPLY)
    for name, count in (("input_tokens", reply.input_tokens), ("output_tokens", reply.output_tokens)):
        if count is not None and (type(count) is not int or not 0 <= count < MAX_TOKENS):
            fact = f"the planner's reply has {name} {_number_text(count)}, an int from 0 to 2**53 - 1 is expected"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {fact}", advice=_WRONG_REPLY)
    return reply


def _number_text(count: object) -> str:
    """`count` in a message; Python converts no int of more than 4300 digits to decimal."""
    return f"of {count.bit_length()} bits" if type(count) is int and count >= MAX_TOKENS else repr(count)
