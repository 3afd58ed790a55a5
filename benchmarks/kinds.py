"""Define the kinds of jobs that are measured: one does nothing, the others tell when they started."""

from __future__ import annotations

import time

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
