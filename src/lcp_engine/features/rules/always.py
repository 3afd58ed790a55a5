"""Rules that people add while a mission runs, so that jobs like a held one need no approval (R5, approvals.md)."""

from __future__ import annotations

from collections.abc import Sequence
from posixpath import dirname

from pydantic import BaseModel, JsonValue

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.paths.patterns import literal
from lcp_engine.core.policy import Rule, Verdict
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.engine.admission import Admission, name_of, permission_ruling, ruling_on, with_kinds
from lcp_engine.engine.people.approvals import approve, consent_to, worker_of
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.ledger import Ledger
from lcp_engine.store.people import Sight
from lcp_engine.store.row_types import JobRow, MissionRow
from lcp_engine.workers.base import ExecutedBy, Worker

RULES_CHANGED = "rules_changed"
"""The event: `by`, `added` or `removed`, the `rules` of the mission from then on, and those `before`."""


def rules_for(
    worker: Worker[BaseModel], params: BaseModel, root: str | None, spec: MissionSpec
) -> list[Rule]:
    """The rules that would let jobs like this one run, the narrowest first: its own paths, then their directory.

    A job that names no path has one: all jobs of its kind. None for a kind whose jobs only a person may let run.
    """
    if not worker.may_have_rule:
        return []
    named = [name_of(path, root, spec) for path in worker.paths(params)]
    choices = [tuple(map(literal, named)) if named else None]
    directories = {dirname(name) for name in named}
    if len(directories) == 1 and "/" not in directories:
        choices.append(tuple(f"{literal(directory)}/" for directory in directories))
    return [Rule(kinds=(worker.kind,), paths=paths, do=Verdict.AUTO) for paths in choices]


def approve_always(
    ledger: Ledger, admission: Admission, job_id: int, rule: Rule, *,
    by: str, now: Sight | None, shown: Sight | None = None,
) -> bool:  # fmt: skip
    """Approve a job like `approve`, and add to its mission a rule that lets jobs like it run; False if it has it.

    The rule comes after all others of the mission that leave it its effect, so that it lifts no denial before it.
    Raises like `approve`; `NOT_ALLOWED` for a job that a rule cannot let run: of a kind that always waits for a person,
    or one that needs the approvals of several; `WRONG_STATE` for a rule that does not let the job run.
    """
    approve(ledger, admission, job_id, by=by, now=now, shown=shown)
    (rule,) = with_kinds([rule], admission.workers)
    job = ledger.job(job_id)
    mission = ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    worker = worker_of(admission.workers, job)
    params = worker.read(from_json(job.params), f"job {job.id}")
    _check_can(ledger, admission, worker, job, params)
    if rule in spec.policy:
        return False
    rules = _placed(ledger, admission, job, worker, params, rule=rule)
    _change(ledger, mission, rules, {"by": by, "added": rule.as_json()}, job.id)
    return True


def remove_rule(ledger: Ledger, mission_id: int, number: int, *, by: str) -> Rule:
    """Take rule `number` (from 1) of a mission out, so that such jobs wait again; those requested before stay.

    Raises `NOT_FOUND` for a number that no rule has, `WRONG_STATE` for a rule that holds or denies.
    """
    mission = ledger.mission(mission_id)
    spec = spec_of(mission.spec)
    if not 1 <= number <= len(spec.policy):
        has = f"its rules are 1 to {len(spec.policy)}" if spec.policy else "it has none of its own"
        raise LcpError(ErrorCode.NOT_FOUND, f"mission {mission_id} has no rule {number}; {has}")
    rule = spec.policy[number - 1]
    if rule.do is not Verdict.AUTO:
        message = (
            f"rule {number} of mission {mission_id} says {rule.do}; only a rule that says auto can be removed"
        )
        raise LcpError(ErrorCode.WRONG_STATE, message, advice="A held job is approved: `lcp approve J`.")
    rules = (*spec.policy[: number - 1], *spec.policy[number:])
    _change(ledger, mission, rules, {"by": by, "removed": rule.as_json()}, None)
    return rule


def set_rules(
    ledger: Ledger, mission_id: int, rules: Sequence[Rule], about: JsonObject, job_id: int | None
) -> None:
    """Give a mission the rules that it got before, when its past is repeated."""
    mission = ledger.mission(mission_id)
    said = {name: value for name, value in about.items() if name not in ("rules", "before")}
    _change(ledger, mission, tuple(rules), said, job_id)


def _check_can(
    ledger: Ledger, admission: Admission, worker: Worker[BaseModel], job: JobRow, params: BaseModel
) -> None:
    """Raise `NOT_ALLOWED` for a job that no rule of one person may let run."""
    mission = ledger.mission(job.mission_id)
    if worker.command is not None:
        fact = "a rule does not tell one command from another"
    elif worker.executed_by is not ExecutedBy.RUNNER:
        fact = "a person decides each of its jobs"
    elif not consent_to(ledger, admission, worker, job, params).is_usual:
        fact = "a rule asks for others than one person to approve it"
    elif (always := permission_ruling(worker, spec_of(mission.spec))) is not None:
        fact = str(always[1])
    else:
        return
    message = f"no rule can let jobs like job {job.id} ({job.kind}) run: {fact}"
    raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=f"Approve it alone: `lcp approve {job.id}`.")


def _placed(
    ledger: Ledger, admission: Admission, job: JobRow, worker: Worker[BaseModel], params: BaseModel, *, rule: Rule
) -> tuple[Rule, ...]:  # fmt: skip
    """The mission's rules with `rule` as far behind as it lets the job run. Raises `WRONG_STATE` if nowhere."""
    mission = ledger.mission(job.mission_id)
    spec = spec_of(mission.spec)
    alone = admission.policy(spec.model_copy(update={"policy": (rule,)}), mission.root)
    _, reason, _ = ruling_on(alone, worker, params, spec)
    is_about_it = reason.code is ReasonCode.RULE and reason.data.get("origin") == "mission"
    for place in range(len(spec.policy), -1, -1) if is_about_it else ():
        rules = (*spec.policy[:place], rule, *spec.policy[place:])
        there = spec.model_copy(update={"policy": rules})
        policy = admission.policy_now(ledger.tx, mission.id, there, mission.root)
        verdict, reason, _ = ruling_on(policy, worker, params, there)
        if verdict is Verdict.AUTO:
            return rules
    message = f"the rule {rule} would not let {worker.kind} jobs like this one run: {reason}"
    raise LcpError(
        ErrorCode.WRONG_STATE, message, advice="State the paths of the job, or a directory above them."
    )


def _change(
    ledger: Ledger, mission: MissionRow, rules: tuple[Rule, ...], about: JsonObject, job_id: int | None
) -> None:
    spec = spec_of(mission.spec)
    mission.spec = spec.model_copy(update={"policy": rules}).model_dump_json(by_alias=True)
    now: list[JsonValue] = [rule.as_json() for rule in rules]
    before: list[JsonValue] = [rule.as_json() for rule in spec.policy]
    ledger.note(mission, RULES_CHANGED, job_id, {**about, "rules": now, "before": before})
