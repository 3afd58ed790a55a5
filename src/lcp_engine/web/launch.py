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
from lcp_engine.web.context import Desk, desk_of
from lcp_engine.web.error_pages import status_of
from lcp_engine.web.form_post import Form

USUAL = "survey"
"""The mission that is chosen already: it needs no model."""


def launch_form(request: Request) -> Response:
    """The form."""
    return _show(desk_of(request), mission=request.query_params.get("mission", USUAL))


def launch(desk: Desk, request: Request, form: Form) -> Response:
    """Store the mission. The same form sent twice launches once."""
    name, root = form.text("mission"), form.text("root")
    try:
        spec, directory = _load(name, form), _directory(root)
        # A planner that is not there is known now, not at the first turn.
        make_planner(spec.planner, desk.engine.site.surroundings)
        launched = desk.engine.launch(
            spec, root=resolve_root(spec.root, Path.cwd(), directory), key=form.text("key") or None
        )
    except LcpError as refused:
        given = {field: form.text(field) for field in form.fields}
        return _show(
            desk, status=status_of(refused), mission=name, root=root, problem=str(refused), given=given
        )
    return RedirectResponse(f"/missions/{launched.id}?note=launched", 303)


def _show(
    desk: Desk,
    *,
    status: int = 200,
    mission: str,
    root: str = "",
    problem: str = "",
    given: Mapping[str, str] = {},
) -> Response:
    return desk.page(
        "launch.html",
        status=status,
        offers=offers(),
        planners=[name for name in planner_names() if name != "script"],
        mission=mission,
        root=root or str(Path.cwd()),
        key=f"page-{secrets.token_urlsafe(12)}",
        problem=problem,
        given=given,
    )


def _load(name: str, form: Form) -> MissionSpec:
    """The mission with the variables and the planner of the form; what is left empty is not given."""
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
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "root: a directory is expected; none is named")
    try:
        return Path(text).expanduser()
    except RuntimeError as refused:
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND, f"root: {text!r} names a person who is not known here"
        ) from refused
