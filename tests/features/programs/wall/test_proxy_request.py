"""Requests to the proxy: which are read, for which host, and what is sent on; nothing that can be read in two ways."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tests.tables import table

from lcp_engine.core.programs.network import is_host_name
from lcp_engine.features.programs.wall.network.proxy_request import BadRequest, ProxyRequest, read_request


def read(*lines: str) -> ProxyRequest | BadRequest:
    return read_request("\r\n".join([*lines, "", ""]).encode("latin-1"))


@table(
    ("target", "host", "port"),
    [
        ("a.example:443", "a.example", 443),
        ("A.Example:443", "a.example", 443),
        ("a.example:080", "a.example", 80),
        ("a.example:99999", "a.example", 99999),
    ],
)
def test_a_tunnel_is_to_a_name_in_small_letters(target: str, host: str, port: int) -> None:
    assert read(f"CONNECT {target} HTTP/1.1", "Host: b.example:1") == ProxyRequest(host, port, None)


@table(
    ("target", "named"),
    [
        ("127.0.0.1:443", "127.0.0.1:443"),
        ("2130706433:443", "2130706433:443"),
        ("0x7f.1:443", "0x7f.1:443"),
        ("0177.0.0.1:443", "0177.0.0.1:443"),
        ("[::1]:443", "[::1]:443"),
        ("[::ffff:127.0.0.1]:443", "[::ffff:127.0.0.1]:443"),
        ("a.example.:443", "a.example.:443"),
        (".a.example:443", ".a.example:443"),
    ],
)
def test_an_address_and_a_name_that_is_none_are_refused_and_named(target: str, named: str) -> None:
    refused = read(f"CONNECT {target} HTTP/1.1")
    assert isinstance(refused, BadRequest)
    assert (refused.status, refused.target) == (403, named)


@table(
    "target",
    [
        "a.example",
        "a.example:",
        "a.example:443:443",
        "user@a.example:443",
        "user:secret@a.example:443",
        "a.example%2eorg:443",
        "b\u00fccher.example:443",
        "https://a.example:443",
        "http://a.example:443/",
        "a.example:443/",
        "a.example:443#b.example",
        "a.example\\@b.example:443",
        "a.example:0x1bb",
        "a.example:+443",
        "::1:443",
        "/",
        "*",
    ],
)
def test_a_target_of_another_form_is_refused(target: str) -> None:
    refused = read(f"CONNECT {target} HTTP/1.1")
    assert isinstance(refused, BadRequest)
    assert (refused.status, refused.target) == (400, None)


def test_a_fetch_is_written_anew_without_what_is_for_the_proxy() -> None:
    request = read(
        "GET http://A.example/b?c=d HTTP/1.0",
        "Host: a.example:80",
        "User-Agent: x",
        "Proxy-Authorization: Basic c2VjcmV0",
        "Proxy-Connection: keep-alive",
        "Connection: keep-alive, X-Own",
        "X-Own: 1",
        "Upgrade: h2c",
        "TE: trailers",
    )
    head = b"GET /b?c=d HTTP/1.1\r\nhost: a.example\r\nuser-agent: x\r\nconnection: close\r\n\r\n"
    assert request == ProxyRequest("a.example", 80, head)


@table(
    ("target", "sent"),
    [
        ("http://a.example", "GET / HTTP/1.1\r\nhost: a.example\r\n"),
        ("HTTP://a.example:8080/", "GET / HTTP/1.1\r\nhost: a.example:8080\r\n"),
        ("http://a.example//b.example/", "GET //b.example/ HTTP/1.1\r\nhost: a.example\r\n"),
        ("http://a.example/@b.example:1/", "GET /@b.example:1/ HTTP/1.1\r\nhost: a.example\r\n"),
    ],
)
def test_what_is_fetched_is_a_path_of_the_named_host(target: str, sent: str) -> None:
    request = read(f"GET {target} HTTP/1.1")
    assert isinstance(request, ProxyRequest)
    assert request.head == f"{sent}connection: close\r\n\r\n".encode()


@table(
    ("line", "headers"),
    [
        ("GET / HTTP/1.1", ["Host: a.example"]),
        ("GET a.example/ HTTP/1.1", []),
        ("GET https://a.example/ HTTP/1.1", []),
        ("GET ftp://a.example/ HTTP/1.1", []),
        ("GET http://user@a.example/ HTTP/1.1", []),
        ("GET http://a.example\\@b.example/ HTTP/1.1", []),
        ("GET http://a.example?b HTTP/1.1", []),
        ("GET http://a.example#@b.example/ HTTP/1.1", []),
        ("GET http:///a.example/ HTTP/1.1", []),
        ("GET http://a.example/ HTTP/1.1", ["Host: b.example"]),
        ("GET http://a.example/ HTTP/1.1", ["Host: a.example", "Host: a.example"]),
        ("GET http://a.example/ HTTP/1.1", ["Host: a.example", "host: b.example"]),
        ("GET http://a.example/ HTTP/1.1", ["Content-Length: 5"]),
        ("GET http://a.example/ HTTP/1.1", ["Transfer-Encoding: chunked"]),
        ("GET http://a.example/ HTTP/1.1", ["transfer-encoding:\tchunked"]),
        ("GET http://a.example/ HTTP/1.1", ["Transfer-Encoding : chunked"]),
        ("GET http://a.example/ HTTP/1.1", ["A: b", " continued"]),
        ("GET http://a.example/ HTTP/1.1", ["A: b\nHost: b.example"]),
        ("GET http://a.example/ HTTP/1.1", ["A: b\rHost: b.example"]),
        ("GET http://a.example/ HTTP/1.1", ["A: \0"]),
        ("GET http://a.example/ HTTP/1.1", [": b"]),
        ("GET http://a.example/ HTTP/1.1", ["no colon"]),
        ("GET http://a.example/ HTTP/1.1", [f"A{number}: b" for number in range(101)]),
        ("GET  http://a.example/ HTTP/1.1", []),
        ("GET http://a.example/ HTTP/1.1 ", []),
        ("GET http://a.example/ b HTTP/1.1", []),
        ("GET http://a.example/\tb HTTP/1.1", []),
        ("GET http://a.example/ HTTP/2.0", []),
        ("GET http://a.example/", []),
        ("get http://a.example/ HTTP/1.1", []),
        ("POST http://a.example/ HTTP/1.1", []),
        ("CONNECT a.example:443 HTTP/1.1", ["Content-Length: 3"]),
        ("CONNECT a.example:443 HTTP/1.1", ["Transfer-Encoding: chunked"]),
        ("", []),
        ("\x16\x03\x01", []),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused(line: str, headers: list[str]) -> None:
    refused = read(line, *headers)
    assert isinstance(refused, BadRequest)
    assert refused.status in {400, 405}


PIECES = st.sampled_from(
    ["GET", "CONNECT", "POST", " ", "  ", "\t", "http://", "https://", "a.example", "b.example", "127.0.0.1", "[::1]",
     ":", "80", "443", "/", "?", "#", "@", "%", "\\", "HTTP/1.1", "HTTP/1.0", "\r\n", "\n", "\r", "\0", "Host",
     "Host: ", "Content-Length: 1", "Transfer-Encoding: chunked", "Connection: ", ",", "\xff", ".", "x"]
)  # fmt: skip
TEXTS = st.lists(PIECES, max_size=6).map("".join)
FETCHES = st.tuples(TEXTS, TEXTS).map(
    lambda two: f"GET http://a.example{two[0]} HTTP/1.1\r\nHost: a.example{two[1]}"
)


@given(TEXTS | FETCHES | st.text(st.characters(max_codepoint=255), max_size=60))
@example("GET http://a.example/ HTTP/1.1\r\nHost: a.example")
def test_whatever_is_sent_is_refused_or_names_one_host_in_one_request(text: str) -> None:
    request = read_request(f"{text}\r\n\r\n".encode("latin-1"))
    if isinstance(request, ProxyRequest):
        assert is_host_name(request.host)
        if request.head is not None:
            lines = request.head.decode("latin-1").split("\r\n")
            assert lines[-2:] == ["", ""]
            assert all(line and not {*line} & {*"\r\n\0"} for line in lines[:-2])
            assert [line for line in lines if line.lower().startswith("host:")] == [lines[1]]
            assert lines[1].removeprefix("host: ").partition(":")[0] == request.host
            assert not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in lines)
