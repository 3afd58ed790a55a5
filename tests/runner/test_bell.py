"""Whoever listens hears the next ring, however shortly before it began to listen."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lcp_engine.wake import DatagramBell


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


def test_a_listener_that_has_just_come_hears_the_next_ring(here: DatagramBell, other: DatagramBell) -> None:
    for number in range(50):
        here.ring()  # who listens is known now
        heard = threading.Event()
        end_listening = other.listen(f"runner{number}", heard.set)
        here.ring()
        assert heard.wait(10)
        end_listening()


def test_a_ring_passes_over_a_listener_that_is_gone(
    here: DatagramBell, other: DatagramBell, directory: Path
) -> None:
    other.listen("gone", lambda: None)()
    heard = threading.Event()
    end_listening = other.listen("there", heard.set)
    (directory / "left.sock").touch()
    here.ring()
    assert heard.wait(10)
    end_listening()
