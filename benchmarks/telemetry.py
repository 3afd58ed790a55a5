"""Processor time of a drain that is watched, with figures scraped and spans exported, beside one that is not."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from benchmarks.engine_drain import check, fill
from benchmarks.figures import Contender, Figure, Goal, race, ratio
from benchmarks.setting import Setting
from lcp_engine import Engine

WHAT = "processor time of a no-op job, figures scraped and spans exported, SQLite"
MOST = 1.03
SCRAPE_SECONDS = 1.0
PER_SECOND = 4000


def run(setting: Setting) -> list[Figure]:
    """Pairs of drains of the same backlog, by turns: with everything on, and with nothing."""
    backlog = int(PER_SECOND * max(5.0, setting.seconds))
    contenders: dict[str, Contender] = {
        name: partial(_measure, setting, backlog, is_on) for name, is_on in (("on", 1), ("off", 0))
    }
    measured = race(contenders, setting.rounds)
    goal = Goal(MOST, at_least=False)
    return [ratio(WHAT, "µs", measured["on"], measured["off"], peer="nothing on", goal=goal)]


def _measure(setting: Setting, backlog: int, is_on: int) -> float:
    with setting.sqlite() as url:
        return setting.run_engine("telemetry", url, backlog, is_on)


def main(url: str, backlog: int, is_on: int) -> None:
    """Print the microseconds of processor time that a job of the backlog takes."""
    with Engine(url) as engine:
        engine.instance.database.write(lambda tx: fill(tx, backlog))
        if is_on:
            _set_up()
        with _scraping(engine) if is_on else _nothing():
            began = time.process_time()
            engine.work(until_idle=True)
            took = time.process_time() - began
        check(engine, backlog)
    print(json.dumps(took / backlog * 1e6))


def _set_up() -> None:
    """Have spans exported as an operator has, but to nowhere."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            for span in spans:
                span.to_json(indent=None)  # about what an encoder does
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    trace.set_tracer_provider(provider)


@contextmanager
def _scraping(engine: Engine) -> Iterator[None]:
    """Read the figures every second: as often as anybody does."""
    from lcp_engine.features.telemetry.health import Watch

    watch, is_over = Watch(engine.instance), threading.Event()

    def scrape() -> None:
        while not is_over.wait(SCRAPE_SECONDS):
            watch.answer("/metrics")

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def _nothing() -> Iterator[None]:
    yield


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
