"""Ignored output of a mission's programs lasts from one to the next, and is never half there."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.features.programs.wall.overlays import (
    EACH_USER,
    SECONDS,
    STEPS,
    Place,
    Seen,
    Step,
    as_user,
    enter_namespaces,
    in_child,
    place,
    seen_by_owner,
    small_file_system,
    snapshot,
    take_all,
)

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.layers.ignored import IgnoredFiles
from lcp_engine.features.programs.wall.layers.layer import Layer, Run
from lcp_engine.features.programs.wall.layers.upper import Changes, Entry, Kind, Type, read_stamp, read_upper
from lcp_engine.features.programs.wall.views.covers import Base

ALL_IGNORED = IgnoredFiles({"": ("*",)})
RULES = IgnoredFiles({"": ("*.o", "out/")})


class Mission:
    """A mission whose programs see a root below its layer."""

    def __init__(self, where: Place, ignored: IgnoredFiles = ALL_IGNORED) -> None:
        self.where, self.ignored = where, ignored
        self.root = where.root
        self.layer = Layer(where.path / "state" / "mission")

    def lower(self) -> list[str]:
        return [str(self.root), str(self.layer.mask), str(self.layer.layer)]

    def run(
        self, program: Callable[[Path], object], run_id: str = "1"
    ) -> tuple[Run, Changes, dict[str, Seen]]:
        """Run a program up to the reading of its changes; returns what is seen at its end, too."""
        run = self.layer.begin(run_id)
        start = self.stamp()

        def seen_at_its_end(seen: Path) -> dict[str, Seen]:
            program(seen)
            return snapshot(seen)

        after = self.where.run(seen_at_its_end, lower=self.lower(), up=run.up, work=run.work)
        changes = read_upper(
            str(run.up), self.lower(), start=start, ignored=self.ignored, masks=[str(self.layer.mask)]
        )
        self.layer.prepare(run, changes.moves, Base(str(self.root)), start)
        return run, changes, after

    def settle(self, program: Callable[[Path], object]) -> dict[str, Seen]:
        run, _, after = self.run(program)
        self.layer.settle(run)
        return after

    def seen(self) -> dict[str, Seen]:
        """What the next program sees."""
        run = self.layer.begin("look")
        try:
            return self.where.run(snapshot, lower=self.lower(), up=run.up, work=run.work)
        finally:
            self.layer.drop(run)

    def stamp(self) -> int:
        root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return read_stamp(root)
        finally:
            os.close(root)


def write(path: Path, content: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def stepping(steps: Sequence[Step]) -> Callable[[Path], None]:
    return lambda seen: take_all(seen, steps)


@pytest.mark.proof
@pytest.mark.parametrize("user", EACH_USER)
@given(st.lists(STEPS, max_size=8), st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=1, max_size=3))
@settings(max_examples=20)
def test_the_next_program_sees_what_the_last_one_saw(
    user: str, first: list[Step], programs: list[list[Step]]
) -> None:
    def part() -> None:
        with place() as where:
            mission = Mission(where)
            take_all(where.root, first)
            before = in_child(lambda: seen_by_owner(where.root))
            for steps in programs:
                after = mission.settle(stepping(steps))
                assert mission.seen() == after
            assert in_child(lambda: seen_by_owner(where.root)) == before

    as_user(user, part)


SOME_IGNORED = IgnoredFiles({"": ("b",), "a/": ("!b", "a")})


@pytest.mark.proof
@pytest.mark.parametrize("user", EACH_USER)
@given(st.lists(STEPS, max_size=8), st.lists(st.lists(STEPS, min_size=1, max_size=6), min_size=1, max_size=3))
@settings(max_examples=20)
def test_source_in_the_root_and_output_in_the_layer_are_seen_as_the_last_program_saw_them(
    user: str, first: list[Step], programs: list[list[Step]]
) -> None:
    def part() -> None:
        with place() as where:
            mission = Mission(where, SOME_IGNORED)
            take_all(where.root, first)
            for steps in programs:
                run, changes, after = mission.run(stepping(steps))
                in_child(partial(apply, changes, run.up, where.root))
                mission.layer.settle(run)
                mission.layer.refresh(Base(str(where.root)))
                assert without_directories(mission.seen()) == without_directories(after)

    as_user(user, part)


def without_directories(seen: dict[str, Seen]) -> dict[str, Seen]:
    """What is not a directory: one that is deleted with ignored files of the root in it stays, empty."""
    return {path: one for path, one in seen.items() if one[0] != "directory"}


def apply(changes: Changes, up: Path, root: Path) -> None:
    """Apply changes of source to the root, as its owner."""
    enter_namespaces()
    for one in reversed(changes.changes):
        if one.before is not None and (one.after is None or one.kind is Kind.TYPE):
            path = root / named(one.path)
            if one.before.type is not Type.DIRECTORY:
                path.unlink()
            elif not os.listdir(path) or one.kind is Kind.TYPE:
                shutil.rmtree(path)
    for one in changes.changes:
        if one.after is not None:
            put(root / named(one.path), one.after, up / named(one.path))


def put(path: Path, entry: Entry, new: Path) -> None:
    match entry.type:
        case Type.DIRECTORY:
            path.mkdir(exist_ok=True)
        case Type.FILE:
            shutil.copyfile(new, path)
        case Type.LINK:
            path.unlink(missing_ok=True)
            path.symlink_to(new.readlink())
            return
        case _:
            path.unlink(missing_ok=True)
            os.mkfifo(path)
    path.chmod(entry.mode)


def named(shown: str) -> str:
    return shown.replace("\\xff", "\udcff")


BEFORE: list[Step] = [
    ("mkdir", "a/a", None),
    ("write", "a/a/b", b"x"),
    ("write", "a/b", b"x"),
    ("mkdir", "b/a", None),
    ("write", "b/a/a", b"x"),
    ("write", "b/b", b"x"),
]
EARLIER: list[Step] = [
    ("rmtree", "b/a", None),
    ("write", "a/b", b"y"),
    ("mkdir", "c/closed", None),
    ("write", "c/closed/a", b"x"),
    ("chmod", "c/closed", 0o500),
    ("unlink", "b/b", None),
]
LATER: list[Step] = [
    ("mkdir", "b/a", None),
    ("write", "b/a/b", b"z"),
    ("remake", "a/a", None),
    ("write", "a/a/c", b"z"),
    ("unlink", "a/b", None),
    ("mkdir", "a/b", None),
    ("write", "a/b/c", b"z"),
    ("chmod", "c/closed", 0o700),
    ("write", "c/closed/b", b"z"),
    ("chmod", "c/closed", 0o500),
    ("mkdir", "new/closed/a", None),
    ("chmod", "new/closed", 0o000),
    ("write", "b/b", b"again"),
]
EVENTS = frozenset(
    {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod", "os.utime", "os.setxattr", "os.listdir"}
)


def killed_at(number: int, work: Callable[[], object]) -> bool:
    """True if a child process was killed before it did something for the nth time; false if it came to its end."""
    child = os.fork()
    if child == 0:
        count = 0

        def kill(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal count
            if event in EVENTS:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        def work_watched() -> None:
            sys.addaudithook(kill)
            work()

        end(work_watched)
    status = os.waitpid(child, 0)[1]
    assert status in {0, signal.SIGKILL}
    return status != 0


def end(work: Callable[[], object]) -> NoReturn:
    """End this process whatever happens: it is a copy of the tests."""
    result = 1
    try:
        signal.alarm(SECONDS)
        work()
        result = 0
    except BaseException:  # noqa: BLE001 -- it is shown
        traceback.print_exc()
    finally:
        os._exit(result)


@pytest.mark.proof
@pytest.mark.parametrize("user", EACH_USER)
def test_a_kill_at_each_point_of_a_settlement_leaves_all_of_it_or_nothing(user: str) -> None:
    def part() -> None:
        number = 0
        while True:
            number += 1
            with place() as where:
                mission = Mission(where)
                take_all(where.root, BEFORE)
                old = mission.settle(stepping(EARLIER))
                assert mission.seen() == old
                run, _, new = mission.run(stepping(LATER), "killed")
                was_killed = killed_at(number, partial(mission.layer.settle, run))
                os.close(run.lock)
                again = Layer(mission.layer.place)
                again.recover({"killed"}.__contains__)
                mission.layer = again
                assert mission.seen() == new, number
                assert os.listdir(again.runs) == os.listdir(again.place / "trash") == []
                if not was_killed:
                    break
        assert number > 30

    as_user(user, part)


def test_what_was_not_settled_is_thrown_away() -> None:
    with place() as where:
        mission = Mission(where)
        take_all(where.root, BEFORE)
        old = mission.settle(stepping(EARLIER))
        run, _, new = mission.run(stepping(LATER), "killed")
        assert new != old
        os.close(run.lock)
        mission.layer.recover(lambda _: False)
        assert mission.seen() == old
        assert os.listdir(mission.layer.runs) == []


@pytest.mark.parametrize("user", EACH_USER)
def test_a_full_disk_at_each_point_leaves_all_of_it_or_nothing(user: str) -> None:
    def part() -> None:
        enter_namespaces()
        refused = 0
        for free in range(9):
            with place() as where, small_file_system(where.path, "size=4m,nr_inodes=200"):
                for name in ("root", "mask", "layer", "up", "work", "seen"):
                    (where.path / name).mkdir()
                mission = Mission(where)
                take_all(where.root, BEFORE)
                old = mission.settle(stepping(EARLIER))
                run, changes, new = mission.run(stepping([*LATER, ("rmtree", "c", None)]), "full")
                start = mission.stamp()
                fillers = fill(where.path, free)
                is_settled = False
                try:
                    mission.layer.prepare(run, changes.moves, Base(str(where.root)), start)
                    is_settled = True
                    mission.layer.settle(run)
                except LcpError as error:
                    refused += error.code is ErrorCode.FILE_SYSTEM
                    os.close(run.lock)
                for filler in fillers:
                    filler.unlink()
                mission.layer.recover({"full"}.__contains__ if is_settled else set[str]().__contains__)
                assert mission.seen() == (new if is_settled else old)

        assert 0 < refused < 9

    in_child(lambda: as_user(user, part))


def fill(directory: Path, free: int) -> list[Path]:
    """Take every inode of a file system but some."""
    made: list[Path] = []
    while True:
        try:
            made.append(write(directory / f"filler{len(made)}", ""))
        except OSError:
            break
    for _ in range(free):
        made.pop().unlink()
    return made


def test_two_programs_never_share_an_upper_directory() -> None:
    with place() as where:
        layer = Layer(where.path / "state")
        run = layer.begin("1")
        for one in (layer, Layer(layer.place)):
            with pytest.raises(LcpError) as refused:
                one.begin("1")
            assert refused.value.code is ErrorCode.WRONG_STATE
        assert layer.recover(lambda _: True) == []
        assert run.up.exists()
        layer.drop(run)
        layer.drop(layer.begin("1"))


def test_a_link_in_the_place_of_the_layer_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    layer = Layer(tmp_path / "mission")
    layer.layer.rmdir()
    layer.layer.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root").mkdir()
    with pytest.raises(LcpError, match="cannot be used: Not a directory") as refused:
        layer.refresh(Base(str(tmp_path / "root")))
    assert refused.value.code is ErrorCode.FILE_SYSTEM


def test_more_output_than_allowed_is_refused_before_anything_is_moved() -> None:
    with place() as where:
        mission = Mission(where, RULES)
        mission.layer = Layer(where.path / "state", most_files=10)
        with pytest.raises(LcpError) as refused:
            mission.run(lambda seen: [write(seen / f"{n}.o") for n in range(11)], "large")
        assert refused.value.code is ErrorCode.TOO_LARGE
        mission.settle(lambda seen: [write(seen / f"{n}.o") for n in range(9)])
        mission.settle(lambda seen: [write(seen / f"{n}.o", "again") for n in range(9)])
        assert mission.layer.usage().files == 9


def test_output_of_a_root_that_has_changed_gives_way_to_it() -> None:
    with place() as where:
        mission = Mission(where, RULES)
        for name in ("changed", "deleted", "same", "hidden"):
            write(where.root / f"{name}.o", "root")
        write(where.root / "out/a/b", "root")

        def program(seen: Path) -> None:
            for name in ("changed", "deleted", "same", "new", "newly"):
                write(seen / f"{name}.o", "layer")
            (seen / "hidden.o").unlink()
            (seen / "out/a/b").unlink()
            (seen / "out/a").rmdir()

        mission.settle(program)
        assert mission.layer.refresh(Base(str(where.root))) == []
        write(where.root / "changed.o", "later")
        write(where.root / "hidden.o", "later")
        write(where.root / "newly.o", "later")
        write(where.root / "out/a/c", "later")
        (where.root / "deleted.o").unlink()
        gone = mission.layer.refresh(Base(str(where.root)))
        assert sorted(gone) == ["changed.o", "deleted.o", "hidden.o", "newly.o", "out/a"]
        seen = {path: one[2].decode() for path, one in mission.seen().items() if one[0] == "file"}
        assert seen == {
            "changed.o": "later",
            "hidden.o": "later",
            "new.o": "layer",
            "newly.o": "later",
            "out/a/b": "root",
            "out/a/c": "later",
            "same.o": "layer",
        }
        assert mission.layer.refresh(Base(str(where.root))) == []


def test_output_over_a_file_that_changed_while_the_program_ran_gives_way() -> None:
    with place() as where:
        mission = Mission(where, RULES)
        write(where.root / "a.o", "root")

        def program(seen: Path) -> None:
            write(seen / "a.o", "layer")
            in_root.write_text("saved")

        in_root = where.root / "a.o"
        mission.settle(program)
        assert mission.layer.refresh(Base(str(where.root))) == ["a.o"]
        assert mission.seen()["a.o"][2] == b"saved"


@pytest.mark.parametrize("user", EACH_USER)
def test_a_layer_is_removed_with_closed_and_read_only_directories(user: str) -> None:
    def part() -> None:
        with place() as where:
            mission = Mission(where)
            outside = write(where.path / "outside/file")

            def program(seen: Path) -> None:
                (seen / f"link{len(os.listdir(seen))}").symlink_to(outside.parent)
                for mode in (0o000, 0o500):
                    write(seen / f"{mode}/a/b")
                    (seen / f"{mode}/a").chmod(mode)

            mission.settle(program)
            mission.run(program, "left")
            assert mission.layer.usage().files > 5
            assert mission.layer.remove()
            assert not mission.layer.place.exists()
            assert outside.read_text() == "x"

    as_user(user, part)


def test_rules_of_the_launch_are_kept() -> None:
    with place() as where:
        layer = Layer(where.path / "state")
        assert layer.rules() is None
        of_root = IgnoredFiles({"": ("*.o",), "a\udcff/": ("b\udcff",)}, ("c",))
        for rules in (of_root, IgnoredFiles({"": ("d",)}, of_root=of_root)):
            layer.keep_rules(rules)
            assert Layer(layer.place).rules() == rules


def test_an_emptied_layer_starts_anew() -> None:
    with place() as where:
        mission = Mission(where)
        mission.settle(lambda seen: write(seen / "a"))
        run, _, _ = mission.run(lambda seen: write(seen / "b"), "left")
        os.close(run.lock)
        mission.layer.empty()
        assert mission.seen() == {}


def test_the_directory_of_another_mission_with_the_same_number_is_emptied(tmp_path: Path) -> None:
    layer = Layer(tmp_path / "1")
    layer.claim("one")
    (layer.layer / "built").write_text("of another project")
    layer.keep_rules(IgnoredFiles())
    layer.claim("one")
    assert (layer.layer / "built").exists()
    layer.claim("another")
    assert [*layer.layer.iterdir()] == []
    assert layer.rules() is None


def test_output_of_before_the_machine_was_started_anew_is_not_trusted_and_the_rules_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not synced: after a power failure a file may be there without its content."""
    layer = Layer(tmp_path)
    layer.claim("one")
    layer.keep_rules(RULES)
    (layer.layer / "out").write_text("")
    another = tmp_path / "boot_id"
    another.write_text("another\n")
    monkeypatch.setattr("lcp_engine.features.programs.wall.layers.layer._BOOT", another)
    layer.claim("one")
    assert [*layer.layer.iterdir()] == []
    assert layer.rules() == RULES
