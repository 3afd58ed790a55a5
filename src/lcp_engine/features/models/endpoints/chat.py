"""Define a chat with a language model: messages, settings, the request for one action, token counts."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from pydantic import JsonValue, SecretStr

from lcp_engine.core.protocol.strict_json import is_bare_object
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Trouble
from lcp_engine.features.models.endpoints.scrub import scrubbed
from lcp_engine.features.models.prompts.output_modes import Probe, Step
from lcp_engine.planners.base import MAX_WAIT, CompletionRecord

Role: TypeAlias = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True)
class Completion:
    """Text that a model wrote."""

    text: str
    """The reply: see `reply_in`."""
    finish_reason: str | None = None
    """`stop`, `length` (then `text` is never parsed), another word of the server, or None if it sent none."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """Tokens are None if the server did not count them."""
    reasoning: str = ""
    cached_tokens: int | None = None
    """Those of the prompt that the server had in its cache."""
    completions: Sequence[CompletionRecord] = ()
    """The requests that it took, the last one is its own."""

    @property
    def written(self) -> str:
        """The text, or the thoughts of a model that wrote nothing else."""
        return self.text if self.text.strip() else self.reasoning


@dataclass(frozen=True)
class ModelSettings:
    """Address of a model, and how it samples."""

    endpoint: str
    """A base URL without credentials, such as `http://127.0.0.1:1234/v1`."""
    model: str = ""
    """Empty: the only model that the server has."""
    key: SecretStr | None = field(default=None, repr=False)
    """From the environment; never stored, printed or logged."""
    keyless: str = ""
    """Why there is no key, and what to do about it: a sentence for people."""
    temperature: float | None = 0.0
    repeat_penalty: float | None = None
    """A little above 1 keeps small models from repeating themselves."""
    max_tokens: int | None = None
    """The most tokens of a reply; None: a quarter of the context, at most 4096."""
    seed: int | None = None
    connect_seconds: float = 5.0
    first_byte_seconds: float = 240.0
    """The longest silence, before the first byte and between any two."""
    total_seconds: float = 540.0
    """The most time for a reply with all retries; less than the timeout of a turn."""
    concurrency: int = 4
    """Requests at a time, for each endpoint and process."""
    context_tokens: int | None = None
    """The size of the context; None: as the server reports it."""
    max_wait: float = MAX_WAIT
    """The most seconds that a question waits for a server that asks to wait (R34); 0: it fails instead."""
    max_answer_bytes: int = 16 * 2**20
    """The most bytes of an answer; its text may have a quarter of them."""

    def scrub(self, text: str, *, shortest: int = 3) -> str:
        """`text` without the key, in case a server echoed it; one of fewer than `shortest` characters is not a secret.

        Text is scrubbed after it was decoded, and before it is cut.
        """
        key = self.key.get_secret_value() if self.key else ""
        return scrubbed(text, key) if len(key) >= shortest else text


@dataclass(frozen=True)
class Ask:
    """One request for one action."""

    messages: Sequence[Message]
    schema: Mapping[str, JsonValue]
    """The schema of the turn's reply."""
    probe: Probe
    max_tokens: int
    deadline: Deadline
    temperature: float | None = None
    """Overrides the temperature of the settings."""
    seed: int | None = None
    """Overrides the seed of the settings."""
    hear: Callable[[str], object] = str
    """Called with words of the model as they arrive; an empty text begins anew."""


@dataclass(frozen=True)
class ModelFacts:
    """A model that a server lists, with the size of its context if the server reports it."""

    name: str
    context_tokens: int | None = None


class Chat(Protocol):
    """The protocol of a server. Its methods neither raise nor retry."""

    @property
    def ladder(self) -> Sequence[Step]: ...

    def complete(self, ask: Ask, /) -> Completion | Trouble: ...

    def models(self, deadline: Deadline, /) -> Sequence[ModelFacts] | Trouble: ...


def reply_in(content: str, thought: str, calls: Sequence[tuple[str, str]] = ()) -> str:
    """The reply in what a model wrote: the content, or without one a thought that is an object and nothing else (R1).

    Servers that separate thoughts put the reply among them if a model never closes them. A thought with any other word
    weighs the object that it quotes, and is not a reply. Without either, `calls` of tools (names and arguments) are
    written out, so that the reply is refused for what it is.
    """
    if content.strip():
        return content
    if calls and not is_bare_object(thought):
        called = [{"name": name, "arguments": arguments} for name, arguments in calls]
        return json.dumps({"tool_calls": called}, ensure_ascii=False)
    return thought if is_bare_object(thought) else content


def schema_for(ask: Ask, unsupported: frozenset[str] = frozenset()) -> dict[str, JsonValue]:
    """The schema as the server accepts it: in an envelope if needed, without keywords that it refused or does not know.

    What a schema then leaves open is checked when the reply is read.
    """
    schema = _without(ask.schema, (ask.probe.without & BOUNDS) | unsupported)
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
    """The text inside the envelope, unchanged; a text without an envelope is returned as it is."""
    opened = _OPENING.match(text)
    end = text.rstrip()
    return end[opened.end() - 1 : -1].rstrip() if opened and end.endswith("}") else text


def most_tokens(text: str) -> int:
    """An upper bound for the tokens of `text` in common vocabularies: half of its bytes, where a third is usual."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 2)


def about_tokens(text: str) -> int:
    """An estimate of the tokens of `text`, to plan what fits: prose has 4 bytes to a token, code and JSON 3."""
    return -(-len(text.encode("utf-8", "surrogatepass")) // 3)


def most_tokens_of(messages: Sequence[Message]) -> int:
    """Like `most_tokens`, including what a chat template adds around each message."""
    return sum(most_tokens(message.content) + _FRAME for message in messages)


def is_repetitive(text: str) -> bool:
    """True if `text` ends in repetitions, as small models write them until they are stopped."""
    end = text[-2000:].encode("utf-8", "surrogatepass")
    # Prose and code shrink to a third, lists of similar things to a sixth.
    return len(end) >= 400 and len(zlib.compress(end)) * 10 < len(end)


_FRAME = 8
BOUNDS = frozenset({"minItems", "maxItems", "minimum", "maximum", "minLength", "maxLength"})
"""Keywords of a schema without which it is the same but for the bounds of its values."""


def _without(schema: Mapping[str, JsonValue], keywords: frozenset[str]) -> dict[str, JsonValue]:
    def strip(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return _without(value, keywords)
        return [strip(item) for item in value] if isinstance(value, list) else value

    return {key: strip(value) for key, value in schema.items() if key not in keywords}


# The action itself has a text under this key, the envelope an object.
_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*\{')
