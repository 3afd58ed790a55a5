"""The kind `agent_plan`: ask the planner for the next action."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from lcp_engine.workers.base import Example, ExecutedBy, Worker, refuse_to_execute
from lcp_engine.workers.params import ContentText, Params, PathText, Result


class AgentPlanParams(Params):
    """`scope: step` makes a plan of its own, whose terminal action is this job's result."""

    user_prompt: ContentText = Field(min_length=1, description="What the planner is asked to do.")
    project_root: PathText | None = Field(
        default=None, description="The mission's root or a directory in it."
    )
    context: ContentText | None = Field(default=None, description="What the planner should know.")
    scope: Literal["step"] | None = Field(default=None, description="step: its end is this job's result.")


class AgentPlanResult(Result):
    """The action that the planner answered with, all its keys included."""

    model_config = ConfigDict(frozen=True, extra="allow")

    action: str


def _requested_paths(params: AgentPlanParams) -> tuple[str, ...]:
    return () if params.project_root is None else (params.project_root,)


WORKER = Worker(
    kind="agent_plan",
    params=AgentPlanParams,
    result=AgentPlanResult,
    execute=refuse_to_execute("agent_plan asks a mission's planner, and outside a mission there is none"),
    description="Ask the planner for the next action.",
    has_effects=False,
    timeout=600.0,
    executed_by=ExecutedBy.PLANNER,
    paths=_requested_paths,
    examples=(
        Example(
            params={"user_prompt": "Find out how the tests are started.", "scope": "step"},
            result={"action": "analysis_result", "summary": "make test"},
            is_run=False,
        ),
    ),
)
