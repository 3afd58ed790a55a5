"""Do a mission's turns again: questions, their stored replies, and what follows from a reply."""

from __future__ import annotations

from dataclasses import replace

from pydantic import JsonValue

from lcp_engine.clock import SECOND
from lcp_engine.core.job_states import State
from lcp_engine.core.mission.spec import AcceptCheck
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.engine.failure import paid_tokens
from lcp_engine.engine.plans.escalation import ASKED
from lcp_engine.engine.plans.progress import usage_of
from lcp_engine.engine.plans.turn_queue import acting_plan
from lcp_engine.engine.question import hold_turn, keep_cost, keep_reply, new_question, open_question
from lcp_engine.engine.settle import FinishedTurn
from lcp_engine.errors import Failed
from lcp_engine.replay.scratch import Scratch, Strayed
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.archive import PastEvent, PastJob
from lcp_engine.store.row_types import JobRow
from lcp_engine.store.turns import StoredReply, question, question_of


def finish_turn(scratch: Scratch, past: PastJob, job: JobRow) -> None:
    """Read the stored reply and do what follows; an attempt that finds the reply to its question uses it (R21)."""
    if past.id not in scratch.replied:
        raise Strayed(f"job {past.id} ({past.kind}) has no reply in the history")
    finished = scratch.execute(past, job)
    if isinstance(finished, FinishedTurn):
        checks = _failed_checks(scratch, past, finished.failed_checks)
        finished = replace(finished, failed_checks=checks)
    if finished is not None:
        scratch.settle_finished(finished)


def pay(scratch: Scratch, past: PastJob, job: JobRow, failed: Failed) -> None:
    """Count what a question cost that got no reply."""
    tokens = None if past.role == "work" else paid_tokens(failed)
    if tokens is None:
        return
    asked = scratch.site.database.read(lambda tx: question_of(tx, job.id))
    if asked is not None:
        scratch.books(lambda ledger: keep_cost(ledger, asked, tokens))


def relay(scratch: Scratch, job: JobRow) -> bool:
    """Hold a turn whose question was relayed to a person; False where the job asked none."""
    asked = scratch.site.database.read(lambda tx: question_of(tx, job.id))
    if asked is None:
        return False
    prompt = scratch.past.turns[asked.number].prompt or ""
    scratch.books(lambda ledger: hold_turn(ledger, job.copy(), asked, prompt))
    return True


def drop_out(scratch: Scratch, job: JobRow, reason: str) -> None:
    """Open the question of a turn that nobody needs any more."""

    def ask(ledger: Ledger) -> None:
        _take_the_time_of_then(scratch, ledger, "max_seconds" if "max_seconds" in reason else None)
        open_question(ledger, job.copy())

    scratch.books(ask)


def _ask(scratch: Scratch, event: PastEvent) -> None:
    job = scratch.current(scratch.known(event))
    limit = event.data.get("last_turn")

    def ask(ledger: Ledger) -> None:
        _take_the_time_of_then(scratch, ledger, limit)
        if job.state is State.QUEUED:  # a fork was given the reply before anybody took the turn
            mission, plan = ledger.mission(scratch.mission_id), acting_plan(ledger, job)
            new_question(ledger, job, mission, plan, from_json(job.params))
        else:
            open_question(ledger, job.copy())

    scratch.books(ask)


def _take_the_time_of_then(scratch: Scratch, ledger: Ledger, limit: JsonValue) -> None:
    """Seconds of running time are measured: whether they were used up is what the history says."""
    mission = ledger.mission(scratch.mission_id)
    most = spec_of(mission.spec).limits.max_seconds
    if most is None:
        return
    used = usage_of(mission, ledger.tx.now).seconds
    if limit == "max_seconds" and used < most:
        mission.ran += int((most - used) * SECOND) + 1
    elif limit != "max_seconds" and used >= most:
        mission.ran, mission.running_since = 0, ledger.tx.now


def _reply(scratch: Scratch, event: PastEvent) -> None:
    number = event.data.get("question")
    past = scratch.past.turns.get(number) if isinstance(number, int) else None
    if past is None or past.reply is None:
        raise Strayed(f"the reply to question {number} is not in the history")
    reply = StoredReply(past.reply, past.prompt, past.input_tokens, past.output_tokens, past.latency or 0.0)

    def keep(ledger: Ledger) -> None:
        turn = question(ledger.tx, scratch.mission_id, past.number)
        if turn is None:
            raise Strayed(f"question {past.number} was not asked")
        keep_reply(ledger, turn, reply)

    scratch.books(keep)
    scratch.replied.add(past.job_id)


def _failed_checks(scratch: Scratch, past: PastJob, found: tuple[str, ...]) -> tuple[str, ...]:
    """Acceptance checks on files that the mission wrote are made again; what others came to is in the history."""
    written = {change.path for change in scratch.applied}
    told = _recorded_failures(scratch, past)
    kept: list[str] = []
    for check in spec_of(scratch.past.spec).accept:
        source = found if check.path in written else told
        kept += [fault for fault in source if _is_of(check, fault)]
    return tuple(kept)


def _recorded_failures(scratch: Scratch, past: PastJob) -> tuple[str, ...]:
    """The faults that the history tells of a turn: to a person, to the planner in the next one, or as the end."""
    to_person = _told_to_person(scratch, past)
    if to_person is not None:
        return to_person
    history = scratch.past
    turns = (job for job in history.jobs if job.id > past.id and job.role == "turn")
    notices = (from_json(job.params).get("notices") for job in turns)
    told = next((notice for notice in notices if isinstance(notice, list)), [history.summary])
    checks = [check.description for check in spec_of(history.spec).accept]
    # A fault begins with its check, whatever is said before that.
    found = ((str(text), str(text).find(check)) for text in told for check in checks)
    return tuple(text[at:] for text, at in found if at >= 0)


def _told_to_person(scratch: Scratch, past: PastJob) -> tuple[str, ...] | None:
    """The faults that a person was asked about after a turn; None where nobody was."""
    for event in scratch.past.events:
        listed = event.data.get("unmet")
        if event.event != ASKED or event.job_id is None or not isinstance(listed, list):
            continue
        if scratch.known(event).parent_id == past.id:
            return tuple(map(str, listed))
    return None


def _is_of(check: AcceptCheck, fault: str) -> bool:
    return fault.startswith(f"{check.description}: ")


ACTS = {"asked": _ask, "replied": _reply}
