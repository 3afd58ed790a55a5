"""Read the head of a request to the proxy: which host it is for, and what is sent there. Pure.

Two forms are read: `CONNECT name:port`, and `GET` or `HEAD` of `http://name/…` without a body. Nothing is repaired.
What is sent on is written anew, so that server and proxy cannot read it in two ways.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lcp_engine.core.programs.network import is_host_name

HEAD_END = b"\r\n\r\n"
MOST_HEAD = 16 * 1024
"""Bytes of the head of a request."""
_MOST_HEADERS = 100
_HTTP = 80
_LINE = re.compile(r"([A-Z]{1,20}) ([!-~]{1,8000}) HTTP/1\.([01])")
_AUTHORITY = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{1,5}))?")
_ADDRESS = re.compile(r"http://([^/?]*)((?:/[^#]*)?)", re.IGNORECASE)
_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_NOT_SENT_ON = frozenset(
    {"connection", "content-length", "host", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
_HAS_BODY = frozenset({"content-length", "transfer-encoding", "expect"})


@dataclass(frozen=True)
class ProxyRequest:
    """A request for a host, named in small letters, at a port."""

    host: str
    port: int
    head: bytes | None
    """The head that is sent there; None for a tunnel."""

    @property
    def target(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class BadRequest:
    """A request that is not read: the status of the answer, and why."""

    status: int
    why: str
    target: str | None = None
    """The host and port that it named, where that can be told."""


def read_request(head: bytes) -> ProxyRequest | BadRequest:
    """Read the head of a request, with the empty line at its end."""
    lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    if any(mark in line for line in lines for mark in "\r\n\0"):
        return BadRequest(400, "a line should end with CR LF alone")
    line = _LINE.fullmatch(lines[0])
    if line is None:
        return BadRequest(400, "the first line should be METHOD TARGET HTTP/1.1")
    found = [_HEADER.fullmatch(each) for each in lines[1:]]
    headers = [(one[1].lower(), one[2]) for one in found if one is not None]
    if len(headers) != len(found) or len(headers) > _MOST_HEADERS:
        return BadRequest(400, f"the other lines should be NAME: VALUE, at most {_MOST_HEADERS}")
    method, target = line[1], line[2]
    if method == "CONNECT":
        return _tunnel(target, headers)
    return _fetch(method, target, headers)


def _tunnel(target: str, headers: Sequence[tuple[str, str]]) -> ProxyRequest | BadRequest:
    if (has_body := _body_of(headers)) is not None:
        return has_body
    place = _AUTHORITY.fullmatch(target)
    if place is None or place[2] is None:
        return BadRequest(400, "the target of CONNECT should be NAME:PORT")
    return _named(place[1], int(place[2]))


def _fetch(method: str, target: str, headers: Sequence[tuple[str, str]]) -> ProxyRequest | BadRequest:
    address = _ADDRESS.fullmatch(target)
    if address is None:
        return BadRequest(400, "the target should be http://NAME/…; https needs CONNECT")
    if method not in {"GET", "HEAD"}:
        return BadRequest(405, f"{method} of http is not sent on; GET and HEAD are, and all in https")
    if (has_body := _body_of(headers)) is not None:
        return has_body
    place = _AUTHORITY.fullmatch(address[1])
    if place is None:
        return BadRequest(400, "the target should be http://NAME/…, without a user")
    port = _HTTP if place[2] is None else int(place[2])
    stated = [value for name, value in headers if name == "host"]
    if len(stated) > 1 or any(_authority(one) != (place[1].lower(), port) for one in stated):
        return BadRequest(400, "the header Host should name the same host as the target, once")
    named = _named(place[1], port)
    if isinstance(named, BadRequest):
        return named
    host = named.host if port == _HTTP else named.target
    kept = "".join(f"{name}: {value}\r\n" for name, value in _sent_on(headers))
    head = f"{method} {address[2] or '/'} HTTP/1.1\r\nhost: {host}\r\n{kept}connection: close\r\n\r\n"
    return ProxyRequest(named.host, port, head.encode("latin-1"))


def _body_of(headers: Sequence[tuple[str, str]]) -> BadRequest | None:
    has_body = any(name in _HAS_BODY for name, _ in headers)
    return BadRequest(400, "a request with a body is not sent on; https is") if has_body else None


def _authority(text: str) -> tuple[str, int] | None:
    place = _AUTHORITY.fullmatch(text)
    return None if place is None else (place[1].lower(), _HTTP if place[2] is None else int(place[2]))


def _named(text: str, port: int) -> ProxyRequest | BadRequest:
    host = text.lower()
    if not is_host_name(host):
        return BadRequest(403, f"{host} is not the name of a host", f"{host}:{port}")
    return ProxyRequest(host, port, None)


def _sent_on(headers: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Headers that are for the server: not those for the proxy, which `Connection` may name more of."""
    for_proxy = {
        one.strip().lower() for name, value in headers if name == "connection" for one in value.split(",")
    }
    for name, value in headers:
        if name not in _NOT_SENT_ON and name not in for_proxy and not name.startswith("proxy-"):
            yield name, value
