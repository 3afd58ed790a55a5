"""Explain and change the rules of missions: let jobs like one run from now on, here or in all missions to come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lcp_engine.api.bulk import each_outcome
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.api.queries import spec_and_policy
from lcp_engine.api.user import user_name
from lcp_engine.changes import show
from lcp_engine.core.mission.spec import spec_of
from lcp_engine.core.policy import Rule, Verdict
from lcp_engine.core.reasons import FILE_CHANGED
from lcp_engine.engine.instance import Instance
from lcp_engine.errors import LcpError
from lcp_engine.features.rules.always import approve_always, remove_rule, rules_for
from lcp_engine.features.rules.explain_policy import explain_job
from lcp_engine.store.db.json_text import JsonObject
from lcp_engine.store.people import Sight, hold_code
from lcp_engine.store.queries.history import known_id
from lcp_engine.store.queries.mission_spec import spec_and_root
from lcp_engine.store.queries.records import Job

if TYPE_CHECKING:
    from lcp_engine.api.engine import Engine


class RuleCalls(KernelEngine):
    """Calls about policy."""

    def explain_policy(self, job_id: int) -> JsonObject:
        """Which rule decides about a job, and every rule that was considered. Raises `NOT_FOUND`."""
        return explain_policy(self.instance, self.job(job_id))

    def rules_for(self, job_id: int) -> list[Rule]:
        """The rules that would let jobs like this one run, the narrowest first; none for a job that none can.

        Raises `NOT_FOUND`, `INVALID_PARAMS`.
        """
        return rules_for_job(self.instance, self.job(job_id))

    def approve_always(
        self, job_id: int, rule: Rule, *, by: str | None = None, shown: Sight | None = None
    ) -> list[int]:
        """Approve a held job like `approve`, and add to its mission a `rule` that lets jobs like it run from now on.

        Other held jobs of the mission that would run by it are approved, too; their ids. Raises like `approve`,
        `NOT_ALLOWED` for a job that no rule can let run, `WRONG_STATE` for a rule that does not let this job run.
        """
        job, person = known_id("job", job_id), by or user_name()
        now = show.sight_now(self.instance, job, None)
        self.instance.write(
            approve_always, self.instance.admission, job, rule, by=person, now=now, shown=shown
        )
        released = released_by(self.instance, self.jobs(mission_id=self.job(job).mission_id, states=["held"]))
        return [
            one
            for one, outcome in each_outcome(released, lambda held: self.approve(held, by=person))
            if not isinstance(outcome, LcpError) and self.job(one).state != "held"
        ]

    def rules(self, mission_id: int) -> tuple[Rule, ...]:
        """The mission's own rules in their order, with those that people added. Raises `NOT_FOUND`."""
        return rules_of(self.instance, known_id("mission", mission_id))

    def remove_rule(self, mission_id: int, number: int, *, by: str | None = None) -> Rule:
        """Take rule `number` (from 1) of a mission out, so that such jobs wait again; the rule.

        Raises `NOT_FOUND`, and `WRONG_STATE` for a rule that holds or denies.
        """
        return self.instance.write(remove_rule, known_id("mission", mission_id), number, by=by or user_name())


def explain_policy(instance: Instance, job: Job) -> JsonObject:
    """Which rule decides about a job, and every rule that was considered."""
    spec, policy = spec_and_policy(instance, job.mission_id)
    return explain_job(
        instance.admission, policy, job.json, spec, instance.read(hold_code, job.mission_id, job.id)
    )


def rules_for_job(instance: Instance, job: Job) -> list[Rule]:
    """The rules that would let jobs like this one run; none for a kind without a worker. Raises `INVALID_PARAMS`."""
    worker = instance.admission.workers.get(job.kind)
    if worker is None:
        return []
    spec, root = instance.read(spec_and_root, job.mission_id)
    return rules_for(worker, worker.read(job.params, f"job {job.id}"), root, spec_of(spec))


def released_by(instance: Instance, held: Sequence[Job]) -> list[int]:
    """Those of these held jobs that today's rules and every other gate let run, and whose file has not changed."""
    return [
        job.id
        for job in held
        if job.reason not in FILE_CHANGED and explain_policy(instance, job)["verdict"] == Verdict.AUTO
    ]


def rules_of(instance: Instance, mission_id: int) -> tuple[Rule, ...]:
    """The mission's own rules. Raises `NOT_FOUND`."""
    return spec_of(instance.read(spec_and_root, mission_id)[0]).policy


def add_rule_with_approval(
    engine: Engine, job_id: int, rule: Rule, scope: str, *, shown: Sight | None, by: str | None = None
) -> list[int]:
    """Approve the job, add the rule, for `user` to the configuration file as well; the other jobs that it approved.

    Raises like `Engine.approve_always` and `config_text.with_rule`, and then adds nothing; `FILE_SYSTEM` if the file
    cannot be written after all: the mission has the rule then.
    """
    from lcp_engine.features.rules.config_text import add_rule, with_rule
    from lcp_engine.settings import config_path

    if scope == "user":
        with_rule(config_path(), rule)  # raises for a file that cannot be changed
    released = engine.approve_always(job_id, rule, shown=shown, by=by)
    if scope == "user":
        add_rule(config_path(), rule)
    return released
