"""Launch a shipped mission over a directory, or a mission file of one's own after a dry check."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from lcp_engine.core.health import Finding
from lcp_engine.core.mission.parse import outline_mission, parse_mission
from lcp_engine.core.mission.spec import MissionSpec, expected_result
from lcp_engine.core.policy import Verdict
from lcp_engine.core.safe_text import json_line
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.features.authoring.dry_run import DryRun, dry_run
from lcp_engine.features.models.examination import examine_planner
from lcp_engine.features.programs.suites.found_suites import with_found
from lcp_engine.planners.registry import make_planner, planner_names, usual_planner
from lcp_engine.settings import resolve_root
from lcp_engine.shipped_missions import find_mission, offers
from lcp_engine.web.context import PageContext, context_of
from lcp_engine.web.forms import Form
from lcp_engine.web.mission_lines import faults_in, marked_lines

DEFAULT_MISSION = "survey"
"""The mission that is preselected; it needs no model."""
_TEST = "test"
OWN = "mission"
"""What errors call the mission that was typed."""
ROOT_CODES = frozenset({ErrorCode.PATH_NOT_FOUND, ErrorCode.PATH_DENIED, ErrorCode.ROOT_CHANGED})
NO_PLANNER = "the mission names no planner, and LCP_PLANNER is not set: choose a planner below"
NO_PLANNER_OF_ITS_OWN = (
    "the mission names no planner, and LCP_PLANNER is not set: add one, such as `planner: {type: human}`"
)
_NAME_ONE = "Name a planner in the mission, or set LCP_PLANNER where the page is served."


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
        if form.text("way") == _TEST:
            given = {field: form.text(field) for field in form.fields}
            return _show(context, mission=name, root=root, given=given, findings=_tested(context, spec))
        launched = context.engine.launch(
            spec, root=resolve_root(spec.root, Path.cwd(), directory), key=form.text("key") or None
        )
    except LcpError as refused:
        given = {field: form.text(field) for field in form.fields}
        return _show(
            context, status=refused.status, mission=name, root=root, problem=str(refused), given=given,
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
    findings: Sequence[Finding] = (),
) -> Response:
    return context.render(
        "launch.html",
        findings=findings,
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


def _tested(context: PageContext, spec: MissionSpec) -> list[Finding]:
    """Results of ten short questions to the model of a mission; a planner without one is only made."""
    environment = context.engine.instance.planner_environment
    return [*examine_planner(spec.planner, environment, expected_result(spec))]


def own_form(request: Request) -> Response:
    """The form for a mission file of one's own."""
    return _show_own(context_of(request))


def launch_own(context: PageContext, request: Request, form: Form) -> Response:
    """Check the mission that was typed, or launch it; what is refused says why, and nothing that was typed is lost."""
    try:
        spec, root = _load_own(form)
        if form.text("way") == _TEST:
            return _show_own(context, form, findings=_tested(context, spec))
        instance = context.engine.instance
        found = dry_run(spec, root, instance.url, instance.admission, instance.planner_environment)
        if form.text("way") != "launch":
            return _show_own(context, form, found=found)
        launched = context.engine.launch(spec, root=root, key=form.text("key") or None)
    except LcpError as refused:
        return _show_own(context, form, status=refused.status, refused=refused)
    return RedirectResponse(f"/missions/{launched.id}?note=launched", 303)


def _load_own(form: Form) -> tuple[MissionSpec, Path]:
    """The mission that was typed, with its variables, and its root."""
    text, variables = form.verbatim("text"), {}
    if not text.strip():
        raise LcpError(ErrorCode.INVALID_MISSION, f"{OWN}: enter the text of a mission file, YAML or JSON")
    for line in filter(str.strip, form.text("variables").splitlines()):
        name, given, value = line.partition("=")
        if not given or not name.strip():
            message = f"variables: one NAME=VALUE a line is expected, not {line.strip()[:80]!r}"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, {"field": "variables"})
        variables[name.strip()] = value.strip()
    settings: list[str] = []
    outline = outline_mission(text, source=OWN)
    if outline.planner is None and not outline.has_plan:
        settings.append(f"planner={json_line({'type': _default_planner(NO_PLANNER_OF_ITS_OWN)})}")
    stated = form.text("root")
    override = _directory(stated) if stated else None
    variables = with_found(outline, variables, lambda: resolve_root(outline.root, Path.cwd(), override))
    spec = parse_mission(text, source=OWN, variables=variables, settings=settings)
    return spec, resolve_root(spec.root, Path.cwd(), override)


def _own_at_fault(refused: LcpError) -> str:
    """The planner is part of the text."""
    field = _at_fault(refused)
    return field if field in ("root", "variables") else "text"


def _show_own(
    context: PageContext, form: Form | None = None, *, status: int = 200,
    refused: LcpError | None = None, found: DryRun | None = None, findings: Sequence[Finding] = (),
) -> Response:  # fmt: skip
    """The form with what was typed, and what the mission would do if it was checked."""
    typed = form or Form({})
    kinds = [] if found is None else found.kinds
    text = typed.verbatim("text")
    faults = [] if refused is None else faults_in(text, refused)
    return context.render(
        "launch_own.html",
        status=status,
        findings=findings,
        text=text,
        variables=typed.verbatim("variables"),
        root=typed.text("root"),
        key=typed.text("key") or f"page-{secrets.token_urlsafe(12)}",
        problem="" if refused is None else str(refused),
        at_fault="" if refused is None else _own_at_fault(refused),
        faults=faults,
        lines=marked_lines(text, faults),
        found=found,
        verdicts=[
            (label, [kind.kind for kind in kinds if kind.verdict is verdict])
            for verdict, label in (
                (Verdict.AUTO, "Runs"),
                (Verdict.HOLD, "Waits for you"),
                (Verdict.DENY, "Denied"),
            )
        ],
    )


def _at_fault(refused: LcpError) -> str:
    """The field to change: the directory, the planner, or one that the error names; empty if it is none of these."""
    if refused.code in ROOT_CODES:
        return "root"
    return "planner" if refused.code is ErrorCode.NO_PLANNER else str(refused.failed.details.get("field", ""))


def _load(name: str, form: Form) -> MissionSpec:
    """The mission with the variables and the planner from the form; empty fields are not given."""
    text = find_mission(name).read_text(encoding="utf-8")
    outline = outline_mission(text, source=name)
    given = {variable: form.text(f"{name}.{variable}") for variable in outline.variables}
    settings: list[str] = []
    if chosen := form.text("planner"):
        settings.append(f"planner={json_line({'type': chosen})}")
    elif outline.planner is None:
        settings.append(f"planner={json_line({'type': _default_planner(NO_PLANNER)})}")
    stated = form.text("root")
    variables = with_found(
        outline,
        {variable: value for variable, value in given.items() if value},
        lambda: resolve_root(outline.root, Path.cwd(), _directory(stated) if stated else None),
    )
    return parse_mission(text, source=name, variables=variables, settings=settings)


def _default_planner(message: str) -> str:
    """The planner of a mission that names none. Raises `NO_PLANNER` with the message of a form."""
    try:
        return usual_planner(os.environ)
    except LcpError as refused:
        raise LcpError(ErrorCode.NO_PLANNER, message, advice=_NAME_ONE) from refused


def _directory(text: str) -> Path:
    if not text:
        raise LcpError(ErrorCode.INVALID_ARGUMENT, "root: enter a directory", {"field": "root"}, GENERAL)
    try:
        return Path(text).expanduser()
    except RuntimeError as refused:
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND, f"root: {text!r} refers to a user who does not exist on this machine"
        ) from refused
