"""A mission works in a private copy of its root, and a person approves once what is merged (R28)."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import SQLITE
from tests.loaded_python import Python
from tests.runner.conftest import Ground
from tests.runner.theatre import AFTER, BEFORE, DONE, EDITS, Theatre, ask, delete, edit, open_theatre, write
from tests.walls import EACH_WALL, NEEDS_OVERLAY, at_its_path

from lcp_engine import Engine, ErrorCode, LcpError, Rule
from lcp_engine.core.job_states import State
from lcp_engine.core.policy import Verdict
from lcp_engine.core.programs.walls import Step
from lcp_engine.features.stages.stages import leftovers, remove_stages
from lcp_engine.sandbox.atomic_write import LocalFile, is_temporary
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.store.changes import left_open
from lcp_engine.workers.base import Caps


def test_a_staged_mission_leaves_its_root_alone_until_its_merge_is_approved(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    assert theatre.files() == BEFORE
    merge = theatre.merge()
    assert theatre.state() == ("waiting", None)
    assert "6 files" in theatre.reason(merge)
    theatre.approve(merge)
    assert (theatre.files(), (theatre.root / "empty").is_dir()) == (AFTER, True)
    assert theatre.state() == ("completed", "mission_complete")
    assert theatre.engine.mission(theatre.mission).summary == "done"
    assert theatre.staged() == []


def test_a_merge_shows_each_file_and_what_it_was_changed_for(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    shown = {diff.path: diff for diff in theatre.engine.diff(theatre.merge(), by="ada")}
    assert [*shown] == ["new/n.txt", "a.txt", "b.txt", "deep/c.txt", "moved/c.txt", "empty/"] or set(shown) == {
        "new/n.txt", "a.txt", "b.txt", "deep/c.txt", "moved/c.txt", "empty/",
    }  # fmt: skip
    assert shown["a.txt"].lines[-2:] == ("-one", "+ONE")
    assert "edit_file: Improve it." in (shown["a.txt"].note or "")
    look = theatre.engine.look(theatre.merge())
    assert look.diff is not None
    assert look.diff.is_whole
    assert look.diff.lines[2].startswith("# 1/6 new/n.txt: for job ")


def test_a_merge_names_a_name_in_another_unicode_form_that_the_root_has_by_now(theatre: Theatre) -> None:
    held = write("b2.txt", "b\n", auto_dispatch=False)
    theatre.play(ask(write("caf\u00e9.txt", "new\n"), held), DONE, **{"continue": "per_decision"})
    theatre.write("cafe\u0301.txt", "old\n")
    (waits,) = theatre.engine.jobs(mission_id=theatre.mission, states=[State.HELD])
    theatre.engine.reject(waits.id, "Not that one.")
    theatre.work()
    merge = theatre.merge()
    reason = str(theatre.engine.job(merge).reason)
    assert '(1 file, beside the same name in another Unicode form: "cafe\\u0301.txt")' in reason
    (shown,) = theatre.engine.diff(merge, by="ada")
    said = '"cafe\\u0301.txt", the same name in another Unicode form; there will be both'
    assert said in (shown.note or "")
    look = theatre.engine.look(merge)
    assert look.diff is not None
    assert said in look.diff.lines[2]
    theatre.approve(merge)
    job = theatre.engine.job(merge)
    assert (job.result or {}).get("files") == [
        {"ok": True, "path": "caf\u00e9.txt", "change": "created", "jobs": [2], "left_out": [], "edited": False,
         "twin": "cafe\u0301.txt"}
    ]  # fmt: skip


def test_a_held_merge_names_it_and_one_that_removes_it_does_not(theatre: Theatre) -> None:
    theatre.write("cafe\u0301.txt", "old\n")
    moved: JsonValue = {
        "kind": "move_file", "params": {"rel_path": "cafe\u0301.txt", "new_path": "caf\u00e9.txt"}
    }  # fmt: skip
    theatre.play(ask(moved), DONE)
    assert all("Unicode" not in (diff.note or "") for diff in theatre.engine.diff(theatre.merge(), by="ada"))
    assert "Unicode" not in str(theatre.engine.job(theatre.merge()).reason)


def test_a_merge_is_undone_as_one_and_the_undo_is_undone(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    theatre.approve(theatre.merge())
    undone = theatre.engine.undo(theatre.mission)
    assert (theatre.files(), (theatre.root / "empty").exists()) == (BEFORE, False)
    assert not (theatre.root / "new").exists()
    theatre.engine.undo(job_id=undone.job_id)
    assert theatre.files() == AFTER


def test_a_rejected_merge_leads_to_a_new_turn_in_the_same_stage(theatre: Theatre) -> None:
    theatre.play(ask(write("n.txt", "1\n")), DONE, ask(edit("n.txt", "1", "2")), DONE)
    first = theatre.merge()
    theatre.engine.reject(first, "It has to be 2.", by="ada")
    theatre.work()
    assert theatre.merge() != first
    theatre.approve(theatre.merge())
    assert theatre.files() == {**BEFORE, "n.txt": "2\n"}
    assert theatre.state() == ("completed", "mission_complete")


def test_a_mission_that_changed_nothing_ends_without_a_merge(theatre: Theatre) -> None:
    theatre.play(ask({"kind": "read_file", "params": {"rel_path": "a.txt"}}), DONE)
    assert theatre.state() == ("completed", "mission_complete")
    theatre.play(ask(edit("a.txt", "one", "ONE")), ask(edit("a.txt", "ONE", "one")), DONE)
    assert theatre.state() == ("completed", "mission_complete")


def test_a_stage_lifts_holds_of_file_changes_only(theatre: Theatre) -> None:
    jobs: list[JsonValue] = [
        write(".env", "x"), write("later.txt", "x", auto_dispatch=False), {"kind": "mail", "params": {}},
        {"kind": "change", "params": {}},
    ]  # fmt: skip
    rules: JsonValue = [{"kinds": ["write_file"], "paths": ["deep/**"], "do": "deny"}]
    theatre.play(ask(*jobs, write("deep/d.txt", "x")), DONE, policy=rules)
    found = {(job.kind, job.about_path): job.state for job in _jobs(theatre)}
    assert found == {
        ("write_file", ".env"): "rejected",
        ("write_file", "later.txt"): "held",
        ("write_file", "deep/d.txt"): "rejected",
        ("mail", None): "held",
        ("change", None): "succeeded",
    }
    assert theatre.files() == BEFORE


class _Seen:
    def __init__(self, kind: str, path: JsonValue, state: str) -> None:
        self.kind, self.about_path, self.state = kind, path, state


def _jobs(theatre: Theatre) -> list[_Seen]:
    jobs = theatre.engine.jobs(mission_id=theatre.mission)
    return [
        _Seen(job.kind, job.params.get("rel_path"), str(job.state))
        for job in jobs
        if job.kind not in ("agent_plan", "merge")
    ]


def test_the_root_keeps_its_name_in_a_stage(theatre: Theatre) -> None:
    named: JsonValue = {
        "kind": "write_file",
        "params": {"root": str(theatre.root), "rel_path": "n.txt", "content": "n\n"},
    }
    theatre.play(ask(named), DONE)
    assert "n.txt" not in theatre.files()
    theatre.approve(theatre.merge())
    assert theatre.files()["n.txt"] == "n\n"


def test_what_a_mission_did_before_it_failed_can_be_taken(theatre: Theatre) -> None:
    failed: JsonValue = {"ok": False, "action": "error", "error": "I give up."}
    theatre.play(ask(write("n.txt", "n\n")), failed)
    assert theatre.state() == ("failed", "error")
    theatre.approve(theatre.merge())
    assert theatre.files() == {**BEFORE, "n.txt": "n\n"}
    assert theatre.state() == ("failed", "error")
    assert theatre.staged() == []


def test_a_mission_that_reached_a_limit_goes_on_in_its_stage(theatre: Theatre) -> None:
    limits: JsonValue = {"max_turns": 1}
    replies = [ask(write("n.txt", "1\n")), ask(write("m.txt", "1\n")), ask(edit("n.txt", "1", "2")), DONE]
    theatre.play(*replies, limits=limits)
    assert theatre.state() == ("failed", "limit:max_turns")
    merge = theatre.merge()
    theatre.engine.resume(theatre.mission, limits={"max_turns": 9}, by="ada")
    theatre.work()
    assert theatre.merge() == merge
    theatre.approve(merge)
    assert theatre.files()["n.txt"] == "2\n"
    assert theatre.state() == ("completed", "mission_complete")


def test_a_stated_plan_ends_with_the_merge(theatre: Theatre) -> None:
    step: JsonValue = {
        "id": "step-001", "name": "write", "tool": "write_file",
        "parameters": {"rel_path": "n.txt", "content": "n\n"},
    }  # fmt: skip
    spec: dict[str, JsonValue] = {"goal": "Write.", "plan": {"steps": [step]}, "stage": True}
    for decide in ("approve", "reject"):
        theatre.mission = theatre.engine.launch(spec, root=theatre.root).id
        theatre.work()
        assert theatre.state() == ("waiting", None)
        if decide == "approve":
            theatre.approve(theatre.merge())
            assert theatre.state() == ("completed", "plan_complete")
            theatre.engine.undo(theatre.mission)
        else:
            theatre.engine.reject(theatre.merge(), "No.", by="ada")
            assert theatre.state() == ("failed", "job_failed")
    assert theatre.files() == BEFORE


def test_a_file_that_changed_in_the_root_holds_the_merge_and_nothing_is_written(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    theatre.write("a.txt", "mine\n")
    merge = theatre.merge()
    shown = {diff.path: diff.note or "" for diff in theatre.engine.diff(merge, by="ada")}
    assert "CONFLICT: it has changed in the root since the stage was made" in shown["a.txt"]
    theatre.approve(merge)
    assert theatre.engine.job(merge).state == "held"
    assert theatre.reason(merge) == "not merged, as the diff says at each: a.txt"
    assert theatre.files() == {**BEFORE, "a.txt": "mine\n"}
    theatre.write("a.txt", BEFORE["a.txt"])
    theatre.approve(merge)
    assert theatre.files() == AFTER


def test_a_file_that_became_a_directory_holds_the_merge(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    (theatre.root / "a.txt").unlink()
    (theatre.root / "a.txt").mkdir()
    theatre.approve(theatre.merge())
    assert "a.txt" in theatre.reason(theatre.merge())
    assert theatre.files() == {path: text for path, text in BEFORE.items() if path != "a.txt"}


def test_a_directory_that_became_a_file_holds_the_merge(theatre: Theatre) -> None:
    theatre.play(ask(write("new/n.txt", "n\n")), DONE)
    theatre.write("new", "a file\n")
    theatre.approve(theatre.merge())
    assert "new/n.txt" in theatre.reason(theatre.merge())
    assert theatre.files() == {**BEFORE, "new": "a file\n"}


def test_a_root_that_vanished_holds_the_merge_until_it_is_back(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    away = theatre.root.rename(theatre.root.with_name("away"))
    merge = theatre.merge()
    theatre.approve(merge)
    if theatre.engine.job(merge).state == "held":  # it may be on another machine, if there can be others
        assert theatre.reason(merge).startswith("not merged: root ")
        assert "does not exist" in theatre.reason(merge)
    away.rename(theatre.root)
    theatre.work()  # what was approved meanwhile is not what is there now
    theatre.approve(merge)
    assert theatre.files() == AFTER


def test_what_was_changed_after_a_look_is_not_approved(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    merge = theatre.merge()
    seen = theatre.engine.look(merge).sight
    (stage,) = theatre.staged()
    (stage / "a.txt").write_text("smuggled\n")
    with pytest.raises(LcpError, match="is not what was shown"):
        theatre.engine.approve(merge, by="ada", shown=seen)
    theatre.engine.diff(merge, by="eve")
    theatre.engine.approve(merge, by="eve")
    theatre.work()
    assert theatre.files() == BEFORE
    assert "a.txt" in theatre.reason(merge)


def test_two_missions_work_in_stages_of_one_root_side_by_side(theatre: Theatre) -> None:
    first = theatre.play(ask(edit("a.txt", "one", "1"), write("f.txt", "f\n")), DONE)
    second = theatre.play(ask(edit("a.txt", "one", "eins"), write("s.txt", "s\n")), DONE)
    assert len(theatre.staged()) == 2
    theatre.approve(theatre.merge(first))
    theatre.approve(theatre.merge(second))
    assert theatre.files() == {**BEFORE, "a.txt": "1\n", "f.txt": "f\n"}
    assert "a.txt" in theatre.reason(theatre.merge(second))


@EACH_WALL
def test_a_command_sees_the_stage_only_and_is_not_held(theatre: Theatre, walls: Sequence[Step]) -> None:
    script = f"cat a.txt; cat {theatre.root}/a.txt"
    command: JsonValue = {"kind": "run_command", "params": {"command": ["sh", "-c", script]}}
    allowed: JsonValue = {"allow": [["sh", "-c", "*"]]}
    theatre.play(ask(edit("a.txt", "one", "ONE")), ask(command), DONE, commands=allowed)
    (job,) = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    assert job.result is not None, job.error
    assert job.result["stdout"] == "ONE\n" + at_its_path(walls, "ONE\n")


@NEEDS_OVERLAY
def test_files_of_a_stage_are_as_old_as_those_of_the_root_and_as_a_command_wrote_them(
    theatre: Theatre,
) -> None:
    def command(script: str) -> JsonValue:
        return ask({"kind": "run_command", "params": {"command": ["sh", "-c", script]}})

    os.utime(theatre.root / "a.txt", (5, 1e9))
    writes = "stat -c %Y a.txt; echo > z; for i in $(seq 150); do echo $i > m$i; done; echo > c"
    allowed: JsonValue = {"allow": [["sh", "-c", "*"]]}
    theatre.play(command(writes), command("! test c -ot z; echo $?"), DONE, commands=allowed)
    jobs = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    assert [(job.result or {}).get("stdout") for job in jobs] == ["1000000000\n", "0\n"]


@EACH_WALL
def test_a_command_in_a_stage_reads_packages_of_the_root_through_no_other_link(
    theatre: Theatre, tmp_path: Path
) -> None:
    theatre.write(".gitignore", "node_modules/\n.venv/\n")
    for path in ("node_modules/ok/index.js", "node_modules/.env", ".venv/mine/x"):
        theatre.write(path, f"{path}\n")
    for other in ("node_modules/ok/other.js", "copied.txt"):
        os.link(theatre.root / "node_modules/.env", theatre.root / other)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "index.js").write_text("SECRET\n")
    (theatre.root / "d" / "e").mkdir(parents=True)
    (theatre.root / "d" / "e" / "top").symlink_to("../..")
    (theatre.root / "venv").symlink_to("d/e/top/../outside")  # beneath the root as a text
    script = f"cat node_modules/ok/*.js copied.txt */.env .venv/mine/x venv/index.js {theatre.root}/node_modules/.env"
    allowed: JsonValue = {"allow": [["sh", "-c", "*"]]}
    command: JsonValue = {"kind": "run_command", "params": {"command": ["sh", "-c", script]}}
    denied: JsonValue = [{"paths": [".venv/mine/"], "do": "deny"}]
    theatre.play(ask(command), DONE, commands=allowed, policy=denied)
    (job,) = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    assert job.result is not None, job.error
    assert job.result["stdout"] == "node_modules/ok/index.js\n"


@EACH_WALL
def test_a_command_in_a_stage_reads_packages_that_git_does_not_ignore(theatre: Theatre) -> None:
    for path in ("node_modules/ok/index.js", "node_modules/.env", ".venv/mine/x"):
        theatre.write(path, f"{path}\n")
    script = "cat node_modules/ok/index.js node_modules/.env .venv/mine/x; rm -r node_modules/ok; true"
    theatre.play(shell(script), DONE, commands=SHELL)
    (job,) = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    assert job.result is not None, job.error
    assert job.result["stdout"] == "node_modules/ok/index.js\n.venv/mine/x\n"
    assert "changed" not in job.result


SHELL: dict[str, JsonValue] = {"allow": [["sh", "-c", "*"]]}


def shell(script: str) -> JsonValue:
    return ask({"kind": "run_command", "params": {"command": ["sh", "-c", script]}})


def said(theatre: Theatre) -> list[JsonValue]:
    """What the commands of the mission printed."""
    jobs = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    return [(job.result or {"stdout": job.error}).get("stdout") for job in jobs]


@NEEDS_OVERLAY
def test_ignored_directories_of_the_root_are_seen_in_a_stage_and_changes_of_them_last_for_its_mission(
    theatre: Theatre,
) -> None:
    theatre.write(".gitignore", "node_modules/\n.venv/\ntarget/\n")
    theatre.write("target/debug/warm.o", "warm\n")
    theatre.write("node_modules/left/index.js", "left\n")
    theatre.write("packages/a/index.js", "a\n")
    theatre.write("packages/a/node_modules/pad/index.js", "pad\n")
    theatre.write("packages/a/node_modules/.env", "SECRET\n")
    theatre.write("packages/gone/node_modules/x.js", "gone\n")
    theatre.write(".venv/lib/site.py", "site\n")
    theatre.write("unknown.txt", "of the root\n")
    before = theatre.files()
    theatre.play(
        shell(
            "cat target/debug/warm.o */left/index.js packages/a/node_modules/pad/index.js .venv/lib/site.py;"
            " ls -A packages/a/node_modules packages/gone/node_modules"
        ),
        shell(
            "rm -rf .venv packages/a/node_modules/pad packages/gone; mkdir .venv; echo new > .venv/new; rm unknown.txt;"
            " echo 2 > node_modules/left/index.js; echo b > packages/a/index.js;"
            " echo more > packages/a/node_modules/more.js"
        ),
        shell("find .venv node_modules packages target -type f | sort | xargs grep .; ls unknown.txt"),
        DONE,
        commands=SHELL,
    )
    first, _, last = said(theatre)
    assert (
        first == "warm\nleft\npad\nsite\npackages/a/node_modules:\npad\n\npackages/gone/node_modules:\nx.js\n"
    )
    assert last == (
        ".venv/new:new\nnode_modules/left/index.js:2\npackages/a/index.js:b\n"
        "packages/a/node_modules/more.js:more\ntarget/debug/warm.o:warm\n"
    )
    assert theatre.files() == before
    theatre.approve(theatre.merge())
    before["packages/a/index.js"] = "b\n"
    del before["unknown.txt"]
    assert theatre.files() == before


MAIL = ask({"kind": "mail", "params": {}})
"""In between commands, something that waits for a person."""
HELD: JsonValue = [{"kinds": ["mail"], "do": "hold"}]


def held(theatre: Theatre) -> int:
    (job,) = theatre.engine.jobs(mission_id=theatre.mission, states=[State.HELD])
    assert job.kind == "mail"
    return job.id


@NEEDS_OVERLAY
def test_output_over_a_directory_that_a_stage_shows_gives_way_to_what_the_root_has_since(
    theatre: Theatre,
) -> None:
    theatre.write(".gitignore", "out/\n")
    theatre.write("out/a", "1\n")
    theatre.write("out/b", "1\n")
    writes, looks = "echo mine > out/a; rm out/b; echo mine > out/c", "cat out/*; ls"
    theatre.play(shell(writes), shell(looks), MAIL, shell(looks), DONE, commands=SHELL, policy=HELD)
    theatre.write("out/a", "of the root, later\n")
    theatre.write("new.txt", "made after the stage\n")
    theatre.approve(held(theatre))
    beside = "a.txt\nb.txt\ndeep\nout\n"
    assert said(theatre) == ["", f"mine\nmine\n{beside}", f"of the root, later\nmine\n{beside}"]


@NEEDS_OVERLAY
def test_files_that_git_tracks_are_in_a_stage_although_their_directory_is_ignored(theatre: Theatre) -> None:
    theatre.write(".gitignore", "build/\n__pycache__/\n")
    tracked = {"build/deep/keep.sh": "keep\n", "build/gone.txt": "gone\n", "__pycache__/odd.txt": "odd\n"}
    for path, text in {**tracked, "build/out.o": "out\n"}.items():
        theatre.write(path, text)
    (theatre.root / "build/deep/keep.sh").chmod(0o755)
    (theatre.root / "build/link").symlink_to("gone.txt")
    for command in (["init", "--quiet"], ["add", "--force", *tracked, "build/link", ".gitignore"]):
        subprocess.run(["git", *command], cwd=theatre.root, check=True)
    theatre.play(
        ask(edit("build/deep/keep.sh", "keep", "KEPT")),
        shell("cat build/deep/keep.sh __pycache__/odd.txt; rm build/gone.txt; echo new > build/out.o"),
        shell("test -x build/deep/keep.sh; ls build; cat build/out.o; git diff --name-status"),
        DONE,
        commands=SHELL,
    )
    assert said(theatre) == [
        "KEPT\nodd\n",
        "deep\nlink\nout.o\nnew\nM\tbuild/deep/keep.sh\nD\tbuild/gone.txt\n",
    ]
    theatre.approve(theatre.merge())
    shutil.rmtree(theatre.root / ".git")
    assert theatre.files() == {
        **BEFORE,
        ".gitignore": "build/\n__pycache__/\n",
        "__pycache__/odd.txt": "odd\n",
        "build/deep/keep.sh": "KEPT\n",
        "build/out.o": "out\n",
    }


@NEEDS_OVERLAY
def test_commands_see_the_repository_of_a_worktree_in_a_stage(theatre: Theatre) -> None:
    repository, tree = (theatre.root.with_name(name) for name in ("repository", "tree"))
    named = ("-c", "user.name=a", "-c", "user.email=b")
    for place, command in (
        (theatre.root.parent, ("init", "-q", str(repository))),
        (repository, (*named, "commit", "-q", "--allow-empty", "-m", "first")),
        (repository, ("worktree", "add", "-q", str(tree))),
    ):
        subprocess.run(["git", *command], cwd=place, check=True)
    (tree / ".git").rename(theatre.root / ".git")
    for last in (("worktree", "repair"), ("add", "a.txt")):
        subprocess.run(["git", *last], cwd=theatre.root, check=True)
    link = (theatre.root / ".git").read_text()
    looks = "git log --format=%s; git status --short a.txt; echo new > a.txt"
    theatre.play(shell(looks), shell("git diff --name-status; rm .git; git init -q"), DONE, commands=SHELL)
    assert said(theatre) == ["first\nA  a.txt\n", "M\ta.txt\n"]
    theatre.approve(theatre.merge())
    assert (theatre.root / ".git").read_text() == link
    assert (theatre.root / "a.txt").read_text() == "new\n"


@NEEDS_OVERLAY
def test_commands_see_certificates_that_a_mission_shows_in_a_stage(theatre: Theatre) -> None:
    for name in ("certs/a.pem", "certs/b.pem"):
        theatre.write(name, "of a test\n")
    for command in (("init", "-q"), ("add", "certs/a.pem")):
        subprocess.run(["git", *command], cwd=theatre.root, check=True)
    theatre.play(shell("cat certs/*.pem; ls certs"), DONE, commands={**SHELL, "show": ["certs/*.pem"]})
    assert said(theatre) == ["of a test\na.pem\n"]


@NEEDS_OVERLAY
@pytest.mark.skipif(os.geteuid() != 0, reason="only root works for other users")
def test_root_runs_commands_of_a_stage_as_the_owner_of_its_root(theatre: Theatre) -> None:
    theatre.write(".gitignore", "build/\n")
    theatre.write("build/old.o", "of the root\n")
    theatre.write("src/a.c", "int a;\n")
    for place in (theatre.root, *theatre.root.rglob("*")):
        os.chown(place, 1234, 1235)
    theatre.play(
        ask(edit("src/a.c", "int a;", "int b;")),
        shell(
            "id -u; id -g; rm build/old.o; touch build/new.o; echo more >> src/a.c; touch src/b.c; ls build"
        ),
        DONE,
        commands=SHELL,
    )
    assert said(theatre) == ["1234\n1235\nnew.o\n"]
    theatre.approve(theatre.merge())
    assert (theatre.root / "src/a.c").read_text() == "int b;\nmore\n"
    assert (theatre.root / "src/a.c").stat().st_uid == 1234
    assert (theatre.root / "build/old.o").exists()


@EACH_WALL
def test_commands_of_a_stage_see_nothing_of_a_directory_in_the_place_of_its_root(theatre: Theatre) -> None:
    theatre.write(".gitignore", "node_modules/\n")
    theatre.write("node_modules/p.js", "js\n")
    theatre.play(
        ask(write("n.txt", "n\n")), MAIL, shell("cat */p.js; ls -a"), DONE, commands=SHELL, policy=HELD
    )
    theatre.root.rename(theatre.root.with_name("moved"))
    other = theatre.root.with_name("other")
    (other / "node_modules").mkdir(parents=True)
    (other / "node_modules" / "p.js").write_text("SECRET\n")
    theatre.root.symlink_to(other)
    theatre.approve(held(theatre))
    (job,) = theatre.engine.jobs(mission_id=theatre.mission, kinds=["run_command"])
    assert job.error is not None
    assert job.error["error_code"] == "ROOT_CHANGED"


@NEEDS_OVERLAY
def test_links_are_in_a_stage_as_they_are_in_the_root(theatre: Theatre, tmp_path: Path) -> None:
    (tmp_path / "beside").write_text("SECRET\n")
    for name, place in (
        ("in", "deep/c.txt"),
        ("at", theatre.root / "a.txt"),
        ("out", "../beside"),
        ("none", "/n"),
    ):
        (theatre.root / name).symlink_to(place)
    reads: list[JsonValue] = [{"kind": "read_file", "params": {"rel_path": path}} for path in ("in", "out")]
    theatre.play(
        ask(edit("a.txt", "one", "ONE"), *reads), shell("cat in at out; readlink none; rm none; ln -s b.txt at2"), DONE,
        commands=SHELL,
    )  # fmt: skip
    assert said(theatre) == ["three\nONE\n/n\n"]
    inside, outside = theatre.engine.jobs(mission_id=theatre.mission, kinds=["read_file"])
    assert inside.result is not None
    assert inside.result["content"] == "three\n"
    assert outside.error is not None
    assert "SECRET" not in str(outside)


def test_a_stage_has_every_link_and_no_ignored_directory(theatre: Theatre) -> None:
    theatre.write(".git/config", "[core]\n")
    theatre.write(".gitignore", "build/\nnode_modules/\n")
    theatre.write("build/out.o", "o\n")
    theatre.write("node_modules/p/index.js", "js\n")
    theatre.write("deep/.gitignore", "!build/\n")
    theatre.write("deep/build/kept.txt", "kept\n")
    (theatre.root / "run.sh").write_text("#!/bin/sh\n")
    (theatre.root / "run.sh").chmod(0o750)
    (theatre.root / "out").symlink_to("..")
    (theatre.root / "absolute").symlink_to(theatre.root / "a.txt")
    (theatre.root / "inner").symlink_to("deep/c.txt")
    os.link(theatre.root / "a.txt", theatre.root / "hard.txt")
    os.mkfifo(theatre.root / "fifo")
    theatre.play(ask(write("n.txt", "n\n")), DONE)
    (stage,) = theatre.staged()
    names = {entry.name for entry in stage.iterdir()}
    assert names == {
        ".gitignore", "a.txt", "absolute", "b.txt", "deep", "hard.txt", "inner", "n.txt", "out", "run.sh",
    }  # fmt: skip
    assert (stage / "deep/build/kept.txt").read_text() == "kept\n"
    assert (stage / "run.sh").stat().st_mode & 0o777 == 0o750
    assert (stage / "a.txt").stat().st_nlink == 1
    assert [str((stage / name).readlink()) for name in ("out", "absolute", "inner")] == [
        "..",
        f"{theatre.root}/a.txt",
        "deep/c.txt",
    ]
    (event,) = [one for one in theatre.engine.events(theatre.mission) if one["event"] == "staged"]
    assert event["data"] == {"files": 8, "left_out": [], "more": 0}


@NEEDS_OVERLAY
def test_a_stage_that_leads_to_packages_by_links_shows_them_without(theatre: Theatre) -> None:
    """So did version 0.2, whose missions go on."""
    theatre.write(".gitignore", "node_modules/\n")
    theatre.write("node_modules/p.js", "js\n")
    looks = "cat node_modules/p.js; test -h node_modules || echo no link"
    theatre.play(ask(write("n.txt", "n\n")), MAIL, shell(looks), DONE, commands=SHELL, policy=HELD)
    (stage,) = theatre.staged()
    (listed,) = stage.parent.parent.glob(".ignored-*")
    listed.unlink()
    (stage / "node_modules").symlink_to(theatre.root / "node_modules")
    theatre.approve(held(theatre))
    assert said(theatre) == ["js\nno link\n"]


def test_a_stage_is_made_anew_after_its_process_died_and_left_one(theatre: Theatre) -> None:
    directory = theatre.engine.instance.stages
    assert directory is not None
    half = directory / "1" / "0123456789ab"
    half.mkdir(parents=True)
    (half / "a.txt").write_text("half")
    other = directory / "77" / "0123456789ab"
    other.mkdir(parents=True)
    assert [place.name for place in leftovers(theatre.engine.instance.database, directory)] == ["1", "77"]
    theatre.play(EDITS, DONE)
    assert [path.parent.name for path in theatre.staged()] == [str(theatre.mission)]
    theatre.approve(theatre.merge())
    assert theatre.files() == AFTER


def test_a_stage_that_is_gone_is_said_and_merges_nothing(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    (stage,) = theatre.staged()
    stage.rename(stage.with_name("away"))
    merge = theatre.merge()
    theatre.approve(merge)
    assert theatre.engine.job(merge).state == "held"
    assert "not merged:" in theatre.reason(merge)
    assert theatre.files() == BEFORE
    theatre.engine.cancel(theatre.mission, by="ada")
    remove_stages(theatre.engine.instance.database, stage.parent.parent)
    assert not stage.parent.exists()


def test_a_root_that_holds_the_stages_is_refused(theatre: Theatre) -> None:
    directory = theatre.engine.instance.stages
    assert directory is not None
    directory.mkdir(parents=True, exist_ok=True)
    spec: dict[str, JsonValue] = {
        "goal": "a", "stage": True, "planner": {"type": "script", "replies": [EDITS]},
    }  # fmt: skip
    theatre.mission = theatre.engine.launch(spec, root=directory.parent).id
    theatre.work()
    assert "cannot be copied into itself" in str(theatre.engine.mission(theatre.mission).error)


def test_a_staged_mission_replays_and_its_fork_has_a_stage_of_its_own(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE, EDITS, DONE)
    theatre.approve(theatre.merge())
    assert theatre.engine.replay(theatre.mission).is_same
    theatre.engine.undo(theatre.mission)
    fork = theatre.engine.fork(theatre.mission, turn=1).id
    theatre.work(fork)
    assert (len(theatre.staged()), theatre.files()) == (1, BEFORE)
    theatre.approve(theatre.merge(fork))
    assert theatre.files() == AFTER


def test_a_late_approval_finds_the_stage_gone(theatre: Theatre) -> None:
    theatre.play(ask(write("n.txt", "n\n"), write("late.txt", "x", auto_dispatch=False)), DONE)
    late, merge = sorted(
        theatre.engine.jobs(mission_id=theatre.mission, states=[State.HELD]),
        key=lambda job: job.kind,
        reverse=True,
    )
    theatre.approve(merge.id)
    theatre.approve(late.id)
    assert "is gone, since the mission is completed" in str(theatre.engine.job(late.id).error)
    assert _names(theatre.root) == ["a.txt", "b.txt", "c.txt", "n.txt"]


def _names(root: Path) -> Sequence[str]:
    return sorted(path.name for path in root.rglob("*.txt"))


MKDIR = os.mkdir


def _full(*given: object, **named: object) -> object:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _no_clones(*given: object) -> object:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def _full_within(directory: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    MKDIR(directory, mode) if dir_fd is None else _full()


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param({"fcntl.ioctl": _no_clones, "os.sendfile": _full}, id="copying"),
        pytest.param({"fcntl.ioctl": _full}, id="cloning"),
        pytest.param({"os.mkdir": _full_within}, id="a directory"),
    ],
)
def test_a_full_disk_leaves_no_half_of_a_stage(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch, calls: Mapping[str, Callable[..., object]]
) -> None:
    for call, refused in calls.items():
        monkeypatch.setattr(call, refused)
    theatre.play(EDITS, EDITS, DONE, kinds={"agent_plan": {"retry": {"max_attempts": 1}}})
    said = str(theatre.engine.mission(theatre.mission).error)
    assert theatre.state() == ("failed", "job_failed")
    assert f"a stage of root {str(theatre.root)!r} needs more room" in said
    assert "No space left on device" in said
    assert theatre.staged() == []
    monkeypatch.undo()
    theatre.engine.resume(theatre.mission, by="ada")
    theatre.work()
    theatre.approve(theatre.merge())
    assert theatre.files() == AFTER


def test_what_is_removed_from_the_root_while_it_is_copied_is_left_out(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("d1/x.txt", "d2/x.txt", "d3/x.txt"):
        theatre.write(path, "x\n")
    (theatre.root / "link").symlink_to("d1")

    def remove_all(directory: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:
            for path in theatre.root.glob("d?"):
                shutil.rmtree(path)
            (theatre.root / "link").unlink(missing_ok=True)
        MKDIR(directory, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "mkdir", remove_all)
    theatre.play(ask(write("n.txt", "n\n")), DONE)
    theatre.approve(theatre.merge())
    assert theatre.files() == {**BEFORE, "n.txt": "n\n"}


def _fill_the_disk(monkeypatch: pytest.MonkeyPatch, times: int, *, of: str = "m.txt") -> list[str]:
    """Refuse a file some times, after others have been written; the files that were tried."""
    real, tried = LocalFile.prepare, list[str]()

    def full(file: LocalFile, *given: object, **named: object) -> bool:
        tried.append(file.path)
        if file.path == of and tried.count(of) <= times:
            raise LcpError(ErrorCode.FILE_SYSTEM, f"{of!r}: No space left on device")
        return real(file, *given, **named)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(LocalFile, "prepare", full)
    return tried


def test_a_merge_that_was_decided_goes_on_when_the_disk_has_room(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    theatre.play(ask(write("n.txt", "n\n"), write("m.txt", "m\n")), DONE)
    merge = theatre.merge()
    tried = _fill_the_disk(monkeypatch, 2)
    theatre.approve(merge)
    assert theatre.files() == {**BEFORE, "n.txt": "n\n", "m.txt": "m\n"}
    assert tried == 3 * ["n.txt", "m.txt"], "nothing was left there in between"


def test_a_merge_that_the_disk_refuses_changes_no_file(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = (write("new/n.txt", "n\n"), edit("a.txt", "one", "ONE"), delete("b.txt"), write("m.txt", "m\n"))
    theatre.play(ask(*edits), DONE)
    merge = theatre.merge()
    before = theatre.files()
    tried = _fill_the_disk(monkeypatch, 1000)
    theatre.approve(merge)
    job = theatre.engine.job(merge)
    assert (job.state, "No space left on device (left as they were: " in str(job.reason)) == ("held", True)
    assert {"new/n.txt", "a.txt", "m.txt"} == set(tried)
    assert theatre.files() == before
    assert not (theatre.root / "new").exists()
    assert not [*theatre.root.rglob(".lcp-*")]
    monkeypatch.undo()
    theatre.approve(merge)
    assert (theatre.root / "m.txt").read_text() == "m\n"
    theatre.engine.undo(theatre.mission, by="ada")
    assert theatre.files() == BEFORE


def test_a_merge_that_the_disk_cannot_hold_is_not_begun(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch
) -> None:
    theatre.play(ask(write("n.txt", "n\n" * 500)), DONE)
    merge = theatre.merge()
    real = os.fstatvfs

    def nearly_full(descriptor: int) -> os.statvfs_result:
        found = list(real(descriptor))
        found[3] = found[4] = 0  # free blocks
        return os.statvfs_result(found)

    monkeypatch.setattr(os, "fstatvfs", nearly_full)
    theatre.approve(merge)
    job = theatre.engine.job(merge)
    assert (job.state, "has 0 bytes free, and the merge needs 1,000" in str(job.reason)) == ("held", True)
    assert theatre.engine.changes(theatre.mission) == []
    monkeypatch.undo()
    theatre.approve(merge)
    assert "n.txt" in theatre.files()


LARGE = "large\n" * 20_000


@pytest.mark.parametrize("gone", ["stage", "mission", "links"])
def test_a_merge_that_was_decided_is_finished_without_its_stage(
    theatre: Theatre, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    theatre.play(
        ask(*(write(f"{name}.txt", f"{name}\n") for name in "nm"), write("l.txt", LARGE)), EDITS, DONE
    )
    merge = theatre.merge()
    (stage,) = theatre.staged()
    real = LocalFile.prepare

    def lose(file: LocalFile, *given: object, **named: object) -> bool:
        written = real(file, *given, **named)  # type: ignore[arg-type]  # as it was called
        monkeypatch.undo()
        shutil.rmtree(stage if gone != "mission" else stage.parent)
        return written

    if gone == "links":  # the file system has none

        def refuse(*given: object, **named: object) -> None:
            raise OSError(errno.EPERM, "no links")

        monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(LocalFile, "prepare", lose)
    theatre.approve(merge)
    assert theatre.files() == {**AFTER, "n.txt": "n\n", "m.txt": "m\n", "l.txt": LARGE}
    assert theatre.state() == ("completed", "mission_complete")
    assert [*stage.parent.parent.glob(".merge-*")] == []
    theatre.engine.undo(theatre.mission, by="ada")
    assert theatre.files() == BEFORE


_DIES = """
import os, signal, sys
from lcp_engine.sandbox.atomic_write import LocalFile
from lcp_engine.sandbox.system.landlock import Isolation
from tests.runner.theatre import open_theatre

real = LocalFile.put_prepared

def put(file, *given, **named):
    if file.path != "a.txt":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(file, *given, **named)

LocalFile.put_prepared = put
with open_theatre(sys.argv[1], Isolation(sys.argv[2])) as engine:
    engine.work(until_idle=True)
"""


def _die_in_merge(theatre: Theatre, ground: Ground) -> int:
    """A merge of which one file was written when its process was killed; the job."""
    theatre.play(ask(write("a.txt", "A\n"), write("n.txt", "n\n"), write("l.txt", LARGE)), DONE)
    merge = theatre.merge()
    theatre.engine.diff(merge, by="ada")
    theatre.engine.approve(merge, by="ada")
    died = Python("-c", _DIES, ground.url, ground.isolation.value, cwd=Path(__file__).parents[4])
    assert died.wait(60) == -signal.SIGKILL
    there = {path: text for path, text in theatre.files().items() if not is_temporary(path)}
    assert there == {**BEFORE, "a.txt": "A\n"}
    return merge


def test_a_process_that_dies_in_a_merge_and_the_stage_with_it_leave_a_merge_to_finish(
    theatre: Theatre, ground: Ground
) -> None:
    _die_in_merge(theatre, ground)
    (stage,) = theatre.staged()
    shutil.rmtree(stage.parent)
    theatre.work()
    assert theatre.files() == {**BEFORE, "a.txt": "A\n", "n.txt": "n\n", "l.txt": LARGE}
    assert theatre.state() == ("completed", "mission_complete")
    assert theatre.engine.undo(theatre.mission, by="ada").job_id
    assert theatre.files() == BEFORE


def test_a_merge_that_cannot_be_finished_blocks_no_file(theatre: Theatre, ground: Ground) -> None:
    merge = _die_in_merge(theatre, ground)
    directory = theatre.engine.instance.stages
    assert directory is not None
    shutil.rmtree(directory)  # with what is too large for the database
    for prepared in theatre.root.glob(".lcp-*"):
        prepared.unlink()
    other = theatre.engine.launch(
        {"goal": "Write.", "planner": {"type": "script", "replies": [ask(write("l.txt", "mine\n")), DONE]},
         "policy": [{"kinds": ["write_file"], "do": "auto"}]},
        root=theatre.root,
    ).id  # fmt: skip
    theatre.work(other)
    assert theatre.state(other) == ("completed", "mission_complete")
    theatre.work()
    job = theatre.engine.job(merge)
    assert (job.state, "l.txt" in str(job.reason), "n.txt" in str(job.reason)) == ("held", True, False)
    with pytest.raises(LcpError):
        theatre.engine.approve(merge, by="ada")
    theatre.engine.reject(merge, "The stage is lost.", by="ada")
    theatre.engine.cancel(theatre.mission, by="ada")
    assert theatre.engine.instance.database.read(left_open) == []
    theatre.engine.undo(theatre.mission, by="ada")
    assert theatre.files() == {**BEFORE, "l.txt": "mine\n"}


@pytest.mark.proof
@pytest.mark.parametrize(
    "ground",
    [(SQLITE, Isolation.OFF), (SQLITE, Isolation.AUTO)],
    indirect=True,
    ids=["open", "confined"],  # it is about the files
)
def test_a_root_of_100_000_files_is_staged_and_merged(theatre: Theatre) -> None:
    for directory in range(100):
        place = theatre.root / "many" / str(directory)
        place.mkdir(parents=True)
        for number in range(1000):
            (place / f"{number}.txt").touch()
    theatre.play(ask(write("many/7/7.txt", "seven\n")), DONE)
    (event,) = [one for one in theatre.engine.events(theatre.mission) if one["event"] == "staged"]
    assert isinstance(event["data"], dict)
    assert event["data"]["files"] == 100_000 + len(BEFORE)
    (shown,) = theatre.engine.diff(theatre.merge(), by="ada")
    assert shown.path == "many/7/7.txt"
    theatre.approve(theatre.merge())
    assert (theatre.root / "many/7/7.txt").read_text() == "seven\n"


def _as_of_an_earlier_boot(theatre: Theatre) -> Path:
    """Name the stage as if it was made before the machine was started."""
    (stage,) = theatre.staged()
    old = stage.rename(stage.with_name("0123456789ab-00000000"))
    theatre.engine.instance.database.write(lambda tx: tx.plain(f"UPDATE stages SET path = '{old}'"))
    return old


def test_a_copy_that_a_power_cut_may_have_damaged_is_made_again(theatre: Theatre) -> None:
    read: JsonValue = {"kind": "read_file", "params": {"rel_path": "a.txt"}}
    spec: JsonValue = {"type": "script", "replies": [ask(read), EDITS, DONE]}
    theatre.mission = theatre.engine.launch(
        {"goal": "a", "stage": True, "planner": spec}, root=theatre.root
    ).id
    theatre.engine.work(until_idle=True, mission_id=theatre.mission, kinds=["agent_plan", "read_file"])
    old = _as_of_an_earlier_boot(theatre)
    (old / "a.txt").write_text("")  # as some file systems leave what was not synced
    theatre.work()
    assert old not in theatre.staged()
    theatre.approve(theatre.merge())
    assert theatre.files() == AFTER


def test_a_stage_in_which_something_was_changed_outlives_a_restart(theatre: Theatre) -> None:
    theatre.play(EDITS, DONE)
    (stage,) = theatre.staged()
    marker = stage.parent.parent / f".synced-{stage.name}"
    assert marker.exists()
    marker.rename(marker.with_name(".synced-0123456789ab-00000000"))
    old = _as_of_an_earlier_boot(theatre)
    changes = theatre.engine.instance.database
    changes.write(lambda tx: tx.plain(f"UPDATE changes SET root = '{old}' WHERE staged IS NOT NULL"))
    theatre.approve(theatre.merge())
    assert theatre.files() == AFTER
    assert [path.name for path in old.parent.parent.iterdir() if path.name.startswith(".synced-")] == []


CHANGE: JsonValue = {"kind": "change", "params": {"path": "a.txt"}}


def test_what_a_kind_of_a_plug_in_did_is_merged_by_the_people_of_its_rule(theatre: Theatre) -> None:
    theatre.play(ask(CHANGE), DONE, policy=[{"kinds": ["change"], "do": "hold", "approvals": 2}])
    merge = theatre.merge()
    with Engine(theatre.engine.instance.url) as elsewhere:  # which does not know the kind
        elsewhere.approve(merge, by="anna")
        assert elsewhere.approvals([elsewhere.job(merge)])[merge].given == ("anna",)
    theatre.work()
    assert theatre.files() == BEFORE
    theatre.engine.approve(merge, by="ben")
    theatre.work()
    assert theatre.files() == {**BEFORE, "a.txt": "changed\n"}


def test_a_denial_of_what_the_mission_did_not_do_denies_no_merge(theatre: Theatre) -> None:
    rules: list[JsonValue] = [
        {"kinds": ["delete_file"], "do": "deny"},
        {"kinds": ["move_file"], "paths": ["a.txt"], "do": "deny"},
    ]
    theatre.play(ask(edit("a.txt", "one", "ONE")), DONE, policy=rules)
    theatre.approve(theatre.merge())
    assert theatre.files() == {**BEFORE, "a.txt": "ONE\n"}


def test_what_a_rule_denies_by_now_is_not_merged(database_url: str, tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    theatre = Theatre(open_theatre(database_url, Isolation.OFF), tmp_path / "root")
    theatre.play(ask(write("a.txt", "1\n"), CHANGE, delete("b.txt")), DONE)
    merge = theatre.merge()
    theatre.engine.close()
    denied = [
        Rule(kinds=("change",), paths=("a.txt",), do=Verdict.DENY), Rule(kinds=("delete_file",), do=Verdict.DENY)
    ]  # fmt: skip
    with Engine(database_url, user_rules=denied) as engine:
        notes = {diff.path: diff.note or "" for diff in engine.look(merge).files}
        assert "CONFLICT: it is denied: user rule 1 (change a.txt)" in notes["a.txt"]
        assert "CONFLICT: it is denied: user rule 2 (delete_file)" in notes["b.txt"]


def test_jobs_that_are_held_in_a_stage_are_approved_one_after_the_other(theatre: Theatre) -> None:
    appends: list[JsonValue] = [
        {
            "kind": "write_file",
            "params": {"rel_path": "a.txt", "content": f"{number}\n", "mode": "append"},
            "auto_dispatch": False,
        }
        for number in range(3)
    ]
    theatre.play(ask(*appends), DONE)
    held = sorted(job.id for job in theatre.engine.jobs(mission_id=theatre.mission, states=[State.HELD]))
    for job in held:
        theatre.engine.diff(job, by="ada")
    for job in held:
        theatre.engine.approve(job, by="ada")
        theatre.work()
        assert theatre.engine.job(job).state == State.SUCCEEDED
    assert (theatre.staged()[0] / "a.txt").read_text() == "one\n0\n1\n2\n"


@pytest.mark.parametrize("mode", [0o400, 0o444, 0o555, 0o640, 0o755])
def test_a_file_that_was_moved_in_a_stage_keeps_its_mode(theatre: Theatre, mode: int) -> None:
    (theatre.root / "a.txt").chmod(mode)
    move: JsonValue = {"kind": "move_file", "params": {"rel_path": "a.txt", "new_path": "moved/a.txt"}}
    theatre.play(ask(move, edit("b.txt", "two", "TWO")), DONE)
    theatre.approve(theatre.merge())
    assert (theatre.root / "moved" / "a.txt").stat().st_mode & 0o7777 == mode
    theatre.engine.undo(theatre.mission)
    assert (theatre.root / "a.txt").stat().st_mode & 0o7777 == mode


def test_a_directory_in_place_of_a_file_is_said_and_merges_nothing(theatre: Theatre) -> None:
    theatre.play(ask(delete("a.txt")), ask(write("a.txt/b.txt", "b\n"), write("c.txt", "c\n")), DONE)
    merge = theatre.merge()
    notes = {diff.path: diff.note or "" for diff in theatre.engine.look(merge).files}
    assert (
        "CONFLICT: a directory has its place in the stage, and no merge makes one of a file" in notes["a.txt"]
    )
    theatre.approve(merge)
    assert theatre.files() == BEFORE
    theatre.engine.approve(
        merge, params={"only": ["c.txt"]}, shown=theatre.engine.look(merge).sight, by="ada"
    )
    theatre.work()
    assert theatre.files() == {**BEFORE, "c.txt": "c\n"}


def test_holes_of_a_file_are_holes_in_a_stage(theatre: Theatre) -> None:
    with (theatre.root / "disk.img").open("wb") as image:
        for place in (1 << 20, 1 << 33):
            image.seek(place)
            image.write(b"x" * 5000)
    theatre.play(ask(edit("a.txt", "one", "ONE")), DONE)
    (stage,) = theatre.staged()
    with (stage / "disk.img").open("rb") as copy:
        for place in (1 << 20, 1 << 33):
            copy.seek(place - 10)
            assert copy.read(5010) == b"\0" * 10 + b"x" * 5000
    assert (stage / "disk.img").stat().st_size == (1 << 33) + 5000
    assert (stage / "disk.img").stat().st_blocks * 512 < 1 << 20


def test_what_is_too_large_to_be_kept_is_merged_and_said_to_be_gone_for_good(
    database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    with Engine(database_url, caps=Caps(preimage_bytes=1000)) as engine:
        theatre = Theatre(engine, tmp_path / "root")
        theatre.write("large.txt", "x" * 1001)
        theatre.play(ask(delete("large.txt"), delete("b.txt")), DONE)
        (job,) = engine.jobs(mission_id=theatre.mission, states=[State.HELD], kinds=["delete_file"])
        engine.approve(job.id, by="ada")
        theatre.work()
        merge = theatre.merge()
        notes = {diff.path: diff.note or "" for diff in engine.look(merge).files}
        said = "it is too large to be kept, so that this cannot be undone"
        assert (said in notes["large.txt"], said in notes["b.txt"]) == (True, False)
        theatre.approve(merge)
        assert engine.job(merge).state == State.SUCCEEDED
        assert {"large.txt", "b.txt"}.isdisjoint(theatre.files())
        with pytest.raises(LcpError, match=r"large\.txt"):
            engine.undo(theatre.mission)
