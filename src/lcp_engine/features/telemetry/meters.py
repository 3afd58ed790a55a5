"""Let OpenTelemetry, if the process has loaded it, collect the figures of a database while a runner works on it.

Nothing else is loaded where it is not: a runner that nobody watches costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING

from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore
from lcp_engine.errors import LcpError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Observation

    from lcp_engine.features.telemetry.figures import Figure

LOOK_SECONDS = 60.0


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    """Have figures collected, and traces told."""
    if "opentelemetry.trace" in sys.modules:
        from lcp_engine.features.telemetry.spans import traces

        yield from traces(instance, runner_id)
    if "opentelemetry.metrics" in sys.modules:
        _observe_all()
        observed = Observed(instance)
        _observed.add(observed)
        yield Chore(
            name="figures",
            do=lambda: None,
            seconds=LOOK_SECONDS,
            finish=partial(_observed.discard, observed),
        )


class Observed:
    """The figures of a database that a runner works on."""

    def __init__(self, instance: Instance) -> None:
        from lcp_engine.features.telemetry.figures import Figures

        self._database = instance.database
        self._figures = Figures(instance)

    def observe(self, figure: Figure) -> Iterator[Observation]:
        """The values of a figure; none while the database is away, for which no exporter waits."""
        from opentelemetry.metrics import Observation

        if self._database.outage.is_on:
            return
        try:
            values = self._figures.read()[figure]
        except LcpError:
            return
        for labels, value in values.items():
            yield Observation(value, dict(zip(figure.labels, labels, strict=True)))


_observed = set[Observed]()


@cache
def _observe_all() -> None:
    """State the instruments, once in a process. Histograms are recorded where spans are told."""
    from importlib.metadata import version

    from opentelemetry.metrics import get_meter

    from lcp_engine.features.telemetry.figures import FIGURES
    from lcp_engine.features.telemetry.names import SCOPE

    meter = get_meter(SCOPE, version("lcp-engine"))
    for figure in FIGURES:
        callback = partial(_observe, figure)
        match figure.form:
            case "gauge":
                meter.create_observable_gauge(figure.name, [callback], figure.unit, figure.meaning)
            case "counter":
                meter.create_observable_counter(figure.name, [callback], figure.unit, figure.meaning)
            case "histogram" | "summary":
                pass


def _observe(figure: Figure, options: CallbackOptions) -> Iterable[Observation]:
    for one in list(_observed):
        yield from one.observe(figure)
