"""Work on missions in processes of their own, and keep how much processor time each of them took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from lcp_engine.features.evaluation.json_lines import JsonLines

_LOOK_SECONDS = 0.05


class ProcessorTime:
    """The processor time of each run, in a file with a line for each beginning and each end."""

    def __init__(self, file: Path) -> None:
        self._lines = JsonLines(file)

    def work(self, arguments: Sequence[str], run: str, stopping: Event) -> str | None:
        """Execute `lcp` with these arguments, and interrupt it once it is `stopping`; what it says if it fails."""
        self._lines.add({"run": run})
        child = subprocess.Popen(  # noqa: S603 -- this program
            [sys.executable, "-m", "lcp_engine", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # it is interrupted here, and not by the terminal as well
        )
        assert child.stderr is not None
        with child.stderr as stream:
            said = _Tail(stream.fileno())
            while True:
                ended, status, used = os.wait4(child.pid, os.WNOHANG)
                said.read()
                if ended:
                    break
                if stopping.is_set():
                    child.terminate()
                time.sleep(_LOOK_SECONDS)
        child.returncode = os.waitstatus_to_exitcode(status)
        self._lines.add({"run": run, "cpu_seconds": round(used.ru_utime + used.ru_stime, 3)})
        if child.returncode == 0 or stopping.is_set():
            return None
        return said.last_line or f"its runner ended with {child.returncode}"

    def seconds(self) -> dict[str, float | None]:
        """The sum for each run; None if one of its processes was not measured to its end."""
        found: dict[str, _Sum] = {}
        for line in self._lines.read():
            known = found.setdefault(str(line["run"]), _Sum())
            seconds = line.get("cpu_seconds")
            if isinstance(seconds, int | float):
                known.seconds += seconds
                known.begun -= 1
            else:
                known.begun += 1
        return {run: None if known.begun else known.seconds for run, known in found.items()}


@dataclass
class _Sum:
    seconds: float = 0.0
    begun: int = 0


class _Tail:
    """The end of what a process writes."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor, self._text = descriptor, b""

    def read(self) -> None:
        """Take what there is."""
        try:
            while data := os.read(self._descriptor, 65536):
                self._text = (self._text + data)[-4096:]
        except BlockingIOError:
            pass

    @property
    def last_line(self) -> str:
        lines = self._text.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""
