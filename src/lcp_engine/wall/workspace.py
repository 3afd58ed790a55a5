"""Prepare what a command of a mission works in: the root at its own path, below what it changes (R32)."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.own_places import make_private
from lcp_engine.sandbox.root import Root
from lcp_engine.wall.git_view import view_of_git
from lcp_engine.wall.ignored import IgnoredFiles, read_ignored
from lcp_engine.wall.installed_packages import SHARED
from lcp_engine.wall.masks import Masks, Rights, make_masks
from lcp_engine.wall.steps import Found
from lcp_engine.wall.upper import Changes, read_stamp, read_upper
from lcp_engine.wall.view import HOME, Bind, Overlay, View


@dataclass(frozen=True)
class Ground:
    """A mission's directory for the wall, which it has alone; `run` names one run of a command in it."""

    directory: Path
    run: str
    found: Found


@dataclass(frozen=True)
class Workspace:
    """A place for one command: it sees `view`, the root at `made.path`, and leaves its changes in `made.up`."""

    made: _Made
    view: View
    lower: tuple[str, ...]
    masks: Masks
    start: int
    """The time of the root's file system when it began (`read_stamp`)."""
    ignored: IgnoredFiles
    without_git: str
    """Reason why it does not see the repository of the root; empty if it does, or there is none."""
    own: frozenset[str]
    """Names in the root at which something else is shown."""

    @property
    def caches(self) -> Path:
        """A directory for what it writes into caches of the user's home."""
        return self.made.place / "caches"

    def changes(self) -> Changes:
        """Everything that it changed. Raises OSError."""
        found = read_upper(
            str(self.made.up), self.lower, start=self.start, ignored=self.ignored, mask=self.masks.directory
        )
        return replace(found, changes=tuple(one for one in found.changes if one.path not in self.own))


@contextmanager
def workspace(root: Root, ground: Ground, rights: Rights) -> Iterator[Workspace]:
    """A workspace over the root, or over a stage of it, removed at the end. Raises OSError, `TOO_LARGE`."""
    place = ground.directory
    with held(place), ExitStack() as stack:
        run = place / "runs" / ground.run
        remove_tree(run)  # of an attempt that was interrupted
        stack.callback(remove_tree, run)
        made = _made(root, run)
        repository = root if root.copy_of is None else stack.enter_context(Root(root.copy_of))
        git = stack.enter_context(view_of_git(repository, place / "git", rights, made.path))
        is_own = root.copy_of is None
        rights = replace(rights, shows_git=git.is_shown and is_own)
        masks = stack.enter_context(make_masks(root, place / "mask", rights))
        lower = (root.path, masks.directory)
        overlays = [Overlay(made.path, lower, str(made.up), str(made.work)), *git.overlays]
        own = set[str]()
        if not is_own:
            if git.is_shown:
                made.directory("up/.git")
            led_to = [one for one in SHARED if os.path.islink(f"{root.path}/{one}")]
            there = [one for one in led_to if os.path.isdir(f"{made.path}/{one}")]
            overlays += [stack.enter_context(_packages(made, place, one, rights)) for one in there]
            own = {".git", *SHARED}
        view = View(
            overlays=tuple(overlays),
            binds=(Bind(str(made.home), HOME, writable=True),),
            user=made.owner,
            environment={**git.environment},
        )
        ignored, start = read_ignored(root.descriptor), read_stamp(root.descriptor)
        yield Workspace(made, view, lower, masks, start, ignored, git.reason, frozenset(own))


@contextmanager
def _packages(made: _Made, place: Path, name: str, rights: Rights) -> Iterator[Overlay]:
    """The installed packages of the root that a stage leads to, in the place of the link."""
    made.directory(f"up/{name}")
    upper, work = made.directory(f"up-{name}"), made.directory(f"work-{name}")
    of_packages = Rights(
        lambda path: rights.may_read(f"{name}/{path}"),
        f"{name} {rights.policy}",
        frozenset(one.removeprefix(f"{name}/") for one in rights.opened if one.startswith(f"{name}/")),
    )
    with (
        Root(f"{made.path}/{name}") as packages,
        make_masks(packages, place / f"mask-{name}", of_packages) as masks,
    ):
        os.chmod(upper, stat.S_IMODE(os.fstat(packages.descriptor).st_mode))
        yield Overlay(packages.path, (packages.path, masks.directory), str(upper), str(work))


def owner_of(root: Root) -> tuple[int, int] | None:
    """User and group that commands in a root run as, if this process is root and the root is another user's."""
    status = os.fstat(root.descriptor)
    return (status.st_uid, status.st_gid) if os.getuid() == 0 and status.st_uid != 0 else None


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Make a directory, and keep others from removing it meanwhile (`remove_unheld`)."""
    while True:
        make_private(directory)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if os.fstat(descriptor).st_nlink:
                yield
                return
        finally:
            os.close(descriptor)


def remove_unheld(directory: Path) -> bool:
    """Remove the directory of a mission for the wall, unless a command runs in it. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_tree(directory)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@dataclass(frozen=True)
class _Made:
    """The directories of one command. They belong to `owner`, if that is not the user of this process."""

    path: str
    place: Path
    owner: tuple[int, int] | None

    @property
    def up(self) -> Path:
        return self.place / "up"

    @property
    def work(self) -> Path:
        return self.place / "work"

    @property
    def home(self) -> Path:
        return self.place / "home"

    def directory(self, name: str) -> Path:
        """Make a directory beside these."""
        made = self.place / name
        made.mkdir(mode=0o700)
        if self.owner is not None:
            os.chown(made, *self.owner)
        return made


def _made(root: Root, run: Path) -> _Made:
    owner = owner_of(root)
    run.mkdir(mode=0o700, parents=True)
    made = _Made(root.copy_of or root.path, run, owner)
    for name in ("up", "work", "home"):
        made.directory(name)
    os.chmod(
        made.up, stat.S_IMODE(os.fstat(root.descriptor).st_mode)
    )  # the topmost directory is the one that is seen
    return made
