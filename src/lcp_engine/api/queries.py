"""Queries of `Engine` that need more than the database: files on disk, policy, the dialect of a mission."""

from __future__ import annotations

from collections.abc import Sequence

from lcp_engine.changes.show import look_over
from lcp_engine.core.mission.spec import expected_result, spec_of
from lcp_engine.core.policy import Approvals, Policy
from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.protocol.read_reply import reader_of
from lcp_engine.engine.admission import params_of
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.people.approvals import consent_by
from lcp_engine.engine.points import decision_gate
from lcp_engine.engine.turn_queue import VERIFIES
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.queries.mission_spec import asked_turn, spec_and_root
from lcp_engine.store.queries.records import Job
from lcp_engine.workers.engine_kinds import engine_workers


def spec_and_policy(instance: Instance, mission_id: int) -> tuple[str, Policy]:
    """The spec of a mission as it is stored, and its policy as it is now."""
    spec, root = instance.read(spec_and_root, mission_id)
    return spec, instance.read(instance.admission.policy_now, mission_id, spec_of(spec), root)


def approvals_for(instance: Instance, jobs: Sequence[Job]) -> dict[int, Approvals]:
    """Approvals that each held job has and needs, of those for which one person's yes is not enough."""
    policies: dict[int, Policy] = {}
    found: dict[int, Approvals] = {}
    for job in jobs:
        worker = engine_workers().get(job.kind) or instance.admission.workers.get(job.kind)
        params = None if worker is None else params_of(worker, job.params)
        if worker is None or params is None:
            continue
        if job.mission_id not in policies:
            _, policies[job.mission_id] = spec_and_policy(instance, job.mission_id)
        policy, workers = policies[job.mission_id], instance.admission.workers
        consent = instance.read(consent_by, job.mission_id, policy, worker, params, workers=workers)
        if not consent.is_usual:
            sight = look_over(instance, [job.json])[job.id].sight
            held = (job.mission_id, job.id)
            found[job.id] = instance.read(decision_gate().approvals, instance.admission, held, consent, sight)
    return found


def read_reply_to(instance: Instance, mission_id: int, text: str) -> Action | Malformed:
    """Meaning of a reply in the dialect of a mission, with the kinds of this process. Raises `NOT_FOUND`."""
    spec = spec_of(instance.read(spec_and_root, mission_id)[0])
    kinds = {kind: worker.params for kind, worker in instance.admission.workers.items()}
    stated = expected_result(spec)
    asked = None if stated is None else instance.read(asked_turn, mission_id)
    is_own, params = (True, "{}") if asked is None else asked
    expected = stated if is_own and VERIFIES not in from_json(params) else None
    return reader_of(spec.planner.dialect)(text, kinds, expected)
