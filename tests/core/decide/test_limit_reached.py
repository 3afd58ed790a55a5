"""When a turn is the last (R6)."""

from __future__ import annotations

from tests.tables import table

from lcp_engine.core.decide import Usage, limit_reached
from lcp_engine.core.mission.spec import Limits

NEVER = {"max_seconds": None, "max_tokens": None}


@table(
    ("limits", "usage", "expected"),
    [
        ({"max_turns": 3}, Usage(turns=2), None),
        ({"max_turns": 3}, Usage(turns=3), "max_turns"),
        ({"max_turns": 3}, Usage(turns=9), "max_turns"),
        ({"max_seconds": 10}, Usage(seconds=9.999), None),
        ({"max_seconds": 10}, Usage(seconds=10), "max_seconds"),
        ({"max_tokens": 100}, Usage(tokens=99), None),
        ({"max_tokens": 100}, Usage(tokens=100), "max_tokens"),
        ({"max_tokens": 0}, Usage(), "max_tokens"),
        (NEVER, Usage(turns=24, seconds=1e12, tokens=10**12), None),
        ({"max_turns": 1, "max_tokens": 1}, Usage(turns=1, tokens=1), "max_turns"),
    ],
)
def test_the_next_turn_is_the_last_once_a_cap_is_used_up(
    limits: dict[str, float | None], usage: Usage, expected: str | None
) -> None:
    assert limit_reached(Limits.model_validate(limits), usage) == expected
