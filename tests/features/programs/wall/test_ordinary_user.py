"""Each wall holds for an ordinary user as it does for root: the tests of commands pass as either."""

from __future__ import annotations

import re

import pytest
from tests.ordinary_user import missing, run_as_ordinary_user

pytestmark = [
    pytest.mark.proof,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
SECONDS = 900
FILES = (
    "tests/attack/test_calls.py",
    "tests/attack/test_commands.py",
    "tests/features/programs/cli/test_shell.py",
    "tests/features/programs/engine/test_installed_packages.py",
    "tests/features/programs/engine/test_kept_output.py",
    "tests/features/programs/engine/test_run_command.py",
    "tests/parity/test_walls.py",
    "tests/features/programs/runner/test_cancelled_programs.py",
    "tests/features/programs/runner/test_command_places.py",
    "tests/features/stages/runner/test_stages.py",
    "tests/features/programs/wall/test_steps.py",
)


@pytest.mark.turns(len(FILES))
@pytest.mark.parametrize("file", FILES)
def test_what_holds_for_root_holds_for_an_ordinary_user(file: str) -> None:
    only = "command" if file.endswith("test_stages.py") else ""
    done = run_as_ordinary_user(
        *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"not postgres and ({only or 'test'})", file),
        seconds=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"\d+ passed", done.stdout)
