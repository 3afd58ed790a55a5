"""List the regular files beneath a directory, following no link."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from lcp_engine.core.paths.patterns import Patterns, Side
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.atomic_write import is_temporary
from lcp_engine.sandbox.root import Root, refusal, step_into

# Never entered, whatever the patterns: their content belongs to git and to the engine.
PRUNED = frozenset({".git", ".lcp"})
_SKIPPED_SHOWN = 100

SECONDS = 0.5
"""CPU time that any list of patterns may take."""
NAMES = 100_000
PER_NAME = 10e-6
"""Seconds for each name beyond the first `NAMES`, so that a large tree is not refused for its size."""
STEPS = 100_000
"""Between two readings of the clock; a step (one character of the patterns against one of a path) took up to 0.3 µs."""


@dataclass(frozen=True)
class Listing:
    """The first `limit` files in order of their bytes, how many there are in all, and what was skipped."""

    files: list[str]
    sizes: list[int] | None
    total: int
    skipped: list[str]


@dataclass(frozen=True)
class Filters:
    """Files that are left out beside what patterns exclude, by paths relative to the root.

    `is_closed` gets directories, with "/" at the end, which are not entered then; `is_hidden` gets files.
    """

    is_closed: Callable[[str], bool] = lambda directory: False
    is_hidden: Callable[[str], bool] | None = None
    keeps_odd: bool = False
    """Whether names that are not UTF-8 are listed, too, with surrogates."""


NO_FILTERS = Filters()


def list_files(
    root: Root,
    base: str,
    patterns: Patterns,
    *,
    limit: int,
    sizes: bool = False,
    filters: Filters = NO_FILTERS,
) -> Listing:
    """The files beneath `base` (relative to the root) that the patterns select, relative to `base`.

    A directory that is excluded as a whole is never opened. Raises `LcpError` if `base` cannot be read, and
    INVALID_PATTERN if matching takes too long (`Effort`).
    """
    walk = _Walk(root, base, patterns, limit, sizes, filters)
    try:
        walk.run()
    finally:
        walk.ancestors.close()
    walk.shorten()
    return Listing(
        walk.files,
        [walk.sizes[path] for path in walk.files] if sizes else None,
        walk.total,
        sorted(walk.skipped)[:_SKIPPED_SHOWN],
    )


def is_text(name: str) -> bool:
    """True if a name is UTF-8; no job could name it otherwise."""
    return name.isascii() or not any("\ud800" <= character <= "\udfff" for character in name)


class _Walk:
    def __init__(  # noqa: PLR0917 -- one caller, which names them
        self, root: Root, base: str, patterns: Patterns, limit: int, sizes: bool, filters: Filters
    ) -> None:
        self.root, self.base, self.patterns, self.limit = root, base, patterns, limit
        self.with_sizes, self.filters = sizes, filters
        self.ancestors = _Ancestors(root, base)
        self.effort = Effort(patterns.include.size + patterns.exclude.size)
        self.files: list[str] = []
        self.sizes: dict[str, int] = {}
        self.total = 0
        self.skipped: list[str] = []
        # Directories with a "/" at the end, and whether an including pattern matches everything in them.
        self.waiting: list[tuple[str, bool]] = [("", patterns.include.everything)]

    def run(self) -> None:
        while self.waiting:
            prefix, selected = self.waiting.pop()
            inner = prefix[:-1]
            try:
                descriptor = self.ancestors.open(inner)
            except OSError as error:
                if not prefix:
                    raise refusal(error, self.base or ".") from error
                if not self._is_hidden(prefix):
                    self.skipped.append(inner)
                continue
            self._list_directory(descriptor, prefix, selected)
            if len(self.files) > 2 * self.limit + 1000:
                self.shorten()

    def shorten(self) -> None:
        """Keeps the first `limit` of what was found. Code points have the order of their UTF-8 bytes."""
        self.files.sort()
        del self.files[self.limit :]

    def _list_directory(self, descriptor: int, prefix: str, selected: bool) -> None:
        names, directories = [], []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                elif entry.is_dir(follow_symlinks=False):
                    directories.append(entry.name)
        # Each directory is sorted here, so that the final sort finds the list nearly in order and costs little.
        found = [prefix + name for name in sorted(self._chosen(self._texts(names, prefix), prefix, selected))]
        if self.filters.is_hidden is not None:
            found = [path for path in found if not self._is_hidden(path)]
        if self.with_sizes:
            found = [path for path in found if self._measure(path, descriptor)]
        self.total += len(found)
        self.files += found
        self._queue_directories(sorted(self._texts(directories, prefix), reverse=True), prefix, selected)

    def _chosen(self, names: list[str], prefix: str, selected: bool) -> list[str]:
        """The files of one directory that the patterns select. Most time is spent here, so the loops are tight."""
        if not selected:
            names = self._matching(self.patterns.include, names, prefix)
        exclude = self.patterns.exclude
        if exclude.everything:
            return []
        if exclude.names or exclude.suffixes or exclude.match is not None:
            excluded = set(self._matching(exclude, names, prefix))
            names = [name for name in names if name not in excluded]
        return [name for name in names if not name.startswith(".lcp-") or not is_temporary(name)]

    def _matching(self, side: Side, names: list[str], prefix: str) -> list[str]:
        suffixes, exact, match, tails = side.suffixes, side.names, side.match, side.tails
        if match is None:  # the number of suffixes costs next to nothing
            return [name for name in names if name.endswith(suffixes) or name in exact]
        return [
            name
            for piece in self.effort.pieces(names, prefix)
            for name in piece
            if name.endswith(suffixes) or name in exact or (name.endswith(tails) and match(prefix + name))
        ]

    def _texts(self, names: list[str], prefix: str) -> list[str]:
        """The names that are UTF-8: any other cannot be stated in JSON, and no job could name it."""
        if self.filters.keeps_odd or all(map(str.isascii, names)):
            return names
        odd = [_shown(prefix + name) for name in names if not is_text(name)]
        self.skipped += [path for path in odd if not self._is_hidden(path)]
        return [name for name in names if is_text(name)]

    def _from_root(self, path: str) -> str:
        return f"{self.base}/{path}" if self.base else path

    def _is_hidden(self, path: str) -> bool:
        is_hidden = self.filters.is_hidden
        return is_hidden is not None and is_hidden(self._from_root(path))

    def _measure(self, path: str, descriptor: int) -> bool:
        """Notes the size of a file; returns whether it still exists."""
        name = path.rpartition("/")[2]
        try:
            self.sizes[path] = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        except FileNotFoundError:
            return False
        return True

    def _queue_directories(self, names: list[str], prefix: str, selected: bool) -> None:
        """Queue directories; the cost of the patterns is counted, that of the filters is not."""
        include, exclude = self.patterns.include, self.patterns.exclude
        entered = [
            (f"{prefix}{name}/", selected or include.has_directory(name, prefix + name))
            for piece in self.effort.pieces(names, prefix)
            for name in piece
            if name not in PRUNED and not exclude.has_directory(name, prefix + name)
        ]
        self.waiting += [one for one in entered if not self.filters.is_closed(self._from_root(one[0]))]


_MOST_OPEN = 64


class _Ancestors:
    """Opens directories beneath `base`, one after the other, each from the innermost one above it that is still open.

    openat2 takes a path as a whole. Without it each step is a call: a path from the root would make a deep tree
    quadratic.
    """

    def __init__(self, root: Root, base: str) -> None:
        self._root, self._base = root, base
        self._open: list[tuple[str, int]] = []

    def open(self, path: str) -> int:
        """A descriptor of the directory, which stays open until the next call. Raises OSError."""
        while self._open and not _is_in(path, self._open[-1][0]):
            os.close(self._open.pop()[1])
        if self._root.kernel or not self._open:
            descriptor = self._root.open_directory(f"{self._base}/{path}".strip("/"))
            self.close()
            self._open.append((path, descriptor))
            return descriptor
        above, here = self._open[-1]
        for name in path[len(above) :].strip("/").split("/"):
            here = step_into(here, name)
            above = f"{above}/{name}" if above else name
            self._open.append((above, here))
        for _, descriptor in self._open[:-_MOST_OPEN]:
            os.close(descriptor)
        del self._open[:-_MOST_OPEN]
        return here

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop()[1])


def _is_in(path: str, directory: str) -> bool:
    return not directory or path.startswith(f"{directory}/")


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="backslashreplace")


class Effort:
    """The CPU time that one listing has spent on patterns of `size` characters. `cpu` is the clock of this thread."""

    def __init__(self, size: int, cpu: Callable[[], float] = time.thread_time) -> None:
        self._size = size
        self._cpu = cpu
        self._spent = 0.0
        self._names = 0

    def pieces(self, names: list[str], prefix: str) -> Iterator[list[str]]:
        """The names, which follow `prefix`, in pieces; the time until the next piece counts. Raises INVALID_PATTERN."""
        self._names += len(names)
        longest = len(prefix) + max(map(len, names), default=0)
        most = STEPS // (self._size * longest + 1) + 1
        for first in range(0, len(names), most):
            began = self._cpu()
            yield names[first : first + most]
            self._spent += self._cpu() - began
            if self._spent > SECONDS + PER_NAME * max(self._names - NAMES, 0):
                fact = (
                    f"matching {self._names:,} names takes more than {SECONDS:g} s of CPU with these patterns"
                )
                raise LcpError(ErrorCode.INVALID_PATTERN, f"{fact}; use simpler ones")
