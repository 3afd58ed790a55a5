"""How many jobs a lane claims follows from how long its jobs take."""

from __future__ import annotations

from lcp_engine.runner.executor import BatchLimit
from lcp_engine.runner.lane import Lane
from lcp_engine.store.row_types import job_row

JOB = job_row(
    (
        1,
        1,
        None,
        None,
        None,
        None,
        "quick",
        "{}",
        "work",
        "running",
        None,
        0,
        None,
        0,
        1,
        0,
        0,
        3,
        1,
        0,
        None,
        0,
        None,
    )
)
QUICK_SECONDS = 0.02


def executes(lane: Lane, *seconds: float) -> int:
    """How many jobs the lane claims after one that took each of these times."""
    for one in seconds:
        lane.add([JOB])
        lane.next_group(lambda first: BatchLimit(1, 0), return_all=False)
        lane.end_group(1, one)
    return lane.claim_size(100, QUICK_SECONDS)


def test_a_lane_claims_more_and_more_while_its_jobs_are_quick() -> None:
    lane = Lane(0)
    assert [executes(lane, 0.0001) for _ in range(4)] == [2, 4, 8, 16]


def test_what_was_begun_for_the_first_job_does_not_keep_a_lane_from_claiming_more() -> None:
    assert executes(Lane(0), 1.0, 0.0001) == 2


def test_a_lane_claims_one_job_where_each_takes_long() -> None:
    lane = Lane(0)
    assert executes(lane, *[0.0001] * 4) == 2
    assert executes(lane, *[0.05] * 4) == 1
