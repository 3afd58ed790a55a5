"""A file is replaced as a whole or not at all, by one writer at a time."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import is_temporary, temporary_name
from lcp_engine.sandbox.directories import MAX_NEW_DIRECTORIES
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root


def write(root: Root, path: str, data: bytes) -> tuple[str, ...]:
    with lock([(root, path)]) as locked:
        target = only(locked)
        target.replace(data, temporary_name())
        return target.made


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def everything(place: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(place)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else b"")
        for path in place.rglob("*")
    }


def test_a_new_file_gets_its_parents_and_the_usual_mode(root: Root, place: Path) -> None:
    before = os.umask(0o027)
    try:
        assert write(root, "x/y/f.txt", b"data") == ("x", "x/y")
    finally:
        os.umask(before)
    assert (place / "x/y/f.txt").read_bytes() == b"data"
    assert stat.S_IMODE((place / "x/y/f.txt").stat().st_mode) == 0o640
    assert write(root, "x/y/g.txt", b"") == ()
    assert names(place / "x/y") == ["f.txt", "g.txt"]


@pytest.mark.parametrize("mode", [0o755, 0o444, 0o600, 0o4711])
def test_a_file_keeps_its_mode(root: Root, place: Path, mode: int) -> None:
    (place / "a.txt").chmod(mode)
    write(root, "a.txt", b"new")
    assert (place / "a.txt").read_bytes() == b"new"
    assert stat.S_IMODE((place / "a.txt").stat().st_mode) == mode


def test_what_is_there_is_read_under_the_lock(root: Root) -> None:
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        current = target.read(None)
        assert current is not None
        assert (current.data, len(current.sha256)) == (b"hello\n", 64)
        with pytest.raises(LcpError) as refused:
            target.read(5)
        assert refused.value.code is ErrorCode.TOO_LARGE
        target.remove(temporary_name())
        assert target.read(None) is None
        target.remove(temporary_name())


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("src", ErrorCode.NOT_A_FILE),
        ("", ErrorCode.NOT_A_FILE),
        (".", ErrorCode.NOT_A_FILE),
        ("new/..", ErrorCode.NOT_A_FILE),
        ("fifo", ErrorCode.NOT_A_FILE),
        ("socket", ErrorCode.NOT_A_FILE),
        ("link", ErrorCode.PATH_DENIED),
        ("out/f", ErrorCode.PATH_DENIED),
        ("out/new/f", ErrorCode.PATH_DENIED),
        ("a.txt/f", ErrorCode.PATH_NOT_FOUND),
        ("new/" + "n" * 256, ErrorCode.INVALID_PARAMS),
        ("new/a\0b", ErrorCode.INVALID_PARAMS),
        ("new/" + "n" * 256 + "/f", ErrorCode.INVALID_PARAMS),
        ("d/" * (MAX_NEW_DIRECTORIES + 1) + "f", ErrorCode.INVALID_PARAMS),
    ],
)
def test_a_refused_target_changes_nothing(root: Root, place: Path, path: str, code: ErrorCode) -> None:
    os.mkfifo(place / "fifo")
    (place / "link").symlink_to("a.txt")
    (place / "out").symlink_to("../outside")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(place / "socket"))
        before = everything(place.parent)
        with pytest.raises(LcpError) as refused:
            write(root, path, b"data")
    assert refused.value.code is code
    assert everything(place.parent) == before


def test_a_body_that_raises_takes_new_directories_back(root: Root, place: Path) -> None:
    def give_up() -> None:
        with lock([(root, "x/y/f")]) as locked:
            target = only(locked)
            assert target.made == ("x", "x/y")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        give_up()
    assert not (place / "x").exists()


def test_a_failed_replacement_leaves_the_file_and_no_other(root: Root, place: Path) -> None:
    temporary = temporary_name()
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        (place / temporary).mkdir()
        with pytest.raises(LcpError):
            target.replace(b"new", temporary)
        (place / temporary).rmdir()
    assert (place / "a.txt").read_bytes() == b"hello\n"
    assert names(place) == ["a.txt", "src"]


def test_a_stray_is_discarded_and_nothing_else(root: Root, place: Path) -> None:
    temporary = temporary_name()
    (place / temporary).touch()
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        target.mend(temporary, None, None)
        target.mend(temporary, None, None)
        with pytest.raises(ValueError, match="temporary_name"):
            target.mend("a.txt", None, None)
    assert names(place) == ["a.txt", "src"]


def test_temporary_names_are_known_and_never_the_same() -> None:
    found = {temporary_name() for _ in range(100)}
    assert len(found) == 100
    assert all(map(is_temporary, found))
    assert not is_temporary(".lcp-notes.tmp")


def test_a_hard_link_is_cut_and_not_written_through(root: Root, place: Path) -> None:
    os.link(place.parent / "outside" / "secret.txt", place / "h")
    write(root, "h", b"new")
    assert (place.parent / "outside" / "secret.txt").read_text() == "CANARY\n"


def test_a_directory_that_vanishes_while_its_lock_is_waited_for_is_made_again(
    root: Root, place: Path
) -> None:
    results: list[tuple[str, ...]] = []
    with lock([(root, "new/a")]) as locked:
        first = only(locked)
        waiter = threading.Thread(target=lambda: results.append(write(root, "new/b", b"data")))
        waiter.start()
        assert first.made == ("new",)
        (place / "new").rename(place / "gone")
    waiter.join()
    assert (place / "new" / "b").read_bytes() == b"data"


@pytest.mark.usefixtures("swapping")
def test_a_parent_that_turns_into_a_link_all_the_time_lets_nothing_out(root: Root, place: Path) -> None:
    outside, written, refused = everything(place.parent / "outside"), 0, 0
    for number in range(10_000):
        try:
            write(root, f"d/new{number}/deeper/f", b"data")
        except LcpError:
            refused += 1
        else:
            written += 1
        if min(written, refused) > 50:
            break
    assert everything(place.parent / "outside") == outside
    assert written
    assert refused


def append(root: Root, line: bytes) -> None:
    with lock([(root, "log/lines")]) as locked:
        target = only(locked)
        current = target.read(None)
        target.replace((current.data if current else b"") + line, temporary_name())


def test_no_line_is_lost_among_threads(root: Root, place: Path) -> None:
    def append_often() -> None:
        for _ in range(20):
            append(root, b"x\n")

    threads = [threading.Thread(target=append_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (place / "log" / "lines").read_bytes() == b"x\n" * 80


def test_no_line_is_lost_among_processes(place: Path) -> None:
    program = """
import sys
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root
with Root(sys.argv[1]) as root:
    for _ in range(25):
        with lock([(root, "log/lines")]) as locked:
            target = only(locked)
            current = target.read(None)
            target.replace((current.data if current else b"") + b"x\\n", temporary_name())
"""
    processes = [subprocess.Popen([sys.executable, "-c", program, place]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert (place / "log" / "lines").read_bytes() == b"x\n" * 75


def rename_over(file: Path) -> None:
    other = file.with_name("other")
    other.write_text("NEWER\n")
    other.rename(file)


def rewrite(file: Path) -> None:
    file.write_text("NEWER\n")  # as many bytes as were there


MEDDLING = [rename_over, rewrite, Path.unlink]


@pytest.mark.parametrize("meddle", MEDDLING)
@pytest.mark.parametrize("look", ["read", "digest"])
def test_what_others_wrote_since_it_was_read_is_not_replaced(
    root: Root, place: Path, look: str, meddle: Callable[[Path], None]
) -> None:
    (place / "a.txt").write_text("older\n")
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        assert target.read(None) if look == "read" else target.digest()
        meddle(place / "a.txt")
        before = everything(place)
        with pytest.raises(LcpError) as error:
            target.replace(b"new", temporary_name())
        assert error.value.code is ErrorCode.CONFLICT
    assert everything(place) == before


@pytest.mark.parametrize("meddle", MEDDLING[:2])
def test_what_others_wrote_since_it_was_read_is_not_removed(
    root: Root, place: Path, meddle: Callable[[Path], None]
) -> None:
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        assert target.digest()
        meddle(place / "a.txt")
        with pytest.raises(LcpError) as error:
            target.remove(temporary_name())
    assert error.value.code is ErrorCode.CONFLICT
    assert (place / "a.txt").read_text() == "NEWER\n"


def test_a_file_that_others_made_since_is_not_replaced(root: Root, place: Path) -> None:
    with lock([(root, "src/b.txt")]) as locked:
        target = only(locked)
        assert target.read(None) is None
        (place / "src/b.txt").write_text("NEWER\n")
        with pytest.raises(LcpError) as error:
            target.replace(b"new", temporary_name())
    assert error.value.code is ErrorCode.CONFLICT
    assert (place / "src/b.txt").read_text() == "NEWER\n"
    assert names(place / "src") == ["b.txt", "main.py", "sub"]


def test_a_file_with_the_same_content_is_replaced_whatever_its_times_are(root: Root, place: Path) -> None:
    with lock([(root, "a.txt")]) as locked:
        target = only(locked)
        assert target.read(None) is not None
        os.utime(place / "a.txt", (1, 1))
        target.replace(b"new", temporary_name())
        assert target.read(None) is not None
        target.replace(b"newer", temporary_name())
    assert (place / "a.txt").read_bytes() == b"newer"
