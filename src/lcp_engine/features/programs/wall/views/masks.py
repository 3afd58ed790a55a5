"""Hide from a command what it may not see: whiteouts of overlayfs above the root."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from lcp_engine.core.json_values import JsonValue
from lcp_engine.core.paths.patterns import compile_rule
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.sandbox.directories import remove_tree
from lcp_engine.sandbox.reading.list_tree import PRUNED, is_text
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.database_files import OWN_FILES

MOST_NAMES = 2_000_000
MOST_MASKS = 100_000
LONGEST = 2_000
"""Characters of the path of a directory; one with a longer path is hidden as a whole."""
_PASSES = 4
"""How often a root that changes while it is looked through is looked through again."""
_COARSE = 2_100_000_000
"""Nanoseconds in which two changes of a directory may have the same time (FAT counts in steps of 2 s)."""
_FORMAT = 1
_KEPT = "seen"
_GENERATION = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Rights:
    """Paths of a root that a command may see.

    `may_read` says of a path, relative to the root, with "/" at the end of a directory, whether a job of the mission
    may read it without a person; `opened` are files that are shown whatever it says. `policy` is a text that differs
    whenever `may_read` may answer otherwise. The root's own `.git` is hidden unless `shows_git`.
    """

    may_read: Callable[[str], bool]
    policy: str
    opened: frozenset[str] = frozenset()
    shows_git: bool = False

    def may_see(self, path: str) -> bool:
        """True if a path may be seen; of a name that is not UTF-8 each reading counts."""
        if path in self.opened:
            return True
        if path.isascii() or is_text(path):
            return self.may_read(path)
        raw = os.fsencode(path)
        return self.may_read(raw.decode(errors="replace")) and self.may_read(raw.decode("latin-1"))

    def key(self, root: Root) -> str:
        """A hash of all that decides besides the root."""
        text = repr((_FORMAT, root.path, self.policy, sorted(self.opened), self.shows_git))
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


@dataclass(frozen=True)
class Masks:
    """Paths that are hidden, and the directory with the whiteouts, a layer above the root.

    A directory ends in "/", and all beneath it is hidden with it.
    """

    directory: str
    masked: frozenset[str]

    def is_masked(self, path: str) -> bool:
        """True if a path, relative to the root, is hidden: no change there is one of the root."""
        parts = path.rstrip("/").split("/")
        steps = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return any(step in self.masked or f"{step}/" in self.masked for step in steps)

    def has_masked(self, directory: str) -> bool:
        """True if something hidden lies beneath a directory, which is not to be removed with it."""
        return directory.rstrip("/") in self._above

    @cached_property
    def _above(self) -> frozenset[str]:
        """Every directory above something hidden; "" is the root."""
        parts = (path.rstrip("/").split("/")[:-1] for path in self.masked)
        return frozenset("/".join(some[:count]) for some in parts for count in range(len(some) + 1))


def opened(shown: Sequence[str], tracked: Collection[str], may_show: Callable[[str], bool]) -> frozenset[str]:
    """The files that `commands.show` of a mission opens: of those that git tracks, and that only their names deny.

    `may_show` says whether a job of the mission could read a file if its name were not one that secrets have
    (`Policy.apart_from_secrets`). Raises `LcpError` INVALID_PATTERN.
    """
    if not shown:
        return frozenset()
    patterns = compile_rule(tuple(shown), grants=True)
    return frozenset(path for path in tracked if patterns.matches(path) and may_show(path))


@contextmanager
def make_masks(root: Root, place: Path, rights: Rights) -> Iterator[Masks]:
    """The masks of a root, whose directory stays as it is until the end; `place` is kept from command to command.

    Raises OSError, and `TOO_LARGE` for a root with more than `MOST_NAMES` names, or `MOST_MASKS` that are hidden.
    """
    place.mkdir(mode=0o700, exist_ok=True)
    walk = _Walk(root, rights, _unpacked(load(place / _KEPT, rights.key(root))))
    tree: Tree | None = None
    if walk.run() or not (place / walk.seen.generation).is_dir():
        tree = _tree(root, walk.hidden())
        walk.seen.generation = digest(tree)
        save(place / _KEPT, rights.key(root), _packed(walk.seen))
    with kept_layer(place, walk.seen.generation, lambda: tree or _tree(root, walk.seen.hidden)) as directory:
        yield Masks(directory, frozenset(walk.seen.hidden))


def hidden_in(root: Root, rights: Rights) -> frozenset[str]:
    """Paths of a root that a command may not see, other names of hidden files among them; as `Masks.masked`.

    Raises `TOO_LARGE` like `make_masks`.
    """
    walk = _Walk(root, rights, _Seen())
    walk.run()
    return frozenset(walk.hidden())


@contextmanager
def kept_layer(place: Path, generation: str, tree: Callable[[], Tree]) -> Iterator[str]:
    """The layer `generation` in `place`, made if it is missing, and those removed that no command uses. Raises OSError.

    Under a mounted overlay nothing may change: each layer stays as it was made.
    """
    lock = _locked(place, generation, tree)
    try:
        _sweep(place, generation)
        yield str(place / generation)
    finally:
        os.close(lock)


class _Special(NamedTuple):
    """A directory in which something is hidden, or of which nothing may be seen (`denied`) but what is `readable`."""

    denied: bool
    readable: bool
    names: list[str]
    links: list[tuple[str, int]]
    """Names of files that may be hard links to hidden ones, with their inodes."""


_PLAIN = _Special(denied=False, readable=True, names=[], links=[])
_CLOSED = _Special(denied=True, readable=False, names=[], links=[])
_Stamp = tuple[int, int, int, int]
"""Time of change of a directory and of its inode, its inode, and how many names are in it."""


@dataclass
class _Seen:
    """All directories of a root as they were seen last."""

    stamps: dict[str, _Stamp] = field(default_factory=dict)
    special: dict[str, _Special] = field(default_factory=dict)
    inodes: frozenset[int] = frozenset()
    """Inodes whose other names were looked for."""
    hidden: list[str] = field(default_factory=list)
    generation: str = ""


class _Walk:
    """Looks through the directories of a root that have changed since they were seen last."""

    def __init__(self, root: Root, rights: Rights, seen: _Seen) -> None:
        self.root, self.rights, self.seen = root, rights, seen
        self._names = sum(stamp[3] for stamp in seen.stamps.values())
        self._racy: set[str] = set()

    def run(self) -> bool:
        """Bring what was seen up to date; returns whether anything is to be made anew."""
        seen, any_change = self.seen, not self.seen.generation
        for _ in range(_PASSES):
            changed = self._changed() if seen.stamps else [""]
            wanted = self._linked_inodes()
            if wanted - seen.inodes:
                changed = [*dict.fromkeys(("", *seen.stamps))]
            if not changed:
                break
            seen.inodes = wanted
            before = (dict(seen.special), len(seen.stamps))
            self._look(changed)
            any_change = True
            if before == (seen.special, len(seen.stamps)) and not self._linked_inodes() - seen.inodes:
                break
        for path in self._racy & seen.stamps.keys():  # may change again without another time
            seen.stamps[path] = (0, 0, *seen.stamps[path][2:])
        return any_change

    def hidden(self) -> list[str]:
        """Everything that is hidden, sorted; nothing beneath a directory that is hidden as a whole."""
        seen, linked = self.seen, self._linked_inodes()
        whole = self._whole()
        found = {f"{path}/" for path in whole}
        for directory, special in seen.special.items():
            prefix = f"{directory}/" if directory else ""
            found.update(prefix + name for name in special.names)
            links = (prefix + name for name, inode in special.links if inode in linked)
            found.update(path for path in links if self._is_linked(path))
        seen.hidden = sorted(path for path in found if not any(one in whole for one in _above(path)))
        if len(seen.hidden) > MOST_MASKS:
            raise _too_large(f"{len(seen.hidden):,} files that commands may not see", MOST_MASKS)
        return seen.hidden

    def _changed(self) -> list[str]:
        descriptor, found = self.root.descriptor, []
        for path, stamp in self.seen.stamps.items():
            try:
                status = os.stat(path or ".", dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                found.append(path)
                continue
            if (status.st_mtime_ns, status.st_ctime_ns, status.st_ino) != stamp[:3]:
                found.append(path)
        return found

    def _linked_inodes(self) -> frozenset[int]:
        """Inodes of hidden files that have other names, and of the engine's own files."""
        found = set(OWN_FILES.inodes)
        for directory, special in self.seen.special.items():
            for name in special.names:
                path = f"{directory}/{name}" if directory else name
                with suppress(OSError):
                    status = os.stat(path, dir_fd=self.root.descriptor, follow_symlinks=False)
                    if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                        found.add(status.st_ino)
        return frozenset(found)

    def _is_linked(self, path: str) -> bool:
        """True for another name of a hidden file or of one of the engine's own, as devices may number alike."""
        with suppress(OSError):
            status = os.stat(path, dir_fd=self.root.descriptor, follow_symlinks=False)
            if status.st_ino not in OWN_FILES.inodes:
                return True
            try:
                OWN_FILES.refuse(status, path)
            except LcpError:
                return True
        return False

    def _look(self, waiting: list[str]) -> None:
        """Look into directories, and into those in them that were not seen before."""
        stamps, seen, done = self.seen.stamps, self.seen, set[str]()
        waiting.reverse()
        listed: dict[str, set[str]] = {}
        while waiting:
            path = waiting.pop()
            if path in done:
                continue
            done.add(path)
            self._names -= stamps.pop(path, _NEVER)[3]
            seen.special.pop(path, None)
            inner = self._list(path)
            if inner is not None:
                listed[path] = inner
                waiting += sorted(one for one in inner if one not in stamps and one not in done)
        if listed:
            self._forget(listed)

    def _forget(self, listed: Mapping[str, set[str]]) -> None:
        """Forget directories that are no longer there."""
        kept: dict[str, _Stamp] = {}
        for path, stamp in sorted(self.seen.stamps.items()):
            above = path.rpartition("/")[0]
            if not path or (above in kept and path in listed.get(above, (path,))):
                kept[path] = stamp
            else:
                self._names -= stamp[3]
                self.seen.special.pop(path, None)
        self.seen.stamps = kept

    def _list(self, path: str) -> set[str] | None:
        """Look into one directory; the directories in it, None if it is gone or cannot be looked into."""
        try:
            if len(path) > LONGEST:
                raise PermissionError
            descriptor = self.root.open_directory(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self._close(path)
            return None
        try:
            began, status = time.time_ns(), os.fstat(descriptor)
            inner, count = self._entries(descriptor, path)
        except OSError:
            self._close(path)
            return None
        finally:
            os.close(descriptor)
        if max(status.st_mtime_ns, status.st_ctime_ns) > began - _COARSE:
            self._racy.add(path)
        self.seen.stamps[path] = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, count)
        self._names += count
        if self._names > MOST_NAMES:
            raise _too_large(f"more than {MOST_NAMES:,} files and directories", MOST_NAMES)
        return inner

    def _close(self, path: str) -> None:
        """Hide a directory that cannot be listed here: a command, whose user owns it, could open it."""
        if not path:
            message = (
                f"{self.root.path!r} cannot be listed by this user, so that secrets in it would not be found"
            )
            raise LcpError(
                ErrorCode.PATH_DENIED, message, advice="Give the runner's user access to the root."
            )
        self.seen.stamps[path], self.seen.special[path] = _NEVER, _CLOSED
        with suppress(OSError):
            status = os.stat(path, dir_fd=self.root.descriptor, follow_symlinks=False)
            self.seen.stamps[path] = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, 0)

    def _entries(self, descriptor: int, path: str) -> tuple[set[str], int]:
        may_see, wanted = self.rights.may_see, self.seen.inodes
        prefix = f"{path}/" if path else ""
        count, readable = 0, False
        names: list[str] = []
        links: list[tuple[str, int]] = []
        inner: set[str] = set()
        with os.scandir(descriptor) as entries:
            for entry in entries:
                count += 1
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if name not in PRUNED:
                        inner.add(prefix + name)
                    elif path or name != ".git" or not self.rights.shows_git:
                        names.append(f"{name}/")
                elif not may_see(prefix + name) and (path or name != ".git" or not self.rights.shows_git):
                    names.append(name)
                else:
                    readable = True
                    if wanted and entry.inode() in wanted:
                        links.append((name, entry.inode()))
        denied = bool(path) and not any(may_see(prefix + name) for name in _PROBES)
        if names or links or denied:
            self.seen.special[path] = _Special(denied, readable, names, links)
        return inner, count

    def _whole(self) -> set[str]:
        """Directories that are hidden as a whole: they are denied, and nothing in them may be seen."""
        denied = [path for path, special in self.seen.special.items() if special.denied]
        if not denied:
            return set()
        whole, inner = set(denied), dict[str, list[str]]()
        for path in self.seen.stamps:
            inner.setdefault(path.rpartition("/")[0], []).append(path)
        for path in sorted(denied, reverse=True):
            if self.seen.special[path].readable or not all(one in whole for one in inner.get(path, ())):
                whole.discard(path)
        return whole


_NEVER: _Stamp = (0, 0, 0, 0)
_PROBES = ("x", "y.0")
"""Names that no pattern is about: where they are denied, everything beneath the directory is."""


def _above(path: str) -> Iterator[str]:
    at = path.find("/")
    while -1 < at < len(path) - 1:
        yield path[:at]
        at = path.find("/", at + 1)


def _too_large(fact: str, most: int) -> LcpError:
    message = f"the root has {fact}; commands are run over one with at most {most:,}"
    return LcpError(ErrorCode.TOO_LARGE, message, advice="Use a smaller directory as the root.")


Tree = dict[str, tuple[int, int, int] | bytes | None]
"""Mode, user and group of each directory; the content of a file; None for a whiteout."""


def _tree(root: Root, hidden: Iterable[str]) -> Tree:
    """Whiteouts, in directories as they are in the root: the topmost one of an overlay is the one that is seen."""
    tree: Tree = {"": mode_of(root, "")}
    for path in hidden:
        for above in _above(path):
            if above not in tree:
                tree[above] = mode_of(root, above)
        tree[path.rstrip("/")] = None
    return tree


def mode_of(root: Root, path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path or ".", dir_fd=root.descriptor, follow_symlinks=False)
    except OSError:  # it is gone
        return (0o700, os.getuid(), os.getgid())
    return (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid)


def digest(tree: Tree) -> str:
    return hashlib.sha256(repr(sorted(tree.items())).encode(errors="surrogateescape")).hexdigest()[:32]


def _locked(place: Path, generation: str, tree: Callable[[], Tree]) -> int:
    """The directory of whiteouts, locked against `_sweep` and made if it is missing."""
    while True:
        with suppress(FileNotFoundError):
            lock = os.open(place / generation, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(lock, fcntl.LOCK_SH)
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)
        new = place / f"new-{uuid4().hex}"
        try:
            _make_layer(new, tree())
            new.rename(place / generation)
        except OSError:
            remove_tree(new)
            if not (place / generation).is_dir():  # else another process made it
                raise


def _make_layer(new: Path, tree: Tree) -> None:
    directories = [(path, mode) for path, mode in sorted(tree.items()) if isinstance(mode, tuple)]
    for path, _ in directories:
        os.mkdir(new / path, 0o700)
    for path, there in tree.items():
        if there is None:  # an ordinary user may make this one device (Linux 5.8)
            os.mknod(new / path, stat.S_IFCHR, os.makedev(0, 0))
        elif isinstance(there, bytes):
            (new / path).write_bytes(there)
            os.chmod(new / path, 0o444)
    for path, (mode, user, group) in reversed(directories):
        if (user, group) != (os.getuid(), os.getgid()):
            with suppress(PermissionError):
                os.chown(new / path, user, group)
        os.chmod(new / path, mode)


def _sweep(place: Path, generation: str) -> None:
    """Remove directories of whiteouts that no command uses: under a mounted overlay nothing may change."""
    for name in os.listdir(place):
        if name == generation or _GENERATION.fullmatch(name) is None:
            continue
        with suppress(OSError):
            lock = os.open(place / name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(place / name)
            finally:
                os.close(lock)


def save(place: Path, key: str, body: bytes) -> None:
    """Write what was seen, whole or not at all, for `load` with the same key."""
    new = place.with_name(f"new-{uuid4().hex}")
    new.write_bytes(b"".join((key.encode(), hashlib.sha256(body).hexdigest().encode(), body)))
    new.replace(place)


def load(place: Path, key: str) -> bytes | None:
    """Read what was saved; None if there is nothing, it is damaged, or its key is another one."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    body = data[2 * len(key) :]
    return body if data[: 2 * len(key)] == f"{key}{hashlib.sha256(body).hexdigest()}".encode() else None


def _packed(seen: _Seen) -> bytes:
    stamps = array("Q", (value % 2**64 for stamp in seen.stamps.values() for value in stamp)).tobytes()
    paths = "\0".join(seen.stamps).encode(errors="surrogateescape")
    special = {path: list(one) for path, one in seen.special.items()}
    head = json.dumps([special, sorted(seen.inodes), seen.hidden, seen.generation, len(stamps)])
    return b"".join((head.encode(), b"\n", stamps, paths))


def _unpacked(body: bytes | None) -> _Seen:
    if body is None:
        return _Seen()
    head, _, rest = body.partition(b"\n")
    return _read(json.loads(head), rest)


def _read(head: JsonValue, rest: bytes) -> _Seen:
    match head:
        case [dict(special), list(inodes), list(hidden), str(generation), int(size)]:
            stamps = array("Q", rest[:size])
            paths = rest[size:].decode(errors="surrogateescape").split("\0")
            values = iter(stamps)
            return _Seen(
                dict(zip(paths, zip(values, values, values, values, strict=True), strict=True)),
                {path: _special(one) for path, one in special.items()},
                frozenset(inode for inode in inodes if isinstance(inode, int)),
                [path for path in hidden if isinstance(path, str)],
                generation,
            )
    return _Seen()


def _special(value: JsonValue) -> _Special:
    match value:
        case [bool(denied), bool(readable), list(names), list(links)]:
            pairs = [(str(link[0]), int(str(link[1]))) for link in links if isinstance(link, list)]
            return _Special(denied, readable, [str(name) for name in names], pairs)
    return _CLOSED
