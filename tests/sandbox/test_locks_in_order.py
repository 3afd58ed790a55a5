"""Callers that wait for several locks take them in the same order."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import LockedFile
from lcp_engine.sandbox.directories import remove_empty
from lcp_engine.sandbox.locks import Wait, lock
from lcp_engine.sandbox.root import Root


def is_locked(directory: Path) -> bool:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(descriptor)


def test_all_directories_are_locked_until_the_end(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    with Root(tmp_path) as root:
        with lock([(root, "x/1"), (root, "y/1"), (root, "x/2")], Wait.ALL) as locked:
            assert [place.path for place in locked.found if isinstance(place, LockedFile)] == [
                "x/1",
                "y/1",
                "x/2",
            ]
            assert [is_locked(tmp_path / name) for name in ("x", "y")] == [True, True]
        assert [is_locked(tmp_path / name) for name in ("x", "y")] == [False, False]


def test_roots_that_overlap_do_not_wait_for_themselves(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with (
        Root(tmp_path) as outer,
        Root(tmp_path / "x") as inner,
        lock([(outer, "x/1"), (inner, "1")], Wait.ALL) as locked,
    ):
        assert all(isinstance(place, LockedFile) for place in locked.found)


def test_a_missing_directory_is_reported_and_not_created(tmp_path: Path) -> None:
    with Root(tmp_path) as root, lock([(root, "gone/1")], Wait.ALL) as locked:
        (found,) = locked.found
        assert isinstance(found, LcpError)
        assert found.code is ErrorCode.PATH_NOT_FOUND
    assert not (tmp_path / "gone").exists()


@pytest.mark.parametrize("kernel", [True, False])
def test_no_link_is_passed(tmp_path: Path, kernel: bool) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to("../outside")
    with Root(tmp_path / "root", kernel=kernel) as root, lock([(root, "link/1")], Wait.ALL) as locked:
        (found,) = locked.found
        assert isinstance(found, LcpError)
        assert found.code in (ErrorCode.PATH_DENIED, ErrorCode.PATH_OUTSIDE_ROOT)


def test_two_that_name_them_the_other_way_round_do_not_wait_for_each_other(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
    passed = [0, 0]

    def hold(which: int, names: tuple[str, str]) -> None:
        with Root(tmp_path) as root:
            for _ in range(200):
                with lock([(root, f"{name}/1") for name in names], Wait.ALL):
                    passed[which] += 1

    threads = [
        threading.Thread(target=hold, args=(n, names), daemon=True)
        for n, names in enumerate((("x", "y"), ("y", "x")))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert passed == [200, 200]


def test_only_directories_that_are_empty_are_taken_away(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "mine").touch()
    (tmp_path / "link").symlink_to("a")
    with Root(tmp_path) as root:
        remove_empty(root, ["a", "a/b", "a/b/c", "gone", "link", "a/mine"])
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "link", "mine"]
