"""Execute jobs until stdin closes: the other process of a measurement between two."""

from __future__ import annotations

import os
import sys
import threading

import benchmarks.kinds  # noqa: F401 - registers the kinds
from lcp_engine import Engine


def main(url: str) -> None:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with Engine(url) as engine:
        engine.work()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
