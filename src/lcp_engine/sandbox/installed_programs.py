"""Find a program, the places it needs to run, and the environment that it is given."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.own_places import own_directories

_BIN = frozenset({"bin", "sbin", "shims"})


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
    return found


def places_of(path: str, *, is_alone: bool = False) -> Iterator[str]:
    """Where a program and its interpreter are installed: the directories around `bin`, else the files alone.

    Of a program that `is_alone`, only its file, wherever it is, unless it is the Python of a virtual environment.
    """
    is_alone = is_alone and not Path(path).parent.with_name("pyvenv.cfg").is_file()
    waiting, seen = [path], set[str]()
    while waiting:
        found = waiting.pop()
        if found in seen or "/" not in found:
            continue
        seen.add(found)
        real = os.path.realpath(found)
        waiting += [real, *_interpreter(real)]
        directory, home = Path(found).parent, Path.home()
        around = directory.parent
        itself = is_alone and real == os.path.realpath(path)
        if itself or directory.name not in _BIN or around in (home, Path("/")):
            yield found
        elif around.parent == home:  # such as ~/.local, which has other things, too
            yield from map(str, (directory, around / "lib"))
        else:
            yield str(around)


def _interpreter(path: str) -> Iterator[str]:
    """What the first line of a script names."""
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
        if Path(own).is_relative_to(place.resolve()):
            fact = f"{name}: {place} contains {own}, which no program may read"
            raise LcpError(ErrorCode.INVALID_ARGUMENT, fact, advice="Name what programs need in it.")
    return str(place)


def environment_of(home: Path) -> dict[str, str]:
    """What every program finds in its environment: nothing of the runner's but where programs are."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "TMPDIR": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
