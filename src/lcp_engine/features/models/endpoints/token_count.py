"""Count the tokens of prompts: by the server where it can, else from their bytes by what it last charged."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit, urlunsplit

from pydantic import JsonValue

from lcp_engine.features.models.endpoints.chat import Message, ModelSettings
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Trouble
from lcp_engine.features.models.endpoints.http import Answer, Exchange, count_in, list_in

UNKNOWN = 1 / 2
"""Tokens to a byte while nothing is known: common vocabularies have no more, and a third is usual."""
_FEWEST, _MOST = 1 / 16, 1.0
"""A number of tokens to a byte beyond these is not a count of that text."""
_GROWN = 1.04
"""How much denser the next prompt may be than the one that was measured."""
_WRONG = 1.15
"""A server that charges so much more than it counted counts wrongly."""
SECONDS = 5.0
_MOST_BYTES = 8 * 2**20
_PROBE = "The file has 3 lines: def double(x): return 2 * x\n"


@dataclass
class Meter:
    """Count of the tokens of one model's texts, as far as its server has said; usable from any thread."""

    ratio: float | None = None
    """Tokens to a byte in the last prompt that was counted."""
    counts: bool | None = None
    """Whether the server counts tokens; None until it was asked."""
    counted: dict[int, int] = field(default_factory=dict)
    """The last count of the server, by the bytes of the prompt."""

    def count(self, text: str) -> int:
        """About how many tokens `text` has, rather too many than too few."""
        ratio = UNKNOWN if self.ratio is None else min(self.ratio * _GROWN, _MOST)
        return math.ceil(byte_count(text) * ratio)

    def measure(self, messages: Sequence[Message], tokens: int) -> bool:
        """Remember what a prompt has by the server's count. False if that cannot be."""
        size = bytes_of(messages)
        if not size * _FEWEST <= tokens <= size * _MOST + _ADDED:
            return False
        self.ratio = tokens / max(size, 1)
        return True

    def charge(self, messages: Sequence[Message], tokens: int | None) -> None:
        """Learn from the usage of a request; a count of the server that it contradicts is not asked for again."""
        counted = self.counted.get(bytes_of(messages))
        if tokens is None or not self.measure(messages, tokens):
            return
        if counted is not None and tokens > counted * _WRONG + _ADDED:
            self.counts = False


_ADDED = 64
"""Tokens that a chat template may add to a prompt."""


@dataclass(frozen=True)
class Meters:
    """The meter of each model; usable from any thread."""

    _meters: dict[tuple[str, str], Meter] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, endpoint: str, model: str) -> Meter:
        with self._lock:
            return self._meters.setdefault((endpoint, model), Meter())


METERS = Meters()
"""What all planners of this process know."""


@dataclass(frozen=True)
class Tokenizer:
    """Asks a server at `/tokenize`, as llama.cpp and vLLM have it, beside the `/v1` of its endpoint."""

    exchange: Exchange

    def count(self, messages: Sequence[Message], model: str, meter: Meter, deadline: Deadline) -> int | None:
        """The tokens of the messages, without what a chat template adds; None if the server does not count them.

        It is asked for a short text first, so that no prompt is sent to a server that cannot count.
        """
        if meter.counts is None:
            meter.counts = self._ask((Message("user", _PROBE),), model, deadline) is not None
        if not meter.counts:
            return None
        tokens = self._ask(messages, model, deadline)
        if tokens is None:
            meter.counts = False
        else:
            meter.counted = {bytes_of(messages): tokens}
        return tokens

    def _ask(self, messages: Sequence[Message], model: str, deadline: Deadline) -> int | None:
        text = "\n".join(message.content for message in messages)
        # llama.cpp reads `content`, vLLM `prompt` and `model`; each ignores the rest.
        body: dict[str, JsonValue] = {
            "content": text, "prompt": text, "model": model, "add_special": False, "add_special_tokens": False,
        }  # fmt: skip
        soon = min(deadline, self.exchange.deadline(SECONDS), key=lambda either: either.at)
        tokens = self.exchange.post("/tokenize", body, soon, _counted)
        if tokens is None or isinstance(tokens, Trouble):
            return None
        return tokens if Meter().measure(messages, tokens) else None


def tokenizer_of(settings: ModelSettings, headers: dict[str, str]) -> Tokenizer:
    """The tokenizer of the server at an endpoint; its answers are small, and waited for briefly."""
    parts = urlsplit(settings.endpoint)
    path = parts.path.rstrip("/").removesuffix("/v1")
    beside = urlunsplit(parts._replace(path=path))
    brief = replace(
        settings,
        endpoint=beside,
        first_byte_seconds=min(SECONDS, settings.first_byte_seconds),
        max_answer_bytes=min(_MOST_BYTES, settings.max_answer_bytes),
    )
    return Tokenizer(Exchange(brief, headers))


def byte_count(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def bytes_of(messages: Sequence[Message]) -> int:
    """Number of bytes of a prompt."""
    return sum(byte_count(message.content) + 1 for message in messages)


def _counted(answer: Answer) -> int | None:
    """The count in an answer: vLLM states it, llama.cpp lists the tokens."""
    for part in answer.objects:
        count = count_in(part.get("count"))
        return len(list_in(part.get("tokens"))) or None if count is None else count
    return None
