"""Keys and pastes that arrive before, at and after the questions of the terminal."""

from __future__ import annotations

import signal
import termios

import pytest
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal
from tests.cli.test_asking import QUESTION, RUN, together, write

PASTED = "\x1b[200~{}\x1b[201~"
WHY = "no reason): "


@pytest.fixture
def three(lcp: Lcp) -> Lcp:
    """Jobs 2, 3 and 4 are held together."""
    return together(lcp, *map(write, ("b", "c", "d")))


def states(lcp: Lcp) -> list[str]:
    return [str(lcp("job", job, "--json").object["state"]) for job in (2, 3, 4)]


@pytest.mark.parametrize("lines", ["n\ny\ny\ny\n", "y\ny\n", "a\ny", "n\rno\r", "\ny\n"])
def test_several_lines_at_once_decide_nothing(three: Lcp, lines: str) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.type(lines)
        assert "none of them is used" in terminal.expect(QUESTION)
        terminal.answer("q")
        assert terminal.end() == 3
    assert states(three) == ["held"] * 3


@pytest.mark.parametrize("text", ["n\ny\ny\ny\n", "y\r", "a", "y\x1b[201~\ny\n", ""])
def test_a_marked_paste_decides_nothing(three: Lcp, text: str) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.type(PASTED.format(text))
        assert "a paste decides nothing" in terminal.expect(QUESTION)
        terminal.answer("q")
        assert terminal.end() == 3
    assert states(three) == ["held"] * 3


def test_a_paste_is_the_text_that_it_is_and_enter_sends_it(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.answer("n")
        terminal.expect(WHY)
        terminal.type(PASTED.format("é\x1b[Dx\r\ny\x07\n"))
        terminal.expect("y")
        terminal.answer("\x1b[A!?\x7f")
        terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
    assert three("job", 2, "--json").object["reason"] == "é[Dx\ny\n!"


def test_what_is_typed_while_it_starts_answers_no_question(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.type("y\ny\n\x1b[200~y")
        shown = terminal.expect(QUESTION)
        assert "what was typed before this question is not used" in shown[shown.index("job 2 (1 of 3)") :]
        terminal.answer("q")
        assert terminal.end() == 3
    assert states(three) == ["held"] * 3


def test_what_is_typed_while_it_is_stopped_belongs_to_what_was_on_the_screen(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.answer("y")  # this one was asked for
        terminal.process.send_signal(signal.SIGCONT)
        terminal.expect(QUESTION)
        terminal.process.send_signal(signal.SIGSTOP)
        terminal.answer("n\ny\nn")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
    assert states(three) == ["succeeded", "held", "held"]


def test_a_question_is_asked_anew_after_another_program_had_the_terminal(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        terminal.type("y")
        terminal.process.send_signal(signal.SIGSTOP)
        modes = termios.tcgetattr(terminal.master)
        modes[3] |= termios.ICANON | termios.ECHO
        termios.tcsetattr(terminal.master, termios.TCSANOW, modes)
        terminal.answer("es")
        terminal.process.send_signal(signal.SIGCONT)
        terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
        assert termios.tcgetattr(terminal.master)[3] == modes[3]
    assert states(three) == ["held"] * 3


def test_a_changed_size_moves_no_answer(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.expect(QUESTION)
        for columns in (40, 10, 200):
            terminal.type("y")
            terminal.resize(24, columns)
        terminal.answer("\x15l")
        terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
    assert states(three) == ["held"] * 3


def test_ctrl_d_that_was_there_before_leaves(three: Lcp) -> None:
    with Terminal(three, *RUN) as terminal:
        terminal.type("\x04")
        assert terminal.end() == 3


@pytest.mark.parametrize("command", [("approve", "--all"), ("approve", 2, "--always", "mission")])
def test_a_confirmation_is_asked_after_what_it_confirms(three: Lcp, command: tuple[object, ...]) -> None:
    assert three(*RUN).code == 3
    with Terminal(three, *command, environment={"PAGER": "cat"}) as terminal:
        terminal.type("y\ny\n")
        terminal.expect("[y/N]: ")
        terminal.type(PASTED.format("y\n"))
        terminal.expect("[y/N]: ")
        terminal.answer("")
        assert terminal.end() != 0
    assert states(three) == ["held"] * 3


def test_a_dumb_terminal_is_told_nothing_of_pastes(three: Lcp) -> None:
    with Terminal(three, *RUN, environment={"TERM": "dumb"}) as terminal:
        assert "\x1b" not in terminal.expect(QUESTION)
        terminal.answer("q")
        terminal.end()
        assert "\x1b" not in terminal.shown
