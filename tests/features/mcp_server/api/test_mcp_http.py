"""MCP over streamable HTTP: who is let in, to what, and what is refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from tests.features.mcp_server.api.test_mcp_door import ERAS, Era, refusal, value, waiting
from tests.patience import in_thread

from lcp_engine import Engine, LcpError
from lcp_engine.features.mcp_server.door import McpDoor
from lcp_engine.features.mcp_server.http import HttpServer
from lcp_engine.features.mcp_server.listed import Listed
from lcp_engine.features.mcp_server.stdio import MOST_BYTES
from lcp_engine.features.tokens.calls import Scope

Steps: TypeAlias = Callable[[Client], Awaitable[None]]


@pytest.fixture
def engine(emptied_database_url: str) -> Iterator[Engine]:
    with Engine(emptied_database_url) as engine:
        yield engine


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.md").write_text("old\n")
    return tmp_path / "root"


@contextmanager
def serving(
    engine: Engine, *, listed: Listed | None = None, approve_for: tuple[str, ...] = ()
) -> Iterator[HttpServer]:
    server = HttpServer(McpDoor(engine, listed or Listed(), approve_for), "127.0.0.1", 0)
    with in_thread(server.run, server.stop):
        yield server


def run(server: HttpServer, token: str | None, steps: Steps, era: Era = "legacy") -> None:
    async def act() -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(server.url, http_client=http)
            async with Client(
                transport, mode=era, client_info=Implementation(name="anna", version="1")
            ) as client:
                await steps(client)

    anyio.run(act)


@pytest.mark.parametrize("era", ERAS)
def test_a_token_is_the_client_that_approves(engine: Engine, root: Path, era: Era) -> None:
    (job,) = waiting(engine, root, "a.md")
    token = engine.tokens.add("bot", {Scope.LOOK, Scope.DECIDE}, person="berta")
    other = engine.tokens.add("other", {Scope.LOOK, Scope.DECIDE})

    async def stranger(client: Client) -> None:
        assert value(await client.call_tool("diff", {"job": job})).mark is None
        assert refusal(await client.call_tool("approve", {"job": job, "mark": "x"}))[0] == "NOT_ALLOWED"

    async def steps(client: Client) -> None:
        mark = value(await client.call_tool("diff", {"job": job})).mark
        assert value(await client.call_tool("approve", {"job": job, "mark": mark})).changed is True

    with serving(engine, approve_for=("bot",)) as server:
        assert server.token is None
        run(server, other, stranger, era)
        run(server, token, steps, era)
    assert "berta through bot" in str(engine.events(engine.job(job).mission_id, event="decided"))


@pytest.mark.parametrize("era", ERAS)
def test_a_token_does_what_its_scopes_say(engine: Engine, root: Path, era: Era) -> None:
    (job,) = waiting(engine, root, "a.md")
    look = engine.tokens.add("look", {Scope.LOOK})
    launch = engine.tokens.add("launch", {Scope.LAUNCH})

    async def looking(client: Client) -> None:
        assert value(await client.call_tool("held")).held
        assert (await client.read_resource(f"lcp://jobs/{job}/changes")).contents
        for tool, arguments in (("launch", {"goal": "Say hello."}), ("answer", {"job": job, "text": "x"})):
            assert refusal(await client.call_tool(tool, arguments))[0] == "TOKEN_REFUSED"

    async def launching(client: Client) -> None:
        assert refusal(await client.call_tool("held"))[0] == "TOKEN_REFUSED"
        with pytest.raises(Exception, match="TOKEN_REFUSED"):
            await client.read_resource(f"lcp://jobs/{job}/changes")
        assert value(await client.call_tool("launch", {"goal": "Say hello."})).status == "running"

    with serving(engine, listed=Listed(roots=(root,), planner="human")) as server:
        run(server, look, looking, era)
        run(server, launch, launching, era)


def test_without_tokens_one_is_generated_on_this_machine_alone(engine: Engine) -> None:
    async def steps(client: Client) -> None:
        assert value(await client.call_tool("missions")).missions == []

    with serving(engine) as server:
        assert server.token
        run(server, server.token, steps)
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(LcpError, match="cannot listen"):
            HttpServer(McpDoor(engine, Listed()), "127.0.0.1", port)
    with pytest.raises(LcpError, match="no token that lets anyone in"):
        HttpServer(McpDoor(engine, Listed()), "0.0.0.0", 0)


PING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
REFUSED: dict[str, tuple[dict[str, str], str, str, int]] = {
    "no token": ({"Authorization": ""}, "", PING, 401),
    "another token": ({"Authorization": "Bearer lcp-token-x"}, "", PING, 401),
    "a token in the address": ({}, "?token=lcp-token-x", PING, 400),
    "another host": ({"Host": "evil.example"}, "", PING, 421),
    "a page elsewhere": ({"Origin": "https://evil.example"}, "", PING, 403),
    "a page of another port": ({"Origin": "http://127.0.0.1:1"}, "", PING, 403),
    "a page without an origin": ({"Origin": "null"}, "", PING, 403),
    "no JSON": ({}, "", "{", 400),
    "no session": ({"Mcp-Session-Id": "x"}, "", PING, 404),
    "another path": ({}, "/x", PING, 404),
    "too long": ({}, "", "x" * (MOST_BYTES + 1), 413),
}


def test_what_is_not_for_it_is_refused(engine: Engine) -> None:
    with serving(engine) as server:
        for name, (headers, more, body, status) in REFUSED.items():
            usual = {
                "Authorization": f"Bearer {server.token}",
                "Accept": "application/json, text/event-stream",
            }
            usual["Content-Type"] = "application/json"
            answer = httpx2.post(f"{server.url}{more}", headers={**usual, **headers}, content=body)
            assert answer.status_code == status, name
            assert "lcp-token" not in answer.text


def test_a_token_is_heard_as_often_as_it_may_be(engine: Engine) -> None:
    token = engine.tokens.add("few", {Scope.LOOK}, per_minute=2)
    with serving(engine) as server:
        asked = [
            httpx2.post(server.url, headers={"Authorization": f"Bearer {token}"}, content=PING)
            for _ in range(3)
        ]
    assert asked[-1].status_code == 429
    assert int(asked[-1].headers["Retry-After"]) > 0


def test_slow_senders_do_not_keep_it_from_ending(engine: Engine) -> None:
    with serving(engine) as server:
        port = int(server.url.rpartition(":")[2].partition("/")[0])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(80)]
        for one in slow:
            one.sendall(b"POST /mcp HTTP/1.1\r\n")
        assert httpx2.post(server.url, content=PING).status_code == 401
    for one in slow:
        one.close()
