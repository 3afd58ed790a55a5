"""A mission whose runner is killed is one trace all the same, and nothing of it is told twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import wait_until

from lcp_engine import Engine
from lcp_engine.features.telemetry.spans import span_id, trace_id

PROGRAM = """
import json, sys, time
from pathlib import Path
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from pydantic import BaseModel
from lcp_engine import Engine, Worker

url, place = sys.argv[1], Path(sys.argv[2])

class Nothing(BaseModel):
    pass

class ToFile(SpanExporter):
    def export(self, spans):
        with (place / "spans").open("a") as file:
            for one in spans:
                context = one.get_span_context()
                file.write(json.dumps([one.name, context.trace_id, context.span_id]) + "\\n")
        return SpanExportResult.SUCCESS

def wait(params, context):
    if not (place / "begun").exists():
        (place / "begun").touch()
        time.sleep(600)
    return Nothing()

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ToFile()))
trace.set_tracer_provider(provider)
with Engine(url, workers=[Worker("wait", Nothing, Nothing, wait, has_effects=False)]) as engine:
    if not engine.missions():
        asks = {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "wait", "params": {}}]}
        done = {"ok": True, "action": "mission_complete", "summary": "done"}
        planner = {"type": "script", "replies": [asks, done]}
        engine.launch({"goal": "Wait.", "planner": planner}, root=place / "root")
    engine.work(until_idle=True)
"""


@pytest.mark.proof
def test_a_killed_runner_takes_only_its_own_last_spans_with_it(
    emptied_database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    command = [sys.executable, "-c", PROGRAM, emptied_database_url, str(tmp_path)]
    with subprocess.Popen(command) as killed:
        wait_until((tmp_path / "begun").exists)
        killed.kill()
    subprocess.run(command, check=True, timeout=120)
    told = [json.loads(line) for line in (tmp_path / "spans").read_text().splitlines()]
    with Engine(emptied_database_url) as engine:
        (mission,) = engine.missions()
        (job,) = engine.jobs(kinds=["wait"])
    assert {trace for _, trace, _ in told} == {trace_id(mission.uid)}
    spans = {span: name for name, _, span in told}
    assert len(spans) == len(told)
    assert spans[span_id(mission.uid)] == "invoke_agent mission"
    assert spans[span_id(mission.uid, job.id, 2)] == "execute_tool wait"
    assert span_id(mission.uid, job.id, 1) not in spans
