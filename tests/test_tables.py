"""A table is one test that fails with each row that fails, by its name."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

TABLES = """
import pytest
from tests.tables import table

@table(("number", "text"), [(1, "one"), pytest.param(2, "zwei", id="german"), (3, "drei"), (4, None)])
def test_numbers(tmp_path, number, text):
    if text is None:
        pytest.skip("it has no word")
    assert text == {1: "one", 2: "two", 3: "three"}[number]

@table("outer", "ab")
@table("inner", [1, [2]], ids=["plain", "listed"])
def test_around_another(outer, inner):
    assert (outer, inner) != ("b", [2])

@table("row", [])
def test_empty(row):
    pass
"""


def test_each_row_that_fails_is_named_and_fails_its_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TABLES)
    said = pytester.runpytest("-q", "-ra").stdout
    said.fnmatch_lines_random(
        [
            "SUBFAILED[[]german] *::test_numbers*",
            "SUBFAILED[[]3-drei] *::test_numbers*",
            "SUBSKIPPED[[]4-None] *",
            "FAILED *::test_numbers*",
            "SUBFAILED[[]listed-b] *::test_around_another*",
            "FAILED *::test_around_another*",
            "FAILED *::test_empty*",
        ]
    )
    said.fnmatch_lines(["*6 failed, 1 skipped*"])
