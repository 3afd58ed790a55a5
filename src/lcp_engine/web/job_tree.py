"""Arrange the jobs of a mission as a tree: under each turn what it asked for (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lcp_engine.store.db.json_text import JsonObject


@dataclass(frozen=True)
class Branch:
    """A job with the questions that it asked, if it is a turn, and the jobs that it led to."""

    job: JsonObject
    questions: list[JsonObject] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)

    @property
    def size(self) -> int:
        return 1 + sum(branch.size for branch in self.branches)


def grow(jobs: Sequence[JsonObject], questions: Sequence[JsonObject]) -> list[Branch]:
    """The jobs without a parent among `jobs`, each with what hangs on it; all in the order of their ids."""
    branches = {job["id"]: Branch(job) for job in jobs}
    for question in questions:
        if question["job_id"] in branches:
            branches[question["job_id"]].questions.append(question)
    roots: list[Branch] = []
    for branch in branches.values():
        parent = branches.get(branch.job["parent_id"])
        (parent.branches if parent else roots).append(branch)
    return roots
