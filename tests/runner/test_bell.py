"""Whoever listens hears the next ring, however shortly before it began to listen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lcp_engine import Engine
from lcp_engine.store.host.wakeup import DatagramBell, Sleep, make_mark


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")  # a socket's path is short


@pytest.fixture
def here(directory: Path) -> Iterator[DatagramBell]:
    with closing(DatagramBell(directory)) as bell:
        yield bell


@pytest.fixture
def other(directory: Path) -> Iterator[DatagramBell]:
    """The bell of another process."""
    with closing(DatagramBell(directory)) as bell:
        yield bell


def nothing() -> None:
    """Nobody is to be told in this process."""


def test_a_listener_that_has_just_come_hears_the_next_ring(here: DatagramBell, other: DatagramBell) -> None:
    for number in range(50):
        here.ring()  # who listens is known now
        with closing(other.listen(f"runner{number}", nothing)) as ear:
            here.ring()
            ear.listen(None)


def test_a_ring_passes_over_a_listener_that_is_gone(
    here: DatagramBell, other: DatagramBell, directory: Path
) -> None:
    other.listen("gone", nothing).close()
    with closing(other.listen("there", nothing)) as ear:
        (directory / "left.sock").touch()
        here.ring()
        ear.listen(None)


def test_a_socket_that_somebody_has_removed_is_tried_once(
    here: DatagramBell, other: DatagramBell, directory: Path
) -> None:
    mark = make_mark(directory / "listeners")
    assert mark is not None
    with closing(other.listen("dead", nothing)):
        here.ring()
        known = mark.number
        (directory / "dead.sock").unlink()
        here.ring()
        tried = mark.number
        assert tried != known, "whoever knew of it reads the directory again"
        here.ring()
        assert mark.number == tried


def test_a_ring_of_this_process_needs_no_ear(here: DatagramBell) -> None:
    rings: list[int] = []
    with closing(here.listen("runner", lambda: rings.append(1))):
        here.ring()
    here.ring()
    assert rings == [1], "whoever has closed its ear is told no more"


def test_an_ear_hears_what_another_process_has_committed(database_url: str) -> None:
    with (
        Engine(database_url) as here,
        Engine(database_url) as other,
        closing(other.site.bell.listen("runner", nothing)) as ear,
    ):
        ear.listen(0)  # it is connected from here on
        here.enqueue("list_files", {"root": "."})
        ear.listen(None)


def test_who_sleeps_for_longer_than_the_kernel_counts_is_woken() -> None:
    with closing(Sleep()) as sleep:
        sleep.wake()
        assert not sleep.until_readable(None, 40 * 24 * 3600)
