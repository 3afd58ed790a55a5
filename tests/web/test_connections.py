"""Connections that say nothing, or too slowly, harm neither the page nor the jobs."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import pytest
from pydantic import JsonValue
from tests.loaded_python import Python
from tests.patience import PATIENCE_SECONDS
from tests.web.conftest import Visitor, serving

from lcp_engine.api.engine import Engine
from lcp_engine.web.connections import ConnectionLimits, saying_errors_once

if TYPE_CHECKING:
    from tests.web.conftest import House

DESCRIPTORS = 256


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)


def _drip(peer: socket.socket, head: bytes, drop: bytes) -> bytes:
    """What is answered until the connection is closed, while one more drop is sent again and again."""
    peer.settimeout(0.02)
    answer, ends = b"", time.monotonic() + PATIENCE_SECONDS
    try:
        peer.sendall(head)
        while time.monotonic() < ends:
            try:
                received = peer.recv(65536)
            except TimeoutError:
                peer.sendall(drop)
            else:
                if not received:
                    return answer
                answer += received
    except ConnectionError:
        return answer
    raise AssertionError("the connection stays open")


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"", b""),
        (b"G", b""),
        (b"GET / HTTP/1.1\r\nHost: HOST\r\nX: ", b"x"),
        (b"GET / HTTP/1.1\r\nHost: HOST\r\n", b"X: y\r\n"),
        (b"\r\n", b"\r\n"),
        (b"POST /inbox HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1000000\r\n\r\n", b"x"),
        (b"POST /inbox HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        (b"GET /static/page.css HTTP/1.1\r\nHost: HOST\r\n\r\nGET / HTTP/1.1\r\n", b"X: y\r\n"),
    ],
)
def test_a_request_that_does_not_arrive_in_time_is_given_up(house: House, head: bytes, drop: bytes) -> None:
    with (
        serving(house.engine, limits=ConnectionLimits(request_seconds=0.3)) as server,
        _connect(server.port) as peer,
    ):
        host = urlsplit(server.link).netloc.encode()
        _drip(peer, head.replace(b"HOST", host), drop)
        with Visitor().get(server.link) as answer:
            assert answer.status == 200


@pytest.mark.alone
def test_a_slow_form_of_a_browser_with_access_is_given_up_as_well(house: House) -> None:
    with (
        serving(house.engine, limits=ConnectionLimits(request_seconds=0.3)) as server,
        _connect(server.port) as peer,
    ):
        host, visitor = urlsplit(server.link).netloc, Visitor()
        visitor.get(server.link).close()
        head = (
            f"POST /inbox HTTP/1.1\r\nHost: {host}\r\nCookie: {visitor.cookie}\r\nContent-Length: 99999\r\n"
        )
        form = "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
        assert b"303" not in _drip(peer, f"{head}{form}".encode(), b"x")


@pytest.mark.alone
def test_an_event_stream_has_no_end(house: House) -> None:
    with serving(house.engine, limits=ConnectionLimits(request_seconds=0.1)) as server:
        visitor, link = Visitor(), server.link
        _persistently(visitor, link).close()
        with _persistently(visitor, urljoin(link, "/events")) as stream:
            for _ in range(3):
                mission_id = house.run(house.complete)
                _await_news(stream, mission_id)


def _persistently(visitor: Visitor, link: str) -> IO[bytes]:
    """Open a link although a request may have almost no time."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return visitor.get(link)
        except ConnectionError:
            assert time.monotonic() < ends, "no request is answered in time"


def test_the_oldest_silent_connection_makes_room_for_the_newest(house: House) -> None:
    limits = ConnectionLimits(connections=8, without_access=4)
    with ExitStack() as stack, serving(house.engine, limits=limits) as server:
        visitor, link = Visitor(), server.link
        visitor.get(link).close()
        stream = stack.enter_context(visitor.get(urljoin(link, "/events")))
        silent = [stack.enter_context(_connect(server.port)) for _ in range(100)]
        assert silent[0].recv(1) == b""
        assert silent[50].recv(1) == b""
        silent[-1].sendall(f"GET / HTTP/1.1\r\nHost: {urlsplit(link).netloc}\r\n\r\n".encode())
        assert silent[-1].recv(12) == b"HTTP/1.1 401"
        mission_id = house.run(house.complete)
        _await_news(stream, mission_id)


@pytest.mark.parametrize(("descriptors", "connections"), [(1024, 256), (256, 64), (2**20, 256), (16, 4)])
def test_the_page_takes_a_quarter_of_the_descriptors(descriptors: int, connections: int) -> None:
    limits = ConnectionLimits().within(descriptors)
    assert limits.connections == connections
    assert limits.without_access <= limits.connections // 2


@pytest.mark.proof
def test_more_connections_than_descriptors_stop_neither_page_nor_jobs(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'lcp.db'}"
    replies: list[JsonValue] = [{"ok": True, "action": "mission_complete", "summary": "Done."}]
    with ExitStack() as stack:
        process = stack.enter_context(_limited_process(tmp_path, database))
        assert process.stdout is not None
        link, visitor = process.stdout.readline().strip(), Visitor()
        visitor.get(link).close()
        stream = stack.enter_context(visitor.get(urljoin(link, "/events")))
        port = urlsplit(link).port
        assert port
        for _ in range(2 * DESCRIPTORS):
            stack.enter_context(_connect(port))
        engine = stack.enter_context(Engine(database))
        mission = engine.launch(
            {"goal": "End.", "planner": {"type": "script", "replies": replies}}, root=tmp_path
        )
        while engine.mission(mission.id).outcome is None:
            _await_news(stream, mission.id)
        assert visitor.status(urljoin(link, "/inbox")) == 200
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.communicate(timeout=PATIENCE_SECONDS)[1] == ""
        assert process.returncode == 0


@contextmanager
def _limited_process(home: Path, database: str) -> Iterator[subprocess.Popen[str]]:
    """`lcp serve` that also works, and may have few files open."""
    places = {f"XDG_{name}_HOME": str(home) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    lower = f"import resource as r; r.setrlimit(r.RLIMIT_NOFILE, ({DESCRIPTORS},) * 2)"
    code = f"{lower}; from lcp_engine.cli import main; main()"
    arguments = ["--db", database, "serve", "--port", "0", "--quiet", "--threads", "2"]
    with Python(
        "-c", code, *arguments, env={**os.environ, **places}, cwd=home,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def test_an_error_of_one_kind_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("asyncio")
    with saying_errors_once():
        for number in range(1000):
            logger.error(
                "socket.accept() out of system resource\nsocket: %s", number, exc_info=OSError(24, "x")
            )
        logger.error("something else")
    assert [record.getMessage() for record in caplog.records] == [
        "socket.accept() out of system resource",
        "something else",
    ]
    assert not any(record.exc_info for record in caplog.records)


def _await_news(stream: IO[bytes], mission_id: int) -> None:
    """Read until there is news of a mission; its events may arrive in several parts."""
    for line in stream:
        if (
            line.startswith(b"data: ")
            and json.loads(line.removeprefix(b"data: ")).get("mission") == mission_id
        ):
            return
    raise AssertionError("the stream ended")


def test_no_connection_outlives_the_server(house: House) -> None:
    """A peer that reads nothing of an answer keeps its connection open beyond the patience of a server that ends."""
    with ExitStack() as stack:
        with serving(house.engine, limits=ConnectionLimits()) as server:
            reader = stack.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect(("127.0.0.1", server.port))
            host = urlsplit(server.link).netloc
            ask = f"GET /static/page.css HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            reader.settimeout(0.5)
            with suppress(TimeoutError):
                while True:
                    reader.sendall(ask * 64)
        reader.settimeout(60)
        with suppress(ConnectionResetError):
            while reader.recv(1 << 20):
                pass
