"""Hold the directories of a batch of files, so that what is done to all of them shares its commits (R20)."""

from __future__ import annotations

import fcntl
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Protocol, TypeAlias

from lcp_engine.errors import LcpError
from lcp_engine.sandbox.replace import Target, give_up, lock
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


@contextmanager
def locked_batch(root: Root, paths: Sequence[str]) -> Iterator[Batch]:
    """The files at `paths`, each as `locked` gives it, with directories made for it gone where it was not written.

    Only the first is waited for, while nothing is held, so that two never wait for each other. Left for later is
    what another one holds, and what may be the same file as one before it.
    """
    batch = _Here(root)
    try:
        for path in paths:
            batch.add(path)
        yield batch
    finally:
        batch.release()


_Directory: TypeAlias = "tuple[int, int]"
"""Its device and inode numbers."""


class _Here:
    def __init__(self, root: Root) -> None:
        self.found: list[Held] = []
        self._root = root
        self._names: dict[_Directory, set[str]] = {}
        self._targets: list[tuple[Target, int, _Directory]] = []

    def add(self, path: str) -> None:
        name = _alike(path.rpartition("/")[2])
        where: list[_Directory] = []

        def takes(directory: int) -> bool:
            status = os.fstat(directory)
            where.append((status.st_dev, status.st_ino))
            return self._takes(directory, where[-1], name)

        try:
            held = lock(self._root, path, takes)
        except LcpError as error:
            self.found.append(error)
            return
        self.found.append(None if held is None else held[0])
        if held is not None:
            self._targets.append((*held, where[-1]))
            self._names.setdefault(where[-1], set()).add(name)

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
        for target, descriptor, _ in reversed(self._targets):
            give_up(self._root, target)
            os.close(descriptor)  # and with it goes the lock

    def _sync(self, puts: Sequence[Put], turns_to: Callable[[int], object]) -> None:
        """Once for each directory, however many of its files were replaced."""
        replaced = {directory: target for target, _, directory in self._targets if target.replaced}
        places = {put.target.path: nth for nth, put in enumerate(puts)}
        for target in replaced.values():
            turns_to(places.get(target.path, 0))
            target.sync()

    def _takes(self, directory: int, key: _Directory, name: str) -> bool:
        if key in self._names:  # its lock is that of another descriptor here
            return name not in self._names[key]
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | (fcntl.LOCK_NB if self._names else 0))
        except BlockingIOError:
            return False
        return True


def _alike(name: str) -> str:
    """The same for names that a file system may take for the same."""
    return unicodedata.normalize("NFKC", name).casefold()
