"""Open the directory that a file goes into, made durably where it is missing (R20)."""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root import Root, step_into

MAX_NEW_DIRECTORIES = 32


def open_parent(root: Root, parent: str, name: str, path: str) -> tuple[int, tuple[str, ...]]:
    """The parent directory and what had to be made for it. A refusal comes before the first is made."""
    here, existing = _deepest(root, parent)
    try:
        if existing and _is_empty(here, name):
            _sync_above(root, existing)
    except BaseException:
        os.close(here)
        raise
    missing = parent[len(existing) :].strip("/").split("/") if existing != parent else []
    if len(missing) > MAX_NEW_DIRECTORIES:
        os.close(here)
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"{path[:60]!r}… needs {len(missing)} new directories, at most {MAX_NEW_DIRECTORIES} are made at once",
        )
    return _make(root, here, existing, missing)


def take_back(root: Root, made: tuple[str, ...] | list[str]) -> None:
    """Takes back the directories that were made, as long as nobody has put anything into them."""
    for directory in reversed(made):
        parent, _, name = directory.rpartition("/")
        with suppress(OSError):
            descriptor = root.open_directory(parent)
            try:
                os.rmdir(name, dir_fd=descriptor)
            finally:
                os.close(descriptor)


def status_of(directory: int, name: str) -> os.stat_result | None:
    """What `name` is in an opened directory, links not followed; None where nothing is. Raises OSError."""
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
    """Whether nothing is in the directory; `name` is looked for first, as a look at one name is quicker."""
    if status_of(directory, name) is not None:
        return False
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def _sync_above(root: Root, path: str) -> None:
    """Makes an empty directory durable: whoever made it, or one above it, may have died before it did that.

    One that holds something was made durable before that was put there.
    """
    while path:
        path = path.rpartition("/")[0]
        above = root.open_directory(path)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _make(root: Root, here: int, existing: str, missing: list[str]) -> tuple[int, tuple[str, ...]]:
    made: list[str] = []
    try:
        for name in missing:
            existing = f"{existing}/{name}" if existing else name
            with suppress(FileExistsError):  # somebody else was quicker, and may not be done with it
                os.mkdir(name, dir_fd=here)
                made.append(existing)
            os.fsync(here)
            there = step_into(here, name)
            os.close(here)
            here = there
    except BaseException:
        os.close(here)
        take_back(root, made)
        raise
    return here, tuple(made)
