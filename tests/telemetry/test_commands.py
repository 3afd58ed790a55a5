"""`lcp work` answers on its port while it works."""

from __future__ import annotations

import re
import subprocess
from http.client import HTTPConnection
from pathlib import Path

from tests.loaded_python import Python

from lcp_engine.features.telemetry.figures import RUNNERS


def test_a_runner_answers_on_its_port(tmp_path: Path) -> None:
    process = Python(
        "-m", "lcp_engine", "--db", f"sqlite:///{tmp_path}/lcp.db", "work", "--health", "0",
        cwd=tmp_path, env={"HOME": str(tmp_path)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        assert process.stderr is not None
        told = next(line for line in process.stderr if "health and figures are on" in line)
        found = re.search(r"127\.0\.0\.1:(\d+)", told)
        assert found
        answers = {}
        for path in ("/healthz", "/readyz", "/metrics"):
            connection = HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
            connection.request("GET", path)
            answers[path] = connection.getresponse().read().decode()
        process.terminate()
        process.communicate(timeout=60)
    assert answers["/healthz"] == "ok\n"
    assert f"\n{RUNNERS.on_prometheus} 1\n" in answers["/metrics"] or "none is alive" in answers["/readyz"]
    assert process.returncode == 0
