"""Turn the names in a job's params into paths relative to the mission's root (R22). Pure.

This is not the safeguard: `root` opens the results, and the kernel confines that.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from lcp_engine.errors import ErrorCode, LcpError

MAX_NAME = 255
MAX_PATH = 4095
MAX_CLIMBS = 100


@dataclass(frozen=True, slots=True)
class Place:
    """A path that a job names: `path` is relative to the mission's root, `shown` to `params.root`; "" is the root.

    In `path` each ".." took away the name before it, as the kernel does unless that is a link: `climbs` are the
    directories that were left so, `named` is the path with its "..". `Root` opens places with regard to that.
    """

    path: str
    shown: str
    is_directory: bool = False
    climbs: tuple[str, ...] = field(default=(), compare=False)
    named: str = field(default="", compare=False)


@dataclass(frozen=True)
class Names:
    """The names of the mission's root: its absolute paths, and aliases such as a Windows path."""

    spellings: tuple[str, ...]
    aliases: tuple[str, ...] = ()

    def place(
        self, *, root: str | None = None, rel_path: str | None = None, path: str | None = None
    ) -> Place:
        """Where `rel_path` (beneath `root`) or `path` (absolute, or beneath `root`) lies. Raises `LcpError`."""
        windows = self._is_windows(root if path is None else path)
        base = self._base(root)
        if rel_path is not None:
            return _beneath(base, _relative(rel_path, windows), rel_path)
        if path is None:
            return _checked(Place(base.path, "", climbs=base.climbs, named=base.named), str(root))
        inner = self._inside(path)
        if inner is None:
            return _beneath(base, _relative(path, windows), path)
        whole = _collapse(inner, path)
        if base.path and not f"{whole.path}/".startswith(f"{base.path}/"):
            raise _outside(path, f"params.root {root!r}")
        shown = whole.path[len(base.path) :].lstrip("/")
        climbs = (*base.climbs, *whole.climbs)
        return _checked(Place(whole.path, shown, _names_directory(inner), climbs, whole.named), path)

    def _base(self, root: str | None) -> _Collapsed:
        """`params.root` relative to the mission's root."""
        if root is None:
            return _Collapsed("")
        inner = self._inside(root)
        return _collapse(_relative(root, self._is_windows(root)) if inner is None else inner, root)

    def relative(self, path: str) -> str:
        """Any spelling of a path, relative to the root if it can be resolved, for policy rules; never raises.

        As in `Place.path` each ".." takes away the name before it.
        """
        inner = self._inside(path)
        kept: list[str] = []
        for part in _split(path, True) if inner is None else inner:
            if part == ".." and kept and kept[-1] != "..":
                kept.pop()
            elif part not in ("", "."):
                kept.append(part)
        return "/".join(kept)

    def _inside(self, path: str) -> list[str] | None:
        """The parts of `path` below a name of the root; None if it does not begin with one."""
        for spelling in self.spellings:
            if (rest := _after(_split(spelling, False), _split(path, False))) is not None:
                return rest
        for alias in self.aliases:
            windows = is_windows(alias)
            ours, theirs = _split(alias, windows), _split(path, windows)
            if windows:
                rest = _after([part.casefold() for part in ours], [part.casefold() for part in theirs])
                rest = rest if rest is None else theirs[len(theirs) - len(rest) :]
            else:
                rest = _after(ours, theirs)
            if rest is not None:
                return rest
        return None

    def _is_windows(self, name: str | None) -> bool:
        """True if a name is a Windows path; a relative one is, if the root has a Windows alias."""
        if name is None or not (is_windows(name) or name.startswith("/")):
            return any(map(is_windows, self.aliases))
        return is_windows(name)


@lru_cache(maxsize=64)
def names_of(spellings: tuple[str, ...], aliases: tuple[str, ...]) -> Names:
    """The same `Names` for the same root: workers need it for every job."""
    return Names(spellings, aliases)


_DRIVE = re.compile(r"[A-Za-z]:(?:[\\/]|\Z)")


def is_windows(path: str) -> bool:
    """True for a path of Windows: with a drive, or of a server."""
    return path.startswith("\\") or _DRIVE.match(path) is not None


def _split(path: str, windows: bool) -> list[str]:
    return (path.replace("\\", "/") if windows else path).split("/")


def _after(prefix: Sequence[str], parts: Sequence[str]) -> list[str] | None:
    """Parts that follow `prefix` in `parts`, empty parts and "." aside; None if it is not a prefix."""
    wanted = [part for part in prefix if part not in ("", ".")]
    absolute = bool(prefix) and prefix[0] == ""
    if absolute != (bool(parts) and parts[0] == ""):
        return None
    index = 0
    for part in wanted:
        while index < len(parts) and parts[index] in ("", "."):
            index += 1
        if index == len(parts) or parts[index] != part:
            return None
        index += 1
    return list(parts[index:])


def _relative(path: str, windows: bool) -> list[str]:
    """The parts of a path that must be relative."""
    if path.startswith("/") or is_windows(path):
        raise _outside(path, "the root and its aliases")
    if ".." in path.replace("\\", "/").split("/") and "\\" in path:
        # On this system "..\\x" is a harmless name, but it was meant as a path upwards.
        raise _outside(path, "the root")
    return _split(path, windows)


class _Collapsed(NamedTuple):
    path: str
    climbs: tuple[str, ...] = ()
    named: str = ""


def _collapse(parts: Sequence[str], shown: str) -> _Collapsed:
    """The parts as a path without "", "." and ".."; a ".." that climbs above the start is refused."""
    kept: list[str] = []
    climbs: dict[str, None] = {}
    for part in parts:
        if part == "..":
            if not kept:
                raise _outside(shown, "the root")
            climbs["/".join(kept)] = None
            kept.pop()
            if len(climbs) > MAX_CLIMBS:
                raise LcpError(
                    ErrorCode.INVALID_PARAMS,
                    f"path {shown[:60]!r}… leaves more than {MAX_CLIMBS} directories by '..'",
                )
        elif part not in ("", "."):
            kept.append(part)
    path = "/".join(kept)
    return _Collapsed(path, tuple(climbs), "/".join(filter(None, parts)) if climbs else path)


def _beneath(base: _Collapsed, parts: Sequence[str], shown: str) -> Place:
    inner = _collapse(parts, shown)
    whole, named = _joined(base.path, inner.path), _joined(base.named, inner.named)
    climbs = (*base.climbs, *(_joined(base.path, climb) for climb in inner.climbs))
    return _checked(Place(whole, inner.path, _names_directory(parts), climbs, named), shown)


def _joined(base: str, inner: str) -> str:
    return f"{base}/{inner}" if base and inner else base or inner


def _names_directory(parts: Sequence[str]) -> bool:
    return not parts or parts[-1] in ("", ".", "..")


def _checked(place: Place, shown: str) -> Place:
    if "\0" in place.path:
        raise LcpError(ErrorCode.INVALID_PARAMS, f"path {shown!r} holds a NUL")
    try:
        encoded = place.path.encode()
    except UnicodeEncodeError as error:
        raise LcpError(ErrorCode.INVALID_PARAMS, f"path {shown!r} holds half a surrogate pair") from error
    if len(encoded) > MAX_PATH or (len(encoded) > MAX_NAME and max(map(len, encoded.split(b"/"))) > MAX_NAME):
        raise LcpError(
            ErrorCode.INVALID_PARAMS,
            f"path {shown[:60]!r}… is too long: a path has at most {MAX_PATH} bytes, a name {MAX_NAME}",
        )
    return place


def _outside(path: str, expected: str) -> LcpError:
    return LcpError(ErrorCode.PATH_OUTSIDE_ROOT, f"path {path!r} is not beneath {expected}")
