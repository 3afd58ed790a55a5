"""A real `lcp serve` with things worth stealing, and raw requests to it."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import urlencode, urlsplit

from pydantic import JsonValue
from tests.loaded_python import Python

from lcp_engine.api.engine import Engine
from lcp_engine.features.approvers.link import DecisionLink
from lcp_engine.web.app import all_actions, all_pages, all_routes

CANARY = "CANARY-OF-THE-PAGE"
"""Part of every page that shows anything of a mission."""
SECONDS = 20
"""An answer that takes longer counts as hung."""
PATIENCE = 1.0
"""Seconds until a request that promised more than it has is ended."""
MOST_BYTES = 4 * 1024 * 1024
HELD_JOB = 2
STDERR = "stderr.txt"
HUNG = 0
CLOSED = 1
"""The connection was closed without an answer."""

Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Endpoint:
    """A path of the page with ids that exist, and the method that its route has."""

    method: str
    path: str


def endpoints() -> tuple[Endpoint, ...]:
    """Every route of the page, from its own tables: a new one is attacked at once."""
    found = [("GET", path) for path, _ in all_pages()]
    found += [("POST", path) for path, _ in all_actions()]
    found += [("POST" if "POST" in (route.methods or ()) else "GET", route.path) for route in all_routes()]
    forged = DecisionLink(HELD_JOB, "0" * 24, None, 0, 2**40, None, "").signed(
        b"another secret than the page has"
    )
    numbers = {"{mission}": "1", "{job}": str(HELD_JOB), "{number}": "1", "{token}": forged}
    for name, number in numbers.items():
        found = [(method, path.replace(name, number)) for method, path in found]
    return tuple(Endpoint(method, path) for method, path in (*found, ("GET", "/static/page.css")))


@dataclass(frozen=True)
class Answer:
    """What came back: the status (or `HUNG`, `CLOSED`), the header and what was read of the body."""

    status: int
    head: str
    body: bytes

    @property
    def tells(self) -> bool:
        return CANARY.encode() in self.body or CANARY in self.head


@dataclass(frozen=True)
class Site:
    """The served page, its address, and the browser that opened its link."""

    home: Path
    port: int
    host: str
    cookie: str
    csrf: str

    def request(self, method: str, target: str, headers: Headers = (), body: bytes = b"") -> bytes:
        """A request as it is sent, in Latin-1; nothing is added but the end of the connection."""
        lines = [
            f"{method} {target} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers),
            "Connection: close",
        ]
        return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body

    def send(self, request: bytes) -> Answer:
        """The answer to exactly these bytes."""
        return send(self.port, request)

    @property
    def own(self) -> Headers:
        """The headers of the browser that has access."""
        return (("Host", self.host), ("Cookie", self.cookie))

    def said(self) -> list[str]:
        """What the server has said on stderr: nothing, unless something failed."""
        return (self.home / STDERR).read_text().splitlines()

    def state(self) -> object:
        """All that requests can change."""
        with Engine(f"sqlite:///{self.home}/lcp.db") as engine:
            jobs = [(job.id, job.state) for job in engine.jobs()]
            return jobs, len(engine.missions()), engine.event_counts()


def send(port: int, request: bytes) -> Answer:
    """Send it, and end the sending only where that is waited for: a browser keeps its side open."""
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as peer:
            peer.sendall(request)
            if not select.select([peer], [], [], PATIENCE)[0]:
                peer.shutdown(socket.SHUT_WR)
            while part := peer.recv(65536):
                received += part
                if b"text/event-stream" in received or len(received) > MOST_BYTES:
                    break
    except TimeoutError:
        return Answer(HUNG, "", received)
    except OSError:
        pass  # a server that has refused a large request need not read the rest of it
    head, _, body = received.partition(b"\r\n\r\n")
    found = re.match(rb"HTTP/1\.1 (\d{3})", head)
    return Answer(int(found[1]) if found else CLOSED, head.decode("latin-1"), body)


@contextmanager
def served(*options: str) -> Iterator[Site]:
    """A page in a process of its own, over two missions: one waits for an approval, one has changed a file."""
    with tempfile.TemporaryDirectory(prefix="lcp-site-") as directory:
        home = Path(directory)
        _fill(home)
        places = {f"XDG_{name}_HOME": directory for name in ("DATA", "CONFIG", "STATE", "CACHE")}
        url = f"sqlite:///{home}/lcp.db"
        command = ("-m", "lcp_engine", "--db", url, "serve", "--port", "0", "--quiet", *options)
        with (
            (home / STDERR).open("w") as errors,
            Python(
                *command, env={**os.environ, **places}, cwd=home, stdout=subprocess.PIPE, stderr=errors
            ) as process,
        ):
            try:
                assert process.stdout is not None
                yield _opened(home, process.stdout.readline().strip())
            finally:
                process.send_signal(signal.SIGINT)


def _opened(home: Path, link: str) -> Site:
    """Open the printed link as a browser does."""
    parts = urlsplit(link)
    assert parts.port is not None
    blank = Site(home, parts.port, parts.netloc, "", "")
    target = f"{parts.path}?{parts.query}"
    first = blank.send(blank.request("GET", target, [("Host", parts.netloc)]))
    cookie = "; ".join(re.findall(r"(?im)^set-cookie: ([^;\r]+)", first.head))
    site = Site(home, parts.port, parts.netloc, cookie, "")
    page = site.send(site.request("GET", f"/jobs/{HELD_JOB}", site.own))
    found = re.search(rb'name="csrf" value="([^"]+)"', page.body)
    assert found, page
    return Site(home, parts.port, parts.netloc, cookie, unescape(found[1].decode()))


def _fill(home: Path) -> None:
    (home / "lcp-engine").mkdir()
    secret = home / "links.secret"
    secret.write_text("the secret that the page has")
    secret.chmod(0o600)
    links = {"url": "http://localhost:1", "secret_file": str(secret)}
    (home / "lcp-engine" / "config.yaml").write_text(json.dumps({"links": links}))
    root = home / "root"
    root.mkdir()
    (root / "a.md").write_text(f"{CANARY}\n")
    with Engine(f"sqlite:///{home}/lcp.db") as engine:
        for do in ("hold", "auto"):
            params: JsonValue = {"rel_path": f"{CANARY}.md", "content": f"{CANARY}\n"}
            reply: JsonValue = {
                "ok": True,
                "action": "create_followup_jobs",
                "commentary": CANARY,
                "new_jobs": [{"kind": "write_file", "params": params}],
            }
            complete: JsonValue = {"ok": True, "action": "mission_complete", "summary": CANARY}
            engine.launch(
                {"goal": CANARY, "planner": {"type": "script", "replies": [reply, complete]},
                 "policy": [{"kinds": ["write_file"], "do": do}]},
                root=root,
            )  # fmt: skip
            engine.work(until_idle=True)


def form(**fields: str) -> bytes:
    """A form as browsers encode it."""
    return urlencode(fields).encode()
