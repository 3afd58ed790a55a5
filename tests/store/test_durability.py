"""What durability needs is set on each connection, and refused where it cannot be."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import psycopg
import pytest
from sqlalchemy import make_url
from tests.faults.test_database_refuses import Server, server

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.store.db.open import make_backend, open_database
from lcp_engine.store.host.liveness import LivenessFile

__all__ = ["server"]

NFS = 0x6969


def test_a_commit_waits_for_the_disk_whatever_the_database_says(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {make_url(postgres_url).database} SET synchronous_commit = off")
    database = open_database(postgres_url)
    assert database.write(lambda tx: tx.query_plain("SHOW synchronous_commit")) == [("on",)]
    database.close()


def test_waiting_for_replicas_too_stays_as_it_is(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = make_url(postgres_url).database
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = remote_apply")
    database = open_database(postgres_url)
    assert database.write(lambda tx: tx.query_plain("SHOW synchronous_commit")) == [("remote_apply",)]
    database.close()


def test_a_replica_is_refused_in_words(server: Server) -> None:
    url = server.create()
    open_database(url).close()
    server.stop()
    server.make_replica()
    server.start()
    database = open_database(url, away_seconds=0.1)  # a primary is waited for
    with pytest.raises(LcpError, match="it is a replica") as refused:
        database.write(lambda tx: None)
    assert refused.value.code is ErrorCode.DATABASE_FAILED
    database.close()


class Pooler:
    """A pooler whose clients share one session of the server, as PgBouncer's transaction pooling has it."""

    def __init__(self, url: str) -> None:
        there = make_url(url)
        self._server = socket.create_connection((there.host or "127.0.0.1", there.port or 5432))
        words = f"user\0{there.username}\0database\0{there.database}\0\0".encode()
        self._server.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
        self._greeting = b""
        while not self._greeting.endswith(b"Z\0\0\0\5I"):
            self._greeting += self._server.recv(65536)
        own = self._greeting.index(b"K\0\0\0\f") + 5
        self._greeting = self._greeting[:own] + struct.pack("!ii", 1, 1) + self._greeting[own + 8 :]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = there.set(port=self._listener.getsockname()[1]).render_as_string(hide_password=False)
        self._asking: socket.socket | None = None
        for work in (self._accept, self._answer):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            while struct.unpack("!ii", client.recv(65536)[:8])[1] != 196608:
                client.sendall(b"N")  # neither TLS nor GSSAPI
            client.sendall(self._greeting)
            while words := client.recv(65536):
                if not words.startswith(b"X"):
                    self._asking = client
                    self._server.sendall(words)

    def _answer(self) -> None:
        with suppress(OSError):
            while words := self._server.recv(65536):
                assert self._asking is not None
                self._asking.sendall(words)


@pytest.fixture
def pooler(postgres_url: str) -> Iterator[Pooler]:
    pooler = Pooler(postgres_url)
    yield pooler
    pooler.close()


def test_a_pooler_that_shares_sessions_is_refused_in_words(pooler: Pooler) -> None:
    with pytest.raises(LcpError, match="a pooler that shares sessions between transactions"):
        make_backend(pooler.url).connect()


def test_a_runtime_directory_that_is_full_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(LcpError, match=f"runtime directory {tmp_path} cannot be used: No space left"):
        LivenessFile(tmp_path, "uid")
    assert [*tmp_path.iterdir()] == []


def test_a_runtime_directory_that_fills_up_has_room_for_the_notes_of_a_runner(tmp_path: Path) -> None:
    file = LivenessFile(tmp_path, "uid")
    before = (tmp_path / "uid.lock").stat()
    file.note_start(300, 1, 1)
    after = (tmp_path / "uid.lock").stat()
    assert (before.st_size, before.st_blocks) == (after.st_size, after.st_blocks)
    file.remove()
