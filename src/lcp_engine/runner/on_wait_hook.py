"""Run the user's command when a mission starts to wait for a person (`on_wait`)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress

from lcp_engine.sandbox.kept_descriptors import no_forks
from lcp_engine.store.db.database import Database
from lcp_engine.store.queries.history import find_mission

SECONDS = 10.0
# What a program needs to reach its user; everything else may be a secret.
_PASSED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM", "DISPLAY", "WAYLAND_DISPLAY",
     "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
)  # fmt: skip


class WaitHook:
    """Runs `command` without a shell each time a mission starts to wait; it may take `seconds`.

    The first failure of the command is logged as a warning; failures have no other effect.
    """

    def __init__(self, database: Database, command: Sequence[str], seconds: float = SECONDS) -> None:
        self._database = database
        self._command = list(command)
        self._seconds = seconds
        self._threads: list[threading.Thread] = []
        self._warned = threading.Lock()

    def begin(self, mission_ids: Iterable[int]) -> None:
        """Run the command for missions that have started to wait, each in a thread."""
        for mission_id in mission_ids:
            thread = threading.Thread(target=self._run, args=(mission_id,), daemon=True)
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]
            thread.start()

    def finish(self) -> None:
        """Wait for the commands under way."""
        for thread in self._threads:
            thread.join(self._seconds + 1)

    def _run(self, mission_id: int) -> None:
        try:
            fact = self._call(mission_id)
        except Exception as error:  # noqa: BLE001  # the top of a thread: a failed hook must not stop the work
            fact = str(error)
        if fact is not None and self._warned.acquire(blocking=False):
            logging.getLogger("lcp_engine").warning("on_wait (%s): %s", self._command[0], fact)

    def _call(self, mission_id: int) -> str | None:
        """What is wrong with the command; None if it succeeded."""
        environment = self._environment(mission_id)
        with no_forks():
            called = subprocess.Popen(  # noqa: S603  # the user's own command
                self._command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        try:
            code = called.wait(self._seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(called.pid, signal.SIGKILL)
            called.wait()
            return f"it did not end within {self._seconds:g} s and was killed"
        return None if code == 0 else f"it exited with {code}; 0 was expected"

    def _environment(self, mission_id: int) -> dict[str, str]:
        mission = self._database.read(lambda tx: find_mission(tx, mission_id))
        counts = mission["jobs"]
        held = counts.get("held") if isinstance(counts, dict) else 0
        passed = {
            name: value for name, value in os.environ.items() if name in _PASSED or name.startswith("LC_")
        }
        about = {"LCP_MISSION": mission_id, "LCP_MISSION_NAME": mission["name"], "LCP_HELD": held}
        return passed | {name: str(value) for name, value in about.items()}
