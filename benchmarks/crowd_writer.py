"""Enqueue jobs for some seconds beside other processes; print how many, and the longest wait in milliseconds."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.kinds import nothing
from lcp_engine import Engine


def main(url: str, seconds: float) -> None:
    with Engine(url) as engine:
        print("ready", flush=True)
        sys.stdin.readline()
        count, longest, began = 0, 0.0, time.perf_counter()
        now = began
        while now - began < seconds:
            engine.enqueue(nothing.kind)
            before, now = now, time.perf_counter()
            longest = max(longest, now - before)
            count += 1
    print(json.dumps([count, longest * 1000]))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
