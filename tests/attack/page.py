"""Send forged, malformed and oversized requests to every route of a served page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from itertools import islice

from tests.attack.site import CLOSED, HELD_JOB, HUNG, Answer, Endpoint, Headers, Site, endpoints, form, served

URLENCODED = ("Content-Type", "application/x-www-form-urlencoded")
STATIC = "/static/"


@dataclass(frozen=True)
class Forged:
    """A request that nobody may make; `is_public` if what lies under /static/ may be answered."""

    name: str
    endpoint: Endpoint
    sent: bytes
    is_public: bool = False

    def gets_through(self, answer: Answer) -> bool:
        if self.is_public and self.endpoint.path.startswith(STATIC):
            return answer.tells
        return answer.tells or CLOSED < answer.status < 400


@dataclass
class Found:
    """The number of requests, the statuses of their answers, and every one that must not have happened."""

    statuses: Counter[int] = field(default_factory=Counter)
    through: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    controls: int = 0

    @property
    def is_well(self) -> bool:
        return self.controls == CONTROLS and not (self.through or self.failed or self.changed)

    def note(self, name: str, answer: Answer) -> None:
        self.statuses[answer.status] += 1
        is_unready = answer.status == 503 and "/readyz" in name  # its own answer, while no runner lives
        if answer.status == HUNG or (answer.status >= 500 and not is_unready):
            self.failed.append(f"{name}: {answer.status or 'no answer'}")


_NAMES = {HUNG: "hung", CLOSED: "closed"}
CONTROLS = 2
"""The same requests with everything right: a page that is read, a job that is approved."""


def attack(_: float, __: int) -> bool:
    """Prints what was counted; whether nothing got through, failed or hung."""
    found = attack_page()
    counted = ", ".join(
        f"{count:,} {_NAMES.get(status, status)}" for status, count in sorted(found.statuses.items())
    )
    print(
        f"page: {found.statuses.total():,} requests to {len(endpoints())} routes, {len(found.through)} got through, "
        f"{len(found.changed)} changed something, {len(found.failed)} failed or hung; "
        f"{found.controls} of {CONTROLS} controls did ({counted})"
    )
    for fault in (*found.through, *found.changed, *found.failed):
        print(f"  <- {fault}")
    return found.is_well


def attack_page(every: int = 1) -> Found:
    """Every request to a page of its own; of many alike only each `every`-th."""
    found = Found()
    with served() as site:
        before = site.state()
        for number, endpoint in enumerate(endpoints()):
            for forged in islice(_forged(site, endpoint), number % every, None, every):
                answer = site.send(forged.sent)
                name = f"{endpoint.method} {endpoint.path}, {forged.name}"
                found.note(name, answer)
                if forged.gets_through(answer):
                    found.through.append(f"{name}: {answer.status}")
            if site.state() != before:
                found.changed.append(f"{endpoint.method} {endpoint.path}")
                before = site.state()
        found.controls = _controls(site)
        for number, endpoint in enumerate(endpoints()):
            for name, sent in islice(_malformed(site, endpoint), number % every, None, every):
                found.note(f"{endpoint.method} {endpoint.path}, {name}", site.send(sent))
        found.failed += site.said()
    return found


def _controls(site: Site) -> int:
    page = site.send(site.request("GET", f"/jobs/{HELD_JOB}", site.own))
    shown = re.search(rb'name="shown" value="([^"]+)"', page.body)
    assert shown, page
    body = form(csrf=site.csrf, shown=unescape(shown[1].decode()))
    before = site.state()
    site.send(_post(site, f"/jobs/{HELD_JOB}/approve", site.own, body))
    return page.tells + (site.state() != before)


def _post(site: Site, path: str, headers: Headers, body: bytes, length: str | None = None) -> bytes:
    stated = ("Content-Length", str(len(body)) if length is None else length)
    return site.request("POST", path, (*headers, URLENCODED, stated), body)


# -- Requests of others


def _forged(site: Site, endpoint: Endpoint) -> Iterator[Forged]:
    for name, headers in _strangers(site):
        for method in (
            ("GET", "POST")
            if name != "no cookie"
            else ("GET", "POST", "HEAD", "PUT", "OPTIONS", "get", "TRACE")
        ):
            yield Forged(
                f"{method}, {name}", endpoint, _filled(site, method, endpoint.path, headers), is_public=True
            )
    for name, target in _targets(site, endpoint.path):
        if STATIC not in endpoint.path:
            headers = [("Host", site.host)]
            yield Forged(name, endpoint, _filled(site, endpoint.method, target, headers))
    for name, headers in (*_hosts(site), *_origins(site)):
        yield Forged(name, endpoint, _filled(site, endpoint.method, endpoint.path, headers))
    if endpoint.method == "POST":
        yield from _without_token(site, endpoint)


def _filled(site: Site, method: str, target: str, headers: Headers) -> bytes:
    """With a form whose token is right: what is forged is elsewhere."""
    if method != "POST":
        return site.request(method, target, headers)
    return _post(
        site, target, headers, form(csrf=site.csrf, reason="x", text="x", jobs="2", decision="approve")
    )


def _strangers(site: Site) -> Iterator[tuple[str, Headers]]:
    host = ("Host", site.host)
    yield "no cookie", [host]
    yield "no cookie, own origin", [host, ("Origin", f"http://{site.host}")]
    yield "forwarded", [host, ("X-Forwarded-For", "127.0.0.1"), ("X-Forwarded-Host", site.host)]
    name, _, value = site.cookie.partition("=")
    for title, cookie in (
        ("empty cookie", f"{name}="),
        ("other value", f"{name}={'x' * 43}"),
        ("cut cookie", f"{name}={value[:-1]}"),
        ("longer cookie", f"{name}={value}x"),
        ("other name", f"x{name}={value}"),
        ("lower case", f"{name}={value.lower()}"),
        ("value alone", value),
        ("quoted junk", f'{name}="\\"'),
        ("bytes", f"{name}=\xff\xfe"),
        ("many", f"{name}=x; " * 500),
    ):
        yield title, [host, ("Cookie", cookie)]


def _targets(site: Site, path: str) -> Iterator[tuple[str, str]]:
    yield from (
        ("absolute form", f"http://{site.host}{path}"),
        ("static host", f"http://{site.host}/static/?{path}"),
        ("two slashes", f"/{path}"),
        ("under static", f"/static/..{path}"),
        ("encoded dots", f"/static/%2e%2e{path}"),
        ("encoded slash", f"/static%2f..{path}"),
        ("under links", f"/d/..{path}"),
        ("under links, encoded", f"/d/%2e%2e{path}"),
        ("after a link", f"/d/x{path}"),
        ("backslash", f"/static\\..{path}"),
        ("static after", f"{path}?/static/"),
        ("fragment", f"{path}#/static/"),
        ("parameter", f"{path};/static/"),
        ("encoded", f"/%{ord(path[1:2] or '/'):02x}{path[2:]}"),
        ("wrong token", f"{path}?token=x"),
        ("empty token", f"{path}?token="),
        ("two tokens", f"{path}?token=x&token=y"),
        ("odd token", f"{path}?token=%00%ff"),
        ("authority", "127.0.0.1:80"),
        ("NUL", f"/static/%00{path}"),
    )


def _hosts(site: Site) -> Iterator[tuple[str, Headers]]:
    cookie, host = ("Cookie", site.cookie), site.host
    for value in (
        "evil.example",
        f"evil.example:{site.port}",
        f"{host}.evil.example",
        f"{host}@evil.example",
        f"evil.example@{host}",
        f"{host}/static/?",
        f"{host}/static/#",
        f"{host}?",
        f"{host}#",
        f"{host}\\",
        f"x{host}",
        f"{host}0",
        f"{host}:80",
        "",
        " ",
        "127.0.0.1",
        "localhost",
        "[::1",
        f"127.1:{site.port}",
        f"0.0.0.0:{site.port}",
        f"2130706433:{site.port}",
        f"127.0.0.1.:{site.port}",
        f"127.0.0.1:{site.port + 1}",
        f"{host},evil.example",
        f"{host}\t/",
        "\xff" * 10,
        "a" * 5000,
    ):
        yield f"Host {value[:40]!r}", [("Host", value), cookie]
    yield "no Host", [cookie]
    yield "two Hosts", [("Host", host), ("Host", "evil.example"), cookie]
    yield "two Hosts, own last", [("Host", "evil.example"), ("Host", host), cookie]


def _origins(site: Site) -> Iterator[tuple[str, Headers]]:
    for value in (
        "null",
        "",
        "http://evil.example",
        f"http://{site.host}.evil.example",
        f"http://{site.host}@evil.example",
        f"http://evil.example/{site.host}",
        f"http://127.0.0.1:{site.port + 1}",
        "http://127.0.0.1",
        "file://",
        f"http://{site.host}/",
        f"ftp://{site.host}",
        f"http://{site.host}, http://evil.example",
        "chrome-extension://x",
        f"http://evil.example#http://{site.host}",
        "\xff",
    ):
        yield f"Origin {value!r}", [*site.own, ("Origin", value)]


def _without_token(site: Site, endpoint: Endpoint) -> Iterator[Forged]:
    fields = {"reason": "x", "text": "x", "jobs": "2", "job": "2", "decision": "approve"}
    headers = (*site.own, ("Origin", f"http://{site.host}"))
    for name, body in (
        ("no form", b""),
        ("no csrf", form(**fields)),
        ("empty csrf", form(csrf="", **fields)),
        ("other csrf", form(csrf="x" * 43, **fields)),
        ("cut csrf", form(csrf=site.csrf[:-1], **fields)),
        ("csrf twice", form(csrf="x", **fields) + b"&csrf=" + site.csrf.encode()),
        ("csrf of bytes", b"csrf=%ff%fe&" + form(**fields)),
    ):
        yield Forged(name, endpoint, _post(site, endpoint.path, headers, body))
    query = f"{endpoint.path}?{form(csrf=site.csrf, **fields).decode()}"
    yield Forged("csrf in the query", endpoint, _post(site, query, headers, form(**fields)))
    for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
        sent = (*headers, ("Content-Type", kind))
        body = form(csrf=site.csrf, **fields)
        plain = site.request("POST", endpoint.path, (*sent, ("Content-Length", str(len(body)))), body)
        yield Forged(f"as {kind}", endpoint, plain)
    for method in ("GET", "PUT", "DELETE", "PATCH"):
        if not (method == "GET" and Endpoint("GET", endpoint.path) in endpoints()):
            yield Forged(f"by {method}", endpoint, site.request(method, query, headers))


# -- Nonsense of somebody with access, which has to be answered in words


def _malformed(site: Site, endpoint: Endpoint) -> Iterator[tuple[str, bytes]]:
    if endpoint.method == "GET":
        for number in _NUMBERS:
            path = re.sub(r"(?<=/)\d+", number, endpoint.path)
            if path != endpoint.path:
                yield f"id {number[:20]}", site.request("GET", path, site.own)
        for query in _QUERIES:
            yield f"query {query[:30]}", site.request("GET", f"{endpoint.path}?{query}", site.own)
        for name, value in _HEADERS:
            yield f"{name} {value[:20]!r}", site.request("GET", endpoint.path, (*site.own, (name, value)))
        return
    token = form(csrf=site.csrf)
    for name, body in _BODIES:
        yield name, _post(site, endpoint.path, site.own, token + b"&" + body)
    for length in ("-1", "x", "", "1e3", "0x10", "99999999999999999999", "1048577", "+5", "5, 6", "²"):
        yield f"length {length}", _post(site, endpoint.path, site.own, token, length)
    chunked = (*site.own, URLENCODED, ("Transfer-Encoding", "chunked"))
    for name, body in (
        ("chunks", b"5\r\ncsrf=\r\n0\r\n\r\n"),
        ("no number", b"zz\r\ncsrf\r\n"),
        ("huge chunk", b"fffffffffffff\r\nx"),
        ("never ends", b"5\r\ncsrf="),
        ("two MiB", b"200000\r\n" + b"x" * 0x200000 + b"\r\n0\r\n\r\n"),
    ):
        yield name, site.request("POST", endpoint.path, chunked, body)
    yield (
        "both lengths",
        site.request("POST", endpoint.path, (*chunked, ("Content-Length", "5")), b"0\r\n\r\nGET /x"),
    )


_NUMBERS = (
    "0",
    "-1",
    "00002",
    "99",
    str(2**63),
    str(2**64),
    "9" * 5000,
    "1e3",
    "%00",
    "%ff",
    "x",
    "1.5",
    "%EF%BC%91",
    "1%2f2",
    "..",
    "%2e%2e",
    "'",
    "1%20",
    "+1",
    "1;2",
    "%F0%9F%98%80",
)
_QUERIES = (
    "page=-1",
    "page=x",
    "page=" + "9" * 400,
    "state=x&state=y",
    "sort=%00",
    "after=%ff",
    "before=1e9",
    "q=" + "%00" * 3000,
    "&" * 5000,
    "a=1&" * 3000,
    "%",
    "%u0041=1",
    "state[]=held",
    "kind=" + "x" * 20_000,
    "from=-1&to=-2",
    "turn=x",
    "search=%ED%A0%80",
    "flash=x",
    "first=-5&most=99999999999999999999",
    "shown=x",
)
_HEADERS = (
    ("Range", "bytes=0-1,5-2,-1"),
    ("Accept-Encoding", "gzip;q=x, *;q=-1"),
    ("Accept", "\xff"),
    ("Last-Event-ID", "-1"),
    ("Last-Event-ID", "x" * 9000),
    ("If-Modified-Since", "never"),
    ("If-None-Match", '"'),
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("X-Requested-With", "\x01"),
    ("Transfer-Encoding", "gzip"),
    ("Content-Length", "3"),
    ("Cookie", "a=b; " * 900),
    ("X", "y" * 40_000),
    ("Sec-Fetch-Site", "cross-site"),
)
_BODIES = (
    ("invalid bytes", b"reason=%ff%fe&text=%c3%28&params=%80"),
    ("NUL", b"reason=%00&text=%00&params=%00&goal=%00&root=%00"),
    ("surrogates", b"reason=%ED%A0%80&text=%ED%A0%80&params=%22%5Cud800%22"),
    ("many fields", b"job=1&" * 3000),
    ("odd ids", b"job=x&jobs=1,,x&job=-1"),
    ("large ids", b"job=" + b"9" * 4000 + b"&jobs=" + b"9" * 4000),
    ("odd sights", b"shown=x&shown.2=%7B%7D&job=2&jobs=2&decision=approve"),
    ("odd amounts of what was not seen", b"shown=x&unseen=2%3A9%2F1+%3F%2F%3F&job=2&jobs=2&decision=approve"),
    ("deep", b"shown=" + b"%5B" * 20_000),
    ("deep params", b"params=" + b"%7B%22a%22%3A" * 20_000 + b"&decision=approve"),
    ("half", b"params=%7B%22rel_path%22%3A"),
    ("numbers", b"params=1e999&decision=%01"),
    ("mission", b"mission=%7B&goal=x&root=/nonexistent&file=%00&name=../../x"),
    ("a MiB", b"text=" + b"x" * (1024 * 1024 - 200)),
    ("more than a MiB", b"text=" + b"x" * (1024 * 1024)),
)
