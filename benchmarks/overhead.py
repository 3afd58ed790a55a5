"""Time from a model's reply to the start of the job that it requests, through a whole mission."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from typing import IO

from pydantic import JsonValue

from benchmarks.figures import Figure, Goal, quantile, race
from benchmarks.kinds import numbered
from benchmarks.setting import PROJECT, Setting
from lcp_engine import Engine

TURN = 0.02
LEAST = 20
MOST = 10.0
WHAT = "from the last byte of a model's reply to the start of its job"


def run(setting: Setting) -> list[Figure]:
    """A round is a mission of many turns, each with one job; the server is another process and answers at once."""
    turns = max(LEAST, int(setting.seconds / TURN))
    with setting.sqlite() as url, Engine(url) as engine, _served(turns) as served:
        way = Way(engine, served, turns)
        medians = race({WHAT: way.measure}, setting.rounds)[WHAT]
    value = statistics.median(medians)
    note = f"the reply read, stored, decided on and its job claimed; 99 %: {quantile(way.times, 0.99):.2f}"
    return [Figure(WHAT, "ms", value, value=value, goal=Goal(MOST, at_least=False, unit="ms"), note=note)]


@dataclass(frozen=True)
class Served:
    """A server without a model, and the stream of times at which its replies were sent."""

    port: int
    times: IO[str]


@dataclass
class Way:
    """An engine with such a server, and the measurements so far, in milliseconds."""

    engine: Engine
    served: Served
    turns: int
    times: list[float] = field(default_factory=list)

    def measure(self) -> float:
        """The median over one mission's turns."""
        with TemporaryDirectory() as root:
            mission = self.engine.launch(self._spec(), root=root)
            self.engine.work(until_idle=True, mission_id=mission.id)
        sent = [int(self.served.times.readline()) for _ in range(self.turns)]
        jobs = self.engine.jobs(mission_id=mission.id, kinds=[numbered.kind])
        started = [(job.result or {})["at"] for job in jobs]
        measured = [(at - then) / 1e6 for at, then in zip(started, sent, strict=True) if isinstance(at, int)]
        assert len(measured) == self.turns
        self.times += measured
        return statistics.median(measured)

    def _spec(self) -> dict[str, JsonValue]:
        endpoint = f"http://127.0.0.1:{self.served.port}/v1"
        planner: JsonValue = {
            "type": "openai", "base_url": endpoint, "model": "none", "context_tokens": 8192, "narrow": False,
        }  # fmt: skip
        most = self.turns + 1
        return {"goal": "Be measured.", "planner": planner, "limits": {"max_turns": most, "max_jobs": most}}


@contextmanager
def _served(turns: int) -> Iterator[Served]:
    command = [sys.executable, "-m", "benchmarks.model_server", str(turns)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=PROJECT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield Served(int(server.stdout.readline()), server.stdout)
        finally:
            server.stdin.close()
