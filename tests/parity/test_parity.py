"""The suites of small projects do the same outside and inside, but for what is stated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest
from tests.parity.__main__ import PAGE, with_table
from tests.parity.compare import Difference, Outcomes, compare, faults, known_differences
from tests.parity.projects import PROJECTS, Project
from tests.tables import table
from tests.walls import EACH_WALL

from lcp_engine.core.programs.walls import Step

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.proof
@pytest.mark.turns(6)
@EACH_WALL
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.name)
def test_a_suite_does_the_same_inside(project: Project, walls: Sequence[Step], tmp_path: Path) -> None:
    if project.missing:
        pytest.skip(f"{project.missing} is not installed")
    (wall,) = walls
    found = compare(project, tmp_path, wall)
    assert [*faults(project.name, wall, found, known_differences())] == [], found.said


def test_each_known_difference_names_a_project_once() -> None:
    names = {project.name for project in PROJECTS}
    known = known_differences()
    assert {one.project for one in known} <= names
    assert len({(one.project, one.tests) for one in known}) == len(known)


def test_the_page_has_the_table_of_the_walls() -> None:
    page = PAGE.read_text()
    assert page == with_table(page), "run python -m tests.parity --table"
    assert "| git commit | `.git` cannot be written | `.git` cannot be written |" in page


@table(
    ("inside", "tests", "wrong"),
    [
        ({"a": "ok", "b": "ok"}, None, []),
        ({"a": "ok"}, "b", []),
        ({"a": "ok", "b": "not ok"}, "*", []),
        ({"a": "ok", "b": "not ok"}, None, ["copy: p: b: ok outside, not ok inside"]),
        ({"a": "ok"}, None, ["copy: p: b: ok outside, missing inside"]),
        (
            {"a": "ok", "b": "ok", "c": "ok"},
            "b",
            ["copy: p: c: missing outside, ok inside", "copy: p: b: is the same"],
        ),
    ],
)
def test_what_is_not_stated_and_what_is_not_found_are_faults(
    inside: dict[str, str], tests: str | None, wrong: list[str]
) -> None:
    known = [] if tests is None else [Difference("p", tests, (Step.COPY,), "it is known")]
    found = [*faults("p", Step.COPY, Outcomes({"a": "ok", "b": "ok"}, inside, "exit code 0"), known)]
    assert len(found) == len(wrong)
    assert all(one.startswith(start) for one, start in zip(found, wrong, strict=True))
