"""`lcp work` answers on its port while it works, and logs in JSON."""

from __future__ import annotations

import json
import logging
import re
import subprocess
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.features.telemetry.conftest import Site
from tests.loaded_python import Python

from lcp_engine.features.telemetry.figures import RUNNERS
from lcp_engine.features.telemetry.log import MOST_OF_TRACEBACK, logging_json
from lcp_engine.features.telemetry.spans import span_id, trace_id


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
    assert f"\n{RUNNERS.on_prometheus} " in answers["/metrics"]
    assert process.returncode == 0


def test_progress_is_logged_with_the_ids_of_the_spans(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    mission = site.engine.mission(site.run(("read_file", {"rel_path": "none.md"})))
    with logging_json(site.engine) as log:
        log.show(site.engine.events(mission.id))
        log.note("working")
        logging.getLogger("lcp_engine").warning("root %s does not answer", "/srv")
    logging.getLogger("lcp_engine").warning("this is no JSON")
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    events, [note, warning] = lines[:-2], lines[-2:]
    assert {one["trace_id"] for one in events} == {f"{trace_id(mission.uid):032x}"}
    assert events[0]["span_id"] == f"{span_id(mission.uid):016x}"
    [failed] = [one for one in events if one["message"] == "failed"]
    assert failed["span_id"] == f"{span_id(mission.uid, failed['job'], 1):016x}"
    assert (failed["kind"], failed["attempt"]) == ("read_file", 1)
    assert (note["message"], warning["message"]) == ("working", "root /srv does not answer")
    assert warning["level"] == "warning"


def test_words_of_people_are_not_logged(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    mission = site.run(("write_file", {"rel_path": "b.md", "content": "b"}))
    site.engine.say(mission, "Very secret words.")
    with logging_json(site.engine) as log:
        log.show(site.engine.events(mission))
    told = capfd.readouterr().err
    assert '"said"' in told
    assert "secret words" not in told


def test_a_line_with_other_args_than_its_words_ends_nothing(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    record = logging.LogRecord("another", logging.WARNING, "", 0, "%d files", ("some",), None)
    with logging_json(site.engine):
        logging.getLogger().handlers[-1].handle(record)
    assert [json.loads(line)["message"] for line in capfd.readouterr().err.splitlines()] == ["%d files"]


def test_a_traceback_is_logged_with_its_line_and_without_keys(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    with logging_json(site.engine):
        try:
            raise ValueError(f"not with sk-{'a1B2' * 8}")
        except ValueError:
            logging.getLogger("lcp_engine").exception("it broke")
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert line["exception"].startswith("Traceback")
    assert "ValueError: not with" in line["exception"]
    assert "a1B2a1B2" not in line["exception"]


def test_of_a_key_at_the_cut_of_a_long_traceback_nothing_is_left(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    with logging_json(site.engine):
        try:
            raise ValueError(f"sk-{'a1B2' * 8} {'.' * (MOST_OF_TRACEBACK - 20)}")
        except ValueError:
            logging.getLogger("lcp_engine").exception("it broke")
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert len(line["exception"]) == MOST_OF_TRACEBACK
    assert "a1B2" not in line["exception"]
