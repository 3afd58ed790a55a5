"""Open thousands of connections to `lcp serve --api`, and see what they cost and whether programs are still answered.

Usage: python -m tests.doors.crowd [--connections N]

They are silent, send a head that does not end, ask with a token, or ask for much and read nothing. Ends with 1 if a
program beside them was not answered, or the server grew too much.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from tests.doors.__main__ import serving

from lcp_engine import Engine
from lcp_engine.features.tokens.calls import Scope

MOST_MIB = 160
"""What the server may grow by: 256 answers of 400 KiB that nobody reads, and room."""
LARGE = "that read nothing"
"""Each makes an answer of 400 KiB: a tenth of them is as much work as all others."""
AT_ONCE, PAUSE = 24, 0.02
"""Fewer than the server's backlog: the kernel drops what has no room, and tries again after a second."""
ANSWERS = 5
"""Tries of a program to be answered: it may be told to come again."""


@dataclass
class Crowd:
    """Connections to a server, and a program beside them."""

    port: int
    token: str
    opened: list[socket.socket] = field(default_factory=list)
    slowest: float = 0
    unanswered: int = 0

    def gather(self, count: int, sent: str) -> None:
        for number in range(count):
            with suppress(OSError):
                one = socket.create_connection(("127.0.0.1", self.port), timeout=5)
                self.opened.append(one)
                one.sendall(sent.encode())
            if number % AT_ONCE == 0:
                time.sleep(PAUSE)
            if number % 500 == 499:
                self.ask()

    def ask(self) -> None:
        """Be the program that wants an answer."""
        began = time.monotonic()
        for _ in range(ANSWERS):
            pause = "0.2"
            connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
            try:
                connection.request("GET", "/v1/offers", headers={"Authorization": f"Bearer {self.token}"})
                answer = connection.getresponse()
                if answer.status == 200:
                    break
                pause = answer.headers["Retry-After"]
            except (HTTPException, OSError):
                pass
            finally:
                connection.close()
            time.sleep(float(pause))
        else:
            self.unanswered += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def told(self) -> Counter[str]:
        """The first words of each answer, as far as there is one."""
        found = Counter[str]()
        for one in self.opened:
            one.settimeout(0.001)
            said = b""
            with suppress(OSError):
                said = one.recv(64)
            found[said.decode("latin-1").partition("\r\n")[0].removeprefix("HTTP/1.1 ") or "nothing"] += 1
            one.close()
        self.opened.clear()
        return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--connections", type=int, default=10_000)
    given = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = hard if hard != resource.RLIM_INFINITY else 2**20
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(most, given.connections + 500)), hard))
    count = min(given.connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with tempfile.TemporaryDirectory(prefix="lcp-crowd-") as home:
        return 0 if _stands(Path(home), count) else 1


def _stands(home: Path, count: int) -> bool:
    """Print what each kind of crowd came to, on a line; False if the server did not stand one."""
    (home / "root").mkdir()
    url = f"sqlite:///{home / 'lcp.db'}"
    with Engine(url) as engine:
        token = engine.tokens.add("crowd", {*Scope}, per_minute=1_000_000)
        for number in range(50):
            goal = f"{number} {'x' * 8000}"
            mission = engine.launch({"goal": goal, "planner": {"type": "human"}}, root=home / "root")
            engine.cancel(mission.id)
    head = f"GET /v1/offers HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
    kinds = {
        "silent": "", "half a head": head, "with a token": f"{head}\r\n",
        LARGE: f"{head.replace('offers', 'missions?limit=200')}\r\n" * 4,
        "with a wrong token": f"{head.replace(token, 'x')}\r\n",
    }  # fmt: skip
    started: list[subprocess.Popen[str]] = []
    stood = True
    with serving(url, home, home / "root", started=started) as port:
        crowd = Crowd(port, token)
        crowd.ask()
        before = _mib(started[0].pid, "VmRSS")
        for kind, sent in kinds.items():
            began, crowd.slowest, crowd.unanswered = time.monotonic(), 0, 0
            crowd.gather(count // 10 if kind == LARGE else count, sent)
            opened, files = len(crowd.opened), len([*Path(f"/proc/{started[0].pid}/fd").iterdir()])
            grown, told = _mib(started[0].pid, "VmHWM") - before, crowd.told()
            crowd.ask()
            stood = stood and not crowd.unanswered and grown <= MOST_MIB and started[0].poll() is None
            print(
                f"{opened:,} connections {kind}: {time.monotonic() - began:.0f} s, {grown} MiB above {before}, "
                f"{files} files open, another program answered after {crowd.slowest:.2f} s at most, "
                f"{crowd.unanswered} times not; {json.dumps(told)}",
                flush=True,
            )
    return stood


def _mib(process: int, figure: str) -> int:
    found = re.search(rf"{figure}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


if __name__ == "__main__":
    sys.exit(main())
