"""Run programs that start processes without end within a limit of their own, so that they cannot harm the machine."""

from __future__ import annotations

import os
import resource
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOST = 3000
"""Processes and threads in a limit: more than the kernel lets one command have; its supervisor may find that late."""
_PLACES = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))


class Limit:
    """At most `MOST` processes: in a control group of their own or, without one, of this user beyond those that run."""

    def __init__(self, group: Path | None, marker: str) -> None:
        self._group = group
        self._marker = marker.encode()

    def enter(self) -> None:
        """Put this process, and all that it starts, below the limit: for `preexec_fn`."""
        if self._group is not None:
            (self._group / "cgroup.procs").write_text(str(os.getpid()))
        else:
            most = MOST + len(list(Path("/proc").glob("[0-9]*/task/*")))
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))

    def chained(self) -> list[int]:
        """The processes that have the marker among their arguments."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                found += [int(file.parent.name)] if self._marker in file.read_bytes() else []
        return found

    def left(self) -> int:
        """How many are there, those that are dead and not reaped included."""
        if self._group is not None:
            return int((self._group / "pids.current").read_text())
        return len(self.chained())

    def was_reached(self) -> bool:
        """Whether a process could not start because of the limit: as if a whole machine were full."""
        return self._group is not None and "max 0" not in (self._group / "pids.events").read_text()

    def end(self) -> None:
        """Kill what is left."""
        if self._group is not None:
            (self._group / "pids.max").write_text("0")
        until = time.monotonic() + 10
        while self.left() and time.monotonic() < until:
            group = [] if self._group is None else (self._group / "cgroup.procs").read_text().split()
            for process in {*self.chained(), *map(int, group)}:
                with suppress(ProcessLookupError):
                    os.kill(process, 9)
        if self._group is not None:
            self._group.rmdir()


@contextmanager
def pids_limit(marker: str) -> Iterator[Limit | None]:
    """A limit of its own for processes with the marker; None if this machine allows none."""
    group = _group()
    if group is None and os.getuid() == 0:  # to root no limit of a user applies
        yield None
        return
    limit = Limit(group, marker)
    try:
        yield limit
    finally:
        limit.end()


def _group() -> Path | None:
    for place in _PLACES:
        group = place / f"lcp-test-{secrets.token_hex(8)}"
        with suppress(OSError):
            group.mkdir()
            try:
                (group / "pids.max").write_text(str(MOST))
            except OSError:
                group.rmdir()
                raise
            return group
    return None


def wait_until(is_so: Callable[[], bool]) -> bool:
    """Whether it is so before long."""
    until = time.monotonic() + 30
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
