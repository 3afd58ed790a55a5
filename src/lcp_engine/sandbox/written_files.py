"""Compare files as they were left with what is on the disk now (R9)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from lcp_engine.core.paths.change_history import DiskState
from lcp_engine.errors import LcpError
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.root_identity import KnownRoot, open_known

_CHUNK = 1 << 20
_STATES = {"PATH_NOT_FOUND": DiskState.GONE, "NOT_A_FILE": DiskState.CHANGED}
T = TypeVar("T")


class Written(NamedTuple):
    """A file as a job left it."""

    path: str
    size_bytes: int | None
    sha256: str | None


class ReadBeneath(Protocol):
    """Calls a function that only reads beneath a root, and returns its result."""

    def __call__(self, root: Root, work: Callable[[], T], /) -> T: ...


def on_disk(
    files: Sequence[Written], known: KnownRoot, read_beneath: ReadBeneath
) -> dict[str, DiskState | None]:
    """The state of files beneath a root, by their paths; empty if the root is not here, or is another now."""
    try:
        root = open_known(known)
    except LcpError:
        return {}
    with root:
        return read_beneath(root, partial(_states, root, files))


def _states(root: Root, files: Sequence[Written]) -> dict[str, DiskState | None]:
    return {file.path: _state(root, file) for file in files}


def _state(root: Root, file: Written) -> DiskState | None:
    """A file that was removed is as it was left if there is none."""
    state = _state_of_file(root, file)
    if file.sha256 is not None or state is None:
        return state
    return DiskState.AS_WRITTEN if state is DiskState.GONE else DiskState.CHANGED


def _state_of_file(root: Root, file: Written) -> DiskState | None:
    if file.path.endswith("/"):
        return _state_of_directory(root, file.path)
    try:
        opened = root.open_file(file.path)
    except LcpError as error:
        return _STATES.get(error.code)
    try:
        if opened.size != file.size_bytes:
            return DiskState.CHANGED
        return DiskState.AS_WRITTEN if _hash(opened.descriptor) == file.sha256 else DiskState.CHANGED
    except OSError:
        return None
    finally:
        os.close(opened.descriptor)


def _state_of_directory(root: Root, path: str) -> DiskState:
    try:
        os.close(root.open_directory(path.removesuffix("/")))
    except FileNotFoundError:
        return DiskState.GONE
    except OSError:
        return DiskState.CHANGED
    return DiskState.AS_WRITTEN


def _hash(descriptor: int) -> str:
    found = hashlib.sha256()
    while chunk := os.read(descriptor, _CHUNK):
        found.update(chunk)
    return found.hexdigest()
