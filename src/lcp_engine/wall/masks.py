"""Hide what a command may not see: whiteouts above the root, in the form of overlayfs (R32)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.list_tree import PRUNED
from lcp_engine.sandbox.root import Root

_WHITEOUT = stat.S_IFCHR


@dataclass
class Masks:
    """Paths that are hidden. A directory ends in "/", and all beneath it is hidden with it."""

    masked: set[str] = field(default_factory=set)

    def covers(self, path: str) -> bool:
        """True if a path, relative to the root, is hidden."""
        parts = path.split("/")
        above = ("/".join(parts[:count]) + "/" for count in range(1, len(parts)))
        return path in self.masked or f"{path}/" in self.masked or any(one in self.masked for one in above)


def make_masks(root: Root, place: Path, may_read: Callable[[str], bool]) -> Masks:
    """Make whiteouts in `place`, which is made anew, for what may not be read, under any of its names.

    Raises OSError.
    """
    remove_tree(place)
    place.mkdir(mode=0o700)
    os.chmod(place, stat.S_IMODE(os.fstat(root.descriptor).st_mode))
    masks, linked, inodes = Masks(), dict[str, tuple[int, int]](), set[tuple[int, int]]()
    for path, entry in _entries(root, may_read):
        status = None
        if not may_read(path):
            masks.masked.add(path)
            status = entry.stat(follow_symlinks=False)
            if status.st_nlink > 1 and not entry.is_dir(follow_symlinks=False):
                inodes.add((status.st_dev, status.st_ino))
    if inodes:  # rare, so that a second walk looks for the other names
        for path, entry in _entries(root, may_read):
            if entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                if status.st_nlink > 1:
                    linked[path] = (status.st_dev, status.st_ino)
        masks.masked |= {path for path, inode in linked.items() if inode in inodes}
    _white_out(root, place, masks.masked)
    return masks


def _entries(root: Root, may_read: Callable[[str], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Everything in a root that is not beneath something hidden; directories end in "/"."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        with suppress(OSError):  # it is gone, or cannot be listed by a command either
            descriptor = root.open_directory(prefix[:-1])
            try:
                with os.scandir(descriptor) as found:
                    for entry in found:
                        if not entry.is_dir(follow_symlinks=False):
                            yield f"{prefix}{entry.name}", entry
                            continue
                        path = f"{prefix}{entry.name}/"
                        yield path, entry
                        if may_read(path) and entry.name not in PRUNED:
                            waiting.append(path)
            finally:
                os.close(descriptor)


def _white_out(root: Root, place: Path, paths: Iterable[str]) -> None:
    """Make a whiteout for each path, in directories with the modes and owners of those of the root."""
    made = {""}
    for path in sorted(paths):
        above, _, _ = path.rstrip("/").rpartition("/")
        parts = above.split("/") if above else []
        for count in range(1, len(parts) + 1):
            directory = "/".join(parts[:count])
            if directory not in made:
                made.add(directory)
                os.mkdir(place / directory, 0o700)
                with suppress(OSError):
                    descriptor = root.open_directory(directory)
                    try:
                        status = os.fstat(descriptor)
                    finally:
                        os.close(descriptor)
                    with suppress(PermissionError):
                        os.chown(place / directory, status.st_uid, status.st_gid)
                    os.chmod(place / directory, stat.S_IMODE(status.st_mode) | 0o500)
        os.mknod(place / path.rstrip("/"), _WHITEOUT)
