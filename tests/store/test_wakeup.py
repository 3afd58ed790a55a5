"""A listener gets the next signal, however shortly before it began to listen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from lcp_engine import Engine
from lcp_engine.store.host.wakeup import DatagramNotifier, GenerationCounter, WakeablePoll, open_counter

ADVANCE = (
    "import sys; from pathlib import Path; from lcp_engine.store.host.wakeup import GenerationCounter; "
    "GenerationCounter(Path(sys.argv[1])).advance()"
)


@pytest.fixture
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("b")  # a socket's path is short


@pytest.fixture
def here(directory: Path) -> Iterator[DatagramNotifier]:
    with closing(DatagramNotifier(directory)) as notifier:
        yield notifier


@pytest.fixture
def other(directory: Path) -> Iterator[DatagramNotifier]:
    """The notifier of another process."""
    with closing(DatagramNotifier(directory)) as notifier:
        yield notifier


def nothing() -> None:
    """No thread of this process listens."""


def test_a_new_listener_gets_the_next_signal(here: DatagramNotifier, other: DatagramNotifier) -> None:
    for number in range(50):
        here.notify()  # the listeners are known now
        with closing(other.listen(f"runner{number}", nothing)) as listener:
            here.notify()
            listener.listen(None)


def test_a_signal_skips_a_listener_that_is_gone(
    here: DatagramNotifier, other: DatagramNotifier, directory: Path
) -> None:
    other.listen("gone", nothing).close()
    with closing(other.listen("there", nothing)) as listener:
        (directory / "left.sock").touch()
        here.notify()
        listener.listen(None)


def test_a_socket_that_was_removed_is_tried_once(
    here: DatagramNotifier, other: DatagramNotifier, directory: Path
) -> None:
    generation = open_counter(directory / "listeners")
    assert generation is not None
    with closing(other.listen("dead", nothing)):
        here.notify()
        known = generation.value
        (directory / "dead.sock").unlink()
        here.notify()
        tried = generation.value
        assert tried != known, "the directory is read again"
        here.notify()
        assert generation.value == tried


def test_a_signal_of_this_process_needs_no_socket(here: DatagramNotifier) -> None:
    signals: list[int] = []
    with closing(here.listen("runner", lambda: signals.append(1))):
        here.notify()
    here.notify()
    assert signals == [1], "a closed listener gets no more"


def test_a_listener_is_woken_by_a_commit_of_another_process(database_url: str) -> None:
    with (
        Engine(database_url) as here,
        Engine(database_url) as other,
        closing(other.instance.notifier.listen("runner", nothing)) as listener,
    ):
        listener.listen(0)  # it is connected from here on
        here.enqueue("list_files", {"root": "."})
        listener.listen(None)


def test_a_sleep_longer_than_the_kernel_counts_can_be_woken() -> None:
    with closing(WakeablePoll()) as poll:
        poll.wake()
        assert not poll.until_readable(None, 40 * 24 * 3600)


def test_every_process_sees_that_a_counter_was_advanced(tmp_path: Path) -> None:
    place = tmp_path / "counter"
    mine, seen = GenerationCounter(place), set[int]()
    for _ in range(3):
        seen.add(mine.value)
        subprocess.run([sys.executable, "-c", ADVANCE, place], check=True)
    assert mine.value not in seen
    assert len(seen) == 3
    assert GenerationCounter(place).value == mine.value


def test_without_a_place_for_its_file_there_is_no_counter(tmp_path: Path) -> None:
    assert open_counter(tmp_path) is None
    assert open_counter(tmp_path / "absent" / "counter") is None
