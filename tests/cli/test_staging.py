"""A staged mission at the terminal: forty writes, one look, one decision, one undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal

QUESTION = "run it? [y,n,e,d,s,l,a,r,q,?] "
WRITES = 40


@pytest.fixture
def staged(lcp: Lcp) -> Lcp:
    """`mission-0.yaml` requests to write forty files."""
    jobs: list[JsonValue] = [
        {
            "kind": "write_file",
            "name": f"Part {number}",
            "params": {"rel_path": f"out/{number}.txt", "content": f"text {number}\n"},
        }
        for number in range(WRITES)
    ]
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    lcp.mission(reply, lcp.complete, lcp.complete, limits={"max_followups": WRITES})
    return lcp


def test_a_mission_says_where_its_stage_is_and_what_of_its_limits_is_used(staged: Lcp) -> None:
    assert staged("run", "mission-0.yaml", "--root", "root", "--stage", "-q").code == 3
    stage = staged("show", 1, "--json").object["stage"]
    assert isinstance(stage, dict)
    shown = staged("show", 1).out
    assert f"stage {stage['path']}" in shown.replace("\n", "")
    assert "used 2 turns of 25" in shown
    assert Path(str(stage["path"]), "out", "0.txt").is_file()
    assert staged("approve", _held(staged)).code == 0
    assert staged("work", "--until-idle", "-q").code == 0
    assert staged("show", 1, "--json").object["stage"] == {"path": None, "machine": None}
    assert "stage: none now" in staged("show", 1).out


def _written(lcp: Lcp) -> int:
    return len([*(lcp.root / "out").glob("*.txt")])


def _held(lcp: Lcp) -> int:
    """The id of the job that waits."""
    listed = lcp("held", "--json").json
    assert isinstance(listed, list)
    (held,) = listed
    assert isinstance(held, dict)
    return int(str(held["id"]))


def test_forty_writes_are_decided_with_one_look_and_undone_at_once(staged: Lcp) -> None:
    run = ("run", "mission-0.yaml", "--root", "root", "--stage")
    with Terminal(staged, *run, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        terminal.expect("merge the stage")
        shown = terminal.expect(QUESTION)
        assert "# 1/40 out/0.txt: for job 2, write_file: Part 0" in shown
        terminal.answer("d")
        paged = terminal.expect(QUESTION)
        assert all(f"+text {number}" in paged for number in range(WRITES))
        assert _written(staged) == 0
        terminal.answer("y")
        assert terminal.end() == 0
        assert QUESTION not in terminal.shown
    assert _written(staged) == WRITES
    assert staged("undo", 1).code == 0
    assert not (staged.root / "out").exists()


def test_no_sends_the_merge_back_with_words(staged: Lcp) -> None:
    with Terminal(staged, "run", "mission-0.yaml", "--root", "root", "--stage") as terminal:
        terminal.expect(QUESTION)
        terminal.answer("n")
        terminal.expect("no reason): ")
        terminal.answer("Not yet.")
        terminal.expect("merge the stage")
        terminal.expect(QUESTION)
        terminal.answer("q")
        assert terminal.end() == 3
    assert _written(staged) == 0


def test_some_files_of_a_merge_are_taken(staged: Lcp) -> None:
    assert staged("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    merge = _held(staged)
    refused = staged("approve", merge, "--only", "out/1.tx")
    assert refused.code == 2
    said = f"--only: 'out/1.tx' is no file of the merge, job {merge}; did you mean 'out/1.txt'?"
    assert said in refused.err
    staged("diff", merge)
    assert staged("approve", merge, "--only", "out/1.txt", "--only", "out/3.txt").code == 0
    staged("work", "--until-idle")
    assert sorted(path.name for path in (staged.root / "out").iterdir()) == ["1.txt", "3.txt"]
    result = staged("job", merge, "--json").object["result"]
    assert isinstance(result, dict)
    assert isinstance(result["left_out"], list)
    assert len(result["left_out"]) == WRITES - 2


def test_a_merge_is_approved_by_its_kind(staged: Lcp) -> None:
    assert staged("run", "mission-0.yaml", "--root", "root", "--stage", "--approve", "merge").code == 0
    assert _written(staged) == WRITES


def test_only_is_about_merges(lcp: Lcp) -> None:
    lcp.mission(lcp.ask("write_file", rel_path="b", content="x"), lcp.complete)
    lcp("run", "mission-0.yaml", "--root", "root")
    held = _held(lcp)
    refused = lcp("approve", held, "--only", "b")
    assert (refused.code, f"job {held} is no merge" in refused.err) == (2, True)
    refused = lcp("approve", "--all", "--only", "b")
    assert (refused.code, "--only needs exactly one job" in refused.err) == (2, True)
