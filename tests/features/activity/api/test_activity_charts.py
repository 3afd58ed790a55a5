"""Charts say in words what their bars show."""

from __future__ import annotations

import re

from lcp_engine.features.activity.charts import HEIGHT, draw
from lcp_engine.features.activity.store import SPANS, Activity


def _day(**amounts: dict[int, int]) -> Activity:
    found = {name: [each.get(at, 0) for at in range(24)] for name, each in amounts.items()}
    return Activity(SPANS["day"], 0, {name.replace("_", ":"): series for name, series in found.items()})


def test_each_measure_of_which_there_was_something_has_a_strip() -> None:
    chart = draw(
        _day(succeeded={0: 6, 5: 2}, failed={5: 2}, runners={5: 2}, cost_EUR={5: 1_250_000_000}), "day"
    )
    assert [(strip.name, strip.figure, [*strip.paths]) for strip in chart.strips] == [
        ("Jobs", "8 succeeded, 2 failed", ["succeeded", "failed"]),
        ("Runners", "at most 2", ["running"]),
        ("Cost", "1.25 EUR", ["running"]),
    ]
    assert chart.strips[0].rate == "at most 6 each hour"
    assert (chart.count, chart.each) == (24, "hour")


def test_failures_stand_on_top_and_one_job_is_seen_beside_thousands() -> None:
    jobs = draw(_day(succeeded={0: 9999, 3: 1}, failed={0: 1}), "day").strips[0]
    shapes = {
        state: [
            (float(top), float(height)) for top, height in re.findall(r"M\d+ ([\d.]+)h[\d.]+v([\d.]+)", path)
        ]
        for state, path in jobs.paths.items()
    }
    (high, tall), (low, small) = shapes["succeeded"]
    ((top, thin),) = shapes["failed"]
    assert high + tall == low + small == HEIGHT
    assert small == thin == 3
    assert top + thin == high
    assert top >= 0


def test_nothing_has_no_strips() -> None:
    assert draw(_day(), "day").strips == []
