"""Find a program, the places it needs to run, and the environment that it is given."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.system.own_places import own_directories

_BIN = frozenset({"bin", "sbin", "shims"})
_INTERPRETERS = ("python3", "node")
"""Those of what `features/programs/wall/installed_packages.py` shares."""


def found_program(name: str, directory: Path) -> str:
    """Where the program is: one that is named with a slash beneath `directory`, unless its path is absolute.

    Raises `PATH_NOT_FOUND` if no directory of `PATH` has it.
    """
    found = str(directory / name) if "/" in name else shutil.which(name)
    if found is None:
        message = f"no program is named {name!r} in {os.environ.get('PATH', '')}"
        raise LcpError(
            ErrorCode.PATH_NOT_FOUND, message, advice="Install it, or start the runner with its PATH."
        )
    return os.path.abspath(found) if "/" not in name else found


def places_of(path: str, *, foreign: Sequence[str] = (), is_alone: bool = False) -> Iterator[str]:
    """Where a program and its interpreter are installed: the directories around `bin`, else the files alone.

    Of a program that `is_alone`, which the user named, only its file, wherever it is, unless it is the Python of a
    virtual environment. Beneath `foreign` directories, such as a root and its copy, planners and repositories write
    files and links that could name any place: none follows from them but the virtual environment that they are in, and
    the interpreters of packages (this Python, and those of `PATH`), whatever the files say.
    """
    named = path if is_alone else None
    is_alone = is_alone and _environment_of(path, foreign) is None
    waiting, seen = [path], set[str]()
    while waiting:
        found = waiting.pop()
        # "#!./sh" is looked for wherever the program happens to be.
        if found in seen or not os.path.isabs(found):
            continue
        seen.add(found)
        real = os.path.realpath(found)
        is_foreign = is_in(foreign, found)
        if is_foreign and found != named:
            yield sys.base_prefix
            waiting += _interpreters_of_packages(foreign)
        else:
            waiting += [real, *interpreters_of(real)]
            yield from _around(real, found, foreign, is_alone=is_alone and real == os.path.realpath(path))
        if (is_foreign or found == path) and (environment := _environment_of(found, foreign)) is not None:
            yield environment


class Places(tuple[str, ...]):
    """Directories as they are spelled, and where their links lead: for many questions about the same ones (`is_in`)."""

    __slots__ = ()

    @classmethod
    def of(cls, directories: Iterable[str]) -> Places:
        """The same, if they are some already."""
        if isinstance(directories, cls):
            return directories
        return cls(dict.fromkeys(one for place in directories for one in (place, os.path.realpath(place))))

    def hold(self, path: str) -> bool:
        """True if a path is in one of them as it is spelled."""
        return any(path == one or path.startswith(one if one.endswith("/") else f"{one}/") for one in self)


def is_in(directories: Sequence[str], path: str) -> bool:
    """True if a path is in one of some directories, as it is spelled or where its links lead."""
    normal, places = os.path.normpath(path), Places.of(directories)
    return places.hold(normal) or places.hold(os.path.realpath(path))


def _around(real: str, found: str, foreign: Sequence[str], *, is_alone: bool) -> Iterator[str]:
    directory, home = Path(os.path.realpath(os.path.dirname(found))), Path(os.path.realpath(Path.home()))
    around = directory.parent
    holds_more = around in (home, Path("/")) or any(is_in([str(around)], one) for one in foreign)
    if is_alone or directory.name not in _BIN or holds_more or is_in(foreign, str(around)):
        yield real
    elif around.parent == home:  # such as ~/.local, which has other things, too
        yield from map(str, (directory, around / "lib"))
    else:
        yield str(around)


def _environment_of(path: str, foreign: Sequence[str]) -> str | None:
    """The virtual environment whose `bin` has a program; none that a link in a foreign directory leads out to."""
    place = os.path.dirname(os.path.realpath(os.path.dirname(path)))
    is_led_out = is_in(foreign, path) and not is_in(foreign, place)
    is_one = os.path.isfile(f"{place}/pyvenv.cfg") and not any(is_in([place], one) for one in foreign)
    return place if is_one and not is_led_out else None


def _interpreters_of_packages(foreign: Sequence[str]) -> Iterator[str]:
    """Those that `PATH` has outside of the foreign directories."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    path = os.pathsep.join(place for place in places if os.path.isabs(place) and not is_in(foreign, place))
    return filter(None, (shutil.which(name, path=path) for name in _INTERPRETERS))


def interpreters_of(path: str) -> Iterator[str]:
    """Interpreters that the first line of a script names."""
    try:
        with Path(path).open("rb") as file:
            first = file.readline(4096)
    except OSError:
        return
    if first.startswith(b"#!"):
        words = os.fsdecode(first[2:]).split()
        yield from words[:1]
        if len(words) > 1 and words[0].endswith("/env") and (found := shutil.which(words[1])):
            yield found


def readable_place(path: Path, name: str) -> str:
    """The absolute path of what programs may read besides. Raises `INVALID_ARGUMENT` if more than that is in it.

    `name` is how messages call it.
    """
    place = Path(os.path.normpath(path.absolute()))
    for own in (str(Path.home()), *own_directories()):
        if Path(os.path.realpath(own)).is_relative_to(place.resolve()):
            fact = f"{name}: {place} contains {own}, which no program may read"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice="Name what programs need in it.")
    return str(place)


def environment_of(home: Path) -> dict[str, str]:
    """Environment of every program: nothing of the runner's but where programs are."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
