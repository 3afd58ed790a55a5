"""Answer a mission's questions with an agent that works in its stage; a question is a prompt of one lasting session.

The loop asks its question in a turn as of any planner. What the agent does meanwhile are jobs of the mission
(`calls.py`); what it changed becomes part of the stage when it ends its turn, which completes the mission with its last
message as summary. Acceptance checks and the merge follow as for any planner.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from lcp_engine.core.summaries import nearest
from lcp_engine.errors import GENERAL, ErrorCode, LcpError, install
from lcp_engine.features.agents.presets import PRESETS, Configured, Model
from lcp_engine.features.agents.process import Launch, check_keys, read_keys
from lcp_engine.features.agents.program import check_agent
from lcp_engine.planners.base import PlannerError, Question, Reply
from lcp_engine.planners.environment import EMPTY_ENVIRONMENT, PlannerEnvironment

if TYPE_CHECKING:
    from lcp_engine.core.mission.spec import MissionSpec
    from lcp_engine.engine.instance import Instance
    from lcp_engine.features.programs.stage_work import StageWork

TYPE = "acp"


def _asking(made: Configured) -> Configured:
    """The configuration of opencode, which then asks before it writes and runs."""
    ((path, text),) = made.files.items()
    stated = {**json.loads(text), "permission": {"edit": "ask", "bash": "ask"}}
    return replace(made, files={path: json.dumps(stated)})


@plain_dataclass(frozen=True)
class Adapter:
    """An agent that speaks the protocol: its command, its package as it was tried, and how its session begins."""

    command: tuple[str, ...]
    package: str
    auth: str | None = None
    mode: str | None = None
    adjust: Callable[[Configured], Configured] = lambda made: made


ADAPTERS: Mapping[str, Adapter] = {
    "claude": Adapter(("claude-agent-acp",), "@agentclientprotocol/claude-agent-acp@0.49.0"),
    "codex": Adapter(("codex-acp",), "@agentclientprotocol/codex-acp@2.6.0", mode="read-only"),
    "gemini": Adapter(("gemini", "--acp"), PRESETS["gemini"].package, auth="gemini-api-key"),
    "opencode": Adapter(("opencode", "acp"), PRESETS["opencode"].package, adjust=_asking),
    "qwen": Adapter(("qwen", "--acp"), PRESETS["qwen"].package),
}
"""By the names of the presets for programs."""


@dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid", strict=True))
class AcpPlanner:
    """An agent that is a server of the protocol, by the name of its preset or by its command."""

    agent: str = ""
    command: list[str] = Field(default=[])
    model: str = ""
    endpoint: str = ""
    """The address of the model, where it is not the usual one of the agent."""
    keys: list[str] = Field(default=[])
    """Variables of the runner's environment that the agent gets, besides those of its preset."""
    environment: dict[str, str] = Field(default={})
    auth: str = ""
    """The method by which it is authenticated, if it wants that."""
    mode: str = ""
    """The mode of its session."""
    silence: float = Field(default=300.0, gt=0)
    """Seconds without a word after which it is ended."""
    decision_seconds: float = Field(default=300.0, ge=0)
    """Seconds that it is kept waiting for a decision on a call that a rule holds."""

    def __post_init__(self) -> None:
        if self.agent and self.agent not in ADAPTERS:
            raise ValueError(
                f"agent: no preset is named {self.agent!r}; {nearest(self.agent, list(ADAPTERS))}"
            )
        if not self.agent and not self.command:
            raise ValueError(f"agent or command: one is expected; agents are {', '.join(ADAPTERS)}")

    @property
    def name(self) -> str:
        """Name of the agent for people."""
        return self.agent or shlex.join(self.command)

    @property
    def adapter(self) -> Adapter:
        """The preset, with what is stated in its place."""
        known = ADAPTERS.get(self.agent, Adapter((), ""))
        return replace(
            known,
            command=tuple(self.command) or known.command,
            auth=self.auth or known.auth,
            mode=self.mode or known.mode,
        )

    def placed(self, planner_environment: PlannerEnvironment, /) -> PlacedAgent:
        """Raises `NOT_ALLOWED` for keys that neither the preset nor the configuration names."""
        check_keys(TYPE, self.keys, self._known_keys, planner_environment)
        return PlacedAgent(self)

    def answer(self, question: Question, /) -> Reply:
        return self.placed(EMPTY_ENVIRONMENT).answer(question)

    def launch(self) -> Launch:
        """Everything that it is started with."""
        made = Configured()
        if self.agent:
            made = self.adapter.adjust(PRESETS[self.agent].configure(Model(self.model, self.endpoint)))
        own, *rest = self.adapter.command
        keys = read_keys((*self._known_keys, *self.keys))
        return Launch(
            (own, *made.arguments, *rest), {**made.environment, **self.environment}, keys, made.files
        )

    @property
    def _known_keys(self) -> tuple[str, ...]:
        return PRESETS[self.agent].keys if self.agent else ()


@plain_dataclass(frozen=True)
class PlacedAgent:
    """The planner as a runner asks it (`WorksInStage`)."""

    stated: AcpPlanner

    def answer(self, question: Question, /) -> Reply:
        message = f"{self.stated.name} works in the stage of a mission, which a runner gives it"
        raise PlannerError(ErrorCode.PLANNER_REFUSED, message, advice=GENERAL)

    def work(self, question: Question, work: StageWork, /) -> Reply:
        """The last message of the agent as the end of the mission, with what it changed in the stage."""
        try:
            from lcp_engine.features.acp_planner.turn import take_turn  # slow to load: the SDK
        except ModuleNotFoundError as missing:
            if (missing.name or "").startswith("lcp_engine"):
                raise
            message = f"planner acp needs the extra 'acp' ({missing.name} is missing): {install('acp')}"
            raise LcpError(ErrorCode.PLANNER_REFUSED, message, advice=f"{install('acp')}.") from missing
        return take_turn(self.stated, question, work)


def check_mission(instance: Instance, spec: MissionSpec) -> None:
    """Raise `INVALID_MISSION` for what no agent can keep to, and what `check_agent` raises."""
    if spec.planner.type != TYPE:
        return
    check_agent(instance, spec)
    ends = spec.endings or ("mission_complete",)
    faults = {
        "result: an agent ends with words, not with a result": spec.result is not None,
        "endings: an agent ends with mission_complete": "mission_complete" not in ends,
        "continue: an agent is asked per_batch": spec.continue_ != "per_batch",
    }
    if fault := next((words for words, is_one in faults.items() if is_one), None):
        raise LcpError(ErrorCode.INVALID_MISSION, fault, advice="Leave it out, or choose another planner.")
