"""One scenario's database, roots and machines: real `lcp` processes, and what they have acknowledged."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import psycopg
from pydantic import JsonValue
from tests.faults.machine import Machine, signal_family
from tests.faults.program import FILE
from tests.faults.proxy import Proxy
from tests.faults.server import Server

from lcp_engine.core.programs.walls import Step

PATIENCE = 120.0
"""A scenario that has not come so far after so many seconds has failed."""
LONG = 600.0
"""No command takes so long, on however busy a machine."""
ENDED = ("succeeded", "failed", "rejected", "skipped", "cancelled", "held")
Row = tuple[object, ...]


class Failed(Exception):
    """What a scenario expected did not happen."""


@dataclass
class Wanted:
    """What one acknowledged mission has to leave behind: lines, each once, in a file of the directory `place`."""

    place: Path
    lines: list[str] = field(default_factory=list)


class Stage:
    """`kind` of database: `sqlite` or `postgresql`. Everything ends with `stack`."""

    def __init__(self, kind: str, directory: Path, stack: ExitStack, seed: int) -> None:
        self.kind = kind
        self.directory = directory
        self.stack = stack
        self.chance = Random(seed)
        self.seed = seed
        self.environment: dict[str, str] = {}
        self.wanted: dict[int, Wanted] = {}
        self.may_fail = False
        """Whether jobs may end other than succeeded; then their lines must not be there."""
        self.others_write = False
        """Whether another program writes to the files, too."""
        self.paid = 0
        self.log = directory / "log"
        self.database = directory / "database" / "lcp.db"
        self.database.parent.mkdir()
        self.here = Machine(directory / "here")
        self._lines = 0
        self._server: Server | None = None
        self._url = f"sqlite:///{self.database}"

    def serve(self, *, has_own_time: bool = False, options: str = "") -> Server:
        """Start the server of this stage, if it has none."""
        if self._server is None:
            directory = self.directory / "postgresql"
            directory.mkdir(mode=0o755)
            self._server = self.stack.enter_context(
                Server(directory, has_own_time=has_own_time, options=options)
            )
        return self._server

    def proxy(self, one_of: int = 20) -> Proxy:
        """Let commands from now on go through a proxy to the server."""
        server = self.serve()
        proxy = self.stack.enter_context(Proxy(server.port, self.seed, one_of))
        self.environment["LCP_DATABASE_URL"] = server.url.replace(f":{server.port}/", f":{proxy.port}/")
        return proxy

    @property
    def url(self) -> str:
        return self.serve().url if self.kind == "postgresql" else self._url

    def machine(
        self, name: str, *, other: bool = False, mounts: Mapping[Path, Path] | None = None
    ) -> Machine:
        return Machine(self.directory / name, other=other, mounts=mounts)

    def root(self, name: str = "root") -> Path:
        place = self.directory / "roots" / name
        place.mkdir(parents=True, exist_ok=True)
        return place

    # -- Commands

    def lcp(self, *arguments: str, machine: Machine | None = None) -> subprocess.CompletedProcess[str]:
        return (machine or self.here).run(*arguments, environment=self._settings, seconds=LONG)

    def must(self, *arguments: str, machine: Machine | None = None) -> str:
        said = self.lcp(*arguments, machine=machine)
        if said.returncode != 0:
            raise Failed(
                f"lcp {' '.join(arguments)} ended with {said.returncode}: {said.stderr.strip()[-500:]}"
            )
        return said.stdout

    def runner(self, *options: str, machine: Machine | None = None) -> subprocess.Popen[bytes]:
        """Start `lcp work`; it ends with the stage."""
        process = (machine or self.here).start("work", *options, environment=self._settings, log=self.log)
        self.stack.callback(process.wait)
        self.stack.callback(signal_family, process.pid, signal.SIGKILL)
        return process

    def commands_behind(self, wall: Step) -> None:
        """Have commands run behind this wall, with temporary files of their own."""
        self.here.configure(f"commands_wall: [{wall}]\n")
        self._temporary.mkdir()
        self.environment["TMPDIR"] = str(self._temporary)

    def left_by_commands(self) -> list[Path]:
        """Copies and directories of commands that are there."""
        return [*self._temporary.glob("lcp-run-*"), *self.here.state.glob("lcp-engine-wall/*/*/runs/*")]

    @property
    def _temporary(self) -> Path:
        return self.directory / "temporary"

    @property
    def _settings(self) -> dict[str, str]:
        return {"LCP_DATABASE_URL": self.url, "LCP_ISOLATION": "auto", **self.environment}

    # -- Missions

    def appends(
        self,
        count: int,
        root: Path | None = None,
        *,
        kind: str = "write_file",
        seconds: float = 0.0,
        place: Path | None = None,
        machine: Machine | None = None,
        spec: Mapping[str, JsonValue] | None = None,
    ) -> int:
        """Launch a mission that appends `count` lines in one turn, to a file of `place` (the root); its id."""
        root = root or self.root()
        lines = [self._line() for _ in range(count)]
        return self.launch(
            _appending(lines, kind, seconds, self.runs), root, Wanted(place or root, lines), machine, spec
        )

    def launch(
        self,
        replies: list[JsonValue],
        root: Path,
        wanted: Wanted,
        machine: Machine | None = None,
        spec: Mapping[str, JsonValue] | None = None,
    ) -> int:
        """Launch a mission whose planner gives these replies; once its id is printed, it is acknowledged."""
        file = self.directory / f"mission-{len(self.wanted)}-{self._lines}.yaml"
        file.write_text(
            json.dumps({**_SPEC, "planner": {"type": "script", "replies": replies}, **(spec or {})})
        )
        mission = int(
            self.must("--quiet", "launch", str(file), "--root", str(root), machine=machine).split()[-1]
        )
        self.wanted[mission] = wanted
        return mission

    @property
    def runs(self) -> Path:
        """A file with the line of each execution of a job."""
        return self.directory / "runs"

    def executions(self) -> list[str]:
        return self.runs.read_text().split() if self.runs.exists() else []

    def _line(self) -> str:
        self._lines += 1
        return f"line-{self._lines}"

    # -- The database, seen from outside

    def rows(self, query: str) -> list[Row]:
        """Rows of a query that names nothing but tables."""
        if self.kind == "postgresql":
            with psycopg.connect(self.url) as server:
                return [tuple(row) for row in server.execute(query.encode()).fetchall()]
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=60)) as file:
            return [tuple(row) for row in file.execute(query).fetchall()]

    def number(self, query: str) -> int:
        ((found,),) = self.rows(query)
        assert isinstance(found, int)
        return found

    def succeeded(self, mission: int | None = None) -> int:
        """How many jobs of file kinds have succeeded, of one mission or of all."""
        of = "" if mission is None else f" AND mission_id = {mission}"
        return self.number(
            f"SELECT count(*) FROM jobs WHERE state = 'succeeded' AND kind <> 'agent_plan'{of}"
        )

    def ended(self, mission: int | None = None) -> bool:
        of = "" if mission is None else f" WHERE id = {mission}"
        return not any(status == "running" for (status,) in self.rows(f"SELECT status FROM missions{of}"))

    def wait(self, what: str, until: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Look until it is so; how many seconds it took. Raises `Failed`."""
        began = time.monotonic()
        while not until():
            if time.monotonic() - began > seconds:
                raise Failed(f"{what} did not happen within {seconds:.0f} s")
            time.sleep(0.05)
        return time.monotonic() - began

    def finish(self, *missions: int) -> None:
        """Wait until these missions have ended, or all."""
        for mission in missions or self.wanted:
            self.wait(f"the end of mission {mission}", lambda mission=mission: self.ended(mission))  # type: ignore[misc]

    @contextmanager
    def held_by_another_program(self) -> Iterator[None]:
        """A program that keeps the write lock of the SQLite file."""
        with closing(sqlite3.connect(self.database, timeout=LONG, isolation_level=None)) as file:
            file.execute("BEGIN IMMEDIATE")
            yield
            file.execute("ROLLBACK")


_SPEC: Mapping[str, JsonValue] = {
    "goal": "Append lines.",
    "limits": {"max_followups": 50, "max_jobs": 100},
    "policy": [{"kinds": ["write_file", "test.line", "test.pooled_line"], "do": "auto"}],
}


def _appending(lines: list[str], kind: str, seconds: float, runs: Path) -> list[JsonValue]:
    """Replies that request one job for each line, and then complete the mission."""
    jobs: list[JsonValue] = [
        {"kind": kind, "params": {"rel_path": FILE, "content": f"{line}\n", "mode": "append"}}
        if kind == "write_file"
        else {"kind": kind, "params": {"text": line, "seconds": seconds, "runs": str(runs)}}
        for line in lines
    ]
    return [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs},
        {"ok": True, "action": "mission_complete", "summary": "Appended."},
    ]


def suspend(runner: subprocess.Popen[bytes]) -> None:
    """With its helpers, as a machine that sleeps."""
    signal_family(runner.pid, signal.SIGSTOP)


def resume(runner: subprocess.Popen[bytes]) -> None:
    signal_family(runner.pid, signal.SIGCONT)


def kill(runner: subprocess.Popen[bytes]) -> None:
    """Only the runner: its helpers notice by themselves."""
    os.kill(runner.pid, signal.SIGKILL)
    runner.wait()


def stop(runner: subprocess.Popen[bytes], seconds: float = PATIENCE) -> int:
    """As a service does; its exit code."""
    runner.send_signal(signal.SIGTERM)
    try:
        return runner.wait(seconds)
    except subprocess.TimeoutExpired as late:
        raise Failed(f"a runner had not answered SIGTERM after {seconds:.0f} s") from late
