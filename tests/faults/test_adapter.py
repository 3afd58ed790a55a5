"""The adapter of the public benchmark of queues says what its contract demands, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent.parent
METRICS = {"claim_p50_ms", "claim_p95_ms", "claim_p99_ms", "enqueue_rate", "completion_rate", "queue_depth"}


@pytest.mark.proof
def test_the_adapter_keeps_the_contract_of_the_benchmark(postgres_url: str) -> None:
    settings = {"SCENARIO": "long_horizon", "PRODUCER_RATE": "50", "WORKER_COUNT": "2", "SAMPLE_EVERY_S": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.chaos.adapter"],
        cwd=PROJECT, env={**os.environ, **settings, "DATABASE_URL": postgres_url}, stdout=subprocess.PIPE,
    ) as adapter:  # fmt: skip
        assert adapter.stdout is not None
        manifest = json.loads((PROJECT / "benchmarks" / "chaos" / "adapter.json").read_text())
        descriptor = json.loads(adapter.stdout.readline())
        assert (descriptor["kind"], descriptor["system"]) == ("descriptor", manifest["system"])
        assert set(descriptor["event_tables"]) >= set(manifest["event_tables"])
        seen: dict[str, float] = {}
        while set(seen) < METRICS or not seen["completion_rate"]:
            sample = json.loads(adapter.stdout.readline())
            assert {"t", "system", "kind", "subject_kind", "subject", "metric", "value", "window_s"} <= set(
                sample
            )
            seen[sample["metric"]] = sample["value"]
        adapter.send_signal(signal.SIGTERM)
        adapter.stdout.read()
        assert adapter.wait() == 0
    assert set(seen) == METRICS
