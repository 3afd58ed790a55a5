"""Prepare what a command of a mission works in: the root at its own path, below what it changes (R32)."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.list_tree import PRUNED
from lcp_engine.sandbox.own_places import make_private
from lcp_engine.sandbox.root import Root
from lcp_engine.wall.ignored import IgnoredFiles, read_ignored
from lcp_engine.wall.masks import Masks, make_masks
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
    """A place for one command: it sees `view`, the root at `path`, and leaves its changes in `up`."""

    path: str
    view: View
    home: Path
    caches: Path
    """A directory for what it writes into caches of the user's home."""
    up: Path
    lower: tuple[str, ...]
    mask: Path
    masks: Masks
    """Paths that it does not see."""

    start: int
    """The time of the root's file system when it began (`read_stamp`)."""
    ignored: IgnoredFiles

    def changes(self) -> Changes:
        """Everything that it changed. Raises OSError."""
        return read_upper(
            str(self.up), self.lower, start=self.start, ignored=self.ignored, mask=str(self.mask)
        )


@contextmanager
def workspace(root: Root, ground: Ground, may_read: Callable[[str], bool]) -> Iterator[Workspace]:
    """A workspace over the root, or over a stage of it, removed at the end. Raises OSError, `FILE_SYSTEM`."""
    with held(ground.directory):
        run = ground.directory / "runs" / ground.run
        remove_tree(run)  # of an attempt that was interrupted
        try:
            yield _made(root, ground.directory, run, may_read)
        finally:
            remove_tree(run)


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


def _made(root: Root, place: Path, run: Path, may_read: Callable[[str], bool]) -> Workspace:
    status = os.fstat(root.descriptor)
    owner = (status.st_uid, status.st_gid) if os.getuid() == 0 and status.st_uid != 0 else None
    up, work, home = (run / name for name in ("up", "work", "home"))
    run.mkdir(mode=0o700, parents=True)
    for directory in (up, work, home):
        directory.mkdir(mode=0o700)
        if owner is not None:
            os.chown(directory, *owner)
    os.chmod(up, stat.S_IMODE(status.st_mode))  # the topmost directory is the one that is seen
    masks = make_masks(root, place / "mask", lambda path: _may_see(path, may_read))
    path = root.copy_of or root.path
    mask = place / "mask"
    lower = (root.path, str(mask))
    ignored, start = read_ignored(root.descriptor), read_stamp(root.descriptor)
    view = View(
        overlays=(Overlay(path, lower, str(up), str(work)),),
        binds=(Bind(str(home), HOME, writable=True),),
        user=owner,
    )
    return Workspace(path, view, home, run / "caches", up, lower, mask, masks, start, ignored)


def _may_see(path: str, may_read: Callable[[str], bool]) -> bool:
    """True for a file that may be read, and for a directory (`src/`) in which files may be."""
    if not path.endswith("/"):
        return may_read(path)
    return path[:-1].rpartition("/")[2] not in PRUNED and may_read(f"{path}x")
