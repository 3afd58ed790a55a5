"""Drive a planner over real files with real workers, one reply after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

import pytest
from pydantic import JsonValue

from lcp_engine.planners.base import JobResult, Question
from lcp_engine.planners.surveyor import Surveyor
from lcp_engine.protocol.actions import Action, CreateFollowupJobs, JobSpec, Malformed
from lcp_engine.protocol.reading import read_reply
from lcp_engine.trial import run_job
from lcp_engine.workers.registry import BUILT_IN

MOST_TURNS = 40
KINDS = {kind: worker.params for kind, worker in BUILT_IN.items()}


@dataclass
class Run:
    """What became of a mission: every job, and the action that ended it."""

    end: Action
    jobs: list[JobResult] = field(default_factory=list)
    turns: int = 0

    @property
    def markdown(self) -> str:
        return str([job for job in self.jobs if job.kind == "write_file"][-1].params["content"])

    @property
    def paths_read(self) -> list[JsonValue]:
        return [job.params["rel_path"] for job in self.jobs if job.kind == "read_file"]


Survey: TypeAlias = Callable[..., Run]


@pytest.fixture
def survey() -> Survey:
    """Runs the surveyor until it ends; `instead` gives the outcome of a job in place of executing it."""
    return drive


def drive(
    root: Path,
    planner: Surveyor | None = None,
    instead: Callable[[JobSpec], JobResult | None] = lambda spec: None,
    options: dict[str, JsonValue] | None = None,
) -> Run:
    jobs: list[JobResult] = []
    for turn in range(1, MOST_TURNS):
        question = Question(1, turn, turn, "goal", str(root), "goal", options=options or {}, history=lambda: jobs)
        action = ask(planner or Surveyor(), question)
        if not isinstance(action, CreateFollowupJobs):
            return Run(action, jobs, turn)
        for spec in action.new_jobs:
            jobs.append(numbered(instead(spec) or execute(spec, root), len(jobs) + 1))
    raise AssertionError(f"no end after {MOST_TURNS} turns")


def ask(planner: Surveyor, question: Question) -> Action:
    """The reply, read as the engine reads it."""
    action = read_reply(planner.answer(question).text, KINDS)
    assert not isinstance(action, Malformed), action.errors
    return action


def execute(spec: JobSpec, root: Path) -> JobResult:
    done = run_job(spec.kind, spec.params, root)
    error: dict[str, JsonValue] | None = json.loads(json.dumps(asdict(done.error))) if done.error else None
    result: dict[str, JsonValue] | None = json.loads(json.dumps(done.result)) if done.result else None
    return settled(spec, "succeeded" if done.ok else "failed", result=result, error=error)


def settled(
    spec: JobSpec,
    state: str,
    *,
    reason: str | None = None,
    result: dict[str, JsonValue] | None = None,
    error: dict[str, JsonValue] | None = None,
) -> JobResult:
    return JobResult(0, spec.name, spec.kind, spec.params, state, reason, result, error)


def numbered(job: JobResult, job_id: int) -> JobResult:
    return JobResult(job_id, job.name, job.kind, job.params, job.state, job.reason, job.result, job.error)
