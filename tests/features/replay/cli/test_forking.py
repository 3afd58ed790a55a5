"""`lcp fork`: what it prints, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_a_fork_is_queued_and_says_what_has_changed(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.ask("read_file", rel_path="a.md"), lcp.complete), "--root", "root")
    (lcp.root / "a.md").write_text("changed")
    done = lcp("fork", 1, "--turn", 2)
    assert (done.code, done.out) == (0, "2\n")
    assert done.err == (
        "a.md is changed since job 2 (read_file)\n"
        "mission 2 continues from turn 2 of mission 1: `lcp work --until-idle`\n"
    )
    lcp("work", "--until-idle")
    assert lcp("show", 2, "--json").object["outcome"] == "mission_complete"
    assert lcp("db", "check").code == 0
    assert lcp("fork", 1, "--turn", 2, "--json").object == {
        "id": 3, "changed": [{"path": "a.md", "now": "changed", "job": 2, "kind": "read_file"}], "unknown": [],
    }  # fmt: skip


def test_an_edited_reply_answers_the_turn(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.ask("list_files"), lcp.complete), "--root", "root")
    (lcp.home / "reply.json").write_text(json.dumps(lcp.fail))
    assert lcp("fork", 1, "--turn", 2, "--reply", "reply.json", "--planner", "surveyor").code == 0
    lcp("work", "--until-idle")
    shown = lcp("show", 2, "--json").object
    assert (shown["outcome"], shown["planner"]) == ("error", "surveyor")


def test_a_refused_fork_is_one_line(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root")
    assert lcp("fork", 1).code == 2
    none = lcp("fork", 1, "--turn", 9)
    assert (none.code, none.err) == (1, "mission 1 has no turn 9; its turns are 1 to 1\n")
    missing = lcp("fork", 1, "--turn", 1, "--reply", "no.json")
    assert (missing.code, missing.err) == (
        1, "reply 'no.json' cannot be read: No such file or directory\n",
    )  # fmt: skip
    assert lcp("fork", 1, "--turn", 1, "--planner", "nobody", "--json").error["error_code"] == "NO_PLANNER"
    assert lcp("fork", 8, "--turn", 1).err == "mission 8 is not in the database\n"
    lcp.root.rename(lcp.home / "elsewhere")
    gone = lcp("fork", 1, "--turn", 1)
    assert (gone.code, gone.err.count("\n")) == (1, 1)
