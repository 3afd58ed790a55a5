"""Execute one leased job: a turn asks the planner, work calls its worker."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import BaseModel

from lcp_engine.acceptance import load_parsers, unmet
from lcp_engine.effects import Journal, Wish
from lcp_engine.engine.allowing import allowed_kinds, may_read, writable
from lcp_engine.engine.asking import Asked, history, keep_cost, keep_reply, open_question
from lcp_engine.engine.concluding import conclude_turn
from lcp_engine.engine.failing import MAX_TOKENS, paid_tokens
from lcp_engine.engine.hearing import heard_before
from lcp_engine.engine.judging import Bench
from lcp_engine.engine.outcomes import Succeeded, outcome_of, raised, sound
from lcp_engine.engine.relaying import hold_turn
from lcp_engine.engine.settling import Settling, settle_all
from lcp_engine.engine.specs import spec_of
from lcp_engine.errors import OF_DATABASE, ErrorCode, Failed, LcpError
from lcp_engine.isolation.confinement import Assignment, Confinement
from lcp_engine.isolation.loading import load_late
from lcp_engine.isolation.walls import walls_of
from lcp_engine.mission import MissionSpec
from lcp_engine.open_missions import OpenMission, OpenMissions
from lcp_engine.planners.base import Correction, Question, Relayed, Reply
from lcp_engine.previews import Preview, preview_of, sight_of
from lcp_engine.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    JobSpec,
    Malformed,
    MissionComplete,
    WriteFile,
)
from lcp_engine.protocol.dialects import reader_of
from lcp_engine.restoring import UNDO, carry_out
from lcp_engine.roots import EVERY_ROOT, Roots
from lcp_engine.sandbox.hands import HERE, Hands
from lcp_engine.sandbox.root import Root
from lcp_engine.shift import UNWATCHED, Shift
from lcp_engine.site import Site
from lcp_engine.store.ledger import Ledger, ledger_of
from lcp_engine.store.records import JobRow, TurnRow
from lcp_engine.store.reviews import Sight
from lcp_engine.store.text import from_json
from lcp_engine.store.transaction import Tx
from lcp_engine.store.turns import StoredReply
from lcp_engine.workers.base import Context, FileEffect, Hold, Worker

MOST_TOGETHER = 1024 * 1024
"""Characters of params: so much is asked for at a time; what is held of files is bounded in effects.py."""
MOST_AHEAD = 16
MOST_AHEAD_SIZE = 16 * 1024
"""Characters of params: what is told ahead has to fit between two processes while nobody reads it."""


@dataclass(frozen=True)
class Conclusion:
    """What a job came to, to be settled with others in one transaction."""

    job: JobRow
    settling: Settling | None = None
    reply: Action | Malformed | None = None
    bench: Bench | None = None
    unmet: tuple[str, ...] = ()
    sights: tuple[Sight, ...] = ()


def conclude(ledger: Ledger, conclusions: Iterable[Conclusion], jitter: random.Random) -> None:
    """Settle jobs in their order in this transaction; those that lost their lease drop out, each alone."""
    settlings: list[Settling] = []
    for conclusion in conclusions:
        job = conclusion.job.copy()
        if conclusion.settling is not None:
            settlings.append(Settling(job, conclusion.settling.outcome, conclusion.settling.backoff))
        elif conclusion.reply is not None and conclusion.bench is not None:
            settle_all(ledger, settlings, jitter)
            settlings.clear()
            conclude_turn(
                ledger,
                conclusion.bench,
                job,
                conclusion.reply,
                unmet=conclusion.unmet,
                sights=conclusion.sights,
            )
    settle_all(ledger, settlings, jitter)


@dataclass(frozen=True)
class Room:
    """For how many jobs there is room, with how many characters of params together; one job always fits."""

    jobs: int
    characters: int


_ALONE = Room(1, 0)
_TOGETHER = Room(sys.maxsize, MOST_TOGETHER)
_AHEAD = Room(MOST_AHEAD, MOST_AHEAD_SIZE)


class Executor:
    """Executes jobs for the lanes of a runner. `settle_now` settles one in a transaction of its own."""

    def __init__(
        self, site: Site, settle_now: Callable[[Tx, Settling], None], roots: Roots = EVERY_ROOT
    ) -> None:
        self._site = site
        self._database = site.database
        self._settle_now = settle_now
        self._missions = OpenMissions(site, roots)
        self._kinds = {kind: worker.params for kind, worker in site.bench.workers.items()}
        self._walls = walls_of(site.isolation)
        self._confinement = Confinement(site.caps) if self._walls.stand else None

    def close(self) -> None:
        """End the processes that executed file kinds."""
        if self._confinement is not None:
            self._confinement.close()

    def room(self, worker: Worker[BaseModel]) -> Room:
        """How many of the worker's jobs may be executed at once."""
        if not worker.looks:
            return _TOGETHER
        confined = self._confinement is not None and self._confinement.executes(worker.kind)
        return _AHEAD if confined and not worker.has_effects else _ALONE

    def execute(
        self,
        jobs: Sequence[JobRow],
        worker: Worker[BaseModel],
        shift: Shift = UNWATCHED,
    ) -> Iterator[Conclusion]:
        """Do jobs of one mission and of the worker's kind; what each came to at once, but for those settled already.

        They are more than one only where the worker has `room` for them. Raises what the database has against it: no
        job is to blame.
        """
        wishes: list[Wish] = []
        for job, ahead in zip(jobs, self._ahead(jobs, worker, shift), strict=True):
            if ahead is None and not shift.turns_to(job):
                continue
            match ahead or self._come_to(job, worker):
                case FileEffect() as effect:
                    wishes.append(Wish(job, effect))
                case Conclusion() as conclusion:
                    yield conclusion
            if wishes and worker.looks:  # what it looks at next may be this file
                yield from self._apply(wishes, worker, shift)
                wishes = []
        if wishes:
            yield from self._apply(wishes, worker, shift)

    def _ahead(
        self, jobs: Sequence[JobRow], worker: Worker[BaseModel], shift: Shift
    ) -> Sequence[Conclusion | None]:
        """What the jobs come to that a confined process is told of all at once; None for the others."""
        if len(jobs) > 1 and worker.looks and self._confinement is not None:
            with suppress(LcpError):  # each is told so by itself
                mission = self._missions.of(jobs[0].mission_id)
                if mission.root is not None:
                    given = [self._assignment(job, worker, mission, mission.root) for job in jobs]
                    found = self._confinement.work_ahead(
                        mission.root, given, lambda nth: shift.turns_to(jobs[nth])
                    )
                    return [
                        None if one is None else _concluded(job, worker, one)
                        for job, one in zip(jobs, found, strict=True)
                    ]
        return [None] * len(jobs)

    def _come_to(self, job: JobRow, worker: Worker[BaseModel]) -> Conclusion | FileEffect | None:
        try:
            if worker.asks_planner:
                return self._take_turn(job)
            outcome = (
                carry_out(self._database, job, self._walls) if worker is UNDO else self._work(job, worker)
            )
        except BaseException as error:  # noqa: BLE001 -- whatever a plug-in's code does, it does not end the runner
            return _blamed(job, worker, error)
        return outcome if isinstance(outcome, FileEffect) else _concluded(job, worker, outcome)

    def _work(self, job: JobRow, worker: Worker[BaseModel]) -> Succeeded | FileEffect | Hold | Failed:
        mission, confinement = self._missions.of(job.mission_id), self._confinement
        is_confined = confinement is not None and worker.looks and confinement.executes(worker.kind)
        if confinement is not None and mission.root is not None and is_confined:
            return confinement.work(mission.root, self._assignment(job, worker, mission, mission.root))
        params = worker.read(from_json(job.params), _name(job))
        context = self._missions.context(mission, job, worker)
        return outcome_of(worker, _name(job), lambda: worker.execute(params, context))

    def _assignment(
        self, job: JobRow, worker: Worker[BaseModel], mission: OpenMission, root: Root
    ) -> Assignment:
        setup = self._missions.setup(mission, root.path)
        return Assignment(worker, _name(job), job.params, mission.key, setup, bool(job.approved))

    def _apply(self, wishes: Sequence[Wish], worker: Worker[BaseModel], shift: Shift) -> list[Conclusion]:
        def settle_one(tx: Tx, leased: JobRow, outcome: Succeeded | Failed | Hold) -> None:
            self._settle_now(tx, Settling(leased, outcome, worker.backoff))

        shift.settles()
        try:
            context = self._context(wishes[0].job, worker)
            caps, hands = context.caps, self._hands(worker)
            Journal(
                self._database,
                settle_one,
                context.root,
                caps.write_bytes,
                caps.preimage_bytes,
                hands,
                shift,
            ).perform(wishes)
        except BaseException as error:
            if len(wishes) == 1:
                return [_blamed(wishes[0].job, worker, error)]
            if isinstance(error, LcpError) and error.code in OF_DATABASE:
                raise
        else:
            return []
        # One of them is to blame: alone, each finds out what became of its own file.
        return [conclusion for wish in wishes for conclusion in self._apply([wish], worker, shift)]

    def _context(self, job: JobRow, worker: Worker[BaseModel]) -> Context:
        return self._missions.context(self._missions.of(job.mission_id), job, worker)

    def _hands(self, worker: Worker[BaseModel]) -> Hands:
        return HERE if self._confinement is None else self._confinement.hands(worker.timeout)

    def _take_turn(self, job: JobRow) -> Conclusion | None:
        asked = self._database.write(lambda tx: open_question(ledger_of(tx), job.copy()))
        if asked is None:
            return None
        spec = spec_of(asked.mission.spec)  # not the one that is kept: a person may have changed it since
        turn = asked.turn if asked.turn.reply is not None else self._ask(job, asked, spec)
        if turn is None:
            return None
        reply = reader_of(spec.planner.dialect)(turn.reply or "", self._kinds)
        mission = self._missions.of(job.mission_id)
        faults: tuple[str, ...] = ()
        if spec.accept and mission.root and _says_done(reply):
            faults = self._unmet(spec, mission.root)
        return Conclusion(
            job,
            reply=reply,
            bench=self._site.bench,
            unmet=faults,
            sights=self._sights(job, reply),
        )

    def _unmet(self, spec: MissionSpec, root: Root) -> tuple[str, ...]:
        allows = may_read(self._site.bench, spec, root.path)
        load_late()
        load_parsers()
        return self._walls.look(root, lambda: unmet(spec.accept, root, allows))

    def _sights(self, job: JobRow, reply: Action | Malformed) -> tuple[Sight, ...]:
        """What the requested jobs would change: an approval of one that nobody looked at binds to that."""
        if not isinstance(reply, CreateFollowupJobs | WriteFile):
            return ()
        at = self._database.now()
        return tuple(
            sight_of(spec.kind, spec.params, self._preview(job, spec), at) for spec in reply.requested
        )

    def _preview(self, job: JobRow, spec: JobSpec) -> Preview | None:
        worker = self._site.bench.workers.get(spec.kind)
        if worker is None or worker.preview is None:
            return None
        context = replace(self._context(job, worker), approved=True)
        return preview_of(worker, spec.params, context, self._hands(worker))

    def _ask(self, job: JobRow, asked: Asked, spec: MissionSpec) -> TurnRow | None:
        """Have the planner answer; the reply is stored before anybody reads it (R21).

        None where a person is the planner: the turn is held then.
        """
        mission = self._missions.of(asked.mission.id)
        if self._confinement is not None and mission.root is not None:
            self._confinement.expect()
        question = self._question(asked, spec)
        began = time.monotonic()
        try:
            reply = _checked(job, mission.ask(question))
        except LcpError as error:
            failed = sound(_name(job), error.failed, ErrorCode.PLANNER_FAILED)
            if (tokens := paid_tokens(failed)) is not None:
                self._database.write(lambda tx: keep_cost(ledger_of(tx), asked.turn, tokens))
            raise LcpError(failed.code, failed.message, failed.details) from error
        except BaseException as error:
            failed = raised(_name(job), error, by="the planner", code=ErrorCode.PLANNER_FAILED)
            raise LcpError(failed.code, failed.message, failed.details) from error
        if isinstance(reply, Relayed):
            prompt = reply.prompt or ""
            self._database.write(lambda tx: hold_turn(ledger_of(tx), job.copy(), asked.turn, prompt))
            return None
        stored = StoredReply(
            reply.text, reply.prompt, reply.input_tokens, reply.output_tokens, time.monotonic() - began
        )
        return self._database.write(lambda tx: keep_reply(ledger_of(tx), asked.turn, stored))

    def _question(self, asked: Asked, spec: MissionSpec) -> Question:
        turn, bench, correction = asked.turn, self._site.bench, None
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
            correction=correction,
            last_turn=turn.last_turn,
            kinds=allowed_kinds(bench, spec, asked.mission.root),
            max_followups=spec.limits.max_followups,
            jobs_left=max(spec.limits.max_jobs - asked.mission.requested, 0),
            turns_left=max(spec.limits.max_turns - turn.turn, 0),
            stalled=asked.stalled,
            aliases=spec.root_aliases,
            may_read=may_read(bench, spec, asked.mission.root),
            writable=writable(bench, spec, asked.mission.root),
            dialect=spec.planner.dialect,
            verifies=asked.verifies,
            said=asked.said,
            said_before=lambda: self._database.read(lambda tx: heard_before(tx, turn)),
            history=lambda: self._database.read(lambda tx: history(tx, turn.plan_id)),
        )


def _says_done(reply: Action | Malformed) -> bool:
    if isinstance(reply, CreateFollowupJobs):
        return not reply.new_jobs
    return isinstance(reply, MissionComplete | AnalysisResult)


def _concluded(job: JobRow, worker: Worker[BaseModel], outcome: Succeeded | Hold | Failed) -> Conclusion:
    return Conclusion(job, Settling(job, outcome, worker.backoff))


def _blamed(job: JobRow, worker: Worker[BaseModel], error: BaseException) -> Conclusion:
    """What a job came to by raising. Raises what the database has against it."""
    if not isinstance(error, LcpError):
        return _concluded(job, worker, raised(_name(job), error))
    failed = sound(_name(job), error.failed)
    if failed.code in OF_DATABASE:
        raise error
    return _concluded(job, worker, failed)


def _name(job: JobRow) -> str:
    return f"job {job.id} ({job.kind})"


def _checked(job: JobRow, reply: object) -> Reply:
    """What a planner returned, if it can be stored. Raises `PLANNER_FAILED`."""
    if not isinstance(reply, Reply):
        said = f"the planner returned {type(reply).__name__}, a Reply is needed"
        raise LcpError(ErrorCode.PLANNER_FAILED, f"{_name(job)}: {said}")
    texts: tuple[tuple[str, object], ...] = (("text", reply.text), ("prompt", reply.prompt or ""))
    for name, text in texts:
        if not isinstance(text, str):
            said = f"the planner's reply has {name} of type {type(text).__name__}, a str is needed"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{_name(job)}: {said}")
    for name, count in (("input_tokens", reply.input_tokens), ("output_tokens", reply.output_tokens)):
        if count is not None and (type(count) is not int or not 0 <= count < MAX_TOKENS):
            said = f"the planner's reply has {name} {_shown(count)}, an int of 0 to 2**53 - 1 is needed"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{_name(job)}: {said}")
    return reply


def _shown(count: object) -> str:
    """An int of any size: Python writes none of more than 4300 digits in decimal."""
    return f"of {count.bit_length()} bits" if type(count) is int and count >= MAX_TOKENS else repr(count)
