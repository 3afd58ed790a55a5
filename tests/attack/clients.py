"""Send forged, malformed and oversized messages to `lcp mcp` as a client that the operator did not name."""

from __future__ import annotations

import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import anyio
from mcp import Client
from mcp_types import Implementation
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.engine.replies import DONE, ask, write
from tests.patience import in_thread

from lcp_engine import Engine
from lcp_engine.features.mcp_server.door import McpDoor
from lcp_engine.features.mcp_server.listed import Listed
from lcp_engine.features.mcp_server.stdio import MOST_BYTES, StdioServer

SECRET = "sk-" + "Zz90" * 8
TOOLS = (
    "launch", "missions", "show", "report", "held", "diff", "answer", "search_memory", "approve", "reject", "undo",
    "undo_preview", "cancel", "__init__", "",
)  # fmt: skip
METHODS = (
    "resources/read", "resources/list", "prompts/get", "completion/complete", "logging/setLevel", "server/discover",
    "initialize", "sampling/createMessage", "notifications/cancelled", "notifications/progress", "subscriptions/listen",
)  # fmt: skip
KEYS = (
    "job", "mission", "mark", "reason", "text", "form", "goal", "root", "variables", "key", "words", "said", "limit",
    "uri", "name", "arguments", "requestId", "_meta", "self", "ctx",
)  # fmt: skip


@dataclass
class Found:
    """The number of answers by kind, and everything that must not have happened."""

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    control: bool = False
    """True if the client that the operator named could approve in the end, so that there was something to get."""


def attack(seconds: float, seed: int) -> bool:
    """Prints what was counted; whether nothing was decided, launched, told or broken."""
    found = attack_door(seconds, seed)
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.answers.items()))
    print(
        f"clients: {found.answers.total():,} answers ({counted}), {len(found.faults)} faults; "
        f"the named client {'could' if found.control else 'could not'} approve"
    )
    for fault in found.faults[:20]:
        print(f"  <- {fault}")
    return not found.faults and found.control


def attack_door(seconds: float, seed: int) -> Found:
    """Messages for so many seconds to a server with a held job and a question of the engine."""
    found, chance = Found(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lcp-clients-") as home, _site(Path(home)) as (engine, door, job):
        root = Path(home) / "root"
        marks = ["", "0" * 16, anyio.run(_mark, door, job)]
        before = _state(engine, root)
        with _speaking(door) as (send, answers):
            ends, number = time.monotonic() + seconds, 0
            while time.monotonic() < ends:
                number += 1
                for line in _forged(chance, number, job, marks, str(root)):
                    send(line + b"\n")
                send(
                    json.dumps({"jsonrpc": "2.0", "id": f"ping-{number}", "method": "ping"}).encode() + b"\n"
                )
                _hear(found, answers, f"ping-{number}")
        if _state(engine, root) != before:
            found.faults.append("something was decided, launched or changed")
        found.control = anyio.run(_approve, door, job)
    return found


@contextmanager
def _site(home: Path) -> Iterator[tuple[Engine, McpDoor, int]]:
    """A mission with a held write and one that asks for more turns."""
    (home / "root").mkdir()
    (home / "root" / "a.md").write_text("old\n")
    script: JsonValue = {"type": "script", "replies": [ask(write("a.md", "new\n")), *[DONE] * 3]}
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    with Engine(sqlite_url(home)) as engine:
        engine.launch({"goal": f"write {SECRET}", "planner": script}, root=home / "root")
        stopped: dict[str, JsonValue] = {"limits": {"max_turns": 1}, "on_limit": "hold", "policy": auto}
        engine.launch({"goal": "more", "planner": script, **stopped}, root=home / "root")
        engine.work(until_idle=True)
        (job,) = engine.jobs(states=["held"], kinds=["write_file"])
        listed = Listed(roots=(home / "root",), missions={"listed": home / "none.yaml"})
        yield engine, McpDoor(engine, listed, approve_for=["named"]), job.id


@contextmanager
def _speaking(door: McpDoor) -> Iterator[tuple[Callable[[bytes], object], BinaryIO]]:
    """What sends bytes to a server over pipes, after the greeting of a client, and its answers."""
    (source, to_server), (from_server, sink) = os.pipe(), os.pipe()
    streams = os.fdopen(source, "rb"), os.fdopen(sink, "wb", buffering=0)
    server = StdioServer(door.lowlevel, *streams)
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "other", "version": "1"},
    }
    with (
        open(to_server, "wb", buffering=0) as writer,  # noqa: PTH123  # descriptors
        open(from_server, "rb") as reader,  # noqa: PTH123
        in_thread(server.run, server.stop),
    ):
        greeting = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        writer.write(json.dumps(greeting).encode() + b"\n")
        reader.readline()
        writer.write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        yield writer.write, reader
    for stream in streams:
        stream.close()


def _forged(chance: random.Random, number: int, job: int, marks: list[str], root: str) -> Iterator[bytes]:
    """Messages that look right but for what is chosen at random, and some that are broken."""

    def value(depth: int = 0) -> JsonValue:
        some: list[JsonValue] = [
            None, True, 0, -1, 1, 2, job, job + 1, 10**30, 1.5, "", "1", "approve", *marks, root, "/", "-",
            "listed", "survey", "/etc/passwd", "lcp://jobs/1/changes", "lcp://missions/../report", "x" * 5_000,
            "\u202e\u0000", {"untrusted": "yes"},
        ]  # fmt: skip
        if depth < 3 and chance.random() < 0.2:
            return {chance.choice(KEYS): value(depth + 1), "list": [value(depth + 1)]}
        return chance.choice(some)

    arguments = {chance.choice(KEYS): value() for _ in range(chance.randrange(5))}
    if chance.random() < 0.5:
        arguments |= {"job": job, "mark": chance.choice(marks)}
    tool: dict[str, JsonValue] = {"name": chance.choice(TOOLS), "arguments": arguments}
    usual: dict[str, JsonValue] = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": tool}
    match chance.randrange(10):
        case 0:
            yield json.dumps({**usual, "method": chance.choice(METHODS), "params": arguments}).encode()
        case 1:
            data = bytearray(json.dumps(usual).encode())
            data[chance.randrange(len(data))] = chance.choice(b'{}[]",:x\\\xff')
            yield bytes(data).replace(b"\n", b" ")
        case 2:
            yield json.dumps(
                {**usual, chance.choice(("id", "jsonrpc", "params", "method")): value()}
            ).encode()
        case 3 if number % 50 == 0:
            yield b'{"a": "' + b"x" * (MOST_BYTES + 1) + b'"}'
        case 4:
            yield from (json.dumps({**usual, "id": f"{number}-{at}"}).encode() for at in range(5))
        case _:
            yield json.dumps(usual).encode()


def _hear(found: Found, answers: BinaryIO, last: str) -> None:
    """Read up to the answer with that id, and count."""
    while True:
        line = answers.readline()
        try:
            answer = json.loads(line)
        except ValueError:
            found.faults.append(f"no message: {line[:100]!r}")
            return
        if SECRET.encode() in line:
            found.faults.append("a secret was told")
        if answer.get("id") == last:
            return
        is_error = answer.get("result", {}).get("isError")
        found.answers["refused" if "error" in answer else "tool errors" if is_error else "results"] += 1


def _state(engine: Engine, root: Path) -> object:
    jobs = [(job.id, job.state, job.params) for job in engine.jobs()]
    return len(engine.missions()), jobs, engine.event_counts(), (root / "a.md").read_text()


async def _mark(door: McpDoor, job: int) -> str:
    """What the named client was shown the job with."""
    async with Client(
        door.server, mode="legacy", client_info=Implementation(name="named", version="1")
    ) as client:
        shown = (await client.call_tool("diff", {"job": job})).structured_content
    return str((shown or {})["mark"])


async def _approve(door: McpDoor, job: int) -> bool:
    mark = await _mark(door, job)
    async with Client(
        door.server, mode="legacy", client_info=Implementation(name="named", version="1")
    ) as client:
        return not (await client.call_tool("approve", {"job": job, "mark": mark})).is_error
