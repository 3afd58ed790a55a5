"""Have a fork of the fork server run a foreign program, and end those whose jobs were taken away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pydantic import TypeAdapter

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.programs.wall.programs import CannotConfine, Ended, Program, end_strangers, supervise
from lcp_engine.runner.confined.channel import (
    Answer,
    Attempt,
    Buffer,
    Channel,
    Disconnected,
    Duty,
    Head,
    Request,
    TimedOut,
    number_of,
)
from lcp_engine.runner.confined.server import ForeignPrograms
from lcp_engine.sandbox.root import Root

PROGRAMS: TypeAdapter[Program] = TypeAdapter(Program)
"""How a program is sent."""
_MORE_SECONDS = 30.0
"""Beyond what the program may take: to start it, and to end all that it started."""


class ProgramsUnderWay:
    """The programs that run for attempts at this moment. Any thread may call."""

    def __init__(self) -> None:
        self._channels: dict[Attempt, Channel] = {}
        self._lock = threading.Lock()

    @contextmanager
    def at(self, attempt: Attempt, channel: Channel) -> Iterator[None]:
        """Meanwhile the program on the other side of the channel runs for this attempt."""
        with self._lock:
            self._channels[attempt] = channel
        try:
            yield
        finally:
            with self._lock:
                del self._channels[attempt]

    @property
    def attempts(self) -> frozenset[Attempt]:
        """Attempts that programs run for."""
        with self._lock:
            return frozenset(self._channels)

    def end(self, attempts: Iterable[Attempt]) -> None:
        """End the programs of these attempts, each with all that it started; nobody waits for what they answer."""
        with self._lock:  # a channel that is no longer here may serve the next job by now
            for attempt in attempts:
                if (channel := self._channels.get(attempt)) is not None:
                    channel.hang_up()


def run_program(root: Root, program: Program, attempt: Attempt, under_way: ProgramsUnderWay) -> Ended:
    """Run a program for an attempt and wait for its end. It ends with this process, too.

    Raises `NOT_ISOLATED` if the kernel cannot confine it, `WORKER_DIED` if the process that runs it died, and
    `FILE_SYSTEM` if the program cannot be started.
    """
    from lcp_engine.runner.confined.process import spawner  # not in the process that runs it

    has_ended = False  # once the answer is here, all that the program started has ended
    process = spawner().spawn(root, Duty.RUN, program.bounds.memory, confined=False)
    try:
        request = {"do": Request.RUN, "program": PROGRAMS.dump_python(program, mode="json")}
        seconds = program.bounds.seconds
        most = 0.0 if seconds is None else seconds + _MORE_SECONDS
        with under_way.at(attempt, process.channel()):
            head, body = process.exchange(request, b"", most)
        has_ended = True
    except (Disconnected, TimedOut) as error:
        message = f"the process that runs {program.arguments[0]} died: {error}"
        raise LcpError(ErrorCode.WORKER_DIED, message) from error
    finally:
        process.drop_channel()
        if not has_ended:
            process.wait_for_end(_MORE_SECONDS)  # it ends what the program has started first
        process.kill()
    return ended_of(head, body, program)


def ended_of(head: Head, body: Buffer, program: Program) -> Ended:
    """End of a program, as the process that ran it says. Raises `NOT_ISOLATED` and `FILE_SYSTEM`."""
    if head.get("is") == Answer.REFUSED:
        message = f"programs cannot be confined: {head.get('reason')}"
        raise LcpError(
            ErrorCode.NOT_ISOLATED, message, advice="Run commands on a newer kernel (docs/commands.md)."
        )
    if head.get("is") == Answer.FAILED:
        message = f"{program.arguments[0]} ({program.path}) cannot be started: {head.get('reason')}"
        advice = "Correct the program or command; an interpreter must be where programs may read (docs/commands.md)."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice)
    at = number_of(head, "stdout")
    code, number, stopped = head.get("exit_code"), head.get("signal"), head.get("stopped")
    cpu_seconds = head.get("cpu_seconds")
    return Ended(
        exit_code=code if isinstance(code, int) else None,
        signal=number if isinstance(number, int) else None,
        stopped=None if stopped is None else str(stopped),
        is_out_of_memory=head.get("is_out_of_memory") is True,
        cpu_seconds=cpu_seconds if isinstance(cpu_seconds, float) else 0.0,
        stdout=bytes(body[:at]),
        stderr=bytes(body[at:]),
    )


def _run_program(end: socket.socket) -> None:
    """Run the one program that is requested. There is no other thread: it is to start that program alone."""
    call, given, _, _ = socket.recv_fds(end, 1, 4)
    if not call:
        return
    connection, *standard = given
    channel = Channel(socket.socket(fileno=connection))
    head, _ = channel.receive()
    try:
        ended = supervise(PROGRAMS.validate_python(head["program"]), connection, standard)
    except CannotConfine as error:
        channel.send({"is": Answer.REFUSED, "reason": str(error)})
    except OSError as error:
        channel.send({"is": Answer.FAILED, "reason": error.strerror or str(error)})
    else:
        answer: Head = {
            "is": Answer.DONE,
            "exit_code": ended.exit_code,
            "signal": ended.signal,
            "stopped": ended.stopped,
            "is_out_of_memory": ended.is_out_of_memory,
            "cpu_seconds": ended.cpu_seconds,
            "stdout": len(ended.stdout),
        }
        channel.send(answer, ended.stdout + ended.stderr)


FOREIGN_PROGRAMS = ForeignPrograms(run=_run_program, end_strangers=end_strangers)
