"""Figures say what is open and what has ended, and cost the same beside any history."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import JsonValue
from tests.features.telemetry.conftest import Site

from lcp_engine.features.telemetry import store
from lcp_engine.features.telemetry.figures import (
    ATTEMPT_TIME,
    ATTEMPTS,
    CLAIMS,
    COST,
    FIGURES,
    JOBS,
    LOST,
    MOST_KINDS,
    OLDEST,
    OTHER,
    RUNNERS,
    TOKENS,
    Figure,
    Figures,
    Values,
    exposition,
)

DOCS = Path(__file__).resolve().parents[3] / "docs"
HELD = ("write_file", "held")


def _figures(site: Site) -> Figures:
    """Figures that never keep what they read."""
    ticks = iter(range(0, 10**9, 10**6))
    return Figures(site.engine.instance, monotonic=lambda: next(ticks))


@pytest.mark.both
def test_what_waits_for_a_person_is_counted_by_kind_with_its_age(site: Site) -> None:
    figures = _figures(site)
    site.run(("write_file", {"rel_path": "b.md", "content": "b"}), ("read_file", {"rel_path": "a.md"}))
    site.pass_time(60)
    values = figures.read()
    assert values[JOBS] == {HELD: 1}
    assert 60 <= values[OLDEST][HELD] < 120
    assert values[RUNNERS] == {(): 0}


def test_a_look_that_waited_for_the_database_is_not_kept_for_hours(site: Site) -> None:
    ticks = iter((0.0, 3600.0, 3601.0, 3602.0))
    figures = Figures(site.engine.instance, monotonic=lambda: next(ticks))
    assert figures.read()[JOBS] == {}
    site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    assert figures.read()[JOBS] == {HELD: 1}


@pytest.mark.both
def test_what_ends_is_counted_once_however_often_it_is_read(site: Site) -> None:
    figures = _figures(site)
    site.run(("read_file", {"rel_path": "a.md"}), ("read_file", {"rel_path": "missing.md"}))
    site.pass_time(10)
    first, again = figures.read(), figures.read()
    assert first[ATTEMPTS] == again[ATTEMPTS] == {("succeeded",): 3, ("failed",): 1}
    assert first[ATTEMPT_TIME] == again[ATTEMPT_TIME]
    assert (first[ATTEMPT_TIME]["read_file", "count"], first[ATTEMPT_TIME]["agent_plan", "count"]) == (2, 2)
    assert first[CLAIMS]["read_file", "count"] == first[CLAIMS]["read_file", "+Inf"] == 2
    assert first[LOST] == {(): 0}


def test_a_job_that_is_due_is_as_old_as_its_wait_for_a_runner(site: Site) -> None:
    figures = _figures(site)
    site.engine.launch({"goal": "Look.", "planner": {"type": "script", "replies": []}}, root=site.root)
    site.pass_time(30)
    assert 30 <= figures.read()[OLDEST]["agent_plan", "ready"] < 60


def test_the_wait_of_an_approved_job_is_not_known(site: Site) -> None:
    figures = _figures(site)
    site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    [held] = site.engine.jobs(states=["held"])
    site.engine.approve(held.id)
    values = figures.read()
    assert (values[JOBS], values[OLDEST]) == ({("write_file", "ready"): 1}, {})


def test_kinds_without_end_share_one_figure(site: Site) -> None:
    figures = _figures(site)
    jobs: list[tuple[str, dict[str, JsonValue]]] = [
        (f"kind{number}", {}) for number in range(MOST_KINDS + 20)
    ]
    site.run(*jobs, limits={"max_followups": len(jobs), "max_jobs": len(jobs)})
    counts = figures.read()[JOBS]
    assert len(counts) == MOST_KINDS + 1
    assert counts[OTHER, "held"] == 20


def test_no_query_reads_all_jobs_or_all_attempts(site: Site) -> None:
    if not site.url.startswith("sqlite"):
        return
    statements = (
        store._OPEN,
        store._MANY,
        store._COUNTED,
        store._SAMPLED,
        store._WITHOUT_REPLY,
        store._REPLIED,
    )
    for statement in statements:
        values = re.sub(r":(since|until|newest|now|most)\b", "1", statement.sql("sqlite"))
        plan = site.engine.instance.database.read(
            lambda tx, sql=values: [row[3] for row in tx.query_plain(f"EXPLAIN QUERY PLAN {sql}")]  # type: ignore[misc]
        )
        scans = [step for step in plan if step.startswith("SCAN")]
        assert not [step for step in scans if "INDEX" not in step and step.split()[1] not in ("a", "e")], plan


def test_the_exposition_is_read_by_the_client_of_prometheus(site: Site) -> None:
    figures = _figures(site)
    site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    site.pass_time(10)
    odd: dict[Figure, Values] = {**figures.read(), COST: {('E"U\\R\n',): 1.5}}
    families = {one.name: one for one in text_string_to_metric_families(exposition(odd))}
    assert {one.on_prometheus.removesuffix("_total") for one in FIGURES} == families.keys()
    [cost] = families["lcp_cost"].samples
    assert (cost.labels, cost.value) == ({"currency": 'E"U\\R\n'}, 1.5)
    buckets = [
        one.labels["le"] for one in families["lcp_claims_latency_seconds"].samples if "le" in one.labels
    ]
    assert buckets[-1] == "+Inf"
    assert families["lcp_tokens"].type == "counter"
    assert TOKENS in odd


def test_the_dashboard_charts_figures_that_exist() -> None:
    dashboard = (DOCS / "telemetry.dashboard.json").read_text(encoding="utf-8")
    named = set(re.findall(r"\blcp_[a-z_]+", " ".join(_expressions(json.loads(dashboard)))))
    known = {one.on_prometheus for one in FIGURES}
    known |= {
        f"{one.on_prometheus}_{part}"
        for one in FIGURES
        if one.form in ("histogram", "summary")
        for part in ("bucket", "sum", "count")
    }
    assert named
    assert named <= known
    charted = {one for one in FIGURES if any(name.startswith(one.on_prometheus) for name in named)}
    assert charted == {*FIGURES}


def test_the_page_of_the_documentation_names_every_figure() -> None:
    text = (DOCS / "telemetry.md").read_text(encoding="utf-8")
    assert [one.on_prometheus for one in FIGURES if f"`{one.on_prometheus}`" not in text] == []


def _expressions(value: object) -> list[str]:
    if isinstance(value, dict):
        own = [str(value["expr"])] if "expr" in value else []
        return own + [found for one in value.values() for found in _expressions(one)]
    return [found for one in value for found in _expressions(one)] if isinstance(value, list) else []
