"""Speak to `lcp acp` as an editor that no one should trust, beside one that waits for its person."""

from __future__ import annotations

import json
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.engine.replies import DONE, ask, write
from tests.patience import PATIENCE_SECONDS

from lcp_engine import Engine
from lcp_engine.core.json_values import JsonObject, object_in

LONG_LINE = 100 * 1024 * 1024
MOST_GROWTH = 96 * 1024
"""KiB that the server may grow by while such a line comes: a few times its largest message."""
FLOOD = 300
METHODS = (
    "initialize", "authenticate", "session/new", "session/load", "session/resume", "session/list", "session/close",
    "session/prompt", "session/cancel", "session/set_mode", "session/fork", "session/request_permission",
    "$/cancel_request", "fs/read_text_file", "logout", "",
)  # fmt: skip
KEYS = (
    "sessionId", "cwd", "prompt", "cursor", "mcpServers", "protocolVersion", "clientCapabilities", "requestId", "type",
    "text", "uri", "resource", "_meta", "optionId", "outcome",
)  # fmt: skip
ALLOW: JsonObject = {"outcome": {"outcome": "selected", "optionId": "allow"}}


@dataclass
class Found:
    """The number of answers by kind, and everything that must not have happened."""

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    control: bool = False
    """True if the editor that waited could approve in the end, so that there was something to get."""


class Spoken:
    """A process of `lcp acp`, and the messages that it has sent."""

    def __init__(self, home: Path) -> None:
        command = [sys.executable, "-m", "lcp_engine", "--db", sqlite_url(home), "acp", "--threads", "1",
                   "--mission", str(home / "mission.json")]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self._came: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._came.put(line)

    def send(self, message: JsonObject | bytes) -> None:
        assert self.process.stdin is not None
        data = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(data + b"\n")

    def hear(self) -> JsonObject:
        """The next message. Raises `queue.Empty` if none comes, and ValueError for what is none."""
        return object_in(json.loads(self._came.get(timeout=PATIENCE_SECONDS)))

    def ask(self, id_: str, method: str, params: JsonObject) -> JsonObject:
        """Send a request and skip what comes before its answer."""
        self.send({"id": id_, "method": method, "params": params})
        while (came := self.hear()).get("id") != id_ or "method" in came:
            pass
        return came

    def hold(self, root: Path) -> tuple[str, JsonValue]:
        """Open a session and launch a mission; its id, and that of the request about the held job."""
        self.ask("hello", "initialize", {"protocolVersion": 1})
        opened = self.ask("new", "session/new", {"cwd": str(root), "mcpServers": []})
        session = str(object_in(opened["result"])["sessionId"])
        said: JsonValue = [{"type": "text", "text": "Go."}]
        self.send({"id": "go", "method": "session/prompt", "params": {"sessionId": session, "prompt": said}})
        while (came := self.hear()).get("method") != "session/request_permission":
            pass
        return session, came["id"]

    def peak(self) -> int:
        """The most KiB of memory that the process has had since the last call."""
        place = Path(f"/proc/{self.process.pid}")
        found = next(line for line in (place / "status").read_text().splitlines() if "VmHWM" in line)
        with suppress(OSError):  # not every sandbox lets it be reset
            (place / "clear_refs").write_text("5")
        return int(found.split()[1])

    def end(self) -> int | None:
        """Close its stdin; how it ended, None if it did not."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return None
        finally:
            self._reader.join(PATIENCE_SECONDS)


def attack(seconds: float, seed: int) -> bool:
    """Prints what was counted; whether nothing was decided or broken."""
    found = attack_editors(seconds, seed)
    counted = ", ".join(f"{count:,} {kind}" for kind, count in sorted(found.answers.items()))
    print(
        f"editors: {found.answers.total():,} messages ({counted}), {len(found.faults)} faults; "
        f"the editor that waited {'could' if found.control else 'could not'} approve"
    )
    for fault in found.faults[:20]:
        print(f"  <- {fault}")
    return not found.faults and found.control


def attack_editors(seconds: float, seed: int) -> Found:
    """Messages for so many seconds to one server, while another one asks its editor about a held write."""
    found, chance = Found(), random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="lcp-editors-") as directory, ExitStack() as stack:
        home = Path(directory)
        roots = [home / name for name in ("waiting", "other", "gone")]
        for root in roots:
            root.mkdir()
            (root / "a.md").write_text("old\n")
        script: JsonValue = {"type": "script", "replies": [ask(write("a.md", "new\n")), DONE]}
        (home / "mission.json").write_text(json.dumps({"goal": "To be said.", "planner": script}))
        waiting, other = (stack.enter_context(_spoken(home, found)) for _ in range(2))
        session, asked = waiting.hold(roots[0])
        with _spoken(home, found) as gone:
            gone.hold(roots[2])
        try:
            _speak(found, chance, other, seconds=seconds, foreign=(session, asked), root=roots[1])
        except (queue.Empty, OSError) as silent:
            found.faults.append(f"the server that was attacked answers no more: {type(silent).__name__}")
        if [(root / "a.md").read_text() for root in roots] != ["old\n"] * 3:
            found.faults.append("something was written")
        with Engine(sqlite_url(home)) as engine:
            kept = [one.id for one in engine.missions() if one.root in (str(roots[0]), str(roots[2]))]
            if len(kept) != 2 or any(engine.events(id_, event="decided") for id_ in kept):
                found.faults.append("something was decided")
        waiting.send({"id": asked, "result": ALLOW})
        with suppress(queue.Empty):
            while waiting.hear().get("id") != "go":
                pass
        found.control = (roots[0] / "a.md").read_text() == "new\n"
    return found


@contextmanager
def _spoken(home: Path, found: Found) -> Iterator[Spoken]:
    """A server whose editor vanishes in the end; it has to end then, too."""
    spoken = Spoken(home)
    try:
        yield spoken
    finally:
        if spoken.end() != 0:
            found.faults.append("a server did not end well after its editor")


def _speak(
    found: Found, chance: random.Random, other: Spoken, *, seconds: float, foreign: tuple[str, JsonValue], root: Path
) -> None:  # fmt: skip
    others = ["x", foreign[0], "", "../x", "\0", "\ud800"]
    for method in METHODS:  # half of the protocol: nothing was agreed upon
        other.send({"id": f"early {method}", "method": method, "params": {"sessionId": foreign[0]}})
    own, asked = other.hold(root)
    other.send(_no(chance, asked))
    before = other.peak()
    for _ in range(LONG_LINE // (1024 * 1024)):
        assert other.process.stdin is not None
        other.process.stdin.write(b"[" * (1024 * 1024))
    other.send(b"")
    other.ask("long", "session/list", {})
    if (grown := other.peak() - before) > MOST_GROWTH:
        found.faults.append(f"a line of {LONG_LINE:,} bytes made the server grow by {grown:,} KiB")
    for number in range(FLOOD):
        other.send({"id": f"flood {number}", "method": "session/list"})
    spent: list[JsonValue] = [asked, foreign[1], *range(10**6, 10**6 + 50), "x", None]
    ends, number = time.monotonic() + seconds, 0
    while time.monotonic() < ends or number < 50:
        number += 1
        for message in _forged(chance, number, [*others, own], str(root)):
            other.send(message)
        # Those whose own request it was have answered it before, or it was another server that asked.
        other.send({"id": chance.choice(spent), "result": ALLOW})
        other.send({"id": f"ping {number}", "method": "session/list", "params": {}})
        while True:
            came = other.hear()
            found.answers[str(came.get("method") or ("refused" if "error" in came else "results"))] += 1
            if came.get("method") == "session/request_permission":
                other.send(_no(chance, came["id"]))
                spent.append(came["id"])
            if came.get("id") == f"ping {number}":
                break


def _no(chance: random.Random, id_: JsonValue) -> JsonObject:
    """An answer to a request about a held job that is no yes."""
    options: list[JsonValue] = ["always-7", "Allow", "", None, 0, ["allow"], "reject", "words"]
    chosen: JsonObject = {"outcome": "selected", "optionId": chance.choice(options)}
    outcomes: list[JsonValue] = [chosen, {"outcome": "cancelled"}, "allow", None, {"optionId": "allow"}]
    if chance.random() < 0.2:
        return {"id": id_, "error": {"code": -32000, "message": "allow"}}
    return {"id": id_, "result": {"outcome": chance.choice(outcomes)}}


def _forged(
    chance: random.Random, number: int, sessions: list[str], root: str
) -> Iterator[JsonObject | bytes]:
    """Messages that look right but for what is chosen at random, and some that are broken."""

    def value(depth: int = 0) -> JsonValue:
        some: list[JsonValue] = [
            None, True, -1, 10**30, 1.5, *sessions, root, "/", "here", "/\0", [{"type": "text", "text": "/continue"}],
            [{"type": "text", "text": "/undo 1"}], [{"type": "image", "data": "", "mimeType": "x"}], "x" * 5_000, {},
        ]  # fmt: skip
        if depth < 3 and chance.random() < 0.2:
            return {chance.choice(KEYS): value(depth + 1), "list": [value(depth + 1)]}
        return chance.choice(some)

    params = {chance.choice(KEYS): value() for _ in range(chance.randrange(5))}
    usual: JsonObject = {"id": f"{number}", "method": chance.choice(METHODS), "params": params}
    match chance.randrange(6):
        case 0:
            data = bytearray(json.dumps(usual).encode())
            data[chance.randrange(len(data))] = chance.choice(b'{}[]",:x\\\xff')
            yield bytes(data).replace(b"\n", b" ")
        case 1:
            yield {**usual, chance.choice(("id", "jsonrpc", "params", "method")): value()}
        case 2:
            yield {"method": chance.choice(METHODS), "params": params}
        case 3:
            said: JsonValue = [
                {"type": "text", "text": chance.choice(("Go.", "/continue", "/continue", "/undo 1"))}
            ]
            yield {**usual, "method": "session/prompt", "params": {"sessionId": sessions[-1], "prompt": said}}
        case _:
            yield usual
