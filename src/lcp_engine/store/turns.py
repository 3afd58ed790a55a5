"""Store questions and replies: each question once, and only its first reply (R4, R21)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from sqlalchemy import bindparam, func, insert, literal_column, or_, select, text, update

from lcp_engine.clock import Micros
from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.limits.money import Cost, add_amounts
from lcp_engine.store.conditions import LIVE
from lcp_engine.store.db.json_text import JsonObject, from_json, storable, to_json
from lcp_engine.store.db.statements import Statement
from lcp_engine.store.db.transaction import Row, Tx
from lcp_engine.store.large_results import RESULT
from lcp_engine.store.row_types import TurnRow
from lcp_engine.store.schema import edges, events, jobs, plans, turns

MEMORIES = "memories"
"""The param of the turn that a fork begins with: what the original's question was asked with."""
REPLIED = "replied"
"""The event of a turn whose reply was stored; its data has what the prompt showed and left out."""
PROMPT = "prompt"
_TURN = select(*(turns.c[field.name] for field in fields(TurnRow)))
_BY_JOB = Statement(_TURN.where(turns.c.job_id == bindparam("job")))
_BY_NUMBER = Statement(
    _TURN.where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("number"))
)
_ASK = Statement(
    insert(turns).values(
        {
            name: bindparam(name)
            for name in (
                "mission_id", "number", "turn", "plan_id", "job_id", "corrects", "last_turn", "after_seq", "until_seq",
                "asked_at", "until_ran",
            )
        }
    )
)  # fmt: skip
_REPLY = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .where(turns.c.reply.is_(None))
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in ("reply", "prompt", "input_tokens", "output_tokens", "latency", "replied_at")
        }
    )
)
_ADD_COST = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(
        input_tokens=func.coalesce(turns.c.input_tokens, literal_column("0")) + bindparam("input"),
        output_tokens=func.coalesce(turns.c.output_tokens, literal_column("0")) + bindparam("output"),
    )
)
_PROMPT = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .where(turns.c.reply.is_(None))
    .values(prompt=bindparam("new_prompt"))
)
_MEMORIES = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(memories=bindparam("new_memories"))
)
_MAKE_LAST = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(last_turn=bindparam("new_last_turn"), until_ran=bindparam("new_until_ran"))
)
_WAITS = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(waits_since=bindparam("new_since"), waits_until=bindparam("new_until"))
)
_SPENT = Statement(
    select(turns.c.completions, turns.c.cost, turns.c.currency).where(
        turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("number")
    )
)
_KEEP_SPENT = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(
        completions=bindparam("new_completions"),
        cost=bindparam("new_cost"),
        currency=bindparam("new_currency"),
    )
)
_NUMBER_JOB = Statement(update(jobs).where(jobs.c.id == bindparam("job")).values(turn=bindparam("number")))
_STORE_READING = Statement(
    update(turns)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.number == bindparam("question"))
    .values(
        action=bindparam("new_action"), errors=bindparam("new_errors"), warnings=bindparam("new_warnings")
    )
)
_WARNINGS = Statement(
    select(turns.c.warnings)
    .where(turns.c.mission_id == bindparam("mission"), turns.c.plan_id == bindparam("plan"))
    .where(turns.c.number < bindparam("number"), turns.c.reply.is_not(None))
    .order_by(turns.c.number.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
)
_SHOWN = (
    jobs.c.id,
    jobs.c.name,
    jobs.c.kind,
    jobs.c.params,
    jobs.c.state,
    jobs.c.reason,
    RESULT,
    jobs.c.error,
    jobs.c.turn,
)
_SETTLED = Statement(
    select(*_SHOWN)
    .where(text("plan_id IS NOT NULL"), jobs.c.plan_id == bindparam("plan"))
    .where(
        jobs.c.settled_seq > bindparam("after"),
        jobs.c.settled_seq <= bindparam("until"),
        text("role <> 'turn'"),
    )
    .order_by(jobs.c.settled_seq)
)
_WAITING = Statement(
    select(*_SHOWN)
    .where(text(LIVE), jobs.c.mission_id == bindparam("mission"), jobs.c.plan_id == bindparam("plan"))
    .where(text("state = 'held'"))
    .order_by(jobs.c.id)
)
_STEP_OF = Statement(
    select(jobs.c.id, jobs.c.plan_id)
    .join_from(plans, jobs, plans.c.job_id == jobs.c.id)
    .where(plans.c.id == bindparam("plan"))
)
_AWAITED = Statement(select(edges.c.after_id).where(edges.c.job_id == bindparam("job")))
_SHOWN_JOB = Statement(select(*_SHOWN).where(jobs.c.id == bindparam("job")))
# By the events, which are stored by mission: no index has all jobs of one.
_NUMBERED = Statement(
    select(events.c.job_id)
    .where(events.c.mission_id == bindparam("mission"), events.c.job_id.is_not(None))
    .distinct()
    .order_by(events.c.job_id)
)
_REPLIED = Statement(
    select(turns.c.number, events.c.data)
    .join_from(events, turns, events.c.job_id == turns.c.job_id)
    .where(events.c.mission_id == bindparam("mission"), turns.c.mission_id == bindparam("mission"))
    .where(turns.c.plan_id == bindparam("plan"), turns.c.number <= bindparam("number"))
    .where(text(f"events.event = '{REPLIED}'"))
    .order_by(events.c.seq)
)
_RELAYED = Statement(
    text(
        "SELECT data FROM events WHERE mission_id = :mission AND job_id = :job AND event = 'held_again' "
        "ORDER BY seq DESC LIMIT 1"
    )
)
_EQUAL = Statement(
    select(jobs.c.id, jobs.c.state)
    .where(text("fingerprint IS NOT NULL"), jobs.c.mission_id == bindparam("mission"))
    .where(jobs.c.fingerprint == bindparam("fingerprint"))
    .where(or_(text("state = 'held'"), jobs.c.settled_seq >= bindparam("since")))
)
_EQUAL_DONE = Statement(
    select(jobs.c.id)
    .where(text("fingerprint IS NOT NULL"), jobs.c.mission_id == bindparam("mission"))
    .where(jobs.c.fingerprint == bindparam("fingerprint"))
    .where(text("state = 'succeeded'"), jobs.c.settled_seq >= bindparam("since"))
    .order_by(jobs.c.settled_seq.desc())
)


NOTHING = Cost(())


@dataclass(frozen=True)
class StoredReply:
    """A planner's reply with what it cost; latency in seconds; `record` is what its prompt showed and left out."""

    text: str
    prompt: str | None
    input_tokens: int | None
    output_tokens: int | None
    latency: float
    record: Mapping[str, JsonValue] | None = None
    spent: Cost = NOTHING


def question_of(tx: Tx, job_id: int) -> TurnRow | None:
    row = tx.row(_BY_JOB, job=job_id)
    return None if row is None else TurnRow(*row)


def question(tx: Tx, mission_id: int, number: int) -> TurnRow | None:
    row = tx.row(_BY_NUMBER, mission=mission_id, number=number)
    return None if row is None else TurnRow(*row)


def ask(tx: Tx, turn: TurnRow) -> None:
    """Store a question."""
    tx.run(
        _ASK,
        mission_id=turn.mission_id,
        number=turn.number,
        turn=turn.turn,
        plan_id=turn.plan_id,
        job_id=turn.job_id,
        corrects=turn.corrects,
        last_turn=turn.last_turn,
        after_seq=turn.after_seq,
        until_seq=turn.until_seq,
        asked_at=turn.asked_at,
        until_ran=turn.until_ran,
    )


def number_job(tx: Tx, job_id: int, turn: int) -> None:
    """Store the number of the turn in which a job asks its question."""
    tx.run(_NUMBER_JOB, job=job_id, number=turn)


def make_last(tx: Tx, mission_id: int, number: int, limit: str, until_ran: int | None) -> None:
    """Make a question the last one, because of a limit that was reached since it was asked."""
    tx.run(_MAKE_LAST, mission=mission_id, question=number, new_last_turn=limit, new_until_ran=until_ran)


def note_wait(tx: Tx, turn: TurnRow, since: Micros, until: Micros) -> None:
    """Store since when a question waits for its server, and until when its turn waits now."""
    tx.run(_WAITS, mission=turn.mission_id, question=turn.number, new_since=since, new_until=until)


def add_spent(tx: Tx, mission_id: int, number: int, spent: Cost) -> None:
    """Append to the completions of a question, and add to its cost, as far as that is in the same currency."""
    row = tx.row(_SPENT, mission=mission_id, number=number)
    known, cost, currency = (None, None, None) if row is None else row
    made: list[JsonValue] = [] if known is None else json.loads(known)
    if spent.amount is not None and currency in (None, spent.currency):
        cost, currency = add_amounts(cost, spent.amount), spent.currency
    tx.run(
        _KEEP_SPENT,
        mission=mission_id,
        question=number,
        new_completions=to_json([*made, *spent.completions]),
        new_cost=cost,
        new_currency=currency,
    )


def store_reply(tx: Tx, mission_id: int, number: int, reply: StoredReply) -> bool:
    """Store the reply to a question. False if there is one already: the first wins."""
    changed = tx.run(
        _REPLY,
        mission=mission_id,
        question=number,
        new_reply=storable(reply.text),
        new_prompt=None if reply.prompt is None else storable(reply.prompt),
        new_input_tokens=reply.input_tokens,
        new_output_tokens=reply.output_tokens,
        new_latency=reply.latency,
        new_replied_at=tx.now,
    )
    return changed == 1


def keep_memories(tx: Tx, mission_id: int, number: int, memories: str | None) -> None:
    """Store the entries of memory that a question is asked with, as JSON."""
    tx.run(_MEMORIES, mission=mission_id, question=number, new_memories=memories)


def add_cost(tx: Tx, mission_id: int, number: int, reply: StoredReply) -> None:
    """Add the tokens of a reply that came too late to those of the question."""
    tx.run(
        _ADD_COST,
        mission=mission_id,
        question=number,
        input=reply.input_tokens or 0,
        output=reply.output_tokens or 0,
    )


def keep_prompt(tx: Tx, mission_id: int, number: int, prompt: str) -> None:
    """Store the prompt that a person gets, unless there is a reply already."""
    tx.run(_PROMPT, mission=mission_id, question=number, new_prompt=storable(prompt))


def store_reading(
    tx: Tx, mission_id: int, number: int, *, action: str | None, errors: str | None, warnings: str | None
) -> None:
    """Store how a reply was read: its action or what is wrong with it, and what was ignored in it."""
    tx.run(
        _STORE_READING,
        mission=mission_id,
        question=number,
        new_action=action,
        new_errors=errors,
        new_warnings=warnings,
    )


def last_warnings(tx: Tx, turn: TurnRow) -> str | None:
    """Notes on what was ignored in the reply to the plan's question before `turn`."""
    row = tx.row(_WARNINGS, mission=turn.mission_id, plan=turn.plan_id, number=turn.number)
    return None if row is None else row[0]


def settled_jobs(tx: Tx, plan_id: int, after_seq: int, until_seq: int) -> Sequence[Row]:
    """The plan's jobs that were settled in a range of events, in that order, without turns."""
    return tx.rows(_SETTLED, plan=plan_id, after=after_seq, until=until_seq)


def waiting_jobs(tx: Tx, mission_id: int, plan_id: int) -> Sequence[Row]:
    """The plan's held jobs."""
    return tx.rows(_WAITING, mission=mission_id, plan=plan_id)


def steps_before(tx: Tx, plan_id: int) -> Sequence[Row]:
    """The steps that had to end before the one that began a plan, and before those around it; oldest first."""
    before: set[int] = set()
    while (step := tx.row(_STEP_OF, plan=plan_id)) is not None:
        later, plan_id = [step[0]], step[1]
        while later:
            awaited = {row[0] for row in tx.rows(_AWAITED, job=later.pop())} - before
            before |= awaited
            later += awaited
    return [row for job_id in sorted(before) for row in tx.rows(_SHOWN_JOB, job=job_id)]


def shown_job(tx: Tx, job_id: int) -> Row | None:
    """One job, as a planner is shown it."""
    return tx.row(_SHOWN_JOB, job=job_id)


def numbered_jobs(tx: Tx, mission_id: int) -> list[int]:
    """The ids of the mission's jobs in the order in which they were requested: the first is number 1."""
    return [row[0] for row in tx.rows(_NUMBERED, mission=mission_id)]


def prompt_records(tx: Tx, turn: TurnRow) -> list[tuple[int, JsonObject]]:
    """Records of what the prompts of a plan showed and left out, up to that of `turn`, each with its question."""
    rows = tx.rows(_REPLIED, mission=turn.mission_id, plan=turn.plan_id, number=turn.number)
    noted = ((row[0], from_json(row[1]).get(PROMPT)) for row in rows)
    return [(number, record) for number, record in noted if isinstance(record, dict)]


def relayed_record(tx: Tx, turn: TurnRow) -> JsonObject | None:
    """Record of what the prompt that a person was given showed and left out, as it was noted when the turn was held."""
    row = tx.row(_RELAYED, mission=turn.mission_id, job=turn.job_id)
    about = {} if row is None else from_json(row[0]).get("about")
    record = about.get(PROMPT) if isinstance(about, dict) else None
    return record if isinstance(record, dict) else None


def equal_jobs(tx: Tx, mission_id: int, fingerprint: str, since_seq: int) -> dict[int, str]:
    """The states of equal jobs, by id, that are held or were settled since event `since_seq` (R11)."""
    rows = tx.rows(_EQUAL, mission=mission_id, fingerprint=fingerprint, since=since_seq)
    return {int(row[0]): str(row[1]) for row in rows}


def equal_done(tx: Tx, mission_id: int, fingerprint: str, since_seq: int) -> int | None:
    """The newest equal job that has succeeded since event `since_seq`."""
    row = tx.row(_EQUAL_DONE, mission=mission_id, fingerprint=fingerprint, since=since_seq)
    return None if row is None else int(row[0])
