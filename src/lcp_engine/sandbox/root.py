"""Open files and directories beneath one directory only (R22)."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import Self

from lcp_engine.core.paths.patterns import in_one_form
from lcp_engine.errors import ErrorCode, Failed, LcpError, system_advice
from lcp_engine.sandbox.paths import Place, is_windows
from lcp_engine.sandbox.system.database_files import OWN_FILES, refusal_of_own
from lcp_engine.sandbox.system.syscalls import (
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    has_openat2,
    opener,
)

# O_NONBLOCK: opening a FIFO must not wait for a writer. O_NOCTTY: a terminal must not become the controlling one.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_TRIES = 32
"""How often a link is followed whose file is replaced meanwhile."""
_NO_LINKS = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
_INNER_LINKS = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS


@dataclass(slots=True)
class Opened:
    """A descriptor of a regular file, which the caller closes, its size, and its path after links."""

    descriptor: int
    size: int
    path: str


@dataclass(frozen=True, slots=True)
class _Openers:
    """Ways in which this root opens what is beneath it; `linked_file` follows links that stay within."""

    file: Callable[[str], int]
    directory: Callable[[str], int]
    linked_file: Callable[[str], int] | None


def unfit_root(named: str, directory: str) -> Failed | None:
    """The refusal of a root for what it is, if `named` is: the whole file system, or a path of another system.

    `directory` is the absolute path that it stands for here.
    """
    if directory == "/":
        fact = "is the whole file system" if named == "/" else f"is {directory!r}, the whole file system"
        message = f"root: {named!r} {fact}; a directory below it is expected"
        return Failed(
            ErrorCode.INVALID_ARGUMENT, message, advice="Name the directory that the mission is about."
        )
    if is_windows(named) and not os.path.exists(directory):
        message = (
            f"root: '{named}' is a path of Windows; a directory of this machine is expected (a mission names such a "
            "path in `root_aliases`, for its planner)"
        )
        advice = "Name the directory of this machine as the root, and the other path in `root_aliases` of the mission."
        return Failed(ErrorCode.PATH_NOT_FOUND, message, advice=advice)
    return None


class Root:
    """A directory that an operator named, opened once, which opens what is beneath it.

    Paths are relative to it, with "/", without "..", as `paths` makes them. openat2 resolves them with `kernel`, else a
    walk that follows no link at all; by default openat2 if the kernel has it. `opened` is the descriptor of a root
    that another process opened, with its `path` and `spellings`. Raises `LcpError`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kernel: bool | None = None,
        opened: int | None = None,
        spellings: tuple[str, ...] = (),
    ) -> None:
        self._checks_first = False
        self.copy_of: str | None = None
        """The root that this one is a stage of."""
        self._open_copied: Callable[[], Root] | None = None
        if opened is not None:
            self.path, self.spellings, self.descriptor = os.fspath(path), spellings, opened
            self.kernel = has_openat2() if kernel is None else kernel
            self._openers, self._own = self._bind(), OWN_FILES.beneath(self.path)
            return
        given = os.fspath(path)
        self.kernel = has_openat2() if kernel is None else kernel
        try:
            self.path = os.path.realpath(given)  # fails if a link becomes a directory while it is read
            self.descriptor = os.open(self.path, _DIRECTORY)
        except OSError as error:
            raise refusal(error, given) from error
        self.spellings = tuple(dict.fromkeys((os.path.abspath(given), self.path)))
        self._openers, self._own = self._bind(), OWN_FILES.beneath(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the root; descriptors that it returned stay open."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def set_copied(self, path: str, open_copied: Callable[[], Root]) -> None:
        """Make it a stage of the root at `path`, which `open_copied` opens for its caller."""
        self.copy_of, self._open_copied = path, open_copied

    def open_copied(self) -> Root:
        """Open the root that this one is a stage of, for the caller. Raises `LcpError`, for instance `ROOT_CHANGED`."""
        assert self._open_copied is not None
        return self._open_copied()

    @property
    def places(self) -> tuple[str, ...]:
        """Its directory, and the one of the root that it is a stage of."""
        return (self.path,) if self.copy_of is None else (self.path, self.copy_of)

    def open_file(self, path: str) -> Opened:
        """The regular file at `path`, opened for reading without ever blocking; links within the root are followed."""
        resolved = path
        if self._own and path in self._own:
            raise refusal_of_own(path)
        try:
            try:
                descriptor = self._openers.file(path)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                descriptor, resolved = self._follow(path)
        except OSError as error:
            if error.errno == errno.ENOENT:
                self.refuse_twin(path, ErrorCode.PATH_NOT_FOUND)
            raise refusal(error, path) from error
        return self._opened(descriptor, resolved, path)

    def open_file_in(self, directory: int, path: str) -> Opened:
        """Like `open_file`, by a descriptor of the directory that holds the file, which costs a third less.

        Raises OSError if there is no such file, or a link: none is followed.
        """
        if self._checks_first:
            return self.open_file(path)
        if self._own and path in self._own:
            raise refusal_of_own(path)
        descriptor = os.open(path.rpartition("/")[2], _READ | os.O_NOFOLLOW, dir_fd=directory)
        return self._opened(descriptor, path, path)

    def open_place(self, place: Place) -> Opened:
        """Like `open_file`, with ".." as the kernel takes it: after a link it leaves what the link leads to.

        Without openat2 such a place is refused, like any link.
        """
        try:
            self._check_climbs(place)
        except OSError as error:
            if error.errno != errno.ELOOP or not self.kernel:
                raise refusal(error, place.named) from error
        else:
            return self.open_file(place.path)
        try:
            descriptor, resolved = self._follow(place.named)
        except OSError as error:
            raise refusal(error, place.named) from error
        return self._opened(descriptor, resolved, place.named)

    def check_place(self, place: Place) -> None:
        """Raises `LcpError` unless each ".." of the place leaves a directory that exists and is not a link."""
        try:
            self._check_climbs(place)
        except OSError as error:
            raise refusal(error, place.named) from error

    def _check_climbs(self, place: Place) -> None:
        for climb in place.climbs:
            os.close(self._openers.directory(climb))

    def _opened(self, descriptor: int, resolved: str, path: str) -> Opened:
        try:
            status = os.fstat(descriptor)
        except OSError as error:
            raise refusal(error, path) from error
        if status.st_ino in OWN_FILES.inodes and OWN_FILES.holds(descriptor, status):
            # Reached by a hard link. The descriptor stays open; from now on this root checks before it opens.
            self._openers = replace(self._openers, file=partial(self._check_and_open, _NO_LINKS))
            self._checks_first = True
            raise refusal_of_own(path)
        if not stat.S_ISREG(status.st_mode):
            os.close(descriptor)
            raise not_a_file(path, status.st_mode)
        return Opened(descriptor, status.st_size, resolved)

    def open_directory(self, path: str) -> int:
        """A descriptor of the directory at `path` ("" is the root itself); no link is followed. Raises OSError."""
        return self._openers.directory(path or ".")

    def twin_of(self, path: str) -> str | None:
        """Path of what is there in place of `path`, or of a directory above it, under a name in another Unicode form.

        None if `path` exists, or nothing looks like it. Costs nothing for a path in ASCII. Raises OSError.
        """
        if path.isascii():
            return None
        here = ""
        for name in path.strip("/").split("/"):
            place = f"{here}/{name}" if here else name
            try:
                directory = self.open_directory(here)
            except NotADirectoryError:
                return None
            try:
                if name not in (names := os.listdir(directory)):
                    form = in_one_form(name)
                    twin = next((one for one in names if in_one_form(one) == form), None)
                    return None if twin is None else place.removesuffix(name) + twin
            finally:
                os.close(directory)
            here = place
        return None

    def refuse_twin(
        self, path: str, code: ErrorCode = ErrorCode.PATH_EXISTS, *, beside: Collection[str] = ()
    ) -> None:
        """Raises `LcpError` if `path` does not exist, but one that differs from it only in its Unicode form.

        It may be one of those `beside`, as where a file is renamed to its other form.
        """
        if path.isascii():
            return
        try:
            twin = self.twin_of(path)
        except OSError:
            return  # the path itself is refused
        if twin is not None and twin not in beside:
            message = (
                f"{path!r} does not exist, but {json.dumps(twin)} looks the same in another Unicode form"
            )
            raise LcpError(code, message, advice=_TWIN)

    def _bind(self) -> _Openers:
        if self.kernel:
            return _Openers(
                file=opener(self.descriptor, _READ, _NO_LINKS),
                directory=opener(self.descriptor, _DIRECTORY, _NO_LINKS),
                linked_file=opener(self.descriptor, _READ, _INNER_LINKS),
            )
        return _Openers(
            file=partial(_walk, self.descriptor, _READ),
            directory=partial(_walk, self.descriptor, _DIRECTORY),
            linked_file=None,
        )

    def _follow(self, path: str) -> tuple[int, str]:
        """Opens through links that stay in the root, if the kernel can check that; and the path that it led to."""
        if self._openers.linked_file is None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        for _ in range(_TRIES):
            descriptor = (
                self._check_and_open(_INNER_LINKS, path)
                if OWN_FILES.inodes
                else self._openers.linked_file(path)
            )
            try:
                resolved = self._path_of(descriptor)
                if self._is_at(resolved, descriptor):
                    return descriptor, resolved
            except BaseException:  # also an interrupt: the descriptor would stay open
                os.close(descriptor)
                raise
            os.close(descriptor)
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)

    def _is_at(self, path: str, descriptor: int) -> bool:
        """True if an open file is the one at `path`: what is replaced meanwhile is called "NAME (deleted)"."""
        try:
            named = opener(self.descriptor, _LOOK, _NO_LINKS)(path)
        except OSError:
            return False
        try:
            return os.path.samestat(os.fstat(named), os.fstat(descriptor))
        finally:
            os.close(named)

    def _check_and_open(self, resolve: int, path: str) -> int:
        """Opens a file after checking that it is not one of the engine's own, which must not even be opened.

        The check uses O_PATH, which opens nothing: it identifies the file that is opened afterwards.
        """
        seen = (
            opener(self.descriptor, _LOOK, resolve)(path)
            if self.kernel
            else _walk(self.descriptor, _LOOK, path)
        )
        try:
            OWN_FILES.refuse(os.fstat(seen), path)
            return os.open(f"/proc/self/fd/{seen}", _READ)
        finally:
            os.close(seen)

    def _path_of(self, descriptor: int) -> str:
        """The current path of an open file. A file that was moved out of the root is refused."""
        root = os.readlink(f"/proc/self/fd/{self.descriptor}").rstrip("/")
        place = os.readlink(f"/proc/self/fd/{descriptor}")
        if not place.startswith(f"{root}/"):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return place[len(root) + 1 :]


_TWIN = "Use the name that is there, which the message gives with its characters as escapes."
_LINK = "Name the file that the link leads to, if it is beneath the root."


def refusal(error: OSError, path: str) -> LcpError:
    """The `LcpError` for an error of the file system at `path`."""
    match error.errno:
        case errno.ENOENT:
            return LcpError(ErrorCode.PATH_NOT_FOUND, f"{path!r} does not exist")
        case errno.ENOTDIR:
            return LcpError(
                ErrorCode.PATH_NOT_FOUND, f"{path!r} does not exist: a part of it is not a directory"
            )
        case errno.EXDEV:
            return _outside(path)
        case errno.ELOOP:
            message = f"{path!r} is or passes a symbolic link, which is not followed"
            return LcpError(ErrorCode.PATH_DENIED, message, advice=_LINK)
        case errno.EAGAIN:
            message = f"{path!r} could not be opened: what it leads to changes all the time"
            return LcpError(
                ErrorCode.FILE_SYSTEM, message, advice="Try again when no other program changes the links."
            )
        case errno.EACCES | errno.EPERM | errno.EROFS:
            message = f"{path!r} is denied by the file system: {error.strerror}"
            return LcpError(ErrorCode.PATH_DENIED, message, advice=system_advice(error))
        case errno.EISDIR:
            return LcpError(ErrorCode.NOT_A_FILE, f"{path!r} is a directory, not a regular file")
        case errno.ENXIO | errno.ENODEV:
            return LcpError(ErrorCode.NOT_A_FILE, f"{path!r} is a socket or device, not a regular file")
        case errno.ENAMETOOLONG:
            return LcpError(ErrorCode.INVALID_PARAMS, f"{path[:60]!r}… is longer than the file system allows")
    reason = error.strerror or str(error)
    return LcpError(
        ErrorCode.FILE_SYSTEM, f"{path!r}: {reason}", {"errno": error.errno}, system_advice(error)
    )


def _outside(path: str) -> LcpError:
    """Reason why a path leads out of the root: by itself, which only a plug-in's can, or through a link."""
    if path.startswith("/") or os.path.normpath(path).split("/", 1)[0] == "..":
        return LcpError(ErrorCode.PATH_OUTSIDE_ROOT, f"path {path!r} is not beneath the root")
    return LcpError(
        ErrorCode.PATH_OUTSIDE_ROOT, f"{path!r} leads out of the root through a link", advice=_LINK
    )


def not_a_file(path: str, mode: int) -> LcpError:
    """The refusal of anything but a regular file."""
    return LcpError(ErrorCode.NOT_A_FILE, f"{path!r} is a {_kind(mode)}, not a regular file")


def _kind(mode: int) -> str:
    names = {
        stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFLNK: "symbolic link",
        stat.S_IFCHR: "character device", stat.S_IFBLK: "block device",
    }  # fmt: skip
    return names.get(stat.S_IFMT(mode), "special file")


def look_at(path: str) -> int:
    """A descriptor of what is at an absolute path, which passes no link. Raises OSError."""
    top = os.open("/", _DIRECTORY)
    try:
        inner = path.strip("/") or "."
        return opener(top, _LOOK, _NO_LINKS)(inner) if has_openat2() else _walk(top, _LOOK, inner)
    finally:
        os.close(top)


def _walk(directory: int, flags: int, path: str) -> int:
    """Opens one component after the other, none through a link and none upwards."""
    *parents, name = path.split("/")
    if ".." in parents or name == "..":
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), path)
    here = os.dup(directory)
    try:
        for parent in parents:
            there = step_into(here, parent)
            os.close(here)
            here = there
        try:
            return os.open(name, flags | os.O_NOFOLLOW, dir_fd=here)
        except NotADirectoryError:
            _refuse_link(here, name)
            raise
    finally:
        os.close(here)


def step_into(directory: int, name: str) -> int:
    """A descriptor of the directory `name` in `directory`, which must not be a link. Raises OSError."""
    try:
        return os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    except NotADirectoryError:
        _refuse_link(directory, name)
        raise


def _refuse_link(directory: int, name: str) -> None:
    # O_DIRECTORY with O_NOFOLLOW fails with ENOTDIR for a link; the message should say that it is one.
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
