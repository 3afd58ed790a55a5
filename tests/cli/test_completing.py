"""Shells complete missions, planners, kinds, schedules and ids."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from lcp_engine.cli.commands.completion import SHELLS

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def offered(lcp: Lcp, line: str) -> list[str]:
    """What the shell offers for the last word of a line."""
    words = line.split(" ")
    environment = {"_LCP_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    done = lcp.run(**environment)
    assert (done.code, done.err) == (0, "")
    return [item.partition(",")[2] for item in done.out.splitlines() if item]


@pytest.fixture
def waiting(lcp: Lcp) -> Lcp:
    """Mission 1 waits with job 2."""
    held = lcp.ask("write_file", path="b", content="x")
    assert lcp("run", lcp.mission(held, lcp.complete), "--root", "root", "-q").code == 3
    lcp("schedule", "add", "nightly", lcp.mission(lcp.complete), "--root", "root", "--every", "1d")
    return lcp


@pytest.mark.turns(2)
@pytest.mark.parametrize(
    ("line", "expected"),
    [("lcp run su", ["survey"]), ("lcp run mission-", ["mission-0.yaml", "mission-1.yaml"]),
     ("lcp run root/a", ["root/a"]), ("lcp db b", ["backup"]), ("lcp --q", ["--quiet"]),
     ("lcp run survey --planner hu", ["human"]), ("lcp launch x --planner scr", ["script"]), ("lcp approve ", ["2"]),
     ("lcp approve 2 ", ["2"]), ("lcp reject --reason no ", ["2"]), ("lcp diff ", ["2", "1"]), ("lcp job 1", ["1"]),
     ("lcp show ", ["1"]), ("lcp undo ", ["1"]), ("lcp held --mission ", ["1"]), ("lcp schedule remove n", ["nightly"]),
     ("lcp jobs --kind read", ["read_file"]), ("lcp run x --approve wr", ["write_file"]), ("lcp compl", ["completion"]),
     ("lcp completion f", ["fish"])],
)  # fmt: skip
def test_what_is_typed_is_completed(waiting: Lcp, line: str, expected: list[str]) -> None:
    assert offered(waiting, line) == expected


def test_completion_creates_no_database_and_prints_no_error(lcp: Lcp) -> None:
    assert offered(lcp, "lcp approve ") == []
    assert not lcp.database.exists()
    lcp.database.write_text("this is not a database " * 100)
    assert offered(lcp, "lcp approve ") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(lcp: Lcp, shell: str) -> None:
    done = lcp("completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_LCP_COMPLETE={shell}_complete" in done.out


def test_bash_completes_with_the_script(waiting: Lcp) -> None:
    script = waiting("completion", "bash").out
    shim = waiting.home / "bin" / "lcp"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec {" ".join(waiting.command())} "$@"\n')
    shim.chmod(0o755)
    line = "COMP_WORDS=(lcp approve ''); COMP_CWORD=2; _lcp_completion lcp; echo \"${COMPREPLY[@]}\""
    done = subprocess.run(
        ["bash", "-c", f"{script}\nPATH={shim.parent}:$PATH\n{line}"],
        env=dict(waiting.environment), cwd=waiting.home, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "2\n", done.stderr
