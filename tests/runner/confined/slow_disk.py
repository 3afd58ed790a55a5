"""Make the disk of confined processes slow: a process that loads this module waits before each file it replaces."""

from __future__ import annotations

import time

from lcp_engine.sandbox.atomic_write import LocalFile
from lcp_engine.workers.read_file import WORKER

SECONDS = 0.3
put = LocalFile.put


def put_slowly(
    target: LocalFile, /, data: bytes, temporary: str, mode: int | None = None, *, until: int | None = None
) -> None:
    time.sleep(SECONDS * 10 if data == b"very slow" else SECONDS)
    put(target, data, temporary, mode, until=until)


LocalFile.put = put_slowly  # type: ignore[method-assign]  # it does the same, later
SLOW = WORKER
