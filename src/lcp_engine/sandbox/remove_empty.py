"""Take away directories that are empty (R20)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable

from lcp_engine.sandbox.atomic_write import is_at
from lcp_engine.sandbox.root import Root


def remove_empty(root: Root, directories: Iterable[str]) -> None:
    """Takes away those of `directories` that are empty, durably, the innermost first; whatever else is there stays.

    Each is locked meanwhile: nobody is about to write into it.
    """
    for directory in sorted(set(directories), key=lambda path: (-path.count("/"), path)):
        try:
            _remove(root, directory)
        except OSError:
            continue  # it holds something, is gone, or is not a directory any more


def _remove(root: Root, directory: str) -> None:
    parent, _, name = directory.rpartition("/")
    here = root.open_directory(directory)
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
        os.close(here)
