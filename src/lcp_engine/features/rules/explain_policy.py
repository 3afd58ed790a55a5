"""Explain which rule decides about a job (R5, R6)."""

from __future__ import annotations

from dataclasses import asdict

from pydantic import BaseModel, JsonValue

from lcp_engine.core.mission.spec import MissionSpec, spec_of
from lcp_engine.core.policy import Explained, Policy, Verdict
from lcp_engine.core.reasons import ReasonCode
from lcp_engine.engine.admission import Admission, params_of, permission_ruling
from lcp_engine.errors import ErrorCode
from lcp_engine.feature import installed
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.workers.base import Worker

_ORDER = [Verdict.AUTO, Verdict.HOLD, Verdict.DENY]


def explain_job(
    admission: Admission, policy: Policy, job: JsonObject, spec_text: str, held_for: ReasonCode | None
) -> JsonObject:
    """Explain how today's rules decide about a job: the `rules` for each path, the `gates`, the strictest `verdict`.

    `policy` is its mission's as it is now, `job` the job's JSON object, `held_for` the code for which it was held last.
    Its limits are those that applied when it was requested.
    """
    spec, kind = spec_of(spec_text), str(job["kind"])
    worker = admission.workers.get(kind)
    explained = [] if worker is None else _explained(policy, worker, job)
    gates = [*_policy(explained), *_kind(kind, worker, spec), _planner(job), _limits(job, held_for)]
    deciding = max(gates, key=lambda gate: _ORDER.index(Verdict(str(gate["verdict"]))))
    return {
        "job_id": job["id"],
        "kind": kind,
        "state": job["state"],
        "reason": job["reason"],
        "verdict": deciding["verdict"],
        "because": deciding["reason"],
        "gates": [*gates],
        "paths": [_shown(one) for one in explained],
    }


def _explained(policy: Policy, worker: Worker[BaseModel], job: JsonObject) -> list[Explained]:
    stated = job["params"]
    params = params_of(worker, stated if isinstance(stated, dict) else {})
    paths = () if params is None else worker.paths(params)
    return policy.explain(worker.named, has_effects=worker.has_effects, writes=worker.writes, paths=paths)


def _policy(explained: list[Explained]) -> list[JsonObject]:
    if not explained:
        return []
    strictest = max((one.ruling for one in explained), key=lambda ruling: _ORDER.index(ruling.verdict))
    return [_gate("policy", strictest.verdict, strictest.reason.text)]


def _kind(kind: str, worker: Worker[BaseModel] | None, spec: MissionSpec) -> list[JsonObject]:
    if kind in installed().engine_kinds:
        return [_gate("person", Verdict.HOLD, "the engine made this job, for a person to decide on")]
    if worker is None:
        return [_gate("worker", Verdict.HOLD, f"{ReasonCode.NO_WORKER}: no worker executes this kind")]
    ruling = permission_ruling(worker, spec)
    if ruling is None:
        free = f"the level {worker.permission} leaves it to policy and planner"
        return [_gate("permission", Verdict.AUTO, free)]
    verdict, reason = ruling
    return [_gate("permission", verdict, reason.text)]


def _planner(job: JsonObject) -> JsonObject:
    match job["auto_dispatch"]:
        case False:
            return _gate("auto_dispatch", Verdict.HOLD, "the planner asked for review (auto_dispatch: false)")
        case True:
            return _gate("auto_dispatch", Verdict.AUTO, "auto_dispatch: true loosens nothing")
        case _:
            return _gate("auto_dispatch", Verdict.AUTO, "the planner said nothing; policy decides")


def _limits(job: JsonObject, held_for: ReasonCode | None) -> JsonObject:
    error, reason = job["error"], str(job["reason"] or "")
    if isinstance(error, dict) and error.get("error_code") == ErrorCode.LIMIT_REACHED:
        return _gate("limits", Verdict.DENY, str(error.get("user_message")))
    if held_for is ReasonCode.MAX_FOLLOWUPS:
        return _gate("limits", Verdict.HOLD, reason)
    return _gate("limits", Verdict.AUTO, "no limit applies")


def _gate(name: str, verdict: Verdict, reason: str) -> JsonObject:
    return {"gate": name, "verdict": verdict.value, "reason": reason}


def _shown(explained: Explained) -> JsonValue:
    rules: list[JsonValue] = [{**asdict(looked), "does": looked.does.value} for looked in explained.looked]
    ruling = explained.ruling
    return {
        "path": explained.path,
        "verdict": ruling.verdict.value,
        "reason": ruling.reason.text,
        "rules": rules,
    }
