"""Do again what people decided and said."""

from __future__ import annotations

from lcp_engine.engine.missions import steer
from lcp_engine.engine.people import approve
from lcp_engine.engine.people.answer import answer
from lcp_engine.engine.people.message import say
from lcp_engine.engine.question import bring_reply
from lcp_engine.replay.scratch import Scratch, Strayed
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.queries.archive import PastEvent
from lcp_engine.store.queries.operator_messages import SAID


def _decide(scratch: Scratch, event: PastEvent) -> None:
    past = scratch.known(event)
    job_id, by = scratch.ids[past.id], str(event.data.get("by"))
    bench = scratch.site.bench
    match event.data.get("decision"):
        case "approve":
            params = event.data.get("params")
            revised = params if isinstance(params, dict) else None
            scratch.books(
                lambda ledger: approve.approve(ledger, bench, job_id, by=by, now=None, params=revised)
            )
        case "reject":
            reason = str(event.data.get("reason", ""))
            scratch.books(lambda ledger: approve.reject(ledger, job_id, reason, by=by))
        case "answer":
            text = str(from_json(past.result or "{}").get("answer", ""))
            scratch.books(lambda ledger: answer(ledger, job_id, text, by=by))
        case "reply":
            reply = _brought(scratch, event)
            scratch.books(lambda ledger: bring_reply(ledger, ledger.job(job_id), reply, by=by))
        case "retry":
            scratch.books(lambda ledger: steer.retry(ledger, job_id, by=by, workers=bench.workers))


def _brought(scratch: Scratch, event: PastEvent) -> str:
    """The reply that a person gave in place of the planner."""
    number = event.data.get("question")
    turn = scratch.past.turns.get(number) if isinstance(number, int) else None
    if turn is None:
        raise Strayed(f"the reply to question {number} is not in the history")
    return turn.reply or ""


def _say(scratch: Scratch, event: PastEvent) -> None:
    text, by = str(event.data.get("text")), str(event.data.get("by"))
    about = None if event.job_id is None else scratch.ids[scratch.known(event).id]
    scratch.books(lambda ledger: say(ledger, scratch.mission_id, text, by=by, job_id=about))


ACTS = {"decided": _decide, SAID: _say}
