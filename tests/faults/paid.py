"""Answer as a model that is paid for each reply, after as long as a scenario wants."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class Model:
    """A server of chat completions on loopback that ends every mission; a context manager. A reply costs one token."""

    def __init__(self) -> None:
        self.asked = 0
        """How many questions it has answered, or is about to."""
        self.refusals = 0
        """So many questions are refused first: it asks to wait for two seconds."""
        self.answers = threading.Event()
        """Until it is set, nobody gets a reply."""
        self.answers.set()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(handler) -> None:  # noqa: N805  # `self` is the model
                handler.rfile.read(int(handler.headers["Content-Length"]))
                if handler.path == "/tokenize":  # it counts no tokens
                    handler.send_error(404)
                    return
                if self.refusals:
                    self.refusals -= 1
                    handler.send_response(429)
                    handler.send_header("Retry-After", "2")
                    handler.end_headers()
                    return
                self.asked += 1
                self.answers.wait()
                handler.send_response(200)
                handler.send_header("Content-Type", "application/json")
                handler.send_header("Content-Length", str(len(_REPLY)))
                handler.end_headers()
                handler.wfile.write(_REPLY)

            def log_message(handler, format: str, *args: object) -> None:  # noqa: A002, N805  # the library's name
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"


_ACTION = json.dumps({"ok": True, "action": "mission_complete", "summary": "Done."})
_REPLY = json.dumps(
    {
        "choices": [{"message": {"content": _ACTION}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 1},
    }
).encode()
