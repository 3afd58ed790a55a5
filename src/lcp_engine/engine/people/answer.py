"""Take what a person answers to a question (R13)."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import JsonValue

from lcp_engine.core.job_states import ANSWER, Role, State
from lcp_engine.engine.plans.progress import after_settling
from lcp_engine.engine.question import bring_reply, was_relayed
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import from_json, storable, to_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queue import find_jobs
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.ask_user import KIND, AskUserResult

MOST_CHARACTERS = 100_000
"""What one person says at once: a planner has to read it beside everything else."""


def answer(ledger: Ledger, job_id: int, text: str, *, by: str) -> bool:
    """Complete a question with a person's answer, or bring the reply of a planner that is a person (R21).

    False where it was answered so before: that is harmless. With options, the number of one or the beginning of exactly
    one stands for it. Raises `NOT_FOUND`, `INVALID_ARGUMENT` for an answer that is blank or too long and for a job that
    asks nothing, `WRONG_STATE` for a question that was decided otherwise.
    """
    ledger.lock(job.mission_id for job in find_jobs(ledger.tx, [job_id]))
    job = ledger.job(job_id)
    if job.role is not Role.WORK and was_relayed(ledger, job):
        return bring_reply(ledger, job, text, by=by)
    if job.kind != KIND:
        message = f"job {job_id} has to be a question to be answered; it is {_named(job)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    said = spoken(text, f"an answer to job {job_id}")
    options = _options(job)
    number = pick(options, said)
    chosen = said if number is None else options[number - 1].strip()
    result = AskUserResult(answer=chosen, option=number, by=by)
    if job.state is not State.HELD:
        return _is_known(ledger, job, result.answer)
    ledger.move(job, ANSWER, result=to_json(result.model_dump()))
    data: dict[str, JsonValue] = {"by": by, "decision": "answer", "option": result.option}
    ledger.note(ledger.mission(job.mission_id), "decided", job.id, data)
    after_settling(ledger, job)
    return True


def spoken(text: str, what: str) -> str:
    """A person's words as they are kept. Raises `INVALID_ARGUMENT` for none, and for too many."""
    said = storable(text).strip()
    if not said:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{what} has to say something; it is blank")
    if len(said) > MOST_CHARACTERS:
        fact = f"this has {len(said)}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, f"{what} has at most {MOST_CHARACTERS} characters; {fact}")
    return said


def pick(options: Sequence[str], said: str) -> int | None:
    """Which of `options` is meant, counted from 1; None for words of a person's own.

    It is meant by itself, by its number, or by a beginning that no other one has; letters of either case.
    """
    folded = [option.strip().casefold() for option in options]
    wanted = said.strip().casefold()
    if wanted in folded:
        return folded.index(wanted) + 1
    if wanted.isascii() and wanted.isdigit() and 1 <= int(wanted[:9]) <= len(options):
        return int(wanted)
    close = [number for number, option in enumerate(folded, 1) if option.startswith(wanted)]
    return close[0] if len(close) == 1 else None


def _options(job: JobRow) -> list[str]:
    options = from_json(job.params).get("options")
    return [str(option) for option in options] if isinstance(options, list) else []


def _is_known(ledger: Ledger, job: JobRow, answer: str) -> bool:
    """False where the answer is the one that was given before. Raises `WRONG_STATE` for anything else."""
    result = ledger.result(job.id)
    if job.state is not State.SUCCEEDED or result is None:
        message = f"job {job.id} has to be held to be answered; it is {job.state}"
        raise LcpError(ErrorCode.WRONG_STATE, message)
    before = from_json(result)
    if before.get("answer") == answer:
        return False
    message = f"job {job.id} has to be held to be answered; {before.get('by')} has answered it otherwise"
    raise LcpError(ErrorCode.WRONG_STATE, message)


def _named(job: JobRow) -> str:
    return f"a {job.state} {job.kind}"
