"""The pages for people who just arrived: their files are written and their commands run as they are printed.

A block with a title is a file. In a block `console`, a line that begins with `$ ` is a command, run by a shell on a
terminal of 80 columns; the lines after it are shown, in this order, perhaps among others. `…` stands for anything, and
what is typed follows the end of a question. A command ends with exit code 0 unless it ends in `# exit code N`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.cli.conftest import Lcp
from tests.cli.terminal import Terminal
from tests.features.models.planners.conftest import FaultServer, Play, faults

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from pydantic import JsonValue

__all__ = ["faults"]  # the fixture

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"^\$ (.*?)(?:  # exit code (\d+))?$")
TYPED = re.compile(r"^(.*(?:\? |\]: |,\?\] |reason\): ))(\S.*|)$")
ERASED = re.compile(r"[^\n]*\r\x1b\[2K")
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


EMPTY: Mapping[str, str] = MappingProxyType({})
LIST: JsonValue = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [{"kind": "list_files", "params": {}}],
}
READ: JsonValue = {
    "ok": True, "action": "create_followup_jobs",
    "new_jobs": [{"kind": "read_file", "params": {"path": "src/prices.py"}}],
}  # fmt: skip
FINDING: JsonValue = {
    "ok": True, "action": "analysis_result", "summary": "One function adds up prices.",
    "issues": ["src/prices.py: prices of different currencies are added up as if they were one"],
    "recommendations": [],
}  # fmt: skip


@dataclass(frozen=True)
class File:
    name: str
    text: str


@dataclass(frozen=True)
class Command:
    line: str
    code: int
    shown: list[str]


Step: TypeAlias = File | Command


class Shell(Lcp):
    """Runs command lines where `lcp` is the one of this environment."""

    def attach(
        self, terminal: int, *arguments: object, environment: Mapping[str, str]
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["setsid", "--ctty", "bash", "-c", *map(str, arguments)],
            cwd=self.home,
            env=environment,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            text=True,
        )


def steps_of(page: str, instead: Mapping[str, str]) -> Iterator[Step]:
    whole = (DOCS / page).read_text(encoding="utf-8")
    for ours, theirs in instead.items():
        whole = whole.replace(ours, theirs)
    for language, title, text in BLOCK.findall(whole):
        if title:
            yield File(title, text)
        elif language == "console":
            yield from _commands(text)


def _commands(text: str) -> Iterator[Command]:
    lines = text.replace("\\\n", "").splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], text
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        found = COMMAND.match(lines[start])
        assert found
        yield Command(found[1], int(found[2] or 0), lines[start + 1 : end])


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A shell whose home has a short path, as on the page: a longer one would stand on a line of its own."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "lcp").write_text(f'#!/bin/sh\nexec {sys.executable} -m lcp_engine "$@"\n')
    (programs / "lcp").chmod(0o755)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LCP_", "XDG_"))}
    with TemporaryDirectory(prefix="lcp-") as home:
        environment = {
            **inherited, "HOME": home, "NO_COLOR": "1", "PATH": f"{programs}{os.pathsep}{inherited['PATH']}",
        }  # fmt: skip
        yield Shell(Path(home), environment)


def walk(shell: Shell, page: str, instead: Mapping[str, str] = EMPTY) -> int:
    """Do what the page says, with texts `instead` of some of its own; the number of its commands."""
    count = 0
    for step in steps_of(page, instead):
        match step:
            case File(name, text):
                (shell.home / name).parent.mkdir(parents=True, exist_ok=True)
                (shell.home / name).write_text(text)
            case Command(line) if line.startswith("export "):
                shell = _export(shell, line)
            case Command() as command:
                _run(shell, command)
                count += 1
    return count


def _export(shell: Shell, line: str) -> Shell:
    """The shell after a line that sets variables."""
    done = subprocess.run(
        ["bash", "-c", f"{line}; env -0"],
        cwd=shell.home,
        env=shell.environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    pairs = (entry.partition("=") for entry in done.stdout.decode().split("\0") if entry)
    return Shell(shell.home, {name: value for name, _, value in pairs})


def _run(shell: Shell, command: Command) -> None:
    # Its sentences name whole paths, and the page leaves them out.
    columns = 200 if command.line.startswith("lcp doctor") else 80
    with Terminal(shell, command.line, size=(200, columns)) as terminal:
        shown = ""
        for line in command.shown:
            if asked := TYPED.match(line):
                shown += terminal.expect(asked[1]) + asked[1]
                terminal.answer(asked[2])
        code = terminal.end()
        shown = _left(shown + terminal.shown)
    assert code == command.code, f"$ {command.line}\n{shown}"
    lines = iter(shown.splitlines())
    for expected in command.shown:
        pattern = re.compile(re.escape(expected.rstrip()).replace("…", ".*"))
        is_shown = any(pattern.fullmatch(line.rstrip()) for line in lines)
        assert is_shown, f"{expected!r} is not shown:\n$ {command.line}\n{shown}"


def _left(shown: str) -> str:
    """What a terminal has in the end: a line that is erased makes room for the next."""
    return ESCAPES.sub("", ERASED.sub("", shown)).replace("\r", "")


def _reviewer(server: FaultServer) -> Play:
    """A model that lists, reads and then has one thing to say."""

    def play(to: BaseHTTPRequestHandler) -> None:
        said = json.dumps(server.requests[-1].body)
        next_step = READ if "src/prices.py" in said else LIST
        server.says(json.dumps(FINDING if "currencies" in said else next_step))(to)

    return play


@pytest.mark.proof
def test_every_command_of_the_tutorial_does_what_it_says(shell: Shell, faults: FaultServer) -> None:
    faults.play(_reviewer(faults))
    assert walk(shell, "tutorial.md", {"127.0.0.1:1234": f"127.0.0.1:{faults.port}"}) > 15


@pytest.mark.proof
def test_the_rehearsal_of_a_backup_does_what_it_says(shell: Shell) -> None:
    assert walk(shell, "operations.md") >= 8


def test_the_unit_of_the_service_is_one(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    [unit] = [
        step
        for step in steps_of("operations.md", EMPTY)
        if isinstance(step, File) and step.name == "lcp.service"
    ]
    file = tmp_path / unit.name
    file.write_text(unit.text.replace("/opt/lcp/bin/lcp", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", file], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
