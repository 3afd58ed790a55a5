"""Answer `lcp run` as a hostile model's server: drip, bomb, redirect, quote an action, echo the key that was sent."""

from __future__ import annotations

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from tests.features.models.planners.test_deadline import DRIPS, Dripping
from tests.features.models.planners.test_scrub import ENCODINGS

KEY = "sk-attack-5f0c2b79e1d84a63"
FEW = 16
"""So many characters of the key, in any of the encodings, are a leak."""
TOTAL_SECONDS = 1
MOST_SECONDS = 30
MOST_BYTES = 500 * 2**20
KEPT = "kept.txt"
"""A file that the mission may write, and that no server here asks for."""
HEAD = b"HTTP/1.1 %s\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"

Play: TypeAlias = Callable[[Dripping, socket.socket], None]


def _sends(body: bytes, status: bytes = b"200 OK", more: bytes = b"") -> Play:
    def play(server: Dripping, to: socket.socket) -> None:
        _read_request(to)
        try:
            to.sendall(HEAD % status + more + b"\r\n" + body)
        except OSError:
            server.left.set()

    return play


def _read_request(to: socket.socket) -> None:
    head = b""
    while b"\r\n\r\n" not in head and (part := to.recv(65536)):
        head += part


def _says(text: str) -> bytes:
    delta = {"choices": [{"delta": {"content": text}, "finish_reason": "stop"}]}
    return b"data: " + json.dumps(delta).encode() + b"\n\ndata: [DONE]\n\n"


def _thinks(thought: str) -> bytes:
    delta = {"choices": [{"delta": {"content": None, "reasoning_content": thought}, "finish_reason": "stop"}]}
    return b"data: " + json.dumps(delta).encode() + b"\n\ndata: [DONE]\n\n"


def _bomb(size: int) -> bytes:
    return gzip.compress(b"data: " + bytes(size), 1)


def plays() -> Mapping[str, Play]:
    """Each drip, bomb, redirect and echo by its name."""
    echoes = "\n".join(encode(KEY) for encode in ENCODINGS.values())
    reply = json.dumps({"ok": True, "action": "mission_complete", "summary": echoes})
    gzipped = b"Content-Encoding: gzip\r\n"
    refused = {"message": "no 'max_tokens', 'temperature', 'seed', 'response_format'", "param": "max_tokens"}
    write = json.dumps({"ok": True, "action": "write_file", "rel_path": KEPT, "content": "gone"})
    return {
        **{play.__name__: play for play in DRIPS},
        "a bomb": _sends(_bomb(2**28), more=gzipped),
        "a bomb in a bomb": _sends(gzip.compress(_bomb(2**28)), more=b"Content-Encoding: gzip, gzip\r\n"),
        "a large answer": _sends(b": x\n\n" * (13 * 2**20)),
        "a thought that quotes an action": _sends(
            _thinks(f"One option would be {write}. No, it would be lost.")
        ),
        "an action between words": _sends(_says(f"For example {write}. What is the goal?")),
        "refusals without end": _sends(json.dumps({"error": refused}).encode(), b"400 No"),
        "one long reply": _sends(_says("x" * (8 * 2**20))),
        "many headers": _sends(b"", more=b"X-Many: 1\r\n" * 200_000),
        "deep JSON": _sends(b"data: " + b"[" * 10**6 + b"\n\n"),
        "echoes in a reply": _sends(_says(reply)),
        "echoes beside JSON": _sends(_says(echoes)),
        "echoes in an error": _sends(json.dumps({"error": {"message": echoes}}).encode(), b"401 No"),
        "echoes in a plain error": _sends(echoes.encode(), b"400 No"),
        "echoes in a header": _sends(b"{}", b"302 Found", f"Location: http://x/{KEY}\r\n".encode()),
    }


@dataclass
class Met:
    """The outcome of one run: what leaked, and what was exceeded."""

    name: str
    seconds: float
    most_bytes: int
    faults: list[str] = field(default_factory=list)


@contextmanager
def serving(play: Play) -> Iterator[Dripping]:
    """A server on loopback that answers everything in that way."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Dripping(play, listening.getsockname()[1])
        threading.Thread(target=server.serve, args=(listening,), daemon=True).start()
        try:
            yield server
        finally:
            server.over.set()


def _stored(home: Path) -> list[Path]:
    """The files of the database and those of the directory beside it."""
    return [*home.glob("lcp.db*"), *home.glob("lcp.db-run/*")]


def meet(name: str, play: Play) -> Met:
    """Run a mission whose planner is at that server."""
    with serving(play) as server, tempfile.TemporaryDirectory(prefix="lcp-model-") as directory:
        home = Path(directory)
        began = time.monotonic()
        code, said, most_bytes = _run(home, f"http://127.0.0.1:{server.port}/v1")
        met = Met(name, time.monotonic() - began, most_bytes)
        stored = said + b"".join(path.read_bytes() for path in _stored(home) if path.is_file())
        met.faults += [f"{spelled!r} is told or stored" for spelled in _spellings() if spelled in stored]
        if (home / "root" / KEPT).read_text() != KEPT:
            met.faults.append("it wrote what nobody asked for")
        if code is None or b"Traceback" in said:
            met.faults.append("it did not end" if code is None else "it ended with a traceback")
        if most_bytes > MOST_BYTES:
            met.faults.append(f"it took {most_bytes >> 20} MiB")
        return met


_MEASURE = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as figure:
    figure.write(str(usage.ru_maxrss * 1024))
sys.exit(os.waitstatus_to_exitcode(status) & 255)
"""
"""Runs a command and writes its most memory. A process begins with the size of its parent: this one is small."""


def _run(home: Path, url: str) -> tuple[int | None, bytes, int]:
    """Exit code (None if it had to be killed), what was printed, and the most memory in bytes."""
    (home / "root").mkdir()
    (home / "root" / KEPT).write_text(KEPT)
    rule = {"kinds": ["*"], "do": "auto"}
    planner = {"type": "openai", "model": "tiny", "max_tokens": 100, "total_seconds": TOTAL_SECONDS}
    (home / "mission.json").write_text(json.dumps({"goal": "g", "planner": planner, "policy": [rule]}))
    places = {f"XDG_{name}_HOME": str(home) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    keys = {"LCP_PLANNER_KEY": KEY, "LCP_PLANNER_ENDPOINT": url}
    measure = [sys.executable, "-I", "-S", "-c", _MEASURE, str(home / "most_bytes")]
    command = [*measure, sys.executable, "-m", "lcp_engine", "--db", f"sqlite:///{home}/lcp.db", "run", "mission.json",
               "--root", "root", "--json"]  # fmt: skip
    with (home / "said").open("w+b") as said:
        process = subprocess.Popen(
            command,
            cwd=home,
            env={**os.environ, **places, **keys},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        killer = threading.Timer(MOST_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        killer.start()
        code = process.wait()
        killer.cancel()
        said.seek(0)
        if code < 0:
            return None, said.read(), 0
        return code, said.read(), int((home / "most_bytes").read_text())


def _spellings() -> set[bytes]:
    whole = {encode(KEY).encode() for encode in ENCODINGS.values()}
    return whole | {KEY[at : at + FEW].encode() for at in range(len(KEY) - FEW + 1)}


def attack(_: float, __: int) -> bool:
    """Prints what was counted; whether no key was told or stored, and every run ended within its bounds."""
    found = [meet(name, play) for name, play in plays().items()]
    faults = [f"{met.name}: {fault}" for met in found for fault in met.faults]
    print(
        f"models: {len(found)} hostile servers, a key in {len(ENCODINGS)} encodings, "
        f"{len(faults)} leaks or bounds exceeded; "
        f"at most {max(met.seconds for met in found):.1f} s and {max(met.most_bytes for met in found) >> 20} MiB"
    )
    for fault in faults:
        print(f"  <- {fault}")
    return not faults
