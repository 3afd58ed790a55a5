"""The command of `on_wait` leaves nothing behind in its runner."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.runner.on_wait_hook import WaitHook

LARGE = "g" * 200_000
"""More than a pipe holds."""


def test_a_program_in_the_background_that_keeps_stdin_open_holds_no_thread(
    database_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write: JsonValue = {"kind": "write_file", "params": {"rel_path": "a", "content": "a"}}
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": [write]}
    (tmp_path / "root").mkdir()
    left = tmp_path / "pid"
    command = ["sh", "-c", f"exec 3<&0; setsid sleep 60 <&3 & echo $! > {left}"]
    with Engine(database_url) as engine:
        spec: dict[str, JsonValue] = {
            "name": "m", "goal": LARGE, "planner": {"type": "script", "replies": [reply]}
        }  # fmt: skip
        mission = engine.launch(spec, root=tmp_path / "root").id
        engine.work(until_idle=True, kinds=["agent_plan"])
        (waits,) = engine.events(mission, event="mission_waits")
    with Engine(database_url, on_wait=command) as engine:
        hook, before = WaitHook(engine.instance, seconds=0.5), threading.active_count()
        with caplog.at_level(logging.WARNING):
            hook.begin({mission: int(str(waits["seq"]))})
            hook.finish()
        try:
            assert threading.active_count() == before
            assert caplog.messages == []
        finally:
            os.kill(int(left.read_text()), signal.SIGKILL)
