"""A commit whose acknowledgement is lost took effect once, or not at all and is done again (R18)."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from pydantic import BaseModel
from sqlalchemy import make_url

from lcp_engine import Engine
from lcp_engine.store.db.open import open_database
from lcp_engine.store.db.transaction import Tx
from lcp_engine.workers.base import Context, Outcome, Worker


class Note(BaseModel):
    """`n` names the job."""

    n: int


class Wire:
    """A proxy before the server that cuts the connection of the next COMMIT, `before` or `after` the server has it.

    While it `is_down`, it drops every new connection at once.
    """

    def __init__(self, url: str) -> None:
        there = make_url(url)
        self._server = (there.host or "127.0.0.1", there.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = there.set(port=self._listener.getsockname()[1]).render_as_string(hide_password=False)
        self.cut: str | None = None
        self.cuts = 0
        self.is_down = False
        self.is_down_after_cut = False
        self._clients: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def drop_all(self) -> None:
        """Cut every connection."""
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_down:
                    client.close()
                    continue
                self._clients.append(client)
                threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server, suppress(OSError):
            while True:
                ready, _, _ = select.select([client, server], [], [])
                for side in ready:
                    words = side.recv(65536)
                    if not words or self._ends(words, side is client):
                        return
                    (server if side is client else client).sendall(words)

    def _ends(self, words: bytes, is_asked: bool) -> bool:
        """The client asks for a commit in words (the first times), the server always says that it is done."""
        if b"COMMIT" not in words or self.cut != ("before" if is_asked else "after"):
            return False
        self.cut = None
        self.cuts += 1
        self.is_down = self.is_down_after_cut
        return True


@pytest.fixture
def wire(postgres_url: str) -> Iterator[Wire]:
    wire = Wire(postgres_url)
    yield wire
    wire.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_write_whose_commit_is_cut_off_is_there_once(wire: Wire, cut: str) -> None:
    database = open_database(wire.url)
    database.write(lambda tx: tx.plain("CREATE TABLE notes (n INTEGER)"))
    runs: list[int] = []

    def work(tx: Tx) -> int:
        runs.append(1)
        tx.plain("INSERT INTO notes VALUES (1)")
        return 7

    wire.cut = cut
    assert database.write(work) == 7
    assert (wire.cuts, len(runs)) == (1, 2 if cut == "before" else 1)
    assert database.read(lambda tx: tx.query_plain("SELECT n FROM notes")) == [(1,)]
    database.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_transaction_that_the_server_still_holds_open_is_ended_and_done_again(
    postgres_url: str, cut: str
) -> None:
    """The network is cut, not the connection: the server's side of it waits, with its locks."""
    database, other = open_database(postgres_url), open_database(postgres_url)
    backend = other.backend
    left = backend.connect()
    backend.begin(left)
    transaction = backend.transaction(left)
    assert transaction is not None
    left.cursor().execute("CREATE TABLE notes (n INTEGER)")
    if cut == "after":
        left.cursor().execute("COMMIT")
    asked = backend.connect()
    known: bool | None = None
    while known is None:
        known = backend.has_committed(asked, transaction, other.now())
    assert known is (cut == "after")
    there = database.read(lambda tx: tx.query_plain("SELECT 1 FROM pg_tables WHERE tablename = 'notes'"))
    assert there == ([(1,)] if known else [])
    for connection in (left, asked):
        connection.close()
    for one in (database, other):
        one.close()


def test_a_runner_goes_on_over_cut_commits_and_settles_every_job_once(wire: Wire) -> None:
    done: list[int] = []

    def note(params: Note, context: Context) -> Outcome:
        done.append(params.n)
        if params.n % 10 == 0:
            wire.cut = "after"  # of the commit that settles this one, or the one before
        return params

    worker = Worker(kind="note", params=Note, result=Note, execute=note, has_effects=False).for_any_params()
    with Engine(wire.url, workers=[worker]) as engine:
        for n in range(50):
            engine.enqueue("note", {"n": n})
        engine.work(until_idle=True)
        assert wire.cuts >= 3
        assert done == list(range(50))
        assert {(job.state, job.json["attempt"]) for job in engine.jobs()} == {("succeeded", 1)}
