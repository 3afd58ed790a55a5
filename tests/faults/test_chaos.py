"""The cells of `make chaos`, short, by turns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import REQUIRED
from tests.faults.server import programs

pytestmark = pytest.mark.proof

PROJECT = Path(__file__).resolve().parent.parent.parent
SECONDS = 12
CELLS = (
    "chaos: server restart",
    "chaos: killed backends",
    "chaos: pool exhaustion",
    "chaos: repeated kills",
    "chaos: killed under low priority",
    "pressure: idle in transaction",
    "pressure: long readers",
    "pressure: sustained depth",
    "pressure: soak",
)


def _say(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=500)


@pytest.mark.turns(5)
@pytest.mark.parametrize("name", CELLS)
def test_a_stressed_server_loses_nothing_and_does_nothing_twice(name: str) -> None:
    if programs() is None:
        assert not REQUIRED
        pytest.skip("needs the PostgreSQL server")
    said = _say("-m", "benchmarks.chaos", "--seconds", f"{SECONDS}", "--only", name)
    assert (said.returncode, said.stdout.splitlines()[-1:]) == (0, ["1 of 1 cells held"]), said


def test_every_cell_has_its_turn() -> None:
    said = _say(
        "-c", "from benchmarks.chaos.cells import CELLS; print(*(cell.name for cell in CELLS), sep='\\n')"
    )
    assert said.stdout.splitlines() == list(CELLS)
