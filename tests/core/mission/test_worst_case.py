"""What a mission can cost at worst is known before it begins, or the limit to set is named."""

from __future__ import annotations

from tests.tables import table

from lcp_engine.core.mission.spec import Limits, WorstCase


def test_a_mission_that_asks_no_model_has_no_tokens() -> None:
    worst = WorstCase(Limits(), 0)
    assert worst.line == "worst case: 26 turns, 76 questions, 100 jobs, 33 min, 104.9 MB written"
    assert worst.json == {
        "turns": 26, "questions": 76, "jobs": 100, "seconds": 1980.0, "bytes_written": 104_857_600, "tokens": 0,
    }  # fmt: skip


def test_what_nothing_bounds_names_the_limit_to_set() -> None:
    worst = WorstCase(Limits(max_seconds=None, max_bytes_written=None), None)
    assert worst.line == (
        "worst case: 26 turns, 76 questions, 100 jobs, any time (limits.max_seconds), "
        "any bytes (limits.max_bytes_written), any tokens (limits.max_tokens)"
    )
    assert worst.json["tokens"] is None


@table(
    ("max_tokens", "question_tokens", "tokens", "said"),
    [
        (None, 1000, 4000, "4,000 tokens"),
        (500, 1000, 2500, "2,500 tokens"),
        (9000, 1000, 4000, "4,000 tokens"),
        (500, None, None, "500 tokens and 2 questions"),
    ],
    ids=["bounded by turns", "bounded by the limit", "the limit is above the turns", "only the server knows"],
)
def test_tokens_are_bounded_by_turns_or_by_their_limit(
    max_tokens: int | None, question_tokens: int | None, tokens: int | None, said: str
) -> None:
    worst = WorstCase(Limits(max_turns=1, max_corrections=2, max_tokens=max_tokens), question_tokens)
    assert (worst.questions, worst.tokens) == (4, tokens)
    assert worst.line.endswith(f"104.9 MB written, {said}")
