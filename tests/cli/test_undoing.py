"""`lcp changes` and `lcp undo`: what a mission did to files, and taking it back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

CHANGE = {
    "id", "mission_id", "job_id", "attempt", "root", "path", "mode", "state", "sha256_before", "sha256_after",
    "size_bytes", "intended_at", "closed_at", "change", "size_before", "has_pre_image", "undoes", "undone_by",
}  # fmt: skip
AUTO: JsonValue = [{"kinds": ["*"], "do": "auto"}]


@pytest.fixture
def written(lcp: Lcp) -> Lcp:
    """One mission that changed a file, appended to it, and created one in a new directory."""
    replies = [
        lcp.ask("write_file", rel_path="a.md", content="# b\n"),
        lcp.ask("write_file", rel_path="a.md", content="more\n", mode="append"),
        lcp.ask("write_file", rel_path="new/deep/c.md", content="c\n"),
        lcp.complete,
    ]
    assert lcp("run", lcp.mission(*replies, policy=AUTO), "--root", "root", "-q").code == 0
    return lcp


def test_changes_are_listed_in_order_with_their_sizes(written: Lcp) -> None:
    changes = json.loads(written("changes", 1, "--json").out)
    assert {frozenset(change) for change in changes} == {frozenset(CHANGE)}
    assert [(one["change"], one["size_before"], one["size_bytes"], one["state"]) for one in changes] == [
        ("changed", 4, 4, "applied"),
        ("changed", 4, 9, "applied"),
        ("created", None, 2, "applied"),
    ]
    lines = written("changes", 1).out.splitlines()
    assert [line.split()[-1] for line in lines] == ["path", "a.md", "a.md", "new/deep/c.md"]


def test_a_mission_that_changed_nothing_says_so(lcp: Lcp) -> None:
    assert lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q").code == 0
    assert lcp("changes", 1).out == "mission 1 has changed no file\n"
    assert lcp("changes", 1, "--json").json == []


def test_changes_of_a_mission_that_is_not_there_are_an_error(lcp: Lcp) -> None:
    assert lcp("changes", 7, "--json").error["error_code"] == "NOT_FOUND"
