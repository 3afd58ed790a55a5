"""Queries of `Engine` that need more than the database: files on disk, policy, the dialect of a mission."""

from __future__ import annotations

from lcp_engine.core.mission.spec import expected_result, spec_of
from lcp_engine.core.protocol.actions import Action, Malformed
from lcp_engine.core.protocol.read_reply import reader_of
from lcp_engine.engine.explain_policy import explain_job
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.turn_queue import VERIFIES
from lcp_engine.store.db.json_text import JsonObject, from_json
from lcp_engine.store.people import hold_code
from lcp_engine.store.queries.mission_spec import asked_turn, spec_and_root
from lcp_engine.store.queries.records import Job


def explain_policy(instance: Instance, job: Job) -> JsonObject:
    """Which rule decides about a job, and every rule that was considered."""
    spec, root = instance.read(spec_and_root, job.mission_id)
    return explain_job(
        instance.admission, job.json, spec, root, instance.read(hold_code, job.mission_id, job.id)
    )


def read_reply_to(instance: Instance, mission_id: int, text: str) -> Action | Malformed:
    """What a reply says in the dialect of a mission, with the kinds of this process. Raises `NOT_FOUND`."""
    spec = spec_of(instance.read(spec_and_root, mission_id)[0])
    kinds = {kind: worker.params for kind, worker in instance.admission.workers.items()}
    stated = expected_result(spec)
    asked = None if stated is None else instance.read(asked_turn, mission_id)
    is_own, params = (True, "{}") if asked is None else asked
    expected = stated if is_own and VERIFIES not in from_json(params) else None
    return reader_of(spec.planner.dialect)(text, kinds, expected)
