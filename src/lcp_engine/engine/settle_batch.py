"""Say what a job came to, and settle it with others in one transaction."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import BaseModel

from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.engine.jobs.admission import Bench
from lcp_engine.engine.jobs.outcome import Succeeded, raised, sound
from lcp_engine.engine.jobs.settle import Settling, settle_all
from lcp_engine.engine.turns.apply_decision import conclude_turn
from lcp_engine.errors import OF_DATABASE, Failed, LcpError
from lcp_engine.store.approvals import Sight
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Hold, Worker


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


def concluded(job: JobRow, worker: Worker[BaseModel], outcome: Succeeded | Hold | Failed) -> Conclusion:
    """What work came to."""
    return Conclusion(job, Settling(job, outcome, worker.backoff))


def blamed(job: JobRow, worker: Worker[BaseModel], error: BaseException) -> Conclusion:
    """What a job came to by raising. Raises what the database has against it."""
    if not isinstance(error, LcpError):
        return concluded(job, worker, raised(name_of(job), error))
    failed = sound(name_of(job), error.failed)
    if failed.code in OF_DATABASE:
        raise error
    return concluded(job, worker, failed)


def name_of(job: JobRow) -> str:
    """What errors call a job."""
    return f"job {job.id} ({job.kind})"
