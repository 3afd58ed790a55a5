"""The verdict of a command, from what real tools wrote."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.features.programs.suites.verdicts import verdict_of

SAMPLES = Path(__file__).parent / "verdicts.txt"
_SAMPLE = re.compile(r"^\$ ([^\n]+) \((\d+)\)\n(.*?)\n= ([^\n]+)$", re.MULTILINE | re.DOTALL)
PARTS = (
    "\n", "\r", "1 failed", " in 0.1s", "=" * 50, "FAIL\tx", '{"Action":"output"', "Tests: ", "make: *** [",
    "Ran 1 test in 0.1s\n\n",
)  # fmt: skip


def samples() -> list[tuple[str, int, str, str]]:
    """Commands with their exit codes, output and verdicts."""
    text = SAMPLES.read_text(encoding="utf-8").replace("^[", "\x1b")
    return [(each[1], int(each[2]), f"{each[3]}\n", each[4]) for each in _SAMPLE.finditer(text)]


@table(("command", "code", "said", "verdict"), samples())
def test_the_verdict_is_that_of_the_tool(command: str, code: int, said: str, verdict: str) -> None:
    assert verdict_of(command.split(), code, said, "") == verdict
    assert verdict_of(command.split(), code, "", said) == verdict


def test_the_verdict_of_long_output_is_taken_from_all_of_it() -> None:
    log = "a line of a log\n" * 30_000
    said = f"{log}3 failed, 5 passed in 0.1s\n{log}"
    assert verdict_of(["make", "test"], 2, said, "") == "3 failed, 5 passed"


def test_failures_of_several_tools_come_before_successes() -> None:
    said = "4 passed in 0.1s\nTests:       1 failed, 2 total\nTest Suites: 1 failed, 1 total\n"
    assert verdict_of(["make", "check"], 2, said, "") == "1 failed, 2 total; 4 passed"


def test_a_failure_after_tests_that_pass_is_told() -> None:
    said = verdict_of(["make", "check"], 2, "4 passed in 0.1s\n", "make: *** [Makefile:9: lint] Error 1\n")
    assert said == "make: *** [Makefile:9: lint] Error 1; 4 passed"


@table(
    ("command", "code", "said"),
    [
        (["cat", "log.txt"], 0, "3 failed in 0.1s\n"),
        (["/usr/bin/git", "log", "-p"], 1, "3 failed in 0.1s\n"),
        (["sh", "-c", "x"], 0, "a.c:1:2: error: told, and then mended\n"),
        (["sh", "-c", "x"], 3, "5 apples in 3s\n"),
        (["tool"], 1, ""),
        ([], 1, "3 failed in 0.1s\n"),
    ],
)
def test_other_text_is_no_verdict(command: list[str], code: int, said: str) -> None:
    assert verdict_of(command, code, said, "") is None


@given(st.lists(st.one_of(st.text(max_size=40), st.sampled_from(PARTS))))
def test_any_text_gives_a_short_line_or_none(parts: list[str]) -> None:
    said = verdict_of(["make"], 2, "".join(parts), "".join(reversed(parts)))
    assert said is None or (0 < len(said) <= 300 and "\n" not in said)
