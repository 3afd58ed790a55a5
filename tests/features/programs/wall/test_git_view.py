"""A command sees the history of its root, and nothing in it that runs programs or is a secret."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from tests.tables import table

from lcp_engine.features.programs.wall.views import git_view as module
from lcp_engine.features.programs.wall.views.git_view import GitView, tracked, view_of_git
from lcp_engine.features.programs.wall.views.masks import Rights
from lcp_engine.sandbox.root import Root

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
ENVIRONMENT = {
    "PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C",
    "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@x", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@x",
}  # fmt: skip


def git(at: Path, *arguments: str) -> str:
    command = ["git", "-c", "protocol.file.allow=always", *arguments]
    return subprocess.run(
        command, cwd=at, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def commit(at: Path, path: str, text: str = "text") -> None:
    (at / path).parent.mkdir(parents=True, exist_ok=True)
    (at / path).write_text(text)
    git(at, "add", "-f", path)
    git(at, "commit", "-qm", path)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, "a.txt")
    commit(root, "src/b.txt")
    return root


RIGHTS = Rights(lambda path: not path.endswith((".pem", ".env")) and "private/" not in path, "1")


def view_of(project: Path, rights: Rights = RIGHTS) -> GitView:
    with Root(project) as root, view_of_git(root, project.with_name("git"), rights) as view:
        return view


def inside(project: Path, script: str) -> str:
    """Output of a shell that sees the repository through its view."""
    with Root(project) as root, view_of_git(root, project.with_name("git"), RIGHTS) as view:
        assert not view.reason
        (overlay,) = view.overlays
        lower, layer = overlay.lower
        mount = f"mount -t overlay -o userxattr,lowerdir={layer}:{lower} none {overlay.path}"
        command = ["unshare", "-rm", "sh", "-c", f"{mount} && cd {project} && {script}"]
        environment = {**ENVIRONMENT, **view.environment}
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, env=environment
        )
    if "unshare:" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no overlays here: {done.stderr}")
    return done.stdout + done.stderr


def test_git_works_in_a_command_and_changes_nothing(project: Path) -> None:
    (project / "a.txt").write_text("new")
    shown = inside(project, "git log --format=%s; git status --short; git diff --stat; git commit -qam x")
    assert shown.splitlines()[:3] == ["src/b.txt", "a.txt", " M a.txt"]
    assert "Read-only file system" in shown


def test_a_root_without_a_repository_has_no_view(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    assert view_of(tmp_path / "project") == GitView()


def test_an_error_of_the_caller_passes(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    with Root(tmp_path / "project") as root, pytest.raises(OSError, match="of the caller"):  # noqa: SIM117
        with view_of_git(root, tmp_path / "git", RIGHTS):
            raise OSError("of the caller")


def test_no_setting_and_no_hook_is_shown(project: Path) -> None:
    git(project, "config", "remote.origin.url", "https://user:TOKEN@example.com/x")
    git(project, "config", "core.sshCommand", "TOKEN")
    git(project, "config", "core.pager", "TOKEN")
    (project / ".git" / "hooks" / "pre-commit").write_text("TOKEN")
    (project / ".git" / "git-crypt").mkdir()
    (project / ".git" / "git-crypt" / "key").write_text("TOKEN")
    (project / ".git" / "FETCH_HEAD").write_text("TOKEN")
    (project / ".git" / "logs" / "HEAD").write_text("TOKEN")
    shown = inside(project, "grep -r TOKEN .git; ls .git/hooks .git/logs; git config --local --list")
    assert "TOKEN" not in shown
    assert "core.repositoryformatversion=0" in shown


def test_files_of_lfs_are_compared_where_its_directory_can_be_written(project: Path) -> None:
    assert inside(project, "git config lfs.storage") == ""
    (project / ".git" / "lfs" / "objects").mkdir(parents=True)
    assert inside(project, "git config lfs.storage; ls .git/lfs 2>&1 | wc -l").split() == [
        "/tmp/git-lfs",
        "1",
    ]


def test_a_repository_that_git_packs_meanwhile_is_shown(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = module._judge
    failed: list[bool] = []

    def late(repository: module._Repository, rights: Rights) -> list[str]:
        if not failed:
            failed.append(True)
            git(project, "gc", "-q")
            os.lstat(f"{repository.common}/objects/gone")
        return judge(repository, rights)

    monkeypatch.setattr(module, "_judge", late)
    assert view_of(project).is_shown
    assert failed


def test_a_repository_that_is_damaged_is_left_out_at_once(project: Path) -> None:
    (project / ".git" / "config").unlink()
    assert "No such file" in view_of(project).reason


@table("path", ["config.pem", ".env", "private/plan.txt", "deep/er/x.pem"])
def test_a_history_with_a_denied_path_is_left_out(tmp_path: Path, path: str) -> None:
    root = tmp_path / path.replace("/", "_") / "project"
    root.mkdir(parents=True)
    git(root, "init", "-q")
    commit(root, "a.txt")
    commit(root, path, "SECRET")
    git(root, "rm", "-q", path)
    git(root, "commit", "-qm", "gone")
    git(root, "gc", "-q")
    view = view_of(root)
    assert not view.is_shown
    assert path in view.reason
    assert view_of(root) == view, "also as it was kept"


def test_a_denied_path_is_found_in_commits_that_nothing_reaches(project: Path) -> None:
    commit(project, "x.pem", "SECRET")
    git(project, "reset", "-q", "--hard", "HEAD~1")
    assert "x.pem" in view_of(project).reason


def test_a_denied_path_is_found_that_only_a_merge_has(project: Path) -> None:
    git(project, "checkout", "-qb", "side", "HEAD~1")
    commit(project, "c.txt")
    git(project, "merge", "-q", "--no-commit", "-")
    (project / "x.pem").write_text("SECRET")
    git(project, "add", "x.pem")
    git(project, "commit", "-qm", "evil")
    assert "x.pem" in view_of(project).reason


def test_a_secret_that_was_added_and_never_committed_is_hidden(project: Path) -> None:
    (project / "x.pem").write_text("SECRET")
    git(project, "add", "x.pem")
    name = git(project, "rev-parse", ":x.pem")
    assert "SECRET" not in inside(project, f"git cat-file -p {name}; git show :x.pem")
    git(project, "reset", "-q")
    assert "SECRET" not in inside(project, f"git cat-file -p {name}; git log --format=%s")
    (project / "c.txt").write_text("STAGED")
    git(project, "add", "c.txt")
    assert "+STAGED" in inside(project, "git diff --cached")


def test_what_a_fetch_left_unfinished_is_hidden(project: Path) -> None:
    (project / ".git" / "objects" / "pack" / "tmp_pack_x").write_text("SECRET")
    (project / ".git" / "objects" / "incoming-x").mkdir()
    shown = inside(project, "ls .git/objects .git/objects/pack")
    assert "tmp_pack" not in shown
    assert "incoming" not in shown


def test_packs_of_what_nothing_reaches_are_hidden(project: Path) -> None:
    (project / "x.pem").write_text("SECRET")
    git(project, "add", "x.pem")
    name = git(project, "rev-parse", ":x.pem")
    git(project, "reset", "-q")
    git(project, "repack", "-q", "-d", "--cruft", "-a")
    assert [*(project / ".git" / "objects" / "pack").glob("*.mtimes")], "git makes such a pack"
    shown = inside(project, f"git log --format=%s; git cat-file -p {name}")
    assert shown.startswith("src/b.txt\na.txt\n")
    assert "SECRET" not in shown


def test_an_object_in_a_pack_without_a_path_leaves_the_history_out(project: Path) -> None:
    (project / "x.pem").write_text("SECRET")
    name = git(project, "hash-object", "-w", "x.pem")
    git(project, "update-ref", "refs/tags/key", name)
    git(project, "gc", "-q")
    assert "belongs to no commit" in view_of(project).reason


def test_a_repository_with_long_hashes_is_shown(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    git(root, "init", "-q", "--object-format=sha256")
    commit(root, "a.txt")
    assert inside(root, "git log --format=%s; git status --short") == "a.txt\n"
    with Root(root) as opened:
        assert tracked(opened) == {"a.txt"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root judges the repository of another user")
def test_root_judges_as_the_owner_of_the_repository(project: Path) -> None:
    for path in (project, *project.rglob("*")):
        os.chown(path, 65534, 65534)
    for path in (*project.parents,)[:4]:
        if path.stat().st_mode & 0o77 == 0 and path.is_relative_to(tempfile.gettempdir()):
            path.chmod(0o711)
    assert view_of(project).is_shown


def test_a_reference_table_is_no_part_of_what_is_judged(project: Path) -> None:
    """This git may not read it; the git of a command says so itself."""
    with (project / ".git" / "config").open("a") as file:
        file.write("[core]\n\trepositoryformatversion = 1\n[extensions]\n\trefStorage = reftable\n")
    assert view_of(project).is_shown
    commit_of = Rights(lambda path: path != "src/b.txt", "2")
    assert "src/b.txt" in view_of(project, commit_of).reason


def test_names_in_a_history_are_judged_in_every_reading(project: Path) -> None:
    commit(project, "line\nbreak.pem")
    assert "break.pem" in view_of(project).reason


def test_nothing_of_a_hostile_repository_runs(project: Path) -> None:
    ran = project.with_name("ran")
    touch = f"touch {ran}; false"
    for name in (
        "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "alias.cat-file", "alias.log", "gpg.program",
        "diff.external", "diff.x.textconv", "diff.x.command", "filter.x.clean", "filter.x.smudge", "filter.x.process",
        "credential.helper", "remote.origin.uploadpack", "uploadpack.packObjectsHook", "core.alternateRefsCommand",
    ):  # fmt: skip
        git(project, "config", name, f"!{touch}" if name.startswith("alias") else touch)
    git(project, "config", "remote.origin.url", f"ext::sh -c '{touch}'")
    git(project, "config", "include.path", str(project / "more"))
    git(project, "config", "protocol.ext.allow", "always")
    (project / "more").write_text(f'[core]\n\tfsmonitor = "{touch}"\n')
    (project / ".git" / "info" / "attributes").write_text("* diff=x filter=x\n")
    hooks = project / ".git" / "hooks"
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman"):
        (hooks / name).write_text(f"#!/bin/sh\n{touch}\n")
        (hooks / name).chmod(0o755)
    git(project, "config", "core.hooksPath", str(hooks))
    assert view_of(project).is_shown
    inside(project, "git status; git log -p --show-signature; git diff HEAD~1; git gc; git fetch")
    assert not ran.exists()


def test_a_partial_clone_is_left_out_and_fetches_nothing(project: Path) -> None:
    ran = project.with_name("ran")
    git(project, "config", "core.repositoryformatversion", "1")
    with (project / ".git" / "config").open("a") as file:
        file.write(f'[extensions]\n\tpartialClone = origin\n[remote "origin"]\n\turl = ext::touch {ran}\n')
    assert "partial clone" in view_of(project).reason
    assert not ran.exists()


def test_objects_of_another_repository_are_left_out(project: Path) -> None:
    (project / ".git" / "objects" / "info" / "alternates").write_text("/elsewhere/objects\n")
    assert "another repository" in view_of(project).reason


def test_a_link_in_the_repository_leaves_it_out(project: Path) -> None:
    shutil.move(project / ".git" / "objects", project.with_name("objects"))
    (project / ".git" / "objects").symlink_to(project.with_name("objects"))
    assert "objects in it is a link" in view_of(project).reason
    shutil.move(project / ".git", project.with_name("elsewhere"))
    (project / ".git").symlink_to(project.with_name("elsewhere"))
    assert "is a link" in view_of(project).reason


def test_a_worktree_shows_its_repository_at_its_own_path(project: Path) -> None:
    tree = project.with_name("tree")
    git(project, "worktree", "add", "-q", str(tree))
    (overlay,) = view_of(tree).overlays
    assert overlay.path == str(project / ".git")
    assert inside(tree, "git log --format=%s; git status --short").splitlines() == ["src/b.txt", "a.txt"]


def test_a_submodule_shows_its_repository_and_no_other(project: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    top.mkdir()
    git(top, "init", "-q")
    git(top, "submodule", "--quiet", "add", str(project), "part")
    (overlay,) = view_of(top / "part").overlays
    assert overlay.path == str(top / ".git" / "modules" / "part")
    assert inside(top / "part", "git log --format=%s; git status --short").splitlines() == [
        "src/b.txt",
        "a.txt",
    ]
    (tmp_path / "thief").mkdir()
    (tmp_path / "thief" / ".git").write_text(f"gitdir: {overlay.path}\n")
    assert "does not name this root" in view_of(tmp_path / "thief").reason


def test_a_repository_above_the_root_is_left_out_with_a_reason(project: Path) -> None:
    view = view_of(project / "src")
    assert not view.is_shown
    assert "above the root" in view.reason


def test_a_root_that_names_a_repository_which_does_not_know_it_gets_none(project: Path) -> None:
    tree, thief = project.with_name("tree"), project.with_name("thief")
    git(project, "worktree", "add", "-q", str(tree))
    thief.mkdir()
    shutil.copy(tree / ".git", thief / ".git")
    assert "does not name this root" in view_of(thief).reason
    (thief / ".git").write_text(f"gitdir: {project}/.git")
    assert "does not name this root" in view_of(thief).reason


def test_a_shallow_clone_is_shown(project: Path) -> None:
    clone = project.with_name("clone")
    git(project, "clone", "-q", "--depth=1", f"file://{project}", str(clone))
    assert inside(clone, "git log --format=%s") == "src/b.txt\n"


def test_packed_objects_and_refs_are_judged_like_others(project: Path) -> None:
    git(project, "tag", "-am", "one", "v1")
    git(project, "gc", "-q")
    git(project, "pack-refs", "--all")
    assert inside(project, "git log --format=%s; git tag") == "src/b.txt\na.txt\nv1\n"


def test_what_was_judged_is_kept_until_the_repository_or_the_policy_changes(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COARSE", -(10**18))
    assert view_of(project).is_shown
    with monkeypatch.context() as patched:
        patched.setattr(module, "SECONDS", -1000.0)  # no time to judge again
        assert view_of(project).is_shown
    assert "a.txt" in view_of(project, Rights(lambda path: path != "a.txt", "3")).reason
    commit(project, "x.pem")
    assert "x.pem" in view_of(project).reason


@table("version", [2, 3, 4])
def test_tracked_files_are_those_in_the_index(tmp_path: Path, version: int) -> None:
    root = tmp_path / f"v{version}" / "project"
    root.mkdir(parents=True)
    git(root, "init", "-q")
    names = ["a", "dir/b.txt", "dir/bc.txt", "x" * 200, "line\nbreak", os.fsdecode(b"\xff"), "new"]
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    git(root, "add", *names[:-1])
    git(root, "update-index", f"--index-version={version}")
    if version != 2:
        git(root, "add", "-N", "new")  # version 3: flags of its own
    with Root(root) as opened:
        assert tracked(opened) == frozenset(names if version != 2 else names[:-1])


def test_names_of_the_index_are_kept_until_it_changes(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_COARSE", 0)
    entries, read = module._entries, list[str]()

    def noted(repository: module._Repository) -> dict[str, str]:
        read.append(repository.own)
        return entries(repository)

    monkeypatch.setattr(module, "_entries", noted)
    with Root(project) as opened:
        before = tracked(opened, tmp_path)
        assert tracked(opened, tmp_path) == before
        (project / "one\nmore").touch()
        git(project, "add", "one\nmore")
        assert tracked(opened, tmp_path) == before | {"one\nmore"}
    assert len(read) == 2


def test_an_index_of_another_form_is_refused(project: Path) -> None:
    index = project / ".git" / "index"
    whole = index.read_bytes()
    with Root(project) as opened:
        git(project, "update-index", "--split-index")
        for data in (
            index.read_bytes(),
            b"DIRC\0\0\0\x09" + whole[8:],
            whole[:70],
            b"",
            b"DIRC\0\0\0\x02\xff\xff\xff\xff",
        ):
            index.write_bytes(data)
            with pytest.raises(ValueError, match="index"):
                tracked(opened)
        index.unlink()
        os.mkfifo(index)
        with pytest.raises(ValueError, match="index"):
            tracked(opened)
