"""Expressions of conditions: parsed into values, bounded, and wrong ones named with their place."""

from __future__ import annotations

import time

import pytest
from tests.tables import table

from lcp_engine.features.plans.expression import (
    NotAnExpression,
    StepFacts,
    is_true,
    parse_expression,
    steps_of,
)

FACTS = {
    "step-001": StepFacts(
        "succeeded", {"total": 3, "ok": True, "files": ["a", "b"], "name": "x", "none": None}
    ),
    "step-002": StepFacts("failed", None),
    "read-me": StepFacts("succeeded", {"ok": True}),
    "and": StepFacts("failed", None),
}


@table(
    ("text", "expected"),
    [
        ("step-001.status == 'succeeded'", True),
        ('step-001.status != "succeeded"', False),
        ("step-001.result.total > 2 and step-001.result.total <= 3", True),
        ("step-001.result.total > 2.5", True),
        ("step-001.result.total == '3'", False),
        ("step-001.result.ok", True),
        ("step-001.result.total", False),
        ("step-001.result.ok == 1", False),
        ("step-001.result.files[1] == 'b'", True),
        ("step-001.result.files[7] == null", True),
        ("step-001.result.nothing.at.all == null", True),
        ("step-001.result.nothing > 1", False),
        ("step-001.result.name < 'y'", True),
        ("$output.step-001.total >= 3", True),
        ("not step-002.status == 'succeeded'", True),
        ("not (step-001.result.ok or step-002.result.ok)", False),
        ("step-002.result.a == 1 or step-001.result.ok and not false", True),
        ("true == true", True),
        ("step-003.status == null", True),
        ("read-me.result.ok and and.status == 'failed' and true", True),
        ("$output.read-me.ok", True),
    ],
)
def test_an_expression_compares_fields_of_steps(text: str, *, expected: bool) -> None:
    assert is_true(parse_expression(text), FACTS) is expected


@table(
    ("text", "said"),
    [
        ("", "character 1: a step's field "),
        ("step-001", "character 1: a step has a status and a result"),
        ("step-001.state == 1", "character 1: a step has a status and a result"),
        ("step-001.status == ", "character 20: a step's field "),
        ("step-001.status = 'a'", "character 17: 'and', 'or' or the end is expected, not '='"),
        (
            "(step-001.status == 'a'",
            "character 24: ')' for the '(' at character 1 is expected; the text ends here",
        ),
        ("__import__('os').system('x')", "character 1: a step's field "),
        ("step-001.status == 'a' && true", "character 24: 'and', 'or' or the end is expected, not '&'"),
        ("(" * 1000 + "true" + ")" * 900, "character 51: at most 50 parentheses"),
        ("not " * 400 + "true", "character 201: at most 50 parentheses"),
        ("x" * 1_000_000, "character 2001: at most 2,000 are read, it has 1,000,000"),
        ('step-001.status == "\\q"', "character 20: a text in double quotes is written as in JSON"),
    ],
)
def test_what_is_no_expression_is_named_with_its_place(text: str, said: str) -> None:
    began = time.monotonic()
    with pytest.raises(NotAnExpression) as refused:
        parse_expression(text)
    assert str(refused.value).startswith(said)
    assert time.monotonic() - began < 1


def test_the_steps_of_an_expression_are_known() -> None:
    expression = parse_expression("not (step-001.status == 'a' or $output.step-002.b > step-003.result.c)")
    assert [*steps_of(expression)] == ["step-001", "step-002", "step-003"]
