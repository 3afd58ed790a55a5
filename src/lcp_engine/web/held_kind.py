"""Tell what a held job wants of a person: a yes, an answer, or the reply of a planner that is a person."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from lcp_engine.engine.question import RELAYED
from lcp_engine.workers.ask_user import KIND
from lcp_engine.workers.base import Workers


def wish_of(job: Mapping[str, JsonValue], workers: Workers) -> str:
    """`answer`, `reply`, `yes`, or `nothing` for a kind that nothing executes."""
    if job["kind"] == KIND:
        return "answer"
    if job["reason"] == RELAYED:
        return "reply"
    return "yes" if job["kind"] in workers else "nothing"


def options_of(params: Mapping[str, JsonValue]) -> list[str]:
    """The answers to choose from."""
    options = params.get("options")
    return [str(option) for option in options] if isinstance(options, list) else []
