"""A mission is one trace, whichever processes work on it, and no exporter holds anything up."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode
from tests.features.telemetry.conftest import Site

from lcp_engine import Engine, ErrorCode, LcpError
from lcp_engine.features.telemetry import names, spans
from lcp_engine.features.telemetry.spans import Teller, span_id, trace_id
from lcp_engine.features.telemetry.store import TracedMission

DOCS = Path(__file__).resolve().parents[3] / "docs"


class Told:
    """What reached an exporter."""

    def __init__(self, site: Site, exporter: SpanExporter | None = None, **provider: object) -> None:
        self.site = site
        self.memory = InMemorySpanExporter()
        self.provider = TracerProvider(**provider)  # type: ignore[arg-type]
        self.provider.add_span_processor(SimpleSpanProcessor(exporter or self.memory))

    def teller(self, engine: Engine, runner_id: int, *, with_content: bool = False) -> Teller:
        tracer = self.provider.get_tracer("test")
        return Teller(engine.instance, runner_id, tracer, with_content=with_content)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.memory.get_finished_spans()

    def named(self, start: str) -> list[ReadableSpan]:
        return [one for one in self.spans if one.name.startswith(start)]


@pytest.fixture
def provider(site: Site, monkeypatch: pytest.MonkeyPatch) -> Told:
    """A process that has set OpenTelemetry up."""
    told = Told(site)
    monkeypatch.setattr(spans, "_tracer", lambda: told.provider.get_tracer("test"))
    return told


def _attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_mission_is_one_trace_with_a_span_for_each_attempt(site: Site, provider: Told) -> None:
    mission = site.engine.mission(
        site.run(("read_file", {"rel_path": "a.md"}), ("read_file", {"rel_path": "none.md"}))
    )
    [root] = provider.named("invoke_agent")
    assert {one.context.trace_id for one in provider.spans if one.context} == {trace_id(mission.uid)}
    assert {one.parent.span_id for one in provider.spans if one.parent} == {span_id(mission.uid)}
    assert root.context is not None
    assert (root.context.span_id, root.parent) == (span_id(mission.uid), None)
    assert [one.name for one in provider.named("chat")] == ["chat script"] * 2
    assert {one.kind for one in provider.named("chat")} == {SpanKind.CLIENT}
    right, wrong = sorted(
        provider.named("execute_tool read_file"), key=lambda one: one.status.status_code.value
    )
    assert wrong.status.status_code is StatusCode.ERROR
    assert _attributes(wrong)[names.ERROR] == "PATH_NOT_FOUND"
    assert _attributes(right)[names.TOOL] == "read_file"
    job = site.engine.jobs(kinds=["read_file"])[0]
    assert _attributes(right)[names.JOB] == job.id
    known = {one.name for one in names.NAMES}
    assert {name for one in provider.spans for name in _attributes(one)} <= known
    assert all(one.start_time and one.end_time and one.start_time <= one.end_time for one in provider.spans)
    assert _attributes(root)[names.OUTCOME] == "mission_complete"


@pytest.mark.both
def test_the_trace_goes_on_in_another_process_and_nothing_is_told_twice(site: Site, provider: Told) -> None:
    held = site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    assert not provider.named("invoke_agent")
    with Engine(site.url) as other:
        [job] = other.jobs(states=["held"])
        other.approve(job.id)
        other.work(until_idle=True)
    ids = [one.context.span_id for one in provider.spans if one.context]
    assert len(ids) == len(set(ids)) == 4
    assert {one.context.trace_id for one in provider.spans if one.context} == {
        trace_id(site.engine.mission(held).uid)
    }
    assert len(provider.named("invoke_agent")) == 1


def test_a_mission_that_a_person_ends_is_told_by_the_runner_that_worked_on_it_last(site: Site) -> None:
    told = Told(site)
    mission = site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    [(runner,)] = site.engine.instance.database.read(lambda tx: tx.query_plain("SELECT max(id) FROM runners"))
    tellers = [told.teller(site.engine, one) for one in (runner, runner + 1)]
    for teller in tellers:
        teller._since = 0
    site.pass_time(1)
    tellers[0]._tell(site.now())
    site.engine.cancel(mission)
    site.pass_time(1)
    for teller in tellers:
        teller._tell(site.now())
        teller._tell(site.now() + 1)
    [root] = told.named("invoke_agent")
    assert root.status.status_code is StatusCode.ERROR
    assert _attributes(root)[names.OUTCOME] == "cancelled"


def test_what_could_not_be_read_is_told_in_the_next_round(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.run(("read_file", {"rel_path": "a.md"}))
    told = Told(site)
    teller = told.teller(site.engine, 1)
    teller._since = 0

    def away(*_: object) -> list[TracedMission]:
        raise LcpError(ErrorCode.DATABASE_BUSY, "the database is away")

    with monkeypatch.context() as patched:
        patched.setattr(spans, "read_missions", away)
        with pytest.raises(LcpError, match="is away"):
            teller._tell(site.now() + 1)
    assert not told.spans
    teller._tell(site.now() + 1)
    assert told.named("execute_tool")


def test_what_comes_at_once_in_large_numbers_is_left_out_and_said(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, cut = Told(site), list[bool]()
    monkeypatch.setattr(spans._Histograms, "note_round", lambda self, *, is_cut: cut.append(is_cut))
    monkeypatch.setattr(spans, "MOST_SPANS", 3)
    site.run(("read_file", {"rel_path": "a.md"}), ("read_file", {"rel_path": "b.md"}))
    teller = told.teller(site.engine, 1)
    teller._since = 0
    teller._tell(site.now() + 1)
    assert cut == [True]
    assert len(told.spans) == 3 + 1
    assert told.named("invoke_agent")


def test_contents_are_told_only_where_they_are_asked_for_and_without_keys(
    site: Site, monkeypatch: pytest.MonkeyPatch, provider: Told
) -> None:
    key = "sk-ABCDEFGHIJKLMNOPQRSTUVWX"
    site.run(
        ("write_file", {"rel_path": "b.md", "content": f"key {key}"}), policy=[{"kinds": ["*"], "do": "auto"}]
    )
    assert "content" not in str([_attributes(one) for one in provider.spans])
    provider.memory.clear()
    monkeypatch.setenv(spans.CONTENT, "true")
    site.run(
        ("write_file", {"rel_path": "c.md", "content": f"key {key}"}), policy=[{"kinds": ["*"], "do": "auto"}]
    )
    [job] = provider.named("execute_tool")
    assert '"content": "key …"' in str(_attributes(job)[names.ARGUMENTS]).replace('":"', '": "')
    assert key not in str([_attributes(one) for one in provider.spans])
    assert "write_file" in str(_attributes(provider.named("chat")[0])[names.OUTPUT_MESSAGES])


def test_a_sampler_decides_about_whole_missions(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(site, sampler=ParentBased(TraceIdRatioBased(0.5)))
    monkeypatch.setattr(spans, "_tracer", lambda: told.provider.get_tracer("test"))
    for _ in range(8):
        site.run(("read_file", {"rel_path": "a.md"}))
    found = {one.context.trace_id for one in told.spans if one.context}
    assert 0 < len(found) < 8
    assert len(told.spans) == 4 * len(found)


class _Stuck(SpanExporter):
    """An exporter that hangs."""

    def __init__(self) -> None:
        self.goes_on, self.is_called = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_called.set()
        self.goes_on.wait()
        return SpanExportResult.SUCCESS


class _Broken(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("no collector")


def test_an_exporter_that_hangs_holds_no_mission_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = _Stuck()
    told = Told(site, stuck)
    monkeypatch.setattr(spans, "_tracer", lambda: told.provider.get_tracer("test"))
    monkeypatch.setattr(spans, "END_SECONDS", 0.1)
    mission = site.run(("read_file", {"rel_path": "a.md"}))
    assert stuck.is_called.wait(60)
    assert site.engine.mission(mission).status == "completed"
    stuck.goes_on.set()


def test_an_exporter_that_raises_ends_no_runner(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(site, _Broken())
    monkeypatch.setattr(spans, "_tracer", lambda: told.provider.get_tracer("test"))
    mission = site.run(("read_file", {"rel_path": "a.md"}))
    assert site.engine.mission(mission).status == "completed"


def test_without_opentelemetry_in_the_process_nothing_of_it_is_imported(tmp_path: Path) -> None:
    program = """
import sys
from lcp_engine import Engine
with Engine(f"sqlite:///{sys.argv[1]}/lcp.db") as engine:
    engine.launch({"goal": "a", "planner": {"type": "script", "replies": []}}, root=sys.argv[1])
    engine.work(until_idle=True)
print([name for name in sys.modules if "opentelemetry" in name or name.endswith("telemetry.spans")])
"""
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def test_the_page_of_the_documentation_has_the_table_of_names() -> None:
    text = (DOCS / "telemetry.md").read_text(encoding="utf-8")
    rows = [f"| `{one.name}` | {one.version} | {one.of} | {one.meaning} |" for one in names.NAMES]
    assert [row for row in rows if row not in text] == []
