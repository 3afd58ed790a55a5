"""Decide which requested jobs are admitted, by policy, permission and history, and store them (R3, R5, R11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os.path import normpath

from pydantic import BaseModel, JsonValue, ValidationError

from lcp_engine.core.decide import Evaluation, NewJob
from lcp_engine.core.job_states import Role, State
from lcp_engine.core.kinds import ON_FILES, TURN_PRIORITY, KindRole, kind_named
from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.paths.patterns import in_one_form
from lcp_engine.core.policy import STAGED, Move, Policy, Rule, Verdict
from lcp_engine.core.programs.commands import allows, as_entry
from lcp_engine.core.protocol.actions import CreateFollowupJobs, JobSpec, WriteFile
from lcp_engine.core.reasons import Reason, ReasonCode, because, stated
from lcp_engine.core.settings.feature_settings import FeatureSettings
from lcp_engine.core.summaries import nearest, subject
from lcp_engine.engine.failure import agent_error
from lcp_engine.engine.points import root_provider
from lcp_engine.errors import Code, ErrorCode, Failed, LcpError
from lcp_engine.planners.base import Kind
from lcp_engine.sandbox.paths import names_of
from lcp_engine.sandbox.system.own_places import beneath
from lcp_engine.store.changes import Brought, brought_after
from lcp_engine.store.db.json_text import fingerprint, from_json, to_json
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.ledger import Ledger, NewJobRow
from lcp_engine.store.people import Sight, rejection_before, see
from lcp_engine.store.queries.held_jobs import NO_PERSON
from lcp_engine.store.queue import live_jobs
from lcp_engine.store.row_types import JobRow, MissionRow, PlanRow
from lcp_engine.store.turns import equal_done, equal_jobs
from lcp_engine.workers.base import ExecutedBy, Permission, Worker, Workers
from lcp_engine.workers.params import ContentParams, FileParams, requested_paths

_SEEN = frozenset({State.SUCCEEDED, State.FAILED, State.REJECTED, State.HELD})
"""States of an equal job that make a request a repetition (R11)."""


@dataclass(frozen=True)
class Admission:
    """Decisions about jobs of any mission, by the installed workers, the user's rules, the engine's own files.

    Features find their `settings` in it.
    """

    workers: Workers
    user_rules: tuple[Rule, ...] = ()
    engine_files: tuple[str, ...] = ()
    settings: tuple[FeatureSettings, ...] = ()

    def policy(self, spec: MissionSpec, root: str | None) -> Policy:
        """The policy of a mission over `root`."""
        return _policy(
            spec.policy,
            self.user_rules,
            self.engine_files,
            root,
            spec.root_aliases,
            stage=root_provider().is_private(spec),
        )

    def policy_now(self, tx: Tx, mission_id: int, spec: MissionSpec, root: str | None) -> Policy:
        """The policy of a mission after all that its jobs have moved."""
        return self.followed(tx, mission_id, self.policy(spec, root), 0)[0]

    def followed(self, tx: Tx, mission_id: int, policy: Policy, change_id: int) -> tuple[Policy, int]:
        """`policy`, which is as it was after that change, as it is now, and the last change that counts."""
        if not policy.follows_moves:
            return policy, change_id
        found = brought_after(tx, mission_id, change_id)
        if not found:
            return policy, change_id
        return policy.following(self._moves(found)), found[-1].id

    def _moves(self, changes: Sequence[Brought]) -> Iterator[Move]:
        """From where each changed file may have its content: from those that its job removed, or names besides."""
        gone: dict[int, list[str]] = {}
        for one in changes:
            if one.is_gone:
                gone.setdefault(one.job_id, []).append(one.path)
        for one in (one for one in changes if not one.is_gone):
            worker = self.workers.get(one.kind)
            params = None if worker is None else params_of(worker, one.params)
            named = () if worker is None or params is None else worker.paths(params)
            yield from ((before, one.path) for before in (*named, *gone.get(one.job_id, ())))


@dataclass(frozen=True)
class Requested:
    """A requested job with its evaluation.

    `sight` is what it would change at that moment; `repeats` are equal jobs that were requested before (R11).
    """

    spec: JobSpec
    worker: Worker[BaseModel] | None
    params: BaseModel | None
    fingerprint: str
    evaluation: Evaluation
    sight: Sight | None = None
    repeats: frozenset[int] = frozenset()

    def anew(self) -> Requested:
        """The job, requested for the first time as far as R11 is concerned."""
        return replace(self, evaluation=replace(self.evaluation, is_repeated=False))


def evaluate_jobs(
    ledger: Ledger,
    admission: Admission,
    mission: MissionRow,
    depth: int,
    reply: CreateFollowupJobs | WriteFile,
) -> list[Requested]:
    """Evaluate the jobs that the reply to a turn at `depth` requests; nothing is stored."""
    requested = [
        _unresolved(admission, depth, job)
        if isinstance(reply, CreateFollowupJobs) and reply.is_unresolved(job)
        else _evaluate(ledger, admission, mission, depth, job)
        for job in reply.requested
    ]
    return [*_in_one_form(requested, mission.root, spec_of(mission.spec))]


def _in_one_form(requested: Sequence[Requested], root: str | None, spec: MissionSpec) -> Iterator[Requested]:
    """The jobs; one is denied that writes in a directory which an earlier one names in another Unicode form.

    Side by side they would make both. Of files the second one is refused when it runs, under the lock of the directory.
    """
    named: dict[str, str] = {}
    for one in requested:
        worker, params = one.worker, one.params
        paths = worker.paths(params) if worker is not None and params is not None and worker.writes else ()
        names = [name_of(path, root, spec)[1:] for path in paths if not path.isascii()]
        above = {name[:at] for name in names for at, character in enumerate(name) if character == "/"}
        twins = ((name, named.get(in_one_form(name), name)) for name in sorted(above))
        name, other = next(((name, other) for name, other in twins if name != other), ("", ""))
        if name and one.evaluation.verdict is not Verdict.DENY:
            reason = because(ReasonCode.TWO_FORMS, name=json.dumps(name), other=json.dumps(other))
            denied = replace(
                one.evaluation, verdict=Verdict.DENY, reason=reason, refusal=ErrorCode.PATH_EXISTS
            )
            yield replace(one, evaluation=denied)
            continue
        for name in above:
            named.setdefault(in_one_form(name), name)
        yield one


def _unresolved(admission: Admission, depth: int, job: JobSpec) -> Requested:
    worker = admission.workers[job.kind]
    depth_of = depth + 1 if worker.executed_by is ExecutedBy.PLANNER else depth
    return Requested(
        job, worker, None, fingerprint(job.kind, job.params), Evaluation(Verdict.AUTO, depth=depth_of)
    )


def refuse_step(ledger: Ledger, admission: Admission, job: JobRow) -> Failed | None:
    """Reason to refuse a step of a planner's plan, now that its references are resolved (R6, R11); else None."""
    assert job.fingerprint is not None
    mission, worker = ledger.mission(job.mission_id), admission.workers[job.kind]
    reason, code = _person_said_no(ledger, mission, job.fingerprint), ErrorCode.NOT_ALLOWED
    if reason is None and worker.executed_by is ExecutedBy.PERSON:
        reason = _person_answered(ledger, mission, job.fingerprint)
    if reason is None and worker.writes:
        needed = _reserved(worker, job)
        reason, code = too_many_bytes(ledger, admission, job, needed), ErrorCode.LIMIT_REACHED
    if reason is None:
        return None
    return Failed(code, f"job {job.id} ({job.kind}) is not allowed: {reason}", advice=reason.advice)


def too_many_bytes(ledger: Ledger, admission: Admission, job: JobRow, needed: int) -> Reason | None:
    """Reason why a job may not write so many bytes beside what other unsettled jobs would write; None if it may."""
    mission = ledger.mission(job.mission_id)
    most = spec_of(mission.spec).limits.max_bytes_written
    if most is None:
        return None
    left = most - mission.bytes_written - reserved_bytes(ledger, admission, mission, besides=job.id)
    if needed <= left:
        return None
    return because(ReasonCode.MAX_BYTES_WRITTEN, most=most, left=max(left, 0), needed=needed)


def store(
    ledger: Ledger, mission: MissionRow, plan: PlanRow, request: Requested, job: NewJob, *, asked: JobRow,
    waits_for: int | None = None, followers: int | None = None,
) -> int:  # fmt: skip
    """Store a job in the state that was decided; `asked` is the turn that requested it.

    A step `waits_for` so many jobs and has so many `followers`. Returns its id.
    """
    worker, role, state = request.worker, Role.WORK, job.state
    reason: Reason | str | None = ReasonCode.STEP_ORDER if state is State.BLOCKED else job.reason
    if worker is not None and worker.executed_by is ExecutedBy.PLANNER:
        role = Role.STEP if request.spec.params.get("scope") == "step" else Role.TURN
        if state is State.QUEUED and mission.asking is not None:
            state, reason = State.BLOCKED, ReasonCode.TURN_ORDER
    mission.requested += state is not State.REJECTED
    spec = spec_of(mission.spec)
    job_id = ledger.create(
        mission,
        NewJobRow(
            plan_id=plan.id,
            turn=asked.turn,
            parent_id=asked.id,
            name=request.spec.name,
            kind=request.spec.kind,
            params=to_json(request.spec.params),
            auto_dispatch=request.spec.auto_dispatch,
            role=role,
            state=state,
            reason=reason,
            priority=0 if role is Role.WORK else TURN_PRIORITY,
            depth=request.evaluation.depth,
            fingerprint=request.fingerprint,
            max_attempts=1 if worker is None else worker.under(spec.kinds.get(worker.kind)).max_attempts,
            error=None
            if job.refusal is None
            else agent_error(_failure(request.spec, job, job.refusal), mission.uid, ledger.tx.now),
            waits_for=waits_for,
            followers=followers,
            effect=effect_of(worker, request.params, request.fingerprint, mission.root, spec),
        ),
    )
    if role is not Role.WORK and state is State.QUEUED:
        mission.asking = job_id
    if state is State.HELD and request.sight is not None:
        stored = fingerprint(request.spec.kind, from_json(to_json(request.spec.params)))
        see(ledger.tx, job_id, NO_PERSON, replace(request.sight, fingerprint=stored))
    return job_id


def _failure(spec: JobSpec, job: NewJob, refusal: Code) -> Failed:
    about = subject({"name": spec.name, "params": spec.params})
    message = f"{f'{spec.kind} {about}'.strip()} is not allowed: {job.reason}"
    return Failed(refusal, message, advice=None if job.reason is None else job.reason.advice)


def effect_of(
    worker: Worker[BaseModel] | None, params: BaseModel | None, mark: str, root: str | None, spec: MissionSpec
) -> str | None:
    """Effect of a job: equal for jobs of which one makes the other good (R26); None without effects.

    The files, if its kind names any, else the fingerprint `mark`. A kind without a worker counts as one with effects;
    one that runs a command has none that lasts.
    """
    if worker is not None and (not worker.has_effects or worker.command is not None):
        return None
    paths = () if worker is None or params is None else worker.paths(params)
    if not paths:
        return mark
    return "\n".join(sorted({name_of(path, root, spec) for path in paths}))


def reserved_bytes(
    ledger: Ledger, admission: Admission, mission: MissionRow, *, besides: int | None = None
) -> int:
    """Bytes that unsettled jobs, `besides` one, would write: they count for `max_bytes_written` as if written."""
    return sum(
        _reserved(admission.workers.get(job.kind), job)
        for job in live_jobs(ledger, mission)
        if job.role is Role.WORK and job.id != besides
    )


def _reserved(worker: Worker[BaseModel] | None, job: JobRow) -> int:
    params = None if worker is None else params_of(worker, from_json(job.params))
    return 0 if worker is None or params is None else worker.written_bytes(params)


@lru_cache(maxsize=256)
def _policy(
    rules: tuple[Rule, ...], user_rules: tuple[Rule, ...], files: tuple[str, ...], root: str | None,
    aliases: tuple[str, ...], *, stage: bool,
) -> Policy:  # fmt: skip
    if root is None:
        return Policy(rules, user_rules, stage=stage)
    inner, relative = beneath(files, root), names_of((root,), aliases).relative
    return Policy(rules, user_rules, relative=relative, engine_paths=inner, stage=stage)


def _evaluate(
    ledger: Ledger, admission: Admission, mission: MissionRow, depth: int, job: JobSpec
) -> Requested:
    worker = admission.workers.get(job.kind)
    params = None if worker is None else params_of(worker, job.params)
    spec = spec_of(mission.spec)
    mark = fingerprint(job.kind, job.params if params is None else canonical(params, mission.root, spec))
    equal = equal_jobs(ledger.tx, mission.id, mark, mission.changed_seq)
    repeats = frozenset(job_id for job_id, state in equal.items() if state in _SEEN)
    seen = bool(repeats)
    twin = State.HELD in equal.values()
    refusal: Code = ErrorCode.NO_WORKER
    verdict, reason = Verdict.HOLD, stated(ReasonCode.NO_WORKER)
    depth_of, written = depth, 0
    if worker is not None and params is not None:
        policy = admission.policy(spec, mission.root)
        if not worker.writes:
            policy = admission.policy_now(ledger.tx, mission.id, spec, mission.root)
        verdict, reason, refusal = ruling_on(policy, worker, params, spec)
        depth_of = depth + 1 if worker.executed_by is ExecutedBy.PLANNER else depth
        written = worker.written_bytes(params)
        job = job.model_copy(update={"params": worker.normal(job.params, params)})
    else:
        worker = params = None
    no = _person_said_no(ledger, mission, mark)
    if (
        no is None
        and worker is not None
        and worker.executed_by is ExecutedBy.PERSON
        and State.SUCCEEDED in equal.values()
    ):
        no = _person_answered(ledger, mission, mark)
    if no is not None and verdict is not Verdict.DENY:
        verdict, reason, refusal, seen = Verdict.DENY, no, ErrorCode.NOT_ALLOWED, True
    evaluation = Evaluation(
        verdict,
        reason,
        refusal,
        is_repeated=seen,
        is_held_already=twin,
        key=mark,
        depth=depth_of,
        written_bytes=written,
    )
    return Requested(job, worker, params, mark, evaluation, repeats=repeats)


def _person_said_no(ledger: Ledger, mission: MissionRow, mark: str) -> Reason | None:
    """Reason why a job is refused that equals one a person has rejected; None if there is none."""
    if mission.rejected == 0:
        return None
    ledger.write_events()
    before = rejection_before(ledger.tx, mission.id, mark)
    return None if before is None else because(ReasonCode.REJECTED_BEFORE, job=before[0], words=before[1])


def _person_answered(ledger: Ledger, mission: MissionRow, mark: str) -> Reason | None:
    """Reason to refuse a question that equals one a person has answered, with no file changed since: the answer."""
    before = equal_done(ledger.tx, mission.id, mark, mission.changed_seq)
    stored = None if before is None else ledger.result(before)
    if stored is None:
        return None
    result = from_json(stored)
    return because(ReasonCode.ANSWERED_BEFORE, job=before, by=result.get("by"), answer=result.get("answer"))


def ruling_on(
    policy: Policy, worker: Worker[BaseModel], params: BaseModel, spec: MissionSpec
) -> tuple[Verdict, Reason, Code]:
    """The strictest of policy and the kind's permission level (R5)."""
    ruling = policy.judge(
        worker.named, has_effects=worker.has_effects, writes=worker.writes, paths=worker.paths(params)
    )
    if ruling.verdict is Verdict.DENY:
        return ruling.verdict, ruling.reason, ErrorCode.PATH_DENIED
    if worker.command is not None and not allows(spec.commands.allow, command := worker.command(params)):
        return Verdict.DENY, because(ReasonCode.COMMAND, entry=as_entry(command)), ErrorCode.NOT_ALLOWED
    by_kind = permission_ruling(worker, spec)
    if by_kind is not None:
        return *by_kind, ErrorCode.NOT_ALLOWED
    if root_provider().is_private(spec) and worker.command is not None and ruling.verdict is Verdict.HOLD:
        ruling = STAGED  # it sees a copy of the stage
    return ruling.verdict, ruling.reason, ErrorCode.PATH_DENIED


def with_known_kinds(spec: MissionSpec, workers: Workers, *, source: str = "mission") -> MissionSpec:
    """The mission, with the kinds of its rules and settings under their own names where it names the ids of tools.

    Raises `INVALID_MISSION` for settings of a kind whose jobs nothing here executes; `source` names the mission.
    """
    named: dict[str, str] = {}
    for key in spec.kinds:
        kind = kind_named(key, workers)
        worker = workers.get(kind)
        if worker is None:
            timed = [name for name, one in workers.items() if one.executed_by is not ExecutedBy.PERSON]
            message = f"{source}: kinds.{key}: no worker executes this kind; {nearest(key, timed)}"
            advice = "Correct the name, or name the file with this kind: --workers FILE."
            raise LcpError(ErrorCode.INVALID_MISSION, message, advice=advice)
        if worker.executed_by is ExecutedBy.PERSON:
            message = f"{source}: kinds.{key}: a person answers its jobs, so they have no attempts"
            advice = "Leave it out; hold_timeout limits how long such a job waits."
            raise LcpError(ErrorCode.INVALID_MISSION, message, advice=advice)
        if kind in named:
            message = f"{source}: kinds.{key}: this is the kind {kind}, as is kinds.{named[kind]}"
            raise LcpError(ErrorCode.INVALID_MISSION, message, advice="State its settings once.")
        named[kind] = key
    settings = {kind: spec.kinds[key] for kind, key in named.items()}
    known = {"policy": with_kinds(spec.policy, workers), "kinds": settings}
    return spec.model_copy(update={key: value for key, value in known.items() if value})


def with_kinds(rules: Iterable[Rule], workers: Workers) -> tuple[Rule, ...]:
    """Rules with kinds under their own names where they name the ids of tools: nothing else is looked up."""
    return tuple(
        rule.model_copy(update={"kinds": tuple(kind_named(kind, workers) for kind in rule.kinds)})
        for rule in rules
    )


def permission_ruling(worker: Worker[BaseModel], spec: MissionSpec) -> tuple[Verdict, Reason] | None:
    """Ruling of the kind's permission level on a job that policy would run; None if it changes nothing."""
    if worker.executed_by is ExecutedBy.PERSON:
        return Verdict.HOLD, because(ReasonCode.QUESTION)
    match worker.permission:
        case Permission.ADMIN if not spec.allow_admin:
            return Verdict.DENY, because(ReasonCode.ADMIN_NOT_ALLOWED, kind=worker.kind)
        case Permission.ADMIN | Permission.SYSTEM:
            level = worker.permission.value
            return Verdict.HOLD, because(ReasonCode.ALWAYS_HELD, kind=worker.kind, level=level)
        case _:
            return None


def params_of(worker: Worker[BaseModel], params: Mapping[str, JsonValue]) -> BaseModel | None:
    """The params; None if the worker does not accept them (its kind was unknown when the reply was read)."""
    try:
        return worker.params.model_validate(
            {key: value for key, value in params.items() if value is not None}
        )
    except ValidationError:
        return None


def canonical(params: BaseModel, root: str | None, spec: MissionSpec) -> dict[str, JsonValue]:
    """The params as equal requests share them (R11), however they spell the file and whatever they call its text."""
    plain: dict[str, JsonValue] = params.model_dump(mode="json", exclude_none=True)
    if isinstance(params, ContentParams):
        plain = {**plain, "content": params.text, "new_content": None}
    if isinstance(params, FileParams):
        (path,) = requested_paths(params)
        plain = {**plain, "root": None, "rel_path": None, "path": name_of(path, root, spec)}
    return plain


def name_of(path: str, root: str | None, spec: MissionSpec) -> str:
    """One name for every spelling of a path of a mission over `root`, beginning with `/` at the root."""
    return normpath(f"/{names_of(() if root is None else (root,), spec.root_aliases).relative(path)}")


def allowed_kinds(admission: Admission, spec: MissionSpec, root: str | None) -> tuple[Kind, ...]:
    """The kinds that policy does not deny on every path; a rule about paths may still hold or deny a job."""
    policy = admission.policy(spec, root)
    kinds: list[Kind] = []
    for worker in admission.workers.values():
        verdict = policy.judge(worker.named, has_effects=worker.has_effects, writes=worker.writes).verdict
        if verdict is Verdict.DENY and (worker.writes or worker.role in ON_FILES):
            verdict = policy.mildest(worker.named, has_effects=worker.has_effects).verdict
        is_refused = worker.permission is Permission.ADMIN and not spec.allow_admin
        if verdict is Verdict.DENY or is_refused or (worker.command is not None and not spec.commands.allow):
            continue
        if not worker.is_offered(spec):
            continue
        is_held = (
            verdict is Verdict.HOLD
            or worker.permission is not Permission.USER
            or worker.executed_by is ExecutedBy.PERSON
        )
        kind = kind_of(worker, is_held=is_held)
        if worker.in_mission is not None:
            kind = replace(kind, description=f"{kind.description} {worker.in_mission(spec)}")
        kinds.append(kind)
    return tuple(kinds)


def kind_of(worker: Worker[BaseModel], *, is_held: bool) -> Kind:
    """A worker's kind as planners see it."""
    return Kind(
        name=worker.kind,
        description=worker.description,
        params=worker.params,
        is_held=is_held,
        role=worker.role,
        shows=worker.shows,
        example=worker.examples[0].params if worker.examples else None,
        included_in=worker.included_in,
        brief_params=worker.brief_params,
    )


def writable(admission: Admission, spec: MissionSpec, root: str | None) -> Mapping[str, Sequence[str]]:
    """The files that each kind may write, if policy lists them one by one; other kinds may write any."""
    policy = admission.policy(spec, root)
    named = {
        kind: policy.only_files(worker.named, has_effects=worker.has_effects, writes=True)
        for kind, worker in admission.workers.items()
        if worker.writes
    }
    return {kind: files for kind, files in named.items() if files is not None}


def may_read(admission: Admission, spec: MissionSpec, root: str | None) -> Callable[[str], bool]:
    """Returns whether some kind that reads files may read a path."""
    readers = [worker for worker in admission.workers.values() if worker.role is KindRole.READS]
    allowed = [worker.allowed_paths(admission.policy(spec, root)) for worker in readers]
    return lambda path: any(may(path) for may in allowed)
