"""Nothing outside the root is opened; each test runs with both ways to resolve a path."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine import run_job
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import RESOLVE_BENEATH, has_openat2, opener


def read(root: Root, path: str) -> bytes:
    opened = root.open_file(path)
    try:
        return os.read(opened.descriptor, opened.size + 1)
    finally:
        os.close(opened.descriptor)


def test_a_file_beneath_the_root_is_read(root: Root) -> None:
    assert read(root, "a.txt") == b"hello\n"
    assert read(root, "src/main.py") == b"print(1)\n"


@pytest.mark.parametrize(
    ("link", "target", "path", "codes"),
    [
        ("l", "../outside/secret.txt", "l", {"PATH_OUTSIDE_ROOT", "PATH_DENIED"}),
        ("l", "{outside}/secret.txt", "l", {"PATH_OUTSIDE_ROOT", "PATH_DENIED"}),
        ("l", "../outside", "l/secret.txt", {"PATH_OUTSIDE_ROOT", "PATH_DENIED"}),
        ("src/l", "../../outside", "src/l/secret.txt", {"PATH_OUTSIDE_ROOT", "PATH_DENIED"}),
        ("l", "/proc/self/root", "l/etc/passwd", {"PATH_OUTSIDE_ROOT", "PATH_DENIED"}),
        ("l", "nope", "l", {"PATH_NOT_FOUND", "PATH_DENIED"}),
        ("l", "l", "l", {"PATH_DENIED"}),
        ("l", "a.txt", "l/x", {"PATH_NOT_FOUND", "PATH_DENIED"}),
    ],
)
def test_a_link_leads_nowhere_else(  # noqa: PLR0917 - a table has as many columns as it has
    root: Root, place: Path, link: str, target: str, path: str, codes: set[str]
) -> None:
    (place / link).symlink_to(target.format(outside=place.parent / "outside"))
    with pytest.raises(LcpError) as refused:
        root.open_file(path)
    assert refused.value.code in codes


def test_a_link_within_the_root_tells_where_it_led_or_is_refused(root: Root, place: Path) -> None:
    (place / "l").symlink_to("src/main.py")
    if not root.kernel:
        with pytest.raises(LcpError, match="symbolic link"):
            root.open_file("l")
        return
    opened = root.open_file("l")
    os.close(opened.descriptor)
    assert opened.path == "src/main.py"


@pytest.mark.parametrize(
    "path", ["..", "../outside/secret.txt", "src/../../outside/secret.txt", "/etc/passwd"]
)
def test_no_path_climbs_out_of_the_root(root: Root, path: str) -> None:
    with pytest.raises(LcpError) as refused:
        root.open_file(path)
    assert refused.value.code in (ErrorCode.PATH_OUTSIDE_ROOT, ErrorCode.PATH_NOT_FOUND)


REWRITES = """
import os, signal, sys
os.chdir(sys.argv[1])
signal.alarm(120)
while True:
    os.close(os.open("fresh", os.O_CREAT | os.O_WRONLY))
    os.rename("fresh", "secret")
"""


@pytest.mark.skipif(not has_openat2(), reason="this kernel has no openat2")
def test_a_file_that_is_replaced_all_the_time_is_never_known_by_another_name(place: Path) -> None:
    """Policy judges the path that a link led to: "secret (deleted)" is not a name that a rule knows."""
    (place / "secret").write_text("0")
    (place / "link").symlink_to("secret")
    names = set()
    rewriter = subprocess.Popen([sys.executable, "-I", "-S", "-c", REWRITES, str(place)])
    try:
        with Root(place, kernel=True) as root:
            for _ in range(5_000):
                try:
                    opened = root.open_file("link")
                except LcpError as refused:
                    names.add(str(refused.code))
                else:
                    os.close(opened.descriptor)
                    names.add(opened.path)
        assert rewriter.poll() is None
    finally:
        rewriter.kill()
        rewriter.wait()
    assert "secret" in names
    assert names <= {"secret", ErrorCode.FILE_SYSTEM, ErrorCode.PATH_NOT_FOUND}


def test_only_regular_files_are_opened_and_nothing_blocks(root: Root, place: Path) -> None:
    os.mkfifo(place / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(place / "socket"))
        for path in ("fifo", "socket", "src", "."):
            with pytest.raises(LcpError) as refused:
                root.open_file(path)
            assert refused.value.code is ErrorCode.NOT_A_FILE


def test_a_file_of_an_open_directory_is_opened_like_any_other_but_through_no_link(
    root: Root, place: Path
) -> None:
    os.mkfifo(place / "src" / "fifo")
    (place / "src" / "link").symlink_to("../a.txt")
    (place / "src" / "b.txt").write_text("b")
    directory = root.open_directory("src")
    try:
        opened = root.open_file_in(directory, "src/b.txt")
        assert (os.read(opened.descriptor, 9), opened.size, opened.path) == (b"b", 1, "src/b.txt")
        os.close(opened.descriptor)
        with pytest.raises(LcpError) as refused:
            root.open_file_in(directory, "src/fifo")
        assert refused.value.code is ErrorCode.NOT_A_FILE
        for name, number in (("link", errno.ELOOP), ("nope", errno.ENOENT)):
            with pytest.raises(OSError, match=name) as failed:
                root.open_file_in(directory, f"src/{name}")
            assert failed.value.errno == number
    finally:
        os.close(directory)


@pytest.mark.parametrize("path", ["nope", "nope/a", "a.txt/x", "src/nope"])
def test_what_is_not_there_is_not_found(root: Root, path: str) -> None:
    with pytest.raises(LcpError) as refused:
        root.open_file(path)
    assert refused.value.code is ErrorCode.PATH_NOT_FOUND


def test_a_name_with_a_nul_is_no_shorter_name(root: Root) -> None:
    with pytest.raises(ValueError, match="null"):
        root.open_file("a.txt\0.png")


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_root_has_to_be_a_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LcpError) as refused:
        Root(tmp_path / name)
    assert refused.value.code is ErrorCode.PATH_NOT_FOUND
    assert name in str(refused.value)


def test_a_root_is_known_by_the_name_given_and_the_real_one(place: Path) -> None:
    (place.parent / "alias").symlink_to(place)
    with Root(place.parent / "alias") as root:
        assert root.path == str(place.resolve())
        assert str(place.parent / "alias") in root.spellings


@pytest.mark.usefixtures("swapping")
def test_a_directory_that_turns_into_a_link_all_the_time_lets_nothing_out(root: Root) -> None:
    seen = refused = 0
    for _ in range(100_000):
        try:
            assert read(root, "d/secret.txt") == b"in\n"
        except LcpError:
            refused += 1
        else:
            seen += 1
        if min(seen, refused) > 200:
            break
    assert seen
    assert refused


@pytest.mark.skipif(not has_openat2(), reason="this kernel has no openat2")
def test_the_system_call_reports_errors_as_os_open_does(place: Path) -> None:
    with Root(place) as root, pytest.raises(FileNotFoundError) as missing:
        opener(root.descriptor, os.O_RDONLY, RESOLVE_BENEATH)("nope")
    assert missing.value.filename == "nope"


NFC, NFD = "caf\u00e9", "cafe\u0301"


@table(
    ("kind", "params", "code"),
    [
        ("read_file", {"rel_path": f"{NFC}.txt"}, "PATH_NOT_FOUND"),
        ("read_file", {"rel_path": f"{NFC}/a.txt"}, "PATH_NOT_FOUND"),
        ("write_file", {"rel_path": f"{NFC}.txt", "content": "x"}, "PATH_EXISTS"),
        ("write_file", {"rel_path": f"{NFC}/new/b.txt", "content": "x"}, "PATH_EXISTS"),
        ("rewrite_file", {"rel_path": f"{NFC}.txt", "content": "x"}, "PATH_EXISTS"),
        ("edit_file", {"rel_path": f"{NFC}.txt", "old_text": "a", "new_text": "b"}, "PATH_EXISTS"),
        ("delete_file", {"rel_path": f"{NFC}.txt"}, "PATH_EXISTS"),
        ("move_file", {"rel_path": "plain.txt", "new_path": f"{NFC}.txt"}, "PATH_EXISTS"),
        ("move_file", {"rel_path": f"{NFC}.txt", "new_path": "moved.txt"}, "PATH_EXISTS"),
        ("make_directory", {"rel_path": NFC}, "PATH_EXISTS"),
        ("make_directory", {"rel_path": f"{NFC}/sub"}, "PATH_EXISTS"),
    ],
)
def test_a_name_in_another_unicode_form_is_refused_and_the_one_that_is_there_named(
    tmp_path: Path, kind: str, params: dict[str, JsonValue], code: str
) -> None:
    (tmp_path / f"{NFD}.txt").write_text("a\n")
    (tmp_path / NFD).mkdir(exist_ok=True)
    (tmp_path / NFD / "a.txt").write_text("a\n")
    (tmp_path / "plain.txt").write_text("a\n")
    before = sorted(tmp_path.rglob("*"))
    done = run_job(kind, params, root=tmp_path)
    assert done.error is not None
    assert done.error.error_code == code
    assert r'"cafe\u0301' in done.error.user_message
    assert "looks the same in another Unicode form" in done.error.user_message
    assert sorted(tmp_path.rglob("*")) == before


def test_both_forms_of_a_name_are_used_where_both_are_there(tmp_path: Path) -> None:
    for name in (NFC, NFD):
        (tmp_path / f"{name}.txt").write_text(name)
    for name in (NFC, NFD):
        assert (run_job("read_file", {"rel_path": f"{name}.txt"}, root=tmp_path).result or {})[
            "content"
        ] == name
        assert run_job("write_file", {"rel_path": f"{name}.txt", "content": "x"}, root=tmp_path).ok
    assert run_job("write_file", {"rel_path": "na\u00efve/\u00fc.txt", "content": "x"}, root=tmp_path).ok
