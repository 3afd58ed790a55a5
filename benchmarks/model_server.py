"""Answer chat completions on loopback without a model, and print when each reply was sent.

The argument is the number of turns of each mission. Prints the port, then for each reply to a turn the time on the
monotonic clock just before it was sent; ends when stdin closes.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def main(turns: int) -> None:
    answered = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal answered
            self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/tokenize":  # it counts no tokens
                self.send_error(404)
                return
            answered += 1
            is_last = answered % (turns + 1) == 0
            body = _completion(_ending() if is_last else _asking(answered))
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            whole = head.encode() + body
            if not is_last:
                print(time.monotonic_ns(), flush=True)
            self.wfile.write(whole)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name of the library
            """Log nothing: stdout is for times."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=_end_with_stdin, daemon=True).start()
        server.serve_forever()


def _asking(number: int) -> dict[str, object]:
    job = {"kind": "bench.numbered", "params": {"number": number}}
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}


def _ending() -> dict[str, object]:
    return {"ok": True, "action": "mission_complete", "summary": "measured"}


def _completion(action: dict[str, object]) -> bytes:
    choice = {"message": {"content": json.dumps(action)}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}).encode()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
