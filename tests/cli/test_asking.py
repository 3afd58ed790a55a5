"""The questions that `lcp run` asks on a terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from typing import TYPE_CHECKING, Self

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


class Terminal:
    """A program on a terminal of its own, and what it has shown so far."""

    def __init__(self, lcp: Lcp, *arguments: object) -> None:
        self._master, slave = pty.openpty()
        environment = {**lcp.environment, "TERM": "xterm"}
        self.process = subprocess.Popen(
            lcp.command(*arguments), cwd=lcp.home, env=environment, stdin=slave, stdout=slave, stderr=slave,
            process_group=0,
        )  # fmt: skip
        os.close(slave)
        self.shown = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def expect(self, text: str) -> None:
        """Read until `text` is shown; what was shown before it is not looked at again."""
        while text not in self.shown:
            more = self._read()
            assert more, f"{text!r} is not in {self.shown!r}"
            self.shown += more
        self.shown = self.shown.partition(text)[2]

    def answer(self, text: str) -> None:
        os.write(self._master, f"{text}\n".encode())

    def end(self) -> int:
        while more := self._read():
            self.shown += more
        return self.process.wait()

    def _read(self) -> str:
        try:
            return os.read(self._master, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            return ""


QUESTION = "[d]etails: "


@pytest.fixture
def asking(lcp: Lcp) -> Lcp:
    """`mission-0.yaml` asks to write b and c, in one turn each."""
    writes = [lcp.ask("write_file", rel_path=name, content="one\ntwo") for name in ("b", "c")]
    lcp.mission(*writes, lcp.complete)
    return lcp


def _files(lcp: Lcp) -> set[str]:
    return {path.name for path in lcp.root.iterdir()} & {"b", "c"}


def test_yes_runs_the_job_and_no_tells_the_planner_why(asking: Lcp) -> None:
    with Terminal(asking, "run", "mission-0.yaml", "--root", "root") as terminal:
        terminal.expect("job 2: write_file b")
        terminal.expect(QUESTION)
        terminal.answer("y")
        terminal.expect("job 4: write_file c")
        terminal.expect(QUESTION)
        terminal.answer("no")
        terminal.expect("the planner reads it: ")
        terminal.answer("not this one")
        assert terminal.end() == 0
        assert "not this one" in terminal.shown
    assert _files(asking) == {"b"}


def test_details_show_the_content_and_later_leaves_it_held(asking: Lcp) -> None:
    with Terminal(asking, "run", "mission-0.yaml", "--root", "root") as terminal:
        terminal.expect(QUESTION)
        terminal.answer("what?")
        terminal.expect("answer with y, n, l, a or d")
        terminal.answer("d")
        terminal.expect("│ one")
        terminal.expect(QUESTION)
        terminal.answer("later")
        assert terminal.end() == 3
        assert "lcp approve 2" in terminal.shown
    assert _files(asking) == set()


def test_all_asks_no_more_about_this_kind(asking: Lcp) -> None:
    with Terminal(asking, "run", "mission-0.yaml", "--root", "root") as terminal:
        terminal.expect(QUESTION)
        terminal.answer("a")
        assert terminal.end() == 0
        assert QUESTION not in terminal.shown
    assert _files(asking) == {"b", "c"}


def test_an_interrupt_at_the_question_leaves_the_job_held(asking: Lcp) -> None:
    with Terminal(asking, "run", "mission-0.yaml", "--root", "root") as terminal:
        terminal.expect(QUESTION)
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == 130
        assert "lcp approve 2" in terminal.shown
    assert asking("held").out.count("write_file") == 1
