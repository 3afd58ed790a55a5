"""Answers for programs that watch a process of the engine: whether it lives, what it lacks, its figures.

A database that hangs costs one thread, however often it is asked about, and programs that are slow to ask or to listen
cost a bounded number.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import NamedTuple

from lcp_engine.engine.instance import Instance
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.telemetry.figures import RUNNERS, Figure, Figures, Values, exposition
from lcp_engine.store.db.open import refuse_newer, version_of
from lcp_engine.store.db.transaction import Tx
from lcp_engine.store.version import HEAD

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
"""Values of `Host`, without a port: a page of another site could make a browser ask under its own name."""
ANSWER_SECONDS = 5.0
MOST_CONNECTIONS = 16
CONNECTION_SECONDS = 10.0
"""After how long a connection is cut if another one needs its place."""
_SILENT = "database: it does not answer\n"


class Answer(NamedTuple):
    """Answer to a request for one of the addresses."""

    status: int
    text: str
    content_type: str = "text/plain; charset=utf-8"


class Watch:
    """Answers of a process about itself and its database. Any thread may call."""

    def __init__(self, instance: Instance, seconds: float = ANSWER_SECONDS) -> None:
        """An answer takes `seconds` at most."""
        self._instance = instance
        self._seconds = seconds
        self._figures: Figures | None = None
        self._lock = threading.Lock()
        self._asked: dict[str, _Asked] = {}

    def answer(self, path: str) -> Answer | None:
        """The answer of an address; None if it is none of these."""
        match path:
            case "/healthz":
                return Answer(200, "ok\n")
            case "/readyz":
                return self._ask(path, self._readiness)
            case "/metrics":
                return self._ask(path, self._exposition)
            case _:
                return None

    def _ask(self, path: str, find: Callable[[], Answer]) -> Answer:
        """Call `find` in a thread, once for all who ask for the same meanwhile."""
        with self._lock:
            asked = self._asked.get(path)
            if asked is None or asked.is_over.is_set():
                asked = self._asked[path] = _Asked(find)
        asked.is_over.wait(self._seconds)
        return asked.answer

    def _readiness(self) -> Answer:
        missing = self._missing()
        return Answer(200, "ready\n") if missing is None else Answer(503, f"{missing}\n")

    def _missing(self) -> str | None:
        try:
            fault = self._instance.read(_fault_of_schema)
            if fault is None and not self._read()[RUNNERS][()]:
                return "runners: none is alive; `lcp work` starts one"
        except LcpError as error:
            about = "migration" if error.code is ErrorCode.DATABASE_VERSION else "database"
            return f"{about}: {error}"
        return fault

    def _exposition(self) -> Answer:
        try:
            return Answer(200, exposition(self._read()), "text/plain; version=0.0.4; charset=utf-8")
        except LcpError as error:
            return Answer(503, f"database: {error}\n")

    def _read(self) -> Mapping[Figure, Values]:
        with self._lock:
            self._figures = self._figures or Figures(self._instance)
        return self._figures.read()


class _Asked:
    """An answer that a thread finds; until then it is that the database does not answer."""

    def __init__(self, find: Callable[[], Answer]) -> None:
        self.answer = Answer(503, _SILENT)
        self.is_over = threading.Event()
        self._find = find
        threading.Thread(target=self._run, name="lcp-watch", daemon=True).start()

    def _run(self) -> None:
        try:
            self.answer = self._find()
        finally:
            self.is_over.set()


def _fault_of_schema(tx: Tx) -> str | None:
    refuse_newer(tx)
    version = version_of(tx)
    return None if version == HEAD else f"migration: the database is at {version!r}, this engine at {HEAD!r}"


@contextmanager
def serving_health(instance: Instance, port: int) -> Iterator[str]:
    """Answer programs of this machine while it is open; the address. Port 0 is any free one.

    Raises `INVALID_ARGUMENT` for a port that cannot be bound.
    """
    try:
        server = _Server(Watch(instance), port)
    except OSError as refused:
        message = f"--health cannot listen on {HOST} port {port}: {refused.strerror}"
        raise LcpError(ErrorCode.INVALID_ARGUMENT, message) from refused
    thread = threading.Thread(target=server.serve_forever, name="lcp-health", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    """Answers a bounded number of connections at once, the oldest of which give way to new ones."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, watch: Watch, port: int) -> None:
        self.watch = watch
        self._lock = threading.Lock()
        self._since: dict[socket, float] = {}
        super().__init__((HOST, port), _Handler)

    def process_request(self, request: socket, client_address: tuple[str, int]) -> None:  # type: ignore[override]
        now = time.monotonic()
        with self._lock:
            if len(self._since) >= MOST_CONNECTIONS:
                for late in [one for one, since in self._since.items() if now - since > CONNECTION_SECONDS]:
                    with suppress(OSError):
                        late.shutdown(SHUT_RDWR)
            has_room = len(self._since) < MOST_CONNECTIONS
            if has_room:
                self._since[request] = now
        if has_room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: socket) -> None:  # type: ignore[override]
        super().shutdown_request(request)
        with self._lock:
            self._since.pop(request, None)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: who goes away in the middle is no fault of this process."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = CONNECTION_SECONDS
    server_version = "lcp"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if (self.headers.get("host") or "").rpartition(":")[0] not in NAMES or "origin" in self.headers:
            answer = Answer(403, "only programs of this machine are answered\n")
        else:
            answer = self.server.watch.answer(path) or Answer(
                404, "this address has /healthz, /readyz and /metrics\n"
            )
        body = answer.text.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name is http.server's
        """Write no line for each request."""
