"""Execute what is queued; prints the most memory that this process ever had, in MiB."""

from __future__ import annotations

import json
import resource
import sys

import benchmarks.kinds  # noqa: F401 - registers the kinds
from lcp_engine import Engine


def main(url: str) -> None:
    with Engine(url) as engine:
        engine.work(until_idle=True)
    print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


if __name__ == "__main__":
    main(sys.argv[1])
