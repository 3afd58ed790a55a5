"""Keep what people saw of a job, which is what an approval binds to (R5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, select, text

from lcp_engine.clock import Micros
from lcp_engine.store.db.transaction import Statement, Tx
from lcp_engine.store.schema import approvals, reviews

NOBODY = ""
"""The person of the review that is made when a job is held."""


_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Sight:
    """A job as it was looked at: its params by their fingerprint, and the file that it would change.

    `path` is relative to the root, None where the kind does not tell. `found` is the file's SHA-256 in hex, None
    where there was none, or the error code of what stood in the way. `at`: nothing that was seen is older than this.
    """

    fingerprint: str
    path: str | None
    found: str | None
    at: Micros

    def is_like(self, other: Sight) -> bool:
        """Whether both saw the same, whenever that was."""
        return (self.fingerprint, self.path, self.found) == (other.fingerprint, other.path, other.found)


_SEEN = Statement(
    select(reviews.c.fingerprint, reviews.c.path, reviews.c.sha256, reviews.c.at).where(
        reviews.c.job_id == bindparam("job"), reviews.c.person == bindparam("who")
    )
)
_SEE = Statement(
    text(
        "INSERT INTO reviews (job_id, person, fingerprint, path, sha256, at) "
        "VALUES (:job, :who, :fingerprint, :path, :found, :at) "
        "ON CONFLICT (job_id, person) DO UPDATE SET fingerprint = excluded.fingerprint, path = excluded.path, "
        "sha256 = excluded.sha256, at = excluded.at"
    )
)
_APPROVED = Statement(
    select(approvals.c.fingerprint, approvals.c.path, approvals.c.sha256, approvals.c.at).where(
        approvals.c.job_id == bindparam("job"), approvals.c.attempt == bindparam("first")
    )
)
_APPROVE = Statement(
    text(
        "INSERT INTO approvals (job_id, attempt, person, fingerprint, path, sha256, at) "
        "VALUES (:job, :first, :who, :fingerprint, :path, :found, :at) "
        "ON CONFLICT (job_id, attempt) DO UPDATE SET person = excluded.person, fingerprint = excluded.fingerprint, "
        "path = excluded.path, sha256 = excluded.sha256, at = excluded.at"
    )
)
# Effects of the mission itself, one after the other; what a person took back is nothing that was approved.
_SINCE = Statement(
    text(
        "SELECT sha256_before, sha256_after FROM changes WHERE mission_id = :mission AND file = :file "
        "AND state = 'applied' AND undoes IS NULL AND closed_at >= :since ORDER BY id"
    )
)


def seen(tx: Tx, job_id: int, person: str) -> Sight | None:
    """What the person last saw of the job; None where they never looked."""
    row = tx.row(_SEEN, job=job_id, who=person)
    return None if row is None else Sight(*row)


def met(tx: Tx, job_ids: Sequence[int], person: str) -> set[int]:
    """Which of these jobs the person has looked at, or nobody in particular when they were held."""
    found: set[int] = set()
    for start in range(0, len(job_ids), _AT_ONCE):
        some = reviews.c.job_id.in_(job_ids[start : start + _AT_ONCE])
        clause = select(reviews.c.job_id).where(some, reviews.c.person.in_((person, NOBODY)))
        found.update(row[0] for row in tx.query(clause))
    return found


def see(tx: Tx, job_id: int, person: str, sight: Sight) -> None:
    """Keep what a person was shown, in place of what they saw before."""
    tx.run(_SEE, job=job_id, who=person, **_columns(sight))


def keep_approval(tx: Tx, job_id: int, first: int, person: str, sight: Sight) -> None:
    """Keep what a person said yes to; `first` is the first attempt that this allows."""
    tx.run(_APPROVE, job=job_id, first=first, who=person, **_columns(sight))


def approved_sight(tx: Tx, job_id: int, first: int) -> Sight | None:
    """What was said yes to before attempt `first`; None for a job that runs by policy."""
    row = tx.row(_APPROVED, job=job_id, first=first)
    return None if row is None else Sight(*row)


def is_led_to(tx: Tx, mission_id: int, file: str, sight: Sight, found: str | None) -> bool:
    """Whether the file is as it was seen, but for what jobs of the same mission have done to it since, in order."""
    state = sight.found
    for before, after in tx.rows(_SINCE, mission=mission_id, file=file, since=sight.at):
        if before == state:
            state = after
    return state == found


def _columns(sight: Sight) -> dict[str, object]:
    return {"fingerprint": sight.fingerprint, "path": sight.path, "found": sight.found, "at": sight.at}
