"""The cells of chaos and pressure: what happens to the server or the adapters for some seconds."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

import psycopg
from tests.faults.server import Server

from benchmarks.chaos.fleet import Fleet

KILLED_A_SECOND = 2
IDLE_CONNECTIONS = 300
READERS = 4
Stress = Callable[[Fleet, Server, float], None]


@dataclass(frozen=True)
class Cell:
    """`stress` lasts so many seconds; `settings` are those of the adapters, `replicas` how many of them there are."""

    name: str
    stress: Stress
    replicas: int = 1
    settings: dict[str, str] = field(default_factory=dict)


def restart_server(fleet: Fleet, server: Server, seconds: float) -> None:
    """It is away for a third of the time."""
    server.stop()
    time.sleep(seconds / 3)
    server.start()
    time.sleep(seconds * 2 / 3)


def kill_backends(fleet: Fleet, server: Server, seconds: float) -> None:
    """Two connections are cut each second."""
    one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    with psycopg.connect(server.url, autocommit=True) as connection:
        for _ in range(int(seconds * KILLED_A_SECOND)):
            connection.execute(f"{one} AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1".encode())
            time.sleep(1 / KILLED_A_SECOND)


def exhaust_connections(fleet: Fleet, server: Server, seconds: float) -> None:
    """Somebody else holds as many connections as there are, up to 300."""
    with ExitStack() as held:
        with suppress(psycopg.OperationalError):  # there are no more
            for _ in range(IDLE_CONNECTIONS):
                held.enter_context(psycopg.connect(server.url))
        time.sleep(seconds)


def kill_repeatedly(fleet: Fleet, server: Server, seconds: float) -> None:
    """The first of two replicas is killed and started again, four times."""
    for _ in range(4):
        fleet.signal(0, signal.SIGKILL)
        time.sleep(seconds / 8)
        fleet.restart(0)
        time.sleep(seconds / 8)


def kill_once(fleet: Fleet, server: Server, seconds: float) -> None:
    """The first of two replicas is killed, and started again after half of the time."""
    fleet.signal(0, signal.SIGKILL)
    time.sleep(seconds / 2)
    fleet.restart(0)
    time.sleep(seconds / 2)


def idle_in_transaction(fleet: Fleet, server: Server, seconds: float) -> None:
    """A transaction that has written stays open, so that nothing dead can be cleaned up."""
    with psycopg.connect(server.url) as connection:
        connection.execute("CREATE TEMPORARY TABLE idle AS SELECT count(*) FROM jobs")
        time.sleep(seconds)


def read_for_long(fleet: Fleet, server: Server, seconds: float) -> None:
    """Four readers look through all of history again and again, each time in a transaction of seconds."""
    with _readers(server, seconds):
        time.sleep(seconds)


def let_pass(fleet: Fleet, server: Server, seconds: float) -> None:
    """Nothing happens beside the load."""
    time.sleep(seconds)


CELLS = (
    Cell("chaos: server restart", restart_server),
    Cell("chaos: killed backends", kill_backends),
    Cell("chaos: pool exhaustion", exhaust_connections),
    Cell("chaos: repeated kills", kill_repeatedly, replicas=2),
    Cell("chaos: killed under low priority", kill_once, replicas=2, settings={"LCP_BENCH_LOW_PRIORITY": "4"}),
    Cell("pressure: idle in transaction", idle_in_transaction),
    Cell("pressure: long readers", read_for_long),
    Cell(
        "pressure: sustained depth",
        let_pass,
        settings={"PRODUCER_MODE": "depth-target", "TARGET_DEPTH": "1000"},
    ),
    Cell("pressure: soak", let_pass),
)


@contextmanager
def _readers(server: Server, seconds: float) -> Iterator[None]:
    ends = time.monotonic() + seconds

    def read() -> None:
        with psycopg.connect(server.url) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            while time.monotonic() < ends:
                connection.execute(
                    "SELECT count(*), max(at) FROM events JOIN jobs ON jobs.id = events.job_id"
                )
                time.sleep(0.2)

    threads = [threading.Thread(target=read) for _ in range(READERS)]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join()
