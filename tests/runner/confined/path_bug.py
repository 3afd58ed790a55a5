"""A worker whose module puts a bug into the process that loads it: paths are opened wherever they lead."""

from __future__ import annotations

import os

from lcp_engine.sandbox.root import Opened, Root, refusal
from lcp_engine.workers.read_file import WORKER

__all__ = ["WORKER"]


def _open_file(self: Root, path: str) -> Opened:
    try:
        descriptor = os.open(f"{self.path}/{path}", os.O_RDONLY)
    except OSError as error:
        raise refusal(error, path) from error
    return Opened(descriptor, os.fstat(descriptor).st_size, path)


Root.open_file = _open_file  # type: ignore[method-assign]  # the bug
