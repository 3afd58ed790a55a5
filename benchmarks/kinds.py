"""Define the kinds of jobs to measure: some do nothing, the others report when they started."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pydantic import BaseModel

from lcp_engine import Needs, worker


class Nothing(BaseModel):
    """No params, no result."""


class Number(BaseModel):
    """Distinguishes each job from the one before it: a mission that repeats equal jobs makes no progress."""

    number: int


class Started(BaseModel):
    """When a job started, in nanoseconds of the monotonic clock that all processes of a machine share."""

    at: int


class Spent(BaseModel):
    """The CPU time of this process when a job started, in nanoseconds."""

    cpu: int


class Marked(BaseModel):
    """A file that the first attempt creates."""

    mark: str


@worker("bench.nothing", params=Nothing, result=Nothing, has_effects=False)
def nothing(params: Nothing) -> Nothing:
    """Do nothing."""
    return params


@worker("bench.start", params=Nothing, result=Started, has_effects=False)
def start(params: Nothing) -> Started:
    """Report when the job started."""
    return Started(at=time.monotonic_ns())


@worker("bench.numbered", params=Number, result=Started, has_effects=False)
def numbered(params: Number) -> Started:
    """Report when the job started."""
    return Started(at=time.monotonic_ns())


@worker("bench.spent", params=Number, result=Spent, has_effects=False)
def spent(params: Number) -> Spent:
    """Report the CPU time of this process."""
    return Spent(cpu=time.process_time_ns())


@worker("bench.add", params=Number, result=Number, has_effects=False)
def add(params: Number) -> Number:
    """Add one."""
    return Number(number=params.number + 1)


@worker("bench.confined", params=Number, result=Number, has_effects=False, needs=Needs())
def confined(params: Number) -> Number:
    """Add one, in a confined process."""
    return Number(number=params.number + 1)


@worker("bench.hanging", params=Marked, result=Nothing, has_effects=False)
def hanging(params: Marked) -> Nothing:
    """Hang at the first attempt until the process is killed."""
    mark = Path(params.mark)
    if not mark.exists():
        mark.touch()
        threading.Event().wait()
    return Nothing()
