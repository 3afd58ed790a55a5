"""Describe what went wrong between the engine and a model's server, and whether a retry can help (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
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
    WAIT = auto()
    """Later: the server asks to wait, which no thread does (R34)."""


PARAMETERS = (
    "stream_options", "seed", "repeat_penalty", "temperature", "max_tokens", "max_completion_tokens", "stream",
)  # fmt: skip
"""Parameters of a request that a server may refuse and that can be left out, the least missed first."""


@dataclass(frozen=True)
class Words:
    """The parts of a server's error: what it says, its codes and types in small letters, the parameter it refuses."""

    message: str = ""
    codes: frozenset[str] = frozenset()
    param: str = ""


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
    """In seconds, as the server asked; None if it did not say, or not in a form that can be read."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Tokens of completions that could not be used; they were paid for."""
    completions: Sequence[CompletionRecord] = ()
    """The requests that led to it."""
    words: Words = Words()
    optional: frozenset[str] | None = None
    """The parameters of the request that could have been left out; None if they are not known."""

    @property
    def told(self) -> str:
        """The server's message alone, without its codes."""
        return self.words.message or self.said

    @property
    def is_about_room(self) -> bool:
        """The request leaves more room for the reply than the model has."""
        names_room = self.words.param in _ROOMS or _ROOM.search(self.told)
        return self.status in {400, 422} and bool(names_room and _TOO_MUCH.search(self.told))

    @property
    def is_about_context(self) -> bool:
        """The prompt did not fit into the model's context."""
        # Servers that limit tokens by the minute speak of too many tokens, too.
        return self.again is not Again.WAIT and bool(_CONTEXT.search(self.said))

    @property
    def is_refusal(self) -> bool:
        """The same request would be refused again and again."""
        return self.again is Again.NEVER and self.status is not None and 300 <= self.status < 500

    @property
    def is_about_model(self) -> bool:
        """The server does not have the model: a code says so, or the message by itself, which refuses nothing else."""
        if self.status is None or not 400 <= self.status < 500:
            return False
        if self.words.codes & _NO_MODEL_CODES:
            return True
        if self.status not in {400, 404, 422} or self.words.param not in {"", "model"}:
            return False
        return bool(_NO_MODEL.search(self.told)) and not _OF_REQUEST.search(self.told)


def trouble_of(
    where: str,
    status: int,
    headers: Mapping[str, str],
    body: str,
    scrub: Scrub,
    *,
    keyless: str = "",
    now: float = 0.0,
) -> Trouble:
    """The trouble that an unsuccessful answer means; `headers` have lower-case names.

    `keyless` says why no key was sent, if none was. `now`, in seconds since 1970, is for an answer without a date.
    """
    said = words_of(body, scrub)
    asks = status == 503 and any(headers.get(name, "").strip() for name in _WAITS)
    words = _words(body, scrub)
    again = Again.WAIT if asks else _again(status, said, words.codes)
    trouble = Trouble(
        message="",
        again=again,
        status=status,
        said=said,
        retry_after=_seconds(headers, now),
        words=words,
    )
    expectation = _expectation(status, said, again, keyless, about_model=trouble.is_about_model)
    return replace(trouble, message=f"{where}: {expectation}, the server answered {status}: {said}")


def trouble_within(
    where: str, error: JsonValue, scrub: Scrub, *, input_tokens: int = 0, output_tokens: int = 0
) -> Trouble:
    """The trouble of an error inside an answer that began well, with the tokens that the answer has counted."""
    body = json.dumps({"error": error}, ensure_ascii=False)
    said, words = words_of(body, scrub), _words(body, scrub)
    status = _status_within(error, words)
    return Trouble(
        message=f"{where}: a whole completion is expected, the server broke off: {said}",
        again=_again(status or 500, said, words.codes),
        status=status,
        said=said,
        words=words,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
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
_NO_MODEL_CODES = frozenset(
    {
        "model_not_found", "unknown_model", "invalid_model", "model_not_available", "model_not_supported",
        "model_decommissioned", "deploymentnotfound", "not_found_error",
    }
)  # fmt: skip
# Only a name may stand between: "with this model. Unknown parameter" says nothing of a model.
_QUOTED = r"""(?:[\s:=/]*(?:"[^"]{1,200}"|'[^']{1,200}'|`[^`]{1,200}`))"""
_NAME = rf"""(?:{_QUOTED}|[\s:=/]*[\w(][^\s"'`]{{0,200}}(?<![.,;:!?]))?"""
_GONE = (
    r"not[ _](be )?found|(does not|doesn't|did not|not) exist|unavailable\b|not (currently |yet )?(loaded|available)"
    r"|decommissioned|no longer available"
)
_NO_MODEL = re.compile(
    rf"\bmodels?\b{_NAME},?\s+((is|was|are|has been|could)\s+){{0,2}}({_GONE})"
    rf"|\bmodel( name| id)?{_QUOTED}? (is )?(unknown|invalid)\b(?! \w)"
    r"|\b(unknown|invalid|no such|unrecognized) model\b|\bno models? ((is|are) )?(loaded|available|found)"
    r"|\bnot a valid model\b|^no endpoints found for\b",
    re.IGNORECASE,
)
_ROOMS = frozenset({"max_tokens", "max_completion_tokens"})
_ROOM = re.compile(r"\bmax_?(completion_?|output_?)?tokens\b", re.IGNORECASE)
_TOO_MUCH = re.compile(
    r"\btoo (large|high|big|many|long)\b|\bat most\b|\bless than\b|\bexceed|\brange\b"
    r"|\bmaximum (allowed|value|number)|\d+ ?> ?\d+|<=",
    re.IGNORECASE,
)
_OF_REQUEST = re.compile(
    r"(?<![\w.-])("
    + "|".join(PARAMETERS)
    + r"|response_format|json_schema|json_object|output_config|tool_choice)(?![\w-])",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"insufficient_quota|exceeded your current quota|credit balance|billing", re.IGNORECASE
)
_RATE_CODES = frozenset({"rate_limit_error", "rate_limit_exceeded", "resource_exhausted"})
"""Codes of OpenAI, Anthropic and Google for a rate limit, whose messages speak of quota and billing, too."""
_WAITS = ("retry-after-ms", "retry-after")


def _again(status: int, said: str, codes: frozenset[str]) -> Again:
    if status == 529 or (status == 429 and (codes & _RATE_CODES or not _NO_CREDIT.search(said))):
        return Again.WAIT
    if status in {400, 409, 425, 500, 503} and _LOADING.search(said):
        return Again.LOADING
    if _CONTEXT.search(said) or _NO_CREDIT.search(said):
        return Again.NEVER
    if status in {408, 425} or (status >= 500 and status not in {501, 505}):
        return Again.BACK_OFF
    return Again.NEVER


_STATUS: Mapping[str, int] = {
    "invalid_request_error": 400,
    "badrequesterror": 400,
    "unsupported_parameter": 400,
    "unsupported_value": 400,
    "model_not_found": 404,
    **dict.fromkeys(_RATE_CODES, 429),
    "overloaded_error": 529,
}
"""The status that an answer with such a code has if it does not begin well."""


def _status_within(error: JsonValue, words: Words) -> int | None:
    code = error.get("code") if isinstance(error, dict) else None
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    if isinstance(code, str) and re.fullmatch(r"[1-5]\d\d", code):
        return int(code)
    known = next((_STATUS[code] for code in sorted(words.codes) if code in _STATUS), None)
    return 400 if known is None and words.param in PARAMETERS else known


def _expectation(status: int, said: str, again: Again, keyless: str, *, about_model: bool) -> str:
    if again is Again.LOADING:
        return "a loaded model is expected"
    if about_model and status != 404:
        return "a model that the server has is expected"
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


_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?")
_FARTHEST = 1e9


def _seconds(headers: Mapping[str, str], now: float) -> float | None:
    """Time that the server asks to wait: `Retry-After` in seconds or as a date (RFC 9110), or in milliseconds.

    A date is compared with the server's own clock, which the answer states in `Date`, or else with `now`.
    """
    for name, unit in zip(_WAITS, (1000, 1), strict=True):
        stated = headers.get(name, "").strip()
        if _NUMBER.fullmatch(stated):
            return min(float(stated) / unit, _FARTHEST)
    at, sent_at = _moment(headers.get("retry-after", "")), _moment(headers.get("date", ""))
    return None if at is None else max(0.0, at - (now if sent_at is None else sent_at))


def _moment(date: str) -> float | None:
    """A date of HTTP, in any of its three forms, in seconds since 1970; None if it is not one."""
    try:
        read = parsedate_to_datetime(date.strip())
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


_PLACES: tuple[Literal["message", "detail", "error", "type"], ...] = ("message", "detail", "error", "type")


def _message(body: str) -> str | None:
    """The error message, wherever servers put it: `error.message`, `error`, `message` or `detail`."""
    value = _error_object(body)
    inner = value.get("error")
    if isinstance(inner, dict):
        words = [*(inner.get(place) for place in ("message", "code", "type", "param")), _passed_on(inner)]
        return "; ".join(str(word) for word in words if isinstance(word, str | int) and word != "")
    for place in _PLACES:
        if found := value.get(place):
            return found if isinstance(found, str) else json.dumps(found)
    return None


_MOST_TOLD = 10_000
"""Characters of a message that are searched: it may quote the whole request."""


def _words(body: str, scrub: Scrub) -> Words:
    """The parts of an error, from wherever servers put them; those of a text alone are the text."""
    value = _error_object(body)
    inner = value.get("error")
    found = inner if isinstance(inner, dict) else value
    told = next((found[place] for place in ("message", "detail", "error") if found.get(place)), "")
    message = told if isinstance(told, str) else json.dumps(told)
    codes = [str(found.get(place)).casefold() for place in ("code", "type", "status")]
    return Words(
        scrub(f"{message} {_passed_on(found)}".strip())[:_MOST_TOLD] if value else "",
        frozenset(code for code in codes if code not in {"none", "null", ""}),
        _param_in(found),
    )


def _error_object(body: str) -> dict[str, JsonValue]:
    try:
        value: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else {}


def _passed_on(error: Mapping[str, JsonValue]) -> str:
    """The error of the server behind a router, as OpenRouter passes it on."""
    more = error.get("metadata")
    raw = more.get("raw") if isinstance(more, dict) else None
    return raw if isinstance(raw, str) else ""


def _param_in(error: Mapping[str, JsonValue]) -> str:
    """The parameter that an error names: `param`, or the place of the first entry of a validator such as FastAPI's."""
    listed = error.get("detail")
    first = listed[0] if isinstance(listed, list) and listed else None
    place = first.get("loc") if isinstance(first, dict) else error.get("param")
    names = [str(part) for part in place] if isinstance(place, list) else re.split(r"[./\[\]]", str(place))
    name = next((name for name in names if name not in {"", "body", "None"}), "")
    return name if re.fullmatch(r"\w{1,60}", name) else ""
