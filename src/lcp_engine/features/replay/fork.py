"""Start a new mission from a turn or a step of another one, and list what has changed in the root since."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue, ValidationError

from lcp_engine.changes.recovery import APPLIED
from lcp_engine.core.job_states import START, Role, State
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.limits.terms import terms_of
from lcp_engine.core.mission.spec import MissionSpec, PlannerSpec, expected_result, spec_of
from lcp_engine.core.summaries import nearest
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.progress import refresh
from lcp_engine.engine.question import keep_reply, new_question
from lcp_engine.engine.turn_queue import acting_plan
from lcp_engine.errors import GENERAL, ErrorCode, Failed, LcpError
from lcp_engine.features.replay.reenact import rules_at
from lcp_engine.features.replay.store.archive import Archive, PastEvent, PastJob, PastTurn, read_archive
from lcp_engine.features.replay.store.copy_mission import Copied, copy_until
from lcp_engine.features.replay.store.states_at import JobHistory, jobs_before, states_before
from lcp_engine.planners.registry import make_planner
from lcp_engine.planners.simple import check_script
from lcp_engine.sandbox.file_access import confined_threads
from lcp_engine.sandbox.paths import names_of
from lcp_engine.sandbox.reading.read_text import read_bytes
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import RootIdentity, open_known
from lcp_engine.sandbox.system.landlock import load_late
from lcp_engine.store.changes import sha256
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.queries.mission_spec import changed_root
from lcp_engine.store.row_types import ChangeRow
from lcp_engine.store.turns import MEMORIES, StoredReply, keep_memories
from lcp_engine.workers.base import Context, ExecutedBy, params_of

MOST_LISTED = 100
"""Changed paths that the event `forked` lists."""

MOST_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Forked:
    """The new mission's id, and what has changed in the root. What `unknown` jobs saw cannot be compared."""

    id: int
    changed: tuple[Drift, ...]
    unknown: tuple[int, ...]

    def as_json(self) -> dict[str, JsonValue]:
        return {
            "id": self.id,
            "changed": [drift.as_json() for drift in self.changed],
            "unknown": list(self.unknown),
        }


def fork(
    instance: Instance,
    mission_id: int,
    at: int | str,
    *,
    reply: str | None,
    planner: PlannerSpec | None,
    by: str,
) -> Forked:
    """Queue a new mission with the history of mission `mission_id` up to `at`: the question of a turn, or a step.

    It works on the root as it is now. A turn is answered by `reply`, else by `planner`, else by the mission's own
    planner; a step is named by its id or by its job, as text. Raises `NOT_FOUND`, `WRONG_STATE` for a mission without a
    planner and a step that has not begun, `NO_PLANNER`, `PATH_NOT_FOUND` for a root that is gone.
    """
    past = instance.database.read(lambda tx: read_archive(tx, mission_id))
    point, _ = _find_point(past, at)
    spec = spec_of(past.spec)
    spec = spec.model_copy(update={"policy": rules_at(past, point.seq)})
    # Its root is as it is now, with what the jobs of the mission have moved.
    moved = instance.read(instance.admission.policy_now, mission_id, spec, past.root).kept_by_rules()
    spec = spec.model_copy(
        update={"policy": (*(one for one in moved if one not in spec.policy), *spec.policy)}
    )
    if planner is not None:
        spec = spec.model_copy(update={"planner": planner})
    made = make_planner(spec.planner, instance.planner_environment)
    if planner is not None:
        check_script(
            made, planner, params_of(instance.admission.workers), expected_result(spec), source="planner"
        )
    known = instance.database.read(partial(changed_root, mission_id=mission_id))
    assert known is not None
    with open_known(known) as root:
        identity = RootIdentity.of(root.descriptor)
        histories = jobs_before(past, point)
        load_late()
        changed, unknown = confined_threads(instance.isolation).read(
            root, lambda: find_drift(instance, past, histories, root)
        )

    noted: dict[str, JsonValue] = {
        "by": by,
        "mission": mission_id,
        "turn" if isinstance(at, int) else "step": at,
    }
    noted["changed"] = [drift.path for drift in changed[:MOST_LISTED]]

    def work(ledger: Ledger) -> int:
        branch = _store(ledger, mission_id, at, spec, identity)
        return _begin(ledger, branch, reply, noted, has_changed=bool(changed))

    return Forked(instance.write(work), changed, unknown)


def _find_point(past: Archive, at: int | str) -> tuple[PastEvent, PastTurn | None]:
    """The event before which a fork begins, and the question that it asks again, if that is one."""
    return _find_turn(past, at) if isinstance(at, int) else (_find_step(past, at), None)


def _find_step(past: Archive, name: str) -> PastEvent:
    """The first start of a step, by its id or its job. Raises `NOT_FOUND`, `WRONG_STATE`."""
    steps = [(terms_of(job.terms).step, job) for job in past.jobs if job.terms is not None]
    found = [job for step, job in steps if name in (step, str(job.id))]
    if not found:
        known = nearest(name, [step for step, _ in steps]) if steps else "it has no plan"
        raise LcpError(ErrorCode.NOT_FOUND, f"mission {past.id} has no step {name}; {known}")
    if len(found) > 1:
        jobs = ", ".join(str(job.id) for job in found)
        fact = f"{name} is a step of {len(found)} plans of mission {past.id}: jobs {jobs}"
        raise LcpError(ErrorCode.WRONG_STATE, fact, advice="Name the step by its job.")
    job = found[0]
    started = (event for event in past.events if event.event == START.event and event.job_id == job.id)
    point = next(started, None)
    if point is None:
        fact = f"{name} of mission {past.id} has not begun; it is {job.state}"
        raise LcpError(ErrorCode.WRONG_STATE, fact, advice="Fork a step that has begun.")
    _check_not_held(past, point)
    return point


def _check_not_held(past: Archive, point: PastEvent) -> None:
    """Raise `WRONG_STATE` if a person was to reply to a turn when the step began: that reply may be another one."""
    held = {job_id for job_id, state in states_before(past, point.seq).items() if state is State.HELD}
    turns = [turn for turn in past.turns.values() if turn.job_id in held]
    asked = [
        event.data.get("question")
        for event in past.events
        if event.seq < point.seq and event.event == "asked"
    ]
    open_ = next((turn for turn in turns if turn.number in asked), None)
    if open_ is not None:
        fact = f"turn {open_.turn} of mission {past.id} waited for a person's reply when that step began"
        advice = f"Fork that turn (`lcp fork {past.id} --turn {open_.turn}`)."
        raise LcpError(ErrorCode.WRONG_STATE, fact, advice=advice)


def _find_turn(past: Archive, turn: int) -> tuple[PastEvent, PastTurn]:
    """The first question of a turn, and its event. Raises `WRONG_STATE`, `NOT_FOUND`."""
    if past.root is None or not past.turns:
        fact = "has no planner" if past.root is None else "has not asked its first question"
        can = "--step forks at a step of its plan" if past.plans else "only a turn can be forked"
        raise LcpError(ErrorCode.WRONG_STATE, f"mission {past.id} {fact}; {can}", advice=GENERAL)
    question = next((one for one in past.turns.values() if one.turn == turn), None)
    number = None if question is None else question.number
    found = (
        event for event in past.events if event.event == "asked" and event.data.get("question") == number
    )
    asked = next(found, None)
    if question is None or asked is None:
        last = max(one.turn for one in past.turns.values())
        raise LcpError(
            ErrorCode.NOT_FOUND, f"mission {past.id} has no turn {turn}; its turns are 1 to {last}"
        )
    return asked, question


def _store(
    ledger: Ledger, mission_id: int, at: int | str, spec: MissionSpec, identity: RootIdentity
) -> Copied:
    ledger.lock([mission_id])
    ledger.write_results()
    past = read_archive(ledger.tx, mission_id)
    point, question = _find_point(past, at)
    stated = spec.model_dump_json(by_alias=True)
    histories = jobs_before(past, point)
    return copy_until(
        ledger.tx, past, question, point, histories, spec=stated, planner=spec.planner.type,
        root_identity=identity.text,
    )  # fmt: skip


def _begin(
    ledger: Ledger, copied: Copied, reply: str | None, noted: dict[str, JsonValue], *, has_changed: bool
) -> int:
    mission = ledger.mission(copied.mission_id)
    if has_changed:
        # A file may be read again because it has changed: that is not a repetition (R11).
        mission.changed_seq = mission.events + 1
    used: dict[str, JsonValue] = {
        "changed_seq": mission.changed_seq,
        "bytes_written": mission.bytes_written,
    }
    ledger.note(mission, "forked", None, {**noted, **used})
    if reply is not None:
        _answer(ledger, copied.job_id, reply)
    refresh(ledger, mission)
    ledger.tx.made_ready = True
    return mission.id


def _answer(ledger: Ledger, job_id: int, reply: str) -> None:
    """Store the reply in advance; the attempt that takes the turn finds it and uses it (R21)."""
    job = ledger.job(job_id)
    mission, plan = ledger.mission(job.mission_id), acting_plan(ledger, job)
    params = from_json(job.params)
    asked = new_question(ledger, job, mission, plan, params)
    if asked is None:
        raise LcpError(
            ErrorCode.LIMIT_REACHED,
            "a limit of the mission is reached; the turn cannot be asked",
            advice="Fork an earlier turn, or with higher limits.",
        )
    if isinstance(chosen := params.get(MEMORIES), str):
        keep_memories(ledger.tx, mission.id, asked.number, chosen)  # a correction of the reply sees them too
    keep_reply(ledger, asked, StoredReply(reply, None, None, None, 0.0))


@dataclass(frozen=True)
class Drift:
    """A file that has changed since a job read, listed or wrote it. `path` is relative to the root."""

    path: str
    now: str
    job: int
    kind: str

    def __str__(self) -> str:
        """The change as a sentence."""
        return f"{self.path} is {self.now} since job {self.job} ({self.kind})"

    def as_json(self) -> dict[str, JsonValue]:
        return {"path": self.path, "now": self.now, "job": self.job, "kind": self.kind}


def find_drift(
    instance: Instance, past: Archive, histories: Mapping[int, JobHistory], root: Root
) -> tuple[tuple[Drift, ...], tuple[int, ...]]:
    """The files that have changed since the succeeded jobs, and the jobs whose results cannot be compared.

    If several jobs used a path, the last one counts.
    """
    known: dict[str, tuple[PastJob, ChangeRow | None]] = {}
    unknown: list[int] = []
    succeeded = [
        job for job in past.jobs if job.id in histories and histories[job.id].state is State.SUCCEEDED
    ]
    for job in sorted(succeeded, key=lambda job: histories[job.id].last.seq):
        changes = [change for change in past.changes if change.job_id == job.id and change.state == APPLIED]
        known |= {change.path: (job, change) for change in changes}
        if _role(instance, job) in (KindRole.READS, KindRole.LISTS):
            known[_path_of(instance, past, root, job)] = (job, None)
        elif job.role is Role.WORK and not changes and not _sees_no_file(instance, job):
            unknown.append(job.id)
    found: list[Drift] = []
    for path, (job, change) in sorted(known.items(), key=lambda one: one[0]):
        if change is not None:
            found += _compare_content(path, job, change.sha256_after, root)
        else:
            found += _compare_result(instance, past, path, job, root)
    listed = {drift.path: drift for drift in reversed(found)}
    return tuple(listed[path] for path in sorted(listed)), tuple(unknown)


def _sees_no_file(instance: Instance, job: PastJob) -> bool:
    """True if its result comes from a person, or from a job before it."""
    worker = instance.admission.workers.get(job.kind)
    if worker is None:
        return False
    return worker.executed_by is ExecutedBy.PERSON or worker.role is KindRole.RECALLS


def _role(instance: Instance, job: PastJob) -> KindRole:
    """What its kind is for, if the job can be executed again without any effect; otherwise `OTHER`."""
    worker = instance.admission.workers.get(job.kind)
    is_repeatable = worker is not None and worker.confined is not None and not worker.has_effects
    return worker.role if worker is not None and is_repeatable else KindRole.OTHER


def _path_of(instance: Instance, past: Archive, root: Root, job: PastJob) -> str:
    """The path of the file that was read; the params of a listing."""
    params = from_json(job.params)
    if _role(instance, job) is KindRole.LISTS:
        return f"{job.kind} {job.params}"
    given = {
        name: value if isinstance(value := params.get(name), str) else None
        for name in ("root", "rel_path", "path")
    }
    return names_of(root.spellings, spec_of(past.spec).root_aliases).place(**given).path


def _compare_content(path: str, job: PastJob, sha: str | None, root: Root) -> Iterator[Drift]:
    try:
        if path.endswith("/"):
            yield from _compare_directory(path, job, sha, root)
            return
        opened = root.open_file(path)
        try:
            data = read_bytes(opened.descriptor, opened.size, MOST_BYTES, path)
        finally:
            os.close(opened.descriptor)
    except LcpError as error:
        if sha is not None or error.code is not ErrorCode.PATH_NOT_FOUND:
            yield Drift(path, _words(error.failed), job.id, job.kind)
        return
    if sha256(data) != sha:
        yield Drift(path, "new" if sha is None else "changed", job.id, job.kind)


def _compare_directory(path: str, job: PastJob, sha: str | None, root: Root) -> Iterator[Drift]:
    try:
        os.close(root.open_directory(path.removesuffix("/")))
    except OSError:
        if sha is not None:
            yield Drift(path, "gone", job.id, job.kind)
    else:
        if sha is None:
            yield Drift(path, "new", job.id, job.kind)


def _compare_result(
    instance: Instance, past: Archive, path: str, job: PastJob, root: Root
) -> Iterator[Drift]:
    """Execute the job again, which changes nothing, and compare the results."""
    before, now = from_json(job.result or "{}"), _result(instance, past, job, root)
    if isinstance(now, Failed):
        is_file = _role(instance, job) is KindRole.READS
        yield Drift(path if is_file else ".", _words(now), job.id, job.kind)
    elif _role(instance, job) is KindRole.LISTS:
        base = str(from_json(job.params).get("root") or ".").removeprefix(past.root or "").strip("/")
        prefix = "" if base in ("", ".") else f"{base}/"
        then, there = _files(before), _files(now)
        yield from (Drift(f"{prefix}{name}", "new", job.id, job.kind) for name in sorted(there - then))
        yield from (Drift(f"{prefix}{name}", "gone", job.id, job.kind) for name in sorted(then - there))
    elif before != now:
        yield Drift(path, "changed", job.id, job.kind)


def _result(instance: Instance, past: Archive, job: PastJob, root: Root) -> JsonObject | Failed:
    worker, spec = instance.admission.workers[job.kind], spec_of(past.spec)
    judge = instance.admission.policy(spec, root.path).for_kind(worker.named, has_effects=False, writes=False)
    context = Context(root, spec.root_aliases, judge, instance.caps, approved=True)
    try:
        outcome = worker.execute(worker.params.model_validate(from_json(job.params)), context)
    except ValidationError as error:
        return Failed(ErrorCode.INVALID_PARAMS, str(error))
    if isinstance(outcome, worker.result):
        dumped: JsonObject = outcome.model_dump(mode="json")
        return dumped
    return (
        outcome
        if isinstance(outcome, Failed)
        else Failed(ErrorCode.NOT_ALLOWED, "policy does not allow it", advice=GENERAL)
    )


def _files(result: JsonObject) -> set[str]:
    files = result.get("files")
    return {str(name) for name in files} if isinstance(files, list) else set()


def _words(failed: Failed) -> str:
    return "gone" if failed.code is ErrorCode.PATH_NOT_FOUND else f"not readable ({failed.code})"
