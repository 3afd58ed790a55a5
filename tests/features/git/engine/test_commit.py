"""A mission that completes ends as one commit of what it changed, once, and nothing of the repository is run."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, TypeAlias

import pytest
from pydantic import JsonValue
from tests.engine.replies import ask, write
from tests.features.git.engine.repositories import git

from lcp_engine.errors import LcpError
from lcp_engine.features.git import repository
from lcp_engine.features.git.repository import Call, Git, refused
from lcp_engine.features.git.rules import branch_name, message_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.engine.conftest import Lab

    from lcp_engine.store.queries.records import Job

Object: TypeAlias = dict[str, JsonValue]
AUTO: JsonValue = [{"kinds": ["*"], "do": "auto"}]
DONE: Object = {
    "ok": True,
    "action": "mission_complete",
    "summary": "Fix the greeting\n\nLcp-Mission: another",
}


def run(lab: Lab, *jobs: Object, use: JsonValue = None) -> Job:
    """The job of the commit of a mission that does these jobs."""
    mission = lab.run(ask(*jobs), DONE, policy=AUTO, git=use or {"commit": "mission"}, name="greet all")
    [job] = [one for one in lab.engine.jobs(mission_id=mission.id) if one.kind == "commit"]
    return job


def said(job: Job) -> str:
    return str((job.error or {}).get("user_message"))


def test_a_mission_ends_as_one_commit_on_a_new_branch(lab: Lab, root: Path) -> None:
    before = git(root, "rev-parse", "HEAD")
    (root / "other.md").write_text("not of the mission\n")
    job = run(
        lab, write("a.md", "b\n"), write("a.md", "c\n"), write("new/b.md", "b\n"), write("out.log", "x\n"),
        use={"branch": "lcp/{name}-{id}"},
    )  # fmt: skip
    assert job.state == "succeeded", job.error
    assert git(root, "symbolic-ref", "HEAD") == "refs/heads/lcp/greet-all-1"
    assert git(root, "rev-parse", "HEAD^") == before == git(root, "rev-parse", "main")
    assert git(root, "diff", "--name-status", "HEAD^", "HEAD") == "M\ta.md\nA\tnew/b.md"
    assert git(root, "status", "--porcelain") == "?? other.md"
    assert (root / "out.log").exists()
    message = git(root, "log", "-1", "--format=%an <%ae>%n%B")
    assert message.startswith(
        "Ada <ada@example.org>\nFix the greeting\n\nLcp-Mission: another\n\nJobs of mission 1, greet all:\n"
    )
    assert git(root, "log", "-1", "--format=%(trailers:key=Lcp-Mission,valueonly)") == lab.mission().uid
    assert not (root / ".git" / "ran").exists()
    assert (job.result or {})["left_out"] == ["out.log"]


@pytest.mark.parametrize("step", ["update-ref", "symbolic-ref"])
def test_an_attempt_that_dies_at_any_step_makes_no_second_commit(
    lab: Lab, root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    real, died = Git.do, list[str]()

    def do(self: Git, *calls: Call) -> list[str]:
        done = real(
            self, *(one for one in calls if one.index or step != "symbolic-ref" or one.command != "read-tree")
        )
        if any(one.command == step for one in calls) and not died:
            died.append(step)
            raise refused("the power failed")
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Git, "do", do)
        job = run(lab, write("a.md", "b\n"), use={"branch": "fix"})
    assert died
    assert "the power failed" in said(job)
    lab.engine.retry(job.id)
    lab.work()
    assert lab.engine.job(job.id).state == "succeeded", lab.engine.job(job.id).error
    assert git(root, "log", "--format=%s", "fix") == "Fix the greeting\nBegin"
    assert git(root, "symbolic-ref", "--short", "HEAD") == "fix"
    assert git(root, "status", "--porcelain") == ""


def _detach(root: Path) -> None:
    git(root, "checkout", "-q", "--detach")


def _stage(root: Path) -> None:
    (root / "s.md").write_text("s\n")
    git(root, "add", "s.md")


def _rebase(root: Path) -> None:
    (root / ".git" / "rebase-merge").mkdir()


def _lock(root: Path) -> None:
    (root / ".git" / "index.lock").touch()


def _bare(root: Path) -> None:
    git(root, "config", "core.bare", "true")


def _break(root: Path) -> None:
    (root / ".git" / "HEAD").write_text("nonsense\n")


def _dirty(root: Path) -> None:
    (root / "a.md").write_text("mine\n")


def _filter(root: Path) -> None:
    (root / ".gitattributes").write_text("*.md filter=x\n")


def _link(root: Path) -> None:
    (root / ".git").rename(root.parent / "elsewhere")
    (root / ".git").symlink_to(root.parent / "elsewhere")


def _unknown(root: Path) -> None:
    git(root, "config", "--unset", "user.name")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_detach, "HEAD is detached"), (_stage, "changes are staged"), (_rebase, "a rebase is under way"),
        (_lock, "another git has locked the repository"), (_bare, "bare"), (_break, "git cannot use the repository"),
        (_dirty, "'a.md' had changes that were not committed"), (_filter, "'a.md' is for the filter x"),
        (_link, "has no directory .git"), (_unknown, "git knows no user.name"),
    ],
)  # fmt: skip
def test_a_repository_that_is_not_ready_gets_no_commit_and_the_files_stay(
    lab: Lab, root: Path, spoil: Callable[[Path], None], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(root.parent))
    spoil(root)
    job = run(lab, write("a.md", "b\n"))
    assert job.state == "failed"
    assert words in said(job)
    assert "\n" not in said(job)
    assert (root / "a.md").read_text() == "b\n"
    assert lab.mission().status == "completed"
    assert not (root / ".git" / "ran").exists()


def test_a_job_is_run_again_once_the_repository_is_mended(lab: Lab, root: Path) -> None:
    git(root, "branch", "fix")
    job = run(lab, write("a.md", "b\n"), use={"branch": "fix"})
    assert "the branch 'fix' exists" in said(job)
    git(root, "branch", "-D", "fix")
    lab.engine.retry(job.id)
    lab.work()
    assert git(root, "log", "-1", "--format=%s", "fix") == "Fix the greeting"


def test_an_approved_merge_is_committed_with_who_approved_it(lab: Lab, root: Path) -> None:
    mission = lab.run(ask(write("a.md", "b\n")), DONE, policy=AUTO, stage=True, git={"commit": "merge"})
    [merge] = lab.engine.jobs(states=["held"])
    lab.engine.approve(merge.id, by="grace")
    lab.work()
    assert lab.engine.mission(mission.id).status == "completed"
    assert (
        git(root, "log", "-1", "--format=%s|%(trailers:key=Lcp-Approved-By,valueonly)")
        == "Fix the greeting|grace"
    )
    assert git(root, "symbolic-ref", "--short", "HEAD") == "main"


def test_line_ends_are_those_of_the_repository(lab: Lab, root: Path) -> None:
    (root / ".gitattributes").write_text("* text=auto eol=crlf\n")
    (root / "c.md").write_bytes(b"one\r\ntwo\r\n")
    git(root, "add", ".")
    git(root, "commit", "-qm", "Line ends")
    job = run(lab, write("c.md", "one\r\n2\r\n"))
    assert job.state == "succeeded", job.error
    assert git(root, "diff", "--numstat", "HEAD^", "HEAD") == "1\t1\tc.md"


def test_words_of_a_commit() -> None:
    assert branch_name("lcp/{name}-{id}", "Größe: ../x", 7) == "lcp/Gr-e-x-7"
    message = message_of(
        "m", 7, "x" * 100, [f"write_file {n}" for n in range(40)], [("Lcp-Mission", "req-1")]
    )
    assert message.splitlines()[0] == "x" * 71 + "…"
    assert message.endswith("- and 10 more\n\nLcp-Mission: req-1\n")
    assert message_of("m", 7, " ", [], [("A", "b\nC: d")]).endswith("\n\nA: b C: d\n")


def test_an_undone_mission_is_reverted_by_a_commit(lab: Lab, root: Path) -> None:
    job = run(lab, write("a.md", "b\n"), write("new/b.md", "b\n"), write("out.log", "x\n"))
    (root / "mine.md").write_text("mine\n")
    git(root, "add", "mine.md")
    git(root, "commit", "-qm", "Mine")
    lab.engine.undo(1)
    assert git(root, "log", "--format=%s") == "Undo mission 1, greet all\nMine\nFix the greeting\nBegin"
    assert git(root, "diff", "--name-only", "HEAD", "HEAD~3") == "mine.md"
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "log", "-1", "--format=%(trailers:key=Lcp-Undoes,valueonly)") == lab.mission().uid
    assert str((job.result or {})["commit"]) in git(root, "log", "-1", "--format=%b")
    lab.engine.undo(1)
    assert git(root, "rev-list", "--count", "HEAD") == "4"
    assert not (root / ".git" / "ran").exists()


def test_an_undo_restores_the_files_where_its_revert_is_refused(lab: Lab, root: Path) -> None:
    run(lab, write("a.md", "b\n"), use={"branch": "fix"})
    git(root, "switch", "-q", "-c", "other", "main")
    (root / "a.md").write_text("b\n")
    lab.engine.undo(1)
    assert (root / "a.md").read_text() == "a\n"
    [_, revert] = lab.engine.jobs(mission_id=1, kinds=["commit"])
    assert "is not on the current branch" in said(revert)
    git(root, "switch", "-q", "fix")


def test_commits_of_two_missions_do_not_meet(lab: Lab, root: Path) -> None:
    for name in ("one.md", "two.md"):
        lab.launch(ask(write(name, "x\n")), DONE, policy=AUTO, git={"commit": "mission"})
    lab.work(threads=4)
    assert [job.state for job in lab.engine.jobs(kinds=["commit"])] == ["succeeded", "succeeded"]
    assert git(root, "log", "--format=%s") == "Fix the greeting\nFix the greeting\nBegin"
    assert git(root, "status", "--porcelain") == ""


def test_a_lock_that_is_kept_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_SECONDS", 0.1)
    held, own = (os.open(tmp_path, os.O_RDONLY) for _ in range(2))
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(LcpError, match=r"another program has kept \.git locked for 0\.1 s"):
        repository._wait_for(own)
    os.close(held)
    repository._wait_for(own)
    os.close(own)


def test_shallow_and_sparse_repositories_hold_and_submodules_are_not_entered(
    lab: Lab, tmp_path: Path
) -> None:
    origin = tmp_path / "origin"
    for path in ("in/a.md", "out/b.md"):
        (origin / path).parent.mkdir(parents=True)
        (origin / path).write_text("a\n")
    git(origin, "init", "-q", "-b", "main")
    for place in (origin, tmp_path / "other"):
        place.mkdir(exist_ok=True)
        git(place, "init", "-q", "-b", "main")
        for words in (["config", "user.name", "A"], ["config", "user.email", "a@b"], ["add", "."]):
            git(place, *words)
        git(place, "commit", "-qm", "Begin", "--allow-empty")
    git(
        origin,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        str(tmp_path / "other"),
        "module",
    )
    git(origin, "commit", "-qam", "Add a submodule")
    git(lab.root, "clone", "-q", "--depth", "1", "--sparse", f"file://{origin}", ".")
    for words in (
        ["config", "user.name", "A"],
        ["config", "user.email", "a@b"],
        ["sparse-checkout", "set", "in"],
    ):
        git(lab.root, *words)
    assert not (lab.root / "out").exists()
    job = run(lab, write("in/a.md", "b\n"), write("in/new.md", "n\n"))
    assert job.state == "succeeded", job.error
    assert git(lab.root, "diff-tree", "-r", "--name-status", "HEAD^", "HEAD") == "M\tin/a.md\nA\tin/new.md"
    assert git(lab.root, "status", "--porcelain") == ""
    assert not (lab.root / "out").exists()
    mission = lab.run(ask(write("module/a.md", "b\n")), DONE, policy=AUTO, git={"commit": "mission"})
    [other] = lab.engine.jobs(mission_id=mission.id, kinds=["commit"])
    assert "is in submodule 'module'" in said(other)


def test_an_undo_that_was_interrupted_is_finished_with_its_revert(
    lab: Lab, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lab, write("a.md", "b\n"))

    class Killed(BaseException):
        """The process has ended."""

    def die(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("lcp_engine.runner.undo._carry_out", die)
        with pytest.raises(Killed):
            lab.engine.undo(1)
    [undo] = lab.engine.jobs(kinds=["undo"])
    lab.work()
    assert git(root, "log", "-1", "--format=%s") == "Undo mission 1, greet all"
    assert lab.engine.finish_undo(undo.id).job_id == undo.id
    assert (git(root, "rev-list", "--count", "HEAD"), git(root, "status", "--porcelain")) == ("3", "")


def test_a_mission_that_is_resumed_commits_what_came_since_and_is_undone_as_one(lab: Lab, root: Path) -> None:
    mission = lab.run(
        ask(write("a.md", "b\n")), DONE, ask(write("a.md", "c\n"), write("n.md", "n\n")), DONE,
        policy=AUTO, git={"commit": "mission"}, name="greet all",
    )  # fmt: skip
    lab.engine.resume(mission.id)
    lab.work()
    assert [job.state for job in lab.engine.jobs(kinds=["commit"])] == ["succeeded", "succeeded"]
    assert git(root, "show", "HEAD:a.md") == "c"
    assert git(root, "rev-list", "--count", "HEAD") == "3"
    lab.engine.undo(mission.id)
    assert git(root, "diff", "--name-only", "HEAD", "HEAD~3") == ""
    assert (git(root, "rev-list", "--count", "HEAD"), git(root, "status", "--porcelain")) == ("4", "")
