"""Be a scheduler of a test: `ticking.py URL START SPEED UNTIL`, times in microseconds; says "ready", ends after UNTIL.

Its time begins at START when it does, and goes SPEED times as fast as ours.
"""

from __future__ import annotations

import os
import sys
import time

from lcp_engine import Engine
from lcp_engine.features.schedules.schedules import Scheduler


def main() -> None:
    url, start, speed, until = sys.argv[1], *map(int, sys.argv[2:])
    began = time.monotonic_ns()
    with Engine(url) as engine:
        scheduler = Scheduler(
            engine.instance.database, lambda: start + (time.monotonic_ns() - began) * speed // 1000
        )
        os.write(1, b"ready\n")
        while (now := start + (time.monotonic_ns() - began) * speed // 1000) <= until:
            scheduler.launch_due()
            os.write(1, f"{now}\n".encode())


if __name__ == "__main__":
    main()
