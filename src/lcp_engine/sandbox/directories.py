"""Create the directories that a file goes into, durably; remove those left empty (R20), and whole trees."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from uuid import uuid4

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root import Root, step_into
from lcp_engine.sandbox.system.kept_descriptors import keep_from_children, unlock_and_close

MAX_NEW_DIRECTORIES = 32


def open_parent(root: Root, parent: str, path: str) -> tuple[int, tuple[str, ...]]:
    """The directory `parent` of the file at `path`, and which directories were created, outermost first.

    A refusal comes before the first one is created.
    """
    here, existing = _deepest(root, parent)
    try:
        if existing and _is_empty(here, path.rpartition("/")[2]):
            _sync_above(root, existing)
    except BaseException:  # also an interrupt: the descriptor would stay open
        os.close(here)
        raise
    missing = parent[len(existing) :].strip("/").split("/") if existing != parent else []
    if len(missing) > MAX_NEW_DIRECTORIES:
        os.close(here)
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"{path[:60]!r}… needs {len(missing)} new directories, at most {MAX_NEW_DIRECTORIES} are made at once",
        )
    return _create(root, here, existing, missing)


def remove_made(root: Root, made: Sequence[str]) -> None:
    """Remove directories that were created for a file, outermost first in `made`, unless they hold something."""
    for directory in reversed(made):
        parent, _, name = directory.rpartition("/")
        with suppress(OSError):
            descriptor = root.open_directory(parent)
            try:
                os.rmdir(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)


def give_to_owner(made: int, directory: int) -> None:
    """Give a new file or directory that root made to the owner of the one that it is in, who could not change it.

    One with something in it is another directory, which was put in its place.
    """
    if not is_root():
        return
    owner, is_directory = os.fstat(directory), stat.S_ISDIR(os.fstat(made).st_mode)
    if owner.st_uid and not (is_directory and os.listdir(made)):
        with suppress(PermissionError):  # root without capabilities
            os.fchown(made, owner.st_uid, owner.st_gid)


@cache
def is_root() -> bool:
    """True if this process was root when it was first asked: one that became another user may give nothing away."""
    return os.geteuid() == 0


def remove_tree(place: Path) -> None:
    """Remove a directory with all that is in it, however deep it is and whatever modes its directories have.

    No link is followed, and nothing but what is removed is changed; what cannot be removed stays.
    """
    with suppress(OSError):
        top = _open_fully(str(place))
        try:
            _empty(top)
        finally:
            os.close(top)
        place.rmdir()


def _empty(top: int) -> None:
    """Move every directory up to `top` before it is looked into: however deep they lie, two are open at a time."""
    waiting = [""]
    while waiting:
        name = waiting.pop()
        with suppress(OSError):  # it is gone
            here = _open_fully(name, top) if name else os.dup(top)
            try:
                waiting += _taken_up(here, top)
            finally:
                os.close(here)
            if name:
                os.rmdir(name, dir_fd=top)


def _taken_up(here: int, top: int) -> list[str]:
    """Remove what is in a directory but the directories, which are moved to `top`; their names there."""
    moved = []
    with os.scandir(here) as found:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_directory in entries:
        with suppress(OSError):
            if not is_directory:
                os.unlink(name, dir_fd=here)
                continue
            os.close(_open_fully(name, here))  # only what can be written to can be moved
            new = uuid4().hex
            os.rename(name, new, src_dir_fd=here, dst_dir_fd=top)
            moved.append(new)
    return moved


def _open_fully(name: str, directory: int | None = None) -> int:
    """A descriptor of a directory of this user, which may be read and changed from now on. Raises OSError."""
    seen = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        with suppress(OSError):  # root may do without
            os.chmod(f"/proc/self/fd/{seen}", 0o700)
        return os.open(f"/proc/self/fd/{seen}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(seen)


def remove_empty(root: Root, directories: Iterable[str]) -> None:
    """Remove those of `directories` that are empty, durably, the innermost first.

    Each is locked meanwhile, so that no writer that holds its lock loses it.
    """
    for directory in sorted(set(directories), key=lambda path: (-path.count("/"), path)):
        try:
            _remove_locked(root, directory)
        except OSError:
            continue  # it holds something, is gone, or is no longer a directory


def remove_free(directory: int, name: str) -> None:
    """Remove an empty directory, unless a writer holds its lock. Raises OSError, such as EAGAIN then."""
    here = keep_from_children(step_into(directory, name))
    try:
        fcntl.flock(here, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rmdir(name, dir_fd=directory)
    finally:
        unlock_and_close(here)


def is_at(root: Root, path: str, descriptor: int) -> bool:
    """True if an open directory is the one at `path`: it may have been removed before its lock was granted."""
    try:
        named = root.open_directory(path)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(named), os.fstat(descriptor))
    finally:
        os.close(named)


def status_of(directory: int, name: str) -> os.stat_result | None:
    """The status of `name` in an open directory, links not followed; None if there is nothing. Raises OSError."""
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def _deepest(root: Root, path: str) -> tuple[int, str]:
    """The innermost directory of `path` that exists, opened, and its path."""
    while True:
        try:
            return root.open_directory(path), path
        except FileNotFoundError:
            if not path:
                raise
        path = path.rpartition("/")[0]


def _is_empty(directory: int, name: str) -> bool:
    """True if a directory is empty. `name` is checked first: that is quicker than a scan."""
    if status_of(directory, name) is not None:
        return False
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _sync_above(root: Root, path: str) -> None:
    """Make an empty directory durable: the process that created it, or one above it, may have died before it did so.

    A directory that holds something was made durable before that was put there.
    """
    while path:
        path = path.rpartition("/")[0]
        above = root.open_directory(path)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _create(root: Root, here: int, existing: str, missing: list[str]) -> tuple[int, tuple[str, ...]]:
    made: list[str] = []
    try:
        for name in missing:
            existing = f"{existing}/{name}" if existing else name
            with suppress(
                FileExistsError
            ):  # another process has just created it, and may not have synced it yet
                os.mkdir(name, dir_fd=here)
                made.append(existing)
            os.fsync(here)
            there = step_into(here, name)
            if made[-1:] == [existing]:
                give_to_owner(there, here)
            os.close(here)
            here = there
    except BaseException:  # also an interrupt: descriptor and directories would remain
        os.close(here)
        remove_made(root, made)
        raise
    return here, tuple(made)


def _remove_locked(root: Root, directory: str) -> None:
    parent, _, name = directory.rpartition("/")
    here = keep_from_children(root.open_directory(directory))
    try:
        fcntl.flock(here, fcntl.LOCK_EX)
        if not is_at(root, directory, here):
            return
        above = root.open_directory(parent)
        try:
            os.rmdir(name, dir_fd=above)
            os.fsync(above)
        finally:
            os.close(above)
    finally:
        unlock_and_close(here)
