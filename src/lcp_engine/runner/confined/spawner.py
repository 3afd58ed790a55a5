"""Start confined processes for a runner, talk to them, end them."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.channel import Broken, Buffer, Head, Late, Line, number_of
from lcp_engine.sandbox.root import Root

FILE_KINDS: Mapping[str, str] = {
    "list_files": "lcp_engine.workers.list_files:WORKER",
    "read_file": "lcp_engine.workers.read_file:WORKER",
    "write_file": "lcp_engine.workers.write_file:WRITE_FILE",
    "rewrite_file": "lcp_engine.workers.write_file:REWRITE_FILE",
}
"""The kinds that confined processes execute, and where their workers are."""

START_SECONDS = 30.0
_START = (
    "import sys, json; control, parent, paths, kinds = json.loads(sys.argv[1]); sys.path[:] = paths; "
    "from lcp_engine.runner.confined.fork_server import main; main(control, parent, kinds)"
)


class Nursery:
    """The parent of confined processes: a fresh interpreter without environment, descriptors or threads.

    It loads the workers of `kinds` ("module:attribute") once; every child is a fork of it, there in milliseconds.
    `paths` are further places to import from. It ends with this process, and its children with it.
    """

    def __init__(self, kinds: Mapping[str, str] = FILE_KINDS, paths: Sequence[str] = ()) -> None:
        self.kinds = kinds
        self._paths = paths
        self._lock = threading.Lock()
        self._owner = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._inherited: list[object] = []

    def expect(self) -> None:
        """Begin to load, so that the first child does not wait for it."""
        with self._lock:
            self._started()

    def bear(self, root: Root, *, writes: bool, memory: int) -> Child:
        """A process confined to `root`, with at most `memory` bytes. Raises `NOT_ISOLATED`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        wish: Head = {
            "path": root.path,
            "spellings": list(root.spellings),
            "kernel": root.kernel,
            "writes": writes,
            "memory": memory,
        }
        with theirs:
            try:
                with self._lock:
                    pid = self._fork(json.dumps(wish).encode(), theirs.fileno(), root.descriptor)
                child = Child(ours, pid)
            except BaseException:
                ours.close()
                raise
        child.greet()
        return child

    def close(self) -> None:
        """End the process and all its children."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid():
                self._end(self._process)
            self._control = self._process = None

    def _fork(self, wish: bytes, line: int, root: int) -> int:
        for again in (True, False):
            try:
                control = self._started()
                socket.send_fds(control, [wish], [line, root])
                answer, found, _, _ = socket.recv_fds(control, 1, 1)
            except OSError as error:
                answer, found, reason = b"", [], str(error)
            else:
                reason = "it ended"
            if answer:
                return found[0]
            # Somebody ended it, or it could not start: once more is worth it.
            if self._process is not None:
                self._end(self._process)
            self._control = self._process = None
            if not again:
                raise LcpError(
                    ErrorCode.NOT_ISOLATED, f"no process for file kinds could be started: {reason}"
                )
        raise AssertionError

    def _started(self) -> socket.socket:
        if self._control is not None and self._owner == os.getpid():
            return self._control
        # After a fork of this process the other one is the parent's.
        self._inherited += [self._control, self._process]
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        paths = [*(str(Path(place).absolute()) for place in sys.path), *self._paths]
        given = json.dumps([theirs.fileno(), self._owner, paths, dict(self.kinds)])
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 -- our own interpreter and code
                [sys.executable, "-I", "-S", "-X", "utf8", "-c", _START, given],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env={},
                cwd="/",
                start_new_session=True,  # a Ctrl-C is for the runner, which ends it in order
            )
        return self._control

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if self._control is not None:
            self._control.close()
        process.kill()
        process.wait()


class Child:
    """A confined process, as its runner sees it. Each thread has a line of its own."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        self._control = control
        self._first_line = Line(control)
        self._pidfd = pidfd
        self._lines = threading.local()
        self.is_gone = False
        self._end = weakref.finalize(self, _end, control, pidfd)

    def greet(self) -> None:
        """Wait until it is confined. Raises `NOT_ISOLATED`."""
        self._first_line.wait_at_most(START_SECONDS)
        try:
            head, _ = self._first_line.receive()
        except (Broken, Late) as error:
            self.kill()
            reason = "it did not answer" if isinstance(error, Late) else str(error)
        else:
            if head.get("is") == "ready":
                return
            reason = str(head.get("reason"))
        raise LcpError(ErrorCode.NOT_ISOLATED, f"a process for file kinds could not be confined: {reason}")

    def line(self) -> Line:
        """This thread's line. Raises `Broken`."""
        line: Line | None = getattr(self._lines, "own", None)
        if line is None:
            line = self._lines.own = self._call()
        return line

    def exchange(
        self, head: Head, body: Buffer, seconds: float, starts: Callable[[int], object] | None = None
    ) -> tuple[Head, Buffer]:
        """Ask, and wait for the answer. Raises `Broken`, and `Late` after `seconds`.

        With `starts` these are for each of several things, whose places it is given.
        """
        line = self.line()
        try:
            line.wait_at_most(seconds)
            line.send(head, body)
            answer = line.receive()
            while starts is not None and "starts" in answer[0]:
                starts(number_of(answer[0], "starts"))
                answer = line.receive()
        except (Broken, Late):
            self.hang_up()
            raise
        return answer

    def hang_up(self) -> None:
        """Leave this thread's line: what is on it is not waited for any more."""
        line: Line | None = getattr(self._lines, "own", None)
        if line is not None:
            self._lines.own = None
            line.close()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.is_gone = True
        self._end()

    def _call(self) -> Line:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno()])
            except OSError as error:
                ours.close()
                raise Broken(str(error)) from error
        return Line(ours)


def _end(control: socket.socket, pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    control.close()


@cache
def nursery() -> Nursery:
    """The one of this process."""
    one = Nursery()
    atexit.register(one.close)
    return one
