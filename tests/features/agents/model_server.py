"""A model that plays a script over the four protocols that agents speak: each step a call of a tool, then last words.

It has no state: the step is the number of tool results in the request, so that an agent that was killed goes on where
its history is. Steps are `("write", PATH, CONTENT)` and `("run", COMMAND)`; the tools are those that a request offers.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pydantic import JsonValue

from lcp_engine.core.json_values import object_in

Step = tuple[str, ...]
Json = dict[str, JsonValue]
WRITES = ("write", "Write", "write_file", "create_file")
RUNS = ("bash", "Bash", "run_shell_command", "shell", "exec_command", "shell_command")
LAST_WORDS = "All is done."


@dataclass
class Model:
    """The script, what was asked, and what the server does in place of answering."""

    steps: Sequence[Step]
    words: str = LAST_WORDS
    status: int = 200
    before: Callable[[int], object] = lambda step: None
    """Called with the number of results before a request is answered."""
    keys: set[str] = field(default_factory=set)
    results: list[int] = field(default_factory=list)
    port: int = 0


@contextmanager
def serving(model: Model) -> Iterator[Model]:
    """The model at a port of this machine."""

    class Handler(_Handler):
        asked = model

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        model.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield model
        finally:
            server.shutdown()


@dataclass(frozen=True)
class _Call:
    tool: str
    given: Json
    id: str


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: Model

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send({})

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self) -> None:
        body = object_in(json.loads(self._body() or b"{}"))
        for name in ("Authorization", "x-api-key", "x-goog-api-key"):
            if key := self.headers.get(name):
                self.asked.keys.add(key.removeprefix("Bearer "))
        path = self.path.partition("?")[0]
        wires: tuple[tuple[str, _Wire], ...] = (
            ("/chat/completions", _chat), ("/responses", _responses), ("/messages", _messages),
            ("enerateContent", _gemini),
        )  # fmt: skip
        wire = next((wire for ending, wire in wires if path.endswith(ending)), None)
        if wire is None:
            self._send({"totalTokens": 10, "input_tokens": 10})
        elif self.asked.status != 200:
            self._send(
                {"error": {"message": "401 Unauthorized", "type": "authentication_error"}}, self.asked.status
            )
        else:
            try:
                self._answer(wire, body)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

    def _answer(self, wire: _Wire, body: Json) -> None:
        tools, results = wire.read(body)
        if tools:
            self.asked.results.append(results)
        self.asked.before(results)
        call = None
        if tools and results < len(self.asked.steps):
            call = _chosen(self.asked.steps[results], tools, f"call_{results + 1}")
        whole, events = wire.write(call or self.asked.words)
        if body.get("stream") is not True and "stream" not in self.path:
            self._send(whole)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        for event in events:
            name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
            data = event if isinstance(event, str) else json.dumps(event)
            self.wfile.write(f"{name}data: {data}\n\n".encode())
        self.wfile.flush()

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().strip() or b"0", 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _send(self, value: JsonValue, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _chosen(step: Step, tools: Mapping[str, Json], name: str) -> _Call | None:
    """The call of a tool that the request offers; without one that writes, the shell does."""
    kind, *given = step
    for tool in WRITES if kind == "write" else RUNS:
        if (known := tools.get(tool)) is not None:
            return _Call(tool, _arguments(kind, given, known), name)
    if kind == "write":
        return _chosen(("run", f"printf %s '{given[1]}' > {given[0]}"), tools, name)
    return None


def _arguments(kind: str, given: Sequence[str], known: Json) -> Json:
    def named(*names: str) -> str:
        return next((one for one in names if one in known), names[0])

    if kind == "write":
        return {named("file_path", "filePath", "path"): given[0], named("content", "contents"): given[1]}
    more: Json = {"description": "run it"} if "description" in known else {}
    return {named("command", "cmd"): given[0], **more}


@dataclass(frozen=True)
class _Wire:
    """A protocol: the tools and the number of results in a request, and an answer, whole and as events."""

    read: Callable[[Json], tuple[dict[str, Json], int]]
    write: Callable[[_Call | str], tuple[Json, list[JsonValue]]]


def _list(value: JsonValue) -> list[Json]:
    return [object_in(one) for one in value] if isinstance(value, list) else []


def _properties(schema: JsonValue) -> Json:
    return object_in(object_in(schema).get("properties"))


def _read_chat(body: Json) -> tuple[dict[str, Json], int]:
    functions = [object_in(one.get("function")) for one in _list(body.get("tools"))]
    tools = {str(one["name"]): _properties(one.get("parameters")) for one in functions}
    return tools, sum(one.get("role") == "tool" for one in _list(body.get("messages")))


def _write_chat(call: _Call | str) -> tuple[Json, list[JsonValue]]:
    message: Json = {"role": "assistant", "content": call if isinstance(call, str) else None}
    if isinstance(call, _Call):
        function: Json = {"name": call.tool, "arguments": json.dumps(call.given)}
        message["tool_calls"] = [{"index": 0, "id": call.id, "type": "function", "function": function}]
    reason = "stop" if isinstance(call, str) else "tool_calls"
    usage: Json = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    head: Json = {"id": "c", "created": 1, "model": "m"}
    chunk: Json = {**head, "object": "chat.completion.chunk"}
    return (
        {**head, "object": "chat.completion", "usage": usage,
         "choices": [{"index": 0, "message": message, "finish_reason": reason}]},
        [
            {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage},
            "[DONE]",
        ],
    )  # fmt: skip


def _read_responses(body: Json) -> tuple[dict[str, Json], int]:
    tools = {
        str(one.get("name") or one.get("type")): _properties(one.get("parameters"))
        for one in _list(body.get("tools"))
    }
    return tools, sum(str(one.get("type")).endswith("_output") for one in _list(body.get("input")))


def _write_responses(call: _Call | str) -> tuple[Json, list[JsonValue]]:
    if isinstance(call, str):
        text: Json = {"type": "output_text", "text": call, "annotations": []}
        item: Json = {
            "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]
        }  # fmt: skip
    else:
        item = {
            "type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.tool,
            "arguments": json.dumps(call.given), "status": "completed",
        }  # fmt: skip
    usage: Json = {
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 110,
    }  # fmt: skip
    whole: Json = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "output": [item],
        "usage": usage,
    }
    events: list[JsonValue] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return whole, events


def _read_messages(body: Json) -> tuple[dict[str, Json], int]:
    tools = {str(one["name"]): _properties(one.get("input_schema")) for one in _list(body.get("tools"))}
    parts = [part for one in _list(body.get("messages")) for part in _list(one.get("content"))]
    return tools, sum(part.get("type") == "tool_result" for part in parts)


def _write_messages(call: _Call | str) -> tuple[Json, list[JsonValue]]:
    empty: Json
    delta: Json
    if isinstance(call, str):
        block: Json = {"type": "text", "text": call}
        empty, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": call}
    else:
        block = {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.tool, "input": call.given}
        empty, delta = (
            {**block, "input": {}},
            {"type": "input_json_delta", "partial_json": json.dumps(call.given)},
        )
    reason = "end_turn" if isinstance(call, str) else "tool_use"
    whole: Json = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block],
        "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 100, "output_tokens": 10},
    }  # fmt: skip
    events: list[JsonValue] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": empty},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None},
         "usage": {"output_tokens": 10}},
        {"type": "message_stop"},
    ]  # fmt: skip
    return whole, events


def _read_gemini(body: Json) -> tuple[dict[str, Json], int]:
    declared = [one for group in _list(body.get("tools")) for one in _list(group.get("functionDeclarations"))]
    tools = {
        str(one["name"]): _properties(one.get("parametersJsonSchema") or one.get("parameters"))
        for one in declared
    }
    parts = [part for one in _list(body.get("contents")) for part in _list(one.get("parts"))]
    return tools, sum("functionResponse" in part for part in parts)


def _write_gemini(call: _Call | str) -> tuple[Json, list[JsonValue]]:
    part: Json = (
        {"text": call} if isinstance(call, str) else {"functionCall": {"name": call.tool, "args": call.given}}
    )
    whole: Json = {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
        "modelVersion": "m",
    }
    return whole, [whole]


_chat = _Wire(_read_chat, _write_chat)
_responses = _Wire(_read_responses, _write_responses)
_messages = _Wire(_read_messages, _write_messages)
_gemini = _Wire(_read_gemini, _write_gemini)
