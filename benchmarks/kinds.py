"""Define the kinds of jobs that are measured: some do nothing, the others tell when they started."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from pydantic import BaseModel

from lcp_engine import worker


class Nothing(BaseModel):
    """No params, no result."""


class Number(BaseModel):
    """What tells one job from the next: equal jobs are no progress."""

    number: int


class Started(BaseModel):
    """When a job started: nanoseconds of the monotonic clock, which all processes of a machine share."""

    at: int


class Spent(BaseModel):
    """What this process had spent on its CPU when a job started, in nanoseconds."""

    cpu: int


class Marked(BaseModel):
    """A file that the first attempt leaves."""

    mark: str


@worker("bench.nothing", params=Nothing, result=Nothing, has_effects=False)
def nothing(params: Nothing) -> Nothing:
    """Do nothing."""
    return params


@worker("bench.start", params=Nothing, result=Started, has_effects=False)
def start(params: Nothing) -> Started:
    """Tell when the job started."""
    return Started(at=time.monotonic_ns())


@worker("bench.numbered", params=Number, result=Started, has_effects=False)
def numbered(params: Number) -> Started:
    """Tell when the job started."""
    return Started(at=time.monotonic_ns())


@worker("bench.spent", params=Number, result=Spent, has_effects=False)
def spent(params: Number) -> Spent:
    """Tell what this process has spent."""
    return Spent(cpu=time.process_time_ns())


@worker("bench.hanging", params=Marked, result=Nothing, has_effects=False)
def hanging(params: Marked) -> Nothing:
    """Hang at the first attempt, until the process is killed."""
    mark = Path(params.mark)
    if not mark.exists():
        mark.touch()
        threading.Event().wait()
    return Nothing()
