"""What is sent to Anthropic's messages, and what their answers are read as."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx2
import pytest
from pydantic import JsonValue, SecretStr
from tests.tables import table

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.models.endpoints.anthropic_messages import (
    AnthropicMessages,
    completion_of,
    headers,
    request_body,
)
from lcp_engine.features.models.endpoints.chat import Ask, Completion, Message, ModelSettings, enveloped
from lcp_engine.features.models.endpoints.complete import Answering, Times
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Again, Trouble
from lcp_engine.features.models.endpoints.http import Answer, Exchange
from lcp_engine.features.models.planner import ModelPlanner, Wording
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step
from lcp_engine.planners.base import AskedToWait, Question
from lcp_engine.planners.environment import MemoryProbeCache

SETTINGS = ModelSettings(
    endpoint="https://api.anthropic.com", model="m", key=SecretStr("sk-canary"), context_tokens=8000
)
SCHEMA: dict[str, JsonValue] = {"anyOf": [{"type": "object"}]}
ACTION = '{"ok": true, "action": "mission_complete", "summary": "s"}'
MESSAGES = [Message("system", "s"), Message("user", "u"), Message("user", "v"), Message("assistant", "a")]


def ask(rung: Rung, without: frozenset[str] = frozenset()) -> Ask:
    probe = Probe(SETTINGS.endpoint, "m", Step(rung, in_envelope=True), without)
    return Ask(MESSAGES, SCHEMA, probe, 64, Deadline(1e18, 600.0))


def test_the_system_stands_apart_and_roles_take_turns() -> None:
    assert request_body(ask(Rung.PROMPT), SETTINGS) == {
        "model": "m",
        "max_tokens": 64,
        "system": "s",
        "messages": [{"role": "user", "content": "u\n\nv"}, {"role": "assistant", "content": "a"}],
        "stream": True,
        "temperature": 0.0,
    }


def test_a_schema_is_an_output_format_or_a_tool_that_has_to_be_used() -> None:
    body = request_body(ask(Rung.JSON_SCHEMA, frozenset({"temperature"})), SETTINGS)
    assert body["output_config"] == {"format": {"type": "json_schema", "schema": enveloped(SCHEMA)}}
    assert "temperature" not in body
    body = request_body(ask(Rung.JSON_OBJECT_WITH_SCHEMA), SETTINGS)
    assert body["tool_choice"] == {"type": "tool", "name": "lcp_action"}
    (tool,) = body["tools"] if isinstance(body["tools"], list) else []
    assert isinstance(tool, dict)
    assert tool["input_schema"] == enveloped(SCHEMA)


def stream(*blocks: JsonValue, stop: str | None = "end_turn") -> list[dict[str, JsonValue]]:
    """The events of a message whose blocks come as deltas."""
    usage: dict[str, JsonValue] = {"input_tokens": 5, "cache_read_input_tokens": 6, "output_tokens": 1}
    begin: list[dict[str, JsonValue]] = [
        {"type": "message_start", "message": {"usage": usage}},
        {"type": "ping"},
    ]
    deltas: list[dict[str, JsonValue]] = [{"type": "content_block_delta", "delta": block} for block in blocks]
    end: dict[str, JsonValue] = {
        "type": "message_delta",
        "delta": {"stop_reason": stop},
        "usage": {"output_tokens": 9},
    }
    return [*begin, *deltas, end, {"type": "message_stop"}]


READ: list[tuple[list[dict[str, JsonValue]], Completion]] = [
    (stream({"type": "text_delta", "text": "a"}, {"text": "b"}), Completion("ab", "stop", 11, 9, cached_tokens=6)),
    (stream({"text": "a"}, stop="max_tokens"), Completion("a", "length", 11, 9, cached_tokens=6)),
    (
        stream({"thinking": "hm"}, {"text": "p"}, {"partial_json": '{"a'}, {"partial_json": '": 1}'}, stop="tool_use"),
        Completion('{"a": 1}', "stop", 11, 9, "hm", cached_tokens=6),
    ),
    (stream({"thinking": "{"}, {"thinking": "}"}), Completion("{}", "stop", 11, 9, "{}", cached_tokens=6)),
    (stream({"thinking": "Not {}."}, {"text": ""}), Completion("", "stop", 11, 9, "Not {}.", cached_tokens=6)),
    (
        [{"type": "message", "content": [{"type": "tool_use", "input": {"ä": 1}}], "stop_reason": "tool_use"}],
        Completion('{"ä": 1}', "stop"),
    ),
    (
        [{"type": "message", "content": [{"type": "tool_use", "name": "ls", "input": {}}], "stop_reason": "tool_use"}],
        Completion('{"tool_calls": [{"name": "ls", "arguments": ""}]}', "stop"),
    ),
]  # fmt: skip


@table(("parts", "completion"), READ)
def test_events_make_up_a_completion(parts: list[dict[str, JsonValue]], completion: Completion) -> None:
    assert completion_of(Answer(tuple(parts), is_whole=False), "here", str) == completion


@table(
    ("parts", "said", "again"),
    [
        ([], "the answer is empty", Again.BACK_OFF),
        (stream({"text": "a"}, stop=None), "the answer was cut off", Again.BACK_OFF),
        (stream(stop="refusal"), "the model refused", Again.NEVER),
        (
            [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
            "the server broke off: Overloaded",
            Again.WAIT,
        ),
        ([{"type": "error", "error": {"type": "invalid_request_error", "message": "x"}}], "x", Again.NEVER),
    ],
)
def test_what_is_no_completion_says_so(parts: list[dict[str, JsonValue]], said: str, again: Again) -> None:
    trouble = completion_of(Answer(tuple(parts), is_whole=False), "here", str)
    assert isinstance(trouble, Trouble)
    assert trouble.message.startswith("here: ")
    assert said in trouble.message
    assert trouble.again is again


def planner(*answers: httpx2.Response, sent: list[httpx2.Request]) -> ModelPlanner:
    """A planner over a transport that gives these answers in order."""

    def play(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return answers[len(sent) - 1]

    exchange = Exchange(SETTINGS, headers(SETTINGS), transport=httpx2.MockTransport(play))
    answering = Answering(
        AnthropicMessages(exchange, SETTINGS), MemoryProbeCache(), times=Times(sleep=lambda seconds: None)
    )
    return ModelPlanner(
        answering, SETTINGS, lambda question, budget, context, count: Wording(MESSAGES, SCHEMA)
    )


def whole(text: str) -> httpx2.Response:
    return httpx2.Response(
        200, json={"type": "message", "content": [{"type": "text", "text": text}], "stop_reason": "end_turn"}
    )


QUESTION = Question(1, 1, 1, "goal", "/", "goal")


def test_a_model_without_output_formats_has_to_use_the_tool() -> None:
    sent: list[httpx2.Request] = []
    refused = httpx2.Response(
        400, json={"error": {"type": "invalid_request_error", "message": "output_config: no"}}
    )
    tool: JsonValue = {"type": "tool_use", "input": {"action": json.loads(ACTION)}}
    used = httpx2.Response(200, json={"type": "message", "content": [tool], "stop_reason": "tool_use"})
    reply = planner(refused, used, sent=sent).answer(QUESTION)
    assert reply.text == ACTION
    assert [str(request.url) for request in sent] == ["https://api.anthropic.com/v1/messages"] * 2
    assert sent[0].headers["x-api-key"] == "sk-canary"
    assert sent[0].headers["anthropic-version"] == "2023-06-01"


def test_an_overloaded_server_asks_to_wait() -> None:
    sent: list[httpx2.Request] = []
    overloaded = httpx2.Response(
        529, json={"type": "error", "error": {"type": "overloaded_error", "message": "o"}}
    )
    with pytest.raises(AskedToWait) as waits:
        planner(overloaded, whole(f'{{"action": {ACTION}}}'), sent=sent).answer(QUESTION)
    assert (waits.value.seconds, len(sent)) == (None, 1)


def test_the_key_is_in_no_error() -> None:
    sent: list[httpx2.Request] = []
    wrong = httpx2.Response(401, json={"error": {"message": "invalid x-api-key sk-canary"}})
    asked = planner(wrong, sent=sent)
    with pytest.raises(LcpError) as failed:
        asked.answer(QUESTION)
    assert failed.value.code is ErrorCode.PLANNER_REFUSED
    assert "sk-canary" not in f"{failed.value} {asked!r} {replace(asked.settings)!r}"
