"""Signals while a runner works: the first one drains it, the second one ends it at once."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.patience import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Lcp


def _start_waiting(lcp: Lcp, *arguments: str) -> tuple[subprocess.Popen[str], Path]:
    """A runner that is in the middle of a job, and the file that ends the job."""
    go = lcp.home / "go"
    look = lcp.ask("list_files")
    mission = lcp.mission(lcp.ask("wait_for", path=str(go)), look, lcp.complete)
    if arguments == ("run",):
        process = lcp.start("run", mission, "--root", "root", "--threads", 1)
    else:
        lcp.run("launch", mission, "--root", "root")
        process = lcp.start(*arguments)
    wait_until((lcp.home / "go.started").exists)
    return process, go


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_a_run_after_the_job_under_way(
    lcp_with_plugin: Lcp, number: signal.Signals
) -> None:
    process, go = _start_waiting(lcp_with_plugin, "run")
    process.send_signal(number)
    go.touch()
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "`lcp work --until-idle` continues mission 1" in err
    states = {job["kind"]: job["state"] for job in json.loads(lcp_with_plugin.run("jobs", "--json").out)}
    assert states["wait_for"] == "succeeded"
    assert lcp_with_plugin.run("work", "--until-idle", "-q").code == 0
    assert lcp_with_plugin.run("show", 1, "--json").object["status"] == "completed"
    assert lcp_with_plugin.run("db", "check").code == 0


def test_a_second_interrupt_leaves_at_once_and_loses_nothing(lcp_with_plugin: Lcp) -> None:
    process, go = _start_waiting(lcp_with_plugin, "run")

    # Until the first signal is received, another one is still the first.
    def is_over() -> bool:
        process.send_signal(signal.SIGINT)
        return process.poll() is not None

    wait_until(is_over)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    go.touch()
    assert lcp_with_plugin.run("work", "--until-idle", "-q").code == 0
    assert lcp_with_plugin.run("show", 1, "--json").object["status"] == "completed"
    assert lcp_with_plugin.run("db", "check").code == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_runner_drains(lcp_with_plugin: Lcp, number: signal.Signals, code: int) -> None:
    process, go = _start_waiting(lcp_with_plugin, "work", "--threads", "1", "--json")
    process.send_signal(number)
    go.touch()
    out, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == code
    assert [json.loads(line)["event"] for line in out.splitlines()].count("succeeded") >= 1
