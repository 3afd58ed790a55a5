"""Hold the directories of a batch of files, so that what is done to all of them shares its commits (R20)."""

from __future__ import annotations

import fcntl
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

from lcp_engine.errors import LcpError
from lcp_engine.sandbox.atomic_write import Target, give_up, lock
from lcp_engine.sandbox.root import Root

Held: TypeAlias = "Target | LcpError | None"
"""A file in a directory that is locked, or why it is refused, or None: its turn comes after the others."""


class Put(NamedTuple):
    """What is to be the whole of a file of a batch; `temporary` is the name it has on the way."""

    target: Target
    data: bytes
    temporary: str


class Batch(Protocol):
    """Some files beneath a root; `found` has one `Held` for each path, in their order."""

    @property
    def found(self) -> Sequence[Held]: ...
    def put(self, puts: Sequence[Put], turns_to: Callable[[int], object]) -> list[LcpError | None]:
        """Replaces files durably; for each why that failed. Whether it was replaced all the same its target says.

        `turns_to` is given the place of a file that is turned to.
        """


MOST_DIRECTORIES = 32
"""Each costs a descriptor for as long as the batch lasts."""


@contextmanager
def locked_batch(root: Root, paths: Sequence[str]) -> Iterator[Batch]:
    """The files at `paths`, each as `locked` gives it, with directories made for it gone where it was not written.

    Only the first is waited for, while nothing is held, so that two never wait for each other. Left for later is what
    another one holds, what is in more than `MOST_DIRECTORIES`, and whatever may be the same as a path before it, or
    above or beneath one.
    """
    batch = _Here(root)
    try:
        for path in paths:
            batch.add(path)
        yield batch
    finally:
        batch.release()


class _Here:
    def __init__(self, root: Root) -> None:
        self.found: list[Held] = []
        self._root = root
        self._before: set[str] = set()
        self._above: set[str] = set()
        self._locked: dict[str, int] = {}
        self._made: list[str] = []

    def add(self, path: str) -> None:
        try:
            self.found.append(self._hold(path) if self._is_apart(path) else None)
        except LcpError as error:
            self.found.append(error)

    def put(self, puts: Sequence[Put], turns_to: Callable[[int], object]) -> list[LcpError | None]:
        errors: list[LcpError | None] = []
        for nth, put in enumerate(puts):
            turns_to(nth)
            try:
                put.target.put(put.data, put.temporary)
                errors.append(None)
            except LcpError as error:
                errors.append(error)
        try:
            self._sync(puts, turns_to)
        except LcpError as error:
            return [
                error if put.target.replaced else before for put, before in zip(puts, errors, strict=True)
            ]
        return errors

    def release(self) -> None:
        # A directory may have been made for one file and hold the next one: that one goes first.
        for target in reversed(self._targets()):
            give_up(self._root, target)
        for descriptor in self._locked.values():
            os.close(descriptor)  # and with it goes the lock

    def _is_apart(self, path: str) -> bool:
        """Whether a file is none of those before it, is beneath none, and none is beneath it."""
        alike = _alike(path)
        above = {alike[:at] for at, character in enumerate(alike) if character == "/"}
        is_apart = self._before.isdisjoint({alike, *above}) and alike not in self._above
        self._before.add(alike)
        self._above |= above
        return is_apart

    def _hold(self, path: str) -> Target | None:
        parent = _parent(path)
        if parent not in self._locked and len(self._locked) == MOST_DIRECTORIES:
            return None
        held = lock(self._root, path, lambda directory: self._takes(directory, parent))
        if held is None:
            return None
        descriptor, made = held
        if self._locked.setdefault(parent, descriptor) != descriptor:
            os.close(descriptor)
        self._made += made
        above = tuple(directory for directory in self._made if path.startswith(f"{directory}/"))
        return Target(path, self._locked[parent], above)

    def _takes(self, directory: int, parent: str) -> bool:
        if parent in self._locked:  # unless somebody has put another one in its place
            return os.path.samestat(os.fstat(directory), os.fstat(self._locked[parent]))
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | (fcntl.LOCK_NB if self._locked else 0))
        except BlockingIOError:
            return False
        return True

    def _sync(self, puts: Sequence[Put], turns_to: Callable[[int], object]) -> None:
        """Once for each directory, however many of its files were replaced."""
        replaced = {_parent(target.path): target for target in self._targets() if target.replaced}
        places = {put.target.path: nth for nth, put in enumerate(puts)}
        for target in replaced.values():
            turns_to(places.get(target.path, 0))
            target.sync()

    def _targets(self) -> list[Target]:
        return [held for held in self.found if isinstance(held, Target)]


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _alike(path: str) -> str:
    """The same for paths that a file system may take for the same."""
    return unicodedata.normalize("NFKC", path).casefold()
