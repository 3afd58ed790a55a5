"""Ask for figures and health as programs that may not, slowly, in pieces and with many connections."""

from __future__ import annotations

import random
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import sqlite_url

from lcp_engine import Engine
from lcp_engine.features.telemetry.health import ANSWER_SECONDS, MOST_CONNECTIONS, serving_health

PATHS = ("/metrics", "/readyz", "/healthz")
TELLS = (b"lcp_", b"ready", b"ok\n", b"runners:")
"""What only those who may ask are told."""
FOREIGN = (
    "Host: evil.example", "Host: 127.0.0.1.evil.example", "Host: 169.254.169.254", "Host: 0.0.0.0", "Host:",
    "X-Host: 127.0.0.1",
    "Host: 127.0.0.1{port}\r\nOrigin: http://evil.example", "Host: 127.0.0.1{port}\r\nOrigin: null",
    "Host: localhost@evil.example", "Host: evil.example\r\nHost: 127.0.0.1{port}",
)  # fmt: skip
MANY = 200


@dataclass
class Found:
    """The number of answers by status, and everything that must not have happened."""

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    controls: int = 0
    """How many of the addresses were answered in the end, asked as they may be."""


def attack(seconds: float, seed: int) -> bool:
    """Prints what was counted; whether nothing was told, and all were answered in the end."""
    found = attack_health(seconds, seed)
    counted = ", ".join(f"{count:,} {status}" for status, count in sorted(found.answers.items()))
    print(
        f"health: {found.answers.total():,} answers ({counted}), {len(found.faults)} faults; "
        f"{found.controls} of {len(PATHS)} addresses answered those who may ask"
    )
    for fault in found.faults[:20]:
        print(f"  <- {fault}")
    return not found.faults and found.controls == len(PATHS)


def attack_health(seconds: float, seed: int) -> Found:
    """Forged requests, then broken and slow ones beside many connections for so many seconds."""
    found, chance = Found(), random.Random(seed)
    with (
        tempfile.TemporaryDirectory(prefix="lcp-health-") as home,
        Engine(sqlite_url(Path(home))) as engine,
        serving_health(engine.instance, 0) as address,
    ):
        port = int(address.rpartition(":")[2])
        for path in PATHS:
            for stated in FOREIGN:
                host = stated.format(port=f":{port}")
                for asked in (path, f"http://127.0.0.1:{port}{path}"):
                    answer = _send(found, port, f"GET {asked} HTTP/1.1\r\n{host}\r\n\r\n".encode())
                    if any(word in answer.partition(b"\r\n\r\n")[2] for word in TELLS):
                        found.faults.append(f"{path} was told to {stated}")
        _press(found, chance, port, seconds)
        for path in PATHS:
            right = f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
            ends = time.monotonic() + 6 * ANSWER_SECONDS
            while not (is_told := any(word in _send(found, port, right) for word in TELLS)):
                if time.monotonic() > ends:
                    break
            found.controls += is_told
    return found


def _press(found: Found, chance: random.Random, port: int, seconds: float) -> None:
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(MANY)]
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for one, data in zip(idle, _broken(chance, port), strict=False):
            with suppress(OSError):
                one.sendall(data)
        if (threads := threading.active_count() - before) > 2 * MOST_CONNECTIONS:
            found.faults.append(f"{threads} threads serve {MANY} connections")
    for one in idle:
        one.close()


def _send(found: Found, port: int, data: bytes) -> bytes:
    """The whole answer; empty if the connection was cut."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 60) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        while part := one.recv(65_536):
            answer += part
    status = re.match(rb"HTTP/\S+ ([0-9]{3})", answer)
    found.answers[status[1].decode() if status else "cut"] += 1
    return answer


def _broken(chance: random.Random, port: int) -> Iterator[bytes]:
    """Requests that never end, that are none, or that ask for very much."""
    host = f"Host: 127.0.0.1:{port}\r\n".encode()
    for _ in range(MANY):
        yield chance.choice((
            b"G", b"GET /metrics HTTP/1.1\r\n", b"GET /" + b"x" * 70_000, b"\0\xff" * 100, b"\r\n" * 50,
            b"GET /metrics HTTP/1.1\r\n" + host + b"X: " + b"x" * 70_000 + b"\r\n\r\n",
            b"GET /metrics HTTP/1.1\r\n" + host + b"A: b\r\n" * 200 + b"\r\n",
            b"POST /metrics HTTP/1.1\r\n" + host + b"Content-Length: 1000000000\r\n\r\n",
            b"GET /../metrics HTTP/9.9\r\n" + host + b"\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ))  # fmt: skip
