"""Each file of a batch that is sent to a confined process has the full timeout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lcp_engine.errors import ErrorCode
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.runner.confined.process import FILE_KINDS, Spawner
from lcp_engine.sandbox.atomic_write import LockedFile, temporary_name
from lcp_engine.sandbox.file_access import FileAccess, Interrupted
from lcp_engine.sandbox.locks import Put
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps

SECONDS = 1.0
"""More than one file takes, less than all files take."""


@pytest.fixture
def files() -> Iterator[FileAccess]:
    spawned_by = Spawner({**FILE_KINDS, "slow": "slow_disk:SLOW"}, [str(Path(__file__).parent)])
    confinement = Confinement(Caps(), spawned_by)
    yield confinement.files(SECONDS)
    confinement.close()
    spawned_by.close()


def _put(files: FileAccess, root: Root, *contents: bytes) -> list[int]:
    """Puts files in one batch; the places of those that were turned to."""
    turned: list[int] = []
    with files.lock([(root, f"{nth}.txt") for nth in range(len(contents))]) as batch:
        targets = [target for target in batch.found if isinstance(target, LockedFile)]
        puts = [Put(target, data, temporary_name()) for target, data in zip(targets, contents, strict=True)]
        assert batch.put(puts, turned.append) == [None] * len(contents)
    return turned


def test_each_file_of_a_batch_has_its_own_time(files: FileAccess, root: Root, place: Path) -> None:
    turned = _put(files, root, *[b"slow"] * 6)
    assert turned[:6] == list(range(6))
    assert [(place / f"{nth}.txt").read_bytes() for nth in range(6)] == [b"slow"] * 6


def test_a_file_that_takes_too_long_is_given_up(files: FileAccess, root: Root) -> None:
    with pytest.raises(Interrupted) as late:
        _put(files, root, b"slow", b"very slow")
    assert late.value.code is ErrorCode.TIMEOUT
