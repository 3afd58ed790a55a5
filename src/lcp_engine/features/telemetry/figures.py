"""Figures of a database for programs that watch it: one table of them, their values, and their form for Prometheus.

Levels are those of the moment. Counters begin at 0 with the process and count what ends in the whole database, whoever
executed it: the figures of two processes are the same, so that their highest counts and not their sum.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from lcp_engine.clock import SECOND, Micros
from lcp_engine.core.job_states import RESCUE
from lcp_engine.engine.instance import Instance
from lcp_engine.features.telemetry.store import LATENCIES, Ended, Levels, read_ended, read_levels

KEPT_SECONDS = 2.0
MOST_SHARE = 0.01
"""Figures are kept for so long that reading them takes no more than this share of the time."""
MOST_KEPT_SECONDS = 60.0
"""But no longer than that: a read that waited for the database would keep them for hours."""
LAG: Micros = 5 * SECOND
"""What ended later than that is counted the next time: a transaction of that time may still be open."""
MOST_KINDS = 100
"""Kinds that have figures of their own, since planners may name any."""
OTHER = "(other)"

Labels: TypeAlias = tuple[str, ...]
Values: TypeAlias = Mapping[Labels, float]


class Figure(NamedTuple):
    """A figure by its name in OpenTelemetry; for Prometheus the name follows from name, unit and form."""

    name: str
    form: Literal["gauge", "counter", "histogram", "summary"]
    unit: str
    labels: tuple[str, ...]
    meaning: str

    @property
    def on_prometheus(self) -> str:
        unit = {"s": "_seconds"}.get(self.unit, "")
        return f"{self.name.replace('.', '_')}{unit}{'_total' if self.form == 'counter' else ''}"


JOBS = Figure("lcp.jobs", "gauge", "{job}", ("kind", "state"), "Jobs that are not settled.")
OLDEST = Figure(
    "lcp.jobs.oldest", "gauge", "s", ("kind", "state"),
    "Seconds since the first of these jobs was held, due or started.",
)  # fmt: skip
RUNNERS = Figure("lcp.runners", "gauge", "{runner}", (), "Runners that are alive.")
ATTEMPTS = Figure("lcp.attempts", "counter", "{attempt}", ("outcome",), "Attempts that ended.")
ATTEMPT_TIME = Figure("lcp.attempts.time", "summary", "s", ("kind",), "Time that ended attempts took.")
CLAIMS = Figure(
    "lcp.claims.latency", "histogram", "s", ("kind",),
    "Time from a job's creation to its first claim, where nothing but a runner was missing.",
)  # fmt: skip
LOST = Figure("lcp.leases.lost", "counter", "{lease}", (), "Leases of runners that died.")
TOKENS = Figure("lcp.tokens", "counter", "{token}", ("type",), "Tokens that planners used.")
COST = Figure("lcp.cost", "counter", "", ("currency",), "Money that replies of planners cost.")
READ_TIME = Figure("lcp.figures.time", "gauge", "s", (), "Time that it took to read these figures.")
FIGURES = (JOBS, OLDEST, RUNNERS, ATTEMPTS, ATTEMPT_TIME, CLAIMS, LOST, TOKENS, COST, READ_TIME)
"""All of them: what reads, documents and charts them is held to this table."""


class Figures:
    """The figures of one database. Any thread may call."""

    def __init__(self, instance: Instance, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._instance = instance
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._since = instance.database.now() - LAG
        self._counts: dict[Figure, dict[Labels, float]] = {
            one: defaultdict(float) for one in (ATTEMPTS, ATTEMPT_TIME, CLAIMS, LOST, TOKENS, COST)
        }
        self._counts[LOST][()] = 0.0  # or its first increase would not be seen
        self._levels: dict[Figure, Values] = {}
        self._kinds = set[str]()
        self._fresh_until = -1.0

    def read(self) -> Mapping[Figure, Values]:
        """Values of each figure by its labels; those of a histogram have the bound of a bucket, and those of both
        forms `sum` and `count`, as the last label. Raises for a database that cannot be read.
        """
        with self._lock:
            began = self._monotonic()
            if began >= self._fresh_until:
                levels = self._instance.read(read_levels, self._instance.runtime)
                ended = self._instance.read(read_ended, self._since, LAG)
                self._count(ended)
                took = self._monotonic() - began
                self._levels = {**self._measure(levels), READ_TIME: {(): took}}
                self._fresh_until = began + min(max(KEPT_SECONDS, took / MOST_SHARE), MOST_KEPT_SECONDS)
            return {**self._levels, **{one: dict(counts) for one, counts in self._counts.items()}}

    def _count(self, ended: Ended) -> None:
        counts = self._counts
        for outcome, count in ended.attempts.items():
            counts[ATTEMPTS][outcome,] += count
        counts[LOST][()] += ended.attempts.get(RESCUE.event, 0)
        for one in ended.sampled:
            kind = self._label(one.kind)
            counts[ATTEMPT_TIME][kind, "sum"] += one.took / SECOND
            counts[ATTEMPT_TIME][kind, "count"] += one.number
            for bound, count in zip((*LATENCIES, "+Inf"), (*one.waits, one.waited), strict=True):
                counts[CLAIMS][kind, f"{bound}"] += count
            counts[CLAIMS][kind, "sum"] += one.wait / SECOND
            counts[CLAIMS][kind, "count"] += one.waited
        for name, tokens in zip(("input", "output"), ended.tokens, strict=True):
            counts[TOKENS][name,] += tokens
        for currency, amount in ended.costs.items():
            counts[COST][currency,] += float(amount)
        self._since = ended.until

    def _measure(self, levels: Levels) -> Mapping[Figure, Values]:
        jobs, oldest = defaultdict[Labels, float](float), defaultdict[Labels, float](float)
        for kind, state, count, since in levels.jobs:
            labels = self._label(kind), state
            jobs[labels] += count
            if since is not None:
                oldest[labels] = max(oldest[labels], (levels.at - since) / SECOND)
        return {JOBS: jobs, OLDEST: oldest, RUNNERS: {(): levels.runners}}

    def _label(self, kind: str) -> str:
        if len(self._kinds) < MOST_KINDS:
            self._kinds.add(kind)
        return kind if kind in self._kinds else OTHER


def exposition(values: Mapping[Figure, Values]) -> str:
    """Values in the text format of Prometheus, version 0.0.4."""
    return "".join(f"{line}\n" for figure, found in values.items() for line in _lines(figure, found))


def _lines(figure: Figure, values: Values) -> Iterator[str]:
    name = figure.on_prometheus
    yield f"# HELP {name} {figure.meaning}"
    yield f"# TYPE {name} {figure.form}"
    for labels, value in values.items():
        if figure.form in ("gauge", "counter"):
            yield f"{name}{_labels(figure.labels, labels)} {value:.16g}"
        elif labels[-1] in ("sum", "count"):
            yield f"{name}_{labels[-1]}{_labels(figure.labels, labels[:-1])} {value:.16g}"
        else:
            yield f"{name}_bucket{_labels((*figure.labels, 'le'), labels)} {value:.16g}"


def _labels(names: Collection[str], values: Sequence[str]) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}" if names else ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
