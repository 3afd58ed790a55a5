"""The adapters of one cell: real processes that share a database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.setting import PROJECT

PATIENCE = 120.0


class Fleet:
    """Starts `replicas` adapters; a context manager. Their files are in `directory`."""

    def __init__(self, directory: Path, replicas: int, settings: Mapping[str, str]) -> None:
        self._directory = directory
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._replicas = replicas

    def __enter__(self) -> Self:
        for number in range(self._replicas):
            self.start(number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, number: int) -> None:
        environment = {
            **os.environ, **self._settings, "BENCH_INSTANCE_ID": str(number),
            "LCP_BENCH_ACKNOWLEDGED": str(self._acknowledged),
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.chaos.adapter"]
        with (self._directory / "errors").open("ab") as errors, self._output(number).open("wb") as output:
            self._processes[number] = subprocess.Popen(
                command,
                cwd=PROJECT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )

    def restart(self, number: int) -> None:
        """Start it again, and wait until it works: how long Python takes to start is not a figure of recovery."""
        self.start(number)
        began = time.monotonic()
        while b"descriptor" not in self._output(number).read_bytes() and time.monotonic() - began < PATIENCE:
            time.sleep(0.05)

    def signal(self, number: int, what: signal.Signals) -> None:
        self._processes[number].send_signal(what)
        if what is signal.SIGKILL:
            self._processes[number].wait()

    def end(self) -> float:
        """Ask all to end; how many seconds the last one took."""
        began = time.monotonic()
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
        return time.monotonic() - began

    def ended_badly(self) -> list[int]:
        """The exit codes of adapters that have ended by themselves, or not as they should."""
        codes = [process.poll() for process in self._processes.values()]
        return [code for code in codes if code not in (None, 0)]

    @property
    def acknowledged(self) -> list[int]:
        """The ids of jobs that were acknowledged; a line that a kill cut off is not counted."""
        text = self._acknowledged.read_text() if self._acknowledged.exists() else ""
        return [int(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    @property
    def said(self) -> str:
        """What they said on stderr."""
        file = self._directory / "errors"
        return file.read_text() if file.exists() else ""

    def _output(self, number: int) -> Path:
        return self._directory / f"samples-{number}"

    @property
    def _acknowledged(self) -> Path:
        return self._directory / "acknowledged"
