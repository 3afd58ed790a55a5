"""This project's own path cases, with every way to execute a job; a naive worker fails many of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.own_paths import Tree, load_own_cases, naive
from tests.tables import row
from tests.ways import WAYS, Way

NAIVE_FAILS = 50
CASES = load_own_cases()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_a_case_holds(tmp_path: Path, subtests: pytest.Subtests, way: Way) -> None:
    if not way.is_there:
        pytest.skip("this kernel has none")
    for number, case in enumerate(CASES):
        with row(subtests, f"{case['group']}: {case['name']}"):
            tree = Tree(tmp_path / str(number), case)
            if tree.aliases and not way.knows_aliases:
                pytest.skip("it is told no aliases")
            assert tree.faults(way.answer(tree.root, tree.aliases, tree.kind, tree.params)) == []


def test_every_class_has_cases() -> None:
    groups = {str(case["group"]) for case in CASES}
    assert len(CASES) >= 120
    assert len(groups) == 14
    assert len({json.dumps(case, sort_keys=True) for case in CASES}) == len(CASES)


def test_a_naive_worker_fails_many(tmp_path: Path) -> None:
    """Let read only, and never what would block or never end."""
    failed: list[str] = []
    for number, case in enumerate(CASES):
        if case["kind"] == "read_file" and case["group"] != "no regular file":
            place = tmp_path / str(number)
            place.mkdir()
            tree = Tree(place, case)
            if tree.faults(naive(tree.root, tree.kind, tree.params)):
                failed.append(str(case["name"]))
    assert len(failed) >= NAIVE_FAILS
