"""Missions that programs may launch: those over roots, and from files, that the operator listed."""

from __future__ import annotations

import os
from pathlib import Path

from lcp_engine import MissionSpec
from lcp_engine.core.mission.parse import build_mission, outline_mission, parse_mission
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.http_api.values import Launch
from lcp_engine.features.programs.suites.found_suites import with_found
from lcp_engine.features.tokens.offers import Offers
from lcp_engine.planners.registry import usual_planner
from lcp_engine.settings import resolve_root


def chosen(offers: Offers, asked: Launch) -> tuple[MissionSpec, Path]:
    """The mission that a program wants to launch, and its root.

    Raises `NOT_ALLOWED` for what is not listed, `INVALID_ARGUMENT`, `INVALID_MISSION`.
    """
    if (asked.mission is None) == (asked.spec is None):
        message = "a launch names a listed mission, or states the spec of one; one of both is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=GENERAL)
    given = None if asked.root is None else offers.root(asked.root)
    if asked.mission is None:
        return _stated(asked, given)
    return _listed(asked.mission, offers.mission(asked.mission), asked, given)


def _listed(name: str, path: Path, asked: Launch, given: Path | None) -> tuple[MissionSpec, Path]:
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
