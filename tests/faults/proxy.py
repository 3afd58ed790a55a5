"""Stand between programs and a server, and lose what the server says."""

from __future__ import annotations

import random
import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

BLOCK = 65536
COMMITTED = b"COMMIT\x00"
"""How the server acknowledges a commit."""


class Proxy:
    """Forwards connections to a port of this machine. A context manager.

    While it is `losing`, one of about `one_of` commits takes effect and its acknowledgement does not come back: the
    connection is cut instead.
    """

    def __init__(self, port: int, seed: int, one_of: int = 20) -> None:
        self._target = ("127.0.0.1", port)
        self._chance = random.Random(seed)
        self._one_of = one_of
        self.losing = False
        self.lost = 0
        self._listening = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._listening.close()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                near, _ = self._listening.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:  # the server is away
                    near.close()
                    continue
                threading.Thread(target=self._forward, args=(near, far), daemon=True).start()
                threading.Thread(target=self._forward, args=(far, near), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(BLOCK):
                if self.losing and COMMITTED in data and self._chance.randrange(self._one_of) == 0:
                    self.lost += 1
                    break
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
