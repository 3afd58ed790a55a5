"""Find what a program may read of the packages that are installed in a root: nothing that is denied, and no link.

They are not copied, since they are many files. The kernel lets a program read all that is beneath a directory, or
nothing: one in which something is denied is opened part by part.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from lcp_engine.features.programs.wall.views.shown_directories import SHARED, shown_in
from lcp_engine.sandbox.directories import status_of
from lcp_engine.sandbox.reading.list_tree import PRUNED, is_text
from lcp_engine.sandbox.root import Root


@dataclass(frozen=True)
class Packages:
    """A directory of a root, called `name` and found at `place`, in which packages are installed."""

    name: str
    place: str
    readable: tuple[str, ...]
    """The directories and files that may be read and executed, with all that is beneath them."""
    listed: tuple[str, ...]
    """Directories around them whose names may be listed, also those of denied files."""


def packages_of(
    root: Root, may_read: Callable[[str], bool], is_hidden: Callable[[str, int], bool]
) -> Iterator[Packages]:
    """The packages of a root, or of the one that it is a stage of. A link in their place leads nowhere.

    `is_hidden` tells of a path with so many names whether it is another one of a file that may not be read.
    """
    for name in SHARED:
        if may_read(f"{name}/x") and (top := _opened(root, name)) is not None:
            with top:
                found = _Walk(top, name, may_read, is_hidden).packages()
            if found.readable:
                yield found


def _opened(root: Root, name: str) -> Root | None:
    """The directory of packages, if there is one: that of the root only if its stage was made without it."""
    with suppress(OSError):
        return Root(f"{root.path}/{name}", opened=root.open_directory(name))
    if root.copy_of is not None:
        with suppress(OSError), root.open_copied() as copied:
            if name in shown_in(root, copied).directories:
                return Root(f"{copied.path}/{name}", opened=copied.open_directory(name))
    return None


class _Walk:
    """Looks at everything in a directory once. Paths of directories have a "/" at the end; "" is the top."""

    def __init__(
        self, top: Root, name: str, may_read: Callable[[str], bool], is_hidden: Callable[[str, int], bool]
    ) -> None:
        self._top = top
        self._name = name
        self._may_read = may_read
        self._is_hidden = is_hidden
        self._allowed: dict[str, list[str]] = {}
        """What is in each directory and not denied; a directory comes after the one that it is in."""
        self._parted: set[str] = set()
        """The directories with something denied beneath."""
        self._closed: set[str] = set()
        """The directories that are denied themselves."""
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            self._allowed[prefix] = self._look_into(prefix)
            waiting += [path for path in self._allowed[prefix] if path.endswith("/")]

    def packages(self) -> Packages:
        """Find what may be read, and what may be listed: nothing around a closed directory, whose names would be, too.

        But Python finds no module in a directory that it cannot list.
        """
        unlisted = self._unlisted() if self._name == "node_modules" else self._closed
        readable, listed = list[str](), list[str]()
        waiting = [""]
        while waiting:
            path = waiting.pop()
            place = f"{self._top.path}/{path}".rstrip("/")
            if path not in self._parted:
                readable.append(place)
                continue
            if path not in unlisted:
                listed.append(place)
            waiting += self._allowed[path]
        return Packages(self._name, self._top.path, tuple(readable), tuple(listed))

    def _look_into(self, prefix: str) -> list[str]:
        is_pruned = prefix[:-1].rpartition("/")[2] in PRUNED
        if is_pruned or not self._may_read(f"{self._name}/{prefix}x"):
            self._closed.add(prefix)
            self._part(prefix)
        allowed = list[str]()
        try:
            descriptor = self._top.open_directory(prefix[:-1])
        except OSError:
            self._part(prefix)
            return allowed
        try:
            with os.scandir(descriptor) as entries:
                for entry in () if is_pruned else entries:
                    path = f"{prefix}{entry.name}"
                    if not is_text(entry.name):
                        self._part(prefix)
                    elif entry.is_dir(follow_symlinks=False):
                        allowed.append(f"{path}/")
                    elif not entry.is_symlink():
                        if self._is_open(f"{self._name}/{path}", status_of(descriptor, entry.name)):
                            allowed.append(path)
                        else:
                            self._part(prefix)
        finally:
            os.close(descriptor)
        return allowed

    def _is_open(self, path: str, status: os.stat_result | None) -> bool:
        return status is not None and self._may_read(path) and not self._is_hidden(path, status.st_nlink)

    def _part(self, prefix: str) -> None:
        while prefix not in self._parted:
            self._parted.add(prefix)
            prefix = prefix[: prefix[:-1].rfind("/") + 1]

    def _unlisted(self) -> set[str]:
        """The closed directories, and those around them."""
        found = set(self._closed)
        for prefix, allowed in reversed(self._allowed.items()):
            if not found.isdisjoint(allowed):
                found.add(prefix)
        return found
