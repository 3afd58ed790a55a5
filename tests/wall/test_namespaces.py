"""In namespaces programs do what they do at home, and reach nothing but what they are shown."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.wall.namespaces import NEEDS_WALL, USERS, Place

pytestmark = NEEDS_WALL


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="lcp-wall-") as base:
        Path(base).chmod(0o755)
        yield Place.made(Path(base), str(request.param))
        if (left := Path(base) / "work" / "work").exists():
            left.chmod(0o700)


def test_what_it_changes_is_in_the_upper_directory_alone(place: Place) -> None:
    (place.root / "old").write_text("old\n")
    (place.root / "gone").write_text("gone\n")
    place.give()
    ended = place.shell("cat old; echo new > old; rm gone; mkdir d; echo x > d/f; ls")
    assert (ended.stdout, ended.stderr, ended.exit_code) == (b"old\nd\nold\n", b"", 0)
    assert sorted(one.name for one in place.root.iterdir()) == ["gone", "old"]
    assert (place.root / "old").read_text() == "old\n"
    assert (place.up / "old").read_text() == "new\n"
    assert (place.up / "gone").is_char_device()
    assert (place.up / "gone").stat().st_rdev == 0
    assert (place.up / "d" / "f").read_text() == "x\n"


def test_the_true_end_of_a_program_is_told(place: Place) -> None:
    assert place.shell("exit 3").exit_code == 3
    assert place.shell("exit 137").exit_code == 137
    assert place.shell("kill -TERM $$").signal == signal.SIGTERM
    assert place.shell("kill -KILL $$").signal == signal.SIGKILL
