"""Launch a shipped mission over a directory."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.mission import MissionSpec, parse_mission, resolve_root
from lcp_engine.planners.registry import make_planner
from lcp_engine.shipped import find_mission, shipped_missions
from lcp_engine.web.desk import Desk, desk_of
from lcp_engine.web.forms import Form
from lcp_engine.web.refusals import status_of


@dataclass(frozen=True)
class Offer:
    """A mission that can be launched."""

    name: str
    goal: str
    planner: str


def launch_form(request: Request) -> Response:
    """The form."""
    return _show(desk_of(request), mission=request.query_params.get("mission", ""))


def launch(desk: Desk, request: Request, form: Form) -> Response:
    """Store the mission. The same form sent twice launches once."""
    name, root = form.text("mission"), form.text("root")
    try:
        spec, directory = _load(name), _directory(root)
        make_planner(spec.planner)  # a planner that is not there is known now, not at the first turn
        launched = desk.engine.launch(
            spec, root=resolve_root(spec, Path.cwd(), directory), key=form.text("key") or None
        )
    except LcpError as refused:
        return _show(desk, status=status_of(refused), mission=name, root=root, problem=str(refused))
    return RedirectResponse(f"/missions/{launched.id}?note=launched", 303)


def _show(desk: Desk, *, status: int = 200, mission: str, root: str = "", problem: str = "") -> Response:
    offers = [
        Offer(name, spec.goal, spec.planner.type) for name in shipped_missions() for spec in [_load(name)]
    ]
    return desk.page(
        "launch.html",
        status=status,
        offers=offers,
        mission=mission,
        root=root or str(Path.cwd()),
        key=f"page-{secrets.token_urlsafe(12)}",
        problem=problem,
    )


def _load(name: str) -> MissionSpec:
    return parse_mission(find_mission(name).read_text(encoding="utf-8"), source=name)


def _directory(text: str) -> Path:
    if not text:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "root: a directory is expected; none is named")
    try:
        return Path(text).expanduser()
    except RuntimeError as refused:
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND, f"root: {text!r} names a person who is not known here"
        ) from refused
