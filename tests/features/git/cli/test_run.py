"""`lcp run --branch` and `--commit` state how a mission ends in its repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_a_branch_of_the_command_line_is_tried_where_there_is_no_repository(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    lcp("run", mission, "--root", "root", "--branch", "lcp/{id}")
    listed = lcp("jobs", "--mission", 1).out
    assert "commit" in listed
    assert "nothing was committed" in " ".join(lcp("show", 1).out.split())
    assert lcp("run", mission, "--root", "root", "--commit", "merge").err.count("works in a stage") <= 1
    refused = lcp("run", mission, "--root", "root", "--commit", "merge")
    assert refused.code != 0
    assert "stage: true is expected" in refused.err
