"""Execute what is queued; print this process's peak memory in MiB."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import benchmarks.kinds  # noqa: F401 - registers the kinds
from lcp_engine import Engine


def main(url: str) -> None:
    with Engine(url) as engine:
        engine.work(until_idle=True)
    print(json.dumps(_most() / 1024))


def _most() -> int:
    """In KiB. Not `ru_maxrss`: that includes the copy of the parent that the process was before its exec."""
    status = Path("/proc/self/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1])


if __name__ == "__main__":
    main(sys.argv[1])
