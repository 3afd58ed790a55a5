"""Run the user's command when a mission starts to wait for a person (`on_wait`)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from lcp_engine.engine.instance import Instance
from lcp_engine.engine.points import Chore
from lcp_engine.features.notices.settings import NoticeSettings
from lcp_engine.sandbox.file_access import Shortage, start_thread
from lcp_engine.sandbox.system.kept_descriptors import no_forks
from lcp_engine.store.db.json_text import to_json

if TYPE_CHECKING:
    from lcp_engine.features.notices.notice import Notice

SECONDS = 10.0
# What a program needs to reach its user; everything else may be a secret.
_PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM", "DISPLAY", "WAYLAND_DISPLAY",
     "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)  # fmt: skip


class WaitHook:
    """Runs the `on_wait` of an instance without a shell each time a mission starts to wait; it may take `seconds`.

    Its stdin is the notice as JSON. The first failure of the command is logged as a warning; failures have no other
    effect.
    """

    def __init__(self, instance: Instance, seconds: float = SECONDS) -> None:
        self._instance = instance
        self._command = list(instance.settings(NoticeSettings).on_wait)
        self._seconds = seconds
        self._threads: list[threading.Thread] = []
        self._left: deque[tuple[int, int]] = deque()
        self._warned = threading.Lock()
        self._is_ending = False

    def begin(self, waits: Mapping[int, int]) -> None:
        """Run the command for missions that have started to wait, each with the event that says so, in a thread."""
        self._left.extend(waits.items())
        self.begin_left()

    def begin_left(self) -> None:
        """Run the command for what the system started no thread or process for until now."""
        for _ in range(len(self._left)):
            with suppress(IndexError):  # another thread was faster
                left = self._left.popleft()
                thread = threading.Thread(target=self._run, args=left, daemon=True)
                try:
                    start_thread(thread)
                except Shortage:
                    self._left.append(left)
                    return
                self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def finish(self) -> None:
        """Wait for the commands under way; what still got no thread is run in this one."""
        for thread in self._threads:
            thread.join(self._seconds + 1)
        self._is_ending = True
        while self._left:
            self._run(*self._left.popleft())

    def _run(self, mission_id: int, seq: int) -> None:
        try:
            fact = self._call(mission_id, seq)
        except BlockingIOError as error:  # the system starts no further process
            fact = str(error) if self._is_ending else None
            if not self._is_ending:
                self._left.append((mission_id, seq))
        except Exception as error:  # noqa: BLE001  # the top of a thread: a failed hook must not stop the work
            fact = str(error)
        if fact is not None and self._warned.acquire(blocking=False):
            logging.getLogger("lcp_engine").warning("on_wait (%s): %s", self._command[0], fact)

    def _call(self, mission_id: int, seq: int) -> str | None:
        """Fault of the command; None if it succeeded."""
        from lcp_engine.features.notices.composed_notice import compose_notice  # not without a command

        notice = compose_notice(self._instance, mission_id, seq)
        said = to_json(notice.as_json()).encode()
        with no_forks():
            called = subprocess.Popen(  # noqa: S603  # the user's own command
                self._command, env=_environment(notice), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            called.communicate(said + b"\n", self._seconds)
        except subprocess.TimeoutExpired:
            # What it has left in the background may hold its stdin, and read nothing.
            if called.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(called.pid, signal.SIGKILL)
                called.wait()
                return f"it did not end within {self._seconds:g} s and was killed"
        finally:
            with suppress(OSError):
                if called.stdin is not None:
                    called.stdin.close()
        code = called.returncode
        return None if code == 0 else f"it exited with {code}; 0 was expected"


def _environment(notice: Notice) -> dict[str, str]:
    passed = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")}
    mission = notice.mission
    about = {"LCP_MISSION": mission.id, "LCP_MISSION_NAME": mission.name, "LCP_HELD": notice.held}
    return passed | {name: str(value) for name, value in about.items()}


def chores(instance: Instance, runner_id: int, is_stopping: Callable[[], bool]) -> Iterator[Chore]:
    """The user's command, and the webhook, each if there is one."""
    settings = instance.settings(NoticeSettings)
    if settings.on_wait:
        hook = WaitHook(instance)
        yield Chore(name="on_wait", do=hook.begin_left, finish=hook.finish, told=hook.begin)
    if settings.webhook is not None:
        from lcp_engine.features.notices.webhook import WebhookSender

        sender = WebhookSender(instance, settings.webhook)
        yield Chore(name="webhook", do=sender.start, is_first=True, finish=sender.finish, told=sender.hear)
