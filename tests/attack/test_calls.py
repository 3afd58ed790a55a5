from __future__ import annotations

import pytest
from tests.attack.calls import ATTACKS, attempt
from tests.walls import NEEDS_LANDLOCK

pytestmark = [
    pytest.mark.proof,
    NEEDS_LANDLOCK,
]


@pytest.mark.parametrize("script", ATTACKS.values(), ids=ATTACKS)
def test_a_program_changes_nothing_that_is_not_its_own(script: str) -> None:
    ended, reached = attempt(script)
    assert (reached, ended.exit_code, ended.stopped, ended.stderr) == ([], 0, None, b"")


def test_a_supervisor_that_does_too_much_is_found_out() -> None:
    _, reached = attempt(ATTACKS["paths out"], owns_all=True)
    assert reached
