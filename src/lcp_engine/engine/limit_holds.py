"""Ask a person for more when a mission reaches a limit, and raise the limit or let the mission end (R6)."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from pydantic import JsonValue

from lcp_engine.core.decide import Usage
from lcp_engine.core.job_states import STOP_AT_LIMIT, State
from lcp_engine.core.kinds import QUESTION
from lcp_engine.core.limits.money import amount_text, told_amount
from lcp_engine.core.mission.parse import with_limits
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.changes import staged_paths, written_paths
from lcp_engine.store.db.json_text import from_json, to_json
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.missions import event_data, has_event_of
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow

ASKED_FOR_MORE = "asked_for_more"
"""The event of the question; its data is the limit, and what was used of it."""
RAISED = "limit_raised"
"""The event of a limit that a person has raised: `before` and `limits` as in the event of a resume."""
DECLINED = "limit_declined"
"""The event of a limit that a person has not raised."""
MORE = "more"
"""The field of the form: by how much the limit is raised."""
_UNITS: Mapping[str, str] = {"max_turns": "turns", "max_seconds": "seconds", "max_tokens": "tokens"}
_MOST = 1e12
_NAMED = 3


def ask_for_more(ledger: Ledger, plan: PlanRow, turn: JobRow, limit: str, usage: Usage) -> None:
    """Stop a leased turn before it is asked, and hold a question about the limit in its place.

    The turn goes on once that is settled. No cap counts the question.
    """
    mission = ledger.mission(turn.mission_id)
    reason = because(ReasonCode.LIMIT_REACHED, limit=limit)
    if not ledger.move(turn, STOP_AT_LIMIT, reason=reason, is_leased=True):
        return
    ledger.attempted(turn, STOP_AT_LIMIT.event)
    most = _most(spec_of(mission.spec), limit)
    used = _used(limit, usage)
    unit = _UNITS.get(limit) or mission.currency or "of money"
    field: JsonValue = {
        "id": MORE, "type": "number", "label": f"More {unit}", "help": "0 ends the mission after a last turn.",
        "required": True, "min": 0, "max": _MOST,
    }  # fmt: skip
    question = _question(ledger, mission, limit, f"{used} of {most} {unit}", unit)
    mission.asking = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            turn=mission.turns or None,
            parent_id=turn.id,
            kind=QUESTION,
            params=to_json({"question": question, "fields": [field]}),
            state=State.HELD,
            reason=because(ReasonCode.LIMIT_REACHED, limit=limit),
            depth=plan.depth,
        ),
    )
    ledger.note(mission, ASKED_FOR_MORE, mission.asking, {"limit": limit, "used": used, "most": most})


def is_about_limit(ledger: Ledger, job: JobRow) -> bool:
    """True if the job is the question about a limit that its mission waits for."""
    return job.kind == QUESTION and ledger.mission(job.mission_id).asking == job.id


def was_declined(ledger: Ledger, mission: MissionRow) -> bool:
    """True if a person has ended the mission at a limit before, instead of raising it."""
    return has_event_of(ledger.tx, mission.id, DECLINED)


def check_more(ledger: Ledger, job: JobRow, values: Mapping[str, JsonValue]) -> None:
    """Refuse an amount that the limit cannot be raised by. Raises `INVALID_ARGUMENT`."""
    try:
        _raised(ledger, job, values)
    except LcpError as refused:
        message = f"job {job.id}: {MORE}: {refused}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused


def settle_limit(ledger: Ledger, job: JobRow) -> None:
    """Carry out what a person has decided about the limit: the mission has more, or ends after its last turn."""
    mission = ledger.mission(job.mission_id)
    mission.asking = None
    result = ledger.result(job.id) if job.state is State.SUCCEEDED else None
    answer = {} if result is None else from_json(result)
    values, by = answer.get("values"), answer.get("by")
    limits = _raised(ledger, job, values) if isinstance(values, dict) else None
    limit = str(event_data(ledger.tx, mission.id, job.id, ASKED_FOR_MORE).get("limit"))
    spec = spec_of(mission.spec)
    if limits is None:
        mission.spec = spec.model_copy(update={"on_limit": "end"}).model_dump_json(by_alias=True)
        ledger.note(mission, DECLINED, job.id, {"limit": limit, "by": by})
        return
    before = spec.limits.model_dump(mode="json", include=set(limits))
    raised = with_limits(spec.limits, limits)
    mission.spec = spec.model_copy(update={"limits": raised}).model_dump_json(by_alias=True)
    ledger.note(mission, RAISED, job.id, {"by": by, "limits": limits, "before": before})


def _raised(ledger: Ledger, job: JobRow, values: Mapping[str, JsonValue]) -> dict[str, JsonValue] | None:
    """The limit with what a person adds to it, or to what was used if that is more; None if nothing is added."""
    more = values.get(MORE)
    ledger.write_events()
    data = event_data(ledger.tx, job.mission_id, job.id, ASKED_FOR_MORE)
    if not isinstance(more, int | float) or more <= 0:
        return None
    reached = max(Decimal(str(data["used"])), Decimal(str(data["most"])))
    total = reached + Decimal(str(more))
    limit = str(data["limit"])
    value: JsonValue = amount_text(total)
    if limit == "max_seconds":
        value = float(total)
    elif total == total.to_integral_value():
        value = int(total)
    limits: dict[str, JsonValue] = {limit: value}
    with_limits(spec_of(ledger.mission(job.mission_id).spec).limits, limits)
    return limits


def _used(limit: str, usage: Usage) -> str:
    match limit:
        case "max_turns":
            return str(usage.turns)
        case "max_seconds":
            return f"{usage.seconds:.1f}"
        case "max_tokens":
            return str(usage.tokens)
        case _:
            return amount_text(usage.cost)


def _most(spec: MissionSpec, limit: str) -> str:
    stated = spec.limits.model_dump(mode="json")[limit]
    return f"{stated:g}" if isinstance(stated, float) else str(stated)


def _question(ledger: Ledger, mission: MissionRow, limit: str, used: str, unit: str) -> str:
    """Text of the question: what was reached, what was done so far, and what is asked."""
    staged = staged_paths(ledger.tx, mission.id)
    paths, where = (staged, " in its stage") if staged else (written_paths(ledger.tx, mission.id), "")
    named = ", ".join(map(str, paths[:_NAMED])) + (
        f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    )
    parts = [
        f"{mission.turns} turn{'s' * (mission.turns != 1)}",
        f"{mission.requested} job{'s' * (mission.requested != 1)} asked for",
        f"{mission.failed} failed",
        f"files written{where}: {named}" if paths else "no file written",
    ]
    if mission.cost is not None and mission.currency is not None:
        parts.append(f"cost {told_amount(mission.cost, mission.currency)}")
    reached = f"Mission {mission.id} ({mission.name}) has reached {limit}: {used} are used."
    return f"{reached}\nSo far: {', '.join(parts)}.\nHow many more {unit} may it use? 0 ends it after a last turn."
