"""References to what earlier steps gave: values in place of texts, and what is missing is named."""

from __future__ import annotations

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.features.plans.references import (
    MOST_INSERTED,
    Missing,
    Misspelt,
    TooLong,
    references_in,
    resolve,
)

GIVEN: dict[str, JsonValue] = {
    "step-001": {"files": ["a.txt", "b.txt"], "total": 2, "deep": {"er": [[1]]}, "text": "hello"}
}


@table(
    ("value", "expected"),
    [
        ("$output.step-001.files[0]", "a.txt"),
        ("$output.step-001.files", ["a.txt", "b.txt"]),
        ("$output.step-001.total", 2),
        ("$output.step-001.deep.er[0][0]", 1),
        ("$output.step-001", GIVEN["step-001"]),
        ("see $output.step-001.text.", "see hello."),
        ("$output.step-001.total of $output.step-001.files", '2 of ["a.txt", "b.txt"]'),
        ("$$output.step-001.total", "$output.step-001.total"),
        ({"a": ["$output.step-001.total", 7, None]}, {"a": [2, 7, None]}),
        ("nothing", "nothing"),
    ],
)
def test_a_reference_becomes_its_value(value: JsonValue, expected: JsonValue) -> None:
    assert resolve(value, GIVEN) == expected


@table(
    ("value", "said"),
    [
        ("$output.step-001.files[2]", "$output.step-001.files[2]: $output.step-001.files is a list of 2"),
        (
            "$output.step-001.deep.more",
            "$output.step-001.deep.more: $output.step-001.deep is an object with the keys er",
        ),
        ("$output.step-001.text.a", '$output.step-001.text.a: $output.step-001.text is "hello"'),
        ("$output.step-009.a", "$output.step-009.a: step-009 has no output"),
    ],
)
def test_a_missing_value_is_named_with_how_far_its_path_leads(value: JsonValue, said: str) -> None:
    with pytest.raises(Missing) as missing:
        resolve(value, GIVEN)
    assert str(missing.value) == said


def test_what_looks_like_a_reference_and_is_none_is_found() -> None:
    found = [reference for _, reference in references_in(["$output.1.a", "$output.", "$$output.x", "$5"])]
    assert found == [Misspelt("$output.1.a"), Misspelt("$output.")]


def test_references_insert_a_bounded_text() -> None:
    large: dict[str, JsonValue] = {
        "step-001": {"text": "x" * 10_000_000, "half": "y" * 600_000, "list": [0] * 900_000}
    }
    for value in (
        "$output.step-001.text",
        "a $output.step-001.text",
        ["$output.step-001.half"] * 2,
        "$output.step-001.list",
    ):
        with pytest.raises(TooLong, match=f"{MOST_INSERTED:,} characters"):
            resolve(value, large)  # type: ignore[arg-type]  # a list of texts is JSON
    assert resolve("$output.step-001.half", large) == large["step-001"]["half"]  # type: ignore[index, call-overload]
