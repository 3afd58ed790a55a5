"""How many jobs a lane claims follows from how long its jobs take."""

from __future__ import annotations

from dataclasses import replace

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


def test_jobs_of_one_mission_execute_together_past_those_of_others_whose_turns_are_between_them() -> None:
    missions, urgent = (1, 2, 1, 3, 2, 1, 1), (0, 0, 0, 0, 0, 0, -1)
    lane = Lane(0)
    lane.add(
        [
            replace(JOB, id=number, mission_id=mission, priority=priority)
            for number, (mission, priority) in enumerate(zip(missions, urgent, strict=True))
        ]
    )
    groups = [lane.next_group(lambda first: BatchLimit(9, 99), return_all=False) for _ in range(5)]
    assert [[job.id for job in group] for group in groups] == [[0, 2, 5], [1, 4], [3], [6], []]


def test_of_one_mission_no_job_passes_another_one_of_its_own() -> None:
    lane = Lane(0)
    lane.add([replace(JOB, id=1), replace(JOB, id=2, kind="other"), replace(JOB, id=3)])
    groups = [lane.next_group(lambda first: BatchLimit(9, 99), return_all=False) for _ in range(3)]
    assert [[job.id for job in group] for group in groups] == [[1], [2], [3]]
