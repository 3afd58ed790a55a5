"""Run a finished mission again from its history, without a planner, and list the differences."""

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
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.turn_queue import RESUMED, VERIFIES
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.replay.compare import (
    INVALID,
    ComparedJob,
    ComparedMission,
    ComparedReading,
    Difference,
    compare,
)
from lcp_engine.features.replay.reenact import reenact
from lcp_engine.features.replay.scratch import HistoryClock, Scratch
from lcp_engine.features.replay.store.archive import Archive, PastEvent, PastJob, read_archive
from lcp_engine.features.replay.store.states_at import states_before
from lcp_engine.sandbox.root import Root
from lcp_engine.store.changes import missing_blobs
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.open import open_database
from lcp_engine.store.turns import MEMORIES
from lcp_engine.workers.ask_user import KIND as ASK_USER

DATABASE, ROOT = "replay.db", "root"
MOST_NAMED = 3
_STATE_CHANGES = frozenset(transition.event for transition in TRANSITIONS)


@dataclass(frozen=True)
class Replayed:
    """The result of a replay: how much was compared, and every difference. `stopped`: why it ended early."""

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


def replay(instance: Instance, mission_id: int, *, keep: Path | None = None) -> Replayed:
    """Run mission `mission_id` of `instance` again in a scratch directory: `keep` if given, else a temporary one.

    Replies, results and decisions come from the history. Only file changes are executed, under a scratch root with the
    files as they were before. Raises `NOT_FOUND`, `WRONG_STATE` for a mission that has not ended or whose history was
    pruned, `INVALID_ARGUMENT` for a `keep` that is not empty.
    """
    past = instance.database.read(lambda tx: read_archive(tx, mission_id))
    _check_whole(past, instance)
    with _directory(keep) as directory:
        clock = HistoryClock()
        database = open_database(f"sqlite:///{directory / DATABASE}", clock)
        try:
            there = replace(
                instance,
                database=database,
                admission=_admission_of(instance, past, directory / ROOT),
                stages=None,
            )
            with Root(str(directory / ROOT)) as root:
                stop = reenact(Scratch(there, past, root, instance.database), clock)
            now = database.read(lambda tx: read_archive(tx, 1))
        finally:
            database.close()
    return _compare(past, now, stop)


def _check_whole(past: Archive, instance: Instance) -> None:
    """Raise `WRONG_STATE` for a mission that cannot be replayed."""
    name = f"mission {past.id}"
    if past.status in ("running", "waiting"):
        _refuse(f"{name} is {past.status}; only missions that have ended can be replayed")
    unsettled = [job for job in past.jobs if job.state in (State.QUEUED, State.RUNNING)]
    if unsettled:
        _refuse(
            f"job {unsettled[0].id} of {name} is {unsettled[0].state}; it must be settled before a replay"
        )
    gone = instance.database.read(lambda tx: missing_blobs(tx, _needed(past)))
    if gone:
        more = f" and {len(gone) - MOST_NAMED} more" if len(gone) > MOST_NAMED else ""
        _refuse(f"{name} cannot be replayed: the contents {', '.join(gone[:MOST_NAMED])}{more} were pruned")
    pruned = [
        turn.number for turn in past.turns.values() if turn.replied_at is not None and turn.reply is None
    ]
    if pruned:
        _refuse(f"{name} cannot be replayed: the reply to question {pruned[0]} was pruned")


def _refuse(message: str) -> None:
    raise LcpError(ErrorCode.WRONG_STATE, message, advice=GENERAL)


def _needed(past: Archive) -> list[str]:
    """The hashes of the pre-images of each file's first change, and of changes after the file was changed elsewhere."""
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
def _directory(keep: Path | None) -> Iterator[Path]:
    """The directory of database and root."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="lcp-replay-") as temporary:
            directory = Path(temporary).resolve()
            (directory / ROOT).mkdir()
            yield directory
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            message = f"the directory {keep} is not empty; a replay needs an empty one"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        (keep / ROOT).mkdir()
    except OSError as error:
        message = f"the directory {keep} cannot be written: {error.strerror}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from error
    yield keep.resolve()


def _admission_of(instance: Instance, past: Archive, root: Path) -> Admission:
    """The rules of the instance, with the engine's own files moved from the root to the scratch root."""
    if past.root is None:
        return instance.admission
    files = [
        str(root / os.path.relpath(file, past.root))
        for file in instance.admission.engine_files
        if Path(file).is_relative_to(past.root)
    ]
    return replace(instance.admission, engine_files=tuple(files))


def _compare(past: Archive, now: Archive, stop: tuple[PastEvent, str] | None) -> Replayed:
    was, questions = _mission_of(past), len(past.turns)
    if stop is None:
        return Replayed(past.id, len(was.jobs), questions, tuple(compare(was, _mission_of(now))))
    event, why = stop
    # A replay that ends early is compared with the history up to that event.
    then = _mission_before(past, event.seq)
    found = [one for one in compare(then, _mission_of(now)) if not one.is_of_mission]
    found.append(Difference(event.job_id, f"event {event.seq}", "event", event.event, None))
    return Replayed(
        past.id, len(was.jobs), questions, tuple(found), f"it stops before event {event.seq}: {why}"
    )


def _mission_of(archive: Archive) -> ComparedMission:
    reasons = _reasons(archive.events)
    jobs = [_job(job, reasons) for job in archive.jobs]
    return ComparedMission(archive.status, archive.outcome, _turns(archive), jobs, _readings(archive))


def _mission_before(archive: Archive, seq: int) -> ComparedMission:
    """The mission before event `seq`; of a job that changed state later only its state before is known."""
    states = states_before(archive, seq)
    reasons = _reasons(archive.events)
    jobs = [
        _job(job, reasons)
        if states[job.id] == job.state and job.state in SETTLED
        else replace(_job(job, reasons), state=str(states[job.id]), is_final=False)
        for job in archive.jobs
        if job.id in states
    ]
    return ComparedMission(archive.status, archive.outcome, _turns(archive), jobs, _readings(archive))


def _turns(archive: Archive) -> int:
    return max((turn.turn for turn in archive.turns.values()), default=0)


def _readings(archive: Archive) -> dict[int, ComparedReading]:
    """Readings of the replies by question: the action, or `INVALID`; errors of a valid action do not count."""
    return {
        number: ComparedReading(turn.job_id, turn.action or INVALID)
        for number, turn in archive.turns.items()
        if turn.action is not None or turn.errors is not None
    }


def _reasons(events: Sequence[PastEvent]) -> dict[int | None, Reason | None]:
    """Why each job is in the state of its last transition."""
    return {event.job_id: recorded(event.data) for event in events if event.event in _STATE_CHANGES}


_ENGINE_TEXTS = ("notices", "user_prompt", "context", "question", "options")
"""Params that hold sentences of the engine, in jobs that it asks in its own name."""


def _params(job: PastJob) -> dict[str, JsonValue]:
    """The params without sentences of the engine: rewording one is not a difference (R23)."""
    params = from_json(job.params)
    is_asked_by_engine = job.role is Role.WORK and job.kind == ASK_USER and job.fingerprint is None
    if VERIFIES in params or (is_asked_by_engine and job.parent_id is not None):
        return {name: value for name, value in params.items() if name not in _ENGINE_TEXTS}
    if job.role is Role.WORK:
        return params
    return {name: value for name, value in params.items() if name not in ("notices", RESUMED, MEMORIES)}


def _job(job: PastJob, reasons: Mapping[int | None, Reason | None]) -> ComparedJob:
    error = None if job.error is None else from_json(job.error).get("error_code")
    return ComparedJob(
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
