"""Make the disk of confined processes slow: whoever loads this waits for each file that is replaced."""

from __future__ import annotations

import time

from lcp_engine.sandbox.atomic_write import Target
from lcp_engine.workers.read_file import WORKER

SECONDS = 0.3
put = Target.put


def put_slowly(target: Target, data: bytes, temporary: str, mode: int | None = None) -> None:
    time.sleep(SECONDS * 10 if data == b"very slow" else SECONDS)
    put(target, data, temporary, mode)


Target.put = put_slowly  # type: ignore[assignment]  # it does the same, later
SLOW = WORKER
