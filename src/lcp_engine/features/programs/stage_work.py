"""Let a planner have a program of its own work in the stage of a mission, as the turn that it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pydantic import BaseModel

from lcp_engine.core.policy import Policy
from lcp_engine.engine.instance import Instance
from lcp_engine.features.programs.programs import ProgramsUnderWay
from lcp_engine.features.programs.run_command import Surroundings
from lcp_engine.features.programs.wall.layers.upper import Changes
from lcp_engine.features.programs.wall.workspace import Workspace
from lcp_engine.planners.base import Question, Reply
from lcp_engine.store.row_types import JobRow
from lcp_engine.workers.base import Kept


@dataclass(frozen=True)
class StageWork:
    """The stage as a program of a planner sees it, and the leased `job` of the turn that it works for.

    `keep` makes its changes part of the stage, as far as policy lets files be written; once they are decided, a later
    attempt of the job that calls it finishes them, whatever it is given. Nothing else brings changes into the stage.
    """

    job: JobRow
    instance: Instance
    policy: Policy
    """That of the mission, now."""
    around: Surroundings
    under_way: ProgramsUnderWay
    keep: Callable[[Workspace, Changes, BaseModel], Kept]
    seconds: float
    """The time that the program may take."""


@runtime_checkable
class WorksInStage(Protocol):
    """A planner whose answer is the work of a program."""

    def work(self, question: Question, work: StageWork, /) -> Reply:
        """Like `Planner.answer`, and raises what that raises."""
