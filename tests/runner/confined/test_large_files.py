"""Only the requested part of a file above the cap is in memory, here and in a confined process."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from lcp_engine.core.policy import Policy
from lcp_engine.engine.outcome import Succeeded
from lcp_engine.errors import ErrorCode, Failed, LcpError
from lcp_engine.runner.confined.pool import Confinement
from lcp_engine.sandbox.root import Root
from lcp_engine.workers.base import Caps, Context
from lcp_engine.workers.read_file import WORKER

GIGABYTE = 1_000_000_000
LINES = 1_000_000
LINE = "a line of a large file, one of many more\n"
SMALL = 16 * 1024 * 1024
Read = Callable[..., "str | ErrorCode"]


@pytest.fixture
def place(place: Path) -> Path:
    with (place / "holes.txt").open("wb") as sparse:
        sparse.truncate(GIGABYTE)
    (place / "lines.txt").write_text(LINE * LINES)
    return place


@pytest.fixture(params=["here", "confined"])
def read(request: pytest.FixtureRequest, root: Root, confinement: Confinement) -> Iterator[Read]:
    """Reads with a cap of 1 MiB, and has to do with little memory."""
    if request.param == "here":
        tracemalloc.start()
        yield lambda **params: _read_here(root, **params)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < SMALL
        return
    do: Callable[..., object] = request.getfixturevalue("do")
    do("read_file", rel_path="a.txt")
    before = _peak(confinement)
    yield lambda **params: _read_there(do, **params)
    assert _peak(confinement) - before < SMALL


def _read_here(root: Root, **given: object) -> str | ErrorCode:
    judge = Policy().for_kind("read_file", has_effects=False, writes=False)
    params = WORKER.params.model_validate(given)
    found = WORKER.execute(params, Context(root, (), judge, Caps(read_bytes=1024 * 1024)))
    if isinstance(found, Failed):
        return found.code
    assert isinstance(found, BaseModel)
    return str(found.model_dump()["content"])


def _read_there(do: Callable[..., object], **params: object) -> str | ErrorCode:
    try:
        found = do("read_file", **params)
    except LcpError as error:
        return error.code
    assert isinstance(found, Succeeded)
    return str(json.loads(found.result)["content"])


def _peak(confinement: Confinement) -> int:
    """The most memory that the reading process ever had, in bytes."""
    ((child, _),) = [(pair.reader, pair.writer) for pair in confinement._pairs.values()]
    assert child is not None
    fields = Path(f"/proc/self/fdinfo/{child._pidfd}").read_text().split()
    status = Path(f"/proc/{fields[fields.index('Pid:') + 1]}/status").read_text().split()
    return int(status[status.index("VmHWM:") + 1]) * 1024


def test_a_file_above_the_cap_is_not_loaded(read: Read) -> None:
    assert read(rel_path="holes.txt") is ErrorCode.TOO_LARGE
    assert read(rel_path="holes.txt", offset=10, limit=3) is ErrorCode.BINARY
    assert read(rel_path="lines.txt") is ErrorCode.TOO_LARGE


def test_some_lines_are_read_in_pieces(read: Read) -> None:
    assert read(rel_path="lines.txt", offset=LINES - 1, limit=3) == LINE
    assert read(rel_path="lines.txt", offset=5, limit=2) == LINE * 2


def test_more_lines_than_the_cap_are_refused(read: Read) -> None:
    assert read(rel_path="lines.txt", offset=5) is ErrorCode.TOO_LARGE
