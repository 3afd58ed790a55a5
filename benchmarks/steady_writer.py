"""Enqueue jobs until stdin closes; print how many, and the longest and the median wait in milliseconds."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time

from benchmarks.kinds import nothing
from lcp_engine import Engine


def main(url: str) -> None:
    with Engine(url) as engine:
        engine.enqueue(nothing.kind)
        print("ready", flush=True)
        sys.stdin.readline()
        is_over = threading.Event()
        threading.Thread(target=_listen, args=(is_over,), daemon=True).start()
        waits = []
        now = time.perf_counter()
        while not is_over.is_set():
            engine.enqueue(nothing.kind)
            before, now = now, time.perf_counter()
            waits.append((now - before) * 1000)
    print(json.dumps([len(waits), max(waits), statistics.median(waits)]))


def _listen(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


if __name__ == "__main__":
    main(sys.argv[1])
