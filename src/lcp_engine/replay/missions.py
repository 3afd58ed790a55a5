"""Do again what was done to the mission as a whole: launched, cancelled, resumed, forked."""

from __future__ import annotations

from pathlib import Path

from pydantic import JsonValue

from lcp_engine.core.job_states import CANCEL
from lcp_engine.core.mission.stored import spec_of
from lcp_engine.engine.missions import steer
from lcp_engine.replay.scratch import Scratch
from lcp_engine.store import queue
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.archive import Archive, PastEvent

CANCELLED_BY = "cancelled by "


def launch(scratch: Scratch) -> None:
    """Launch the mission with the limits of then, over the files of then."""
    past = scratch.past
    spec = spec_of(past.spec)
    if past.root is not None:
        # The planner may have called the root by its name of then.
        spec = spec.model_copy(update={"root_aliases": (*spec.root_aliases, past.root)})
    spec = spec.model_copy(update={"limits": spec.limits.model_copy(update=_first_limits(past))})

    def launch_it(ledger: Ledger) -> None:
        scratch.mission_id = steer.launch(ledger, spec, Path(scratch.root.path))
        scratch.runner_id = queue.add_runner(ledger.tx, uid="replay", host="", boot="", pid=0)

    scratch.books(launch_it)
    first = {change.path: change.sha256_before for change in reversed(scratch.applied)}
    for path, sha in first.items():
        scratch.restore(path, sha)


def cancel(scratch: Scratch, reason: str) -> None:
    """Cancel the mission as whoever the reason names."""
    by = reason.removeprefix(CANCELLED_BY)
    scratch.books(lambda ledger: steer.cancel(ledger, scratch.mission_id, by=by))


def _first_limits(past: Archive) -> dict[str, JsonValue]:
    """The limits that the mission was launched with, where resuming changed them."""
    first: dict[str, JsonValue] = {}
    for event in past.events:
        before = event.data.get("before")
        if event.event == "resumed" and isinstance(before, dict):
            first = {**before, **first}
    return first


def _cancel(scratch: Scratch, event: PastEvent) -> None:
    reasons = (
        str(later.data.get("reason", ""))
        for later in scratch.past.events[event.seq :]
        if later.event == CANCEL.event
    )
    cancel(scratch, next(reasons, scratch.past.summary or ""))


def _resume(scratch: Scratch, event: PastEvent) -> None:
    limits = event.data.get("limits")
    given = limits if isinstance(limits, dict) else {}
    by = str(event.data.get("by"))
    scratch.books(lambda ledger: steer.resume(ledger, scratch.mission_id, given, by=by))


def _fork(scratch: Scratch, event: PastEvent) -> None:
    """Whoever forks begins anew with what counts in a row."""

    def fork(ledger: Ledger) -> None:
        for (plan_id,) in ledger.tx.query_plain("SELECT id FROM plans"):
            plan = ledger.plan(int(plan_id))
            plan.corrections = plan.stalled = plan.refused = 0
        mission = ledger.mission(scratch.mission_id)
        ledger.note(mission, event.event, None, event.data)
        mission.changed_seq = _number(event.data.get("changed_seq"))
        mission.bytes_written = _number(event.data.get("bytes_written"))

    scratch.books(fork)


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0


ACTS = {"mission_cancelled": _cancel, "resumed": _resume, "forked": _fork}
