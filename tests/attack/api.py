"""Send requests of programs that may not make them, and broken ones, to every operation of a served API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta

from tests.attack.page import Found
from tests.attack.site import CLOSED, HELD_JOB, Headers, Site, served

from lcp_engine import Engine
from lcp_engine.features.http_api.document import OPERATIONS
from lcp_engine.features.http_api.operations import Operation
from lcp_engine.features.tokens.calls import Scope

JSON = ("Content-Type", "application/json")
NUMBERS = {"{mission}": "1", "{job}": str(HELD_JOB), "{number}": "1", "{entry}": "1", "{schedule}": "daily"}
CONTROLS = 2
"""The same requests with everything right: a mission that is read, a job that is approved as it was shown."""


def attack(_: float, __: int) -> bool:
    """Prints what was counted; whether nothing got through, failed or hung."""
    found = attack_api()
    counted = ", ".join(f"{count:,} {status}" for status, count in sorted(found.statuses.items()))
    print(
        f"api: {found.statuses.total():,} requests to {len(OPERATIONS)} operations, {len(found.through)} got through, "
        f"{len(found.changed)} changed something, {len(found.failed)} failed or hung; "
        f"{found.controls} of {CONTROLS} controls did ({counted})"
    )
    for fault in (*found.through, *found.changed, *found.failed):
        print(f"  <- {fault}")
    return found.is_well


def attack_api(every: int = 1) -> Found:
    """Every request to an operation of its own; of the operations only each `every`-th."""
    found = Found()
    with served("--api") as site:
        tokens = _tokens(site)
        for operation in OPERATIONS[::every]:
            before = site.state()
            for name, sent in _forged(site, operation, tokens):
                answer = site.send(sent)
                found.note(f"{operation.method} {operation.path}, {name}", answer)
                if answer.tells or CLOSED < answer.status < 400:
                    found.through.append(f"{operation.method} {operation.path}, {name}: {answer.status}")
            if site.state() != before:
                found.changed.append(f"{operation.method} {operation.path}")
            for name, sent in _broken(site, operation, tokens["all"]):
                found.note(f"{operation.method} {operation.path}, {name}", site.send(sent))
        found.controls = _controls(site, tokens["all"])
        found.failed += site.said()
    return found


def _tokens(site: Site) -> dict[str, str]:
    """A token of each scope, one of all, one that has ended and one that was removed."""
    with Engine(f"sqlite:///{site.home}/lcp.db") as engine:
        add = engine.tokens.add
        made = {str(scope): add(scope, {scope}, per_minute=1_000_000) for scope in Scope}
        made["all"] = add("all", {*Scope}, per_minute=1_000_000)
        made["ended"] = add("ended", {*Scope}, lasts=timedelta(microseconds=1))
        made["removed"] = add("removed", {*Scope})
        engine.tokens.remove("removed")
    return made


def _forged(site: Site, operation: Operation, tokens: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    right = ("Authorization", f"Bearer {tokens['all']}")
    for name, headers in (
        ("nothing", ()),
        ("the cookie of the page", (("Cookie", site.cookie),)),
        ("an unknown token", (("Authorization", "Bearer lcp-token-x"),)),
        ("a token that has ended", (("Authorization", f"Bearer {tokens['ended']}"),)),
        ("a token that was removed", (("Authorization", f"Bearer {tokens['removed']}"),)),
        ("a token as a password", (("Authorization", f"Basic {tokens['all']}"),)),
        ("two tokens", (right, ("Authorization", f"Bearer {tokens['look']}"))),
        *(
            (f"the scope {scope}", (("Authorization", f"Bearer {tokens[scope]}"),))
            for scope in Scope
            if scope != operation.scope
        ),
    ):
        yield name, _request(site, operation, headers, b"{}")
    yield "a token in its address", _request(site, operation, (right,), b"{}", f"?token={tokens['all']}")


def _broken(site: Site, operation: Operation, token: str) -> Iterator[tuple[str, bytes]]:
    right: Headers = (("Authorization", f"Bearer {token}"),)
    if operation.body is not None:
        bodies = (
            b"",
            b"{",
            b"[]",
            b"null",
            b'{"a": 1e999}',
            b"\xff",
            b"{" + b'"a":{' * 5000,
            b'{"shown": "\\ud800"}',
        )
        for body in bodies:
            yield f"the body {body[:20]!r}", _request(site, operation, right, body)
        length = ("Content-Length", str(100 * 1024 * 1024))
        yield (
            "a body of 100 MB",
            site.request(operation.method, _path(operation), (*right, ("Host", "x"), JSON, length)),
        )
    if operation.query is not None:
        for query in (
            "?limit=-1",
            "?%00",
            "?a=%ff",
            "?" + "a=1&" * 500,
            "?cursor=" + "9" * 4000,
            "?wait=nan",
        ):
            yield f"the query {query[:20]}", _request(site, operation, right, b"", query)
    for part in ("0", "-1", "9" * 30, "%00", "..%2f..", "%f0%9f%98%80"):
        if "{" in operation.path:
            path = re.sub(r"{\w+}", part, operation.path)
            sent = (*right, ("Host", "x"), JSON, ("Idempotency-Key", "k"), ("Content-Length", "2"))
            yield f"the path part {part[:10]}", site.request(operation.method, path, sent, b"{}")


def _controls(site: Site, token: str) -> int:
    right: Headers = (("Host", "x"), ("Authorization", f"Bearer {token}"))
    read = site.send(site.request("GET", "/v1/missions/1", right))
    shown = json.loads(site.send(site.request("GET", f"/v1/held/{HELD_JOB}", right)).body)["shown"]
    body = json.dumps({"shown": shown}).encode()
    before = site.state()
    sent = (*right, JSON, ("Idempotency-Key", "control"), ("Content-Length", str(len(body))))
    site.send(site.request("POST", f"/v1/jobs/{HELD_JOB}/approve", sent, body))
    return read.tells + (site.state() != before)


def _path(operation: Operation) -> str:
    return re.sub(r"{\w+}", lambda part: NUMBERS[part[0]], operation.path)


def _request(
    site: Site, operation: Operation, headers: Sequence[tuple[str, str]], body: bytes, query: str = ""
) -> bytes:
    more: Headers = () if operation.body is None else (JSON,)
    length = ("Content-Length", str(len(body) if operation.body is not None else 0))
    sent = (("Host", f"127.0.0.1:{site.port}"), *headers, *more, ("Idempotency-Key", "k"), length)
    return site.request(
        operation.method, _path(operation) + query, sent, body if operation.body is not None else b""
    )
