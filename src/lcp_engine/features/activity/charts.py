"""Chart what happens over time, which runners count: a strip of bars for each measure, with its figures in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, repeat

from lcp_engine.clock import iso
from lcp_engine.core.limits.money import told_amount
from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore
from lcp_engine.features.activity.store import (
    BILLION,
    COST,
    EVERY_SECONDS,
    HOUR,
    RUNNERS,
    SPANS,
    WAITING,
    Activity,
    count_up,
    is_due,
    read_activity,
    read_recent,
)

HEIGHT = 100.0
THINNEST = 3.0
"""The smallest height of a bar, so that one job is seen beside thousands."""
_WIDTH = 0.8


@dataclass(frozen=True)
class Strip:
    """A measure over time. `paths` are its bars by the state that colours them, one unit wide for each part."""

    name: str
    figure: str
    paths: Mapping[str, str]
    rate: str = ""


@dataclass(frozen=True)
class Chart:
    """The strips of a span, which began at `begin` (ISO 8601); `each` is what one of its `count` bars stands for.

    A measure of which there was nothing has no strip.
    """

    over: str
    begin: str
    each: str
    count: int
    strips: Sequence[Strip]
    spans: Sequence[str] = tuple(SPANS)


def chart(instance: Instance, over: str) -> Chart:
    """The chart of the last `hour`, `day` or `week`; of the hour for any other word."""
    known = over if over in SPANS else "hour"
    return draw(instance.read(read_activity, known), known)


def recent_chart(instance: Instance) -> Chart:
    """The chart of the shortest span in which jobs ended."""
    over, found = instance.read(read_recent)
    return draw(found, over)


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    database, runtime = instance.database, instance.runtime

    def do() -> None:
        if database.read(is_due):
            while not count_up(database, runtime) and not is_stopping():
                pass

    def finish() -> None:
        count_up(database, runtime)

    pauses = chain((1.0,), repeat(EVERY_SECONDS))
    yield Chore(name="activity", do=do, until_due=lambda: next(pauses), is_quick=False, finish=finish)


def draw(activity: Activity, over: str) -> Chart:
    """The chart of an hour, a day or a week."""
    each = "hour" if activity.span.step == HOUR else "minute"
    strips = [strip for strip in _strips(activity, each) if strip.paths]
    return Chart(over, iso(activity.begin), each, activity.span.parts, strips)


def _strips(activity: Activity, each: str) -> Iterator[Strip]:
    done, failed = activity.of("succeeded"), activity.of("failed")
    most = max(map(sum, zip(done, failed, strict=True)))
    figure = f"{sum(done):,} succeeded, {sum(failed):,} failed"
    yield Strip(
        "Jobs", figure, _stack({"succeeded": done, "failed": failed}), f"at most {most:,} each {each}"
    )
    for name, measure, state in (("Waiting for a person", WAITING, "held"), ("Runners", RUNNERS, "running")):
        levels = activity.of(measure)
        yield Strip(name, f"at most {max(levels):,}", _stack({state: levels}))
    tokens = activity.of("tokens")
    yield Strip("Tokens", f"{sum(tokens):,}", _stack({"running": tokens}))
    for currency in activity.currencies:
        amounts = activity.of(COST + currency)
        figure = told_amount(Decimal(sum(amounts)) / BILLION, currency)
        yield Strip("Cost", figure, _stack({"running": amounts}))


def _stack(amounts: Mapping[str, Sequence[int]]) -> dict[str, str]:
    """The bars of each series as the path of an SVG, those of a later one on top; none where nothing happened."""
    most = max(map(sum, zip(*amounts.values(), strict=True)))
    tops = [0.0] * len(next(iter(amounts.values())))
    paths: dict[str, str] = {}
    for state, series in amounts.items():
        parts: list[str] = []
        for at, amount in enumerate(series):
            if amount:
                height = max(THINNEST, amount / most * (HEIGHT - THINNEST))
                tops[at] += height
                parts.append(f"M{at} {HEIGHT - tops[at]:.1f}h{_WIDTH}v{height:.1f}h-{_WIDTH}z")
        if parts:
            paths[state] = "".join(parts)
    return paths
