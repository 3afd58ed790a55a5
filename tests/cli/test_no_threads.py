"""A command that works waits for the thread of its runner, and says so."""

from __future__ import annotations

import signal
import threading

import pytest

from lcp_engine import Engine
from lcp_engine.cli.console import signals


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_runner_whose_thread_is_refused_begins_later_unless_it_is_stopped(
    database_url: str, monkeypatch: pytest.MonkeyPatch, *, is_stopped: bool
) -> None:
    real, said, refused = threading.Thread.start, list[str](), list[str]()
    monkeypatch.setattr(signals, "MOST_POLL_SECONDS", 0.01)
    interrupts = signals.Interrupts()

    def scarce(thread: threading.Thread) -> None:
        if thread.name == "lcp-runner" and (is_stopped or len(refused) < 3):
            refused.append(thread.name)
            if is_stopped:
                interrupts.receive(signal.SIGTERM, None)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with Engine(database_url) as engine:
        signals.work(engine.runner(until_idle=True), interrupts, lambda: False, said.append)
    (said_once,) = said
    assert said_once.startswith(
        "the system starts no further process or thread: can't start new thread; this runner"
    )
    assert len(refused) == (1 if is_stopped else 3)
