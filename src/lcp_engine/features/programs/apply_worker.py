"""The kind `apply`: bring what a command changed into the root, once a person approves it; made by the engine alone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from lcp_engine.core.kinds import APPLY as KIND
from lcp_engine.core.kinds import KindRole
from lcp_engine.workers.base import ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import Params, Result


class ApplyParams(Params):
    """The changes of one command: where they are kept, and the hash of their list, which names all their contents."""

    job: int
    held: Annotated[str, Field(pattern=r"^[1-9][0-9]*-[1-9][0-9]*$")]
    """The directory with them, in that of the wall."""
    machine: str
    digest: str


class AppliedFile(Result):
    """A file that was changed."""

    path: str
    change: str


class ApplyResult(Result):
    """The files that were changed in the root."""

    action: Literal["apply_result"] = "apply_result"
    summary: str
    files: list[AppliedFile]


APPLY = Worker(
    kind=KIND,
    params=ApplyParams,
    result=ApplyResult,
    execute=refuse_to_execute("what a command changed is applied by the engine, not by a worker"),
    description="Bring what a command changed into the root; made by the engine alone.",
    writes=True,
    role=KindRole.OTHER,
    timeout=3600.0,
    max_attempts=3,
    executed_by=ExecutedBy.ENGINE,
).for_any_params()
"""The kind whose jobs `features/programs/held_changes.py` carries out; no planner can request it."""
