"""Launch what is due, and die at a point: `killed.py URL NOW POINT`, NOW in microseconds, POINT 0 for not at all."""

from __future__ import annotations

import sys

from tests.crash.points import Killer, WatchedBackend

from lcp_engine import Engine
from lcp_engine.features.schedules.schedules import Scheduler


def main() -> None:
    url, now, point = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with Engine(url) as engine:
        database = engine.instance.database
        database.backend = WatchedBackend(database.backend, Killer(point))
        Scheduler(database, lambda: now).launch_due()


if __name__ == "__main__":
    main()
