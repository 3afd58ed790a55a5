"""Count tokens without a model's own vocabulary (pure)."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from lcp_engine.planners.llm.types import Message

_FRAME = 8


def most_tokens(text: str) -> int:
    """More tokens than `text` has in the vocabularies in use: half of its bytes, where a third is common."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 2)


def about_tokens(text: str) -> int:
    """About as many tokens as `text` has, for planning what fits: prose has 4 bytes to a token, code and JSON 3."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def most_tokens_of(messages: Sequence[Message]) -> int:
    """Like `most_tokens`, with what a template puts around each message."""
    return sum(most_tokens(message.content) + _FRAME for message in messages)


def is_going_round(text: str) -> bool:
    """Whether the end of `text` says the same again and again, as small models do until they are stopped."""
    end = text[-2000:].encode("utf-8", "surrogatepass")
    # Prose and code shrink to a third, lists of similar things to a sixth.
    return len(end) >= 400 and len(zlib.compress(end)) * 10 < len(end)
