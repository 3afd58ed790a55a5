"""A worker whose module disturbs births in the fork server that loads it.

The file `births` in the last directory of `sys.path` says how, and how often: `child 3`, `server 2`, `fork 1`.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path

from lcp_engine.runner.confined import server
from lcp_engine.sandbox.system.landlock import restrict_to
from lcp_engine.workers.read_file import WORKER

__all__ = ["WORKER"]

_FILE = Path(sys.path[-1]) / "births"
_fork = os.fork


def _is_due(what: str) -> bool:
    wanted, left = _FILE.read_text().split()
    if wanted != what or left == "0":
        return False
    _FILE.write_text(f"{wanted} {int(left) - 1}")
    return True


def _disturbed_fork() -> int:
    if _is_due("fork"):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    if _is_due("server"):
        os.kill(os.getpid(), signal.SIGKILL)
    return _fork()


def _disturbed_restrict_to(*directories: int, writes: bool) -> None:
    if _is_due("child"):
        os.kill(os.getpid(), signal.SIGKILL)
    if _is_due("memory"):
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
    if _is_due("kernel"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    restrict_to(*directories, writes=writes)


os.fork = _disturbed_fork
vars(server)["restrict_to"] = _disturbed_restrict_to
