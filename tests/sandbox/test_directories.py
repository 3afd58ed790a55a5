"""The directory of a new file is durable before the file counts as written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system import syscalls


class Died(BaseException):
    """Stands for SIGKILL."""


class Disk:
    """Which directories have all their names on the disk: notes each mkdir and rename, and the fsync that follows."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unsafe: set[str] = set()
        self.dies_before_sync = False
        self._mkdir, self._move, self._fsync = os.mkdir, syscalls.move, os.fsync
        patch.setattr(os, "mkdir", self.mkdir)
        patch.setattr(syscalls, "move", self.move)
        patch.setattr(os, "fsync", self.fsync)

    def mkdir(self, name: str, mode: int = 0o777, *, dir_fd: int) -> None:
        self._mkdir(name, mode, dir_fd=dir_fd)
        self.unsafe.add(path_of(dir_fd))

    def move(self, directory: int, name: str, new: str) -> None:
        self._move(directory, name, new)
        self.unsafe.add(path_of(directory))

    def fsync(self, descriptor: int) -> None:
        if self.dies_before_sync and path_of(descriptor) in self.unsafe:
            raise Died
        self._fsync(descriptor)
        self.unsafe.discard(path_of(descriptor))


def path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def die(name: str, *, dir_fd: int) -> None:
    raise Died


def write(root: Root, path: str) -> None:
    with lock([(root, path)]) as locked:
        target = only(locked)
        target.replace(b"data", temporary_name())


def test_every_new_directory_and_the_file_in_it_are_on_the_disk(root: Root, disk: Disk) -> None:
    write(root, "x/y/z/f")
    assert disk.unsafe == set()


@pytest.mark.parametrize("left", ["x", "x/y", "x/y/z"])
@pytest.mark.parametrize("path", ["x/y/z/f", "x/y/z/more/f"])
def test_a_directory_whose_maker_died_before_its_fsync_is_made_durable_by_the_next(
    root: Root, place: Path, disk: Disk, left: str, path: str
) -> None:
    if "/" in left:
        write(root, f"{left.rpartition('/')[0]}/f")
        (place / left).with_name("f").unlink()  # its parents are there, and on the disk
    disk.dies_before_sync = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *_, **__: pytest.fail("the dead take nothing back"))
        patch.setattr("lcp_engine.sandbox.directories.remove_made", lambda *_: None)
        patch.setattr("lcp_engine.sandbox.locks.remove_made", lambda *_: None)
        with pytest.raises(Died):
            write(root, f"{left}/f")
    disk.dies_before_sync = False
    assert disk.unsafe == {str((place / left).parent.resolve())}
    write(root, path)
    assert disk.unsafe == set()


def test_a_directory_that_another_one_makes_at_the_same_moment_is_made_durable_too(
    root: Root, place: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(name: str, mode: int = 0o777, *, dir_fd: int) -> None:
        disk.mkdir(name, mode, dir_fd=dir_fd)  # by somebody who dies then
        raise FileExistsError(name)

    monkeypatch.setattr(os, "mkdir", too_late)
    write(root, "x/y/f")
    assert disk.unsafe == set()
    assert (place / "x/y/f").read_bytes() == b"data"


def test_a_directory_that_holds_something_costs_no_further_fsync(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda one: synced.append(path_of(one)))
    with lock([(root, "src/new.py")]) as locked:
        target = only(locked)
        target.replace(b"data", temporary_name())
    assert synced[-1] == str(place / "src")
    assert len(synced) == 2
