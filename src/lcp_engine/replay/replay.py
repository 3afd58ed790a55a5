"""Run a finished mission again from its history, without a planner, and tell what came out differently."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from lcp_engine.changes.recovery import APPLIED
from lcp_engine.core.job_states import SETTLED, TRANSITIONS, Role, State
from lcp_engine.core.reasons import Reason, recorded, stated
from lcp_engine.engine.admission import Admission
from lcp_engine.engine.instance import Site
from lcp_engine.engine.plans.turn_queue import VERIFIES
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.replay.compare import Difference, JobAccount, MissionAccount, compare
from lcp_engine.replay.reenact import reenact
from lcp_engine.replay.scratch import HistoryClock, Scratch
from lcp_engine.sandbox.root import Root
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.open import open_database
from lcp_engine.store.queries.archive import Archive, PastEvent, PastJob, missing_blobs, read_archive
from lcp_engine.workers.ask_user import KIND as ASK_USER

DATABASE, ROOT = "replay.db", "root"
MOST_NAMED = 3
_TARGETS: Mapping[str, State] = {transition.event: transition.target for transition in TRANSITIONS}


@dataclass(frozen=True)
class Replayed:
    """What a replay came to: how much was compared, and every difference. `stopped`: why it went no further."""

    mission_id: int
    jobs: int
    questions: int
    differences: tuple[Difference, ...]
    stopped: str | None = None

    @property
    def is_same(self) -> bool:
        return not self.differences

    def as_json(self) -> list[JsonValue]:
        return [difference.as_json() for difference in self.differences]


def replay(site: Site, mission_id: int, *, keep: Path | None = None) -> Replayed:
    """Run mission `mission_id` of `site` again in a scratch place, which is left in the directory `keep` if given.

    Replies, results and decisions come from the history; only changes of files are made, beneath a scratch root that
    holds the files as they were before. Raises `NOT_FOUND`, `WRONG_STATE` for a mission that goes on or whose history
    is not whole, `INVALID_ARGUMENT` for a `keep` that is in use.
    """
    past = site.database.read(lambda tx: read_archive(tx, mission_id))
    _check_whole(past, site)
    with _place(keep) as place:
        clock = HistoryClock()
        database = open_database(f"sqlite:///{place / DATABASE}", clock)
        try:
            there = replace(site, database=database, admission=_admission_of(site, past, place / ROOT))
            with Root(str(place / ROOT)) as root:
                stop = reenact(Scratch(there, past, root, site.database), clock)
            now = database.read(lambda tx: read_archive(tx, 1))
        finally:
            database.close()
    return _told(past, now, stop)


def _check_whole(past: Archive, site: Site) -> None:
    """Raises `WRONG_STATE` for what cannot be replayed."""
    name = f"mission {past.id}"
    if past.status in ("running", "waiting"):
        _refuse(f"{name} has to have ended to be replayed; it is {past.status}")
    going_on = [job for job in past.jobs if job.state in (State.QUEUED, State.RUNNING)]
    if going_on:
        _refuse(f"{name} has to be at rest to be replayed; job {going_on[0].id} is {going_on[0].state}")
    gone = site.database.read(lambda tx: missing_blobs(tx, _needed(past)))
    if gone:
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        _refuse(
            f"{name} needs the contents {', '.join(gone[:MOST_NAMED])}{more} to be replayed; they were pruned"
        )
    mute = [turn.number for turn in past.turns.values() if turn.replied_at is not None and turn.reply is None]
    if mute:
        _refuse(f"{name} needs the reply to question {mute[0]} to be replayed; it was pruned")


def _refuse(message: str) -> None:
    raise LcpError(ErrorCode.WRONG_STATE, message)


def _needed(past: Archive) -> list[str]:
    """The hashes of the pre-images: of a first change, and of one before which somebody else changed the file."""
    known: dict[str, str | None] = {}
    needed: list[str] = []
    for change in past.changes:
        if change.state != APPLIED or change.undoes is not None:
            continue
        if change.sha256_before is not None and known.get(change.path) != change.sha256_before:
            needed.append(change.sha256_before)
        known[change.path] = change.sha256_after
    return needed


@contextmanager
def _place(keep: Path | None) -> Iterator[Path]:
    """A directory for database and root."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lcp-replay-") as temporary:
            place = Path(temporary).resolve()
            (place / ROOT).mkdir()
            yield place
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            message = f"the directory {keep} for a replay has to be empty; it is not"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        (keep / ROOT).mkdir()
    except OSError as error:
        message = f"the directory {keep} for a replay has to be writable: {error.strerror}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from error
    yield keep.resolve()


def _admission_of(site: Site, past: Archive, root: Path) -> Admission:
    """What jobs are judged by; the engine's own files beneath the root lie beneath the scratch root now."""
    if past.root is None:
        return site.admission
    files = [
        str(root / os.path.relpath(file, past.root))
        for file in site.admission.engine_files
        if Path(file).is_relative_to(past.root)
    ]
    return replace(site.admission, engine_files=tuple(files))


def _told(past: Archive, now: Archive, stop: tuple[PastEvent, str] | None) -> Replayed:
    was, questions = _account(past), len(past.turns)
    if stop is None:
        return Replayed(past.id, len(was.jobs), questions, tuple(compare(was, _account(now))))
    event, why = stop
    # Where the replay ends early, the history counts up to there.
    then = _account_until(past, event.seq)
    found = [one for one in compare(then, _account(now)) if not one.is_of_mission]
    found.append(Difference(event.job_id, f"event {event.seq}", "event", event.event, None))
    return Replayed(
        past.id, len(was.jobs), questions, tuple(found), f"it stops before event {event.seq}: {why}"
    )


def _account(archive: Archive) -> MissionAccount:
    reasons = _reasons(archive.events)
    jobs = [_job(job, reasons) for job in archive.jobs]
    return MissionAccount(archive.status, archive.outcome, _turns(archive), jobs)


def _account_until(archive: Archive, seq: int) -> MissionAccount:
    """The mission as it stood before event `seq`; of a job that moved later only the state of then is known."""
    states: dict[int | None, State] = {
        event.job_id: _TARGETS[event.event]
        for event in archive.events
        if event.seq < seq and event.event in _TARGETS
    }
    reasons = _reasons(archive.events)
    jobs = [
        _job(job, reasons)
        if states[job.id] == job.state and job.state in SETTLED
        else replace(_job(job, reasons), state=str(states[job.id]), is_final=False)
        for job in archive.jobs
        if job.id in states
    ]
    return MissionAccount(archive.status, archive.outcome, _turns(archive), jobs)


def _turns(archive: Archive) -> int:
    return max((turn.turn for turn in archive.turns.values()), default=0)


def _reasons(events: Sequence[PastEvent]) -> dict[int | None, Reason | None]:
    """Why each job is in the state of its last transition."""
    return {event.job_id: recorded(event.data) for event in events if event.event in _TARGETS}


_ENGINE_TEXTS = ("notices", "user_prompt", "question", "options")
"""Params that hold sentences of the engine, in jobs that it asks in its own name."""


def _params(job: PastJob) -> dict[str, JsonValue]:
    """The params without sentences of the engine: rewording one is no difference (R23)."""
    params = from_json(job.params)
    is_asked_by_engine = job.role is Role.WORK and job.kind == ASK_USER and job.fingerprint is None
    if VERIFIES in params or (is_asked_by_engine and job.parent_id is not None):
        return {name: value for name, value in params.items() if name not in _ENGINE_TEXTS}
    if job.role is Role.WORK:
        return params
    return {name: value for name, value in params.items() if name != "notices"}


def _job(job: PastJob, reasons: Mapping[int | None, Reason | None]) -> JobAccount:
    error = None if job.error is None else from_json(job.error).get("error_code")
    return JobAccount(
        id=job.id,
        turn=job.turn,
        parent_id=job.parent_id,
        name=job.name,
        kind=job.kind,
        params=_params(job),
        state=job.state,
        reason=None if job.reason is None else reasons.get(job.id) or stated(job.reason),
        error_code=None if error is None else str(error),
        result=None if job.result is None else from_json(job.result),
    )
