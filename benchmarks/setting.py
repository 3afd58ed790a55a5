"""Give the cases their rounds, seconds, scratch databases and processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

PROJECT = Path(__file__).parent.parent
PEERS = Path(__file__).parent / "peers"


@dataclass(frozen=True)
class Setting:
    """One run. `seconds` is about how long one contender works in one round; `peers` is the Python that the peers use.

    `postgres` is the URL of a server where databases may be created; without it the cases on PostgreSQL are left out.
    """

    rounds: int
    seconds: float
    place: Path
    postgres: str | None
    peers: Path | None

    @contextmanager
    def sqlite(self) -> Iterator[str]:
        """The URL of a new SQLite file, which is removed afterwards."""
        with TemporaryDirectory(dir=self.place) as directory:
            yield f"sqlite:///{directory}/bench.db"

    @contextmanager
    def new_postgres(self) -> Iterator[str]:
        """The URL of a new PostgreSQL database, which is dropped afterwards."""
        import psycopg

        assert self.postgres is not None
        name = f"bench_{uuid4().hex}"
        with psycopg.connect(self.postgres, autocommit=True) as server:
            server.execute(f"CREATE DATABASE {name}".encode())
            try:
                yield urlunsplit(urlsplit(self.postgres)._replace(path=f"/{name}"))
            finally:
                server.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def run_engine(self, module: str, *arguments: str | int) -> float:
        """The number that a process of this package prints."""
        return _number([sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)])

    def run_peer(self, script: str, *arguments: str | float) -> float:
        """The number that a script of `peers/` prints."""
        assert self.peers is not None
        return _number([str(self.peers), str(PEERS / script), *map(str, arguments)])


def _number(command: list[str]) -> float:
    ended = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}\n{ended.stderr}")
    return float(json.loads(ended.stdout.splitlines()[-1]))
