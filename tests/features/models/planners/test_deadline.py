"""A call of a model ends when its time is up, wherever its server dawdles, and an answer has its bounds."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import httpx2
import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.errors import LcpError
from lcp_engine.features.models.endpoints.deadline import TooLate, within
from lcp_engine.features.models.factories import openai_planner
from lcp_engine.features.models.options import OpenAIOptions
from lcp_engine.features.models.planner import ModelPlanner, RequestSlots
from lcp_engine.planners.base import PlannerError, Question

QUESTION = Question(1, 1, 1, "goal", "/", "goal")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
Play: TypeAlias = Callable[["Dripping", socket.socket], None]


@dataclass
class Dripping:
    """A server that answers each connection with `play`, until the test is over."""

    play: Play
    port: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    """Set when a client has gone in the middle of an answer."""

    def drip(self, to: socket.socket, pieces: Iterator[bytes]) -> None:
        """A piece every few milliseconds: never silent, never done."""
        try:
            for piece in pieces:
                if self.over.wait(0.005):
                    return
                to.sendall(piece)
        except OSError:
            self.left.set()

    def serve(self, listening: socket.socket) -> None:
        while not self.over.is_set():
            try:
                to, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(to,), daemon=True).start()

    def _answer(self, to: socket.socket) -> None:
        with to:
            self.play(self, to)


@pytest.fixture
def serve() -> Iterator[Callable[[Play], Dripping]]:
    with ExitStack() as servers:

        def start(play: Play) -> Dripping:
            listening = servers.enter_context(socket.create_server(("127.0.0.1", 0)))
            server = Dripping(play, listening.getsockname()[1])
            servers.callback(server.over.set)
            # Closed alone, it would be waited for on, by its number, which the next one may have.
            servers.callback(listening.shutdown, socket.SHUT_RDWR)
            threading.Thread(target=server.serve, args=(listening,), daemon=True).start()
            return server

        yield start


def headers_by_the_byte(server: Dripping, to: socket.socket) -> None:
    server.drip(to, (bytes([byte]) for byte in itertools.chain(HEAD, itertools.cycle(b"X-More: 1\r\n"))))


def hints_without_end(server: Dripping, to: socket.socket) -> None:
    server.drip(to, itertools.repeat(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n"))


def a_gzip_header_without_end(server: Dripping, to: socket.socket) -> None:
    to.sendall(HEAD + b"Content-Encoding: gzip\r\n\r\n\x1f\x8b\x08\x08" + bytes(6))
    server.drip(to, itertools.repeat(b"name"))


def empty_gzip_blocks(server: Dripping, to: socket.socket) -> None:
    to.sendall(HEAD + b"Content-Encoding: gzip\r\n\r\n" + gzip.compress(b"")[:10])
    server.drip(to, itertools.repeat(b"\x00\x00\x00\xff\xff"))


def comments(server: Dripping, to: socket.socket) -> None:
    to.sendall(HEAD + b"\r\n")
    server.drip(to, itertools.repeat(b": still here\n\n"))


def chunks_of_nothing(server: Dripping, to: socket.socket) -> None:
    to.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;")
    server.drip(to, itertools.repeat(b"x"))


def an_error_by_the_byte(server: Dripping, to: socket.socket) -> None:
    to.sendall(b"HTTP/1.1 500 Sorry\r\n\r\n")
    server.drip(to, itertools.repeat(b"x"))


DRIPS = [
    headers_by_the_byte, hints_without_end, a_gzip_header_without_end, empty_gzip_blocks, comments,
    chunks_of_nothing, an_error_by_the_byte,
]  # fmt: skip


def planner_of(url: str, **options: float) -> ModelPlanner:
    stated = {"first_byte_seconds": 20.0, "total_seconds": 0.4, "context_tokens": 4096, **options}
    made = openai_planner(OpenAIOptions(base_url=url, model="tiny", **stated), {})  # type: ignore[arg-type]  # floats
    return replace(made, slots=RequestSlots())


@pytest.mark.parametrize("play", DRIPS, ids=lambda play: play.__name__)
def test_a_server_that_drips_is_left_at_the_deadline(serve: Callable[[Play], Dripping], play: Play) -> None:
    server = serve(play)
    planner = planner_of(f"http://127.0.0.1:{server.port}", concurrency=1)
    for _ in range(2):  # the only slot is free again
        with pytest.raises(PlannerError, match=r"a whole answer within 0\.4 s is expected, it took longer"):
            planner.answer(QUESTION)
    assert server.left.wait(20), "the connection is cut"


def test_a_handshake_that_drips_is_left_at_the_deadline(serve: Callable[[Play], Dripping]) -> None:
    """A record of TLS that announces 16 KiB and comes byte by byte."""
    server = serve(
        lambda own, to: own.drip(to, itertools.chain([b"\x16\x03\x03\x40\x00"], itertools.repeat(b"x")))
    )
    planner = planner_of(f"https://127.0.0.1:{server.port}", connect_seconds=20.0)
    with pytest.raises(PlannerError, match=r"within 0\.4 s is expected"):
        planner.answer(QUESTION)
    assert server.left.wait(20)


def test_headers_over_tls_that_drip_are_left_at_the_deadline(
    serve: Callable[[Play], Dripping], tmp_path: Path
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    def play(own: Dripping, to: socket.socket) -> None:
        with context.wrap_socket(to, server_side=True) as secured:
            headers_by_the_byte(own, secured)

    server = serve(play)
    url = f"https://127.0.0.1:{server.port}"
    with httpx2.Client(verify=ssl.create_default_context(cafile=certificate)) as client:
        with pytest.raises(TooLate):
            within(0.6, lambda line: client.get(url, timeout=20, extensions={"trace": line.trace}))
        assert server.left.wait(20)


def test_a_connection_that_nobody_accepts_is_left_at_the_deadline() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:  # the queue of connections is full after the first ones
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        planner = planner_of(f"http://127.0.0.1:{full.getsockname()[1]}", connect_seconds=20.0)
        with pytest.raises(PlannerError, match=r"within 0\.4 s is expected"):
            planner.answer(QUESTION)
        for each in waiting:
            each.close()


def test_a_name_that_is_not_resolved_is_left_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver of the system cannot be interrupted: the request waits for it in a thread of its own."""
    over = threading.Event()

    def resolve(*_: object, **__: object) -> list[object]:
        over.wait(20)
        raise socket.gaierror("too late")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(PlannerError, match=r"within 0\.4 s is expected"):
        planner_of("http://slow.example").answer(QUESTION)
    over.set()


@pytest.mark.parametrize(
    "play",
    [headers_by_the_byte, pytest.param(a_gzip_header_without_end, marks=pytest.mark.proof)],
    ids=lambda play: play.__name__,
)
def test_the_time_of_the_mission_is_up_before_that_of_the_call(
    serve: Callable[[Play], Dripping],
    play: Play,
    database_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lcp_engine.engine.settle.MAX_BACKOFF", 0.05)
    server = serve(play)
    planner: JsonValue = {
        "type": "openai", "base_url": f"http://127.0.0.1:{server.port}", "model": "tiny", "context_tokens": 4096,
        "total_seconds": 2.5,
    }  # fmt: skip
    with Engine(database_url) as engine:
        mission = engine.launch(
            {"goal": "g", "planner": planner, "limits": {"max_seconds": 2}}, root=tmp_path
        )
        engine.work(until_idle=True)
        (turn,) = engine.turns(mission.id)
        (job,) = engine.jobs(mission_id=mission.id)
        assert turn["last_turn"] == "max_seconds"
        said = [str(each["error"]) for each in job.attempts if isinstance(each, dict)]
    assert re.search(r"within ([01](\.\d)?|2) s is expected", said[0])
    assert "within 2.5 s is expected" in said[1]


@pytest.mark.proof
def test_the_time_of_the_last_turn_is_granted_once_and_the_mission_ends_on_its_limit(
    serve: Callable[[Play], Dripping], database_url: str, tmp_path: Path
) -> None:
    server = serve(headers_by_the_byte)
    planner: JsonValue = {
        "type": "openai", "base_url": f"http://127.0.0.1:{server.port}", "model": "tiny", "context_tokens": 4096,
        "total_seconds": 60,
    }  # fmt: skip
    with Engine(database_url) as engine:
        mission = engine.launch(
            {"goal": "g", "planner": planner, "limits": {"max_seconds": 2}}, root=tmp_path
        )
        engine.work(until_idle=True)
        ended, (turn,) = engine.mission(mission.id), engine.turns(mission.id)
        (job,) = engine.jobs(mission_id=mission.id)
        assert (str(ended.status), ended.outcome) == ("failed", "limit:max_seconds")
        assert ended.error["error_code"] == "LIMIT_REACHED"
        assert str(ended.summary).startswith(
            "the mission reached max_seconds, and its last turn did not end it: turn 1 got no reply: http"
        )
        assert turn["last_turn"] == "max_seconds"
        said = [str(each["error"]) for each in job.attempts if isinstance(each, dict)]
        assert len(said) == 2
        assert re.search(r"within ([01](\.\d)?|2) s is expected", said[0])
        assert re.search(r"within (5|4\.9) s is expected", said[1])
        assert [object_in(one)["fault"] for one in list_in(turn["completions"])] == ["failed", "failed"]
        assert engine.replay(mission.id).differences == ()


def answers(body: Callable[[], Iterator[bytes]], *headers: bytes) -> Play:
    def play(server: Dripping, to: socket.socket) -> None:
        to.recv(65_536)
        try:
            to.sendall(HEAD + b"".join(header + b"\r\n" for header in headers) + b"\r\n")
            for piece in body():
                to.sendall(piece)
            to.shutdown(socket.SHUT_WR)
            while to.recv(65_536):  # closing with unread bytes would reset the connection
                pass
        except OSError:
            server.left.set()

    return play


def delta(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


FLOODS: list[tuple[str, Play, str]] = [
    ("a document", answers(lambda: itertools.chain([b'{"a":['], itertools.repeat(b"[]," * 10_000))), "262,144 bytes"),
    ("one event", answers(lambda: itertools.chain([b'data: {"'], itertools.repeat(b"x" * 50_000))), "262,144 bytes"),
    ("events", answers(lambda: itertools.repeat(b'data: {"a":[]}\n\n' * 1000)), "1,048,576 bytes"),
    ("a text", answers(lambda: itertools.chain(
        [delta("x" * 1000)] * 500, [b'data: {"choices":[{"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'])),
     "262,144 bytes"),
    ("a bomb", answers(lambda: iter([gzip.compress(b"data: {}\n\n" * 2_000_000)]), b"Content-Encoding: gzip"),
     "1,048,576 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "play", "said"), FLOODS, ids=[row[0] for row in FLOODS])
def test_an_answer_has_its_bounds(
    serve: Callable[[Play], Dripping], name: str, play: Play, said: str
) -> None:
    server = serve(play)
    planner = planner_of(f"http://127.0.0.1:{server.port}", total_seconds=60.0, max_answer_bytes=2**20)
    with pytest.raises(LcpError, match=f"more than {said}"):
        planner.answer(QUESTION)
