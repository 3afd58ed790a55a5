"""Run workers that misbehave: `misbehave.py URL`. Its memory is limited to little more than it has."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

from pydantic import BaseModel

from lcp_engine import Engine
from lcp_engine.workers.base import Context, Outcome, Worker

MORE = 256 * 1024 * 1024


class Empty(BaseModel):
    """No params."""


def eat(params: Empty, context: Context) -> Outcome:
    eaten = [bytearray(16 * 1024 * 1024) for _ in range(2 * MORE // (16 * 1024 * 1024))]
    raise AssertionError(len(eaten))


def be_killed(params: Empty, context: Context) -> Outcome:
    os.kill(os.getpid(), signal.SIGKILL)  # as the kernel does to a process that uses too much memory
    raise AssertionError


def behave(params: Empty, context: Context) -> Outcome:
    return params


WORKERS = [
    Worker(
        kind=execute.__name__,
        params=Empty,
        result=Empty,
        execute=execute,
        has_effects=False,
        max_attempts=2,
        backoff=0.01,
    ).for_any_params()
    for execute in (eat, be_killed, behave)
]


def main() -> None:
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MORE, taken + MORE))
    with Engine(sys.argv[1], workers=WORKERS) as engine:
        engine.work(until_idle=True)


if __name__ == "__main__":
    main()
