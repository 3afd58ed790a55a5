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
from lcp_engine.features.notices.on_wait_hook import WaitHook
from lcp_engine.features.notices.settings import Webhook
from lcp_engine.features.notices.webhook import WebhookSender

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


@pytest.mark.parametrize("is_begun_again", [True, False], ids=["by the watchdog", "at the end"])
def test_a_notice_that_gets_no_thread_is_passed_on_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch, *, is_begun_again: bool
) -> None:
    real, refused = threading.Thread.start, list[str]()

    def scarce(thread: threading.Thread) -> None:
        if len(refused) < 1 or not is_begun_again:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        real(thread)

    with Engine(database_url, on_wait=["true"]) as engine:
        hook, called = WaitHook(engine.instance), list[tuple[int, int]]()
        monkeypatch.setattr(hook, "_call", lambda *waits: called.append(waits))
        monkeypatch.setattr(threading.Thread, "start", scarce)
        hook.begin({1: 2, 3: 4})
        hook.begin_left()
        hook.finish()
    assert sorted(called) == [(1, 2), (3, 4)]
    assert refused


def test_a_notice_that_gets_no_process_is_passed_on_later(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(database_url, on_wait=["true"]) as engine:
        hook, called = WaitHook(engine.instance), list[tuple[int, int]]()

        def scarce(*waits: int) -> None:
            called.append((waits[0], waits[1]))
            if len(called) == 1:
                raise BlockingIOError("Resource temporarily unavailable")

        monkeypatch.setattr(hook, "_call", scarce)
        hook.begin({1: 2})
        hook.finish()
    assert called == [(1, 2), (1, 2)]


def test_a_webhook_that_gets_no_thread_is_started_later(
    monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    real, refused = threading.Thread.start, list[str]()

    def scarce(thread: threading.Thread) -> None:
        if not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    with Engine(database_url) as engine:
        sender, sent = (
            WebhookSender(engine.instance, Webhook(url="http://127.0.0.1:9/", secret_env="KEY")),
            list[bool](),
        )
        monkeypatch.setattr(sender, "_send_due", lambda: sent.append(True))
        sender.start()
        assert refused == ["lcp-webhook"]
        sender.start()
        sender.start()
        sender.finish()
    assert sent
