"""Missions that programs may launch: those over roots, and from files, that the operator listed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine import MissionSpec
from lcp_engine.core.mission.parse import build_mission, outline_mission, parse_mission
from lcp_engine.core.safe_text import json_line
from lcp_engine.core.summaries import nearest
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.http_api.values import Launch
from lcp_engine.features.programs.found_suites import with_found
from lcp_engine.planners.registry import usual_planner
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import shipped_missions

LIST = "List it in `serve` of config.yaml, or with `lcp serve --root DIR --mission NAME`."


@dataclass(frozen=True)
class Offers:
    """Roots and missions that the operator listed, the missions by name."""

    roots: tuple[str, ...] = ()
    missions: Mapping[str, Path] = field(default_factory=dict)

    def chosen(self, asked: Launch) -> tuple[MissionSpec, Path]:
        """The mission that a program wants to launch, and its root.

        Raises `NOT_ALLOWED` for what is not listed, `INVALID_ARGUMENT`, `INVALID_MISSION`.
        """
        if (asked.mission is None) == (asked.spec is None):
            message = "a launch names a listed mission, or states the spec of one; one of both is expected"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
        given = None if asked.root is None else self.root(asked.root)
        if asked.mission is None:
            return _stated(asked, given)
        return self._listed(asked.mission, asked, given)

    def root(self, stated: str) -> Path:
        """The root that is called so. Raises `NOT_ALLOWED` if it is not listed."""
        if stated in self.roots:
            return Path(stated)
        message = f"{stated[:200]!r} is not a listed root; {nearest(stated, self.roots)}"
        raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=LIST)

    def _listed(self, name: str, asked: Launch, given: Path | None) -> tuple[MissionSpec, Path]:
        if name not in self.missions:
            message = f"{name!r} is not a listed mission; {nearest(name, [*self.missions])}"
            raise LcpError(ErrorCode.NOT_ALLOWED, message, advice=LIST)
        path = self.missions[name]
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as refused:
            fact = refused.strerror if isinstance(refused, OSError) else "it is not UTF-8"
            message = f"mission {name!r} cannot be read: {fact}"
            raise LcpError(ErrorCode.INVALID_MISSION, message, advice=GENERAL) from refused
        outline = outline_mission(text, source=name)
        if given is None and outline.root is None:
            message = f"mission {name!r} states no root; name a listed one"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        root = resolve_root(outline.root, path.parent, given)
        planner = asked.planner
        if planner is None and outline.planner is None and not outline.has_plan:
            planner = {"type": usual_planner(os.environ)}
        settings = [] if planner is None else [f"planner={json_line(planner)}"]
        variables = with_found(outline, asked.variables, lambda: root)
        return parse_mission(text, source=name, variables=variables, settings=settings), root


def _stated(asked: Launch, given: Path | None) -> tuple[MissionSpec, Path]:
    if given is None:
        message = "a mission that is stated needs a root; name a listed one"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
    if asked.variables:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, "a mission that is stated has no variables", advice=GENERAL
        )
    spec = dict(asked.spec or {})
    if "root" in spec:
        raise LcpError(
            ErrorCode.INVALID_MISSION, "spec.root: the root of a launch is its `root`", advice=GENERAL
        )
    if asked.planner is not None:
        spec["planner"] = asked.planner
    elif "planner" not in spec and "plan" not in spec:
        spec["planner"] = {"type": usual_planner(os.environ)}
    return build_mission(spec, source="spec"), resolve_root(None, given, given)


def offers_of(roots: Sequence[Path], missions: Sequence[str]) -> Offers:
    """The offers of an operator: directories, and missions by shipped name or file. Raises `INVALID_ARGUMENT`."""
    for root in roots:
        if not root.is_dir():
            raise LcpError(ErrorCode.INVALID_ARGUMENT, f"root {str(root)!r} is not a directory")
    shipped, found = shipped_missions(), dict[str, Path]()
    for stated in missions:
        path = shipped.get(stated) or Path(stated)
        if not path.is_file():
            message = (
                f"mission {stated!r} is neither a file nor a shipped mission; {nearest(stated, [*shipped])}"
            )
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
        found[path.stem] = path.resolve()
    return Offers(tuple(str(root.resolve()) for root in roots), found)
