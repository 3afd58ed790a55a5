"""Wake idle threads, in this process and in others, as soon as a job is ready.

A notifier signals each commit that makes a job ready: with a call in this process; between processes with a datagram to
the Unix socket of each runner (SQLite), or with NOTIFY (PostgreSQL). Polling once a second is the fallback.

The idle threads of a runner are leader and followers: the leader sleeps at the socket itself, so that a signal wakes
the thread that will claim, and not one that wakes another. Followers sleep until a thread that found work promotes one.

Which sockets there are is read from a directory. A generation counter in shared memory changes whenever a runner comes
or goes, so that the directory is read again only then: reading the counter needs no system call.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lcp_engine.store.db.database import Database, NoOrder
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.db.transaction import Tx

if TYPE_CHECKING:
    import psycopg

CHANNEL = "lcp_engine_ready"
_LONGEST_MS = 3_600_000
"""A sleep that ends early is followed by another one; poll(2) takes no more than 24 days."""
_CONNECT_SECONDS = 10
_AGAIN_SECONDS = 1.0
"""How long to do without a server that cannot be listened to."""


class Ear(Protocol):
    """What one runner hears of a bell. One thread listens at a time; a ring that comes meanwhile is kept for it."""

    def listen(self, seconds: float | None) -> None:
        """Sleep until the bell has rung or somebody wakes, `seconds` at most (None: as long as it takes)."""

    def wake(self) -> None:
        """Let whoever listens, or listens next, go on. May be called from any thread."""

    def close(self) -> None:
        """Listen no more. Nobody may listen meanwhile."""


class Bell(Protocol):
    """Rings in every process that listens to the same database."""

    def attach(self, database: Database) -> None:
        """Ring at each commit of `database` that makes a job ready.

        Where writers stand in line, whoever hears it from another process may have to let them pass to see the job.
        """

    def listen(self, uid: str, heard: Callable[[], None]) -> Ear:
        """An ear for the runner `uid`. What is known of this process without an ear calls `heard` in its thread."""

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
        self._mark = make_mark(directory / "listeners")
        self._listed: int | None = None

    def attach(self, database: Database) -> None:
        if isinstance(database.line, NoOrder):
            database.on_wake = self.ring
        else:  # they wake up while the commit waits for the disk, and stand in line behind it
            database.in_transaction_wake = lambda tx: self._tell_others()
            database.on_wake = self._tell_here

    def ring(self) -> None:
        self._tell_here()
        self._tell_others()

    def listen(self, uid: str, heard: Callable[[], None]) -> Ear:
        ear = DatagramEar(f"{self._directory}/{uid}.sock", lambda: self._forget(uid))
        self._here[uid] = heard
        self._renew()
        return ear

    def close(self) -> None:
        self._sender.close()

    def _tell_here(self) -> None:
        for heard in list(self._here.values()):
            heard()

    def _tell_others(self) -> None:
        for path in self._listeners():
            self._send(path)

    def _listeners(self) -> list[str]:
        """The sockets of other processes; the directory is read again when somebody came or went."""
        mark = None if self._mark is None else self._mark.number
        if mark is None or mark != self._listed:
            self._others = self._list()
            self._listed = mark
        return self._others

    def _list(self) -> list[str]:
        try:
            names = os.listdir(self._directory)  # noqa: PTH208 -- no object for each name
        except OSError:
            return []  # whoever would have been told looks by itself
        here = self._here
        others = (name for name in names if name.endswith(".sock") and name[:-5] not in here)
        return [f"{self._directory}/{name}" for name in others]

    def _forget(self, uid: str) -> None:
        self._here.pop(uid, None)
        self._renew()

    def _renew(self) -> None:
        if self._mark is not None:
            self._mark.renew()

    def _send(self, path: str) -> None:
        try:
            self._sender.sendto(b"1", path)
        except (ConnectionRefusedError, FileNotFoundError):  # its process is gone, and maybe its socket, too
            with suppress(OSError):
                Path(path).unlink()
            self._renew()
        except OSError:
            pass  # full or just closed: it has been told, or looks by itself within a second


class DatagramEar:
    """A socket in the directory."""

    def __init__(self, path: str, forget: Callable[[], object]) -> None:
        self._path = path
        self._forget = forget
        self._sleep = Sleep()
        try:
            self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:
            self._sleep.close()
            raise
        self._receiver.setblocking(False)
        with suppress(OSError):  # a path that is too long for a socket: others are not heard at once then
            self._receiver.bind(path)

    def listen(self, seconds: float | None) -> None:
        if self._sleep.until_readable(self._receiver.fileno(), seconds):
            with suppress(BlockingIOError):
                while True:
                    self._receiver.recv(16)

    def wake(self) -> None:
        self._sleep.wake()

    def close(self) -> None:
        with suppress(FileNotFoundError):
            Path(self._path).unlink()
        self._forget()
        self._receiver.close()
        self._sleep.close()


class NotifyBell:
    """NOTIFY as a part of the transaction: PostgreSQL delivers it with the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def attach(self, database: Database) -> None:
        database.in_transaction_wake = self._notify

    def listen(self, uid: str, heard: Callable[[], None]) -> Ear:
        return NotifyEar(getattr(self._database.backend, "url", ""))

    def close(self) -> None:
        """Nothing is open between two rings."""

    @staticmethod
    def _notify(tx: Tx) -> None:
        tx.plain(f"NOTIFY {CHANNEL}")


class NotifyEar:
    """A connection that listens. Where it is lost, a look a second serves until there is a new one."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._sleep = Sleep()
        self._connection: psycopg.Connection | None = None

    def listen(self, seconds: float | None) -> None:
        import psycopg

        try:
            self._hear(seconds)
        except psycopg.Error:
            self._hang_up()
            self._sleep.until_readable(None, _AGAIN_SECONDS)

    def wake(self) -> None:
        self._sleep.wake()

    def close(self) -> None:
        self._hang_up()
        self._sleep.close()

    def _hear(self, seconds: float | None) -> None:
        if self._connection is None:
            self._connection = self._connect()  # what rang before that is lost: the caller looks now
        elif self._sleep.until_readable(self._connection.fileno(), seconds):
            received = self._connection.pgconn
            received.consume_input()
            while received.notifies():
                pass

    def _connect(self) -> psycopg.Connection:
        import psycopg

        connection = psycopg.connect(self._url, autocommit=True, connect_timeout=_CONNECT_SECONDS)
        try:
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Sleep:
    """Sleeps until a descriptor can be read, or another thread wakes it."""

    def __init__(self) -> None:
        self._awake, self._waker = os.pipe()
        for end in (self._awake, self._waker):
            os.set_blocking(end, False)

    def until_readable(self, descriptor: int | None, seconds: float | None) -> bool:
        """Whether the descriptor can be read; False where it was woken, or after `seconds`."""
        poll = select.poll()
        for one in (self._awake, descriptor):
            if one is not None:
                poll.register(one, select.POLLIN)
        most = None if seconds is None else min(max(0, math.ceil(seconds * 1000)), _LONGEST_MS)
        ready = {one for one, _ in poll.poll(most)}
        if self._awake in ready:
            os.read(self._awake, 4096)
        return descriptor in ready

    def wake(self) -> None:
        with suppress(BlockingIOError):  # full: it is awake
            os.write(self._waker, b"1")

    def close(self) -> None:
        os.close(self._awake)
        os.close(self._waker)


class Rest:
    """Where lanes sleep. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ear: Ear | None = None
        self._is_listening = False
        self.calls = 0
        """To be read before a look for work: `sleep` returns at once when somebody has called since."""

    def open(self, ear: Ear) -> None:
        """From now on there is a bell to listen to."""
        self._ear = ear

    def sleep(self, calls: int, seconds: float | None) -> bool:
        """Sleep until a call after the first `calls`, or until the bell rings, `seconds` at most.

        Whether this lane was the one at the bell: it goes first. Lanes that are not may sleep longer.
        """
        with self._changed:
            ear = self._ear
            if self.calls != calls or ear is None:
                return False
            if self._is_listening:
                self._changed.wait()
                return False
            self._is_listening = True
        try:
            ear.listen(seconds)
        finally:
            with self._changed:
                self._is_listening = False
                if self._ear is None:
                    ear.close()
        return True

    def call(self) -> None:
        """Let one lane go on: the one at the bell, if there is one."""
        with self._changed:
            self.calls += 1
            if self._is_listening and self._ear is not None:
                self._ear.wake()
            else:
                self._changed.notify()

    def call_all(self) -> None:
        """Let all lanes go on."""
        with self._changed:
            self.calls += 1
            if self._is_listening and self._ear is not None:
                self._ear.wake()
            self._changed.notify_all()

    def close(self) -> None:
        """Listen no more. A lane that sleeps on, since nobody waited for it, closes the ear itself."""
        with self._changed:
            ear, self._ear = self._ear, None
            if ear is not None and not self._is_listening:
                ear.close()


_SIZE = 8


class Mark:
    """A number that `renew` changes, in every process that has mapped the same file; unmapped when nobody uses it.

    Raises OSError where the file at `path` cannot be made or mapped.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(
                descriptor, 0, _SIZE
            )  # a full disk tells now, and not by a signal at the first write
            self._words = memoryview(mmap.mmap(descriptor, _SIZE)).cast("q")
        finally:
            os.close(descriptor)

    @property
    def number(self) -> int:
        return self._words[0]

    def renew(self) -> None:
        self._words[0] = int.from_bytes(os.urandom(7))


def make_mark(path: Path) -> Mark | None:
    """The mark at `path`; None where this machine cannot have one."""
    try:
        return Mark(path)
    except OSError:
        return None
