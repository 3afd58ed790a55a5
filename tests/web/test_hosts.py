"""Requests as nobody's browser sends them: the page judges the path that is routed and the whole of `Host`."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE_SECONDS
from tests.web.conftest import serving

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.web.server import PageServer

if TYPE_CHECKING:
    from tests.web.conftest import House

HOSTILE = [
    "",
    " ",
    "evil.example",
    "evil.example:PORT",
    "127.0.0.1.evil.example:PORT",
    "127.0.0.1",
    "127.0.0.1:PORT",
    "localhost:PORT",
    "[::1]:PORT",
    "127.0.0.1:",
    "127.0.0.1:0",
    "127.0.0.1:PORT0",
    "127.0.0.1:PORT:PORT",
    "127.0.0.1:+PORT",
    "127.0.0.1.:PORT",
    "127.1:PORT",
    "0x7f000001:PORT",
    "2130706433:PORT",
    "0.0.0.0:PORT",
    "192.168.0.7:PORT",
    "user@127.0.0.1:PORT",
    "127.0.0.1:PORT@evil.example",
    "user:@127.0.0.1:PORT",
    "127.0.0.1:PORT/static/",
    "127.0.0.1:PORT/static/?",
    "127.0.0.1:PORT/static/#",
    "127.0.0.1:PORT?",
    "127.0.0.1:PORT#",
    "127.0.0.1:PORT\\static",
    "127.0.0.1:PORT, evil.example",
    "127.0.0.1:PORT evil.example",
    "127.0.0.1 :PORT",
    "127.0.0.1%00:PORT",
    "127.0.0.1%2e:PORT",
    "http://127.0.0.1:PORT",
    "//127.0.0.1:PORT",
    "localhost.:PORT",
    "local host:PORT",
    "a.localhost:PORT",
    "[127.0.0.1]:PORT",
    "[::1",
    "::1:PORT",
    "[::1]",
    "[::1%lo]:PORT",
    "[::1]evil.example:PORT",
    "[::ffff:127.0.0.1]:PORT",
    "\uff11\uff12\uff17.0.0.1:PORT",
]  # fmt: skip
TARGETS = [
    "/inbox",
    "/inbox?",
    "/inbox?/static/",
    "/inbox?token=",
    "/inbox#/static/",
    "//inbox",
    "//static/../inbox",
    "/static/../inbox",
    "/static/%2e%2e/inbox",
    "/static/..%2finbox",
    "/static%2f..%2finbox",
    "/static/..\\inbox",
    "/./inbox",
    "/inbox/",
    "/%69nbox",
    "http://127.0.0.1:PORT/inbox",
    "http://127.0.0.1:PORT/static/../inbox",
    "http://evil.example/static/",
    "/static/?/inbox",
    "static/",
    "*",
    "?",
]


def _ask(port: int, head: str, body: str = "") -> tuple[int, str]:
    """Status and text of the answer to a request of these very bytes."""
    request = f"{head}Connection: close\r\n\r\n{body}".replace("PORT", str(port))
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as peer:
        peer.sendall(request.encode())
        answer = b"".join(iter(lambda: peer.recv(65536), b"")).decode()
    return int(answer.split(" ", 2)[1]), answer


def _cookie(server: PageServer) -> str:
    """The `Cookie` header of a browser that has opened the link."""
    target = server.link.split("/", 3)[3]
    _, answer = _ask(server.port, f"GET /{target} HTTP/1.1\r\nHost: {_host(server)}\r\n")
    found = re.search(r"set-cookie: ([^;]+);", answer)
    assert found
    return f"Cookie: {found[1]}\r\n"


def _host(server: PageServer) -> str:
    return server.link.split("/")[2]


def test_every_other_spelling_of_the_host_is_refused_even_with_the_cookie(house: House) -> None:
    job_id = house.hold()
    with serving(house.engine) as server:
        cookie = _cookie(server)
        for host in HOSTILE:
            for line in ("GET /inbox", f"POST /jobs/{job_id}/approve", "GET /static/page.css"):
                status, answer = _ask(server.port, f"{line} HTTP/1.1\r\nHost: {host}\r\n{cookie}")
                assert status in (400, 403), (host, line)
                assert "csrf" not in answer
    assert house.engine.job(job_id).state == "held"


@pytest.mark.parametrize("hosts", [[], ["HOST", "HOST"], ["HOST", "evil.example"], ["evil.example", "HOST"]])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_request_names_exactly_one_host(house: House, version: str, hosts: list[str]) -> None:
    with serving(house.engine) as server:
        lines = "".join(f"Host: {host}\r\n" for host in hosts).replace("HOST", _host(server))
        status, _ = _ask(server.port, f"GET /inbox HTTP/{version}\r\n{lines}{_cookie(server)}")
        assert status in (400, 403)


def test_no_spelling_of_a_path_is_answered_without_the_cookie(house: House) -> None:
    house.hold()
    with serving(house.engine) as server:
        for target in TARGETS:
            for method in ("GET", "HEAD", "POST", "OPTIONS", "static"):
                head = f"{method} {target} HTTP/1.1\r\nHost: {_host(server)}\r\n"
                status, answer = _ask(server.port, head)
                assert status in (400, 401, 404, 405), head
                assert "csrf" not in answer


def test_the_own_host_and_names_that_were_given_are_answered(house: House) -> None:
    with serving(house.engine, names=("Lab.example", "far.example:9000", "::2")) as server:
        hosts = ("lab.example", "LAB.example:PORT", "far.example:9000", "[::2]", "[::2]:PORT")
        for host in (_host(server), *hosts):
            assert _ask(server.port, f"GET / HTTP/1.1\r\nHost: {host}\r\n")[0] == 401, host
        for host in ("lab.example:9000", "far.example", "far.example:PORT", "[::2]:9000"):
            assert _ask(server.port, f"GET / HTTP/1.1\r\nHost: {host}\r\n")[0] == 403, host


@pytest.mark.parametrize(
    "name", ["", "a b", "http://lab.example", "lab.example/", "a@b", "lab:port", "[::1", "*"]
)
def test_a_name_that_is_none_is_refused(house: House, name: str) -> None:
    with pytest.raises(LcpError, match="is not the name of a host") as refused:
        PageServer(house.engine, port=0, names=[name])
    assert refused.value.code is ErrorCode.INVALID_ARGUMENT


def test_answers_do_not_wait_for_the_browser_to_acknowledge(house: House) -> None:
    with (
        serving(house.engine) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS) as peer,
    ):
        peer.sendall(f"GET / HTTP/1.1\r\nHost: {_host(server)}\r\n\r\n".encode())
        assert peer.recv(12) == b"HTTP/1.1 401"
        (connection,) = server._server.server_state.connections
        sending: socket.socket = connection.transport.get_extra_info("socket")
        assert sending.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
