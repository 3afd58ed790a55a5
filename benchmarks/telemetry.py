"""Processor time of a drain that is watched, with figures scraped and spans exported, beside one that is not."""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from functools import partial

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from benchmarks.engine_drain import fill
from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting
from lcp_engine import Engine
from lcp_engine.features.telemetry.figures import Figures, exposition

WHAT = "processor time of a no-op job, figures scraped and spans exported, SQLite"
SHARE = "of it by the threads that read, make and export figures and spans"
MOST_RATIO, MOST_PERCENT = 1.03, 3.0
SCRAPE_SECONDS = 1.0
PER_SECOND = 15_000
_WATCHING = ("lcp-traces", "OtelBatch")
"""Beginnings of the names of threads that work for spans."""


def run(setting: Setting) -> list[Figure]:
    """Pairs of drains of the same backlog, by turns: with everything on, and with nothing."""
    backlog = int(PER_SECOND * max(5.0, setting.seconds))
    contenders: dict[str, Contender] = {
        name: partial(_measure, setting, backlog, name) for name in ("on", "off", "share")
    }
    measured = race(contenders, setting.rounds)
    share = statistics.median(measured["share"])
    return [
        ratio(
            WHAT, "µs", measured["on"], measured["off"], peer="nothing on",
            goal=Goal(MOST_RATIO, at_least=False),
        ),
        Figure(SHARE, "%", share, value=share, goal=Goal(MOST_PERCENT, at_least=False, unit="%")),
    ]  # fmt: skip


def _measure(setting: Setting, backlog: int, what: str) -> float:
    with setting.sqlite() as url:
        return setting.run_engine("telemetry", url, backlog, what)


def main(url: str, backlog: int, what: str) -> None:
    """Print the microseconds of processor time that a job takes, or the percentage of it that watching takes."""
    with Engine(url) as engine:
        engine.instance.database.write(lambda tx: fill(tx, backlog))
        watcher = None if what == "off" else _Watcher(engine)
        began = time.process_time()
        engine.work(until_idle=True)
        took = time.process_time() - began
        watched = 0.0 if watcher is None else watcher.stop()
        (mission,) = engine.missions()
        assert mission.jobs.get("succeeded") == backlog
    print(json.dumps(100 * watched / took if what == "share" else took / backlog * 1e6))


class _Watcher:
    """Scrapes figures every second, as often as anybody does, and has spans exported, but to nowhere."""

    def __init__(self, engine: Engine) -> None:
        _set_up()
        self._figures = Figures(engine.instance)
        self._is_over = threading.Event()
        self._seconds: dict[object, float] = {}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> float:
        """The processor time that it took."""
        self._is_over.set()
        self._thread.join()
        return sum(self._seconds.values())

    def _run(self) -> None:
        scraped = time.monotonic()
        while not self._is_over.wait(0.05):
            for thread in threading.enumerate():
                if thread.name.startswith(_WATCHING) and thread.ident is not None:
                    clock = time.pthread_getcpuclockid(thread.ident)
                    self._seconds[thread] = time.clock_gettime(clock)
            if time.monotonic() - scraped > SCRAPE_SECONDS:
                scraped = time.monotonic()
                exposition(self._figures.read())
        self._seconds["figures"] = time.thread_time()


def _set_up() -> None:
    """Set OpenTelemetry up, as an operator does."""
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    trace.set_tracer_provider(provider)


class _Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        for span in spans:
            span.to_json(indent=None)  # about what an encoder does
        return SpanExportResult.SUCCESS


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
