"""`lcp changes` and `lcp undo`: file changes of a mission, and undoing them."""

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
    assert lcp("changes", 1).out == "mission 1 has changed no files\n"
    assert lcp("changes", 1, "--json").json == []


def test_changes_of_an_unknown_mission_are_an_error(lcp: Lcp) -> None:
    assert lcp("changes", 7, "--json").error["error_code"] == "NOT_FOUND"


def test_an_undo_says_what_it_did_and_how_to_take_it_back(written: Lcp) -> None:
    planned = written("undo", 1, "--dry-run")
    *files, how = planned.out.splitlines()
    assert (planned.code, files) == (0, ["new/deep/c.md would be removed", "a.md would be restored"])
    shown = written("undo", 1, "--dry-run", "--json").object["shown"]
    assert how == f"`--shown {shown}` in place of `--dry-run` does this"
    assert written("undo", 1, "--shown", "x", "--json").error["error_code"] == "CONFLICT"
    done = written("undo", 1, "--shown", shown)
    assert done.code == 0
    assert done.out == "new/deep/c.md removed\na.md restored\n`lcp undo --job 8` reverts this\n"
    assert sorted(path.name for path in written.root.iterdir()) == ["a.md", "main.py"]
    assert (written.root / "a.md").read_text() == "# a\n"
    assert "1 restored, 1 removed" in written("jobs", "--kind", "undo").out
    assert "undone by job 8" in written("changes", 1).out
    assert "## Undone" in written("report", 1).out
    assert written("undo", 1).out == "mission 1 has nothing to undo\n"
    back = written("undo", "--job", 8, "--json").object
    assert (back["job_id"], back["dry_run"], back["resumed"]) == (9, False, None)
    assert (written.root / "a.md").read_text() == "# b\nmore\n"
    assert written("db", "check").code == 0


def test_a_refused_undo_exits_5_and_names_the_files(written: Lcp) -> None:
    (written.root / "a.md").write_text("mine\n")
    (written.root / "new" / "deep" / "c.md").unlink()
    refused = written("undo", 1, "--json")
    assert (refused.code, refused.error["error_code"]) == (5, "CONFLICT")
    details = refused.error["technical_details"]
    assert isinstance(details, dict)
    assert details["files"] == ["new/deep/c.md", "a.md"]
    told = written("undo", 1)
    assert (told.code, len(told.err.splitlines())) == (5, 1)
    assert "'a.md' has been changed since the last change of a job" in told.err
    assert "'new/deep/c.md' is gone" in told.err


def test_an_undo_of_both_or_neither_is_a_usage_error(written: Lcp) -> None:
    assert written("undo").code == 2
    assert written("undo", 1, "--job", 2).code == 2
    assert written("undo", 9).code == 1
    assert (written.root / "a.md").read_text() == "# b\nmore\n"
