"""Take one turn: ask the planner, store its reply, read what it asks for."""

from __future__ import annotations

import time
from dataclasses import replace

from lcp_engine.changes.preview import Preview, preview_of, sight_of
from lcp_engine.core.decide import FailedCheck
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    JobSpec,
    Malformed,
    MissionComplete,
    WriteFile,
)
from lcp_engine.core.protocol.read_reply import reader_of
from lcp_engine.engine.acceptance import failed_checks, load_parsers
from lcp_engine.engine.admission import allowed_kinds, may_read, writable
from lcp_engine.engine.failure import MAX_TOKENS, paid_tokens
from lcp_engine.engine.instance import Site
from lcp_engine.engine.outcome import failure_from_exception, storable_failure
from lcp_engine.engine.plans.operator_messages import heard_before
from lcp_engine.engine.question import Asked, history, hold_turn, keep_cost, keep_reply, open_question
from lcp_engine.engine.settle import FinishedTurn, label
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.base import Correction, Question, Relayed, Reply
from lcp_engine.runner.confined.pool import Confinement, file_access
from lcp_engine.runner.mission_cache import OpenMissions
from lcp_engine.sandbox.file_access import ConfinedThreads
from lcp_engine.sandbox.landlock import load_late
from lcp_engine.sandbox.root import Root
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.people import Sight
from lcp_engine.store.row_types import JobRow, TurnRow
from lcp_engine.store.turns import StoredReply


class Turns:
    """Takes the turns of missions for a runner, confined to their roots."""

    def __init__(
        self, site: Site, missions: OpenMissions, threads: ConfinedThreads, confinement: Confinement | None
    ) -> None:
        self._site = site
        self._database = site.database
        self._missions = missions
        self._threads = threads
        self._confinement = confinement
        self._kinds = {kind: worker.params for kind, worker in site.admission.workers.items()}

    def take(self, job: JobRow) -> FinishedTurn | None:
        """What a turn came to; None where it is settled already. Raises `LcpError`, `PLANNER_FAILED` among them."""
        asked = self._database.write(lambda tx: open_question(ledger_of(tx), job.copy()))
        if asked is None:
            return None
        spec = spec_of(asked.mission.spec)  # not the one that is kept: a person may have changed it since
        turn = asked.turn if asked.turn.reply is not None else self._ask(job, asked, spec)
        if turn is None:
            return None
        reply = reader_of(spec.planner.dialect)(turn.reply or "", self._kinds)
        mission = self._missions.of(job.mission_id)
        failed: tuple[FailedCheck, ...] = ()
        if spec.accept and mission.root and _says_done(reply):
            failed = self._failed_checks(spec, mission.root)
        return FinishedTurn(job, reply, self._site.admission, failed, self._previews(job, reply))

    def _failed_checks(self, spec: MissionSpec, root: Root) -> tuple[FailedCheck, ...]:
        allows = may_read(self._site.admission, spec, root.path)
        load_late()
        load_parsers()
        return self._threads.read(root, lambda: failed_checks(spec.accept, root, allows))

    def _previews(self, job: JobRow, reply: Action | Malformed) -> tuple[Sight, ...]:
        """What the requested jobs would change: an approval of one that nobody looked at binds to that."""
        if not isinstance(reply, CreateFollowupJobs | WriteFile):
            return ()
        at = self._database.now()
        return tuple(
            sight_of(spec.kind, spec.params, self._preview(job, spec), at) for spec in reply.requested
        )

    def _preview(self, job: JobRow, spec: JobSpec) -> Preview | None:
        worker = self._site.admission.workers.get(spec.kind)
        if worker is None or worker.preview is None:
            return None
        mission = self._missions.of(job.mission_id)
        context = replace(self._missions.context(mission, job, worker), approved=True)
        return preview_of(worker, spec.params, context, file_access(self._confinement, worker.timeout))

    def _ask(self, job: JobRow, asked: Asked, spec: MissionSpec) -> TurnRow | None:
        """Have the planner answer; the reply is stored before anybody reads it (R21).

        None where a person is the planner: the turn is held then.
        """
        mission = self._missions.of(asked.mission.id)
        if self._confinement is not None and mission.root is not None:
            self._confinement.start()
        question = self._question(asked, spec)
        began = time.monotonic()
        try:
            reply = _checked(job, mission.ask(question))
        except LcpError as error:
            failed = storable_failure(label(job), error.failed, ErrorCode.PLANNER_FAILED)
            if (tokens := paid_tokens(failed)) is not None:
                self._database.write(lambda tx: keep_cost(ledger_of(tx), asked.turn, tokens))
            raise LcpError(failed.code, failed.message, failed.details) from error
        except BaseException as error:
            failed = failure_from_exception(
                label(job), error, by="the planner", code=ErrorCode.PLANNER_FAILED
            )
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
        turn, admission, correction = asked.turn, self._site.admission, None
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
            kinds=allowed_kinds(admission, spec, asked.mission.root),
            max_followups=spec.limits.max_followups,
            jobs_left=max(spec.limits.max_jobs - asked.mission.requested, 0),
            turns_left=max(spec.limits.max_turns - turn.turn, 0),
            stalled=asked.stalled,
            aliases=spec.root_aliases,
            may_read=may_read(admission, spec, asked.mission.root),
            writable=writable(admission, spec, asked.mission.root),
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


def _checked(job: JobRow, reply: object) -> Reply:
    """What a planner returned, if it can be stored. Raises `PLANNER_FAILED`."""
    if not isinstance(reply, Reply):
        said = f"the planner returned {type(reply).__name__}, a Reply is needed"
        raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {said}")
    texts: tuple[tuple[str, object], ...] = (("text", reply.text), ("prompt", reply.prompt or ""))
    for name, text in texts:
        if not isinstance(text, str):
            said = f"the planner's reply has {name} of type {type(text).__name__}, a str is needed"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {said}")
    for name, count in (("input_tokens", reply.input_tokens), ("output_tokens", reply.output_tokens)):
        if count is not None and (type(count) is not int or not 0 <= count < MAX_TOKENS):
            said = f"the planner's reply has {name} {_shown(count)}, an int of 0 to 2**53 - 1 is needed"
            raise LcpError(ErrorCode.PLANNER_FAILED, f"{label(job)}: {said}")
    return reply


def _shown(count: object) -> str:
    """An int of any size: Python writes none of more than 4300 digits in decimal."""
    return f"of {count.bit_length()} bits" if type(count) is int and count >= MAX_TOKENS else repr(count)
