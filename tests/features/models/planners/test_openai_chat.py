"""What is sent to a chat completions endpoint, and what its answers are read as."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx2
from pydantic import JsonValue, SecretStr
from tests.tables import table

from lcp_engine.features.models.endpoints.chat import (
    Ask,
    Completion,
    Message,
    ModelFacts,
    ModelSettings,
    enveloped,
    without_envelope,
)
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.endpoints.errors import Trouble
from lcp_engine.features.models.endpoints.http import Exchange
from lcp_engine.features.models.endpoints.openai_chat import OpenAIChat, headers, request_body
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step

SETTINGS = ModelSettings(endpoint="http://127.0.0.1:1/v1", model="m", key=SecretStr("sk-canary"), seed=7)
TOP = Step(Rung.JSON_SCHEMA)
SCHEMA: dict[str, JsonValue] = {"anyOf": [{"type": "array", "minItems": 1}], "$defs": {"A": {"type": "null"}}}


def ask(step: Step = TOP, without: frozenset[str] = frozenset()) -> Ask:
    messages = [Message("system", "s"), Message("user", "u")]
    return Ask(messages, SCHEMA, Probe(SETTINGS.endpoint, "m", step, without), 64, Deadline(1e18, 600.0))


def chat(answer: httpx2.Response | Iterator[bytes], sent: list[httpx2.Request] | None = None) -> OpenAIChat:
    def play(request: httpx2.Request) -> httpx2.Response:
        if sent is not None:
            sent.append(request)
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(200, content=answer)

    exchange = Exchange(SETTINGS, headers(SETTINGS), transport=httpx2.MockTransport(play))
    return OpenAIChat(exchange, SETTINGS)


def test_a_request_streams_and_asks_for_usage() -> None:
    sent: list[httpx2.Request] = []
    chat(httpx2.Response(200, json={"choices": []}), sent).complete(ask())
    assert str(sent[0].url) == "http://127.0.0.1:1/v1/chat/completions"
    assert sent[0].headers["authorization"] == "Bearer sk-canary"
    assert json.loads(sent[0].content) == {
        "model": "m",
        "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 64,
        "temperature": 0.0,
        "seed": 7,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "lcp_action", "strict": True, "schema": SCHEMA},
        },
    }


ENVELOPE: JsonValue = enveloped(SCHEMA)
FORMATS: list[tuple[Step, JsonValue]] = [
    (Step(Rung.JSON_OBJECT_WITH_SCHEMA), {"type": "json_object", "schema": {**SCHEMA}}),
    (Step(Rung.JSON_OBJECT), {"type": "json_object"}),
    (Step(Rung.PROMPT), None),
    (Step(Rung.JSON_OBJECT_WITH_SCHEMA, in_envelope=True), {"type": "json_object", "schema": ENVELOPE}),
]


@table(("step", "response_format"), FORMATS)
def test_each_rung_has_its_response_format(step: Step, response_format: JsonValue) -> None:
    assert request_body(ask(step), SETTINGS).get("response_format") == response_format


def test_what_a_server_refused_is_not_sent() -> None:
    refused = frozenset({"stream_options", "temperature", "seed", "max_tokens", "minItems"})
    body = request_body(ask(Step(Rung.JSON_OBJECT_WITH_SCHEMA), refused), SETTINGS)
    assert not body.keys() & refused
    assert body["max_completion_tokens"] == 64
    assert "minItems" not in json.dumps(body)
    assert '"type": "array"' in json.dumps(body)


def test_an_envelope_keeps_definitions_at_the_root() -> None:
    assert enveloped(SCHEMA) == {
        "type": "object",
        "properties": {"action": {"anyOf": SCHEMA["anyOf"]}},
        "required": ["action"],
        "additionalProperties": False,
        "$defs": SCHEMA["$defs"],
    }


@table(
    ("text", "inner"),
    [
        ('{"action": {"action": "error"}}', '{"action": "error"}'),
        (' {\n "action" :{ "a": "}" } \n}\n', '{ "a": "}" }'),
        ('{"action": "error", "ok": false}', '{"action": "error", "ok": false}'),
        ('{"action": {"a": 1}', '{"a": 1'),  # cut off before, cut off now
        ("no JSON", "no JSON"),
        ("", ""),
    ],
)
def test_an_envelope_is_taken_off_and_nothing_else(text: str, inner: str) -> None:
    assert without_envelope(text) == inner


def event(**keys: JsonValue) -> bytes:
    return b"data: " + json.dumps(keys).encode() + b"\n\n"


def choice(finish: str | None = None, **delta: JsonValue) -> dict[str, JsonValue]:
    return {"index": 0, "delta": delta, "finish_reason": finish}


CALL = json.dumps({"tool_calls": [{"name": "ls", "arguments": '{"a": 1}'}]})
USAGE: dict[str, JsonValue] = {"prompt_tokens": 3, "completion_tokens": 4}
ANSWERS: list[tuple[list[bytes], Completion]] = [
    (
        [event(choices=[choice(content="a")]), event(choices=[choice("stop", content="b")]), b"data: [DONE]\n\n"],
        Completion("ab", "stop"),
    ),
    (
        [event(choices=[choice("stop", content="é\u2028")]), event(choices=[], usage=USAGE)],
        Completion("é\u2028", "stop", 3, 4),
    ),
    (
        [event(choices=[choice(reasoning="think")]), event(choices=[choice("length", content="x")])],
        Completion("x", "length", reasoning="think"),
    ),
    ([event(choices=[choice("stop", reasoning_content="{}")])], Completion("{}", "stop", reasoning="{}")),
    (
        [
            event(choices=[choice(content=None, reasoning_content="Perhaps ")]),
            event(choices=[choice("stop", reasoning_content="{}")]),
        ],
        Completion("", "stop", reasoning="Perhaps {}"),
    ),
    ([event(choices=[choice("stop", content=" ", reasoning="{} No")])], Completion(" ", "stop", reasoning="{} No")),
    ([event(choices=[choice("stop", content="{}", reasoning="{} {}")])], Completion("{}", "stop", reasoning="{} {}")),
    (
        [event(choices=[choice("stop", content=[{"type": "reasoning", "text": "{}"}, {"type": "text", "text": "a"}])])],
        Completion("a", "stop"),
    ),
    ([b': ping\r\n\r\ndata:{"choices":\r\ndata: []}\r\n\r\ndata: [DONE]\r\n'], Completion("")),
    ([b'{"choices": [{"message": {"content": "{}"}}], "usage": {"prompt_tokens": true}}'], Completion("{}")),
    ([b'{"choices": [{"message": {"content": [{"type": "text", "text": "a"}, 1]}}]}'], Completion("a")),
    # MiniMax: the last event has the whole message again.
    (
        [
            event(choices=[choice(role="assistant", reasoning_content="hm", content="a")]),
            event(choices=[choice(content="b")]),
            event(
                choices=[{**choice("stop"), "message": {"reasoning_content": "hm", "content": "ab"}}],
                base_resp={"status_code": 0, "status_msg": ""},
            ),
        ],
        Completion("ab", "stop", reasoning="hm"),
    ),
    ([event(choices=[{**choice("stop", content="ab"), "message": {"content": "ab"}}])], Completion("ab", "stop")),
    (
        [event(choices=[choice(role="assistant")]), event(choices=[{**choice("stop"), "message": {"content": "ab"}}])],
        Completion("ab", "stop"),
    ),
    ([event(choices=[choice("model_length", content="a")])], Completion("a", "length")),
    (
        [
            event(choices=[choice(tool_calls=[{"index": 0, "function": {"name": "ls", "arguments": '{"a"'}}])]),
            event(choices=[choice(tool_calls=[{"index": 0, "function": {"arguments": ": 1}"}}])]),
            event(choices=[{**choice("tool_calls"), "message": {"tool_calls": [{"function": {"name": "ls"}}]}}]),
        ],
        Completion(CALL, "tool_calls"),
    ),
    (
        [b'{"choices": [{"message": {"content": "", "function_call": {"name": "ls", "arguments": {"a": 1}}}}]}'],
        Completion(CALL),
    ),
    (
        [event(choices=[choice("tool_calls", content="{}", tool_calls=[{"function": {"name": "ls"}}])])],
        Completion("{}", "tool_calls"),
    ),
]  # fmt: skip


@table("size", [1, 7, 100_000])
@table(("parts", "completion"), ANSWERS)
def test_an_answer_is_the_same_in_pieces_of_any_size(
    parts: list[bytes], completion: Completion, size: int
) -> None:
    whole = b"".join(parts)
    pieces = (whole[start : start + size] for start in range(0, len(whole), size))
    said = chat(pieces).complete(ask())
    if completion == Completion(""):
        assert isinstance(said, Trouble)
        assert "a completion with a choice is expected" in said.message
    else:
        assert said == completion


@table(
    ("model", "context"),
    [
        ({"id": "a", "max_model_len": 4096}, 4096),
        ({"id": "a", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}, 2048),
        ({"id": "a", "loaded_context_length": 1000, "max_context_length": 9}, 1000),
        ({"id": "a", "context_length": 128_000}, 128_000),
        ({"id": "a", "max_model_len": "4096", "meta": []}, None),
    ],
)
def test_the_context_is_known_where_the_server_says_it(model: JsonValue, context: int | None) -> None:
    said = chat(httpx2.Response(200, json={"data": [model, {"name": "no id"}, 3]})).models(
        Deadline(1e18, 600.0)
    )
    assert said == [ModelFacts("a", context)]


@table("body", [b"[]", b"null", b'{"data": null}', b'{"data": {"id": "a"}}'])
def test_models_that_are_no_list_are_none(body: bytes) -> None:
    said = chat(httpx2.Response(200, content=body)).models(Deadline(1e18, 600.0))
    assert isinstance(said, Trouble) or not said
