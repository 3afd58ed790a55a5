"""Prepare what a command of a mission works in: the root at its own path, below what it changes."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.caches import HOME_PART, ROOT, bases_of, part_of, written_caches
from lcp_engine.features.programs.wall.layers.ignored import IgnoredFiles, read_ignored
from lcp_engine.features.programs.wall.layers.layer import Layer, Run, is_for_room
from lcp_engine.features.programs.wall.layers.upper import Changes, Move, read_stamp, read_upper
from lcp_engine.features.programs.wall.steps import Found
from lcp_engine.features.programs.wall.views.covers import Base
from lcp_engine.features.programs.wall.views.git_view import tracked, view_of_git
from lcp_engine.features.programs.wall.views.masks import Masks, Rights, make_masks
from lcp_engine.features.programs.wall.views.mounts import identity_of
from lcp_engine.features.programs.wall.views.shown_directories import Shown, hidden_but, shown_in
from lcp_engine.features.programs.wall.views.view import HOME, Overlay, View
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.kept_descriptors import unlock_and_close
from lcp_engine.sandbox.system.own_places import make_private

_SETTLE_SECONDS = 30.0
_REST_SECONDS = 0.02
_GIT = "git"
_PLACE_OF_GIT = ".git"


@dataclass(frozen=True)
class Ground:
    """A mission's directory for the wall, which it has alone; `run` names one run of a command in it.

    `mission` is a name that no other mission has, whatever database it is in.
    """

    directory: Path
    mission: str
    run: str
    found: Found
    is_settled: Callable[[str], bool | None] = lambda run: False
    """True of an earlier run whose job has succeeded with it; None while that is open."""
    written: Callable[[], Collection[str]] = tuple
    """Paths of the root that the mission has written."""


@dataclass(frozen=True)
class Workspace:
    """A place for one command: it sees `view`, the root at `made.path`, and leaves its changes in `made.up`."""

    made: _Made
    layer: Layer
    view: View
    lower: tuple[str, ...]
    base: Base
    masks: Masks
    hiding: tuple[str, ...]
    """Those of `lower` that hide what may not be seen."""
    start: int
    """The time of the root's file system when it began (`read_stamp`)."""
    ignored: IgnoredFiles
    without_git: str
    """Reason why it does not see the repository of the root; empty if it does, or there is none."""
    repository: Root
    """The root that has the repository: in a stage that of the mission."""

    @property
    def has_written(self) -> bool:
        """True if it may have changed something."""
        with os.scandir(self.made.up) as entries:
            return next(entries, None) is not None

    def changes(self) -> Changes:
        """Everything that it changed. Raises OSError."""
        found = read_upper(
            str(self.made.up),
            self.lower,
            start=self.start,
            ignored=self.ignored,
            tracked=_tracked(self.repository, self.layer.place / _GIT) if self.has_written else frozenset(),
            of_root=self.lower.index(self.masks.directory),
            masks=self.hiding,
        )
        if self.base.path == _opened_again(self.repository):
            return found
        return replace(found, changes=tuple(one for one in found.changes if one.path != _PLACE_OF_GIT))

    def open_to_owner(self, paths: Iterable[str]) -> None:
        """Let this user read what it has left at `paths`, whatever modes that has. Raises OSError."""
        for path in sorted(paths):
            there = self.made.up / path
            os.chmod(there, stat.S_IMODE(there.lstat().st_mode) | (0o700 if path.endswith("/") else 0o400))

    def overlay_of_cache(self, place: str) -> Overlay:
        """A cache of this user, at its own path, below what commands of the mission wrote into it."""
        return self.made.overlay(place, (place,), part_of(place))

    def keep_output(self, changes: Changes, *, is_whole: bool, keeps_caches: bool) -> str:
        """Have later commands find its ignored output and its caches, once its job has succeeded.

        Output only if all else that it changed is there for them (`is_whole`): else builds would lie. What is in caches
        is named by what it is of. They give way to output: if there is no room, they are emptied. Returns what was not
        kept for want of room, and why. Raises `FILE_SYSTEM`.
        """
        output = [Move(f"{ROOT}/{one.path}", one.act) for one in changes.moves if is_whole]
        caches = [*written_caches(self.made.run.up)] if keeps_caches else []
        if (why := self._prepare([*output, *caches])) and (still := self._prepare(output, empties=True)):
            return f"ignored output: {still}" if output else f"caches: {still}"
        return f"caches: {why}" if why and caches else ""

    def _prepare(self, moves: Sequence[Move], *, empties: bool = False) -> str:
        """Write moves down, after all caches were emptied if it `empties` them; returns why there is no room."""
        layer, run = self.layer, self.made.run
        try:
            if empties:
                layer.take_out([one.name for one in layer.layer.iterdir() if one.name != ROOT])
            if moves:
                layer.prepare(run, moves, bases_of(self.base, run.up), self.start)
        except LcpError as error:
            if not is_for_room(error):
                raise
            return str(error)
        return ""


@contextmanager
def workspace(root: Root, ground: Ground, rights: Rights) -> Iterator[Workspace]:
    """A workspace over the root, or over a stage of it. Commands of a mission have one after the other.

    It is removed at the end, but for output that is to be kept. Raises OSError, `TOO_LARGE`, `FILE_SYSTEM`, and
    `WRONG_STATE` if the job of an earlier command is not settled for too long.
    """
    place = ground.directory
    with held(place), ExitStack() as stack:
        layer = Layer(place)
        layer.claim(ground.mission)
        _finish_earlier(layer, ground)
        repository = root if root.copy_of is None else stack.enter_context(root.open_copied())
        shown = Shown() if root.copy_of is None else shown_in(root, repository)
        base = Base(_opened_again(root), _opened_again(repository), shown.directories)
        layer.refresh(bases_of(base, layer.layer))
        made = _Made(root.copy_of or root.path, layer.begin(ground.run), layer.layer, owner_of(root))
        stack.callback(_leave, layer, made.run)
        git = stack.enter_context(view_of_git(repository, place / _GIT, rights, made.path))
        lower, hiding, masked = list[str](), list[str](), frozenset[str]()
        if root.copy_of is None:
            rights = replace(rights, shows_git=git.is_shown)
        else:
            of_root = stack.enter_context(make_masks(repository, place / "mask-root", rights))
            rights = _as_in(of_root, rights)
            if shown.directories:
                around = stack.enter_context(hidden_but(shown, repository, place / "mask-around"))
                lower += (repository.path, of_root.directory, around)
                hiding.append(of_root.directory)
                masked = frozenset(path for path in of_root.masked if _is_in(shown.directories, path))
        masks = stack.enter_context(make_masks(root, place / "mask", rights))
        over_root = made.overlay(made.path, (*lower, root.path, masks.directory), ROOT)
        made.up.chmod(stat.S_IMODE(os.fstat(root.descriptor).st_mode))
        if git.link and root.copy_of is not None:
            (made.up / _PLACE_OF_GIT).write_text(git.link)
            (made.up / _PLACE_OF_GIT).chmod(0o644)
        elif git.is_shown and root.copy_of is not None:
            made.directory(made.up / _PLACE_OF_GIT)
        lowest = identity_of((repository if lower else root).descriptor)
        above = (masks.directory, str(layer.layer / ROOT))
        view = View(
            overlays=(replace(over_root, expected=lowest), *git.overlays, made.overlay(HOME, (), HOME_PART)),
            user=made.owner,
            environment={**git.environment},
        )
        ignored = layer.rules()
        if ignored is None:
            ignored = read_ignored(root.descriptor)
            rules = read_ignored(repository.descriptor, ground.written())
            ignored = replace(ignored, of_root=None if rules == ignored else rules)
            layer.keep_rules(ignored)
        yield Workspace(
            made,
            layer,
            view,
            (base.root, *lower[1:], base.path, *above) if lower else (base.path, *above),
            base,
            replace(masks, masked=masks.masked | masked) if masked else masks,
            (*hiding, masks.directory),
            read_stamp(root.descriptor),
            ignored,
            git.reason,
            repository,
        )


def _opened_again(root: Root) -> str:
    """A path that leads to the directory that is open, whatever is at its own by then."""
    return f"/proc/self/fd/{root.descriptor}"


def _is_in(directories: Iterable[str], path: str) -> bool:
    return any(path.rstrip("/") == one or path.startswith(f"{one}/") for one in directories)


def _as_in(masks: Masks, rights: Rights) -> Rights:
    """Rights that hide in a stage what is hidden in its root: a copy has no hard links that tell what is a secret."""
    return replace(
        rights,
        may_read=lambda path: rights.may_read(path) and not masks.is_masked(path),
        policy=f"{rights.policy} {masks.directory}",
    )


def _tracked(root: Root, place: Path) -> frozenset[str]:
    try:
        return tracked(root, place)
    except ValueError:  # an index of another form: what git tracks is not known
        return frozenset()


def _finish_earlier(layer: Layer, ground: Ground) -> None:
    """Keep the output of commands whose jobs have succeeded by now; what others left is thrown away."""
    until = time.monotonic() + _SETTLE_SECONDS
    while any(one != ground.run and ground.is_settled(one) is None for one in layer.prepared()):
        if time.monotonic() > until:
            raise LcpError(
                ErrorCode.WRONG_STATE,
                f"the job of an earlier command is not settled after {_SETTLE_SECONDS:g} s",
                advice="Request the command again.",
            )
        time.sleep(_REST_SECONDS)
    layer.recover(lambda run: ground.is_settled(run) is True)


def _leave(layer: Layer, run: Run) -> None:
    """Remove what a command wrote, unless its output is to be kept: then its job decides, and the next command asks."""
    if run.id in layer.prepared():
        unlock_and_close(run.lock)
    else:
        layer.drop(run)


def owner_of(root: Root) -> tuple[int, int] | None:
    """User and group that commands in a root run as, if this process is root and the root is another user's."""
    status = os.fstat(root.descriptor)
    return (status.st_uid, status.st_gid) if os.getuid() == 0 and status.st_uid != 0 else None


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make a directory, and have it alone meanwhile (`remove_unheld`)."""
    while True:
        make_private(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if os.fstat(descriptor).st_nlink:
                yield
                return
        finally:
            os.close(descriptor)


def remove_unheld(directory: Path) -> bool:
    """Remove the directory of a mission for the wall, unless a command runs in it. Raises OSError."""
    with _locked(directory) as is_free:
        if is_free:
            remove_tree(directory)
        return is_free


def remove_abandoned_runs(directory: Path) -> bool:
    """Remove what runs of killed processes left in the directory of a mission, unless a command runs in it.

    Output that was prepared to be kept stays for the next command. Raises OSError, `FILE_SYSTEM`.
    """
    with _locked(directory) as is_free:
        if is_free and (runs := directory / "runs").is_dir():
            prepared = Layer(directory).prepared()
            for run in runs.iterdir():
                if run.name not in prepared:
                    remove_tree(run)
        return is_free


def is_held(directory: Path) -> bool:
    """True if a command runs in the directory of a mission, or that cannot be told."""
    try:
        with _locked(directory) as is_free:
            return not is_free
    except OSError:
        return True


@contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Keep commands from beginning in a directory; false if one runs there."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class _Made:
    """The directories of one command. They belong to `owner`, if that is not the user of this process."""

    path: str
    run: Run
    layer: Path
    owner: tuple[int, int] | None

    @property
    def up(self) -> Path:
        """The upper directory over the root."""
        return self.run.up / ROOT

    @property
    def home(self) -> Path:
        """The upper directory of its home."""
        return self.run.up / HOME_PART

    def overlay(self, path: str, lower: Sequence[str], part: str) -> Overlay:
        """A part of the layer over lower directories, seen at `path`, with new directories above it."""
        kept, up, work = (directory / part for directory in (self.layer, self.run.up, self.run.work))
        kept.mkdir(mode=0o700, exist_ok=True)
        self.directory(up)
        self.directory(work)
        return Overlay(path, (*lower, str(kept)), str(up), str(work))

    def directory(self, made: Path) -> None:
        """Make a directory that the command may write in."""
        made.mkdir(mode=0o700)
        if self.owner is not None:
            os.chown(made, *self.owner)
