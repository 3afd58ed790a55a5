"""Mount overlays in namespaces of a child process, and run a part of a test as an ordinary user."""

from __future__ import annotations

import ctypes
import os
import pickle
import shutil
import signal
import stat
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeAlias, TypeVar

import pytest
from hypothesis import strategies as st

from lcp_engine.sandbox.directories import remove_tree

T = TypeVar("T")
Seen: TypeAlias = tuple[str, int, bytes]
"""Type, mode, and the content or target of what is at a path."""
NOBODY = 65534
SECONDS = 120
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_SET_DUMPABLE = 4
_DETACH = 2
_PRIVATE = 0x44000  # MS_REC | MS_PRIVATE

USERS = ["root", "nobody"] if os.getuid() == 0 else ["nobody"]
EACH_USER = [pytest.param(one, marks=[] if one == "nobody" else [pytest.mark.proof]) for one in USERS]


@dataclass(frozen=True)
class Place:
    """Directories of an overlay, all owned by the user who mounts it."""

    path: Path

    @property
    def root(self) -> Path:
        return self.path / "root"

    @property
    def mask(self) -> Path:
        return self.path / "mask"

    @property
    def layer(self) -> Path:
        return self.path / "layer"

    @property
    def up(self) -> Path:
        return self.path / "up"

    def lower(self) -> list[str]:
        return [str(self.root), str(self.mask), str(self.layer)]

    def run(
        self,
        program: Callable[[Path], T],
        *,
        lower: Sequence[str] = (),
        up: Path | None = None,
        work: Path | None = None,
    ) -> T:
        """The result of a program, which sees the overlay at the path that it is given."""

        def there() -> T:
            at = self.path / "seen"
            mount_overlay(at, lower or self.lower(), up or self.up, work or self.path / "work")
            return program(at)

        return in_child(there)


@contextmanager
def place() -> Iterator[Place]:
    """Fresh directories; only the calling user may use them."""
    path = Path(tempfile.mkdtemp(prefix="overlay-", dir=_open_to_all()))
    try:
        for name in ("root", "mask", "layer", "up", "work", "seen"):
            (path / name).mkdir(mode=0o755)
        yield Place(path)
    finally:
        remove_tree(path)


def _open_to_all() -> str | None:
    """A directory in which an ordinary user can make directories."""
    found = os.environ.get("TMPDIR")
    return found if found and os.stat(found).st_mode & 0o002 else "/tmp"


def as_user(user: str, part: Callable[[], T]) -> T:
    """The result of a part of a test, which runs in a child process as this user."""
    if user == "root" or os.getuid() != 0:
        return part()

    def there() -> T:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # else /proc/self is root's
        return part()

    return in_child(there)


def in_child(part: Callable[[], T]) -> T:
    """The result of a part of a test in a child process, which lives for `SECONDS` at most."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _answer(part, reading, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        raw = file.read()
    os.waitpid(child, 0)
    assert raw, "the child process died"
    is_result, value = pickle.loads(raw)
    if is_result:
        found: T = value
        return found
    text, skipped = value
    if skipped:
        pytest.skip(text)
    raise AssertionError(text)


def _answer(part: Callable[[], object], reading: int, writing: int) -> NoReturn:
    """Write the result of a part of a test, or what it raised, and end this process whatever happens."""
    try:
        signal.alarm(SECONDS)
        os.close(reading)
        try:
            answer: tuple[bool, object] = (True, part())
        except BaseException as error:  # noqa: BLE001 -- the parent raises it
            skipped = isinstance(error, pytest.skip.Exception)
            answer = (False, (str(error) if skipped else traceback.format_exc(), skipped))
        with os.fdopen(writing, "wb") as file:
            pickle.dump(answer, file)
    finally:
        os._exit(0)


def enter_namespaces() -> None:
    """Become root of a user namespace with mounts of its own; skips the test where that is refused."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_USER | _NEW_MOUNTS) != 0:
        pytest.skip(f"no namespaces: {os.strerror(ctypes.get_errno())}")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    mount("none", "/", None, _PRIVATE, None)


def enter_mounts() -> None:
    """Give root mounts of its own, with the users of this machine. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    mount("none", "/", None, _PRIVATE, None)


def mount(source: str, at: str, kind: str | None, flags: int, options: str | None) -> None:
    """mount(2). Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    given = [None if one is None else os.fsencode(one) for one in (source, at, kind, options)]
    if libc.mount(given[0], given[1], given[2], ctypes.c_ulong(flags), given[3]) != 0:
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason), at)


@contextmanager
def small_file_system(at: Path, options: str) -> Iterator[None]:
    """A file system in memory, within the namespaces of this process."""
    mount("tmpfs", str(at), "tmpfs", 0, options)
    try:
        yield
    finally:
        ctypes.CDLL(None).umount2(os.fsencode(at), _DETACH)


def mount_overlay(at: Path, lower: Sequence[str], up: Path, work: Path) -> None:
    """Mount an overlay in new namespaces; skips the test where that is refused."""
    enter_namespaces()
    options = f"userxattr,lowerdir={':'.join(reversed(lower))},upperdir={up},workdir={work}"
    try:
        mount("overlay", str(at), "overlay", 0, options)
    except OSError as error:
        pytest.skip(f"no overlay: {error.strerror}")


def seen_by_owner(directory: Path) -> dict[str, Seen]:
    """Like `snapshot`, whatever the modes are; in a child process."""
    enter_namespaces()
    return snapshot(directory)


def snapshot(directory: Path) -> dict[str, Seen]:
    """All beneath a directory, by path; bytes that are no UTF-8 are shown as `\\xff`."""
    found: dict[str, Seen] = {}
    for above, directories, files in os.walk(directory):
        for name in (*directories, *files):
            path = os.path.join(above, name)
            status = os.lstat(path)
            content = b""
            kind = "special"
            if stat.S_ISLNK(status.st_mode):
                kind, content = "link", os.fsencode(os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                kind = "directory"
            elif stat.S_ISREG(status.st_mode):
                kind, content = "file", Path(path).read_bytes()
            shown = os.fsencode(os.path.relpath(path, directory)).decode(errors="backslashreplace")
            found[shown] = (kind, stat.S_IMODE(status.st_mode), content)
    return found


Step: TypeAlias = tuple[str, str, object]
"""An operation of a program, its path, and what else it takes."""
NAMES = st.sampled_from(["a", "b", "new\nline", "\udcff"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from(["write", "append"]), PATHS, st.sampled_from([b"", b"x", b"y" * 5000])),
    st.tuples(st.sampled_from(["mkdir", "unlink", "rmtree", "fifo", "rewrite", "remake"]), PATHS, st.none()),
    st.tuples(st.sampled_from(["rename", "link", "symlink", "copy"]), PATHS, PATHS),
    st.tuples(st.just("chmod"), PATHS, st.sampled_from([0o000, 0o444, 0o500, 0o644, 0o755, 0o2755])),
)


def take_all(at: Path, steps: Sequence[Step]) -> None:
    """Carry out the steps of a program; what is refused is left out."""
    for step in steps:
        _take(at, step)


def _take(at: Path, step: Step) -> None:
    kind, name, other = step
    path = at / name
    try:
        match other:
            case bytes(content):
                if not path.is_fifo():
                    with path.open("ab" if kind == "append" else "wb") as file:
                        file.write(content)
            case str(to):
                _TO[kind](path, at / to)
            case int(mode):
                if not path.is_symlink():
                    path.chmod(mode)
            case _:
                _ALONE[kind](path)
    except (OSError, ValueError):
        pass


def _remove_tree(path: Path) -> None:
    if path.is_dir():  # of a FIFO, rmtree would wait for a writer
        shutil.rmtree(path)


def _remake(path: Path) -> None:
    _remove_tree(path)
    path.mkdir()


def _rewrite(path: Path) -> None:
    if path.is_file():
        path.write_bytes(path.read_bytes())


def _copy(path: Path, to: Path) -> None:
    if path.is_file() and not to.is_fifo():
        shutil.copyfile(path, to)


_ALONE: dict[str, Callable[[Path], object]] = {
    "mkdir": lambda path: path.mkdir(parents=True),
    "unlink": Path.unlink,
    "rmtree": _remove_tree,
    "fifo": os.mkfifo,
    "rewrite": _rewrite,
    "remake": _remake,
}
_TO: dict[str, Callable[[Path, Path], object]] = {
    "rename": lambda path, to: path.rename(to),
    "link": lambda path, to: os.link(path, to, follow_symlinks=False),
    "symlink": lambda path, to: path.symlink_to(to),
    "copy": _copy,
}
