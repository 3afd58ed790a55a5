"""`lcp diff`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


@pytest.fixture
def waiting(lcp: Lcp) -> Lcp:
    """Mission 1 waits with job 2, whose content would clear the terminal."""
    held = lcp.ask("write_file", rel_path="a.md", content="# a\n\x1b[2Jgone\n")
    assert lcp("run", lcp.mission(held, lcp.complete, lcp.complete), "--root", "root", "-q").code == 3
    return lcp


def test_a_held_job_shows_what_it_would_change_and_nothing_of_it_steers_the_terminal(waiting: Lcp) -> None:
    shown = waiting("diff", 2)
    assert shown.code == 0
    assert shown.out == "--- a/a.md\n+++ b/a.md\n@@ -1 +1,2 @@\n # a\n+<U+001B>[2Jgone\n"
    found = waiting("diff", 2, "--json").object
    assert (found["job_id"], found["state"]) == (2, "held")
    assert isinstance(found["files"], list)
    assert isinstance(found["files"][0], dict)
    assert "+\x1b[2Jgone\n" in str(found["files"][0]["diff"])


def test_a_mission_shows_everything_that_it_changed(waiting: Lcp) -> None:
    assert waiting("diff", "--mission", 1).err == "mission 1 has changed no files\n"
    waiting("approve", 2)
    waiting("work", "--until-idle", "-q")
    for arguments in (("diff", "--mission", 1), ("diff", 1)):  # job 1 is a turn
        assert "+<U+001B>[2Jgone\n" in waiting(*arguments).out
    assert json.loads(waiting("diff", 1, "--json").out)["mission_id"] == 1
    assert waiting("job", 3, "--json").object["kind"] == "agent_plan"
    third = waiting("diff", 3)
    assert (third.code, "+<U+001B>[2Jgone\n" in third.out) == (0, True)
    assert "job 3 is a turn, which changes no files; showing its mission, 1" in third.err


def test_an_unknown_job_or_mission_is_one_line(waiting: Lcp) -> None:
    for arguments, code in ((("diff",), 2), (("diff", 2, "--mission", 1), 2), (("diff", 99), 1), (("diff", "x"), 2),
                            (("diff", "--mission", 9), 1)):  # fmt: skip
        done = waiting(*arguments)
        assert (done.code, done.out, done.err.count("\n")) == (code, "", 1)
