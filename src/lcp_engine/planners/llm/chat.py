"""Define a chat with a language model: messages, settings, the request for one action, token counts."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pydantic import JsonValue, SecretStr

from lcp_engine.planners.llm.errors import Trouble
from lcp_engine.planners.llm.output_modes import Probe, Step

Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class Completion:
    """What a model wrote.

    `finish_reason` is `stop`, `length` (never to be parsed), another word of the server's, or None where it said
    none. Tokens are None where nobody counted. `reasoning` is kept apart; `text` is taken from it only where the
    server left the content empty.
    """

    text: str
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning: str = ""


@dataclass(frozen=True)
class ModelSettings:
    """How to reach a model and what to ask of it.

    `endpoint` is a base URL without credentials (`http://127.0.0.1:1234/v1`); the key comes from the environment
    alone and shows itself nowhere. An empty `model` is the only one that the server has. Without `max_tokens` a reply
    has a quarter of the context, at most 4096. A `repeat_penalty` above 1 keeps small models from going in circles.
    `first_byte_seconds` is the longest silence, before the first byte and between two; `total_seconds` bounds a whole
    answer with everything that is tried again, and is less than what a turn may take. `concurrency` is per endpoint
    and process. `context_tokens` is None where the server is to say it.
    """

    endpoint: str
    model: str = ""
    key: SecretStr | None = field(default=None, repr=False)
    temperature: float | None = 0.0
    repeat_penalty: float | None = None
    max_tokens: int | None = None
    seed: int | None = None
    connect_seconds: float = 5.0
    first_byte_seconds: float = 240.0
    total_seconds: float = 540.0
    concurrency: int = 4
    context_tokens: int | None = None

    def scrub(self, text: str, *, shortest: int = 3) -> str:
        """`text` without the key, should a server have echoed it; keys under `shortest` characters are no secrets."""
        key = self.key.get_secret_value() if self.key else ""
        return text.replace(key, "…") if len(key) >= shortest else text


@dataclass(frozen=True)
class Ask:
    """One request for one action; `schema` is that of the turn, `deadline` a time of the clock.

    A `temperature` takes the place of the settings'.
    """

    messages: Sequence[Message]
    schema: Mapping[str, JsonValue]
    probe: Probe
    max_tokens: int
    deadline: float
    temperature: float | None = None


@dataclass(frozen=True)
class ModelFacts:
    """A model that a server names; `context_tokens` where it says so."""

    name: str
    context_tokens: int | None = None


class Chat(Protocol):
    """A way to speak to a server. Neither method raises, neither tries again."""

    @property
    def ladder(self) -> Sequence[Step]: ...

    def complete(self, ask: Ask, /) -> Completion | Trouble: ...

    def models(self, deadline: float, /) -> Sequence[ModelFacts] | Trouble: ...


def schema_for(ask: Ask) -> dict[str, JsonValue]:
    """The schema as the server takes it: in an envelope if need be, without the keywords that it refused."""
    schema = _without(ask.schema, ask.probe.without & _KEYWORDS)
    return enveloped(schema) if ask.probe.step.in_envelope else schema


def enveloped(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """`schema` as the only key `action` of an object, for decoders that refuse a union at the root."""
    inner = {key: value for key, value in schema.items() if key not in {"$schema", "$defs"}}
    envelope: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"action": inner},
        "required": ["action"],
        "additionalProperties": False,
    }
    return envelope if "$defs" not in schema else {**envelope, "$defs": schema["$defs"]}


def without_envelope(text: str) -> str:
    """What stands in the envelope, character by character; a text without one as it is."""
    opened = _OPENING.match(text)
    end = text.rstrip()
    return end[opened.end() - 1 : -1].rstrip() if opened and end.endswith("}") else text


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


_FRAME = 8
_KEYWORDS = frozenset({"minItems", "maxItems"})


def _without(schema: Mapping[str, JsonValue], keywords: frozenset[str]) -> dict[str, JsonValue]:
    def strip(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return _without(value, keywords)
        return [strip(item) for item in value] if isinstance(value, list) else value

    return {key: strip(value) for key, value in schema.items() if key not in keywords}


# The action itself has a text under this key, the envelope an object.
_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*\{')
