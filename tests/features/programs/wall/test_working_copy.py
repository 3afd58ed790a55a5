"""A working copy has what a command may read, and tells what was changed in it; the root stays as it is."""

from __future__ import annotations

import os
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir
from pathlib import Path

import pytest

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.layers import working_copy as module
from lcp_engine.features.programs.wall.layers.working_copy import (
    MOST_CHANGES,
    scratch_directory,
    working_copy,
)
from lcp_engine.features.programs.wall.views.shown_directories import Shown, keep_ignored, shown_in
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.root import Root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "copies").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "copies"))
    root = tmp_path / "project"
    for path, text in {
        "a.txt": "a", "src/b.py": "b", "run.sh": "#!/bin/sh", ".env": "SECRET", ".git/config": "x", ".git/hooks/h": "x",
        "node_modules/m/index.js": "m", "docs/c.md": "c",
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "run.sh").chmod(0o755)
    (root / "a.txt").chmod(0o444)
    (root / "link").symlink_to("/etc/passwd")
    return root


def may_read(path: str) -> bool:
    return path != ".env"


def test_times_and_mode_bits_are_those_of_the_root(project: Path) -> None:
    """To the nanosecond: a source that was saved within the second of its object is newer than it."""
    saved = 1_600_000_000_000_000_000
    for nth, path in enumerate(("src/b.py", "docs/c.md", "run.sh", "a.txt", "docs", "src", ".")):
        os.utime(project / path, ns=(saved, saved + nth))
    (project / "run.sh").chmod(0o4755)
    with Root(project) as root, working_copy(root, may_read) as copy:
        for nth, path in enumerate(("src/b.py", "docs/c.md", "run.sh", "a.txt", "docs", "src", ".")):
            assert ((copy.files / path).stat().st_mtime_ns, path) == (saved + nth, path)
        modes = {path: stat.S_IMODE((copy.files / path).stat().st_mode) for path in ("run.sh", "a.txt")}
        assert modes == {"run.sh": 0o755, "a.txt": 0o444}
        assert copy.changed() == ([], 0)


def test_a_file_that_may_not_be_read_is_there_under_no_other_name(project: Path) -> None:
    os.link(project / ".env", project / "docs" / "other.md")
    os.link(project / "a.txt", project / "docs" / "a.txt")
    with Root(project) as root, working_copy(root, may_read) as copy:
        assert {path.name for path in (copy.files / "docs").iterdir()} == {"c.md", "a.txt"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_it_can_belong_to_another_user(project: Path) -> None:
    with Root(project) as root, working_copy(root, may_read, (65534, 65533)) as copy:
        found = [path.lstat() for path in (copy.files, copy.home, *copy.files.rglob("*"))]
        assert {(one.st_uid, one.st_gid) for one in found} == {(65534, 65533)}
        assert copy.changed() == ([], 0)
    assert {one.lstat().st_uid for one in project.rglob("*")} == {0}


def files_in(place: Path) -> set[str]:
    return {
        str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir() or path.is_symlink()
    }


def test_it_has_the_files_that_may_be_read(project: Path) -> None:
    with Root(project) as root, working_copy(root, may_read) as copy:
        assert files_in(copy.files) == {"a.txt", "src/b.py", "run.sh", "docs/c.md", "node_modules"}
        assert (copy.files / "run.sh").stat().st_mode & 0o777 == 0o755
        assert copy.shared == (str(project / "node_modules"),)
        assert (copy.files / "node_modules" / "m" / "index.js").read_text() == "m"
        assert copy.changed() == ([], 0)
    assert not copy.files.exists()


def test_another_name_of_what_may_not_be_read_is_left_out(project: Path) -> None:
    os.link(project / ".env", project / "notes.txt")
    os.link(project / "docs/c.md", project / "docs/d.md")
    with Root(project) as root, working_copy(root, may_read) as copy:
        assert not (copy.files / "notes.txt").exists()
        assert (copy.files / "docs/d.md").read_text() == "c"


@pytest.mark.parametrize("without", [(), ("node_modules",)])
def test_packages_of_the_root_are_seen_only_if_its_stage_was_made_without_them(
    tmp_path: Path, without: tuple[str, ...]
) -> None:
    root, stage = tmp_path / "root", tmp_path / "stages/1/made"
    (root / "node_modules/ok").mkdir(parents=True)
    stage.mkdir(parents=True)
    keep_ignored(stage, Shown(without))
    with Root(str(stage)) as opened:
        opened.set_copied(str(root), lambda: Root(str(root)))
        with working_copy(opened, lambda path: True) as copy:
            assert copy.shared == tuple(f"{root}/{name}" for name in without)


@pytest.mark.parametrize("stored", [b"", b"node_modules", b"1\0node_modules", b"\xff\0node_modules"])
def test_what_earlier_commits_stored_beside_a_stage_is_read(tmp_path: Path, stored: bytes) -> None:
    root, stage = tmp_path / "root", tmp_path / "stages/1/made"
    (root / "node_modules").mkdir(parents=True)
    stage.mkdir(parents=True)
    (tmp_path / "stages/.ignored-made").write_bytes(stored)
    with Root(str(stage)) as opened, Root(str(root)) as copied:
        assert shown_in(opened, copied) == Shown(("node_modules",) if stored else ())


def test_it_tells_what_was_changed(project: Path) -> None:
    before = {path: (project / path).read_bytes() for path in files_in(project)}
    with Root(project) as root, working_copy(root, may_read) as copy:
        (copy.files / "a.txt").chmod(0o644)
        (copy.files / "a.txt").write_text("A")
        (copy.files / "src" / "b.py").unlink()
        (copy.files / "new").mkdir()
        (copy.files / "new" / "n.txt").write_text("n")
        (copy.files / "soft").symlink_to("a.txt")
        (copy.home / "h.txt").write_text("not told")
        assert copy.changed() == (["a.txt", "new/n.txt", "soft", "src/b.py"], 0)
        assert copy.told(f"{copy.files}/a.txt:1: {copy.files}") == "a.txt:1: ."
    assert {path: (project / path).read_bytes() for path in files_in(project)} == before


def test_names_that_are_not_text_are_told_apart(project: Path) -> None:
    with Root(project) as root, working_copy(root, may_read) as copy:
        for name in (b"\xff", b"\xfe"):
            Path(os.fsdecode(os.fsencode(copy.files) + b"/" + name)).touch()
        assert copy.changed() == (["\\xfe", "\\xff"], 0)


def test_changes_without_number_are_counted_and_not_kept(project: Path) -> None:
    with Root(project) as root, working_copy(root, may_read) as copy:
        for number in range(MOST_CHANGES + 30):
            (copy.files / str(number)).touch()
        named, more = copy.changed()
        assert (len(named), more) == (MOST_CHANGES, 30)


def test_it_tells_what_the_root_does_not_have(project: Path) -> None:
    (project / "empty").mkdir()
    with Root(project) as root, working_copy(root, may_read) as copy:
        assert copy.lost(root) == []
        for path in ("made/inner", "full", "empty"):
            (copy.files / path).mkdir(parents=True)
        (copy.files / "full" / "f.txt").write_text("f")
        (copy.files / "docs" / "c.md").write_text("c")  # as it is in the root
        (copy.files / "docs" / "c.md").chmod((project / "docs" / "c.md").stat().st_mode & 0o777)
        written = (copy.files / "src" / "b.py").stat()
        (copy.files / "src" / "b.py").write_text("B")
        os.utime(copy.files / "src" / "b.py", ns=(written.st_atime_ns, written.st_mtime_ns))
        (copy.files / "run.sh").chmod(0o644)
        (copy.files / "a.txt").unlink()
        assert copy.lost(root) == ["a.txt", "full/f.txt", "made/inner/", "run.sh", "src/b.py"]
        assert "docs/c.md" in copy.changed()[0]


def test_what_the_program_made_unreadable_is_removed_too(project: Path) -> None:
    with Root(project) as root, working_copy(root, may_read) as copy:
        (copy.files / "closed").mkdir()
        (copy.files / "closed" / "f").write_text("f")
        (copy.files / "closed").chmod(0)
    assert list((project.parent / "copies").iterdir()) == []


@pytest.mark.parametrize(("name", "most"), [("MOST_FILES", 3), ("MOST_BYTES", 5)])
def test_a_root_that_is_too_large_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(module, name, most)
    fact = f"the root has (4 files|12 bytes); a command gets a copy of at most {most}"
    with Root(project) as root, pytest.raises(LcpError, match=fact) as refused, working_copy(root, may_read):
        pass
    assert refused.value.code is ErrorCode.TOO_LARGE
    assert list((project.parent / "copies").iterdir()) == []


def test_copies_of_processes_that_died_are_removed(project: Path) -> None:
    left = Path(tempfile.mkdtemp(prefix="lcp-run-"))
    (left / "root").mkdir()
    (left / "root" / "f").write_text("f")
    with Root(project) as root, working_copy(root, may_read) as one:
        assert not left.exists()
        with working_copy(root, may_read) as other:
            assert one.files.exists()
            assert other.files != one.files


def test_programs_in_parallel_leave_the_temporary_directory_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sweeps what it finds, also a directory that another has made and not locked yet."""
    place = tmp_path / "temporary"
    place.mkdir()
    place.chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(place))

    def use(_: int) -> None:
        with scratch_directory() as directory:
            (directory / "inner" / "deep").mkdir(parents=True)
            (directory / "inner" / "f").touch()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(400)))
    assert stat.S_IMODE(place.stat().st_mode) == 0o1777
    assert list(place.iterdir()) == []


def test_a_tree_is_removed_however_deep_it_is_and_whatever_its_modes_are(tmp_path: Path) -> None:
    tree, beside = tmp_path / "tree", tmp_path / "beside"
    (tree / "closed" / "in").mkdir(parents=True)
    beside.mkdir(mode=0o755)
    (beside / "kept").touch()
    (tree / "link").symlink_to(beside)
    (tree / "closed" / "in" / "f").touch()
    with chdir(tree):
        for _ in range(3000):
            Path("d").mkdir()
            os.chdir("d")
    for closed in (tree / "closed" / "in", tree / "closed", tree):
        closed.chmod(0)  # says nothing to root
    remove_tree(tree)
    assert not tree.exists()
    assert (stat.S_IMODE(beside.stat().st_mode), [*beside.iterdir()]) == (0o755, [beside / "kept"])


def test_a_link_is_not_swept(project: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    planted = Path(tempfile.gettempdir()) / "lcp-run-planted"
    planted.symlink_to(tmp_path / "mine")
    with Root(project) as root, working_copy(root, may_read):
        assert (tmp_path / "mine").exists()
    assert planted.is_symlink()


def test_descriptors_are_closed(project: Path) -> None:
    with Root(project) as root:
        before = len([*Path("/proc/self/fd").iterdir()])
        for _ in range(3):
            with working_copy(root, may_read):
                pass
        assert len([*Path("/proc/self/fd").iterdir()]) == before
