"""Describe what went wrong between the engine and a model's server, and whether a retry can help (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal, TypeAlias

from pydantic import JsonValue

from lcp_engine.planners.base import CompletionRecord

Scrub: TypeAlias = Callable[[str], str]
"""Removes the key from a text."""


class Again(Enum):
    """Whether the same request may be sent again."""

    NEVER = auto()
    ONCE = auto()
    BACK_OFF = auto()
    LOADING = auto()


@dataclass(frozen=True)
class Trouble:
    """A request without a completion."""

    message: str
    """Endpoint, expectation and fact in one sentence."""
    again: Again = Again.NEVER
    status: int | None = None
    """The HTTP status; None if no answer came."""
    said: str = ""
    """The server's own words."""
    retry_after: float | None = None
    """In seconds, as the server asked."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens of completions that could not be used; they were paid for."""
    completions: Sequence[CompletionRecord] = ()
    """The requests that led to it."""

    @property
    def is_about_context(self) -> bool:
        """The prompt did not fit into the model's context."""
        return bool(_CONTEXT.search(self.said))

    @property
    def is_refusal(self) -> bool:
        """The same request would be refused again and again."""
        return self.again is Again.NEVER and self.status is not None and 300 <= self.status < 500

    @property
    def is_about_model(self) -> bool:
        """The server does not have the model."""
        return self.status in {400, 404, 422} and bool(_NO_MODEL.search(self.said))


def trouble_of(
    where: str, status: int, headers: Mapping[str, str], body: str, scrub: Scrub, *, keyless: str = ""
) -> Trouble:
    """The trouble that an unsuccessful answer means; `headers` have lower-case names.

    `keyless` says why no key was sent, if none was.
    """
    said = words_of(body, scrub)
    again = _again(status, said)
    return Trouble(
        message=f"{where}: {_expectation(status, said, again, keyless)}, the server answered {status}: {said}",
        again=again,
        status=status,
        said=said,
        retry_after=_seconds(headers.get("retry-after", "")),
    )


def trouble_within(where: str, error: JsonValue, scrub: Scrub) -> Trouble:
    """The trouble of an error inside an answer that began well."""
    said = words_of(json.dumps({"error": error}, ensure_ascii=False), scrub)
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and not isinstance(code, bool) else None
    again = _again(status or 500, said)
    return Trouble(
        f"{where}: a whole completion is expected, the server broke off: {said}", again, status, said
    )


def words_of(body: str, scrub: Scrub) -> str:
    """The server's error message without the key, on one line of at most 300 characters."""
    message = _message(body)
    # Escapes of JSON are decoded by now, and nothing has been cut.
    text = scrub(message or body)
    if not message and (title := re.search(r"<title[^>]*>([^<]{1,200})", text[:20_000], re.IGNORECASE)):
        text = f"a web page, {title[1].strip()!r}"
    elif re.match(r"\s*<(!doctype|html)", text, re.IGNORECASE):
        text = "a web page"
    line = " ".join("".join(char if char.isprintable() else " " for char in text[:2_000]).split())
    return (line if len(line) <= 300 else f"{line[:299]}…") or "nothing"


_LOADING = re.compile(
    r"\bloading\b|warming up|not (yet )?(loaded|ready) yet|model is not ready", re.IGNORECASE
)
_CONTEXT = re.compile(
    r"context[ _](size|length|window)|maximum context|exceed_context|prompt is too long|too many tokens"
    r"|greater than the context",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model.{0,200}(not[ _]found|does not exist|not exist|no such|unknown|not (currently )?loaded|invalid|available)"
    r"|(unknown|invalid|no such|no) model\b|not_found_error",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)


def _again(status: int, said: str) -> Again:
    if status in {400, 409, 425, 500, 503} and _LOADING.search(said):
        return Again.LOADING
    if _CONTEXT.search(said) or _NO_CREDIT.search(said):
        return Again.NEVER
    if status in {408, 425, 429} or (status >= 500 and status not in {501, 505}):
        return Again.BACK_OFF
    return Again.NEVER


def _expectation(status: int, said: str, again: Again, keyless: str) -> str:
    if again is Again.LOADING:
        return "a loaded model is expected"
    if status in {401, 403}:
        if keyless:
            return f"a key is expected: {keyless}"
        return "a key that the server accepts is expected in the environment (LCP_PLANNER_KEY)"
    if status == 404:
        return "a model and a path that the server knows are expected"
    if 300 <= status < 400:
        return "an endpoint that answers itself is expected"
    if _NO_CREDIT.search(said):
        return "an account with credit is expected"
    return "a completion is expected"


def _seconds(text: str) -> float | None:
    """`Retry-After` in seconds; None for a date, since the server's clock is not ours."""
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


_PLACES: tuple[Literal["message", "detail", "error", "type"], ...] = ("message", "detail", "error", "type")


def _message(body: str) -> str | None:
    """The error message, wherever servers put it: `error.message`, `error`, `message` or `detail`."""
    try:
        value: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, list) and value:
        value = value[0]
    if not isinstance(value, dict):
        return None
    inner = value.get("error")
    if isinstance(inner, dict):
        words = [inner.get(place) for place in ("message", "code", "type", "param")]
        return "; ".join(str(word) for word in words if isinstance(word, str | int) and word != "")
    for place in _PLACES:
        if found := value.get(place):
            return found if isinstance(found, str) else json.dumps(found)
    return None
