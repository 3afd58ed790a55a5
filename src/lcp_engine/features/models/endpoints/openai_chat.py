"""The chat completions of OpenAI, which most servers of models support."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import JsonValue

from lcp_engine.features.models.endpoints.chat import (
    Ask,
    Completion,
    ModelFacts,
    ModelSettings,
    reply_in,
    schema_for,
)
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import PARAMETERS, Again, Scrub, Trouble, trouble_within
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


@dataclass(frozen=True)
class OpenAIChat:
    """Chat completions at `{endpoint}/chat/completions`, streamed."""

    exchange: Exchange
    settings: ModelSettings
    ladder: Sequence[Step] = (
        Step(Rung.JSON_SCHEMA),
        Step(Rung.JSON_SCHEMA, in_envelope=True),
        Step(Rung.JSON_OBJECT_WITH_SCHEMA),
        Step(Rung.JSON_OBJECT),
        Step(Rung.PROMPT),
    )

    def complete(self, ask: Ask) -> Completion | Trouble:
        """The answer to one request, without retries."""
        body, where = request_body(ask, self.settings), self.exchange.where
        outcome = self.exchange.post(
            "/chat/completions",
            body,
            ask.deadline,
            lambda answer: completion_of(heard(answer, _words, ask.hear), where, self.settings.scrub),
        )
        if isinstance(outcome, Completion):
            METERS.of(ask.probe.endpoint, ask.probe.model).charge(ask.messages, outcome.input_tokens)
            return outcome
        return replace(outcome, optional=frozenset(PARAMETERS).intersection(body))

    def models(self, deadline: Deadline) -> Sequence[ModelFacts] | Trouble:
        """The models that the server lists, with their context if it reports that."""
        return self.exchange.get("/models", deadline, models_of)


def headers(settings: ModelSettings) -> dict[str, str]:
    """The key."""
    return {"Authorization": f"Bearer {settings.key.get_secret_value()}"} if settings.key else {}


def request_body(ask: Ask, settings: ModelSettings) -> JsonObject:
    """The body of one request, without what the server refused: all but `model` and `messages` can be left out."""
    without = ask.probe.without
    limit = "max_completion_tokens" if "max_tokens" in without else "max_tokens"
    optional: JsonObject = {
        "stream": True,
        "stream_options": None if "stream" in without else {"include_usage": True},
        limit: ask.max_tokens,
        "temperature": settings.temperature if ask.temperature is None else ask.temperature,
        "seed": settings.seed if ask.seed is None else ask.seed,
        "repeat_penalty": settings.repeat_penalty,
    }
    body: JsonObject = {
        "model": ask.probe.model,
        "messages": [{"role": message.role, "content": message.content} for message in ask.messages],
        **{key: value for key, value in optional.items() if value is not None and key not in without},
    }
    response_format = _response_format(ask)
    return body if response_format is None else {**body, "response_format": response_format}


def completion_of(answer: Answer, where: str, scrub: Scrub) -> Completion | Trouble:
    """The completion that the objects of an answer make up: deltas of a stream, or one whole message."""
    deltas, whole = _Draft(), _Draft()
    finish_reason: str | None = None
    usage: Mapping[str, JsonValue] = {}
    has_choices = False
    for part in answer.objects:
        usage = object_in(part.get("usage")) or usage
        choices = [object_in(choice) for choice in list_in(part.get("choices"))[:1]]
        for error in (part.get("error"), *(_fault_of(choice) for choice in choices), _fault_of_minimax(part)):
            if error:
                read, written = (
                    count_in(usage.get(f"{name}_tokens")) or 0 for name in ("prompt", "completion")
                )
                return trouble_within(where, error, scrub, input_tokens=read, output_tokens=written)
        for choice in choices:
            has_choices = True
            delta, message = object_in(choice.get("delta")), object_in(choice.get("message"))
            if refusal := text_in(delta.get("refusal")) or text_in(message.get("refusal")):
                return Trouble(f"{where}: an action is expected, the model refused: {scrub(refusal)[:200]!r}")
            deltas.take(delta)
            whole.take(message)
            finish_reason = text_in(choice.get("finish_reason")) or finish_reason
    if finish_reason is None and not answer.is_whole:
        return Trouble(f"{where}: a whole completion is expected, the answer was cut off", Again.BACK_OFF)
    if not has_choices:
        return Trouble(f"{where}: a completion with a choice is expected, the answer has none", Again.ONCE)
    if finish_reason is not None and finish_reason.startswith(_FILTERED):
        return Trouble(f"{where}: an action is expected, the server's content filter stopped the model")
    # After a stream of deltas, the last event of MiniMax has the whole message once more.
    said, thought = deltas.said or whole.said, deltas.thought or whole.thought
    return Completion(
        text=reply_in(said, thought, deltas.calls or whole.calls),
        finish_reason="length" if finish_reason in _CUT_OFF else finish_reason,
        input_tokens=count_in(usage.get("prompt_tokens")),
        output_tokens=count_in(usage.get("completion_tokens")),
        cached_tokens=count_in(object_in(usage.get("prompt_tokens_details")).get("cached_tokens")),
        reasoning=thought,
    )


def _words(part: JsonObject) -> str:
    """The text of a delta, or the thought that comes before it."""
    delta = next((object_in(object_in(one).get("delta")) for one in list_in(part.get("choices"))), {})
    return text_in(delta.get("content")) or text_in(delta.get("reasoning_content") or delta.get("reasoning"))


_BROKEN = frozenset({"error", "network_error", "insufficient_system_resource", "abort"})
"""Why a server stopped for its own reasons: OpenRouter and Mistral, Z.ai, DeepSeek, vLLM and SGLang."""
_CUT_OFF = frozenset({"length", "max_tokens", "model_length", "model_context_window_exceeded"})
"""Why a completion has no end: all servers, those that pass Anthropic on, Mistral, Z.ai."""
_FILTERED = ("content_filter", "sensitive")
"""How the words for a filter begin; Google adds a reason."""
_MINIMAX: Mapping[int, int] = {
    1002: 429, 1004: 401, 1008: 402, 1026: 400, 1027: 400, 1039: 429, 1041: 429, 2013: 400, 2049: 401,
}  # fmt: skip
"""The HTTP status that a code of MiniMax stands for; any other is a fault of the server."""


@dataclass
class _Draft:
    """A message as far as it has arrived."""

    _said: list[str] = field(default_factory=list)
    _thought: list[str] = field(default_factory=list)
    _calls: dict[int, list[str]] = field(default_factory=dict)

    @property
    def said(self) -> str:
        return "".join(self._said)

    @property
    def thought(self) -> str:
        return "".join(self._thought)

    @property
    def calls(self) -> Sequence[tuple[str, str]]:
        """The tools that it calls, with their arguments."""
        return [(name, "".join(arguments)) for name, *arguments in self._calls.values()]

    def take(self, message: Mapping[str, JsonValue]) -> None:
        self._said.append(text_in(message.get("content")))
        self._thought.append(text_in(message.get("reasoning_content") or message.get("reasoning")))
        calls = [object_in(call) for call in list_in(message.get("tool_calls"))]
        if one := message.get("function_call"):
            calls.append({"function": one})
        for place, part in enumerate(calls):
            index, function = count_in(part.get("index")), object_in(part.get("function"))
            at = place if index is None else index
            call = self._calls.setdefault(at, [text_in(function.get("name"))])
            more = function.get("arguments")
            call.append(json.dumps(more, ensure_ascii=False) if isinstance(more, dict) else text_in(more))


def _fault_of(choice: Mapping[str, JsonValue]) -> JsonValue:
    """The error that a choice ends with; None if there is none."""
    reason = text_in(choice.get("finish_reason"))
    return choice.get("error") or ({"message": f"finish_reason {reason}"} if reason in _BROKEN else None)


def _fault_of_minimax(part: JsonObject) -> JsonValue:
    """The error of MiniMax, whose HTTP status is 200; None if there is none."""
    stated = object_in(part.get("base_resp"))
    code = count_in(stated.get("status_code"))
    if not code:
        return None
    return {"message": f"{text_in(stated.get('status_msg'))} ({code})", "code": _MINIMAX.get(code, 500)}


def models_of(answer: Answer) -> Sequence[ModelFacts]:
    """The models that an answer of `/models` lists."""
    found = [object_in(model) for part in answer.objects for model in list_in(part.get("data"))]
    return [ModelFacts(name, _context_of(model)) for model in found if (name := text_in(model.get("id")))]


def _context_of(model: Mapping[str, JsonValue]) -> int | None:
    """The size of the context, for which vLLM, llama.cpp, LM Studio and OpenRouter have a key each."""
    meta = object_in(model.get("meta"))
    said = (
        model.get("max_model_len"), meta.get("n_ctx"), model.get("loaded_context_length"), model.get("context_length"),
    )  # fmt: skip
    return next((tokens for word in said if (tokens := count_in(word))), None)


def _response_format(ask: Ask) -> JsonObject | None:
    schema = schema_for(ask)
    match ask.probe.step.rung:
        case Rung.JSON_SCHEMA:
            named: JsonObject = {"name": "lcp_action", "strict": True, "schema": schema}
            return {"type": "json_schema", "json_schema": named}
        case Rung.JSON_OBJECT_WITH_SCHEMA:
            return {"type": "json_object", "schema": schema}
        case Rung.JSON_OBJECT:
            return {"type": "json_object"}
        case Rung.PROMPT:
            return None
