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
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from lcp_engine.store.db.database import Database, NoWriterQueue
from lcp_engine.store.db.sqlite import Sqlite
from lcp_engine.store.db.transaction import Tx

if TYPE_CHECKING:
    import psycopg

CHANNEL = "lcp_engine_ready"
_LONGEST_MS = 3_600_000
"""A sleep that ends early is followed by another one; poll(2) takes no more than 24 days."""
_RETRY_SECONDS = 1.0
"""How long a listener does without a server that it cannot connect to."""
_COUNTER_BYTES = 8


class Listener(Protocol):
    """One runner's end of a notifier. One thread listens at a time; a signal that arrives meanwhile is kept for it."""

    def listen(self, seconds: float | None) -> None:
        """WakeablePoll until a signal, or until `wake`, at most `seconds` (None: without limit)."""

    def wake(self) -> None:
        """Wake the thread that listens, or that listens next. May be called from any thread."""

    def close(self) -> None:
        """Stop listening. No thread may be listening."""


class Notifier(Protocol):
    """Signals every process that listens to the same database."""

    def attach(self, database: Database) -> None:
        """Signal each commit of `database` that makes a job ready.

        With a writer queue the signal leaves before the commit: a listener of another process may have to wait for the
        writers in the queue before it sees the job.
        """

    def listen(self, uid: str, on_local: Callable[[], None]) -> Listener:
        """A listener for the runner `uid`. Commits of this process may call `on_local` in their thread instead."""

    def close(self) -> None:
        """Send no more signals."""


def make_notifier(database: Database, directory: Path) -> Notifier:
    """The notifier for the kind of database; `directory` is the runtime directory."""
    if isinstance(database.backend, Sqlite):
        return DatagramNotifier(directory)
    return PostgresNotifier(database)


_LONGEST = 60
"""Bytes of a directory to which a socket's name can be added: an address has at most 107."""


class DatagramNotifier:
    """Calls each listener of this process, and sends a datagram to the socket of each listener of others.

    A runner that cannot be reached polls once a second anyway.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._handle: int | None = None
        self._base = self._directory
        if len(os.fsencode(self._directory)) > _LONGEST:
            self._handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._base = f"/proc/self/fd/{self._handle}"
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)
        self._local: dict[str, Callable[[], None]] = {}
        self._sockets: list[str] = []
        self._generation = open_counter(directory / "listeners")
        self._listed: int | None = None

    def attach(self, database: Database) -> None:
        if isinstance(database.writer_queue, NoWriterQueue):
            database.on_ready = self.notify
        else:  # other processes wake up while the commit waits for the disk, and queue behind it
            database.before_ready_commit = self._notify_before_commit
            database.on_ready = self._notify_local

    def notify(self) -> None:
        self._notify_local()
        self._notify_others()

    def listen(self, uid: str, on_local: Callable[[], None]) -> Listener:
        name = f"{uid}.sock"
        listener = DatagramListener(
            f"{self._base}/{name}", f"{self._directory}/{name}", partial(self._forget, uid)
        )
        self._local[uid] = on_local
        self._advance()
        return listener

    def close(self) -> None:
        self._sender.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _notify_before_commit(self, tx: Tx) -> None:
        self._notify_others()

    def _notify_local(self) -> None:
        for on_local in list(self._local.values()):
            on_local()

    def _notify_others(self) -> None:
        for path in self._other_sockets():
            self._send(path)

    def _other_sockets(self) -> list[str]:
        """The sockets of other processes; the directory is read again only if a listener came or went."""
        generation = None if self._generation is None else self._generation.value
        if generation is None or generation != self._listed:
            self._sockets = self._list_sockets()
            self._listed = generation
        return self._sockets

    def _list_sockets(self) -> list[str]:
        try:
            names = os.listdir(self._directory)  # noqa: PTH208 -- no object for each name
        except OSError:
            return []  # the listeners poll
        local = self._local
        others = (name for name in names if name.endswith(".sock") and name[:-5] not in local)
        return [f"{self._base}/{name}" for name in others]

    def _forget(self, uid: str) -> None:
        self._local.pop(uid, None)
        self._advance()

    def _advance(self) -> None:
        if self._generation is not None:
            self._generation.advance()

    def _send(self, path: str) -> None:
        try:
            self._sender.sendto(b"1", path)
        except (ConnectionRefusedError, FileNotFoundError):  # its process is gone, and maybe its socket, too
            with suppress(OSError):
                Path(path).unlink()
            self._advance()
        except OSError:
            pass  # full or just closed: it was signalled already, or polls within a second


class DatagramListener:
    """A socket in the runtime directory at `path`; its `address` may be a shorter name for it."""

    def __init__(self, address: str, path: str, on_close: Callable[[], object]) -> None:
        self._path = path
        self._on_close = on_close
        self._poll = WakeablePoll()
        try:
            self._receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:
            self._poll.close()
            raise
        self._receiver.setblocking(False)
        with suppress(OSError):  # a path that is too long for a socket: this runner polls
            self._receiver.bind(address)

    def listen(self, seconds: float | None) -> None:
        if self._poll.until_readable(self._receiver.fileno(), seconds):
            with suppress(BlockingIOError):
                while True:
                    self._receiver.recv(16)

    def wake(self) -> None:
        self._poll.wake()

    def close(self) -> None:
        with suppress(FileNotFoundError):
            Path(self._path).unlink()
        self._on_close()
        self._receiver.close()
        self._poll.close()


class PostgresNotifier:
    """NOTIFY as a part of the transaction: PostgreSQL delivers it with the commit, to this process, too."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def attach(self, database: Database) -> None:
        database.before_ready_commit = self._notify

    def listen(self, uid: str, on_local: Callable[[], None]) -> Listener:
        return PostgresListener(getattr(self._database.backend, "url", ""))

    def close(self) -> None:
        """Nothing is open between two signals."""

    @staticmethod
    def _notify(tx: Tx) -> None:
        tx.plain(f"NOTIFY {CHANNEL}")


class PostgresListener:
    """A connection that listens. While it is lost, `listen` returns once a second, so that the caller polls."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._poll = WakeablePoll()
        self._connection: psycopg.Connection | None = None

    def listen(self, seconds: float | None) -> None:
        import psycopg

        try:
            self._receive(seconds)
        except psycopg.Error:
            self._disconnect()
            self._poll.until_readable(None, _RETRY_SECONDS)

    def wake(self) -> None:
        self._poll.wake()

    def close(self) -> None:
        self._disconnect()
        self._poll.close()

    def _receive(self, seconds: float | None) -> None:
        if self._connection is None:
            self._connection = self._connect()  # signals before that are lost: the caller checks for work now
        elif self._poll.until_readable(self._connection.fileno(), seconds):
            received = self._connection.pgconn
            received.consume_input()
            while received.notifies():
                pass

    def _connect(self) -> psycopg.Connection:
        import psycopg

        from lcp_engine.store.db.postgres import connect

        connection = connect(self._url)
        try:
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error:
            connection.close()
            raise
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class IdleThreads:
    """Where the idle threads of a runner sleep: a leader in `listen`, the followers on a condition.

    Every method may be called from any thread.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._listener: Listener | None = None
        self._has_leader = False
        self.wakeups = 0
        """Read it before checking for work: `sleep` returns at once if there was a wakeup since."""

    def open(self, listener: Listener) -> None:
        """Let leaders sleep in `listener` from now on."""
        self._listener = listener

    def sleep(self, wakeups: int, seconds: float | None) -> bool:
        """WakeablePoll until a wakeup after the first `wakeups`, or as the leader until a signal, at most `seconds`.

        Whether this thread was the leader: it claims first. Followers may sleep longer than `seconds`.
        """
        with self._changed:
            listener = self._listener
            if self.wakeups != wakeups or listener is None:
                return False
            if self._has_leader:
                self._changed.wait()
                return False
            self._has_leader = True
        try:
            listener.listen(seconds)
        finally:
            with self._changed:
                self._has_leader = False
                if self._listener is None:
                    listener.close()
        return True

    def wake_one(self) -> None:
        """Wake the leader, or a follower if there is no leader: it leads, or finds work, too."""
        with self._changed:
            self.wakeups += 1
            if self._has_leader and self._listener is not None:
                self._listener.wake()
            else:
                self._changed.notify()

    def wake_all(self) -> None:
        with self._changed:
            self.wakeups += 1
            if self._has_leader and self._listener is not None:
                self._listener.wake()
            self._changed.notify_all()

    def close(self) -> None:
        """Stop listening. A leader that still sleeps closes the listener when it wakes up."""
        with self._changed:
            listener, self._listener = self._listener, None
            if listener is not None and not self._has_leader:
                listener.close()


class WakeablePoll:
    """Sleeps until a descriptor is readable or another thread calls `wake`."""

    def __init__(self) -> None:
        self._awake, self._waker = os.pipe()
        for end in (self._awake, self._waker):
            os.set_blocking(end, False)

    def until_readable(self, descriptor: int | None, seconds: float | None) -> bool:
        """True if the descriptor is readable; False after `wake` or `seconds`."""
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
        with suppress(BlockingIOError):  # the pipe is full: it is awake
            os.write(self._waker, b"1")

    def close(self) -> None:
        os.close(self._awake)
        os.close(self._waker)


class GenerationCounter:
    """A number in a file that processes map into memory; `advance` changes it for all of them.

    Raises OSError if the file at `path` cannot be made or mapped.
    """

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # A full disk is an error here, and not a signal at the first write.
            os.posix_fallocate(descriptor, 0, _COUNTER_BYTES)
            self._words = memoryview(mmap.mmap(descriptor, _COUNTER_BYTES)).cast("q")
        finally:
            os.close(descriptor)

    @property
    def value(self) -> int:
        return self._words[0]

    def advance(self) -> None:
        """Change the number. At random: two processes may do so at the same moment."""
        self._words[0] = int.from_bytes(os.urandom(7))


def open_counter(path: Path) -> GenerationCounter | None:
    """The counter at `path`; None if this machine cannot have one."""
    try:
        return GenerationCounter(path)
    except OSError:
        return None
