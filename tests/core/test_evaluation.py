"""Suites are read with the place of what is wrong; runs are judged, summed up and compared."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from pydantic import JsonValue

from lcp_engine.core.echo import Told
from lcp_engine.core.evaluation.scores import Run, Score, Share, compare, judge, summarize
from lcp_engine.core.evaluation.suite import Expectation, parse_suite
from lcp_engine.errors import ErrorCode, LcpError

PROMPT = """# Now
Say which version of the adder this is.
```
# Adder, version 9.9 of the year
```
Turns left after this one: 1. One JSON object, nothing else.
"""
RUN = Run(
    case="a", planner="p", repetition=1, mission_id=1, status="completed", outcome="analysis_result",
    error_code=None, unfulfilled=False, answer="Version 1.3.0 of the adder.", summary="Version 1.3.0 of the adder.",
    told=Told("Say which version of the adder this is.", PROMPT), read=frozenset({"README.md"}), turns=3, corrections=0,
    input_tokens=100, output_tokens=10, seconds=2.0, cpu_seconds=1.0,
)  # fmt: skip
EXPECT = Expectation(facts=(r"1\.3\.0", "(?i)ADDER"), reads=("README.md",))


@pytest.mark.parametrize(
    ("run", "cause", "facts", "files"),
    [
        (RUN, None, 2, 1),
        (replace(RUN, answer="An adder."), "wrong", 1, 1),
        (replace(RUN, answer="An adder.", summary="Which version of the adder this is."), "echo", 1, 1),
        (replace(RUN, answer="An adder.", read=frozenset({"b"})), "unread", 1, 0),
        (replace(RUN, status="failed", outcome="limit:max_turns"), "limit:max_turns", 2, 1),
        (replace(RUN, status="failed", outcome="job_failed", error_code="GONE"), "GONE", 2, 1),
        (replace(RUN, status="waiting", outcome=None), "waits", 2, 1),
        (replace(RUN, status="running", outcome=None), "unfinished", 2, 1),
        (replace(RUN, unfulfilled=True), "unfulfilled", 2, 1),
        (replace(RUN, status="cancelled", outcome="cancelled"), "cancelled", 2, 1),
    ],
)
def test_a_run_is_right_if_it_completed_read_and_said_what_was_expected(
    run: Run, cause: str | None, facts: int, files: int
) -> None:
    score = judge(run, EXPECT)
    assert (score.cause, score.facts, score.files) == (cause, facts, files)
    assert score.is_right == (cause is None)


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 40, 0.0044, 0.1288),
        (0, 0, 0.0, 1.0),
    ],
)
def test_a_share_has_the_interval_of_wilson(count: int, of: int, low: float, high: float) -> None:
    """The figures are those of published tables of the score interval."""
    assert Share(count, of).interval == pytest.approx((low, high), abs=0.0001)


def scored(case: str, *, right: bool, planner: str = "p", tokens: int = 100) -> Score:
    answer = RUN.answer if right else "No idea."
    return judge(replace(RUN, case=case, planner=planner, answer=answer, input_tokens=tokens), EXPECT)


def test_a_summary_counts_by_planner_and_names_the_causes() -> None:
    scores = [scored("a", right=True), scored("b", right=False), scored("a", right=False, planner="q")]
    first, second = summarize(scores)
    assert (first.planner, first.right, first.facts, first.files) == (
        "p",
        Share(1, 2),
        Share(2, 4),
        Share(2, 2),
    )
    assert (first.causes, second.causes) == ({"wrong": 1}, {"wrong": 1})
    assert second.json["mean"] == {
        "turns": 3, "corrections": 0, "input_tokens": 100, "output_tokens": 10, "seconds": 2.0, "cpu_seconds": 1.0,
    }  # fmt: skip


def test_what_was_not_measured_is_no_zero() -> None:
    runs = [replace(RUN, cpu_seconds=None), replace(RUN, cpu_seconds=4.0), replace(RUN, seconds=None)]
    (summary,) = summarize(judge(run, EXPECT) for run in runs)
    assert summary.json["mean"] == pytest.approx({
        "turns": 3, "corrections": 0, "input_tokens": 100, "output_tokens": 10, "seconds": 2.0, "cpu_seconds": 2.5,
    })  # fmt: skip


def test_two_evaluations_are_compared_mission_by_mission_with_the_odds_of_chance() -> None:
    old = [scored(f"m{n}", right=n == 9, tokens=100 + n) for n in range(10)]
    new = [scored(f"m{n}", right=n < 8, planner="other", tokens=50) for n in range(9)]
    right, facts, files, turns, *_ = differences = compare(old, new)
    assert (right.better, right.worse) == (tuple(f"m{n}" for n in range(8)), ())
    assert (right.old, right.new) == (0.0, 0.8889)
    assert right.odds == pytest.approx(2 / 2**8)
    assert (len(facts.better), files.better, turns.worse, turns.odds) == (8, (), (), 1.0)
    tokens = next(one for one in differences if one.figure == "input_tokens")
    assert (len(tokens.better), tokens.new) == (9, 50)


def test_one_better_and_one_worse_is_chance() -> None:
    old = [scored("a", right=True), scored("b", right=False)]
    new = [scored("a", right=False), scored("b", right=True)]
    right = compare(old, new)[0]
    assert (right.better, right.worse, right.odds) == (("b",), ("a",), 1.0)


def test_repetitions_of_a_mission_count_once() -> None:
    old = [scored("a", right=False)] * 5
    new = [scored("a", right=True), *[scored("a", right=False)] * 4]
    right = compare(old, new)[0]
    assert (right.better, right.new, right.odds) == (("a",), 0.2, 1.0)


MISSION: dict[str, JsonValue] = {"name": "a", "goal": "Look.", "root": "."}
SUITE: dict[str, JsonValue] = {"name": "s", "planners": {"p": "surveyor"}, "missions": [MISSION]}


def test_a_suite_has_missions_with_the_keys_of_mission_files() -> None:
    stated = {**SUITE, "defaults": {"limits": {"max_turns": 3}}, "repeat": 2}
    suite = parse_suite(json.dumps(stated), source="s.yaml")
    assert (suite.name, suite.repeat, [*suite.planners]) == ("s", 2, ["p"])
    (case,) = suite.cases
    assert case.mission("human").limits.max_turns == 3
    assert case.mission({"type": "script", "replies": []}).planner.type == "script"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"mission": []}, "s.yaml: mission: is not a known key; did you mean 'missions'?"),
        ({"missions": []}, "s.yaml: missions: "),
        ({"missions": [{**MISSION, "gaol": 1}]}, "s.yaml: missions.0: gaol: is not a known key; did you mean 'goal'?"),
        ({"missions": [{"name": "a", "root": "."}]}, "s.yaml: missions.0: goal: is required and missing"),
        ({"missions": [{"goal": "x", "root": "."}]}, "s.yaml: missions.0.name: is required and missing"),
        ({"missions": [{"name": "a", "goal": "x"}]}, "s.yaml: missions.0.root: is required and missing"),
        ({"missions": [MISSION, MISSION]}, "s.yaml: missions.1.name: 'a' is the name of an earlier one"),
        ({"missions": [{**MISSION, "name": "a b"}]}, "s.yaml: missions.0.name: "),
        ({"missions": [{**MISSION, "planner": "human"}]}, "s.yaml: missions.0.planner: the planners of a suite are"),
        (
            {"missions": [{**MISSION, "expect": {"fact": ["x"]}}]},
            "s.yaml: missions.0.expect.fact: is not a known key; did you mean 'facts'?",
        ),
        (
            {"missions": [{**MISSION, "expect": {"facts": ["("]}}]},
            "s.yaml: missions.0.expect.facts.0: should be a regular expression (RE2)",
        ),
        (
            {"missions": [{**MISSION, "expect": {"reads": ["../x"]}}]},
            "s.yaml: missions.0.expect.reads.0: should be a path beneath the root",
        ),
        ({"defaults": {"expect": {}}}, "s.yaml: defaults.expect: is not for every mission; leave it out"),
        ({"repeat": 0}, "s.yaml: repeat: "),
        ({"planners": {"p": 3}}, "s.yaml: planners.p"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_suite_is_one_line_with_its_place(
    changed: dict[str, JsonValue], said: str
) -> None:
    with pytest.raises(LcpError) as refused:
        parse_suite(json.dumps({**SUITE, **changed}), source="s.yaml")
    assert str(refused.value).startswith(said)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "[]", "a: [", "\x00"])
def test_what_is_no_suite_is_said(text: str) -> None:
    with pytest.raises(LcpError, match=r"^s\.yaml: "):
        parse_suite(text, source="s.yaml")
