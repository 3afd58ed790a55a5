"""Copy a root for a program, so that the root itself stays as it is, and tell what the program has changed."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path, PurePosixPath

from lcp_engine.core.paths.patterns import compile_patterns
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.installed_packages import packages_of
from lcp_engine.features.programs.wall.views.masks import Rights, hidden_in
from lcp_engine.features.programs.wall.views.shown_directories import SHARED
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.reading.list_tree import Filters, list_files
from lcp_engine.sandbox.root import Root

MOST_FILES = 20_000
MOST_BYTES = 512 * 1024 * 1024
MOST_CHANGES = 10_000
_PREFIX = "lcp-run-"
_CHUNK = 1024 * 1024
_Stamp = tuple[int, int, int, int]
"""Mode, size, time of the last change (of the content or the mode; no program can set it), inode."""
_DIRECTORY: _Stamp = (stat.S_IFDIR, 0, 0, 0)
_CLOSED: _Stamp = (stat.S_IFDIR, 0, 0, 1)
"""A directory that cannot be listed any more."""
_EVERYTHING = compile_patterns([])


@dataclass(frozen=True)
class WorkingCopy:
    """A copy of a root in `files`, with a `home` for what a program writes besides."""

    files: Path
    home: Path
    shared: tuple[str, ...]
    """What may be read and executed outside: the packages that the copy leads to."""
    listed: tuple[str, ...]
    """Directories around parts of them, which may only be listed."""
    masked: tuple[str, ...]
    """Files of the root that are left out since they may not be read."""
    _stamps: dict[str, _Stamp]
    _seen: set[str] = field(default_factory=set)
    """Paths at which parts of packages are seen."""

    def make_room_for(self, name: str, seen: Iterable[str]) -> Path:
        """Put an empty directory in the place of the link to packages, in which parts of them are `seen`: no change."""
        link = self.files / name
        link.unlink()
        link.mkdir()
        del self._stamps[name]
        self._seen.update(seen)
        return link

    def changed(self) -> tuple[list[str], int]:
        """The files that were created, changed or deleted in the copy since it was made, sorted, and how many more."""
        found, more = self._differences()
        return [path for path in found if not path.endswith("/")], more

    def lost(self, root: Root) -> list[str]:
        """Changes of the copy by a program that its root does not have, sorted.

        New directories end in "/", and are left out where something in them is named.
        """
        found, _ = self._differences()
        return [
            path
            for path, after in pairwise((*found, ""))
            if not (
                after.startswith(path) or _has_directory(root, path)
                if path.endswith("/")
                else self._is_rewritten(root, path, found[path])
            )
        ]

    def _differences(self) -> tuple[dict[str, _Stamp | None], int]:
        """Present stamps of what was created, changed or deleted (None), by path, sorted; no deleted directories.

        Files beyond `MOST_CHANGES` are counted only.
        """
        found: dict[str, _Stamp | None] = {}
        left, more = dict(self._stamps), 0
        for path, stamp in _stamps_beneath(self.files):
            if left.pop(path, None) == stamp or path in self._seen:
                continue
            if len(found) < MOST_CHANGES:
                found[path] = stamp
            else:
                more += not path.endswith("/")
        found.update((path, None) for path in left if not path.endswith("/"))
        return dict(sorted(found.items())), more

    def _is_rewritten(self, root: Root, path: str, now: _Stamp | None) -> bool:
        """True for a file that was written again as it is in the root."""
        before = self._stamps.get(path)
        if before is None or now is None or before[:2] != now[:2] or not stat.S_ISREG(now[0]):
            return False
        with suppress(LcpError, OSError):
            opened = root.open_file(path)
            with os.fdopen(opened.descriptor, "rb") as there, (self.files / path).open("rb") as here:
                while piece := here.read(_CHUNK):
                    if piece != there.read(_CHUNK):
                        return False
                return not there.read(1)
        return False

    def told(self, text: str) -> str:
        """`text` with paths of the copy as they are called in the root."""
        return text.replace(f"{self.files}/", "").replace(str(self.files), ".")


@contextmanager
def working_copy(
    root: Root, may_read: Callable[[str], bool], owner: tuple[int, int] | None = None
) -> Iterator[WorkingCopy]:
    """A copy of the files of a root that may be read, without links but those to packages; it is removed at the end.

    What belongs to git and to the engine is left out, and other names of files that may not be read. It belongs to
    `owner`, by default to the user of this process. Raises `TOO_LARGE`, and `FILE_SYSTEM` if there is no room.
    """
    with scratch_directory() as place:
        yield _made(root, place, may_read, owner)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """An empty directory for a program, removed at the end; what processes that were killed left is removed first."""
    _sweep()
    place, lock = _locked_directory()
    try:
        yield place
    finally:
        os.close(lock)
        remove_tree(place)


def _locked_directory() -> tuple[Path, int]:
    """A new directory, and the descriptor that locks it: another process may sweep it away before it is locked."""
    while True:
        place = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with suppress(FileNotFoundError):
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return place, lock
            os.close(lock)


def _made(
    root: Root, place: Path, may_read: Callable[[str], bool], owner: tuple[int, int] | None
) -> WorkingCopy:
    files, home = place / "root", place / "home"
    for directory in (files, home):
        directory.mkdir(mode=0o700)
    masked, rights = list[str](), Rights(may_read, "")

    def is_hidden(path: str) -> bool:
        if rights.may_see(path):
            return False
        masked.append(path)
        return True

    filters = Filters(is_closed=lambda path: path.rstrip("/") in SHARED, is_hidden=is_hidden, keeps_odd=True)
    listing = list_files(root, "", _EVERYTHING, limit=MOST_FILES, sizes=True, filters=filters)
    _check_size(listing.total, sum(listing.sizes or ()))
    hidden = _Hidden(root, may_read)
    for path in listing.files:
        _copy(root, path, files / path, hidden)
    packages = [*packages_of(root, may_read, hidden.has)]
    for one in packages:
        with suppress(FileExistsError):  # it was a file when the root was listed
            (files / one.name).symlink_to(one.place)
    _keep_times_of_directories(root, files, listing.files)
    if owner is not None:
        for made in (files, home, *files.rglob("*")):
            os.chown(made, *owner, follow_symlinks=False)
    shared = tuple(place for one in packages for place in one.readable)
    listed = tuple(place for one in packages for place in one.listed)
    return WorkingCopy(files, home, shared, listed, tuple(masked), dict(_stamps_beneath(files)))


def _check_size(files: int, size: int) -> None:
    """Raises `TOO_LARGE`. The size counts only if all the files could be listed."""
    if files > MOST_FILES:
        fact, most = f"{files:,} files", f"{MOST_FILES:,}"
    elif size > MOST_BYTES:
        fact, most = f"{size:,} bytes", f"{MOST_BYTES:,}"
    else:
        return
    message = f"the root has {fact}; a command gets a copy of at most {most}"
    raise LcpError(ErrorCode.TOO_LARGE, message, advice="Use a smaller directory as the root.")


@dataclass(frozen=True)
class _Hidden:
    """Files that may not be read, under all of their names; found if a file with several names is copied or shared."""

    root: Root
    may_read: Callable[[str], bool]

    @cached_property
    def paths(self) -> frozenset[str]:
        rights = Rights(self.may_read, "")
        found = hidden_in(self.root, rights)
        if self.root.copy_of is None:
            return found
        with self.root.open_copied() as copied:
            return found | hidden_in(copied, rights)

    def has(self, path: str, names: int) -> bool:
        """True for such a file at a path; `names` is how many it has, which tells nothing of a file in a stage."""
        return (names > 1 or self.root.copy_of is not None) and path in self.paths


def _copy(root: Root, path: str, to: Path, hidden: _Hidden) -> None:
    """Copy a file with its mode bits and its times, which say to `make` what is out of date.

    One that is gone, has become a link, or is a hidden file under another name is left out.
    """
    try:
        opened = root.open_file(path)
    except LcpError as error:
        if error.code is ErrorCode.PATH_NOT_FOUND:
            return
        raise
    try:
        if opened.path != path or hidden.has(path, os.fstat(opened.descriptor).st_nlink):
            return
        to.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.dup(opened.descriptor), "rb") as source, to.open("xb") as target:
            shutil.copyfileobj(source, target, _CHUNK)
            target.flush()
            # After the content: of a file that is changed meanwhile the time is too new rather than too old.
            status = os.fstat(opened.descriptor)
            os.fchmod(target.fileno(), status.st_mode & 0o777)
            os.utime(target.fileno(), ns=(status.st_atime_ns, status.st_mtime_ns))
    finally:
        os.close(opened.descriptor)


def _keep_times_of_directories(root: Root, files: Path, paths: Sequence[str]) -> None:
    """Set the times of the directories of a copy last: every file that was created in them has changed them."""
    found = {str(directory) for path in paths for directory in PurePosixPath(path).parents}
    for path in found:
        with suppress(LcpError, OSError):
            opened = root.open_directory(path)
            try:
                status = os.fstat(opened)
            finally:
                os.close(opened)
            os.utime(files / path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _stamps_beneath(directory: Path) -> Iterator[tuple[str, _Stamp]]:
    """Stamps of each file, link and directory (`made/`) beneath a directory, which tell whether it was changed."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        try:
            entries = [*os.scandir(directory / prefix)]
        except OSError:  # a program has closed it, or made the path too long
            yield _shown(prefix), _CLOSED
            continue
        for entry in entries:
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{path}/")
                yield _shown(f"{path}/"), _DIRECTORY
            else:
                found = entry.stat(follow_symlinks=False)
                yield _shown(path), (found.st_mode, found.st_size, found.st_ctime_ns, found.st_ino)


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


def _has_directory(root: Root, path: str) -> bool:
    try:
        os.close(root.open_directory(path))
    except (LcpError, OSError, ValueError):
        return False
    return True


def _sweep() -> None:
    """Remove the copies of processes that died."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            lock = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(lock).st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(place)
        except OSError:
            continue
        finally:
            os.close(lock)
