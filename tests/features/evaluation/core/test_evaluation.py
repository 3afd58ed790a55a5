"""Suites are read with the place of what is wrong; runs are judged, summed up and compared."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.evaluation.comparison import compare_scores
from lcp_engine.features.evaluation.scores import CheckResult, Score, TrialRecord, judge
from lcp_engine.features.evaluation.suite import Expectation, parse_suite
from lcp_engine.features.evaluation.summary import Share, summarize_scores

RECORD = TrialRecord(
    mission="a", planner="p", repetition=1, mission_id=1, status="completed", outcome="analysis_result",
    error_code=None, unfulfilled=False, answer="Version 1.3.0 of the adder.",
    is_echo=False, read=frozenset({"README.md"}), used=frozenset({"read_file"}), check=None, turns=3, corrections=0,
    prompts=3, over_context=0, input_tokens=100, output_tokens=10, cost=None, currency=None, seconds=2.0,
    cpu_seconds=1.0,
)  # fmt: skip
EXPECT = Expectation(facts=(r"1\.3\.0", "(?i)ADDER"), reads=("README.md",))


@table(
    ("record", "cause", "facts", "files"),
    [
        (RECORD, None, 2, 1),
        (replace(RECORD, answer="An adder."), "wrong", 1, 1),
        (replace(RECORD, answer="An adder.", is_echo=True), "echo", 1, 1),
        (replace(RECORD, answer="An adder.", read=frozenset({"b"})), "unread", 1, 0),
        (replace(RECORD, status="failed", outcome="limit:max_turns"), "limit:max_turns", 2, 1),
        (replace(RECORD, status="failed", outcome="job_failed", error_code="GONE"), "GONE", 2, 1),
        (replace(RECORD, status="waiting", outcome=None), "waits", 2, 1),
        (replace(RECORD, status="running", outcome=None), "unfinished", 2, 1),
        (replace(RECORD, unfulfilled=True), "unfulfilled", 2, 1),
        (replace(RECORD, status="cancelled", outcome="cancelled"), "cancelled", 2, 1),
    ],
)
def test_a_trial_is_right_if_it_completed_read_and_said_what_was_expected(
    record: TrialRecord, cause: str | None, facts: int, files: int
) -> None:
    score = judge(record, EXPECT)
    assert (score.cause, score.facts, score.files) == (cause, facts, files)
    assert score.is_right == (cause is None)


@table(
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
    answer = RECORD.answer if right else "No idea."
    return judge(replace(RECORD, mission=case, planner=planner, answer=answer, input_tokens=tokens), EXPECT)


def test_a_summary_counts_by_planner_and_names_the_causes() -> None:
    scores = [scored("a", right=True), scored("b", right=False), scored("a", right=False, planner="q")]
    first, second = summarize_scores(scores)
    assert (first.planner, first.right, first.facts, first.files) == (
        "p",
        Share(1, 2),
        Share(2, 4),
        Share(2, 2),
    )
    assert (first.causes, second.causes) == ({"wrong": 1}, {"wrong": 1})
    assert second.json["mean"] == {
        "turns": 3, "corrections": 0, "over_context": 0, "input_tokens": 100, "output_tokens": 10, "cost": None,
        "seconds": 2.0, "cpu_seconds": 1.0,
    }  # fmt: skip


def test_what_was_not_measured_is_no_zero() -> None:
    runs = [
        replace(RECORD, cpu_seconds=None),
        replace(RECORD, cpu_seconds=4.0),
        replace(RECORD, seconds=None),
    ]
    (summary,) = summarize_scores(judge(run, EXPECT) for run in runs)
    mean = summary.json["mean"]
    assert isinstance(mean, dict)
    assert (mean["seconds"], mean["cpu_seconds"], mean["cost"]) == (2.0, 2.5, None)


def test_two_evaluations_are_compared_mission_by_mission_with_the_odds_of_chance() -> None:
    old = [scored(f"m{n}", right=n == 9, tokens=100 + n) for n in range(10)]
    new = [scored(f"m{n}", right=n < 8, planner="other", tokens=50) for n in range(9)]
    right, _, facts, files, _, _, turns, *_ = differences = compare_scores(old, new)
    assert (right.better, right.worse) == (tuple(f"m{n}" for n in range(8)), ())
    assert (right.old, right.new) == pytest.approx((0.0, 8 / 9))
    assert right.odds == pytest.approx(2 / 2**8)
    assert (len(facts.better), files.better, turns.worse, turns.odds) == (8, (), (), 1.0)
    tokens = next(one for one in differences if one.figure == "input_tokens")
    assert (len(tokens.better), tokens.new) == (9, 50)


def test_one_better_and_one_worse_is_chance() -> None:
    old = [scored("a", right=True), scored("b", right=False)]
    new = [scored("a", right=False), scored("b", right=True)]
    right = compare_scores(old, new)[0]
    assert (right.better, right.worse, right.odds) == (("b",), ("a",), 1.0)


def test_repetitions_of_a_mission_count_once() -> None:
    old = [scored("a", right=False)] * 5
    new = [scored("a", right=True), *[scored("a", right=False)] * 4]
    right = compare_scores(old, new)[0]
    assert (right.better, right.new, right.odds) == (("a",), 0.2, 1.0)


CHECKED = Expectation(uses=("measure",), check=("./check.sh",))
MEASURED = replace(RECORD, used=frozenset({"measure"}))


@table(
    ("record", "cause"),
    [
        (replace(MEASURED, check=CheckResult(passes=True, said="")), None),
        (replace(MEASURED, check=CheckResult(passes=False, said="exit code 1")), "check"),
        (MEASURED, "unchecked"),
        (RECORD, "unused"),
        (replace(MEASURED, status="failed", outcome="error"), "error"),
    ],
)
def test_a_trial_uses_the_kinds_that_it_needs_and_passes_its_check(
    record: TrialRecord, cause: str | None
) -> None:
    assert judge(record, CHECKED).cause == cause


def test_kinds_checks_and_prompts_are_counted() -> None:
    passes, fails = CheckResult(passes=True, said=""), CheckResult(passes=False, said="exit code 1")
    records = [replace(MEASURED, check=passes, over_context=2), replace(RECORD, check=fails), RECORD]
    (summary,) = summarize_scores(judge(record, CHECKED) for record in records)
    assert (summary.kinds, summary.checks, summary.over_context) == (Share(1, 3), Share(1, 3), Share(2, 9))


def test_costs_are_exact_and_summed_up_only_in_one_currency() -> None:
    first = replace(RECORD, cost=Decimal("0.1"), currency="EUR")
    cents, mixed = (
        [first, replace(first, cost=Decimal("0.2")), RECORD],
        [first, replace(first, currency="USD")],
    )
    (summary,) = summarize_scores(judge(record, EXPECT) for record in cents)
    assert (summary.json["cost"], summary.json["currency"]) == ("0.3", "EUR")
    (other,) = summarize_scores(judge(record, EXPECT) for record in mixed)
    assert (other.json["cost"], other.json["currency"]) == (None, None)
    old, new = [judge(first, EXPECT)], [judge(replace(first, currency="USD"), EXPECT)]
    assert "cost" not in {one.figure for one in compare_scores(old, new)}
    assert "cost" in {one.figure for one in compare_scores(old, old)}


MISSION: dict[str, JsonValue] = {"name": "a", "goal": "Look.", "root": "."}
SUITE: dict[str, JsonValue] = {"name": "s", "planners": {"p": "surveyor"}, "missions": [MISSION]}


def test_a_suite_has_missions_with_the_keys_of_mission_files() -> None:
    stated = {**SUITE, "defaults": {"limits": {"max_turns": 3}}, "repeat": 2}
    suite = parse_suite(json.dumps(stated), source="s.yaml")
    assert (suite.name, suite.repeat, [*suite.planners]) == ("s", 2, ["p"])
    (case,) = suite.missions
    assert case.with_planner("human").limits.max_turns == 3
    assert case.with_planner({"type": "script", "replies": []}).planner.type == "script"


@table(
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
        ({"missions": [{**MISSION, "expect": {"uses": ["a b"]}}]}, "s.yaml: missions.0.expect.uses.0: "),
        ({"missions": [{**MISSION, "expect": {"check": "x 'y"}}]}, "s.yaml: missions.0.expect.check: "),
        ({"missions": [{**MISSION, "expect": {"check": []}}]}, "s.yaml: missions.0.expect.check: "),
        ({"defaults": {"expect": {}}}, "s.yaml: defaults.expect: cannot be the same for every mission; leave it out"),
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


@table("text", ["", "[]", "a: [", "\x00"])
def test_what_is_no_suite_is_said(text: str) -> None:
    with pytest.raises(LcpError, match=r"^s\.yaml: "):
        parse_suite(text, source="s.yaml")
