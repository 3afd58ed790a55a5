"""A worker whose module takes pidfd_open(2) away from the process that loads it, as some sandboxes do."""

from __future__ import annotations

import errno
import os

from lcp_engine.workers.read_file import WORKER

__all__ = ["WORKER"]


def _pidfd_open(pid: int, flags: int = 0) -> int:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


os.pidfd_open = _pidfd_open
