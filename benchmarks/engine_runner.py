"""Execute jobs until stdin closes: the second process of a measurement between two."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import benchmarks.kinds  # noqa: F401 - registers the kinds
from benchmarks.setting import PROJECT
from lcp_engine import Engine


@contextmanager
def runner(url: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run such a process until the end of the block."""
    command = [sys.executable, "-m", "benchmarks.engine_runner", url]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        try:
            yield process
        finally:
            process.stdin.close()


def until_done(engine: Engine, job_id: int) -> None:
    """Wait until another process has executed a job."""
    while engine.job(job_id).state != "succeeded":
        time.sleep(0.02)


def main(url: str) -> None:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    with Engine(url) as engine:
        engine.work()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
