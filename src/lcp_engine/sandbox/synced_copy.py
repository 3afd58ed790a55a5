"""Make a private copy of a root durable, once, before a change in it is recorded."""

from __future__ import annotations

import os
from pathlib import Path

from lcp_engine.sandbox.root import Root, refusal
from lcp_engine.sandbox.system.syscalls import sync_file_system


def sync_copy(copy: Root) -> None:
    """Make the copy durable unless it is already. Raises `FILE_SYSTEM`."""
    marker = marker_of(Path(copy.path))
    if marker.exists():
        return
    try:
        sync_file_system(copy.descriptor)
        marker.touch()
        directory = os.open(marker.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    except OSError as error:
        raise refusal(error, copy.path) from error


def marker_of(copy: Path) -> Path:
    """A file beside all copies that is there once this one is durable."""
    return copy.parent.parent / f".synced-{copy.name}"
