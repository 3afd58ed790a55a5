"""Define what the transports have in common: a request for one action, and what a server knows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from lcp_engine.planners.llm.errors import Trouble
from lcp_engine.planners.llm.output_modes import Probe, Step
from lcp_engine.planners.llm.types import Completion, Message


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


_KEYWORDS = frozenset({"minItems", "maxItems"})


def _without(schema: Mapping[str, JsonValue], keywords: frozenset[str]) -> dict[str, JsonValue]:
    def strip(value: JsonValue) -> JsonValue:
        if isinstance(value, dict):
            return _without(value, keywords)
        return [strip(item) for item in value] if isinstance(value, list) else value

    return {key: strip(value) for key, value in schema.items() if key not in keywords}


# The action itself has a text under this key, the envelope an object.
_OPENING = re.compile(r'\s*\{\s*"action"\s*:\s*\{')
