"""Answer the calls of a confined program that wait for its supervisor, one at a time and without blocking."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from lcp_engine.features.programs.wall.caller import Caller, CallerGone, OwnedPlaces
from lcp_engine.features.programs.wall.layers.metadata import change_metadata
from lcp_engine.features.programs.wall.network.unix_sockets import Connections
from lcp_engine.sandbox.system.seccomp import OF_FILES, OF_PROCESSES, Notice, Notices

_SOON_SECONDS = 0.005
_MOST_PARENTS = 1000


class SupervisedCalls:
    """The calls of a program that owns some directories, carried out for it or refused."""

    def __init__(self, owned: Sequence[str]) -> None:
        self._owned = OwnedPlaces(owned)
        self._connections = Connections(self._owned)

    def carry_out(self, notices: Notices, notice: Notice) -> None:
        """Do what a call asks for, and answer it. Every other call than those that are known is EPERM."""
        caller = Caller(notice.thread, lambda: notices.is_waiting(notice))
        try:
            if notice.call in OF_FILES:
                change_metadata(notice, caller, self._owned)
                notices.answer(notice)
            elif notice.call == "connect":
                self._connections.connect(notices, notice, caller)
            elif notice.call in OF_PROCESSES and _is_ours(_process(notice)):
                notices.let_go_on(notice)  # its arguments are in registers, which nobody else can change
            else:
                notices.answer(notice, errno.EPERM)
        except CallerGone:
            return
        except OSError as error:
            notices.answer(notice, error.errno or errno.EPERM)

    def try_again(self, notices: Notices) -> None:
        """Go on with what had to wait."""
        self._connections.try_again(notices)

    def rest(self, seconds: float) -> float:
        """Seconds until `try_again` is due, of `seconds` at most."""
        return min(seconds, _SOON_SECONDS) if self._connections.are_waiting else seconds

    def close(self) -> None:
        """Close the directories; every call is refused then."""
        self._owned.close()


def _process(notice: Notice) -> int:
    """The process or thread that a call names."""
    return notice.arguments[1 if notice.call in ("setpriority", "ioprio_set") else 0] & 0xFFFFFFFF


def _is_ours(process: int) -> bool:
    """True for a process or thread that this process, or one that it has started, has started."""
    here = os.getpid()
    for _ in range(_MOST_PARENTS):
        parent = _parent(process)
        if parent == here:
            return process != here
        if parent is None or parent <= 1:
            return False
        process = parent
    return False


def _parent(process: int) -> int | None:
    try:
        status = Path(f"/proc/{process}/status").read_text(errors="replace")
    except (OSError, ValueError):
        return None
    found = [line.partition(":")[2] for line in status.splitlines() if line.startswith("PPid:")]
    return int(found[0]) if found else None
