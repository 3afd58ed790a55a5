"""What a program changed is read from the upper directory of its overlay as the program saw it."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.programs.wall.overlays import (
    EACH_USER,
    STEPS,
    Place,
    Seen,
    Step,
    as_user,
    enter_namespaces,
    in_child,
    place,
    seen_by_owner,
    snapshot,
    take_all,
)

from lcp_engine.features.programs.wall.layers.ignored import IgnoredFiles
from lcp_engine.features.programs.wall.layers.upper import (
    LIMITS,
    Act,
    Changes,
    Kind,
    Limits,
    Move,
    Problem,
    Type,
    read_stamp,
    read_upper,
)

NO_RULES = IgnoredFiles()


def change(
    prepare: Callable[[Place], object],
    program: Callable[[Path], object],
    meanwhile: Callable[[Place], object] = lambda _: None,
    *,
    ignored: IgnoredFiles = NO_RULES,
    tracked: frozenset[str] = frozenset(),
    limits: Limits = LIMITS,
) -> Changes:
    """What is read of a program's changes."""
    with place() as where:
        prepare(where)
        start = stamp(where.root)
        where.run(lambda seen: program(seen) and None)
        meanwhile(where)
        return read(where, start, ignored=ignored, tracked=tracked, limits=limits)


def stamp(root: Path) -> int:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return read_stamp(descriptor)
    finally:
        os.close(descriptor)


def read(
    where: Place,
    start: int,
    *,
    ignored: IgnoredFiles = NO_RULES,
    tracked: frozenset[str] = frozenset(),
    limits: Limits = LIMITS,
) -> Changes:
    return read_upper(
        str(where.up),
        where.lower(),
        start=start,
        ignored=ignored,
        tracked=tracked,
        masks=[str(where.mask)],
        limits=limits,
    )


def applied(before: dict[str, Seen], changes: Changes, up: dict[str, Seen]) -> dict[str, Seen]:
    """What was seen before with the changes applied."""
    after = dict(before)
    for one in changes.changes:
        if one.before is not None:
            assert before[one.path][0] == kind_of(one.before.type), one
            assert before[one.path][1] == one.before.mode or one.before.type is Type.LINK, one
            if one.before.type is Type.FILE:
                assert one.before.sha256 == sha256(before[one.path][2]), one
            if one.after is None or one.kind is Kind.TYPE:
                del after[one.path]
        else:
            assert one.path not in before, one
    for one in changes.changes:
        if one.after is not None:
            content = b"" if one.after.type is Type.DIRECTORY else up[one.path][2]
            if one.after.type is Type.FILE:
                assert one.after.sha256 == sha256(content)
            after[one.path] = (kind_of(one.after.type), one.after.mode, content)
    return after


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def kind_of(type_: Type) -> str:
    return type_.value if type_ in {Type.FILE, Type.LINK, Type.DIRECTORY} else "special"


@pytest.mark.proof
@pytest.mark.parametrize("user", EACH_USER)
@given(st.lists(STEPS, max_size=8), st.lists(STEPS, max_size=6), st.lists(STEPS, min_size=1, max_size=10))
@settings(max_examples=25)
def test_changes_applied_to_what_was_seen_before_give_what_the_program_saw(
    user: str,
    first: list[Step],
    second: list[Step],
    steps: list[Step],
) -> None:
    def part() -> None:
        with place() as where:
            take_all(where.root, first)
            if second:  # what an earlier program left becomes the layer
                where.run(lambda seen: take_all(seen, second))
                os.rmdir(where.layer)
                where.up.rename(where.layer)
                where.up.mkdir(mode=0o755)
                shutil.rmtree(where.path / "work", ignore_errors=True)
                (where.path / "work").mkdir(exist_ok=True)
            start = stamp(where.root)

            def program(seen: Path) -> tuple[dict[str, Seen], dict[str, Seen]]:
                before = snapshot(seen)
                take_all(seen, steps)
                return before, snapshot(seen)

            before, after = where.run(program)
            modes = _modes(where.up)
            changes = read(where, start)
            assert _modes(where.up) == modes
            assert applied(before, changes, in_child(lambda: seen_by_owner(where.up))) == after

    as_user(user, part)


def _modes(up: Path) -> list[tuple[str, int]]:
    return [
        (one, os.lstat(os.path.join(above, one)).st_mode)
        for above, directories, files in os.walk(up)
        for one in (*directories, *files)
    ]


def told(changes: Changes) -> list[tuple[str, Kind, Problem | None]]:
    return [(one.path, one.kind, one.problem) for one in changes.changes]


def write(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def remove(path: Path) -> Path:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


def test_a_file_that_is_written_again_as_it_was_is_no_change() -> None:
    changes = change(
        lambda where: write(where.root / "d/a", "same"),
        lambda seen: write(seen / "d/a", "same"),
    )
    assert changes == Changes()


def test_a_directory_in_one_that_was_made_anew_has_nothing_of_the_old_one() -> None:
    def program(seen: Path) -> None:
        remove(seen / "d")
        write(seen / "d/s/new")

    changes = change(lambda where: write(where.root / "d/s/t/old"), program)
    assert told(changes) == [
        ("d/s/new", Kind.NEW, None),
        ("d/s/t", Kind.DELETED, None),
        ("d/s/t/old", Kind.DELETED, None),
    ]


def test_a_save_in_the_root_meanwhile_is_named_and_has_no_base() -> None:
    changes = change(
        lambda where: [write(where.root / name, "old") for name in ("changed", "deleted", "equal")],
        lambda seen: [
            write(seen / "changed", "of the program"),
            remove(seen / "deleted"),
            write(seen / "new"),
            write(seen / "equal", "both"),
        ],
        lambda where: (
            [write(where.root / name, "saved") for name in ("changed", "deleted", "new")]
            + [write(where.root / "equal", "both")]
        ),
    )
    assert told(changes) == [
        ("changed", Kind.CHANGED, Problem.MEANWHILE),
        ("deleted", Kind.DELETED, Problem.MEANWHILE),
        ("new", Kind.CHANGED, Problem.MEANWHILE),
    ]
    assert all(one.before and one.before.sha256 is None for one in changes.changes)


def test_a_stamp_is_later_than_each_change_before_it_and_not_later_than_one_after_it() -> None:
    with place() as where:
        for _ in range(20):
            write(where.root / "before")
            taken = stamp(where.root)
            assert (where.root / "before").stat().st_ctime_ns < taken
            write(where.root / "after")
            assert (where.root / "after").stat().st_ctime_ns >= taken
        assert sorted(os.listdir(where.root)) == ["after", "before"]


def test_a_masked_name_that_is_written_is_named_as_that() -> None:
    def prepare(where: Place) -> None:
        write(where.root / "secret.pem", "secret")
        write(where.root / "keys/a", "secret")
        for name in ("secret.pem", "keys"):
            os.mknod(where.mask / name, 0o020000)

    changes = change(prepare, lambda seen: [write(seen / "secret.pem"), write(seen / "keys/a")])
    assert told(changes) == [
        ("keys", Kind.NEW, Problem.MASKED),
        ("keys/a", Kind.NEW, Problem.MASKED),
        ("secret.pem", Kind.NEW, Problem.MASKED),
    ]


def test_what_a_deleted_directory_masked_is_not_stated() -> None:
    def prepare(where: Place) -> None:
        write(where.root / "d/secret")
        write(where.root / "d/plain")
        (where.mask / "d").mkdir()
        os.mknod(where.mask / "d/secret", 0o020000)

    changes = change(prepare, lambda seen: shutil.rmtree(seen / "d"))
    assert told(changes) == [("d", Kind.DELETED, None), ("d/plain", Kind.DELETED, None)]


def test_special_files_are_named_and_not_opened() -> None:
    def program(seen: Path) -> None:
        os.mkfifo(seen / "fifo")
        with socket.socket(socket.AF_UNIX) as one:
            os.chdir(seen)
            one.bind("socket")

    changes = change(lambda _: None, program)
    assert told(changes) == [("fifo", Kind.NEW, Problem.SPECIAL), ("socket", Kind.NEW, Problem.SPECIAL)]


def test_repositories_are_named_without_what_is_in_them() -> None:
    changes = change(
        lambda _: None, lambda seen: [write(seen / ".git/config"), write(seen / "sub/.git/HEAD")]
    )
    assert told(changes) == [
        (".git", Kind.NEW, Problem.PROTECTED),
        ("sub", Kind.NEW, None),
        ("sub/.git", Kind.NEW, Problem.PROTECTED),
    ]


def test_names_that_are_no_text_are_shown_and_those_with_newlines_are_names() -> None:
    changes = change(lambda _: None, lambda seen: [write(seen / "\udcff"), write(seen / "a\nb")])
    assert told(changes) == [("\\xff", Kind.NEW, Problem.NOT_TEXT), ("a\nb", Kind.NEW, None)]


def test_a_sparse_terabyte_is_refused_by_its_size() -> None:
    def program(seen: Path) -> None:
        with (seen / "huge").open("wb") as file:
            file.truncate(1 << 40)

    changes = change(lambda where: write(where.root / "huge"), program)
    assert told(changes) == [("huge", Kind.CHANGED, Problem.TOO_LARGE)]
    assert changes.changes[0].after is not None
    assert changes.changes[0].after.size == 1 << 40


@pytest.mark.proof
def test_ten_thousand_directories_in_each_other_are_read() -> None:
    def program(seen: Path) -> None:
        os.chdir(seen)
        for _ in range(10_000):
            os.mkdir("d")
            os.chdir("d")
        Path("end").touch()

    changes = change(lambda _: None, program, limits=Limits(changes=20_000))
    assert len(changes.changes) == 10_001
    assert changes.changes[-1].path.count("/") == 10_000


def test_more_changes_than_allowed_are_counted() -> None:
    changes = change(
        lambda where: [write(where.root / f"old/{n}") for n in range(30)],
        lambda seen: [*(write(seen / f"{n}") for n in range(40)), remove(seen / "old")],
        limits=Limits(changes=10, expanded=5),
    )
    assert len(changes.changes) == 10
    assert changes.more > 30
    assert not changes.is_whole
    assert changes.is_counted


def test_directories_with_too_many_deleted_files_are_stated_as_wholes() -> None:
    changes = change(
        lambda where: [write(where.root / f"{d}/{n}") for d in "ab" for n in range(8)],
        lambda seen: [remove(seen / d) for d in "ab"],
        limits=Limits(expanded=5),
    )
    wholes = [one.path for one in changes.changes if one.is_whole]
    assert len(changes.changes) == 10
    assert wholes == ["a"]


def test_reading_ends_after_as_many_entries_as_allowed() -> None:
    changes = change(
        lambda _: None, lambda seen: [write(seen / f"{d}/f") for d in range(30)], limits=Limits(entries=30)
    )
    assert not changes.is_counted


def test_names_of_one_file_are_stated_together() -> None:
    def program(seen: Path) -> None:
        write(seen / "one")
        os.link(seen / "one", seen / "other")

    assert change(lambda _: None, program).hard_links == (("one", "other"),)


RULES = IgnoredFiles({"": ("*.o", "out/"), "sub/": ("!keep.o",)})


def test_ignored_output_is_moved_and_tracked_files_are_not() -> None:
    def prepare(where: Place) -> None:
        write(where.root / "out/tracked.txt")
        write(where.root / "of_root.o")
        write(where.layer / "of_layer.o")

    def program(seen: Path) -> None:
        for path in (
            "a.o",
            "sub/keep.o",
            "sub/b.o",
            "out/tracked.txt",
            "out/new.txt",
            "node_modules/x/y",
            "src/c.c",
        ):
            write(seen / path, "new")
        for path in ("of_root.o", "of_layer.o"):
            (seen / path).unlink()

    changes = change(prepare, program, ignored=RULES, tracked=frozenset({"out/tracked.txt"}))
    assert [one.path for one in changes.changes] == ["out/tracked.txt", "src", "src/c.c", "sub", "sub/keep.o"]
    assert changes.moves == (
        Move("a.o", Act.MOVE),
        Move("node_modules", Act.MOVE),
        Move("of_layer.o", Act.REMOVE),
        Move("of_root.o", Act.HIDE),
        Move("out/new.txt", Act.MOVE),
        Move("sub/b.o", Act.MOVE),
    )


def test_what_no_path_can_name_is_a_problem_of_its_own() -> None:
    def program(seen: Path) -> None:
        here = os.open(seen, os.O_RDONLY)
        for _ in range(21):
            os.mkdir("d" * 199, dir_fd=here)
            here = os.open("d" * 199, os.O_RDONLY, dir_fd=here)

    changes = change(lambda _: None, program).changes
    assert [one.problem for one in changes] == [*[None] * 20, Problem.TOO_LONG]


def test_attributes_of_overlays_that_a_program_sets_mean_nothing() -> None:
    """Linux stores them under other names, or refuses them before 6.7."""

    def program(seen: Path) -> None:
        (seen / "d/new").touch()
        for path in ("d", "d/new", "d/a"):
            for name, value in (
                ("opaque", b"y"), ("opaque", b"x"), ("whiteout", b"y"), ("redirect", b"/hidden"), ("metacopy", b""),
            ):  # fmt: skip
                with suppress(OSError):
                    os.setxattr(seen / path, f"user.overlay.{name}", value)

    with place() as where:
        for path in ("d/a", "d/b", "d/s", "hidden/s"):
            write(where.root / path)
        (where.mask / "d").mkdir()
        for path in ("d/s", "hidden"):
            os.mknod(where.mask / path, stat.S_IFCHR, 0)
        start = stamp(where.root)
        where.run(program)
        assert told(read(where, start)) == [("d/new", Kind.NEW, None)]
        os.rmdir(where.layer)
        where.up.rename(where.layer)
        for name in ("up", "other"):
            (where.path / name).mkdir()
        seen = where.run(snapshot, work=where.path / "other")
        assert sorted(seen) == ["d", "d/a", "d/b", "d/new"]


def test_rules_that_the_mission_wrote_make_no_output_of_what_was_there() -> None:
    def prepare(where: Place) -> None:
        for path in ("tests/a", "tests/gone", "tests/dir/b", "out/old.o"):
            write(where.root / path)

    def program(seen: Path) -> None:
        for path in ("tests/a", "tests/new", "out/old.o", "made/new"):
            write(seen / path, "new")
        (seen / "tests/gone").unlink()
        shutil.rmtree(seen / "tests/dir")
        write(seen / "tests/dir/c")

    written = IgnoredFiles({"": ("tests/", "made/", "*.o")}, of_root=IgnoredFiles({"": ("*.o",)}))
    changes = change(prepare, program, ignored=written)
    assert [(one.path, one.kind) for one in changes.changes] == [
        ("tests/a", Kind.CHANGED),
        ("tests/dir/b", Kind.DELETED),
        ("tests/gone", Kind.DELETED),
    ]
    assert [one.path for one in changes.moves] == ["made", "out/old.o", "tests/dir/c", "tests/new"]


def test_ignored_files_of_a_deleted_directory_are_removed_from_the_layer() -> None:
    def prepare(where: Place) -> None:
        write(where.root / "src/a.c")
        write(where.layer / "src/a.o")

    def program(seen: Path) -> None:
        shutil.rmtree(seen / "src")
        write(seen / "src/b.c")

    changes = change(prepare, program, ignored=RULES)
    assert [(one.path, one.kind) for one in changes.changes] == [
        ("src/a.c", Kind.DELETED),
        ("src/b.c", Kind.NEW),
    ]
    assert changes.moves == (Move("src/a.o", Act.REMOVE),)


def spoil(path: Path) -> None:
    enter_namespaces()
    path.write_text("other")
