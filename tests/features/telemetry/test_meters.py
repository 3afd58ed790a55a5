"""OpenTelemetry collects the figures of the database that a runner works on."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from tests.features.telemetry.conftest import Site

from lcp_engine.features.telemetry import meters
from lcp_engine.features.telemetry.figures import FIGURES


def test_figures_are_collected_while_a_runner_works(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    monkeypatch.setattr(meters, "_observed", set())
    meters._observe_all.__wrapped__()
    site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    [*_, chore] = meters.chores(site.engine.instance, 1, lambda: False)
    found = _collected(reader)
    assert found["lcp.jobs"] == [({"kind": "write_file", "state": "held"}, 1)]
    assert found.keys() >= {one.name for one in FIGURES if one.form == "gauge"}
    chore.finish()
    assert _collected(reader) == {}


def _collected(reader: InMemoryMetricReader) -> dict[str, list[tuple[dict[str, object], float]]]:
    data = reader.get_metrics_data()
    scopes = [scope for one in (data.resource_metrics if data else ()) for scope in one.scope_metrics]
    return {
        metric.name: [(dict(point.attributes or {}), point.value) for point in metric.data.data_points]  # type: ignore[union-attr]
        for scope in scopes
        for metric in scope.metrics
    }
