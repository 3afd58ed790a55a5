"""Hold an approval to what its person was shown (R5)."""

from __future__ import annotations

from os.path import normpath

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import fingerprint, from_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import NOBODY, Sight, approved_sight, is_led_to, see, seen
from lcp_engine.store.row_types import JobRow

DRIFT = "drift"
"""The reason of a job that is held again: its file is not what the approval was for."""


class Drifted(Exception):
    """A file that an approved job was about to change is not what was approved; `found` is what it is."""

    def __init__(self, approved: Sight, found: str | None) -> None:
        super().__init__(approved.path)
        self.approved = approved
        self.found = found


def bind(
    ledger: Ledger, job: JobRow, now: Sight | None, by: str, *, is_revised: bool, shown: Sight | None = None
) -> Sight:
    """What an approval by this person binds to; `now` is what the job looks like at this moment; None
    where a decision of the past is only played again, which binds to nothing.

    It is what they were `shown`, else what they last saw, what was there when the job was held, or `now`. Raises
    `CONFLICT` where that is not how things are now, except for what jobs of the same mission did to the file since.
    """
    shown = shown or seen(ledger.tx, job.id, by) or seen(ledger.tx, job.id, NOBODY)
    mark = fingerprint(job.kind, from_json(job.params))
    if now is None:
        return Sight(mark, None, None, ledger.tx.now)
    if not is_revised and now.fingerprint != mark:
        raise _conflict(job, "its params were changed at this moment")
    if shown is None:
        return now
    if shown.fingerprint != mark:
        raise _conflict(job, "its params are not those that were shown")
    if shown.path != now.path:
        if is_revised or shown.path is None:
            return now
        would = f"it would change {now.path!r}" if now.path else "what it would change cannot be told now"
        raise _conflict(job, f"{would}, and {shown.path!r} was shown")
    file = normpath(f"{ledger.mission(job.mission_id).root}/{now.path}")
    if now.path is not None and not is_led_to(ledger.tx, job.mission_id, file, shown, now.found):
        was, is_now = state_of(shown.found), state_of(now.found)
        raise _conflict(job, f"{shown.path!r} was {was} when it was shown, and is {is_now}")
    return Sight(now.fingerprint, shown.path, shown.found, shown.at)


def drift_of(tx: Tx, job: JobRow, file: str, path: str, found: str | None) -> Drifted | None:
    """What keeps an approved job from changing `file` (absolute; `path` in its root), where `found` is there now.

    None for a job that runs by policy, for a kind whose approval names no file, and where everything is as approved.
    """
    approved = approved_sight(tx, job.id, job.approved) if job.approved else None
    if approved is None or approved.path is None:
        return None
    if approved.path == path and is_led_to(tx, job.mission_id, file, approved, found):
        return None
    return Drifted(approved, found)


def note_drift(ledger: Ledger, job: JobRow, drifted: Drifted) -> None:
    """Write into the history what was approved and what was found; it is held as it is now."""
    if not ledger.is_leased(job):
        return
    was = drifted.approved
    data = {"path": was.path, "approved": was.found, "found": drifted.found}
    ledger.note(ledger.mission(job.mission_id), "drifted", job.id, {**data})
    see(ledger.tx, job.id, NOBODY, Sight(was.fingerprint, was.path, drifted.found, ledger.tx.now))


def state_of(found: str | None) -> str:
    """What stood in a file's place, in words."""
    if found is None:
        return "not there"
    return f"nothing that can be written ({found})" if found in set(ErrorCode) else f"{found[:12]}…"


def _conflict(job: JobRow, fact: str) -> LcpError:
    message = (
        f"job {job.id} has to be what was shown to be approved; {fact}: look again with `lcp diff {job.id}`"
    )
    return LcpError(ErrorCode.CONFLICT, message)
