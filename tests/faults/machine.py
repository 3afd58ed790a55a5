"""A machine, as a process sees it: its boot, its name, its runtime directory, its mounts and its clock."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

from tests.faults.program import write_clock
from tests.processes import family

PROJECT = Path(__file__).resolve().parent.parent.parent
BOOT = Path("/proc/sys/kernel/random/boot_id")
OURS = ("LCP_", "XDG_")


class Machine:
    """Runs `lcp` in `directory`. Another one than this has a boot, a name and mounts of its own (`other`)."""

    def __init__(
        self, directory: Path, *, other: bool = False, mounts: Mapping[Path, Path] | None = None
    ) -> None:
        self._directory = directory
        self._clock = directory / "clock"
        self._other = other
        self._mounts = dict(mounts or {})
        for part in ("runtime", "data", "config", "state"):
            (directory / part).mkdir(parents=True, mode=0o700)
        if other:
            boot = directory / "boot"
            boot.write_text(f"{uuid.uuid4()}\n")
            self._mounts[BOOT] = boot
        write_clock(self._clock, 0)

    @property
    def runtime(self) -> Path:
        return self._directory / "runtime"

    @property
    def state(self) -> Path:
        return self._directory / "state"

    def configure(self, text: str) -> None:
        """Write the user's configuration file."""
        place = self._directory / "config" / "lcp-engine"
        place.mkdir(exist_ok=True)
        (place / "config.yaml").write_text(text)

    def shift_clock(self, seconds: float, *, monotonic: float = 0.0) -> None:
        """From now on, and for processes to come; `monotonic`: the clock that stands still while a machine sleeps."""
        write_clock(self._clock, seconds, monotonic)

    def start(self, *arguments: str, environment: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
        """Begin a command; what it says is appended to `log`."""
        command = self._inside([sys.executable, "-m", "tests.faults.program", *arguments])
        with log.open("ab") as file:
            return subprocess.Popen(
                command, cwd=PROJECT, env={**self._environment, **environment}, stdin=subprocess.DEVNULL,
                stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def run(
        self, *arguments: str, environment: Mapping[str, str], seconds: float
    ) -> subprocess.CompletedProcess[str]:
        command = self._inside([sys.executable, "-m", "tests.faults.program", *arguments])
        return subprocess.run(
            command, cwd=PROJECT, env={**self._environment, **environment}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip

    @cached_property
    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        return inherited | {
            "XDG_RUNTIME_DIR": str(self.runtime), "XDG_DATA_HOME": str(self._directory / "data"),
            "XDG_CONFIG_HOME": str(self._directory / "config"), "XDG_STATE_HOME": str(self._directory / "state"),
            "LCP_TEST_CLOCK": str(self._clock),
        }  # fmt: skip

    def _inside(self, command: Sequence[str]) -> list[str]:
        if not self._other:
            return list(command)
        mounts = [
            f"mount --bind {shlex.quote(str(ours))} {shlex.quote(str(place))}"
            for place, ours in self._mounts.items()
        ]
        steps = [*mounts, f"hostname {self._directory.name}", 'exec "$@"']
        return [
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-ec",
            "; ".join(steps),
            "sh",
            *command,
        ]


def can_be_another() -> str | None:
    """Why this machine cannot stand for two; None if it can."""
    if shutil.which("unshare") is None:
        return "needs unshare"
    tried = subprocess.run(
        ["unshare", "--mount", "--uts", "sh", "-ec", f"mount --bind /dev/null {BOOT}; hostname other"],
        capture_output=True, check=False,
    )  # fmt: skip
    return None if tried.returncode == 0 else "needs the right to make mounts (root)"


def signal_family(pid: int, number: signal.Signals) -> None:
    """All at about once, as a machine that sleeps or a lost one."""
    for member in family(pid):
        with suppress(ProcessLookupError):
            os.kill(member, number)
