"""`lcp mcp`: the protocol over stdin and stdout, with a client of the SDK and with bare messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import Implementation
from tests.cli.conftest import Lcp, Object
from tests.features.mcp_server.api.test_mcp_door import value
from tests.loaded_python import Python
from tests.patience import PATIENCE_SECONDS

from lcp_engine import Engine
from lcp_engine.features.mcp_server.stdio import MOST_BYTES, MOST_REQUESTS

if TYPE_CHECKING:
    from pydantic import JsonValue

HELLO: Object = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "bare", "version": "1"},
}


class Bare:
    """A client that sends any bytes."""

    def __init__(self, process: Python) -> None:
        self.process = process

    def send(self, *messages: JsonValue | bytes) -> None:
        for one in messages:
            self.write((one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n")

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        while data:
            data = data[os.write(self.process.stdin.fileno(), data) :]

    def call(self, number: int, method: str, **params: JsonValue) -> Object:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}

    def answer(self) -> Object:
        assert self.process.stdout is not None
        found = json.loads(self.process.stdout.readline())
        assert isinstance(found, dict)
        assert found["jsonrpc"] == "2.0"
        return found

    def begin(self) -> None:
        self.send(self.call(0, "initialize", **HELLO))
        assert self.answer()["id"] == 0
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def error(self) -> tuple[JsonValue, JsonValue]:
        """The id and the code of the next answer, which is an error."""
        found = self.answer()
        error = found["error"]
        assert isinstance(error, dict)
        return found["id"], error["code"]


@pytest.fixture
def bare(lcp: Lcp) -> Iterator[Bare]:
    with Python(
        "-m", "lcp_engine", "mcp", "--root", str(lcp.root),
        cwd=lcp.home, env=lcp.environment,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield Bare(process)
        finally:
            process.kill()


@pytest.mark.proof
def test_the_sdks_client_drives_a_mission_from_launch_over_a_held_write_to_undo(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("write_file", rel_path="b.md", content="b\n"), lcp.complete)
    options = ["--root", "root", "--mission", mission.name, "--threads", "1", "--approve-for", "tester"]
    server = StdioServerParameters(
        command=lcp.command()[0],
        args=[*lcp.command()[1:], "mcp", *options],
        env=dict(lcp.environment),
        cwd=lcp.home,
    )

    async def drive(call: Callable[..., Awaitable[SimpleNamespace]]) -> None:
        number = (await call("launch", mission=mission.stem)).mission
        state = await call("show", mission=number, wait_seconds=60)
        assert (state.status, state.runners) == ("waiting", 1)
        (held,) = (await call("held", mission=number)).held
        assert not (lcp.root / "b.md").exists()
        shown = await call("diff", job=held.job)
        assert "+b\n" in shown.files[0].diff.untrusted
        await call("approve", job=held.job, mark=shown.mark)
        state = await call("show", mission=number, wait_seconds=60)
        assert (state.status, state.unfulfilled) == ("completed", [])
        assert (lcp.root / "b.md").read_text() == "b\n"
        assert "b.md" in (await call("report", mission=number)).report.untrusted
        shown = await call("undo_preview", mission=number)
        (file,) = (await call("undo", mission=number, mark=shown.mark)).files
        assert (file.path.untrusted, file.done) == ("b.md", "removed")
        assert not (lcp.root / "b.md").exists()

    async def act() -> None:
        transport = stdio_client(server, errlog=log)
        async with Client(transport, client_info=Implementation(name="tester", version="1")) as client:

            async def call(tool: str, **arguments: str | int) -> SimpleNamespace:
                return value(await client.call_tool(tool, arguments))

            await drive(call)

    with (lcp.home / "log").open("w") as log:
        anyio.run(act)
    assert (lcp.home / "log").read_text() == ""


def test_bad_messages_are_refused_and_the_next_one_is_answered(bare: Bare) -> None:
    bare.begin()
    deep = b"[" * 100_000
    bare.send(b"{", b"\xff\xfe", deep, b"[]", b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}', b"")
    assert [bare.error()[1] for _ in range(5)] == [-32700, -32700, -32700, -32600, -32600]
    bare.send(bare.call(1, "no/such"), bare.call(2, "tools/call", name=3))
    assert sorted(map(str, [bare.error(), bare.error()])) == ["(1, -32601)", "(2, -32602)"]
    bare.send(bare.call(3, "tools/list"))
    found = bare.answer()
    assert found["id"] == 3


def test_a_message_of_any_length_takes_bounded_memory(bare: Bare) -> None:
    bare.begin()
    bare.send(b"x" * MOST_BYTES)
    assert bare.error() == (None, -32700)
    before = _memory(bare.process.pid)
    for _ in range(25):
        bare.write(b"x" * MOST_BYTES)
    bare.send(b"")
    assert bare.error() == (None, -32600)
    assert _memory(bare.process.pid) < before + 8 * MOST_BYTES
    bare.send(bare.call(1, "ping"))
    assert bare.answer() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def _memory(pid: int) -> int:
    """The most that a process has had in memory, in bytes."""
    with open(f"/proc/{pid}/status") as status:  # noqa: PTH123
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def test_a_flood_of_requests_is_refused_beyond_a_number(bare: Bare, lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", lcp.root)
    bare.begin()
    neither: Object = {"method": "ping", "error": {"code": 1, "message": "a request that is an answer"}}
    bare.send(*({**bare.call(at, "ping"), **neither} for at in range(-MOST_REQUESTS, 0)))
    waits: JsonValue = {"mission": 1, "wait_seconds": 60}
    asks = [bare.call(at, "tools/call", name="show", arguments=waits) for at in range(1, MOST_REQUESTS + 1)]
    bare.send(*asks, bare.call(900, "ping"), asks[0])
    assert bare.error() == (900, -32000)
    assert bare.error() == (1, -32600)
    cancelled: JsonValue = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    bare.send(cancelled)
    for at in range(901, 999):
        bare.send(bare.call(at, "ping"))
        if "result" in bare.answer():
            break
    else:
        pytest.fail("a cancelled request still counts")


def test_what_was_asked_before_the_end_of_stdin_is_answered(bare: Bare) -> None:
    bare.send(bare.call(0, "initialize", **HELLO), bare.call(1, "tools/list"), bare.call(2, "ping"))
    out, err = bare.process.communicate(timeout=PATIENCE_SECONDS)
    assert {json.loads(line)["id"] for line in out.splitlines()} == {0, 1, 2}
    assert (bare.process.returncode, err) == (0, "")


def test_a_client_that_vanishes_ends_the_server(bare: Bare, lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", lcp.root)
    bare.begin()
    bare.send(bare.call(1, "tools/call", name="show", arguments={"mission": 1, "wait_seconds": 60}))
    _, err = bare.process.communicate(timeout=PATIENCE_SECONDS)
    assert (bare.process.returncode, err) == (0, "")


def test_a_client_that_reads_nothing_does_not_keep_it_from_ending(bare: Bare) -> None:
    bare.begin()
    bare.send(*(bare.call(at, "tools/list") for at in range(1, MOST_REQUESTS)))
    bare.process.send_signal(signal.SIGTERM)
    assert bare.process.wait(PATIENCE_SECONDS) == 0


def test_over_http_the_address_and_a_token_are_printed_once(lcp: Lcp) -> None:
    with lcp.start("mcp", "--http", "127.0.0.1:0", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline()) | json.loads(process.stdout.readline())
        ping = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO})
        headers = {
            "Authorization": f"Bearer {told['token']}",
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
        }
        assert httpx2.post(told["url"], headers=headers, content=ping).status_code == 200
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out, err) == (0, "", "")


def test_the_pages_server_serves_clients_what_the_configuration_states(lcp: Lcp) -> None:
    path = lcp.home / "config" / "lcp-engine" / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    stated = {
        "roots": [str(lcp.root)],
        "planner": "human",
        "set": ["limits.max_turns=7"],
        "approve_for": ["generated"],
    }
    path.write_text(json.dumps({"serve": {"mcp": True}, "mcp": stated}))

    async def steps(url: str, token: str) -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http), mode="legacy") as client,
        ):
            assert "approve" in {tool.name for tool in (await client.list_tools()).tools}
            launched = await client.call_tool("launch", {"goal": "Say hello."})
            assert (launched.structured_content or {})["planner"] == "human"

    with lcp.start("serve", "--port", "0", "--json") as process:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline()) | json.loads(process.stdout.readline())
        url = f"http://127.0.0.1:{urlsplit(told['link']).port}/mcp"
        assert httpx2.post(url, json={}).status_code == 401
        anyio.run(steps, url, told["token"])
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, out) == (0, "")
    with Engine(f"sqlite:///{lcp.database}") as engine:
        (mission,) = engine.missions()
        assert mission.limits["max_turns"] == 7


def test_usage_is_checked_before_anything_is_served(lcp: Lcp) -> None:
    assert lcp("mcp", "--mission", "survey").code == 2
    assert lcp("mcp", "--root", "root", "--mission", "-").code == 2
    assert lcp("mcp", "--root", "root", "--mission", "survey", "--mission", "survey").code == 2
    assert lcp("mcp", "--root", "nowhere").code == 1
    for address in ("8471", "localhost:", "localhost:x", "localhost:65536"):
        assert lcp("mcp", "--http", address).code == 2
    assert "no token that lets anyone in" in lcp("mcp", "--http", "0.0.0.0:0").err
