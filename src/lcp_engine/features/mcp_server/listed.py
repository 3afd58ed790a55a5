"""Load what the operator lists for clients to launch, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine import LcpError
from lcp_engine.cli.load_mission import Loaded, MissionOptions, load, load_goal
from lcp_engine.errors import GENERAL, ErrorCode
from lcp_engine.planners.environment import PlannerEnvironment


@dataclass(frozen=True)
class Listed:
    """Roots and missions that the operator lists for clients to launch, and how they are launched."""

    roots: tuple[Path, ...] = ()
    missions: Mapping[str, str] = field(default_factory=dict)
    """Mission files, or names of shipped missions, by the names that clients use."""
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
        directory = self._root(root)
        if mission is not None:
            return load(self._options(self._mission(mission), directory, variables), self.environment)
        if self.missions:
            raise _not_listed("a goal in your own words", "the missions", self.missions)
        stated = (goal or "").strip()
        if len(stated.split()) < 2 and (stated in ("", "-") or stated.endswith((".yaml", ".yml", ".json"))):
            message = f"a goal in words for the planner is expected, not {stated[:60]!r}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        return load_goal(self._options(stated, directory, variables), self.environment)

    def _options(self, mission: str, root: Path, variables: Mapping[str, str]) -> MissionOptions:
        return MissionOptions(mission, root, self.planner, self.settings, variables, stage=self.stage)

    def _root(self, named: str | None) -> Path:
        if named is None and len(self.roots) == 1:
            return self.roots[0]
        found = None if named is None else next((root for root in self.roots if named == str(root)), None)
        if found is None:
            raise _not_listed(f"root {named!r}", "the roots", map(str, self.roots))
        return found

    def _mission(self, name: str) -> str:
        if name not in self.missions:
            raise _not_listed(f"mission {name!r}", "the missions", self.missions)
        return self.missions[name]

    @property
    def offer(self) -> str:
        """Tell clients what may be launched."""
        roots = ", ".join(map(str, self.roots))
        missions = f"missions: {', '.join(self.missions)}; " if self.missions else ""
        return f"Launch a mission; nothing outside its root is read or written. {missions}roots: {roots}."


def _not_listed(what: str, which: str, listed: Iterable[str]) -> LcpError:
    message = f"{what} is not one that the operator of this server listed; {which} are: {', '.join(listed)}"
    return LcpError(ErrorCode.NOT_ALLOWED, message, advice="Name one that is listed.")
