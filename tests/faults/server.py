"""Start a private PostgreSQL server that can be restarted, stopped for a while, and given another time."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

DEBIAN = Path("/usr/lib/postgresql")
"""Debian keeps the server's programs out of PATH, in a directory for each version."""
FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)


def programs() -> Path | None:
    """Where `initdb` and `pg_ctl` are; None on a machine without the server."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda file: float(file.parent.parent.name))
    in_path = shutil.which("initdb")
    return found[-1].parent if found else Path(in_path).parent if in_path else None


class Server:
    """A server on loopback with its data in `directory`; a context manager.

    `has_own_time`: its time can be shifted (`shift`), which needs libfaketime. `options` are settings of the server.
    """

    def __init__(self, directory: Path, *, has_own_time: bool = False, options: str = "") -> None:
        self._data = directory / "server"
        self._time = directory / "server-time"
        self._options = options
        self._environment = dict(os.environ)
        self._port = _free_port()
        if has_own_time:
            self._time.write_text("+0")
            self._environment |= {
                "LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(self._time), "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }  # fmt: skip

    def __enter__(self) -> Self:
        self._data.mkdir()
        if os.getuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(self._data, "postgres")
            for parent in self._data.parents:
                if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                    parent.chmod(parent.stat().st_mode | 0o711)
        options = (
            "--username",
            "postgres",
            "--auth",
            "trust",
            "--encoding",
            "UTF8",
            "--no-locale",
            "--no-sync",
        )
        self._run("initdb", *options)
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "--mode", "immediate", "stop", check=False)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        options = f"-p {self._port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self._data} "
        options += f"-c fsync=off -c max_connections=200 {self._options}"
        log = str(self._data / "log")
        self._run("pg_ctl", "--log", log, "--wait", "--options", options, "start")

    def stop(self) -> None:
        """End it as a crash would: connections are cut, nothing is finished."""
        self._run("pg_ctl", "--mode", "immediate", "--wait", "stop")

    def restart(self) -> None:
        self.stop()
        self.start()

    def shift(self, seconds: float) -> None:
        """From now on its time is so far from that of the machine."""
        self._time.write_text(f"{seconds:+}")

    def terminate_backends(self) -> int:
        """Cut every other connection; their number."""
        terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        with psycopg.connect(self.url, autocommit=True) as connection:
            return len(connection.execute(f"{terminate} AND backend_type = 'client backend'").fetchall())

    def _run(self, program: str, *options: str, check: bool = True) -> None:
        place = programs()
        assert place is not None
        as_user = ["runuser", "--user", "postgres", "--"] if os.getuid() == 0 else []
        command = [*as_user, str(place / program), "--pgdata", str(self._data), *options]
        said = subprocess.run(
            command, cwd="/", env=self._environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
        )  # fmt: skip
        assert not check or said.returncode == 0, f"{program} ended with {said.returncode}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
