"""Launch a shipped mission over a directory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.core.mission.parse import outline_mission, parse_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.planners.registry import make_planner, planner_names, usual_planner
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import find_mission, offers
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.error_pages import status_of
from lcp_engine.web.forms import Form

DEFAULT_MISSION = "survey"
"""The mission that is preselected; it needs no model."""
ROOT_CODES = frozenset({ErrorCode.PATH_NOT_FOUND, ErrorCode.PATH_DENIED, ErrorCode.ROOT_CHANGED})
NO_PLANNER = "the mission names no planner, and LCP_PLANNER is not set: choose a planner below"


def launch_form(request: Request) -> Response:
    """The form."""
    return _show(context_of(request), mission=request.query_params.get("mission", DEFAULT_MISSION))


def launch(context: PageContext, request: Request, form: Form) -> Response:
    """Launch the mission. The same form submitted twice launches it once."""
    name, root = form.text("mission"), form.text("root")
    try:
        spec, directory = _load(name, form), _directory(root)
        # A planner that does not exist is reported now, not at the first turn.
        make_planner(spec.planner, context.engine.instance.planner_environment)
        launched = context.engine.launch(
            spec, root=resolve_root(spec.root, Path.cwd(), directory), key=form.text("key") or None
        )
    except LcpError as refused:
        given = {field: form.text(field) for field in form.fields}
        problem = (
            NO_PLANNER if refused.code is ErrorCode.NO_PLANNER and not form.text("planner") else str(refused)
        )
        return _show(
            context, status=status_of(refused), mission=name, root=root, problem=problem, given=given,
            at_fault=_at_fault(refused),
        )  # fmt: skip
    return RedirectResponse(f"/missions/{launched.id}?note=launched", 303)


def _show(
    context: PageContext,
    *,
    status: int = 200,
    mission: str,
    root: str = "",
    problem: str = "",
    given: Mapping[str, str] = {},
    at_fault: str = "",
) -> Response:
    return context.render(
        "launch.html",
        status=status,
        offers=offers(),
        planners=[name for name in planner_names() if name != "script"],
        mission=mission,
        root=root or str(Path.cwd()),
        key=f"page-{secrets.token_urlsafe(12)}",
        problem=problem,
        given=given,
        at_fault=at_fault,
    )


def _at_fault(refused: LcpError) -> str:
    """The field that has to be changed; empty if it is neither the directory nor the planner."""
    if refused.code in ROOT_CODES or str(refused).startswith("root:"):
        return "root"
    return "planner" if refused.code is ErrorCode.NO_PLANNER else ""


def _load(name: str, form: Form) -> MissionSpec:
    """The mission with the variables and the planner from the form; empty fields are not given."""
    text = find_mission(name).read_text(encoding="utf-8")
    outline = outline_mission(text, source=name)
    given = {variable: form.text(f"{name}.{variable}") for variable in outline.variables}
    settings: list[str] = []
    if chosen := form.text("planner"):
        settings.append(f"planner={json_line({'type': chosen})}")
    elif outline.planner is None:
        settings.append(f"planner={json_line({'type': usual_planner(os.environ)})}")
    variables = {variable: value for variable, value in given.items() if value}
    return parse_mission(text, source=name, variables=variables, settings=settings)


def _directory(text: str) -> Path:
    if not text:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "root: enter a directory")
    try:
        return Path(text).expanduser()
    except RuntimeError as refused:
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND, f"root: {text!r} refers to a user who does not exist on this machine"
        ) from refused
