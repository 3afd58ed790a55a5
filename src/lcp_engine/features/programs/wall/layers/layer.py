"""Keep ignored output and caches of a mission's programs in a layer, from one program to the next.

The directory of a mission has `mask/`, `layer/`, and `runs/ID/` with the upper directory of each program. Output is
moved into the layer by renames from a list, which is durable before the job is settled: a settled job's list is carried
out, if need be again, and the upper directory of any other job is thrown away.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict
from uuid import uuid4

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.layers.ignored import IgnoredFiles, ignored_from_json
from lcp_engine.features.programs.wall.layers.layer_moves import MoveList, carry_out, list_moves, take_out
from lcp_engine.features.programs.wall.layers.trail import DIRECTORY, Trail, statuses_below
from lcp_engine.features.programs.wall.layers.upper import Act, Move
from lcp_engine.features.programs.wall.views.covers import Base, Bases, outdated
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.system.kept_descriptors import keep_from_children, unlock_and_close
from lcp_engine.sandbox.system.own_places import make_private

MOST_BYTES = 4 << 30
MOST_FILES = 500_000
_LIST, _COVERS, _RULES, _OWNER = "moves.json", "covers.json", "ignored.json", "owner"
_FORMAT = "2"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Usage:
    """Room that a layer takes: bytes on disk, and the number of files, links, directories and whiteouts."""

    bytes: int = 0
    files: int = 0


@dataclass(frozen=True)
class Run:
    """Directories of one program, locked until it is settled or dropped: `up` is new and empty, as is `work`."""

    id: str
    place: Path
    lock: int

    @property
    def up(self) -> Path:
        """The upper directory of its overlay."""
        return self.place / "up"

    @property
    def work(self) -> Path:
        """The kernel's directory beside it."""
        return self.place / "work"


class Layer:
    """The directory of a mission's wall at `place`, made if it is missing, for this user alone.

    Programs of a mission follow each other: while one runs, nothing is moved into the layer that it sees. Raises
    `FILE_SYSTEM` wherever the file system refuses something.
    """

    def __init__(self, place: Path, *, most_bytes: int = MOST_BYTES, most_files: int = MOST_FILES) -> None:
        self.place: Final = place
        self._most = Usage(most_bytes, most_files)
        with _refusals(place):
            make_private(place)
            for directory in (self.layer, self.mask, self.runs, self._trash):
                directory.mkdir(mode=0o700, exist_ok=True)

    @property
    def layer(self) -> Path:
        """The highest of the lower directories."""
        return self.place / "layer"

    @property
    def mask(self) -> Path:
        """The lower directory whose whiteouts hide what a program may not see."""
        return self.place / "mask"

    @property
    def runs(self) -> Path:
        """The directories of single programs."""
        return self.place / "runs"

    @property
    def _trash(self) -> Path:
        return self.place / "trash"

    def keep_rules(self, ignored: IgnoredFiles) -> None:
        """Store the rules of the root at the launch, durably."""
        with _refusals(self.place):
            both = [one.as_json() for one in (ignored, ignored.of_root) if one is not None]
            _write(self.place / _RULES, json.dumps(both))

    def rules(self) -> IgnoredFiles | None:
        """The rules that were stored; None if there are none."""
        found = _read(self.place / _RULES)
        if found is None:
            return None
        stored = json.loads(found)
        rules, *of_root = map(ignored_from_json, stored if isinstance(stored, list) else [stored])
        return replace(rules, of_root=of_root[0] if of_root else None)

    def begin(self, run_id: str) -> Run:
        """Make the directories of a program, and lock them.

        Raises `WRONG_STATE` if another program uses them, or moves were left open: `recover` finishes those.
        """
        place = self.runs / run_id
        with _refusals(place):
            if any((one / _LIST).exists() for one in self.runs.iterdir()):
                raise LcpError(
                    ErrorCode.WRONG_STATE,
                    f"{str(self.runs)!r} has moves that were not finished",
                    advice="Start a runner again: it finishes them first.",
                )
            while True:
                lock = self._lock(place, make=True)
                if lock is None:
                    raise LcpError(
                        ErrorCode.WRONG_STATE,
                        f"{str(place)!r} is used by another program",
                        advice="Wait until that one has ended.",
                    )
                run = Run(run_id, place, lock)
                try:
                    for name in os.listdir(place):  # what a program left that was killed
                        self._throw_away(place / name)
                    run.up.mkdir(mode=0o700)
                    run.work.mkdir(mode=0o700)
                except FileNotFoundError:  # another process has just thrown it away
                    unlock_and_close(lock)
                    continue
                except BaseException:
                    unlock_and_close(lock)
                    raise
                return run

    def prepare(self, run: Run, moves: Sequence[Move], base: Base | Bases, start: int) -> Usage:
        """Write the moves of a program down, durably, so that they can be settled once its job is.

        `start` is the stamp from before it started. Returns the usage that the layer will have. Raises `TOO_LARGE` if
        that is more than it may have; nothing is written then, and the program's output can only be dropped.
        """
        with _refusals(run.place):
            state = _State.read(self.place)
            with ExitStack() as stack:
                up, layer = (stack.enter_context(_opened(one)) for one in (run.up, self.layer))
                upper, above = (stack.enter_context(Trail(one, opens_all=True)) for one in (up, layer))
                below = stack.enter_context(base.opened())
                listed = list_moves(upper, above, below, moves, start=start, covered=state.covers)
            usage = self._usage_with(listed, state)
            if listed.moves:
                _write(run.place / _LIST, _text_of(listed, usage))
            return usage

    def prepared(self) -> list[str]:
        """Runs whose moves are written down and not carried out yet."""
        with _refusals(self.place):
            return sorted(one.name for one in self.runs.iterdir() if (one / _LIST).exists())

    def settle(self, run: Run) -> None:
        """Carry out what was prepared, and remove the directories of the program.

        If that is interrupted or refused, it can be called again, or `recover` be.
        """
        with _refusals(run.place):
            self._finish(run.place)
        self.drop(run)

    def drop(self, run: Run) -> None:
        """Remove the directories of a program with all that it wrote."""
        try:
            with _refusals(run.place):
                self._throw_away(run.place)
        finally:
            unlock_and_close(run.lock)
        self._empty_trash()

    def recover(self, is_settled: Callable[[str], bool]) -> list[str]:
        """Settle or drop what programs left that were interrupted; returns the runs whose moves were finished.

        `is_settled` says of a run whether its job is settled. Runs of living processes are left alone.
        """
        finished = []
        with _refusals(self.place):
            for place in sorted(self.runs.iterdir()):
                lock = self._lock(place, make=False)
                if lock is None:
                    continue
                try:
                    if (place / _LIST).exists() and is_settled(place.name):
                        self._finish(place)
                        finished.append(place.name)
                    self._throw_away(place)
                finally:
                    unlock_and_close(lock)
        self._empty_trash()
        return finished

    def refresh(self, base: Base | Bases) -> list[str]:
        """Remove the entries below which the base is not as it was when they were made; returns their paths."""
        with _refusals(self.place), ExitStack() as stack:
            layer = stack.enter_context(_opened(self.layer))
            below = stack.enter_context(base.opened())
            above = stack.enter_context(Trail(layer, opens_all=True))
            gone = [*outdated(above, below, _State.read(self.place).covers)]
        self.take_out(gone)
        return gone

    def take_out(self, paths: Sequence[str]) -> None:
        """Remove entries, with all beneath them."""
        if not paths:
            return
        with _refusals(self.place), _opened(self.layer) as layer:
            with _opened(self._trash) as trash, Trail(layer, opens_all=True) as above:
                for path in paths:
                    take_out(above, path, trash)
            self._empty_trash()  # before something is written, which needs room
            covers = {
                path: mark for path, mark in _State.read(self.place).covers.items() if path not in {*paths}
            }
            _State(covers, _usage(layer)).write(self.place)

    def usage(self) -> Usage:
        """Room that the layer takes."""
        with _refusals(self.layer), _opened(self.layer) as layer:
            return _usage(layer)

    def claim(self, owner: str) -> None:
        """Empty the directory if it was another owner's: numbers of missions come again with a new database.

        So it is if the machine was started anew since: output is not synced, and may be torn after a power failure.
        """
        boot = _BOOT.read_text(encoding="ascii").strip()
        with _refusals(self.place):
            known = _read(self.place / _OWNER)
        this = f"{owner}\n{boot}\n{_FORMAT}"
        if known == this:
            return
        if known is not None:
            self.empty()
        with _refusals(self.place):
            if known is None or known.partition("\n")[0] != owner:
                (self.place / _RULES).unlink(missing_ok=True)
            _write(self.place / _OWNER, this)

    def empty(self) -> None:
        """Remove all that the layer has, and what was left of programs that do not run: the next one starts cold."""
        with _refusals(self.place):
            for place in (*self.runs.iterdir(), self.layer):
                lock = self._lock(place, make=False)
                if lock is None:
                    continue
                try:
                    self._throw_away(place)
                finally:
                    unlock_and_close(lock)
            (self.place / _COVERS).unlink(missing_ok=True)
            self.layer.mkdir(mode=0o700, exist_ok=True)
        self._empty_trash()

    def remove(self) -> bool:
        """Remove the whole directory; false if something in it cannot be removed."""
        remove_tree(self.place)
        return not self.place.exists()

    def _finish(self, place: Path) -> None:
        """Carry out the list of a run, if it has one. The directories of the run are thrown away next."""
        found = _read(place / _LIST)
        if found is None:
            return
        listed, usage = _moves_of(found)
        with _opened(place / "up") as up, _opened(self.layer) as layer, _opened(self._trash) as trash:
            carry_out(listed, up, layer, trash)
            os.fsync(layer)
        _State({**_State.read(self.place).covers, **listed.covers}, usage).write(self.place)

    def _usage_with(self, listed: MoveList, state: _State) -> Usage:
        """Usage after moves. The layer is counted anew only where it would be too large by what is known of it."""
        usage = Usage(state.usage.bytes + listed.bytes, state.usage.files + listed.files)
        if self._allows(usage):
            return usage
        there = self.usage()
        usage = Usage(there.bytes + listed.bytes, there.files + listed.files)
        if self._allows(usage) or not any(move.act is Act.MOVE for move in listed.moves):
            return usage
        raise LcpError(
            ErrorCode.TOO_LARGE,
            f"output and caches of {usage.files:,} files and {usage.bytes:,} bytes are more than a mission may keep:"
            f" {self._most.files:,} files and {self._most.bytes:,} bytes",
            advice="Have commands write less, or remove ignored output by one of them.",
        )

    def _allows(self, usage: Usage) -> bool:
        return usage.bytes <= self._most.bytes and usage.files <= self._most.files

    def _lock(self, place: Path, *, make: bool) -> int | None:
        """A descriptor of a directory that nothing else has locked; None if something has, or it is gone."""
        while True:
            if make:
                with suppress(FileExistsError):
                    place.mkdir(mode=0o700)
            try:
                lock = keep_from_children(os.open(place, DIRECTORY))
            except FileNotFoundError:
                if make:
                    continue
                return None
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                unlock_and_close(lock)
                return None
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(place, follow_symlinks=False), os.fstat(lock)):
                    return lock
            unlock_and_close(lock)
            if not make:
                return None

    def _throw_away(self, place: Path) -> None:
        """Move something away at once; removing it may take long, and be interrupted."""
        with suppress(FileNotFoundError):
            status = os.stat(place, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode) and not status.st_mode & stat.S_IWUSR:
                os.chmod(place, 0o700)  # else it cannot be moved
            os.rename(place, self._trash / uuid4().hex)

    def _empty_trash(self) -> None:
        with suppress(OSError):
            for place in self._trash.iterdir():
                if place.is_dir() and not place.is_symlink():
                    remove_tree(place)
                else:
                    place.unlink()


def is_for_room(error: LcpError) -> bool:
    """True if a layer refused something since it, or its disk, has no room for that."""
    return error.code is ErrorCode.TOO_LARGE or error.failed.details.get("errno") in _FULL


def kept_output(url: str, mission_id: int) -> Usage | None:
    """Room that a mission's layer takes on this machine, as far as it was counted; None if it is empty or missing."""
    from lcp_engine.store.host.liveness import wall_directory  # nothing else here knows of databases

    try:
        usage = _State.read(wall_directory(url) / str(mission_id)).usage
    except OSError:
        return None
    return usage if usage.files else None


class _StoredUsage(TypedDict):
    bytes: int
    files: int


class _StoredState(TypedDict):
    covers: dict[str, str | None]
    usage: _StoredUsage


class _StoredMoves(_StoredState):
    moves: list[tuple[str, str]]
    modes: dict[str, int]


@dataclass(frozen=True)
class _State:
    """Marks of what lies below entries of the layer, and usage as far as it was counted."""

    covers: Mapping[str, str | None]
    usage: Usage

    @classmethod
    def read(cls, place: Path) -> _State:
        text = _read(place / _COVERS)
        if text is None:
            return cls({}, Usage())
        found: _StoredState = json.loads(text)
        return cls(found["covers"], Usage(**found["usage"]))

    def write(self, place: Path) -> None:
        stored = _StoredState(covers=dict(sorted(self.covers.items())), usage=_stored(self.usage))
        _write(place / _COVERS, json.dumps(stored))


def _stored(usage: Usage) -> _StoredUsage:
    return {"bytes": usage.bytes, "files": usage.files}


def _text_of(listed: MoveList, usage: Usage) -> str:
    stored = _StoredMoves(
        moves=[(move.path, move.act.value) for move in listed.moves],
        modes={**listed.modes},
        covers={**listed.covers},
        usage=_stored(usage),
    )
    return json.dumps(stored)


def _moves_of(text: str) -> tuple[MoveList, Usage]:
    found: _StoredMoves = json.loads(text)
    moves = tuple(Move(path, Act(act)) for path, act in found["moves"])
    return MoveList(moves, found["modes"], found["covers"]), Usage(**found["usage"])


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _write(path: Path, text: str) -> None:
    """Replace a file of ASCII text durably. Raises OSError; the file is as it was then."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.rename(path)
        with _opened(path.parent) as directory:
            os.fsync(directory)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """One of our directories; a link in its place is not followed."""
    descriptor = os.open(path, DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _refusals(place: Path) -> Iterator[None]:
    """Raises OSError as `FILE_SYSTEM`."""
    try:
        yield
    except OSError as error:
        message = f"the directory of a mission's commands, {str(place)!r}, cannot be used: {error.strerror}"
        advice = (
            "Make room there, or name a directory on another disk with XDG_STATE_HOME."
            if error.errno in _FULL
            else None
        )
        raise LcpError(ErrorCode.FILE_SYSTEM, message, {"errno": error.errno}, advice) from error


def _usage(layer: int) -> Usage:
    size = files = 0
    seen: set[tuple[int, int]] = set()
    with Trail(layer, opens_all=True) as trail:
        for status in statuses_below(trail):
            files += 1
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                if (status.st_dev, status.st_ino) in seen:
                    continue
                seen.add((status.st_dev, status.st_ino))
            size += status.st_blocks * 512
    return Usage(size, files)
