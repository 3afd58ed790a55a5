"""Roots for file jobs; each test runs with both ways to resolve a path."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.syscalls import has_openat2


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A root directory with a neighbour that must never be reached."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("CANARY\n")
    inside = tmp_path / "root"
    (inside / "src" / "sub").mkdir(parents=True)
    (inside / "a.txt").write_text("hello\n")
    (inside / "src" / "main.py").write_text("print(1)\n")
    return inside


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_by_others() -> None:
    """What tests before left to be collected would be closed while descriptors are counted here."""
    gc.collect()


@pytest.fixture(params=[True, False], ids=["openat2", "walk"])
def root(place: Path, request: pytest.FixtureRequest) -> Iterator[Root]:
    if request.param and not has_openat2():
        pytest.skip("this kernel has no openat2")
    before = open_descriptors()
    with Root(place, kernel=request.param) as opened:
        yield opened
    assert open_descriptors() == before, "a descriptor was left open"


@pytest.fixture
def swapping(place: Path) -> Iterator[None]:
    """While the test runs, `d` is a directory at one moment and a link out of the root at the next."""
    (place / "d").mkdir()
    (place / "d" / "secret.txt").write_text("in\n")
    (place / "d.alt").symlink_to("../outside")
    exchange, stop = ctypes.CDLL(None).renameat2, threading.Event()
    one, other = os.fsencode(place / "d"), os.fsencode(place / "d.alt")

    def swap() -> None:
        # Each state lasts long enough that a job can also succeed: a test in which all are refused shows nothing.
        while not stop.wait(0.001):
            exchange(_CURRENT_DIRECTORY, one, _CURRENT_DIRECTORY, other, _EXCHANGE)

    swapper = threading.Thread(target=swap)
    swapper.start()
    yield
    stop.set()
    swapper.join()


_CURRENT_DIRECTORY = -100
_EXCHANGE = 2


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
