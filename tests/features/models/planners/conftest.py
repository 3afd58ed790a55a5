"""A model's server on loopback that has a bad day, as told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TypeAlias

import pytest
from pydantic import JsonValue
from tests.patience import PATIENCE_SECONDS

from lcp_engine import Engine, Mission
from lcp_engine.features.models.endpoints import token_count
from lcp_engine.runner.runner import Runner

Play: TypeAlias = Callable[[BaseHTTPRequestHandler], None]
Body: TypeAlias = dict[str, JsonValue]


@dataclass(frozen=True)
class Request:
    """What the server was sent."""

    path: str
    headers: dict[str, str]
    body: Body


@dataclass
class FaultServer:
    """Plays the next of `plays` for each completion that is asked for, the last one again and again.

    `models` is what it answers at /models, `tokenize` plays for each request at /tokenize: at first there is none.
    """

    plays: list[Play] = field(default_factory=list)
    models: tuple[str, ...] = ("tiny",)
    requests: list[Request] = field(default_factory=list)
    tokenize: Play | None = None
    tokenized: list[Request] = field(default_factory=list)
    hung: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def play(self, *plays: Play) -> None:
        self.plays[:] = plays

    def rungs(self) -> list[str]:
        """The response format of each request."""
        return [str(_type(request.body.get("response_format"))) for request in self.requests]

    # What a server can do to a request.

    @staticmethod
    def event(value: JsonValue, name: str = "") -> bytes:
        head = f"event: {name}\n".encode() if name else b""
        return head + b"data: " + json.dumps(value).encode() + b"\n\n"

    @staticmethod
    def sends(
        data: bytes, *, status: int = 200, content_type: str = "text/event-stream", **headers: str
    ) -> Play:
        """One whole answer."""

        def play(to: BaseHTTPRequestHandler) -> None:
            to.send_response(status)
            to.send_header("Content-Type", content_type)
            to.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                to.send_header(name.replace("_", "-"), value)
            to.end_headers()
            to.wfile.write(data)

        return play

    @staticmethod
    def refuses(status: int, said: JsonValue = "no", **headers: str) -> Play:
        """An error as OpenAI shapes it."""
        data = json.dumps({"error": {"message": said, "code": None}}).encode()
        return FaultServer.sends(data, status=status, content_type="application/json", **headers)

    @staticmethod
    def cuts(data: bytes) -> Play:
        """A promise of more than comes."""

        def play(to: BaseHTTPRequestHandler) -> None:
            to.send_response(200)
            to.send_header("Content-Length", str(len(data) + 1000))
            to.end_headers()
            to.wfile.write(data)
            to.close_connection = True

        return play

    @staticmethod
    def resets(to: BaseHTTPRequestHandler) -> None:
        """Not a byte, and the connection is gone."""
        to.close_connection = True

    def says(self, text: str, *, finish: str = "stop", usage: bool = True, key: str = "content") -> Play:
        """A stream as a healthy server sends it."""
        counted: Body = {"prompt_tokens": 11, "completion_tokens": 7}

        def play(to: BaseHTTPRequestHandler) -> None:
            half = len(text) // 2
            parts: list[Body] = [{"choices": [{"delta": {"role": "assistant", "content": None}}]}]
            parts += [{"choices": [{"delta": {key: part}}]} for part in (text[:half], text[half:])]
            parts.append({"choices": [{"delta": {}, "finish_reason": finish}]})
            parts += [{"choices": [], "usage": counted}] if usage else []
            self.sends(b"".join(self.event(part) for part in parts) + b"data: [DONE]\n\n")(to)

        return play

    def ends(self, choice: Body) -> Play:
        """A stream that begins well, and whose last choice is this one."""
        parts: list[Body] = [
            {"choices": [{"delta": {"content": "{"}}]},
            {"choices": [{"delta": {}, **choice}]},
        ]
        return self.sends(b"".join(map(self.event, parts)))

    def counts(self, to: BaseHTTPRequestHandler) -> None:
        """A count of tokens as llama.cpp answers it, of three bytes each."""
        text = str(self.tokenized[-1].body["content"])
        tokens: JsonValue = [*range(-(-len(text.encode()) // 3))]
        self.sends(json.dumps({"tokens": tokens}).encode(), content_type="application/json")(to)

    def hangs(self, to: BaseHTTPRequestHandler) -> None:
        """Nothing, before the test is over."""
        self.hung.wait(30)
        to.close_connection = True

    def hangs_after(self, data: bytes) -> Play:
        def play(to: BaseHTTPRequestHandler) -> None:
            to.send_response(200)
            to.end_headers()
            to.wfile.write(data)
            to.wfile.flush()
            self.hangs(to)

        return play


def _type(value: JsonValue) -> JsonValue:
    return value.get("type") if isinstance(value, dict) else None


def work(engine: Engine, waiting: Callable[[Runner, Sequence[Mission]], None]) -> None:
    """Work until nothing is queued; `waiting` is called again and again with missions that wait for their server."""
    runner = engine.runner(until_idle=True)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.02)
        if waits := [mission for mission in engine.missions() if mission.waits_for]:
            waiting(runner, waits)


def work_until_waiting(engine: Engine) -> None:
    """Work until all that is left waits for a server."""

    def stop(runner: Runner, waits: Sequence[Mission]) -> None:
        if len(waits) == sum(one.jobs["queued"] + one.jobs["running"] for one in engine.missions()):
            runner.stop()

    work(engine, stop)


class Listening(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Nothing: a client that went away is what a test wanted."""


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    # What a busy machine counts late is not estimated instead.
    monkeypatch.setattr(token_count, "SECONDS", PATIENCE_SECONDS)
    # An earlier server may have had the same port.
    token_count.METERS._meters.clear()
    server = FaultServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            models: list[JsonValue] = [{"id": name} for name in server.models]
            server.sends(json.dumps({"data": models}).encode(), content_type="application/json")(self)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            if self.path == "/tokenize":
                server.tokenized.append(Request(self.path, headers, body))
                (server.tokenize or server.refuses(404))(self)
                return
            server.requests.append(Request(self.path, headers, body))
            play = server.plays[min(len(server.requests), len(server.plays)) - 1]
            play(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the library
            """Nothing: a test's output is its own."""

    with Listening(("127.0.0.1", 0), Handler) as listening:
        server.port = listening.server_address[1]
        thread = threading.Thread(target=listening.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.hung.set()
        listening.shutdown()
        thread.join()
