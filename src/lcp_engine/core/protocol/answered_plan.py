"""The action of a planner that answers with an ExecutionPlan, and how it is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import kind_named
from lcp_engine.core.mission.plan import StatedPlan, StatedStep
from lcp_engine.core.protocol.actions import CreateFollowupJobs, Findings, JobSpec, Malformed
from lcp_engine.core.protocol.read_reply import read_object
from lcp_engine.core.protocol.references import references_in
from lcp_engine.core.summaries import nearest

PLACE = "custom_fields.execution_plan"
"""Where a universal response holds the plan."""
_LONGEST_NAME = 200
_JOB = "new_jobs[0]"


class ExecutePlan(CreateFollowupJobs):
    """Go on with the steps of a plan, each when what it waits for has ended; `new_jobs` are the same steps."""

    plan: StatedPlan


def read_plan(
    stated: JsonValue, kinds: Mapping[str, type[BaseModel]], recovered: tuple[str, ...], message: str
) -> ExecutePlan | Malformed:
    """The plan that a response holds, checked as a whole; `message` is its commentary."""
    findings = Findings()
    plan = None
    if isinstance(stated, dict):
        plan = findings.validate(StatedPlan, stated, PLACE, "an execution plan")
    else:
        findings.refuse(PLACE, "an execution plan is an object with steps")
    jobs: list[JobSpec | None] = []
    if plan is not None:
        if plan.on_failure == "execute_fallback":
            said = "the plan of a planner has no fallback; abort_plan or continue_plan"
            findings.refuse(f"{PLACE}.error_handling.on_step_failure", said)
        for nth, step in enumerate(plan.steps):
            if findings.is_full:
                findings.refuse(f"{PLACE}.steps", f"the steps from number {nth} on were not checked")
                break
            jobs.append(_read_step(step, f"{PLACE}.steps[{nth}]", kinds, findings))
    if plan is None or findings.problems:
        return Malformed(errors=tuple(findings.problems), recovered=recovered, warnings=findings.warnings)
    read = tuple(job for job in jobs if job is not None)
    steps = [
        step.model_copy(update={"parameters": job.params, "tool": job.kind})
        for step, job in zip(plan.steps, read, strict=True)
    ]
    action = ExecutePlan(
        commentary=message.strip() or None, new_jobs=read, plan=plan.model_copy(update={"steps": steps})
    )
    return action.note(recovered, findings.warnings)


def _read_step(
    step: StatedStep, place: str, kinds: Mapping[str, type[BaseModel]], findings: Findings
) -> JobSpec | None:
    """The job of a step; its params are checked if they hold no reference."""
    kind = kind_named(step.tool, kinds)
    if kind not in kinds:
        findings.refuse(
            f"{place}.tool", f"no worker executes the kind {step.tool!r}; {nearest(step.tool, [*kinds])}"
        )
        return None
    name = None if step.name is None else step.name[:_LONGEST_NAME]
    if any(references_in(step.parameters)):
        return JobSpec(name=name, kind=kind, params=step.parameters)
    job: JsonValue = {"name": name, "kind": kind, "params": step.parameters}
    read = read_object({"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}, kinds)
    for warning in read.warnings:
        where, _, said = warning.partition(": ")
        findings.ignore(_place_of(where, place), said)
    if isinstance(read, Malformed):
        for problem in read.errors:
            findings.refuse(_place_of(problem.path, place), problem.message)
        return None
    assert isinstance(read, CreateFollowupJobs)
    return read.new_jobs[0]


def _place_of(path: str, place: str) -> str:
    """The place in the plan of what is wrong with the job of a step."""
    within = path.removeprefix(_JOB)
    for ours, theirs in ((".params", ".parameters"), (".kind", ".tool")):
        if within.startswith(ours):
            return f"{place}{theirs}{within.removeprefix(ours)}"
    return f"{place}{within}"
