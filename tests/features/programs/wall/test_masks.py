"""Masks hide what a command may not see under every name, and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.tables import table

from lcp_engine.core.policy import Policy, Rule, Verdict
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.views import masks as module
from lcp_engine.features.programs.wall.views.masks import Masks, Rights, make_masks, opened
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.read_file import WORKER as READ_FILE

ORDINARY = 65534
FILES = (
    "a.txt", "src/b.py", ".env", "deploy/.env", "deploy/run.sh", "node_modules/m/.env", "node_modules/m/index.js",
    ".ssh/id_rsa", ".ssh/config", "target/debug/.ENV", ".git/config", "vendor/x/.git/config", "vendor/x/x.c",
    "private/plan.txt", "private/more/plan.txt", "notes/held.txt", "venv.d/.env/bin/python",
)  # fmt: skip
MASKED = {
    ".env", "deploy/.env", "node_modules/m/.env", ".ssh/", "target/debug/.ENV", ".git/", "vendor/x/.git/", "private/",
    "notes/held.txt",
}  # fmt: skip
RULES = (
    Rule(paths=("/private/**",), do=Verdict.DENY),
    Rule(paths=("notes/held.txt",), do=Verdict.HOLD),
)


@pytest.fixture(autouse=True)
def _fine_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COARSE", 50_000_000)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user may pass."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    for one in directory.rglob("*"):
        if one.is_dir() and not one.is_symlink():
            one.chmod(0o755)
    shutil.rmtree(directory)


@pytest.fixture
def project(place: Path) -> Path:
    root = place / "project"
    for path in FILES:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    return root


def policy(*rules: Rule) -> Policy:
    return Policy(rules or RULES)


def rights(text: str = "1", *rules: Rule, show: frozenset[str] = frozenset(), git: bool = False) -> Rights:
    judge = policy(*rules).for_kind(READ_FILE.named, has_effects=False, writes=False)
    return Rights(lambda path: judge(path).verdict is Verdict.AUTO, text, show, git)


def masks_of(project: Path, given: Rights | None = None) -> Masks:
    with Root(project) as root, make_masks(root, project.with_name("mask"), given or rights()) as masks:
        return masks


def whiteouts(masks: Masks) -> set[str]:
    found = Path(masks.directory).rglob("*")
    return {str(path.relative_to(masks.directory)) for path in found if stat.S_ISCHR(path.lstat().st_mode)}


def settle(project: Path) -> None:
    """Give all directories an age at which their times tell whether they change."""
    for path in (project, *(one for one in project.rglob("*") if one.is_dir() and not one.is_symlink())):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    while time.time_ns() - project.stat().st_ctime_ns <= module._COARSE:
        time.sleep(0.05)


def as_ordinary_user(work: Callable[[], None], *own: Path) -> None:
    """Call `work` in a process of an ordinary user, who gets what is in `own`."""
    if os.getuid() != 0:
        work()
        return
    for path in own:
        for one in (path, *path.rglob("*")):
            os.chown(one, ORDINARY, ORDINARY, follow_symlinks=False)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(ORDINARY)
            os.setuid(ORDINARY)
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 -- the child must not go on with pytest
            traceback.print_exc(file=sys.stderr)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def seen_by_a_command(project: Path, masks: Masks, script: str) -> str:
    """Output of a shell over the root with its masks, in namespaces of its own."""
    mount = f"mount -t overlay -o userxattr,lowerdir={masks.directory}:{project} none {project}"
    command = ["unshare", "-rm", "sh", "-c", f"{mount} && cd {project} && {script}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 and ("unshare:" in done.stderr or "mount:" in done.stderr):
        pytest.skip(f"no overlays here: {done.stderr}")
    return done.stdout


def test_what_may_not_be_read_is_hidden_in_ignored_directories_too(project: Path) -> None:
    masks = masks_of(project)
    assert masks.masked == MASKED
    assert whiteouts(masks) == {path.rstrip("/") for path in MASKED}


@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_command_sees_everything_else(place: Path, project: Path, user: str) -> None:
    if user == "root" and os.getuid() != 0:
        pytest.skip("not root")

    def work() -> None:
        shown = seen_by_a_command(project, masks_of(project), "find . -type f | sort")
        hidden = {path for path in FILES if masks_of(project).is_masked(path)}
        assert shown.split() == sorted(f"./{path}" for path in FILES if path not in hidden)

    if user == "root":
        work()
    else:
        as_ordinary_user(work, place)


def test_a_link_to_a_hidden_file_leads_nowhere(project: Path) -> None:
    (project / "plain.txt").symlink_to(".env")
    (project / "keys").symlink_to(".ssh")
    masks = masks_of(project)
    shown = seen_by_a_command(project, masks, "cat plain.txt keys/id_rsa 2>/dev/null; cat a.txt")
    assert shown == "a.txt"


def test_a_hard_link_to_a_hidden_file_is_hidden_under_any_name(project: Path) -> None:
    os.link(project / ".env", project / "src" / "settings.txt")
    os.link(project / ".ssh" / "id_rsa", project / "a")
    assert masks_of(project).masked == {*MASKED, "src/settings.txt", "a"}


def test_a_hard_link_made_between_two_commands_is_hidden(project: Path) -> None:
    settle(project)
    assert masks_of(project).masked == MASKED
    os.link(project / "deploy" / ".env", project / "node_modules" / "m" / "x.js")
    assert masks_of(project).masked == {*MASKED, "node_modules/m/x.js"}
    settle(project)
    masks_of(project)
    (project / "node_modules" / "m" / "x.js").unlink()
    assert masks_of(project).masked == MASKED


def test_a_hard_link_from_outside_reveals_an_older_one(project: Path) -> None:
    """A name that was there already is looked for when its file becomes a hidden one."""
    os.link(project / "a.txt", project / "src" / "a-too.txt")
    settle(project)
    masks_of(project)
    (project / "a.txt").rename(project / "a.pem")
    assert masks_of(project).masked == {*MASKED, "a.pem", "src/a-too.txt"}


def test_only_changed_directories_are_looked_into_again(project: Path) -> None:
    settle(project)
    asked: list[str] = []
    given = rights()

    def may_read(path: str) -> bool:
        asked.append(path)
        return given.may_read(path)

    noted = Rights(may_read, "1")
    first = masks_of(project, noted)
    asked.clear()
    assert (masks_of(project, noted), asked) == (first, [])
    (project / "src" / "new.pem").touch()
    assert masks_of(project, noted).masked == {*MASKED, "src/new.pem"}
    assert {path for path in asked if not path.startswith("src/")} == set()


def test_another_policy_voids_what_was_seen(project: Path) -> None:
    settle(project)
    masks_of(project)
    stricter = rights("2", *RULES, Rule(paths=("/src/**",), do=Verdict.DENY))
    assert masks_of(project, stricter).masked == {*MASKED, "src/"}
    shown = rights("1", show=frozenset({"deploy/.env"}))
    assert masks_of(project, shown).masked == MASKED - {"deploy/.env"}


@table("damage", [b"", b"x", b"0" * 128 + b"{}\n", b"\0" * 4096])
def test_a_damaged_memory_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "project").mkdir(exist_ok=True)
    (tmp_path / "project" / ".env").touch()
    masks_of(tmp_path / "project")
    (tmp_path / "mask" / "seen").write_bytes(damage)
    assert masks_of(tmp_path / "project").masked == {".env"}


def test_directories_have_the_modes_of_those_of_the_root(project: Path) -> None:
    (project / "deploy").chmod(0o751)
    project.chmod(0o775)
    masks = masks_of(project)
    assert stat.S_IMODE(Path(masks.directory).stat().st_mode) == 0o775
    assert stat.S_IMODE((Path(masks.directory) / "deploy").stat().st_mode) == 0o751
    (project / "deploy").chmod(0o711)
    masks = masks_of(project)
    assert stat.S_IMODE((Path(masks.directory) / "deploy").stat().st_mode) == 0o711


def test_a_directory_is_hidden_as_a_whole_only_if_nothing_in_it_may_be_read(project: Path) -> None:
    given = rights("1", Rule(paths=("/private/more/plan.txt",), do=Verdict.AUTO), *RULES)
    masked = masks_of(project, given).masked
    assert {path for path in masked if path.startswith("private")} == {"private/plan.txt"}


def test_a_directory_whose_name_is_that_of_a_secret_file_is_shown(project: Path) -> None:
    masks = masks_of(project)
    assert not masks.is_masked("venv.d/.env/bin/python")


def test_the_repository_is_kept_for_its_view(project: Path) -> None:
    assert masks_of(project, rights(git=True)).masked == MASKED - {".git/"}
    shutil.rmtree(project / ".git")
    (project / ".git").write_text("gitdir: elsewhere")
    assert masks_of(project, rights(git=True)).masked == MASKED - {".git/"}


def test_names_that_are_no_text_are_judged_in_every_reading(project: Path) -> None:
    names = [b"\xff.pem", b"\xff.txt", b"a\nb.pem", b"caf\xe9/x.txt"]
    (project / os.fsdecode(b"caf\xe9")).mkdir()
    for name in names:
        (project / os.fsdecode(name)).touch()
    given = rights("1", *RULES, Rule(paths=("/café/**",), do=Verdict.DENY))
    masked = masks_of(project, given).masked
    assert masked == {*MASKED, os.fsdecode(b"\xff.pem"), "a\nb.pem", os.fsdecode(b"caf\xe9/")}
    settle(project)
    assert masks_of(project, given).masked == masks_of(project, given).masked == masked


def test_a_directory_that_cannot_be_listed_is_hidden(place: Path, project: Path) -> None:
    def work() -> None:
        (project / "target" / "debug").chmod(0)
        (project / "deploy").chmod(0o400)
        masks = masks_of(project)
        assert {"target/debug/", "deploy/.env"} <= masks.masked
        (project / "target" / "debug").chmod(0o700)
        (project / "deploy").chmod(0o700)
        assert masks_of(project).masked == MASKED

    as_ordinary_user(work, place)


def test_a_command_cannot_open_what_its_owner_has_closed(place: Path, project: Path) -> None:
    def work() -> None:
        (project / "target" / "debug").chmod(0)
        shown = seen_by_a_command(project, masks_of(project), "ls target; cat a.txt")
        assert shown == "a.txt"

    as_ordinary_user(work, place)


def test_no_link_is_followed_out_of_the_root(place: Path, project: Path) -> None:
    (place / "outside").mkdir()
    (place / "outside" / ".env").touch()
    (project / "out").symlink_to(place / "outside")
    settle(project)
    assert masks_of(project).masked == MASKED
    shutil.move(project / "deploy", place / "moved")
    (project / "deploy").symlink_to(place / "moved")
    assert masks_of(project).masked == MASKED - {"deploy/.env"}


def test_a_file_that_is_moved_meanwhile_is_hidden_where_it_arrives(project: Path) -> None:
    """It comes into a directory that was looked through already."""
    given = rights()
    moved: list[str] = []

    def may_read(path: str) -> bool:
        if path.startswith("zz/") and not moved:
            moved.append(path)
            (project / "zz" / ".env").rename(project / "aa" / ".env")
        return given.may_read(path)

    for name in ("aa", "zz"):
        (project / name).mkdir()
    (project / "zz" / ".env").touch()
    (project / "zz" / "x").touch()
    masked = masks_of(project, Rights(may_read, "1")).masked
    assert "aa/.env" in masked
    assert moved


def test_whiteouts_stay_while_a_command_uses_them(project: Path) -> None:
    place = project.with_name("mask")
    with Root(project) as root:
        with make_masks(root, place, rights()) as first:
            (project / "new.pem").touch()
            with make_masks(root, place, rights()) as second:
                assert first.directory != second.directory
                assert whiteouts(first) | {"new.pem"} == whiteouts(second)
        with make_masks(root, place, rights()):
            assert not Path(first.directory).exists()


def test_a_directory_with_something_hidden_is_known(project: Path) -> None:
    masks = masks_of(project)
    has = {
        path for path in ("", "deploy", "node_modules", "src", ".ssh", "target/") if masks.has_masked(path)
    }
    assert has == {"", "deploy", "node_modules", "target/"}


@table(
    ("path", "expected"),
    [
        (".env", True), (".ssh", True), (".ssh/", True), (".ssh/id_rsa", True), (".ssh2", False), ("deploy", False),
        ("deploy/.env", True), ("deploy/.env/x", True), ("a.txt", False), ("private/new/x", True),
    ],
)  # fmt: skip
def test_a_change_at_a_hidden_name_is_known(tmp_path: Path, path: str, expected: bool) -> None:
    assert Masks("", frozenset({".env", "deploy/.env", ".ssh/", "private/"})).is_masked(path) is expected


def test_too_many_names_are_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_NAMES", 20)
    with pytest.raises(LcpError, match="more than 20 files") as raised:
        masks_of(project)
    assert raised.value.code is ErrorCode.TOO_LARGE


def test_a_mission_opens_tracked_files_that_only_their_names_deny() -> None:
    rule = Rule(paths=("tests/certs/private.pem",), do=Verdict.DENY)
    may_show = policy(rule).apart_from_secrets(READ_FILE.named)
    tracked = {"tests/certs/a.pem", "tests/certs/private.pem", "b.pem"}
    assert opened(["tests/certs/*.pem"], tracked, may_show) == {"tests/certs/a.pem"}
    assert opened(["tests/certs/*.pem"], {"b.pem"}, may_show) == frozenset()
    assert opened([], tracked, may_show) == frozenset()
