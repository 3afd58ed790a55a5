"""Find the planner that a mission names: built in, or an entry point of the group `lcp_engine.planners`."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path

from pydantic import JsonValue, ValidationError

from lcp_engine.core.limits.permits import Limit
from lcp_engine.core.mission.spec import PlannerSpec
from lcp_engine.core.refused_values import explain_first
from lcp_engine.core.summaries import nearest, nearest_name
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.feature import installed
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import (
    EMPTY_ENVIRONMENT,
    AsksEndpoint,
    AsksModel,
    Factory,
    Placeable,
    PlannerEnvironment,
)
from lcp_engine.plug_ins import FileFailed, offered_in, run_file
from lcp_engine.sandbox.system.own_places import protect

GROUP = "lcp_engine.planners"

_BROKEN = "Correct the plug-in or install it again."

BUILT_IN: Mapping[str, str] = {
    "none": "lcp_engine.planners.simple:NoPlanner",
    "replay": "lcp_engine.planners.simple:ReplayPlanner",
    "script": "lcp_engine.planners.simple:ScriptPlanner",
}


def make_planner(spec: PlannerSpec, planner_environment: PlannerEnvironment = EMPTY_ENVIRONMENT) -> Planner:
    """The planner that `spec` names, made with its options as keyword arguments.

    Options that the mission leaves out come from the user's configuration; a `Placeable` planner reads that itself.

    Raises `LcpError`: `NO_PLANNER` for an unknown name or a plug-in that cannot be loaded or made, `INVALID_MISSION`
    for options of the mission that do not fit, `INVALID_ARGUMENT` for options of the user that do not.
    """
    known: dict[str, EntryPoint | Planner | Factory] = {**_entry_points(), **planner_environment.own}
    if spec.type not in known:
        close = nearest_name(spec.type, list(known))
        hint = "" if close is None else f"; did you mean {close!r}?"
        message = f"planner.type: no planner is named {spec.type!r}{hint}; known: {', '.join(sorted(known))}"
        raise LcpError(ErrorCode.NO_PLANNER, message, advice=GENERAL)
    try:
        factory = _factory(known[spec.type])
        own = issubclass(factory, Placeable) if isinstance(factory, type) else False
        stated = spec.options if own else {**planner_environment.options.get(spec.type, {}), **spec.options}
        _check_names(spec, factory, stated)
        planner = _speaking(factory(**stated), spec)
        return planner.placed(planner_environment) if isinstance(planner, Placeable) else planner
    except LcpError:
        raise
    except ValidationError as refused:
        raise LcpError(ErrorCode.INVALID_MISSION, explain_first(refused, PlannerSpec, "planner")) from refused
    except (TypeError, ValueError) as refused:
        raise LcpError(ErrorCode.INVALID_MISSION, f"planner {spec.type!r}: {refused}") from refused
    except Exception as raised:  # a plug-in may raise anything; the user needs a sentence
        message = f"planner {spec.type!r}: {type(raised).__name__}: {raised}"
        raise LcpError(ErrorCode.NO_PLANNER, message, advice=_BROKEN) from raised


LIMITS = frozenset({"rate_limit", "max_running"})


def endpoint_limit(spec: PlannerSpec, planner_environment: PlannerEnvironment) -> tuple[str, Limit] | None:
    """Endpoint that a planner asks, and what limits the questions of all missions to it; None without a limit.

    None, too, for a planner that cannot be made: the turn says why.
    """
    given = {name for name in LIMITS if os.environ.get(f"LCP_PLANNER_{name.upper()}")}
    if LIMITS.isdisjoint({*spec.options, *planner_environment.options.get(spec.type, {}), *given}):
        return None  # without loading it
    with suppress(LcpError):
        planner = make_planner(spec, planner_environment)
        return planner.endpoint_limit() if isinstance(planner, AsksEndpoint) else None
    return None


def is_model(planner: Planner) -> bool:
    """True if a model writes the replies, now or when they were stored: their words are checked for echoes."""
    from lcp_engine.planners.simple import ReplayPlanner  # slow to load

    return isinstance(planner, AsksModel | ReplayPlanner)


def _speaking(planner: Planner, spec: PlannerSpec) -> Planner:
    speaks = getattr(planner, "speaks", spec.dialect)
    if speaks != spec.dialect:
        message = f"planner.dialect: {spec.type!r} answers in {speaks!r} alone, not in {spec.dialect!r}"
        raise LcpError(ErrorCode.INVALID_MISSION, message)
    return planner


def usual_planner(environment: Mapping[str, str]) -> str:
    """The planner of a mission that names none: `LCP_PLANNER`, or `openai` if the environment names its server.

    A key alone chooses no planner, because what the mission reads would be sent to that provider. Raises `NO_PLANNER`,
    explaining how to choose.
    """
    name = environment.get("LCP_PLANNER")
    if name:
        return name
    if any(environment.get(f"LCP_PLANNER_{option}") for option in ("ENDPOINT", "BASE_URL", "SERVER")):
        return "openai"
    names = ", ".join(name for name in planner_names() if name not in ("none", "script", "surveyor"))
    message = (
        f"planner: none is named; choose one with `--planner NAME` ({names}), LCP_PLANNER=NAME, "
        "or LCP_PLANNER_ENDPOINT=URL for an OpenAI-compatible server"
    )
    raise LcpError(ErrorCode.NO_PLANNER, message, advice=GENERAL)


def planner_names() -> list[str]:
    """Every name that `make_planner` knows."""
    return sorted(_entry_points())


def _entry_points() -> dict[str, EntryPoint]:
    """Every planner by name; no package can replace one of lcp-engine."""
    built_in = {**BUILT_IN, **installed().planners}
    return {
        **{point.name: point for point in offered_in(GROUP)},
        **{name: EntryPoint(name, target, GROUP) for name, target in built_in.items()},
    }


def own_planners(given: Mapping[str, object]) -> dict[str, Planner | Factory]:
    """Planners of a program, or what makes them, checked. Raises `INVALID_ARGUMENT`."""
    own: dict[str, Planner | Factory] = {}
    for name, planner in given.items():
        if name in BUILT_IN or name in installed().planners:
            message = f"planners: {name!r} is the name of a planner of lcp-engine"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message, advice="Choose another name.")
        if isinstance(planner, Planner) or callable(planner):
            own[name] = planner
        else:
            fact = f"it is {type(planner).__name__}"
            message = (
                f"planners: {name!r} has to have a method answer(question), or to make what has one; {fact}"
            )
            raise LcpError(ErrorCode.INVALID_ARGUMENT, message)
    return own


def load_planner(file: Path) -> dict[str, object]:
    """The planner of a Python file of the operator, by the file's name without `.py`.

    It is what the file calls `planner`, else its only class with a method `answer`. From then on no job of this process
    may read or write the file. Raises `INVALID_ARGUMENT`.
    """
    protect(file.expanduser())  # a job that writes it could run any code
    path = file.expanduser().resolve()

    def refusal(fact: str) -> LcpError:
        message = f"--planner-file {path}: {fact}"
        advice = "Correct the file; docs/python.md has an example."
        return LcpError(ErrorCode.INVALID_ARGUMENT, message, advice=advice)

    if path.suffix != ".py" or not path.is_file():
        raise refusal("a Python file (.py) is expected")
    try:
        module = run_file(path, "lcp_planner_")
    except FileFailed as failed:
        raise refusal(str(failed)) from failed
    if hasattr(module, "planner"):
        return {path.stem: module.planner}
    classes = [
        one
        for one in vars(module).values()
        if isinstance(one, type) and one.__module__ == module.__name__ and hasattr(one, "answer")
    ]
    if len(classes) != 1:
        found = ", ".join(one.__name__ for one in classes) or "none"
        raise refusal(
            f"one class with a method answer(question) is expected, or a variable planner; found: {found}"
        )
    return {path.stem: classes[0]}


def _factory(known: EntryPoint | Planner | Factory) -> Factory:
    """Makes a planner, from an entry point or what a program gave; a planner that is made takes no options."""
    if isinstance(known, EntryPoint):
        return _load(known)
    if isinstance(known, Planner) and not isinstance(known, type):
        made = known
        return lambda: made
    return known


def _load(point: EntryPoint) -> Factory:
    try:
        factory: object = point.load()
    except Exception as raised:  # importing runs a plug-in's code, which may raise anything
        kind = "" if isinstance(raised, ImportError | AttributeError) else f"{type(raised).__name__}: "
        message = f"planner {point.name!r}: {point.value} cannot be imported: {kind}{raised}"
        raise LcpError(ErrorCode.NO_PLANNER, message, advice=_BROKEN) from raised
    if not callable(factory):
        kind = type(factory).__name__
        message = f"planner {point.name!r}: {point.value} should be callable, it is a {kind}"
        raise LcpError(ErrorCode.NO_PLANNER, message, advice=_BROKEN)
    return factory


def _check_names(spec: PlannerSpec, factory: Factory, stated: Mapping[str, JsonValue]) -> None:
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return
    known = {parameter.name for parameter in parameters}
    for name in sorted(set(stated) - known):
        message = f"planner.{name}: is not an option of {spec.type!r}; {nearest(name, list(known))}"
        raise LcpError(ErrorCode.INVALID_MISSION, message)
    required = {p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_POSITIONAL}
    for name in sorted(required - set(stated)):
        raise LcpError(ErrorCode.INVALID_MISSION, f"planner.{name}: is required by {spec.type!r} and missing")
