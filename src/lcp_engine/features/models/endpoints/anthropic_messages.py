"""The Messages API of Anthropic."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from lcp_engine.features.models.endpoints.chat import (
    Ask,
    Completion,
    Message,
    ModelFacts,
    ModelSettings,
    reply_in,
    schema_for,
)
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Again, Scrub, Trouble, trouble_within
from lcp_engine.features.models.endpoints.http import (
    Answer,
    Exchange,
    JsonObject,
    count_in,
    heard,
    list_in,
    object_in,
    text_in,
)
from lcp_engine.features.models.endpoints.token_count import METERS
from lcp_engine.features.models.prompts.output_modes import Rung, Step

VERSION = "2023-06-01"
_TOOL = "lcp_action"
UNSUPPORTED = frozenset({"maxItems", "minimum", "maximum", "minLength", "maxLength"})
"""Keywords that the output format refuses; tools take any."""


@dataclass(frozen=True)
class AnthropicMessages:
    """Messages at `{endpoint}/v1/messages`, streamed. A schema must have an object at its root here.

    `json_schema` is the output format, `json_object_with_schema` a tool that the model must use: each model supports at
    least one of them.
    """

    exchange: Exchange
    settings: ModelSettings
    ladder: Sequence[Step] = (
        Step(Rung.JSON_SCHEMA, in_envelope=True),
        Step(Rung.JSON_OBJECT_WITH_SCHEMA, in_envelope=True),
        Step(Rung.PROMPT),
    )

    def complete(self, ask: Ask) -> Completion | Trouble:
        """The answer to one request, without retries."""
        body, where = request_body(ask, self.settings), self.exchange.where
        outcome = self.exchange.post(
            "/v1/messages",
            body,
            ask.deadline,
            lambda answer: completion_of(heard(answer, _words, ask.hear), where, self.settings.scrub),
        )
        if isinstance(outcome, Completion):
            METERS.of(ask.probe.endpoint, ask.probe.model).charge(ask.messages, outcome.input_tokens)
            return outcome
        # A message needs `max_tokens`.
        return replace(outcome, optional=frozenset({"temperature"}).intersection(body))

    def models(self, deadline: Deadline) -> Sequence[ModelFacts] | Trouble:
        """The models that the server lists."""
        return self.exchange.get("/v1/models", deadline, models_of)


def headers(settings: ModelSettings) -> dict[str, str]:
    """The key, and the version of the API."""
    proof = {"x-api-key": settings.key.get_secret_value()} if settings.key else {}
    return {"anthropic-version": VERSION, **proof}


def request_body(ask: Ask, settings: ModelSettings) -> JsonObject:
    """The body of one request; system messages are apart from the conversation."""
    body: JsonObject = {
        "model": ask.probe.model,
        "max_tokens": ask.max_tokens,
        "messages": [*_conversation(ask.messages)],
        "stream": True,
    }
    if system := "\n\n".join(message.content for message in ask.messages if message.role == "system"):
        body["system"] = system
    temperature = settings.temperature if ask.temperature is None else ask.temperature
    if temperature is not None and "temperature" not in ask.probe.without:
        body["temperature"] = temperature
    match ask.probe.step.rung:
        case Rung.JSON_SCHEMA:
            body["output_config"] = {
                "format": {"type": "json_schema", "schema": schema_for(ask, UNSUPPORTED)}
            }
        case Rung.JSON_OBJECT_WITH_SCHEMA:
            description = "Answer with one LCP action."
            tool: JsonObject = {
                "name": _TOOL,
                "description": description,
                "input_schema": schema_for(ask),
            }
            body["tools"] = [tool]
            body["tool_choice"] = {"type": "tool", "name": _TOOL}
        case Rung.JSON_OBJECT | Rung.PROMPT:
            pass
    return body


def completion_of(answer: Answer, where: str, scrub: Scrub) -> Completion | Trouble:
    """The completion that the events of a stream, or one whole message, make up."""
    draft = _Draft()
    is_empty = True
    for part in answer.objects:
        is_empty = False
        if part.get("type") == "error" or part.get("error"):
            paid = (draft.input_tokens or 0, draft.output_tokens or 0)
            return _broken_off(where, part.get("error"), scrub, paid)
        draft.take(part)
    if draft.stop_reason is None:
        fact = "the answer is empty" if is_empty else "the answer was cut off"
        return Trouble(f"{where}: a whole message is expected, {fact}", Again.BACK_OFF)
    if draft.stop_reason == "refusal":
        return Trouble(f"{where}: an action is expected, the model refused")
    return Completion(
        text=draft.reply,
        finish_reason=_FINISH.get(draft.stop_reason, draft.stop_reason),
        input_tokens=draft.input_tokens,
        output_tokens=draft.output_tokens,
        cached_tokens=draft.cached_tokens,
        reasoning="".join(draft.thinking),
    )


def models_of(answer: Answer) -> Sequence[ModelFacts]:
    """The models that an answer of `/v1/models` lists."""
    found = [object_in(model) for part in answer.objects for model in list_in(part.get("data"))]
    return [
        ModelFacts(name, count_in(model.get("max_input_tokens")))
        for model in found
        if (name := text_in(model.get("id")))
    ]


def _words(part: JsonObject) -> str:
    """The text of a delta: of the reply, of a tool's input, or of a thought."""
    delta = object_in(part.get("delta"))
    return next(
        (said for key in ("text", "partial_json", "thinking") if (said := text_in(delta.get(key)))), ""
    )


_FINISH: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
}


@dataclass
class _Draft:
    """A message as far as it has arrived."""

    text: list[str] = field(default_factory=list)
    tool: list[str] = field(default_factory=list)
    thinking: list[str] = field(default_factory=list)
    called: str = _TOOL
    stop_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def reply(self) -> str:
        tool, text, thought = "".join(self.tool), "".join(self.text), "".join(self.thinking)
        if self.called == _TOOL:
            return reply_in(tool or text, thought)
        return reply_in(text, thought, [(self.called, tool)])

    def take(self, part: JsonObject) -> None:
        match part.get("type"):
            case "message_start":
                self._count(object_in(part.get("message")))
            case "content_block_start":
                self._add(object_in(part.get("content_block")))
            case "content_block_delta":
                self._add(object_in(part.get("delta")))
            case "message_delta":
                self._count({**part, **object_in(part.get("delta"))})
            case "message":
                for block in list_in(part.get("content")):
                    self._add(object_in(block))
                self._count(part)

    def _add(self, block: Mapping[str, JsonValue]) -> None:
        if block.get("type") == "tool_use":
            self.called = text_in(block.get("name")) or self.called
        self.text.append(text_in(block.get("text")))
        self.thinking.append(text_in(block.get("thinking")))
        self.tool.append(text_in(block.get("partial_json")))
        # In a stream a tool's input begins as an empty object and arrives in parts; in a message it is whole.
        if given := block.get("input"):
            self.tool.append(json.dumps(given, ensure_ascii=False))

    def _count(self, part: Mapping[str, JsonValue]) -> None:
        usage = object_in(part.get("usage"))
        known = [tokens for key in _INPUT if (tokens := count_in(usage.get(key))) is not None]
        written = count_in(usage.get("output_tokens"))
        self.input_tokens = sum(known) if known else self.input_tokens
        cached = count_in(usage.get("cache_read_input_tokens"))
        self.cached_tokens = self.cached_tokens if cached is None else cached
        self.output_tokens = self.output_tokens if written is None else written
        self.stop_reason = text_in(part.get("stop_reason")) or self.stop_reason


_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


def _conversation(messages: Sequence[Message]) -> list[JsonObject]:
    """The messages without the system's; neighbours of the same role are joined."""
    said: list[JsonObject] = []
    for message in messages:
        if message.role == "system":
            continue
        if said and said[-1]["role"] == message.role:
            said[-1] = {"role": message.role, "content": f"{said[-1]['content']}\n\n{message.content}"}
        else:
            said.append({"role": message.role, "content": message.content})
    return said


def _broken_off(where: str, error: JsonValue, scrub: Scrub, paid: tuple[int, int]) -> Trouble:
    """Errors inside a stream have no status: their type decides whether a retry can help."""
    kind = object_in(error).get("type")
    status = {"overloaded_error": 529, "rate_limit_error": 429, "api_error": 500}.get(text_in(kind), 400)
    stated = {**object_in(error), "code": status}
    return trouble_within(where, stated, scrub, input_tokens=paid[0], output_tokens=paid[1])
