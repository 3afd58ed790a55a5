"""A bucket permits exactly what it states, whatever the clock does; the time is an argument."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.tables import table

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.limits.permits import BLOCK, UNLIMITED, Limit, Permits, RateLimit, limit_of

NOW: Micros = 1_800_000_000 * SECOND
TEN_A_SECOND = limit_of(RateLimit(requests_per_minute=600, burst=5), None)


def drained(limit: Limit, now: Micros, full_at: Micros = 0, running: int = 0) -> Permits:
    permits = Permits(limit, now, full_at, running)
    while permits.left:
        permits.take()
    return permits


def test_a_full_bucket_permits_its_burst_and_then_one_each_spacing() -> None:
    permits = Permits(TEN_A_SECOND, NOW)
    assert permits.left == 5
    full_at = drained(TEN_A_SECOND, NOW).full_at
    assert full_at == NOW + SECOND // 2
    lefts = [
        Permits(TEN_A_SECOND, NOW + millis * 1000, full_at).left for millis in (0, 99, 100, 199, 500, 900)
    ]
    assert lefts == [0, 0, 1, 1, 5, 5]


@table(
    ("stated", "spacing", "burst"),
    [
        (RateLimit(requests_per_minute=60), SECOND, 1),
        (RateLimit(requests_per_minute=6000), SECOND // 100, 100),
        (RateLimit(requests_per_minute=7), 8_571_429, 1),
        (RateLimit(requests_per_minute=0.001), 60_000_000_000, 1),
        (RateLimit(requests_per_minute=60_000, burst=3), 1000, 3),
    ],
)
def test_a_rate_is_never_exceeded_by_rounding(stated: RateLimit, spacing: Micros, burst: int) -> None:
    assert limit_of(stated, None) == Limit(spacing, burst)


@table(
    "stated",
    [
        {"requests_per_minute": 0},
        {"requests_per_minute": -1},
        {"requests_per_minute": float("nan")},
        {"requests_per_minute": float("inf")},
        {"requests_per_minute": 1e12},
        {"requests_per_minute": True},
        {"requests_per_minute": 60, "burst": 0},
        {"requests_per_minute": 60, "burst": 10**9},
        {"requests_per_minute": 60, "burst": 1.5},
        {"burst": 1},
        {"per_minute": 60},
    ],
)
def test_a_rate_that_is_none_is_refused(stated: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RateLimit.model_validate(stated)


@given(
    per_minute=st.integers(1, 60_000),
    burst=st.integers(1, 200),
    pauses=st.lists(st.integers(0, 3 * SECOND), min_size=1, max_size=60),
)
def test_no_window_has_more_starts_than_burst_and_rate_permit(
    per_minute: int, burst: int, pauses: list[Micros]
) -> None:
    limit = limit_of(RateLimit(requests_per_minute=per_minute, burst=burst), None)
    assert limit.spacing is not None
    starts: list[Micros] = []
    now, full_at = NOW, 0
    for pause in pauses:
        now += pause
        permits = Permits(limit, now, full_at)
        starts += [now] * (permits.left or 0)
        full_at = drained(limit, now, full_at).full_at
    for begin in {*starts}:
        for end in {at for at in starts if at >= begin}:
            count = sum(begin <= at <= end for at in starts)
            assert count <= burst + (end - begin) // limit.spacing


@given(burst=st.integers(1, 50), back=st.integers(0, 365 * 24 * 3600 * SECOND))
def test_a_clock_that_is_set_back_stalls_nothing_and_frees_nothing(burst: int, back: Micros) -> None:
    limit = Limit(spacing=SECOND, burst=burst)
    full_at = drained(limit, NOW).full_at
    then = Permits(limit, NOW - back, full_at)
    assert then.left == 0
    assert then.next_at <= NOW - back + max(burst // 2, 1) * SECOND
    assert Permits(limit, NOW - back + SECOND, then.full_at).left == 1


def test_jobs_wait_for_a_block_of_permits_and_never_for_the_last_one() -> None:
    fast = limit_of(RateLimit(requests_per_minute=6000, burst=100), None)
    permits = drained(fast, NOW)
    assert permits.next_at == NOW + BLOCK
    assert Permits(fast, permits.next_at, permits.full_at).left == BLOCK // (SECOND // 100)
    small = limit_of(RateLimit(requests_per_minute=6000, burst=4), None)
    assert drained(small, NOW).next_at == NOW + 2 * SECOND // 100
    assert drained(Limit(spacing=SECOND), NOW).next_at == NOW + SECOND


def test_what_was_given_back_can_be_taken_again() -> None:
    permits = drained(TEN_A_SECOND, NOW)
    permits.give_back()
    assert Permits(TEN_A_SECOND, NOW, permits.full_at).left == 1


def test_the_scarcer_of_rate_and_places_decides() -> None:
    both = Limit(spacing=SECOND, burst=3, max_running=2)
    assert Permits(both, NOW).left == 2
    assert Permits(both, NOW, running=2).left == 0
    assert not Permits(both, NOW, running=2).has_free_place
    assert Permits(both, NOW, running=9).left == 0, "the limit was lowered"
    assert Permits(both, NOW, full_at=NOW + 2 * SECOND).left == 1
    assert Permits(UNLIMITED, NOW).left is None
