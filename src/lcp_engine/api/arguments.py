"""Check the arguments of `Engine`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine.core.kinds import kind_named
from lcp_engine.core.mission.parse import build_mission
from lcp_engine.core.mission.spec import MissionSpec, expected_result
from lcp_engine.engine.admission import with_known_kinds
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import mission_checks, steps
from lcp_engine.errors import GENERAL, ErrorCode, LcpError
from lcp_engine.planners.base import Planner
from lcp_engine.planners.environment import refuse_without_price
from lcp_engine.planners.registry import make_planner
from lcp_engine.planners.simple import check_script
from lcp_engine.sandbox.root import unfit_root
from lcp_engine.sandbox.root_identity import KnownRoot, identity_at, is_in_place
from lcp_engine.store.queries.mission_spec import known_root
from lcp_engine.workers.base import Worker, Workers, params_of

LONGEST_DELAY = 100 * 365 * 24 * 3600
"""Seconds."""
HIGHEST_PRIORITY = 2**31 - 1


def checked_spec(
    instance: Instance, spec: MissionSpec | Mapping[str, JsonValue], *, allow_admin: bool
) -> MissionSpec:
    """The mission, with a planner that can be made: errors show now and not at the first turn.

    Raises `INVALID_MISSION`, `NO_PLANNER`, and `NOT_ALLOWED` for what a feature does not allow.
    """
    known = spec if isinstance(spec, MissionSpec) else build_mission(dict(spec), source="mission")
    planner = make_planner(known.planner, instance.planner_environment)
    refuse_without_price(planner, known.limits, instance.planner_environment.prices)
    known = check_kinds(known, planner, instance.admission.workers)
    for check in mission_checks():
        check(instance, known)
    return known.model_copy(update={"allow_admin": allow_admin})


def check_kinds(
    spec: MissionSpec, planner: Planner, workers: Workers, *, source: str = "mission"
) -> MissionSpec:
    """The mission, with kinds under their own names, once its script and its plan are found to be valid with them.

    Raises `INVALID_MISSION`; `source` names the mission.
    """
    check_script(planner, spec.planner, params_of(workers), expected_result(spec), source=source)
    known = with_known_kinds(spec, workers, source=source)
    steps().check(known, workers, source)
    return known


def asks_planner(spec: MissionSpec, workers: Workers) -> bool:
    """True for a mission whose plan has steps that ask its planner."""
    return steps().asks_planner(spec, workers)


def existing_directory(root: str | os.PathLike[str]) -> Path:
    """`root`, absolute. Raises `PATH_NOT_FOUND`, `NOT_A_FILE`, and `INVALID_ARGUMENT` for the whole file system."""
    path = Path(root)
    try:
        if (unfit := unfit_root(str(path), str(path.resolve()))) is not None:
            raise LcpError.of(unfit)
        exists, is_directory = path.exists(), path.is_dir()
    except OSError as error:  # a directory above it may not be searched
        message = f"root {path} cannot be read: {error.strerror}; a directory is expected"
        raise LcpError(ErrorCode.PATH_NOT_FOUND, message) from error
    if not exists:
        raise LcpError(ErrorCode.PATH_NOT_FOUND, f"root {path} does not exist; a directory is expected")
    if not is_directory:
        message = f"root {path} is a file; a directory is expected"
        raise LcpError(ErrorCode.NOT_A_FILE, message, advice="Name a directory.")
    return path.resolve()


def fork_point(turn: int | None, step: str | None, reply: str | None) -> int | str:
    """Where a fork begins: at a turn or a step. Raises `INVALID_ARGUMENT` unless one of both is given."""
    if (turn is None) == (step is None):
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT,
            "a fork begins at a turn or at a step; one of both is expected",
            advice=GENERAL,
        )
    if step is not None and reply is not None:
        raise LcpError(
            ErrorCode.INVALID_ARGUMENT, "a reply is for a turn; a fork at a step takes none", advice=GENERAL
        )
    return step if step is not None else turn or 0


def new_root(instance: Instance, mission_id: int, directory: Path) -> KnownRoot:
    """Another root for a mission. Raises `WRONG_STATE` while the one that it has is in its place."""
    old = instance.database.read(lambda tx: known_root(tx, mission_id))
    if old is not None and old.path != str(directory) and is_in_place(old):
        fact = f"the root of mission {mission_id} is still at {old.path!r}"
        message = f"{fact}; only a root that is gone or replaced can be changed"
        advice = "Move that directory away first: a runner may be at work in it."
        raise LcpError(ErrorCode.WRONG_STATE, message, advice=advice)
    return KnownRoot(mission_id, str(directory), identity_at(directory))


def check_delay(delay: float) -> None:
    """Raise `INVALID_ARGUMENT` unless `delay` is a number of seconds from 0 to `LONGEST_DELAY`."""
    if not 0 <= delay <= LONGEST_DELAY:  # false for NaN, too
        message = f"delay is {delay}; a number of seconds from 0 to {LONGEST_DELAY} is expected"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def check_priority(priority: int) -> None:
    """Raise `INVALID_ARGUMENT` for a priority that no column holds."""
    if not -HIGHEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        message = (
            f"priority is {priority}; a number from {-HIGHEST_PRIORITY} to {HIGHEST_PRIORITY} is expected"
        )
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message)


def known_worker(workers: Workers, kind: str) -> Worker[BaseModel]:
    """The worker of a kind. Raises `NO_WORKER`."""
    worker = workers.get(kind_named(kind, workers))
    if worker is None:
        known = ", ".join(sorted(workers))
        message = f"no worker executes kind {kind!r}; the kinds are {known}"
        raise LcpError(
            ErrorCode.NO_WORKER, message, advice="Use one of these kinds, or install a worker for it."
        )
    return worker
