"""Start confined processes for a runner, exchange messages with them, end them."""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.plug_ins import import_paths
from lcp_engine.runner.confined.channel import (
    FORKED,
    MOST_SAID,
    Answer,
    Buffer,
    Channel,
    Disconnected,
    Duty,
    Head,
    Message,
    TimedOut,
    number_of,
)
from lcp_engine.sandbox.file_access import Shortage
from lcp_engine.sandbox.root import Root
from lcp_engine.sandbox.system.kept_descriptors import no_forks
from lcp_engine.workers.registry import BUILT_IN

FILE_KINDS: Mapping[str, str] = {
    kind: worker.confined for kind, worker in BUILT_IN.items() if worker.confined is not None
}
"""The kinds that confined processes execute, and where their workers are."""

START_SECONDS = 30.0
BIRTHS = 5
"""How many processes may die before they are ready until a start is given up."""
BIRTH_PAUSE = 0.05
"""Seconds before the second try; each further one waits twice as long."""
_START = (
    "import sys, json; control, parent, paths, *given = json.loads(sys.argv[1]); sys.path[:] = paths; "
    "from lcp_engine.runner.confined.server import main; main(control, parent, *given)"
)


class ForkRefused(Disconnected):
    """The system starts no further process."""


class Spawner:
    """The runner's side of the fork server: a fresh interpreter without environment, descriptors or threads.

    It loads the workers of `kinds` ("module:attribute") once; every confined process is a fork of it, which takes
    milliseconds. `paths` are further places to import from. It ends with this process, and its forks with it.

    With `program`, a module of ours that is slow to load, it loads that instead; nothing from the current directory.
    """

    def __init__(
        self, kinds: Mapping[str, str] = FILE_KINDS, paths: Sequence[str] = (), program: str | None = None
    ) -> None:
        self.kinds = kinds if program is None else {}
        self._paths = paths
        self._program = program
        self._lock = threading.Lock()
        self._owner = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._inherited: list[object] = []

    def start(self) -> None:
        """Start the fork server, so that the first confined process need not wait until it has loaded its code."""
        with self._lock:
            try:
                self._started()
            except BlockingIOError:  # fork(2): who needs it tries again
                self._forget_server()

    def spawn(self, root: Root, duty: Duty, memory: int, *, confined: bool = True) -> ConfinedProcess:
        """A process with at most `memory` bytes, confined to `root` unless that is switched off.

        One that dies before it is ready is started again, a few times. Raises `Shortage` if the system starts no
        process, `WORKER_DIED` if all of them died or one was not ready in time, and `NOT_ISOLATED` only if the kernel
        refuses to confine it.
        """
        for nth in count(1):
            try:
                return self._spawn(root, duty, memory, confined=confined)
            except TimedOut as error:
                message = f"a process for file kinds was not ready within {START_SECONDS:g} s, and was ended"
                raise LcpError(ErrorCode.WORKER_DIED, message) from error
            except Disconnected as error:
                if nth == BIRTHS and isinstance(error, ForkRefused):
                    raise Shortage.because(error) from error
                if nth == BIRTHS:
                    message = f"{nth} processes for file kinds died before they were ready: {error}"
                    raise LcpError(ErrorCode.WORKER_DIED, message) from error
            time.sleep(BIRTH_PAUSE * 2**nth)
        raise AssertionError

    def _spawn(self, root: Root, duty: Duty, memory: int, *, confined: bool) -> ConfinedProcess:
        """Raises `Disconnected`, `TimedOut`, `NOT_ISOLATED`."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        start: Head = {
            "path": root.path,
            "spellings": list(root.spellings),
            "kernel": root.kernel,
            "duty": duty.value,
            "memory": memory,
            "confined": confined,
        }
        with theirs:
            try:
                with self._lock:
                    pidfd = self._fork(json.dumps(start).encode(), theirs.fileno(), root.descriptor)
                process = ConfinedProcess(ours, pidfd)
            except BaseException:  # also an interrupt: the descriptor would stay open
                ours.close()
                raise
        process.wait_until_confined()
        return process

    def close(self) -> None:
        """End the fork server and all its forks."""
        with self._lock:
            if self._process is not None and self._owner == os.getpid():
                self._end(self._process)
            self._control = self._process = None

    def _fork(self, start: bytes, connection: int, root: int) -> int | None:
        """The pidfd of a new fork; None if the kernel has none. Raises `Disconnected`, `TimedOut`.

        A fork server that died, hangs or could not be started is replaced by the next call.
        """
        try:
            control = self._started()
            socket.send_fds(control, [start], [connection, root])
            answer, found, _, _ = socket.recv_fds(control, MOST_SAID, 1)
        except TimeoutError as error:
            self._forget_server()
            raise TimedOut from error
        except BlockingIOError as error:  # fork(2), of the fork server itself
            self._forget_server()
            raise ForkRefused(str(error)) from error
        except OSError as error:
            self._forget_server()
            raise Disconnected(f"the fork server: {error}") from error
        if not answer:
            self._forget_server()
            raise Disconnected("the fork server ended")
        if answer != FORKED:
            raise ForkRefused(answer.decode(errors="replace"))
        return found[0] if found else None

    def _forget_server(self) -> None:
        if self._process is not None:
            self._end(self._process)
        self._control = self._process = None

    def _started(self) -> socket.socket:
        if self._control is not None and self._owner == os.getpid():
            return self._control
        # After a fork of this process, the fork server belongs to the parent.
        self._inherited += [self._control, self._process]
        self._owner = os.getpid()
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.settimeout(START_SECONDS)
        paths = import_paths() if self._program else [str(Path(place).absolute()) for place in sys.path]
        given = json.dumps(
            [theirs.fileno(), self._owner, [*paths, *self._paths], dict(self.kinds), self._program]
        )
        with theirs, no_forks():
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


class ConfinedProcess:
    """A confined process, as its runner sees it. Each thread has its own channel to it."""

    def __init__(self, control: socket.socket, pidfd: int | None) -> None:
        self._control = control
        self._control_channel = Channel(control)
        self._pidfd = pidfd
        self._channels = threading.local()
        self.is_gone = False
        self._end = weakref.finalize(self, _end, control, pidfd)

    def wait_until_confined(self) -> None:
        """Raises `NOT_ISOLATED` if the kernel refuses, `Disconnected` if the process died, `TimedOut`."""
        self._control_channel.set_timeout(START_SECONDS)
        try:
            head, _ = self._control_channel.receive()
        except (Disconnected, TimedOut):
            self.kill()
            raise
        if head.get("is") == Answer.READY:
            return
        self.kill()
        reason = str(head.get("reason"))
        if head.get("is") == Answer.OUT_OF_MEMORY:
            raise Disconnected(reason)
        raise LcpError(ErrorCode.NOT_ISOLATED, f"a process for file kinds could not be confined: {reason}")

    def channel(self) -> Channel:
        """This thread's channel. Raises `Disconnected`."""
        channel: Channel | None = getattr(self._channels, "own", None)
        if channel is None:
            channel = self._channels.own = self.connect()
        return channel

    def exchange(
        self, head: Head, body: Buffer, seconds: float, starts: Callable[[int], object] | None = None
    ) -> Message:
        """Send a request, and receive the answer. Raises `Disconnected`, and `TimedOut` after `seconds`.

        With `starts`, the request names several things, each of which takes `seconds` at most; it is called with the
        index of one that the process has turned to.
        """
        channel = self.channel()
        try:
            channel.set_timeout(seconds)
            channel.send(head, body)
            answer = channel.receive()
            while starts is not None and answer[0].get("is") == Answer.STARTS:
                starts(number_of(answer[0], "nth"))
                answer = channel.receive()
        except (Disconnected, TimedOut):
            self.drop_channel()
            raise
        return answer

    def drop_channel(self) -> None:
        """Close this thread's channel: pending answers are not waited for."""
        channel: Channel | None = getattr(self._channels, "own", None)
        if channel is not None:
            self._channels.own = None
            channel.close()

    def wait_for_end(self, seconds: float) -> None:
        """Wait until the process has ended, at most so long."""
        if self._pidfd is not None:
            select.select([self._pidfd], [], [], seconds)

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.is_gone = True
        self._end()

    def connect(self, *given: int) -> Channel:
        """A further channel, which any thread may use; the process is given descriptors with it.

        Raises `Disconnected`.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"."], [theirs.fileno(), *given])
            except OSError as error:
                ours.close()
                raise Disconnected(str(error)) from error
        return Channel(ours)


def _end(control: socket.socket, pidfd: int | None) -> None:
    if pidfd is not None:
        # The garbage collector may call this in a confined thread, from which the kernel lets no signal out.
        with suppress(ProcessLookupError, PermissionError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
    control.close()  # which ends the process by itself, unless it is in the middle of a long call


@cache
def spawner(*program: str) -> Spawner:
    """The one of this process; with the name of a `program`, the one whose forks run that module of ours."""
    one = Spawner(program=next(iter(program), None))
    atexit.register(one.close)
    return one
