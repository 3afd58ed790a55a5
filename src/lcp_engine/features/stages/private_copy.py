"""Copy a root for a mission to work in, so that the root itself stays as it is (R28).

Files are cloned where the file system can do that, else copied; none shares its content with the root through a hard
link. Left out are what belongs to git and to the engine, what is in directories that git ignores and not tracked, and
what is no file or link.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.layers.ignore_rules import Scope
from lcp_engine.features.programs.wall.layers.ignored import lines_of
from lcp_engine.features.programs.wall.views.git_view import tracked
from lcp_engine.features.programs.wall.views.shown_directories import Shown, keep_ignored
from lcp_engine.sandbox.atomic_write import is_temporary
from lcp_engine.sandbox.reading.list_tree import PRUNED
from lcp_engine.sandbox.root import Root, refusal

# linux/fs.h: _IOW(0x94, 9, int)
_CLONE = 0x40049409
_CANNOT_CLONE = frozenset({errno.EOPNOTSUPP, errno.EXDEV, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL = (errno.ENOSPC, errno.EDQUOT)
_MOST_AT_ONCE = 1 << 30
_COMPILED = "__pycache__"
"""Caches of Python are many, and made again at once: a stage does not show those of its root."""
_UNSAFE = frozenset({"", ".", "..", *PRUNED})


@dataclass
class Copied:
    """Files that were copied, what could not be read, and directories that git ignores.

    `tracked` are the files in them that git tracks all the same: those were copied, too.
    """

    files: int = 0
    left_out: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)


def copy_privately(root: Root, to: Path) -> Copied:
    """Copy what is beneath `root` into the empty directory `to`, beside which the ignored directories are stored.

    Raises `FILE_SYSTEM` if there is no room.
    """
    copied = Copied()
    try:
        _Copy(root, to, copied).run()
        shown = (path for path in copied.ignored if path.rpartition("/")[2] != _COMPILED)
        keep_ignored(to, Shown(tuple(shown), tuple(copied.tracked)))
    except OSError as error:
        if error.errno not in _FULL:
            raise refusal(error, root.path) from error
        message = f"a stage of root {root.path!r} needs more room in {str(to.parent)!r}: {error.strerror}"
        advice = "Make room there, or name a directory on another disk with XDG_STATE_HOME."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, {"errno": error.errno}, advice) from error
    return copied


class _Copy:
    def __init__(self, root: Root, to: Path, copied: Copied) -> None:
        self._root, self._to, self._copied = root, to, copied
        self._can_clone = True
        self._umask = _umask()
        self._keeps_owners = os.geteuid() == 0
        self._waiting = [Scope()]

    def run(self) -> None:
        self._own(self._to, os.fstat(self._root.descriptor))
        while self._waiting:
            scope = self._waiting.pop()
            path = scope.prefix.rstrip("/")
            try:
                source = self._root.open_directory(path)
            except OSError:  # it is gone, or may not be read
                self._copied.left_out.append(f"{path}/")
                continue
            target = os.open(self._to / path, _DIRECTORY)
            try:
                self._copy_directory(source, target, scope)
            finally:
                os.close(target)
                os.close(source)
        if self._copied.ignored:
            ignored = tuple(f"{path}/" for path in self._copied.ignored)
            for path in sorted(_tracked(self._root)):
                if path.startswith(ignored) and _UNSAFE.isdisjoint(path.split("/")):
                    try:
                        self._copy_tracked(path)
                    except (FileNotFoundError, NotADirectoryError):
                        continue  # the index names more than there is
                    except OSError as error:
                        if error.errno in _FULL:
                            raise
                        self._copied.left_out.append(path)

    def _copy_tracked(self, path: str) -> None:
        """Copy a file in an ignored directory, with the directories that it is in. Raises OSError."""
        parent, _, name = path.rpartition("/")
        source = self._root.open_directory(parent)
        try:
            mode = os.stat(name, dir_fd=source, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode) and not stat.S_ISREG(mode):  # a submodule
                return
            copy = self._copy_link if stat.S_ISLNK(mode) else self._copy_file
            self._make(parent)
            target = os.open(self._to / parent, _DIRECTORY)
            try:
                copy(source, target, name, path)
                self._copied.tracked.append(path)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _make(self, path: str) -> None:
        if not (self._to / path).exists():
            self._make(path.rpartition("/")[0])
            status = os.stat(path, dir_fd=self._root.descriptor, follow_symlinks=False)
            (self._to / path).mkdir(stat.S_IMODE(status.st_mode) | 0o700)
            self._own(self._to / path, status)

    def _own(self, made: Path | int, status: os.stat_result) -> None:
        """Give what root has copied to the owner of the original, as whom commands run."""
        if self._keeps_owners and (status.st_uid, status.st_gid) != (0, 0):
            try:
                os.chown(made, status.st_uid, status.st_gid)
            except PermissionError:  # in a container root may lack the capability
                self._keeps_owners = False

    def _copy_directory(self, source: int, target: int, scope: Scope) -> None:
        with os.scandir(source) as found:
            entries = [entry for entry in found if entry.name not in PRUNED]
        if any(entry.name == ".gitignore" for entry in entries):
            scope = scope.with_rules(lines_of(source))
        for entry in entries:
            with suppress(FileNotFoundError):  # it was removed since the directory was read
                self._copy_entry(source, target, entry, scope)

    def _copy_entry(self, source: int, target: int, entry: os.DirEntry[str], scope: Scope) -> None:
        path = scope.prefix + entry.name
        if entry.is_symlink():
            self._copy_link(source, target, entry.name, path)
        elif entry.is_dir():
            inner = scope.enter(entry.name)
            if inner.is_ignored:
                self._copied.ignored.append(path)
                return
            status = entry.stat(follow_symlinks=False)
            os.mkdir(entry.name, mode=stat.S_IMODE(status.st_mode) | 0o700, dir_fd=target)
            self._own(self._to / path, status)
            self._waiting.append(inner)
        elif entry.is_file() and not is_temporary(entry.name):
            self._copy_file(source, target, entry.name, path)

    def _copy_link(self, source: int, target: int, name: str, path: str) -> None:
        try:
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
            self._copied.left_out.append(path)  # it is gone, or no link any more

    def _copy_file(self, source: int, target: int, name: str, path: str) -> None:
        try:
            opened = self._root.open_file_in(source, path)
        except (LcpError, OSError) as error:  # gone, a link by now, not readable, or the engine's own
            if not isinstance(error, FileNotFoundError):
                self._copied.left_out.append(path)
            return
        try:
            status = os.fstat(opened.descriptor)
            mode = stat.S_IMODE(status.st_mode) & 0o777 | 0o400
            new = os.open(name, _NEW, mode, dir_fd=target)
            try:
                self._fill(opened.descriptor, new, status)
                self._own(new, status)
                # They tell `make` what is out of date.
                os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
                if mode & self._umask:
                    os.fchmod(new, mode)
            finally:
                os.close(new)
        finally:
            os.close(opened.descriptor)
        self._copied.files += 1

    def _fill(self, source: int, target: int, status: os.stat_result) -> None:
        size = status.st_size
        if not size:
            return
        if self._can_clone:
            try:
                fcntl.ioctl(target, _CLONE, source)
            except OSError as error:
                if error.errno not in _CANNOT_CLONE:
                    raise
                self._can_clone = False
            else:
                return
        if status.st_blocks * 512 < size:
            os.truncate(target, size)
            for start, end in _parts_with_data(source, size):
                os.lseek(target, start, os.SEEK_SET)
                _copy_bytes(source, target, start, end)
        else:
            _copy_bytes(source, target, 0, size)


def _parts_with_data(source: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of a file that are no holes; holes stay holes, so that the copy needs no more room than the file."""
    end = 0
    while end < size:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return
        end = min(os.lseek(source, start, os.SEEK_HOLE), size)
        yield start, end


def _copy_bytes(source: int, target: int, start: int, end: int) -> None:
    while start < end and (copied := os.sendfile(target, source, start, min(end - start, _MOST_AT_ONCE))):
        start += copied


def _tracked(root: Root) -> frozenset[str]:
    try:
        return tracked(root)
    except (OSError, ValueError):  # an index of another form: what git tracks is not known
        return frozenset()


def _umask() -> int:
    """The bits that new files do not get; it is not changed to find out, since that is about all threads."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return 0o777
