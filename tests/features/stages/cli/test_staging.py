"""A staged mission at the terminal: forty writes, one look, one decision, one undo."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal

QUESTION = "run it? [y,n,e,p,d,s,l,a,q,?] "
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
    assert "stage: removed" in staged("show", 1).out


def test_a_stage_is_found_again_where_the_path_of_the_home_directory_passes_a_link(staged: Lcp) -> None:
    (staged.home / "disk").mkdir()
    (staged.home / "linked").symlink_to("disk")
    state = str(staged.home / "linked/state")
    done = staged("run", "mission-0.yaml", "--root", "root", "--stage", "-q", XDG_STATE_HOME=state)
    assert done.code == 3, done.err
    assert staged("approve", _held(staged), XDG_STATE_HOME=state).code == 0
    assert staged("work", "--until-idle", "-q", XDG_STATE_HOME=state).code == 0
    assert _written(staged) == WRITES


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
    (staged.root / "a.md").chmod(0o750)
    before = _picture(staged)
    run = ("run", "mission-0.yaml", "--root", "root", "--stage")
    with Terminal(staged, *run, environment={"PAGER": "sed s/^/paged/"}) as terminal:
        terminal.expect("merge the stage")
        shown = terminal.expect(QUESTION)
        assert "# 1/40 out/0.txt: for job 2, write_file: Part 0" in shown
        assert "  1 out/0.txt  +1 -0\r\n" in shown
        assert f"  <{WRITES - 20} more files>" in shown
        terminal.answer("d")
        paged = terminal.expect(QUESTION)
        assert all(f"+text {number}" in paged for number in range(WRITES))
        assert _written(staged) == 0
        terminal.answer("y")
        assert terminal.end() == 0
        assert QUESTION not in terminal.shown
    assert _written(staged) == WRITES
    assert staged("undo", 1).code == 0
    assert _picture(staged) == before


def _picture(lcp: Lcp) -> dict[str, tuple[int, bytes | None]]:
    """What is in the root: each entry with its mode bits, and the bytes of each file."""
    return {
        str(path.relative_to(lcp.root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in lcp.root.rglob("*")
    }


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
    said = f"--only: 'out/1.tx' is not a file of the merge, job {merge}; did you mean 'out/1.txt'?"
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
    assert (refused.code, f"job {held} is not a merge" in refused.err) == (2, True)
    refused = lcp("approve", "--all", "--only", "b")
    assert (refused.code, "--only needs exactly one job" in refused.err) == (2, True)


EDITOR = "sed -i s/LINE/Line/"
LINES = [f"line {number}\n" for number in range(1, 31)]


def _changed(*numbers: int) -> str:
    return "".join(line.upper() if at in numbers else line for at, line in enumerate(LINES, 1))


@pytest.fixture
def long(lcp: Lcp) -> Lcp:
    """`mission-0.yaml` changes three distant lines of a file, writes a second one and removes a third."""
    (lcp.root / "long.txt").write_text("".join(LINES))
    (lcp.root / "gone.txt").write_text("gone\n")
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"rel_path": "long.txt", "content": _changed(1, 15, 30)}},
        {"kind": "write_file", "params": {"rel_path": "new#1.txt", "content": "new\n"}},
        {"kind": "delete_file", "params": {"rel_path": "gone.txt"}},
    ]
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    lcp.mission(reply, lcp.complete)
    return lcp


def _tree(lcp: Lcp) -> dict[str, str]:
    return {path.name: path.read_text() for path in lcp.root.iterdir()}


def test_hunks_of_a_file_are_taken_by_number(long: Lcp) -> None:
    before = _tree(long)
    assert long("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    merge = _held(long)
    assert "@@ -12,7 +12,7 @@ hunk 2 of 3" in long("diff", merge).out
    for only, said in (
        ("long.txt#4", "'long.txt' has no hunk '4'; its hunks are 1 to 3"),
        ("long.txt#0", "'long.txt' has no hunk '0'"),
        ("long.txt#", "'long.txt' has no hunk ''"),
        ("long.txt#1-2", "'long.txt' has no hunk '1-2'"),
        ("gone.txt#1", "'gone.txt' has no hunk '1'; it has none, and is taken whole or left out"),
        ("lon.txt#1", "'lon.txt#1' is not a file of the merge"),
    ):
        refused = long("approve", merge, "--only", only)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert (
        long("approve", merge, "--only", "long.txt#1", "--only", "long.txt#3", "--only", "new#1.txt").code
        == 0
    )
    assert long("work", "--until-idle").code == 0
    assert _tree(long) == {**before, "long.txt": _changed(1, 30), "new#1.txt": "new\n"}
    assert long("undo", 1).code == 0
    assert _tree(long) == before


def test_a_file_is_edited_before_it_is_merged(long: Lcp) -> None:
    before = _tree(long)
    assert long("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    merge = _held(long)
    for path, said in (
        ("no.txt", "--edit-file: 'no.txt' is not a file of the merge"),
        ("gone.txt", "'gone.txt' is removed; there is no text to edit"),
        ("new#1.txt", "what was edited is unchanged; nothing was approved"),
    ):
        refused = long("approve", merge, "--edit-file", path, EDITOR=EDITOR)
        assert (refused.code, said in refused.err) == (2, True), refused
    assert long("approve", merge, "--edit-file", "long.txt", EDITOR=EDITOR).code == 0
    assert long("work", "--until-idle").code == 0
    kept = {name: text for name, text in before.items() if name != "gone.txt"}
    text = _changed(1, 15, 30).replace("LINE", "Line")
    assert _tree(long) == {**kept, "long.txt": text, "new#1.txt": "new\n"}
    assert long("undo", 1).code == 0
    assert _tree(long) == before


def test_a_file_is_edited_besides_hunks_of_others(long: Lcp) -> None:
    before = _tree(long)
    assert long("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    chosen = ("--only", "long.txt#2", "--edit-file", "new#1.txt")
    assert long("approve", _held(long), *chosen, EDITOR="sed -i s/new/mine/").code == 0
    assert long("work", "--until-idle").code == 0
    assert _tree(long) == {**before, "long.txt": _changed(15), "new#1.txt": "mine\n"}


@pytest.mark.parametrize(
    ("editor", "said"),
    [("rm", "the editor removed the file that it was given"), ("ln -sf /nowhere", "the editor removed"),
     ("ln -sf /dev/zero", "not a file any more"), ("cp /bin/true", "cannot be read")],
)  # fmt: skip
def test_an_editor_that_leaves_no_text_changes_nothing(long: Lcp, editor: str, said: str) -> None:
    assert long("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    refused = long("approve", _held(long), "--edit-file", "long.txt", EDITOR=editor, TMPDIR=str(long.home))
    assert (refused.code, said in refused.err) == (2, True), refused
    assert _held(long)


def test_line_ends_that_nobody_edited_stay(long: Lcp) -> None:
    (long.root / "ends.txt").write_bytes(b"one\rtwo\r\nthree\n")
    jobs: list[JsonValue] = [
        {"kind": "edit_file", "params": {"rel_path": "ends.txt", "old_text": "three", "new_text": "3"}}
    ]
    long.mission({"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}, long.complete)
    assert long("run", "mission-1.yaml", "--root", "root", "--stage").code == 3
    refused = long("approve", _held(long), "--edit-file", "ends.txt", EDITOR="true")
    assert (refused.code, "what was edited is unchanged" in refused.err) == (2, True), refused


def test_an_edit_that_is_refused_is_kept(long: Lcp) -> None:
    assert long("run", "mission-0.yaml", "--root", "root", "--stage").code == 3
    editor = long.home / "editor"
    other = long.root / "gone.txt"
    editor.write_text(f'#!/bin/sh\nsed -i s/LINE/Line/ "$1"\necho changed > {other}\n')
    editor.chmod(0o755)
    merge = _held(long)
    assert long("diff", merge).code == 0
    refused = long("approve", merge, "--edit-file", "long.txt", EDITOR=str(editor), TMPDIR=str(long.home))
    assert (refused.code, "your edit is kept in" in refused.err) == (5, True), refused
    kept = refused.err.partition("your edit is kept in ")[2].split("\n")[0].split(";")[0]
    assert Path(kept).read_text() == _changed(1, 15, 30).replace("LINE", "Line")


def test_hunks_are_chosen_one_after_the_other_at_the_terminal(long: Lcp) -> None:
    before = _tree(long)
    one = ("--threads", 1)  # the files come in the order of their jobs
    run = ("run", "mission-0.yaml", "--root", "root", "--stage", *one)
    with Terminal(long, *run, environment={"EDITOR": "sed -i s/new/mine/", "PAGER": "cat"}) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("p")
        for word in ("y", "n", "y"):
            terminal.expect("take hunk")
            terminal.expect("[y,n,a,d,e,r,f,q,?] ")
            terminal.answer(word)
        terminal.expect("new#1.txt (2 of 3): take this file? [y,n,e,r,f,q,?] ")
        terminal.answer("e")
        terminal.expect("gone.txt (3 of 3): take this file?")
        terminal.answer("n")
        shown = terminal.expect(QUESTION)
        assert "hunk 1 of 3" in shown
        terminal.answer("y")
        shown = terminal.expect(QUESTION)
        assert "hunk 2 of 3, left out" in shown
        assert "+mine" in shown
        assert "gone.txt: left out" in shown
        terminal.answer("y")
        assert terminal.end() == 0
    assert _tree(long) == {**before, "long.txt": _changed(1, 30), "new#1.txt": "mine\n"}
    assert long("undo", 1).code == 0
    assert _tree(long) == before


def test_a_file_that_was_emptied_is_empty_at_the_next_edit(long: Lcp) -> None:
    script = long.home / "emptying"
    script.write_text('#!/bin/sh\n: > "$1"\n')
    script.chmod(0o755)
    run = ("run", "mission-0.yaml", "--root", "root", "--stage", "--threads", 1)
    with Terminal(long, *run, environment={"EDITOR": str(script), "PAGER": "cat"}) as terminal:
        terminal.expect(QUESTION)
        for said in ("--- the root", "new#1.txt is unchanged"):
            terminal.answer("e")
            terminal.expect("which file?")
            terminal.answer("new#1.txt")
            terminal.expect(said)
            terminal.expect(QUESTION)
        terminal.answer("q")
