"""Make the stage of a mission, find it again, and remove it when nothing needs it any more (R28).

A copy is not synced to the disk when it is made, which would take longer than the copy, but before the first change in
it is recorded. One that was not synced when its machine stopped may be damaged; it holds nothing, and is made again.

A stage lies in the engine's directory of stages, in one named after its mission, under a name that is never used again.
It is recorded once the copy is whole: what has no row is left over, and goes when nobody is making it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import uuid4

from pydantic import JsonValue

from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore, RootProvider
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.command_places import remove_walls
from lcp_engine.features.programs.wall.views.shown_directories import forget_ignored
from lcp_engine.features.stages.merge_contents import remove_kept
from lcp_engine.features.stages.mission_keys import StageKeys
from lcp_engine.features.stages.private_copy import copy_privately
from lcp_engine.features.stages.store import (
    StageRow,
    drop_stage,
    ended_as,
    forget_stage,
    keep_stage,
    stage_of,
    staged_missions,
    stages_over,
)
from lcp_engine.sandbox import directories
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import RootIdentity, open_known, this_machine
from lcp_engine.sandbox.synced_copy import marker_of
from lcp_engine.sandbox.system.own_places import make_private
from lcp_engine.store.db.database import Database
from lcp_engine.store.db.json_text import from_json
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.host.liveness import this_host
from lcp_engine.store.ledger import ledger_of
from lcp_engine.store.missions import status_of

OF_DATABASE = "database"
"""A file beside the stages that names the SQLite file they belong to."""
LOOK_SECONDS = 10.0
"""How often a runner looks for stages that are no longer needed."""
MOST_NAMED = 20
"""What was left out of a copy and is named in the history."""


def open_stage(database: Database, directory: Path, mission_id: int, open_root: Callable[[], Root]) -> Root:
    """The stage of a mission, made of the root that `open_root` opens if there is none yet.

    Raises `LcpError`: what `open_root` and the copy raise, `PATH_NOT_FOUND` and `ROOT_CHANGED` for a stage that is not
    where it was, and `WRONG_STATE` for a mission that has ended and whose stage is gone.
    """
    found = database.read(lambda tx: stage_of(tx, mission_id))
    if found is not None and found.machine == this_machine() and _may_be_damaged(Path(found.path)):
        database.write(partial(forget_stage, mission_id=mission_id, path=found.path))
        found = None
    if found is None:
        with open_root() as root:
            found = _make(database, directory, mission_id, root)
    if found.machine != this_machine():
        message = f"the stage of mission {mission_id} is on another machine, whose runners go on with it"
        raise LcpError(ErrorCode.ROOT_CHANGED, message, advice="Start a runner there.")
    try:
        return open_known(found.known)
    except LcpError as error:
        message = (
            f"the stage of mission {mission_id}, {found.path!r}, is gone, and what was not merged with it"
        )
        advice = (
            f"Put the directory back, or cancel the mission (`lcp cancel {mission_id}`) and launch it again."
        )
        raise LcpError(error.code, message, advice=advice) from error


def _may_be_damaged(path: Path) -> bool:
    """True if the machine was started anew before the stage was synced."""
    boot = path.name.partition("-")[2]
    return boot not in ("", _this_boot()) and not marker_of(path).exists()


def _this_boot() -> str:
    return this_host().boot[:8]


def _make(database: Database, directory: Path, mission_id: int, root: Root) -> StageRow:
    place = directory / str(mission_id)
    _check_is_outside(directory, root)
    with _locked(place):
        _note_database(database, directory)
        found = database.read(lambda tx: stage_of(tx, mission_id))
        if found is not None:
            return found  # another thread or process was making it
        status = database.read(lambda tx: ended_as(tx, mission_id))
        if status is not None:
            message = f"the stage of mission {mission_id} is gone, since the mission is {status}"
            advice = (
                f"Resume it (`lcp resume {mission_id}`), which begins with a new stage, or launch it again."
            )
            raise LcpError(ErrorCode.WRONG_STATE, message, advice=advice)
        for left_over in place.iterdir():
            remove_stage(left_over)
        path = place / f"{uuid4().hex[:12]}-{_this_boot()}"
        path.mkdir(mode=0o700)
        try:
            copied = copy_privately(root, path)
        except BaseException:  # also an interrupt
            remove_stage(path)
            raise
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            identity = RootIdentity.of(descriptor).text
        finally:
            os.close(descriptor)
        stage = StageRow(mission_id, this_machine(), str(path), identity)
        named: list[JsonValue] = [*sorted(copied.left_out)[:MOST_NAMED]]
        data: dict[str, JsonValue] = {
            "files": copied.files, "left_out": named, "more": max(0, len(copied.left_out) - MOST_NAMED),
        }  # fmt: skip

        def keep(tx: Tx) -> None:
            ledger = ledger_of(tx)
            ledger.note(ledger.mission(mission_id), "staged", None, data)
            keep_stage(tx, stage)

        database.write(keep)
        return stage


def _check_is_outside(directory: Path, root: Root) -> None:
    if not Path(os.path.realpath(directory)).is_relative_to(root.path):
        return
    message = f"root {root.path!r} holds {str(directory)!r}, where its stage would be; it cannot be copied into itself"
    advice = "Use a smaller directory as the root, or name another place for stages with XDG_STATE_HOME."
    raise LcpError(ErrorCode.INVALID_MISSION, message, advice=advice)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Hold the directory of a mission's stages, made if needed; what nobody holds and has no row is removed."""
    descriptor = None
    while descriptor is None:
        _make_place(place)
        descriptor = _hold(place)
    try:
        yield
    finally:
        os.close(descriptor)


def _hold(place: Path) -> int | None:
    """A descriptor that holds the lock of a directory; None if that was removed meanwhile."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def _make_place(place: Path) -> None:
    try:
        make_private(place)
    except OSError as refused:
        message = f"the directory of stages {refused.filename} cannot be used: {refused.strerror}"
        advice = "Name a directory of your own with XDG_STATE_HOME."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, {"errno": refused.errno}, advice) from refused


def remove_stages(database: Database, directory: Path, walls: Path | None = None) -> None:
    """Remove the stages of this database that nothing needs any more, and what was left over of others.

    In `walls`, the same is done with the places of commands.
    """
    machine = this_machine()
    for mission_id, path in database.read(lambda tx: stages_over(tx, machine)):
        if database.write(partial(drop_stage, mission_id=mission_id, path=path)):
            remove_stage(Path(path))
    remove_kept(database, directory)
    for place in leftovers(database, directory):
        with suppress(OSError):
            _remove_unless_made(database, place)
    remove_walls(database, walls)


def _open(
    instance: Instance, mission_id: int, spec: MissionSpec, open_root: Callable[[], Root]
) -> Root | None:
    if not StageKeys.of(spec).stage or instance.stages is None:
        return None
    return open_stage(instance.database, instance.stages, mission_id, open_root)


def _is_elsewhere(tx: Tx, mission_id: int, spec: str) -> bool:
    stage = stage_of(tx, mission_id) if from_json(spec).get("stage") is True else None
    return stage is not None and stage.machine != this_machine()


ROOT_PROVIDER = RootProvider(_open, _is_elsewhere, is_private=lambda spec: StageKeys.of(spec).stage)


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    if (directory := instance.stages) is not None:
        remove = partial(remove_stages, instance.database, directory, instance.walls)
        yield Chore(
            name="stages", do=remove, seconds=LOOK_SECONDS, is_quick=False, is_first=True, finish=remove
        )


def leftovers(database: Database, directory: Path) -> list[Path]:
    """The directories that belong to no mission with a stage here: of processes that died, or of another database."""
    try:
        found = [place for place in directory.iterdir() if place.name.isdigit()]
    except OSError:
        return []
    used = database.read(lambda tx: staged_missions(tx, this_machine())) if found else frozenset()
    return sorted(place for place in found if int(place.name) not in used)


@dataclass(frozen=True)
class LeftOver:
    """A directory of stages that nothing needs, and why it is there; of another database `mission_id` is None."""

    path: Path
    mission_id: int | None
    why: str
    bytes: int


def left_over_stages(database: Database, directory: Path) -> Iterator[LeftOver]:
    """Remains of stages on this machine: of this database, and of SQLite databases whose file is gone."""
    machine = this_machine()
    for mission_id, path in database.read(lambda tx: stages_over(tx, machine)):
        place = Path(path).parent
        yield LeftOver(place, mission_id, "whose mission has ended", _bytes_beneath(place))
    for place in leftovers(database, directory):
        if not _is_being_made(place):
            mission_id = int(place.name)
            why = _why_left(database.read(partial(status_of, mission_id=mission_id)))
            yield LeftOver(place, mission_id, why, _bytes_beneath(place))
    for other in _others(directory):
        yield LeftOver(other, None, f"of the database {_named(other)}, which is gone", _bytes_beneath(other))


def _why_left(status: str | None) -> str:
    match status:
        case None:
            return "whose mission is not in the database"
        case "running" | "waiting":
            return "whose copy was not finished"
        case _:
            return "whose mission has ended"


def _is_being_made(place: Path) -> bool:
    """True if a process holds the directory now."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _others(directory: Path) -> list[Path]:
    """The directories of stages of other databases whose file is not there any more."""
    try:
        found = [place for place in directory.parent.iterdir() if place != directory]
    except OSError:
        return []
    return sorted(place for place in found if (named := _named(place)) and not Path(named).exists())


def _named(place: Path) -> str:
    """The file of the database whose stages are in a directory; empty if that is not known."""
    try:
        return (place / OF_DATABASE).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _note_database(database: Database, directory: Path) -> None:
    """Say beside the stages which file they belong to, so that what is left of them can be told when it is gone."""
    if isinstance(database.backend, Sqlite):
        with suppress(OSError):
            named = directory / OF_DATABASE
            named.touch(mode=0o600)
            named.write_text(f"{database.backend.path.resolve()}\n", "utf-8")


def _bytes_beneath(place: Path) -> int:
    """The sizes of all files beneath a directory; files that go meanwhile have none."""
    found = 0
    for base, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                found += Path(base, name).lstat().st_size
    return found


def _remove_unless_made(database: Database, place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if database.read(lambda tx: stage_of(tx, int(place.name))) is None:
            for part in place.iterdir():
                remove_stage(part)
            place.rmdir()
    finally:
        os.close(descriptor)


def remove_stage(path: Path) -> None:
    """Remove a stage, or what was left of one, and what is stored beside it."""
    marker_of(path).unlink(missing_ok=True)
    forget_ignored(path)
    directories.remove_tree(path)
