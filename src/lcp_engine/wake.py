"""Tell other processes at once that a job is ready; a look once a second is the fallback.

On SQLite every runner listens on a Unix datagram socket in the database's runtime directory; on PostgreSQL it is
LISTEN and NOTIFY.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from lcp_engine.store.database import Database
from lcp_engine.store.sqlite import Sqlite
from lcp_engine.store.transaction import Tx

CHANNEL = "lcp_engine_ready"
_SETTLED_NS = 50_000_000
"""How old a directory's time has to be before it tells of every change: kernels count it in ticks of up to 10 ms."""


class Bell(Protocol):
    """Rings in every process that listens to the same database."""

    def attach(self, database: Database) -> None:
        """Ring after each commit of `database` that made a job ready."""

    def listen(self, uid: str, heard: Callable[[], None]) -> Callable[[], None]:
        """Call `heard` from another thread whenever it rings; what is returned ends that."""

    def close(self) -> None:
        """Ring no more."""


def make_bell(database: Database, directory: Path) -> Bell:
    """The bell that fits the database."""
    return DatagramBell(directory) if isinstance(database.backend, Sqlite) else NotifyBell(database)


class DatagramBell:
    """A call to each listener of this process, a datagram to each socket of others in a directory.

    Who cannot be reached looks once a second anyway.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._here: dict[str, Callable[[], None]] = {}
        self._others: list[str] = []
        self._listed_at = 0

    def attach(self, database: Database) -> None:
        database.on_wake = self.ring

    def ring(self) -> None:
        for heard in list(self._here.values()):
            heard()
        for path in self._listeners():
            self._send(path)

    def listen(self, uid: str, heard: Callable[[], None]) -> Callable[[], None]:
        self._here[uid] = heard
        path = f"{self._directory}/{uid}.sock"
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):  # a path that is too long for a socket: others are not heard at once then
            receiver.bind(path)
        ending = threading.Event()

        def wait() -> None:
            while receiver.getsockname() and not ending.is_set():
                receiver.recv(16)
                heard()
            receiver.close()

        def end() -> None:
            self._here.pop(uid, None)
            ending.set()
            self._send(path)
            with suppress(FileNotFoundError):
                Path(path).unlink()

        threading.Thread(target=wait, name="lcp-bell", daemon=True).start()
        return end

    def close(self) -> None:
        self._sender.close()

    def _listeners(self) -> list[str]:
        """The sockets of other processes; the directory is read again when it has changed."""
        try:
            changed_at = os.stat(self._directory).st_mtime_ns  # noqa: PTH116 -- for each commit: no object
            if changed_at != self._listed_at:
                names = os.listdir(self._directory)  # noqa: PTH208 -- no object for each name
                here = self._here
                self._others = [
                    f"{self._directory}/{name}"
                    for name in names
                    if name.endswith(".sock") and name[:-5] not in here
                ]
                self._listed_at = changed_at if time.time_ns() - changed_at > _SETTLED_NS else 0
        except OSError:
            return []  # whoever would have been told looks by itself
        return self._others

    def _send(self, path: str) -> None:
        try:
            self._sender.sendto(b"1", path)
        except ConnectionRefusedError:
            with suppress(OSError):  # its process is gone; if somebody else was faster, all the better
                Path(path).unlink()
        except OSError:
            pass  # full or just closed: it has been told, or looks by itself within a second


class NotifyBell:
    """NOTIFY as a part of the transaction: PostgreSQL delivers it with the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def attach(self, database: Database) -> None:
        database.in_transaction_wake = self._notify

    def listen(self, uid: str, heard: Callable[[], None]) -> Callable[[], None]:
        import psycopg

        ending = threading.Event()
        awake, ender = os.pipe()

        def wait() -> None:
            while not ending.is_set():
                with suppress(psycopg.Error):  # the server may come back; until then a look a second serves
                    self._hear(heard, awake, ending)
                ending.wait(1.0)
            os.close(awake)

        def end() -> None:
            ending.set()
            os.close(ender)

        threading.Thread(target=wait, name="lcp-bell", daemon=True).start()
        return end

    def close(self) -> None:
        """Nothing is open between two rings."""

    def _hear(self, heard: Callable[[], None], awake: int, ending: threading.Event) -> None:
        import psycopg

        backend = self._database.backend
        url = getattr(backend, "url", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            heard()
            while not ending.is_set():
                select.select([connection.fileno(), awake], [], [])
                if ending.is_set():
                    return
                for _ in connection.notifies(timeout=0):
                    heard()

    @staticmethod
    def _notify(tx: Tx) -> None:
        tx.plain(f"NOTIFY {CHANNEL}")
