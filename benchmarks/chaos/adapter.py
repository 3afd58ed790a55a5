"""Run the engine in the public benchmark hardbyte/postgresql-job-queue-benchmarking: python -m benchmarks.chaos.adapter

Implements the contract of its CONTRIBUTING_ADAPTERS.md: settings from the environment, a descriptor and then samples as
JSON lines on stdout, exit code 0 within five seconds of SIGTERM. adapter.json is its manifest.

With LCP_BENCH_ACKNOWLEDGED, a file, it also appends the id of each job once it is acknowledged; with
LCP_BENCH_LOW_PRIORITY=N one of N jobs has a low priority.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, JsonValue

from lcp_engine import Engine, worker
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from lcp_engine.runner.runner import Runner

MANIFEST = json.loads(Path(__file__).with_name("adapter.json").read_text(encoding="utf-8"))
PRODUCERS = 16
"""Threads that enqueue; those that do so at the same time share a commit."""
AHEAD = 64
"""So many jobs at most wait for their acknowledgement."""
WINDOW = 30
LOOK_SECONDS = 0.25
"""How often the depth of the queue is looked at."""
STEP = math.log(1.001)
"""Latencies are counted in steps of a tenth of a percent: three significant figures in bounded memory."""


@dataclass(frozen=True)
class Settings:
    """What the benchmark states in the environment."""

    url: str
    mode: str
    rate: float
    depth: int
    workers: int
    payload: int
    work: float
    every: float
    instance: int
    produces: bool

    @classmethod
    def of(cls, given: dict[str, str] | os._Environ[str]) -> Settings:
        instance = int(given.get("BENCH_INSTANCE_ID", "0"))
        return cls(
            url=given["DATABASE_URL"].replace("postgres://", "postgresql://", 1),
            mode=given.get("PRODUCER_MODE", "fixed"),
            rate=float(given.get("PRODUCER_RATE", "800")),
            depth=int(given.get("TARGET_DEPTH", "1000")),
            workers=int(given.get("WORKER_COUNT", "32")),
            payload=int(given.get("JOB_PAYLOAD_BYTES", "256")),
            work=float(given.get("JOB_WORK_MS", "1")) / 1000,
            every=float(given.get("SAMPLE_EVERY_S", "5")),
            instance=instance,
            produces=instance == 0 or given.get("PRODUCER_ONLY_INSTANCE_ZERO", "0") in ("", "0"),
        )


class Payload(BaseModel):
    """When the job was enqueued, in seconds since 1970, and what makes it as large as wanted."""

    at: float
    padding: str


class Nothing(BaseModel):
    """No result."""


class Meter:
    """Counts jobs, and their latencies of the last 30 s."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._seconds: deque[tuple[int, Counter[int]]] = deque()
        self.enqueued = 0
        self.completed = 0

    def add_enqueued(self) -> None:
        with self._guard:
            self.enqueued += 1

    def add_started(self, seconds: float) -> None:
        now = int(time.monotonic())
        with self._guard:
            if not self._seconds or self._seconds[-1][0] != now:
                self._seconds.append((now, Counter()))
                while self._seconds[0][0] <= now - WINDOW:
                    self._seconds.popleft()
            self._seconds[-1][1][int(math.log(max(seconds * 1000, 0.001)) / STEP)] += 1

    def add_completed(self) -> None:
        with self._guard:
            self.completed += 1

    def percentiles(self) -> dict[str, float]:
        """Milliseconds from enqueuing to start, by the names of the metrics."""
        with self._guard:
            counted = sum((counts for _, counts in self._seconds), Counter())
        total = counted.total()
        return {
            f"claim_p{share}_ms": _quantile(counted, total * share / 100) for share in (50, 95, 99) if total
        }


def _quantile(counted: Counter[int], rank: float) -> float:
    seen = 0
    for bucket in sorted(counted):
        seen += counted[bucket]
        if seen >= rank:
            return round(math.exp(bucket * STEP), 3)
    return 0.0


class Adapter:
    """Produces and executes jobs until it is told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._meter = Meter()
        self._stopping = threading.Event()
        self._runner: Runner | None = None
        self._depth = 0
        self._low = int(os.environ.get("LCP_BENCH_LOW_PRIORITY", "0"))
        acknowledged = os.environ.get("LCP_BENCH_ACKNOWLEDGED")
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._acknowledged = None if acknowledged is None else os.open(acknowledged, flags, 0o644)
        work = settings.work
        meter = self._meter

        def carry_out(params: Payload) -> Nothing:
            meter.add_started(time.time() - params.at)
            time.sleep(work)
            meter.add_completed()
            return Nothing()

        self._kind = worker("bench.work", params=Payload, result=Nothing, has_effects=False)(carry_out).kind

    def run(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self.stop())
        with Engine(self._settings.url) as engine:
            self._describe()
            tasks = [self._sample, self._look, *([self._produce] if self._settings.produces else [])]
            threads = [threading.Thread(target=task, args=(engine,), daemon=True) for task in tasks]
            threads.append(threading.Thread(target=self._execute, args=(engine,), daemon=True))
            for thread in threads:
                thread.start()
            self._stopping.wait()
            for thread in threads:
                thread.join()

    def stop(self) -> None:
        self._stopping.set()
        if self._runner is not None:
            self._runner.stop()

    def _execute(self, engine: Engine) -> None:
        """As a service does, begin again if the runner has ended because its database was away."""
        while not self._stopping.is_set():
            try:
                self._runner = engine.runner(threads=self._settings.workers)
                if not self._stopping.is_set():
                    self._runner.run()
            except LcpError as error:
                print(f"the runner ended: {error}", file=sys.stderr, flush=True)
                self._stopping.wait(0.2)

    def _produce(self, engine: Engine) -> None:
        free = threading.Semaphore(AHEAD)
        due = time.monotonic()
        number = 0
        with ThreadPoolExecutor(PRODUCERS) as threads:
            while not self._stopping.is_set():
                rate = self._rate()
                if self._settings.mode == "depth-target":
                    wanted = self._depth < self._settings.depth
                else:
                    # What could not be enqueued in the last second is left out, not made up for.
                    due = max(due, time.monotonic() - 1)
                    wanted = rate > 0 and time.monotonic() >= due
                if not wanted or not free.acquire(timeout=0.1):
                    self._stopping.wait(0.002)
                    continue
                number += 1
                due += 1 / max(rate, 1e-9)
                threads.submit(self._enqueue, engine, number).add_done_callback(lambda _: free.release())

    def _rate(self) -> float:
        """The rate may be changed while it runs, by a file."""
        file = os.environ.get("PRODUCER_RATE_CONTROL_FILE")
        if file:
            with suppress(OSError, ValueError):
                return float(Path(file).read_text(encoding="utf-8"))
        return self._settings.rate

    def _enqueue(self, engine: Engine, number: int) -> None:
        priority = -10 if self._low and number % self._low == 0 else 0
        params: dict[str, JsonValue] = {
            "at": time.time(),
            "padding": "x" * max(0, self._settings.payload - 40),
        }
        try:
            job = engine.enqueue(self._kind, params, priority=priority)
        except LcpError as error:
            print(f"not acknowledged: {error}", file=sys.stderr, flush=True)
            return
        self._meter.add_enqueued()
        if self._acknowledged is not None:
            os.write(self._acknowledged, f"{job}\n".encode())

    def _sample(self, _: Engine) -> None:
        every = self._settings.every
        enqueued, completed = self._meter.enqueued, self._meter.completed
        while not self._stopping.wait(every - time.time() % every):
            rates = {
                "enqueue_rate": (self._meter.enqueued - enqueued) / every,
                "completion_rate": (self._meter.completed - completed) / every,
            }
            enqueued, completed = self._meter.enqueued, self._meter.completed
            at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            windows = (
                (self._meter.percentiles(), float(WINDOW)), (rates, every), ({"queue_depth": float(self._depth)}, 0.0),
            )  # fmt: skip
            for metrics, window in windows:
                for metric, value in metrics.items():
                    self._say(
                        t=at, system=MANIFEST["system"], kind="adapter", subject_kind="adapter", subject="",
                        metric=metric, value=value, window_s=window,
                    )  # fmt: skip

    def _look(self, engine: Engine) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            with suppress(LcpError):  # the database is away
                self._depth = _queued(engine)

    def _describe(self) -> None:
        self._say(
            kind="descriptor", system=MANIFEST["system"], event_tables=MANIFEST["event_tables"],
            extensions=MANIFEST["extensions"], version=version("lcp-engine"), schema_version=version("lcp-engine"),
            db_name=self._settings.url.rpartition("/")[2], started_at=datetime.now(UTC).isoformat(),
        )  # fmt: skip

    def _say(self, **record: object) -> None:
        print(json.dumps({**record, "instance_id": self._settings.instance}), flush=True)


def _queued(engine: Engine) -> int:
    """How many jobs wait for a runner."""
    query = "SELECT CAST(coalesce(sum(queued), 0) AS BIGINT) FROM missions"
    return engine.instance.database.read(lambda tx: int(tx.query_plain(query)[0][0]))


if __name__ == "__main__":
    Adapter(Settings.of(os.environ)).run()
