"""A plan as a graph: waves, the path that takes the longest, and what a step waits for."""

from __future__ import annotations

from lcp_engine.core.job_states import Need, State
from lcp_engine.features.plans.graph import GraphStep, Link, PlanGraph, in_waves


def step(job: int, seconds: float | None, *after: int, state: State = State.SUCCEEDED) -> GraphStep:
    links = tuple(Link(before, Need.SUCCESS) for before in after)
    return GraphStep(f"step-{job:03}", job, "do", "", state, None, seconds, links)


def graph(*steps: GraphStep) -> PlanGraph:
    return PlanGraph("main", "abort_plan", None, steps)


def test_a_step_is_one_wave_behind_the_last_that_it_waits_for() -> None:
    found = graph(step(1, 1), step(2, 1, 1), step(3, 1), step(4, 1, 2, 3))
    assert found.waves == {1: 1, 2: 2, 3: 1, 4: 3}
    assert [one.job for one in in_waves(found)] == [1, 3, 2, 4]


def test_the_longest_path_is_the_one_that_took_the_most_seconds() -> None:
    found = graph(step(1, 1), step(2, 1, 1), step(3, 5), step(4, 1, 2, 3), step(5, 2, 1))
    assert [one.job for one in found.critical_path] == [3, 4]


def test_before_anything_runs_it_is_the_one_with_the_most_steps() -> None:
    found = graph(step(1, None), step(2, None, 1), step(3, None), step(4, None, 2))
    assert [one.job for one in found.critical_path] == [1, 2, 4]
    assert graph().critical_path == ()


def test_the_longest_path_of_a_plan_that_failed_ends_where_it_ended() -> None:
    failed = step(2, 1, 1, state=State.FAILED)
    skipped = (step(3, None, 2, state=State.SKIPPED), step(4, None, 3, state=State.CANCELLED))
    assert [one.job for one in graph(step(1, 1), failed, *skipped).critical_path] == [1, 2]


def test_a_step_waits_for_those_that_have_not_ended_as_it_needs() -> None:
    found = graph(step(1, 1), step(2, None, state=State.RUNNING), step(3, None, 1, 2, state=State.BLOCKED))
    assert found.awaited(found.steps[2]) == ["step-002"]


def test_a_long_chain_is_walked_without_recursion() -> None:
    found = graph(*(step(job, 1, *([job - 1] if job else [])) for job in range(10_000)))
    assert found.waves[9_999] == 10_000
    assert len(found.critical_path) == 10_000
