"""Look at one file alone on its directory where that is free; nothing is made and nobody is waited for (R20)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from lcp_engine.sandbox.atomic_write import Target, is_at
from lcp_engine.sandbox.root import Root, refusal


@contextmanager
def locked_if_free(root: Root, path: str) -> Iterator[Target | None]:
    """Like `locked`, but None where somebody else holds the directory. Raises `LcpError` where there is none."""
    parent = path.rpartition("/")[0]
    try:
        descriptor = root.open_directory(parent)
    except OSError as error:
        raise refusal(error, path) from error
    try:
        yield Target(path, descriptor) if _is_ours(root, parent, descriptor) else None
    finally:
        os.close(descriptor)  # and with it goes the lock


def _is_ours(root: Root, parent: str, descriptor: int) -> bool:
    """Whether the lock was free, and the locked directory is still the one that its path names."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return is_at(root, parent, descriptor)
    except OSError:
        return False
