"""Long diffs in a pager, with colours that the pager shows as colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

GREEN = "\x1b[32m+line 1"
COLOURED = {"NO_COLOR": ""}


@pytest.fixture
def waiting(lcp: Lcp) -> Lcp:
    """Job 2 would write a hundred lines."""
    lines = "".join(f"line {number}\n" for number in range(1, 101))
    held = lcp.ask("write_file", rel_path="b", content=lines)
    assert lcp("run", lcp.mission(held, lcp.complete), "--root", "root", "-q").code == 3
    return lcp


@pytest.mark.parametrize(
    "environment", [{}, {"PAGER": ""}, {"PAGER": "less"}, {"PAGER": "less -X"}, {"LESS": "-FRX"}, {"PAGER": "'less"}]
)  # fmt: skip
def test_less_shows_colours_and_no_codes(waiting: Lcp, environment: dict[str, str]) -> None:
    with Terminal(waiting, "diff", 2, environment=COLOURED | environment) as terminal:
        shown = terminal.expect("+line 15")
        assert GREEN in shown
        assert "ESC" not in shown
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.parametrize(
    "environment", [{"LESS": "-X"}, {"NO_COLOR": "1"}, {"NO_COLOR": "1", "LESS": "-FRX"}]
)
def test_less_gets_no_codes_that_it_would_show_as_text(waiting: Lcp, environment: dict[str, str]) -> None:
    with Terminal(waiting, "diff", 2, environment=COLOURED | environment) as terminal:
        shown = terminal.expect("+line 15")
        assert "[32m" not in shown
        assert "ESC" not in shown
        terminal.type("q")
        assert terminal.end() == 0


@pytest.mark.parametrize("pager", ["cat", "more"])
def test_other_pagers_pass_colours_on(waiting: Lcp, pager: str) -> None:
    with Terminal(waiting, "diff", 2, environment=COLOURED | {"PAGER": pager}) as terminal:
        assert GREEN in terminal.expect("+line 15")
        if pager == "more":
            terminal.expect("--More--")
            terminal.type("q")
        assert terminal.end() == 0


def test_a_pager_that_is_not_installed_is_done_without(waiting: Lcp) -> None:
    with Terminal(waiting, "diff", 2, environment=COLOURED | {"PAGER": "no-such-pager"}) as terminal:
        assert terminal.end() == 0
        assert "+line 100" in terminal.shown


def test_a_dumb_terminal_and_a_pipe_are_not_paged(waiting: Lcp) -> None:
    with Terminal(waiting, "diff", 2, environment=COLOURED | {"TERM": "dumb"}) as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.shown
    piped = waiting("diff", 2, NO_COLOR="", PAGER="false")
    assert (piped.code, "\x1b" in piped.out, piped.out.count("\n")) == (0, False, 103)
