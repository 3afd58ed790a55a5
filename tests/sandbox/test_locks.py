"""Several files are locked without ever waiting for a second lock, in each way to access files."""

from __future__ import annotations

import fcntl
import gc
import hashlib
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.processes import descriptors

from lcp_engine.clock import SECOND, since_start
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.sandbox.atomic_write import Current, LockedFile, temporary_name
from lcp_engine.sandbox.file_access import HERE, ConfinedThreads, FileAccess
from lcp_engine.sandbox.locks import MOST_DIRECTORIES, LockedFiles, Put, RootedPath, Wait
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.landlock import Isolation, isolates
from lcp_engine.workers.base import Caps

SECONDS = 20


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    with Root(tmp_path) as opened:
        yield opened


@pytest.fixture(params=["here", "confined thread", "confined process"])
def files(request: pytest.FixtureRequest, root: Root) -> Iterator[FileAccess]:
    if request.param == "here":
        yield HERE
        return
    if not isolates(Isolation.AUTO):
        pytest.skip("this kernel has no Landlock")
    if request.param == "confined thread":
        with ConfinedThreads(active=True).access(root, writes=True) as access:
            yield access
        return
    confinement = Confinement(Caps())
    yield confinement.files(SECONDS)
    confinement.close()


@contextmanager
def another_holds(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(descriptor)


def beneath(root: Root, paths: Sequence[str]) -> list[RootedPath]:
    return [(root, path) for path in paths]


def put(batch: LockedFiles, **texts: str) -> list[LcpError | None]:
    """Puts texts in place of files: `_0` is the first one."""
    puts = []
    for nth, text in texts.items():
        target = batch.found[int(nth[1:])]
        assert isinstance(target, LockedFile)
        puts.append(Put(target, text.encode(), temporary_name()))
    turned: list[int] = []
    errors = batch.put(puts, turned.append)
    assert turned[0] == 0
    return errors


def test_files_of_several_directories_are_written_together(
    files: FileAccess, root: Root, tmp_path: Path
) -> None:
    with files.lock(beneath(root, ["x/1", "y/1", "x/2"])) as batch:
        assert put(batch, _0="0\n", _1="1\n", _2="2\n") == [None, None, None]
        for name in ("x", "y"):
            with pytest.raises(BlockingIOError), another_holds(tmp_path / name):
                pass
    texts = [(tmp_path / name).read_text() for name in ("x/1", "y/1", "x/2")]
    assert texts == ["0\n", "1\n", "2\n"]
    with another_holds(tmp_path / "x"), another_holds(tmp_path / "y"):
        pass


def test_a_busy_directory_is_left_for_later(files: FileAccess, root: Root, tmp_path: Path) -> None:
    with another_holds(tmp_path / "y"), files.lock(beneath(root, ["x/1", "y/1", "x/2"])) as batch:
        assert [isinstance(held, LockedFile) for held in batch.found] == [True, False, True]
        assert batch.found[1] is None


def test_all_are_left_for_later_if_they_stay_busy(files: FileAccess, root: Root, tmp_path: Path) -> None:
    paths = beneath(root, ["x/1", "x/2", "y/1"])
    with another_holds(tmp_path / "x"), files.lock(paths, Wait.SHORTLY) as batch:
        assert [held is None for held in batch.found] == [True, True, False]
    with another_holds(tmp_path / "x"), files.lock(paths[:2], Wait.SHORTLY) as batch:
        assert batch.found == [None, None]
    with files.lock(paths, Wait.SHORTLY) as batch:
        assert put(batch, _0="0\n", _1="1\n", _2="2\n") == [None, None, None]


def test_a_file_is_not_replaced_too_late(files: FileAccess, root: Root, tmp_path: Path) -> None:
    (tmp_path / "x" / "old").write_text("old\n")
    with files.lock(beneath(root, ["x/old", "x/new"])) as batch:
        targets = [held for held in batch.found if isinstance(held, LockedFile)]
        names = [temporary_name() for _ in targets]
        late = [Put(target, b"new\n", name, 0) for target, name in zip(targets, names, strict=True)]
        assert [error and error.code for error in batch.put(late, lambda _: None)] == ["TIMEOUT", "TIMEOUT"]
        assert not any(target.replaced for target in targets)
        with pytest.raises(LcpError, match="not written in time"):
            targets[0].put(b"new\n", temporary_name(), until=0)
        assert [path.name for path in (tmp_path / "x").iterdir()] == ["old"]
        in_time = [put._replace(until=since_start() + 60 * SECOND) for put in late]
        assert batch.put(in_time, lambda _: None) == [None, None]
    assert [path.read_text() for path in sorted((tmp_path / "x").iterdir())] == ["new\n", "new\n"]


@pytest.mark.parametrize("other", ["x/a.txt", "x/A.TXT", "x/\uff41.txt"])
def test_what_may_be_the_same_file_is_left_for_later(files: FileAccess, root: Root, other: str) -> None:
    with files.lock(beneath(root, ["x/a.txt", other, "y/a.txt"])) as batch:
        assert [held is None for held in batch.found] == [False, True, False]


@pytest.mark.parametrize(
    "paths", [["new", "new/1", "new"], ["new/1", "new", "new/1"], ["new/1", "NEW", "new/1/2"]]
)
def test_what_is_above_or_beneath_a_path_before_it_is_left_for_later(
    files: FileAccess, root: Root, paths: list[str]
) -> None:
    with files.lock(beneath(root, paths)) as batch:
        assert [held is None for held in batch.found] == [False, True, True]


def test_a_file_does_not_overtake_itself(files: FileAccess, root: Root, tmp_path: Path) -> None:
    with another_holds(tmp_path / "y"), files.lock(beneath(root, ["x/1", "y/1", "Y/1", "y/1/2"])) as batch:
        assert batch.found[1:] == [None, None, None]


def test_as_many_files_as_there_may_be_take_few_descriptors(
    files: FileAccess, root: Root, tmp_path: Path
) -> None:
    with files.lock(beneath(root, ["x/1"])):
        with_one_directory = descriptors()
    paths = [f"d{n % (MOST_DIRECTORIES + 1)}/{n}" for n in range(100)]
    with files.lock(beneath(root, paths)) as batch:
        held = [path for path, one in zip(paths, batch.found, strict=True) if one is not None]
        assert descriptors() < with_one_directory + MOST_DIRECTORIES
    assert held == [path for path in paths if not path.startswith(f"d{MOST_DIRECTORIES}/")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


def test_a_refusal_is_found_at_the_index_of_its_path(files: FileAccess, root: Root) -> None:
    with files.lock(beneath(root, ["x", "y/1"])) as batch:
        refused, held = batch.found
        assert isinstance(refused, LcpError)
        assert refused.code is ErrorCode.NOT_A_FILE
        assert isinstance(held, LockedFile)


def test_what_was_refused_keeps_no_root_open(place: Path) -> None:
    (place / "file").touch()
    root = Root(place, kernel=False)
    descriptor, known = root.descriptor, weakref.ref(root)
    gc.disable()
    try:
        with suppress(LcpError):
            root.open_file("file/b")
        with HERE.lock(beneath(root, ["file/b", "taken"])) as batch:
            (place / "taken").mkdir()
            assert isinstance(batch.found[0], LcpError)
            assert isinstance(put(batch, _1="2")[0], LcpError)
        del root, batch
        assert known() is None
    finally:
        gc.enable()
        os.close(descriptor)


def test_a_directory_that_was_made_stays_where_a_file_was_put_into_it(
    files: FileAccess, root: Root, tmp_path: Path
) -> None:
    with files.lock(beneath(root, ["new/deep/1", "new/2", "gone/1"])) as batch:
        made = [held.made for held in batch.found if isinstance(held, LockedFile)]
        assert put(batch, _1="2\n") == [None]
    assert made == [("new", "new/deep"), ("new",), ("gone",)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "x", "y"]
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["2"]


def test_contents_of_any_size_are_seen_and_put(files: FileAccess, root: Root, tmp_path: Path) -> None:
    large = "x" * (3 * 1024 * 1024)
    for name, text in (("x/1", "small\n"), ("x/2", large), ("y/1", "")):
        (tmp_path / name).write_text(text)
    with files.lock(beneath(root, ["x/1", "x/2", "x/3", "y/1"])) as batch:
        seen = [held.read_within(1024 * 1024) for held in batch.found if isinstance(held, LockedFile)]
        texts = [one.data.decode() if isinstance(one, Current) else one for one in seen]
        assert texts == ["small\n", len(large), None, ""]
        assert put(batch, _0=large, _1="1\n", _2=large, _3="3\n") == [None] * 4
        again = [held.read_within(1) for held in batch.found if isinstance(held, LockedFile)]
        assert again == [len(large), 2, len(large), 2]


def test_a_file_that_cannot_be_put_leaves_the_others_alone(
    files: FileAccess, root: Root, tmp_path: Path
) -> None:
    with files.lock(beneath(root, ["x/1", "x/2", "y/1"])) as batch:
        (tmp_path / "x" / "2").mkdir()
        first, refused, last = put(batch, _0="1\n", _1="2\n", _2="3\n")
        assert (first, last) == (None, None)
        assert refused is not None
        assert refused.code is ErrorCode.NOT_A_FILE
        assert [held.replaced for held in batch.found if isinstance(held, LockedFile)] == [True, False, True]


def test_a_lock_without_waiting_takes_all_or_nothing(files: FileAccess, root: Root, tmp_path: Path) -> None:
    both = beneath(root, ["x/1", "y/1"])
    with another_holds(tmp_path / "y"), files.lock(both, Wait.NONE) as batch:
        assert batch.found == [None, None]
        with another_holds(tmp_path / "x"):
            pass
    with files.lock(both, Wait.NONE) as batch:
        assert [isinstance(held, LockedFile) for held in batch.found] == [True, True]


@pytest.mark.parametrize("wait", [Wait.ALL, Wait.NONE])
def test_only_a_lock_to_write_creates_directories(
    files: FileAccess, root: Root, tmp_path: Path, wait: Wait
) -> None:
    with files.lock(beneath(root, ["new/1"]), wait) as batch:
        (refused,) = batch.found
        assert isinstance(refused, LcpError)
        assert refused.code is ErrorCode.PATH_NOT_FOUND
    assert not (tmp_path / "new").exists()


def test_empty_directories_are_removed_and_others_stay(files: FileAccess, root: Root, tmp_path: Path) -> None:
    (tmp_path / "x" / "deep").mkdir()
    (tmp_path / "y" / "1").touch()
    files.remove_empty(root, ["x", "x/deep", "y", "gone"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["y"]


def test_what_is_prepared_beside_a_file_is_put_in_place_later(
    root: Root, files: FileAccess, tmp_path: Path
) -> None:
    (tmp_path / "x" / "a").write_text("old\n")
    (tmp_path / "x" / "a").chmod(0o640)
    old, new, other = (hashlib.sha256(text).hexdigest() for text in (b"old\n", b"new\n", b"other\n"))
    beside = {name: temporary_name() for name in "ab"}
    with files.lock(beneath(root, ["x/a", "x/b"])) as batch:
        for name, file in zip("ab", batch.found, strict=True):
            assert isinstance(file, LockedFile)
            assert not file.is_prepared(beside[name], new)
            assert file.prepare(b"new\n", beside[name])
    assert (tmp_path / "x" / "a").read_text() == "old\n"
    with files.lock(beneath(root, ["x/a", "x/b"])) as batch:
        changed, created = batch.found
        assert isinstance(changed, LockedFile)
        assert isinstance(created, LockedFile)
        assert changed.is_prepared(beside["a"], new)
        assert not changed.is_prepared(beside["a"], other)
        assert not changed.put_prepared(beside["a"], other, new), "the file is another one"
        assert not changed.put_prepared(beside["a"], old, other), "another content is prepared"
        assert changed.put_prepared(beside["a"], old, new)
        assert changed.replaced
        assert created.put_prepared(beside["b"], None, new)
        assert not created.put_prepared(beside["b"], None, new), "nothing is prepared any more"
    assert {path.name: path.read_text() for path in (tmp_path / "x").iterdir()} == {
        "a": "new\n",
        "b": "new\n",
    }
    assert stat.S_IMODE((tmp_path / "x" / "a").stat().st_mode) == 0o640
