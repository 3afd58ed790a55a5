"""State how a mission ends in a repository: the key `git`, the kind `commit`, names of branches, words of commits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lcp_engine.core.kinds import KindRole
from lcp_engine.core.mission.accept import Frozen
from lcp_engine.core.mission.spec import MissionKeys, MissionSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.stages.mission_keys import StageKeys
from lcp_engine.workers.base import ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import Params, Result

if TYPE_CHECKING:
    from lcp_engine.engine.instance import Instance

KIND = "commit"
OF_MISSION, UNDOES = "Lcp-Mission", "Lcp-Undoes"
APPROVED_BY = "Lcp-Approved-By"
"""Trailers: the mission of a commit, or of the revert of that, by which it is found again, and who decided."""
_MOST_SUBJECT = 72
_MOST_JOBS = 30
_NOT_IN_NAME = re.compile(r"(?:[^A-Za-z0-9._]|\.{2,})+")


class GitUse(Frozen):
    """Use of the repository of its root by a mission (git.md)."""

    commit: Literal["mission", "merge", "off"] = Field(
        default="mission",
        description="Whether a mission that completes makes one commit of what it changed: in any case, after an "
        "approved merge, or never.",
    )
    branch: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="A new branch for the commit, on which the repository is then; {name} and {id} stand for those of "
        "the mission. By default the current branch.",
    )


class GitKeys(MissionKeys):
    """The key `git`."""

    git: GitUse = Field(
        default=GitUse(commit="off"),
        description="What becomes of its changes in the repository of the root (git.md).",
    )


def check_mission(instance: Instance, spec: MissionSpec) -> None:
    """Refuse a commit of a merge that there will not be, with `INVALID_MISSION`."""
    if GitKeys.of(spec).git.commit == "merge" and not StageKeys.of(spec).stage:
        message = "git.commit: merge is for missions that work in a stage; stage: true is expected, or commit: mission"
        raise LcpError(ErrorCode.INVALID_MISSION, message, advice="State stage: true, or commit: mission.")


class CommitParams(Params):
    """The branch to make, or that it is for, and the words that the mission ended with; or the commit to revert."""

    branch: str | None = None
    summary: str = ""
    reverts: str | None = None


class CommitResult(Result):
    """The commit that was made, or found again, its branch and files; without one nothing was to be committed."""

    action: Literal["commit_result"] = "commit_result"
    summary: str
    commit: str | None = None
    branch: str | None = None
    files: list[str] = Field(default=[])
    left_out: list[str] = Field(default=[])
    """Files that git ignores."""


COMMIT = Worker(
    kind=KIND,
    params=CommitParams,
    result=CommitResult,
    execute=refuse_to_execute("a commit is made by the engine, not by a worker"),
    description="Commit what a mission changed to the repository of its root; made by the engine alone.",
    writes=True,
    role=KindRole.OTHER,
    timeout=600.0,
    max_attempts=3,
    executed_by=ExecutedBy.ENGINE,
).for_any_params()
"""The kind whose jobs `features/git/commit.py` carries out; no planner can request it."""


def branch_name(stated: str, name: str, mission_id: int) -> str:
    """The branch that a mission states, with its own name and id; git judges it."""
    tidy = _NOT_IN_NAME.sub("-", name).strip("-.") or "mission"
    return stated.replace("{name}", tidy).replace("{id}", str(mission_id))


def message_of(
    name: str, mission_id: int, summary: str, jobs: Sequence[str], trailers: Iterable[tuple[str, str]]
) -> str:
    """Message of a commit: words of the mission, its jobs, and trailers, which nothing before them can be taken for."""
    words = summary.replace("\0", "").strip()
    first, _, rest = words.partition("\n")
    subject = " ".join(first.split()) or f"{name} (mission {mission_id})"
    if len(subject) > _MOST_SUBJECT:
        rest, subject = words, f"{subject[: _MOST_SUBJECT - 1].rstrip()}…"
    listed = [f"- {job}" for job in jobs[:_MOST_JOBS]]
    listed += [f"- and {len(jobs) - _MOST_JOBS:,} more"] if len(jobs) > _MOST_JOBS else []
    last = "\n".join(f"{key}: {' '.join(value.split())}" for key, value in trailers)
    parts = (
        subject,
        rest.strip(),
        f"Jobs of mission {mission_id}, {' '.join(name.split())}:\n" + "\n".join(listed),
        last,
    )
    return "\n\n".join(part for part in parts if part) + "\n"
