"""Run programs in namespaces: as root, as the owner of the root, and as an ordinary user."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from lcp_engine.features.programs.wall.bubblewrap import Bubblewrap, find_bubblewrap, packaged
from lcp_engine.features.programs.wall.programs import Bounds, CannotConfine, Ended, Program, supervise
from lcp_engine.features.programs.wall.views.view import Bind, Overlay, View

NOBODY = 65534
FOUND = find_bubblewrap()
TOOLS = [found for found in (FOUND, find_bubblewrap(packaged())) if isinstance(found, Bubblewrap)]
"""The system's, and that of the package, where they are there."""
USERS = ["root", "owner", "ordinary"] if os.geteuid() == 0 else ["ordinary"]
"""Root as root, root that runs programs as the owner of the root, and an ordinary user."""
EACH_USER = [pytest.param(one, marks=[] if one == "ordinary" else [pytest.mark.proof]) for one in USERS]
"""All of them for a test that shows a rule with each: those besides the ordinary user are proofs."""
SECONDS = 60
_DUMPABLE = 4  # PR_SET_DUMPABLE


@dataclass(frozen=True)
class Place:
    """A directory with a root, and what an overlay of it needs beside it."""

    base: Path
    user: str = "ordinary"
    tool: Bubblewrap | None = None

    @classmethod
    def made(cls, base: Path, user: str, tool: Bubblewrap | None = None) -> Place:
        place = cls(base, user, tool)
        for name in ("root", "mask", "up", "work"):
            (base / name).mkdir(parents=True, exist_ok=True)
        place.give()
        return place

    @property
    def root(self) -> Path:
        return self.base / "root"

    @property
    def up(self) -> Path:
        return self.base / "up"

    def give(self) -> None:
        """Give all of it to the user that programs run as."""
        if os.geteuid() == 0 and self.user != "root":
            for one in (self.base, *self.base.rglob("*")):
                os.chown(one, NOBODY, NOBODY, follow_symlinks=False)

    def overlay(self) -> View:
        overlay = Overlay(
            str(self.root), (str(self.root), str(self.base / "mask")), str(self.up), str(self.base / "work")
        )
        return View((overlay,), user=(NOBODY, NOBODY) if self.user == "owner" else None)

    def copy(self) -> View:
        bind = Bind(str(self.root), str(self.root), writable=True)
        return View(binds=(bind,), user=(NOBODY, NOBODY) if self.user == "owner" else None)

    def program(
        self,
        *command: str,
        view: View | None = None,
        bounds: Bounds | None = None,
        readable: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> Program:
        return Program(
            command[0],
            command,
            str(self.root),
            {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp/home", "LANG": "C.UTF-8"},
            (),
            readable,
            hidden,
            bounds or Bounds(seconds=SECONDS),
            view=view or self.overlay(),
            tool=self.tool,
        )

    def shell(
        self,
        script: str,
        *,
        view: View | None = None,
        bounds: Bounds | None = None,
        readable: Sequence[str] = (),
        hidden: Sequence[str] = (),
    ) -> Ended:
        program = self.program(
            "/bin/sh", "-c", script, view=view, bounds=bounds, readable=readable, hidden=hidden
        )
        return ended(program, self.user)

    def python(self, script: str, *, view: View | None = None, bounds: Bounds | None = None) -> Ended:
        return ended(self.program("/usr/bin/python3", "-c", script, view=view, bounds=bounds), self.user)


def ended(program: Program, user: str, before: Callable[[], object] | None = None) -> Ended:
    """Run a program in a process of its own, as a runner does; raises what `supervise` raises."""
    found = supervised(program, user, before).wait()
    match found:
        case {"is": "ended", **said}:
            stdout, stderr = (str(said[name]).encode("latin-1") for name in ("stdout", "stderr"))
            return Ended(
                **{**said, "stdout": stdout, "stderr": stderr},  # type: ignore[arg-type]  # of JSON
            )
        case {"is": "refused", "reason": str(reason)}:
            raise CannotConfine(reason)
        case {"is": "failed", "errno": int(number), "reason": str(reason)}:
            raise OSError(number, reason)
        case other:
            raise AssertionError(other)


@dataclass(frozen=True)
class Supervised:
    """The process that supervises a program; it ends the program once `other_side` is closed."""

    pid: int
    answer: int
    other_side: socket.socket

    def wait(self) -> dict[str, object]:
        said = b""
        while piece := os.read(self.answer, 65536):
            said += piece
        os.close(self.answer)
        os.waitpid(self.pid, 0)
        self.other_side.close()
        found: dict[str, object] = json.loads(said or b'{"is": "died"}')
        return found


def supervised(program: Program, user: str, before: Callable[[], object] | None = None) -> Supervised:
    """Begin to supervise in a fork, which calls `before`; an ordinary user is one that root becomes for it."""
    ours, theirs = socket.socketpair()
    answer, say = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            if before is not None:
                before()
            if user == "ordinary" and os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                ctypes.CDLL(None).prctl(_DUMPABLE, 1)  # as for a program that this user executed
            os.write(say, json.dumps(_said(program, theirs)).encode())
        finally:
            os._exit(0)
    theirs.close()
    os.close(say)
    return Supervised(pid, answer, ours)


def _said(program: Program, end: socket.socket) -> dict[str, object]:
    try:
        found = supervise(program, end.fileno())
    except CannotConfine as error:
        return {"is": "refused", "reason": str(error)}
    except OSError as error:
        return {"is": "failed", "errno": error.errno, "reason": error.strerror}
    return {
        "is": "ended",
        "exit_code": found.exit_code,
        "signal": found.signal,
        "stopped": found.stopped,
        "stdout": found.stdout.decode("latin-1"),
        "stderr": found.stderr.decode("latin-1"),
        "is_out_of_memory": found.is_out_of_memory,
        "cpu_seconds": found.cpu_seconds,
    }
