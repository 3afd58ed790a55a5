"""Refuse a model's answer that repeats its instructions; the prompt is read as it was stored."""

from __future__ import annotations

import re
from typing import assert_never

from lcp_engine.core.protocol.actions import (
    Action,
    AnalysisResult,
    CreateFollowupJobs,
    ErrorAction,
    MissionComplete,
    Problem,
    WriteFile,
)
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.errors import Code, ErrorType, InvalidInput, Meaning
from lcp_engine.features.models.echo import Told, is_echo, is_loop, without_fences
from lcp_engine.features.models.prompts.guided_prompt import taken_from_example

ECHO = Code(Meaning(
    "ECHO", InvalidInput, ErrorType.INPUT,
    "The words that a model ends with repeat its goal, its instructions or themselves.",
    "Ask less at once, or another model; `lcp job J --prompt` shows what it was told. Then resume the mission.",
    is_own=True,
))  # fmt: skip
_DATA = frozenset(
    {
        "What is known already", "So far", "Read earlier", "From the memory of this root", "New results",
        "Waiting for a person", "From people", "From the engine", "Files that you have not read",
    }
)  # fmt: skip
"""Sections of a prompt that tell what was found and said; an answer may repeat them."""
_PART = "This part of it"
"""The section with a step's own prompt: what earlier steps gave may follow its first paragraph."""


def refuse_echo(reply: Action, goal: str, dialect: Dialect, prompt: str, is_done: bool) -> Problem | None:
    """Fault of the words that a plan would end with: they repeat the goal or the prompt, or themselves.

    `is_done`: the goal was worked on, so that an answer may say in its words that it is reached.
    """
    said = _last_words(reply)
    if said is None:
        return None
    key, text = said if dialect == "lcp" else ("message", said[1])
    if is_loop(text):
        fact = "says the same words again and again"
    elif is_echo(text, Told(goal, instructions_of(prompt), is_done=is_done)):
        fact = "repeats the goal or the instructions, and adds nothing"
    elif (taken := taken_from_example(text, prompt)) is not None:
        fact = f'says "{taken}", of which only an example of the instructions speaks'
    else:
        return None
    message = f"{key} {fact}; it is to say what was found or done, in sentences of its own"
    return Problem(path=key, message=message, code=ECHO)


def _last_words(reply: Action) -> tuple[str, str] | None:
    """The words of a reply that ends its plan, with their key."""
    match reply:
        case AnalysisResult() | MissionComplete():
            return "summary", reply.summary
        case ErrorAction():
            return "error", reply.error
        case CreateFollowupJobs() if not reply.requested:
            return "commentary", reply.commentary or ""
        case CreateFollowupJobs() | WriteFile():
            return None
        case _:
            assert_never(reply)


def instructions_of(prompt: str) -> str:
    """Instructions that a stored prompt gives the model, without what was found and said."""
    first, *rest = re.split(r"^# (.+)$", without_fences(prompt), flags=re.MULTILINE)
    kept = [first]
    for title, text in zip(rest[::2], rest[1::2], strict=True):
        if title == _PART:
            kept.append(text.strip().partition("\n\n")[0])
        elif title not in _DATA:
            kept.append(text)
    return "\n".join(kept)
