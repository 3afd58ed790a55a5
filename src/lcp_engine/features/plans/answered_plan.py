"""The action of a planner that answers with an ExecutionPlan, and how it is read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from pydantic import Field, JsonValue

from lcp_engine.core.kinds import kind_named
from lcp_engine.core.protocol.actions import CreateFollowupJobs, Findings, JobSpec, Malformed
from lcp_engine.core.protocol.read_reply import Kinds, OrderReader, read_object
from lcp_engine.core.summaries import nearest
from lcp_engine.features.plans.references import references_in
from lcp_engine.features.plans.stated_plan import StatedPlan

_LONGEST_NAME = 200
_JOB = "new_jobs[0]"
_Object: TypeAlias = dict[str, JsonValue]


class ExecutePlan(CreateFollowupJobs):
    """Go on with the steps of a plan, each when what it waits for has ended; `new_jobs` are the same steps."""

    is_plan: ClassVar[bool] = True
    plan: StatedPlan
    steps_at: str = Field(exclude=True, description="The place of its steps in the reply.")

    @property
    def jobs_at(self) -> str:
        """The place of its steps in the reply."""
        return self.steps_at

    def is_unresolved(self, job: JobSpec) -> bool:
        """True if the params of a step have references."""
        return any(references_in(job.params))


def read_plan(
    stated: JsonValue,
    kinds: Kinds,
    findings: Findings,
    place: str,
    commentary: str | None = None,
) -> ExecutePlan | None:
    """The plan at a place of a reply, checked as a whole; None if it has faults."""
    plan = None
    if isinstance(stated, dict):
        plan = findings.validate(StatedPlan, stated, place, "an execution plan")
    else:
        findings.refuse(place, "an execution plan is an object with steps")
    if plan is None:
        return None
    if plan.on_failure == "execute_fallback":
        said = "the plan of a planner has no fallback; abort_plan or continue_plan"
        findings.refuse(f"{place}.error_handling.on_step_failure", said)
    names = {".params": ".parameters", ".kind": ".tool"}
    steps: list[_Object] = [
        {
            "name": None if step.name is None else step.name[:_LONGEST_NAME],
            "kind": step.tool,
            "params": step.parameters,
        }
        for step in plan.steps
    ]
    return _Steps(f"{place}.steps", names, kinds, findings).action(plan, steps, commentary)


def read_ordered_jobs(
    entries: Sequence[JsonValue],
    kinds: Kinds,
    findings: Findings,
    commentary: str | None,
) -> ExecutePlan | None:
    """The plan of jobs of which some name in `dependencies` those that they wait for, by `id` or by `name`.

    None if it has faults. A job without an `id` has that of its place: `step-001`.
    """
    jobs = [entry if isinstance(entry, dict) else {} for entry in entries]
    ids = [job.get("id") or f"step-{number:03}" for number, job in enumerate(jobs, 1)]
    names = [name if isinstance(name := job.get("name"), str) else "" for job in jobs]
    counts = Counter(names)
    known = {name: step for name, step in zip(names, ids, strict=True) if counts[name] == 1}
    known |= {step: step for step in ids if isinstance(step, str)}
    steps: list[JsonValue] = []
    for index, (job, step) in enumerate(zip(jobs, ids, strict=True)):
        if job.get("auto_dispatch") is False:
            said = "a job of a reply with dependencies is held by policy alone; request it in a reply without any"
            findings.refuse(f"new_jobs[{index}].auto_dispatch", said)
        needs = job.get("dependencies") or []
        if isinstance(needs, list):
            needs = [known.get(one, one) if isinstance(one, str) else one for one in needs]
        steps.append({"id": step, "tool": "", "parameters": job.get("params") or {}, "dependencies": needs})
    inner = Findings()
    plan = inner.validate(StatedPlan, {"steps": steps}, "", "jobs with dependencies")
    for problem in inner.problems:
        path = problem.path.replace("steps[", "new_jobs[", 1).replace("].parameters", "].params", 1)
        findings.refuse(path, problem.message)
    plain = [
        {key: value for key, value in entry.items() if key not in ("id", "dependencies")}
        if isinstance(entry, dict)
        else entry
        for entry in entries
    ]
    return _Steps("new_jobs", {}, kinds, findings).action(plan, plain, commentary)


@dataclass(frozen=True)
class _Steps:
    """Reads the jobs of steps that stand at a `place` of a reply; `names` are those of their keys there."""

    place: str
    names: Mapping[str, str]
    kinds: Kinds
    findings: Findings

    def action(
        self, plan: StatedPlan | None, stated: Sequence[JsonValue], commentary: str | None
    ) -> ExecutePlan | None:
        """The action of a plan whose steps are `stated` as jobs."""
        jobs: list[JobSpec | None] = []
        for nth, job in enumerate(stated):
            if self.findings.is_full:
                self.findings.refuse(self.place, f"the steps from number {nth} on were not checked")
                break
            jobs.append(self._read(job, f"{self.place}[{nth}]"))
        if plan is None or self.findings.problems:
            return None
        read = tuple(job for job in jobs if job is not None)
        steps = [
            step.model_copy(update={"name": job.name, "parameters": job.params, "tool": job.kind})
            for step, job in zip(plan.steps, read, strict=True)
        ]
        plan = plan.model_copy(update={"steps": steps})
        return ExecutePlan(commentary=commentary, new_jobs=read, plan=plan, steps_at=self.place)

    def _read(self, job: JsonValue, place: str) -> JobSpec | None:
        """The job of a step; its params are checked if they hold no reference."""
        stated = job.get("kind") if isinstance(job, dict) else None
        kind = kind_named(stated, self.kinds) if isinstance(stated, str) else None
        if kind is not None and kind not in self.kinds:
            said = f"no worker executes the kind {stated!r}; {nearest(str(stated), [*self.kinds])}"
            self.findings.refuse(self._path(f"{_JOB}.kind", place), said)
            return None
        kinds = self.kinds
        if isinstance(job, dict) and any(references_in(job.get("params"))):
            job, kinds = {**job, "kind": kind}, {}
        read = read_object({"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}, kinds)
        for warning in read.warnings:
            where, _, said = warning.partition(": ")
            self.findings.ignore(self._path(where, place), said)
        if isinstance(read, Malformed):
            for problem in read.errors:
                self.findings.refuse(self._path(problem.path, place), problem.message)
            return None
        assert isinstance(read, CreateFollowupJobs)
        return read.new_jobs[0]

    def _path(self, path: str, place: str) -> str:
        """The place in the reply of what is wrong with the job of a step."""
        within = path.removeprefix(_JOB)
        for ours, theirs in self.names.items():
            if within.startswith(ours):
                return f"{place}{theirs}{within.removeprefix(ours)}"
        return f"{place}{within}"


READER = OrderReader(read_plan, read_ordered_jobs)
