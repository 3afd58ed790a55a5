"""Load what the operator lists for clients to launch, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine import LcpError
from lcp_engine.cli.commands.load_mission import Loaded, MissionOptions, load, load_goal
from lcp_engine.errors import GENERAL, ErrorCode
from lcp_engine.features.tokens.offers import LIST, Offers
from lcp_engine.planners.environment import PlannerEnvironment


@dataclass(frozen=True)
class Listed(Offers):
    """Roots and missions that the operator lists for clients to launch, and how they are launched."""

    planner: str | None = None
    settings: Sequence[str] = ()
    stage: bool = False
    environment: PlannerEnvironment = field(default_factory=lambda: PlannerEnvironment({}))

    def load(
        self, goal: str | None, mission: str | None, root: str | None, variables: Mapping[str, str]
    ) -> Loaded:
        """The mission that a client asks for. Raises `NOT_ALLOWED` for what is not listed, and like `load`."""
        if (goal is None) == (mission is None):
            message = "launch takes either a goal or the name of a mission"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        directory = self.roots[0] if root is None and len(self.roots) == 1 else self.root(root or "")
        if mission is not None:
            return load(self._options(str(self.mission(mission)), directory, variables), self.environment)
        if self.missions:
            message = f"missions alone are listed, and no goals in words; known: {', '.join(self.missions)}"
            raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=LIST)
        stated = (goal or "").strip()
        if len(stated.split()) < 2 and (stated in ("", "-") or stated.endswith((".yaml", ".yml", ".json"))):
            message = f"a goal in words for the planner is expected, not {stated[:60]!r}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        return load_goal(self._options(stated, directory, variables), self.environment)

    def _options(self, mission: str, root: Path, variables: Mapping[str, str]) -> MissionOptions:
        return MissionOptions(mission, root, self.planner, self.settings, variables, stage=self.stage)

    @property
    def offer(self) -> str:
        """Tell clients what may be launched."""
        roots = ", ".join(map(str, self.roots))
        missions = f"missions: {', '.join(self.missions)}; " if self.missions else ""
        return f"Launch a mission; nothing outside its root is read or written. {missions}roots: {roots}."
