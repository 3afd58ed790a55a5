"""Take decisions on held jobs: approve, approve otherwise, reject (R5)."""

from __future__ import annotations

from pydantic import BaseModel, JsonValue
from sqlalchemy import bindparam, update

from lcp_engine.core.job_states import APPROVE, APPROVE_BLOCKED, REJECT, Role, State
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import Verdict
from lcp_engine.core.reasons import Reason, ReasonCode, because
from lcp_engine.engine.admission import Admission, ruling_on
from lcp_engine.engine.failure import agent_error
from lcp_engine.engine.people.approval_binding import bind
from lcp_engine.engine.plans.progress import after_rejecting, refresh
from lcp_engine.engine.plans.steps import STEP_ORDER, is_early
from lcp_engine.engine.plans.turn_queue import TURN_ORDER
from lcp_engine.engine.question import refuse_relayed
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.db.transaction import Statement
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import Sight, keep_approval, last_decision
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import JobRow
from lcp_engine.store.schema import jobs
from lcp_engine.workers.base import ExecutedBy, Worker, Workers

_PARAMS = Statement(update(jobs).where(jobs.c.id == bindparam("job")).values(params=bindparam("new_params")))


def approve(
    ledger: Ledger, admission: Admission, job_id: int, *, by: str, now: Sight | None,
    params: dict[str, JsonValue] | None = None, shown: Sight | None = None,
) -> bool:  # fmt: skip
    """Let a held job run, with other params if given. False where that was decided before: deciding twice is harmless.

    `now` is what the job, with those params, would change at this moment, `shown` what the person decides on (see
    `bind`). Raises `CONFLICT` where somebody decided otherwise, or the job is not what this person was shown;
    `WRONG_STATE` for a job that nobody has to decide on; `NO_WORKER`; `INVALID_PARAMS` for params that do not fit;
    `PATH_DENIED` and `NOT_ALLOWED` for a job that policy, or its kind's permission level, denies by now.
    """
    job = locked_job(ledger, job_id)
    if job.state is not State.HELD:
        if job.approved and job.state is not State.REJECTED and params in (None, from_json(job.params)):
            return False
        raise _decided(ledger, job, "approved")
    worker = worker_of(admission.workers, job)
    refuse_relayed(ledger, job)
    if worker.executed_by is ExecutedBy.PERSON:
        message = (
            f"job {job_id} has to be answered, not approved: `lcp answer {job_id} TEXT`; it is a question"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    before = from_json(job.params)
    revised = None if params is None or params == before else params
    read = worker.read(before if revised is None else revised, f"job {job.id}")
    _check_policy(ledger, admission, worker, job, read)
    sight = bind(ledger, job, now, by, is_revised=revised is not None, shown=shown)
    _let_run(ledger, job)
    keep_approval(ledger.tx, job.id, job.approved, by, sight)
    data: dict[str, JsonValue] = {"by": by, "decision": "approve", "params": revised}
    if revised is not None:
        ledger.tx.run(_PARAMS, job=job.id, new_params=to_json(revised))
        data["before"] = before
    mission = ledger.mission(job.mission_id)
    ledger.note(mission, "decided", job.id, data)
    refresh(ledger, mission)
    return True


def reject(ledger: Ledger, job_id: int, reason: str, *, by: str) -> bool:
    """Refuse a held job; the planner reads the reason. False where it was rejected before.

    Raises `CONFLICT` where somebody decided otherwise, `WRONG_STATE` for a job that nobody has to decide on.
    """
    job = locked_job(ledger, job_id)
    if job.state is State.REJECTED:
        return False
    mission = ledger.mission(job.mission_id)
    why = because(ReasonCode.REJECTED, words=reason)
    if not ledger.move(job, REJECT, reason=why, error=_rejection(ledger, job, why)):
        raise _decided(ledger, job, "rejected")
    ledger.note(mission, "decided", job.id, {"by": by, "decision": "reject", "reason": reason})
    after_rejecting(ledger, job)
    return True


def locked_job(ledger: Ledger, job_id: int) -> JobRow:
    """The job, its mission locked before it like everywhere else: two transactions never wait for each other."""
    ledger.lock(job.mission_id for job in find_jobs(ledger.tx, [job_id]))
    return ledger.job(job_id)


def worker_of(workers: Workers, job: JobRow) -> Worker[BaseModel]:
    """What executes the job. Raises `NO_WORKER`."""
    worker = workers.get(job.kind)
    if worker is None:
        message = f"job {job.id} needs a worker for the kind {job.kind!r}; none is installed"
        raise LcpError(ErrorCode.NO_WORKER, message)
    return worker


def _let_run(ledger: Ledger, job: JobRow) -> None:
    mission = ledger.mission(job.mission_id)
    job.approved = job.attempt + 1
    if is_early(ledger, job):
        ledger.move(job, APPROVE_BLOCKED, reason=STEP_ORDER)
        return
    if job.role is not Role.WORK and mission.asking is not None:
        ledger.move(job, APPROVE_BLOCKED, reason=TURN_ORDER)
        return
    ledger.move(job, APPROVE)
    if job.role is not Role.WORK:
        mission.asking = job.id


def _check_policy(
    ledger: Ledger, admission: Admission, worker: Worker[BaseModel], job: JobRow, params: BaseModel
) -> None:
    """A person's yes answers a hold, never a denial: also where nobody could judge the job when it was requested."""
    mission = ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    verdict, reason, code = ruling_on(admission.policy(spec, mission.root), worker, params, spec)
    if verdict is Verdict.DENY:
        raise LcpError(code, f"job {job.id} may not run: {reason}")


def _decided(ledger: Ledger, job: JobRow, word: str) -> LcpError:
    """Why a job that is not held cannot be decided on."""
    decision = last_decision(ledger.tx, job)
    message = f"job {job.id} has to be held to be {word}; it is {job.state}"
    if decision is None:
        return LcpError(ErrorCode.WRONG_STATE, message)
    return LcpError(ErrorCode.CONFLICT, f"{message}: {decision}")


def _rejection(ledger: Ledger, job: JobRow, reason: Reason) -> str:
    message = f"job {job.id} ({job.kind}) was rejected by a person: {reason}"
    failed = Failed(ErrorCode.NOT_ALLOWED, message, advice=reason.advice)
    return agent_error(failed, ledger.mission(job.mission_id).uid, ledger.tx.now)
