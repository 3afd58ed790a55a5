"""Read which files of a root git ignores, and name what else is the output of programs."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from lcp_engine.features.programs.wall.layers.ignore_rules import Scope
from lcp_engine.features.programs.wall.layers.trail import Trail
from lcp_engine.sandbox.reading.list_tree import PRUNED

ALWAYS = frozenset(
    {
        "__pycache__",
        ".venv",
        "venv",
        "node_modules",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".tox",
        ".nox",
    }
)
"""Directories that programs fill and fill again, and nobody writes by hand. A tracked file in them is not ignored."""
OUTPUT = ("*.o", "*.obj", "*.lo", "*.gcno", "*.gcda", "*.pyc", "*.class", "*.egg-info/", ".gradle/", ".eggs/")
"""Patterns of a root without any rules: names that are nothing else but output."""
OUTPUT_DIRECTORIES = {
    "target": ("Cargo.toml", "pom.xml", "build.sbt"),
    "build": (
        "CMakeLists.txt",
        "meson.build",
        "build.gradle",
        "build.gradle.kts",
        "setup.py",
        "pyproject.toml",
    ),
    "dist": ("package.json", "setup.py", "pyproject.toml"),
}
"""Directories of output in a root without any rules, each beside a file that says which program fills it."""
_MOST_BYTES = 1024 * 1024
"""Of a file of rules that is read."""
_MOST_DIRECTORIES = 200_000
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True)
class IgnoredFiles:
    """The rules of a root at one time: lines of each `.gitignore` by its directory ("" or "src/").

    `exclude` are those of `.git/info/exclude`, which come last. Rules outside the root (of directories above it, and
    of the user) do not count: they are no part of what a mission works on.
    """

    lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    of_root: IgnoredFiles | None = None
    """Rules without those that the mission wrote, if it wrote some: only they make output of files that were there."""

    def top(self) -> Scope:
        """The scope of the root itself."""
        scope = Scope(always=ALWAYS).with_rules(self.exclude)
        return scope.with_rules(self.lines.get("", ()))

    def enter(self, scope: Scope, name: str) -> Scope:
        """The scope of a directory in another one."""
        inner = scope.enter(name)
        return inner if inner.is_ignored else inner.with_rules(self.lines.get(inner.prefix, ()))

    def is_ignored(self, path: str, *, is_directory: bool = False) -> bool:
        """True if the file or directory at a path relative to the root is ignored."""
        scope = self.top()
        *above, name = path.split("/")
        for one in above:
            scope = self.enter(scope, one)
        return scope.ignores(name, is_directory=is_directory)

    def makes_output(self, path: str, *, is_directory: bool) -> bool:
        """True if an ignored file or directory that was there before commands is output, not a source."""
        return self.of_root is None or self.of_root.is_ignored(path, is_directory=is_directory)

    def as_json(self) -> dict[str, dict[str, list[str]] | list[str]]:
        """The rules as `ignored_from_json` takes them."""
        return {
            "lines": {prefix: [*lines] for prefix, lines in self.lines.items()},
            "exclude": [*self.exclude],
        }


def ignored_from_json(stored: Mapping[str, Mapping[str, list[str]] | list[str]]) -> IgnoredFiles:
    """The rules that `IgnoredFiles.as_json` stated. Raises `ValueError`."""
    lines, exclude = stored.get("lines"), stored.get("exclude")
    if not isinstance(lines, Mapping) or not isinstance(exclude, list):
        raise ValueError("it does not state rules")  # noqa: TRY004 -- as its docstring says
    return IgnoredFiles({prefix: tuple(each) for prefix, each in lines.items()}, tuple(exclude))


def read_ignored(root: int, without: Collection[str] = ()) -> IgnoredFiles:
    """The rules of an open root as they are now; a root without any gets those of `OUTPUT` and `OUTPUT_DIRECTORIES`.

    The files `without` are taken for missing.
    """
    lines: dict[str, tuple[str, ...]] = {}
    output: list[str] = []
    exclude = _exclude(root)
    waiting = [Scope(always=ALWAYS).with_rules(exclude)]
    with Trail(root) as trail:
        for _ in range(_MOST_DIRECTORIES):
            if not waiting:
                break
            scope = waiting.pop()
            with suppress(OSError):
                here = trail.open(scope.prefix)
                with os.scandir(here) as entries:
                    found = {
                        entry.name: entry.is_dir(follow_symlinks=False)
                        for entry in entries
                        if not without or f"{scope.prefix}{entry.name}" not in without
                    }
                if ".gitignore" in found and (own := lines_of(here)):
                    lines[scope.prefix] = own
                    scope = scope.with_rules(own)
                output += (
                    f"/{scope.prefix}{name}/"
                    for name, beside in OUTPUT_DIRECTORIES.items()
                    if not found.keys().isdisjoint(beside)
                )
                waiting += _entered(scope, found)
    if not lines and not exclude and not _has(root, ".git"):
        lines[""] = (*OUTPUT, *map(_escaped, output))
    return IgnoredFiles(lines, exclude)


def _entered(scope: Scope, found: Mapping[str, bool]) -> Iterator[Scope]:
    for name, is_directory in found.items():
        if is_directory and name not in PRUNED:
            inner = scope.enter(name)
            if not inner.is_ignored:
                yield inner


def lines_of(directory: int, name: str = ".gitignore") -> tuple[str, ...]:
    """The lines of a file of rules in an open directory; none if it is not a file that can be read."""
    with suppress(OSError, ValueError):
        descriptor = os.open(name, _FILE, dir_fd=directory)
        with os.fdopen(descriptor, "rb") as file:
            text = os.fsdecode(file.read(_MOST_BYTES))
        return tuple(line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    return ()


def _escaped(pattern: str) -> str:
    return "".join(f"\\{char}" if char in "\\*?[ " else char for char in pattern)


def _exclude(root: int) -> tuple[str, ...]:
    """The patterns of `.git/info/exclude`, without the comments that git puts there."""
    with suppress(OSError):
        git = os.open(".git", _DIRECTORY, dir_fd=root)
        try:
            info = os.open("info", _DIRECTORY, dir_fd=git)
        finally:
            os.close(git)
        try:
            found = lines_of(info, "exclude")
        finally:
            os.close(info)
        return tuple(line for line in found if line and not line.startswith("#"))
    return ()


def _has(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True
