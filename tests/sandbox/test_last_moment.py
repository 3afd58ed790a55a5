"""What other programs write between the last look and the rename is kept, and after a death there too (R20)."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from lcp_engine.errors import Code, ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import temporary_name
from lcp_engine.sandbox.locks import lock, only
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system import syscalls

HELLO, NEW = b"hello\n", b"new\n"
TEMPORARY = temporary_name()


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


def rename_over(file: Path, text: str = "NEWER\n") -> None:
    other = file.with_name("other")
    other.write_text(text)
    other.rename(file)


def rewrite(file: Path) -> None:
    file.write_text("HELLO\n")  # as many bytes as were there


def make_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def make_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("src/main.py")


def make_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def just_before(
    monkeypatch: pytest.MonkeyPatch, call: str, file: Path, *meddling: Callable[[Path], None]
) -> None:
    """Meddle with the file just before the first call, the second one, and so on."""
    original, left = getattr(syscalls, call), [*meddling]

    def meddled(*given: object) -> object:
        if left:
            left.pop(0)(file)
        return original(*given)

    monkeypatch.setattr(syscalls, call, meddled)


def replaces(root: Root, path: str = "a.txt", *, removes: bool = False) -> Code | None:
    with lock([(root, path)]) as locked:
        file = only(locked)
        file.digest()
        try:
            file.remove(TEMPORARY) if removes else file.replace(NEW, TEMPORARY)
        except LcpError as error:
            assert not file.replaced
            return error.code
    return None


def state(file: Path) -> tuple[int, bytes | str]:
    status = file.lstat()
    content = file.read_bytes() if file.is_file() else b""
    return status.st_mode, str(file.readlink()) if file.is_symlink() else content


@pytest.mark.parametrize("meddle", [rename_over, rewrite, make_directory, make_link, make_fifo])
@pytest.mark.parametrize("removes", [False, True])
def test_what_is_written_at_the_last_moment_keeps_its_name(
    root: Root,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    meddle: Callable[[Path], None],
    removes: bool,
) -> None:
    found: list[tuple[int, bytes | str]] = []

    def noted(file: Path) -> None:
        meddle(file)
        found.append(state(file))

    just_before(monkeypatch, "move" if removes else "exchange", place / "a.txt", noted)
    assert replaces(root, removes=removes) is ErrorCode.CONFLICT
    assert [state(place / "a.txt")] == found
    assert names(place) == ["a.txt", "src"]


def test_a_file_that_is_removed_at_the_last_moment_stays_removed(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_before(monkeypatch, "exchange", place / "a.txt", Path.unlink)
    assert replaces(root) is ErrorCode.CONFLICT
    assert names(place) == ["src"]


def test_a_file_that_is_created_at_the_last_moment_is_kept(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_before(monkeypatch, "move", place / "b.txt", rename_over)
    assert replaces(root, "b.txt") is ErrorCode.CONFLICT
    assert (place / "b.txt").read_text() == "NEWER\n"
    assert names(place) == ["a.txt", "b.txt", "src"]


def test_the_newest_content_gets_the_name_and_the_one_before_it_is_kept(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    just_before(
        monkeypatch, "exchange", place / "a.txt", rename_over, lambda file: rename_over(file, "NEWEST\n")
    )
    assert replaces(root) is ErrorCode.CONFLICT
    assert (place / "a.txt").read_text() == "NEWEST\n"
    assert (place / TEMPORARY).read_text() == "NEWER\n"


def test_what_somebody_appends_to_the_new_content_is_kept(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(file: Path) -> None:
        with file.open("a") as opened:
            opened.write("more\n")

    just_before(monkeypatch, "exchange", place / "a.txt", rename_over, append)
    assert replaces(root) is ErrorCode.CONFLICT
    assert (place / "a.txt").read_text() == "new\nmore\n"
    assert (place / TEMPORARY).read_text() == "NEWER\n"


def test_the_same_content_is_no_conflict(root: Root, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    just_before(monkeypatch, "exchange", place / "a.txt", lambda file: rename_over(file, HELLO.decode()))
    assert replaces(root) is None
    assert (place / "a.txt").read_bytes() == NEW
    assert names(place) == ["a.txt", "src"]


def test_a_file_system_that_cannot_exchange_is_written_too(
    root: Root, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "_rename", lambda *given: False)
    assert replaces(root) is None
    assert (place / "a.txt").read_bytes() == NEW
    assert replaces(root, "b.txt") is None
    assert replaces(root, removes=True) is None
    assert names(place) == ["b.txt", "src"]
    just_before(monkeypatch, "move", place / "a.txt", rename_over)
    assert replaces(root) is ErrorCode.CONFLICT
    assert (place / "a.txt").read_text() == "NEWER\n"


STATES: dict[str, tuple[str, str, int, str, str | None]] = {
    # the file, the temporary one and its mode; what has to be there afterwards
    "not yet written in full": ("hello\n", "ne", 0o200, "hello\n", None),
    "not yet in full, and changed": ("NEWER\n", "ne", 0o200, "NEWER\n", None),
    "written": ("hello\n", "new\n", 0o644, "hello\n", None),
    "exchanged": ("new\n", "hello\n", 0o644, "new\n", None),
    "exchanged for something newer": ("new\n", "NEWER\n", 0o644, "NEWER\n", None),
    "put back": ("NEWER\n", "new\n", 0o644, "NEWER\n", None),
    "exchanged for something newer, and changed again": ("NEWEST\n", "NEWER\n", 0o644, "NEWEST\n", "NEWER\n"),
}


@pytest.mark.parametrize("what", STATES)
def test_an_interrupted_write_is_mended_from_every_state(root: Root, place: Path, what: str) -> None:
    content, left, mode, wanted, kept = STATES[what]
    (place / "a.txt").write_text(content)
    (place / TEMPORARY).write_text(left)
    (place / TEMPORARY).chmod(mode)
    mend(root, HELLO, NEW)
    assert (place / "a.txt").read_text() == wanted
    assert names(place) == [*([TEMPORARY] if kept else []), "a.txt", "src"]
    assert kept is None or (place / TEMPORARY).read_text() == kept


@pytest.mark.parametrize(
    ("left", "content", "wanted"),
    [
        ("hello\n", None, []),
        ("NEWER\n", None, ["NEWER\n"]),
        ("NEWER\n", "NEWEST\n", ["NEWER\n", "NEWEST\n"]),
    ],
)
def test_an_interrupted_removal_is_mended_from_every_state(
    root: Root, place: Path, left: str, content: str | None, wanted: list[str]
) -> None:
    (place / "a.txt").rename(place / TEMPORARY)
    (place / TEMPORARY).write_text(left)
    if content is not None:
        (place / "a.txt").write_text(content)
    mend(root, HELLO, None)
    assert sorted(file.read_text() for file in place.iterdir() if file.is_file()) == wanted


def mend(root: Root, before: bytes, after: bytes | None) -> None:
    with lock([(root, "a.txt")]) as locked:
        file = only(locked)
        for _ in range(2):
            file.mend(
                TEMPORARY, sha256(before).hexdigest(), None if after is None else sha256(after).hexdigest()
            )
