"""Of a merge a person takes some hunks, or edits a file first; bound, exactly once and undone like the whole (R28)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from pydantic import JsonValue
from tests.runner.theatre import BEFORE, DONE, Theatre, ask, delete, edit, write

from lcp_engine import ErrorCode, LcpError
from lcp_engine.changes.unified_diff import Diff
from lcp_engine.features.stages.merge_worker import params_taking
from lcp_engine.workers.base import Caps

LINES = [f"line {number}\n" for number in range(1, 31)]
LONG = "".join(LINES)


def changed(*numbers: int) -> str:
    """The long file with these lines in capitals."""
    return "".join(line.upper() if at in numbers else line for at, line in enumerate(LINES, 1))


def play(theatre: Theatre, *more: JsonValue) -> int:
    """A held merge that changes three distant lines of a long file, and what else is asked; its id."""
    theatre.write("long.txt", LONG)
    theatre.play(ask(write("long.txt", changed(1, 15, 30)), *more), DONE)
    return theatre.merge()


def diff_of(theatre: Theatre, merge: int, path: str = "long.txt") -> Diff:
    return next(diff for diff in theatre.engine.look(merge).files if diff.path == path)


def names_of(theatre: Theatre, merge: int, *numbers: int) -> list[JsonValue]:
    hunks = diff_of(theatre, merge).hunks
    return [hunks[number - 1].name for number in numbers]


def take(theatre: Theatre, merge: int, **params: JsonValue) -> None:
    shown = theatre.engine.look(merge).sight
    theatre.engine.approve(merge, params=params, shown=shown, by="ada")
    theatre.work()


def result_of(theatre: Theatre, merge: int) -> dict[str, JsonValue]:
    result = theatre.engine.job(merge).result
    assert result is not None
    return result


def test_a_diff_names_its_hunks_and_says_their_numbers(theatre: Theatre) -> None:
    merge = play(theatre)
    diff = diff_of(theatre, merge)
    assert [hunk.name.partition("-")[0] for hunk in diff.hunks] == ["1", "2", "3"]
    headers = [line for line in diff.lines if line.startswith("@@")]
    assert headers[1] == "@@ -12,7 +12,7 @@ hunk 2 of 3"
    assert diff.json["hunks"] == [hunk.name for hunk in diff.hunks]


def test_some_hunks_are_taken_recorded_and_undone(theatre: Theatre) -> None:
    merge = play(theatre, write("n.txt", "new\n"))
    names = names_of(theatre, merge, 1, 3)
    (left,) = (hunk.header for hunk in diff_of(theatre, merge).hunks if hunk.name not in names)
    take(theatre, merge, hunks={"long.txt": names})
    assert theatre.files() == {**BEFORE, "long.txt": changed(1, 30), "n.txt": "new\n"}
    assert theatre.state() == ("completed", "mission_complete")
    result = result_of(theatre, merge)
    assert result["summary"] == "1 created, 1 changed, 1 hunk left out"
    files = result["files"]
    assert isinstance(files, list)
    assert [(one["path"], one["left_out"]) for one in files if isinstance(one, dict)] == [
        ("long.txt", [left]),
        ("n.txt", []),
    ]
    undone = theatre.engine.undo(theatre.mission)
    assert theatre.files() == {**BEFORE, "long.txt": LONG}
    theatre.engine.undo(job_id=undone.job_id)
    assert theatre.files()["long.txt"] == changed(1, 30)


def test_a_choice_is_shown_before_it_is_approved(theatre: Theatre) -> None:
    merge = play(theatre)
    params: dict[str, JsonValue] = {"hunks": {"long.txt": names_of(theatre, merge, 2)}}
    look = theatre.engine.look(merge, params=params)
    headers = [line for line in look.files[0].lines if line.startswith("@@")]
    assert [header.partition("hunk ")[2] for header in headers] == [
        "1 of 3, left out", "2 of 3", "3 of 3, left out",
    ]  # fmt: skip
    theatre.engine.approve(merge, params=params, shown=look.sight, by="ada")
    theatre.work()
    assert theatre.files()["long.txt"] == changed(15)


def test_all_hunks_are_the_whole_file(theatre: Theatre) -> None:
    merge = play(theatre)
    take(theatre, merge, only=["long.txt"], hunks={"long.txt": names_of(theatre, merge, 1, 2, 3)})
    assert theatre.files()["long.txt"] == changed(1, 15, 30)
    assert result_of(theatre, merge)["summary"] == "1 changed"


def test_a_person_edits_files_before_they_are_merged(theatre: Theatre) -> None:
    merge = play(theatre, write("n.txt", "new\n"), write("m.txt", "m\n"))
    assert theatre.engine.merged_text(merge, "n.txt") == "new\n"
    texts: dict[str, JsonValue] = {"n.txt": "mine\n", "long.txt": changed(2)}
    shown = theatre.engine.look(merge, params={"edits": texts})
    assert "+mine" in {line for diff in shown.files for line in diff.lines}
    take(theatre, merge, edits=texts)
    assert theatre.files() == {**BEFORE, "long.txt": changed(2), "n.txt": "mine\n", "m.txt": "m\n"}
    assert result_of(theatre, merge)["summary"] == "2 created, 1 changed, 2 as edited by a person"
    (decided,) = [one for one in theatre.engine.events(theatre.mission) if one["event"] == "decided"]
    assert isinstance(decided["data"], dict)
    assert (decided["data"]["by"], decided["data"]["params"]) == ("ada", {"edits": texts})
    theatre.engine.undo(theatre.mission)
    assert theatre.files() == {**BEFORE, "long.txt": LONG}


def test_an_edit_keeps_the_mode_and_what_it_takes_back_changes_nothing(theatre: Theatre) -> None:
    theatre.write("run.sh", "one\n")
    (theatre.root / "run.sh").chmod(0o751)
    merge = play(theatre, edit("run.sh", "one", "two"), edit("a.txt", "one", "two"))
    take(theatre, merge, edits={"run.sh": "three\n", "a.txt": BEFORE["a.txt"]})
    assert (theatre.root / "run.sh").stat().st_mode & 0o777 == 0o751
    assert theatre.files()["run.sh"] == "three\n"
    changes = theatre.engine.changes(theatre.mission)
    assert "a.txt" not in [one["path"] for one in changes if one["job_id"] == merge]


def test_the_planner_reads_what_was_left_out(theatre: Theatre) -> None:
    theatre.write("long.txt", LONG)
    theatre.play(planner={"type": "human"})
    for reply in (ask(write("long.txt", changed(1, 15, 30))), DONE):
        _reply(theatre, reply)
    merge = theatre.merge()
    take(theatre, merge, hunks={"long.txt": names_of(theatre, merge, 1)})
    theatre.engine.resume(theatre.mission, by="ada")
    theatre.work()
    prompt = str(theatre.engine.turns(theatre.mission)[-1]["prompt"])
    assert "1 changed, 2 hunks left out" in prompt
    assert "@@ -12,7 +12,7 @@" in prompt


BAD: Sequence[tuple[dict[str, JsonValue], ErrorCode, str]] = (
    ({"hunks": {"long.txt": ["9-00000000"]}}, ErrorCode.CONFLICT, "has no hunk '9-00000000'"),
    ({"hunks": {"long.txt": ["2"]}}, ErrorCode.INVALID_PARAMS, "hunks"),
    ({"hunks": {"long.txt": []}}, ErrorCode.INVALID_PARAMS, "hunks"),
    ({"hunks": {"b.txt": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "'b.txt' is removed; it has no hunks"),
    ({"hunks": {"n.txt": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "'n.txt' is new; it has no hunks"),
    ({"hunks": {"blob": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "'blob' does not change as text"),
    ({"hunks": {"empty/": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "'empty/' is a directory"),
    ({"hunks": {"no.txt": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "'no.txt' is not a file"),
    ({"only": ["no.txt"]}, ErrorCode.INVALID_PARAMS, "'no.txt' is not a file"),
    ({"only": []}, ErrorCode.INVALID_PARAMS, "only"),
    ({"only": ["n.txt"], "edits": {"long.txt": "x"}}, ErrorCode.INVALID_PARAMS, "is not in only"),
    ({"edits": {"long.txt": "x"}, "hunks": {"long.txt": ["1-00000000"]}}, ErrorCode.INVALID_PARAMS, "both"),
    ({"edits": {"b.txt": "x"}}, ErrorCode.INVALID_PARAMS, "'b.txt' is removed; there is no text to edit"),
    ({"edits": {"empty/": "x"}}, ErrorCode.INVALID_PARAMS, "is a directory; there is no text to edit"),
    ({"edits": {"long.txt": "a\0b"}}, ErrorCode.INVALID_PARAMS, "U+0000"),
    ({"edits": {"long.txt": "x" * 5_000}}, ErrorCode.TOO_LARGE, "'long.txt' would get 5,000 bytes"),
    ({"edits": {"../out.txt": "x"}}, ErrorCode.INVALID_PARAMS, "'../out.txt' is not a file"),
)


def test_what_a_merge_does_not_have_is_refused_and_nothing_is_decided(theatre: Theatre) -> None:
    instance = theatre.engine.instance
    (theatre.root / "blob").write_bytes(b"\0\1\2")
    more: list[JsonValue] = [write("n.txt", "new\n"), delete("b.txt"), write("blob", "text now\n")]
    merge = play(theatre, *more, {"kind": "make_directory", "params": {"rel_path": "empty"}})
    capped = replace(instance, caps=replace(Caps(), write_bytes=4_000))
    theatre.engine.instance = capped
    for params, code, said in BAD:
        with pytest.raises(LcpError) as refused:
            theatre.engine.approve(merge, params=params, by="ada")
        assert (refused.value.code, said in str(refused.value)) == (code, True), (params, refused.value)
        assert theatre.engine.job(merge).state == "held"
    with pytest.raises(LcpError, match="no file is chosen"):
        params_taking(["a"], {})
    with pytest.raises(LcpError, match="no hunk of 'a' is chosen"):
        params_taking(["a"], {"a": []})
    for path, said in (("b.txt", "is removed"), ("no.txt", "is not a file"), ("empty/", "is a directory")):
        with pytest.raises(LcpError, match=said):
            theatre.engine.merged_text(merge, path)


def test_a_hunk_of_a_file_that_changed_meanwhile_is_refused(theatre: Theatre) -> None:
    merge = play(theatre)
    shown = theatre.engine.look(merge).sight
    params: dict[str, JsonValue] = {"hunks": {"long.txt": names_of(theatre, merge, 1)}}
    theatre.write("long.txt", LONG + "mine\n")
    with pytest.raises(LcpError, match="is not what was shown"):
        theatre.engine.approve(merge, params=params, shown=shown, by="ada")
    theatre.engine.approve(merge, params=params, shown=theatre.engine.look(merge).sight, by="ada")
    theatre.work()
    assert theatre.reason(merge) == "not merged, as the diff says at each: long.txt"
    assert theatre.files()["long.txt"] == LONG + "mine\n"
    theatre.write("long.txt", LONG)
    take(theatre, merge, **params)
    assert theatre.files()["long.txt"] == changed(1)


def test_of_two_people_who_choose_hunks_at_once_one_decides(theatre: Theatre) -> None:
    merge = play(theatre)
    shown = theatre.engine.look(merge).sight
    choices = {who: names_of(theatre, merge, number) for who, number in (("ada", 1), ("eve", 3))}

    def decide(who: str) -> object:
        try:
            params: dict[str, JsonValue] = {"hunks": {"long.txt": choices[who]}}
            return theatre.engine.approve(merge, params=params, shown=shown, by=who)
        except LcpError as refused:
            return refused

    with ThreadPoolExecutor(2) as people:
        told = dict(zip(choices, people.map(decide, choices), strict=True))
    (winner,) = [who for who, found in told.items() if found is True]
    (loser,) = [found for found in told.values() if isinstance(found, LcpError)]
    assert loser.code is ErrorCode.CONFLICT
    assert f"{winner} has approved it with other params" in str(loser)
    theatre.work()
    assert theatre.files()["long.txt"] == changed(1 if winner == "ada" else 30)


# -- some now, the rest later


def send_back(theatre: Theatre, merge: int, words: str, **params: JsonValue) -> int:
    """Take a part of a merge with words about the rest; the merge of what the planner then did."""
    shown = theatre.engine.look(merge).sight
    theatre.engine.approve(merge, params=params, shown=shown, by="ada", words=words)
    theatre.work()
    later = theatre.merge()
    assert later != merge
    return later


def test_the_rest_goes_back_with_words_and_is_merged_without_a_conflict(theatre: Theatre) -> None:
    theatre.write("long.txt", LONG)
    before = theatre.files()
    again = ask(write("n.txt", "newer\n"), write("long.txt", changed(1, 7, 30)))
    theatre.play(ask(write("long.txt", changed(1, 15, 30)), write("n.txt", "new\n")), DONE, again, DONE)
    merge = theatre.merge()
    hunks = names_of(theatre, merge, 1, 3)
    later = send_back(theatre, merge, "Line 7, not line 15.", hunks={"long.txt": hunks})
    assert theatre.state()[0] == "waiting"
    assert theatre.files() == {**before, "long.txt": changed(1, 30), "n.txt": "new\n"}
    look = theatre.engine.look(later)
    assert [(diff.path, diff.added, diff.removed) for diff in look.files] == [
        ("long.txt", 1, 1),
        ("n.txt", 1, 1),
    ]
    assert "CONFLICT" not in str(look.diff)
    take(theatre, later)
    assert theatre.files() == {**before, "long.txt": changed(1, 7, 30), "n.txt": "newer\n"}
    assert theatre.state() == ("completed", "mission_complete")
    theatre.engine.undo(theatre.mission)
    assert theatre.files() == before


def test_what_changes_in_the_root_after_a_part_was_merged_is_a_conflict(theatre: Theatre) -> None:
    theatre.write("long.txt", LONG)
    theatre.play(ask(write("long.txt", changed(1, 15))), DONE, DONE)
    merge = theatre.merge()
    later = send_back(theatre, merge, "Why line 15?", hunks={"long.txt": names_of(theatre, merge, 1)})
    theatre.write("long.txt", changed(1, 20))
    assert "CONFLICT: it has changed in the root" in str(theatre.engine.look(later).diff)


def test_what_was_merged_and_taken_back_is_merged_again(theatre: Theatre) -> None:
    theatre.play(ask(write("n.txt", "new\n"), edit("a.txt", "one", "two")), DONE, DONE)
    merge = theatre.merge()
    later = send_back(theatre, merge, "Why a.txt?", only=["n.txt"])
    assert [diff.path for diff in theatre.engine.look(later).files] == ["a.txt"]
    theatre.engine.undo(job_id=merge)
    assert [diff.path for diff in theatre.engine.look(later).files] == ["n.txt", "a.txt"]
    assert "CONFLICT" not in str(theatre.engine.look(later).diff)


def test_words_with_a_merge_are_read_before_the_mission_ends(theatre: Theatre) -> None:
    theatre.play(planner={"type": "human"})
    for reply in (ask(write("n.txt", "new\n")), DONE):
        _reply(theatre, reply)
    merge = theatre.merge()
    for _ in range(2):
        theatre.engine.approve(merge, shown=theatre.engine.look(merge).sight, by="ada", words="Well done.")
    theatre.work()
    assert theatre.files()["n.txt"] == "new\n"
    assert theatre.state() == ("waiting", None)
    assert str(theatre.engine.turns(theatre.mission)[-1]["prompt"]).count("Well done.") == 1
    _reply(theatre, DONE)
    assert theatre.state() == ("completed", "mission_complete"), "nothing is left to be merged"


def _reply(theatre: Theatre, reply: JsonValue) -> None:
    """Bring the reply of the turn that waits for one."""
    (turn,) = theatre.engine.jobs(mission_id=theatre.mission, kinds=["agent_plan"], states=["held"])
    theatre.engine.answer(turn.id, json.dumps(reply), by="ada")
    theatre.work()
