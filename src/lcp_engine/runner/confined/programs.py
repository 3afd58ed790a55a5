"""Have a fork of the fork server run a foreign program."""

from __future__ import annotations

from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.runner.confined.channel import (
    Answer,
    Buffer,
    Disconnected,
    Duty,
    Head,
    Request,
    TimedOut,
    number_of,
)
from lcp_engine.runner.confined.process import spawner
from lcp_engine.runner.confined.server import PROGRAMS
from lcp_engine.sandbox.programs import Ended, Program
from lcp_engine.sandbox.root import Root

_MORE_SECONDS = 30.0
"""Beyond what the program may take: to start it, and to end all that it started."""


def run_program(root: Root, program: Program) -> Ended:
    """Run a program and wait for its end. It ends with this process, too.

    Raises `NOT_ISOLATED` if the kernel cannot confine it, `WORKER_DIED` if the process that runs it died, and
    `FILE_SYSTEM` if the program cannot be started.
    """
    process = spawner().spawn(root, Duty.RUN, program.bounds.memory, confined=False)
    try:
        request = {"do": Request.RUN, "program": PROGRAMS.dump_python(program, mode="json")}
        seconds = program.bounds.seconds
        head, body = process.exchange(request, b"", 0.0 if seconds is None else seconds + _MORE_SECONDS)
    except (Disconnected, TimedOut) as error:
        message = f"the process that runs {program.arguments[0]} died: {error}"
        raise LcpError(ErrorCode.WORKER_DIED, message) from error
    finally:
        process.drop_channel()
        process.wait_for_end(_MORE_SECONDS)  # it ends what the program has started first
        process.kill()
    return ended_of(head, body, program)


def ended_of(head: Head, body: Buffer, program: Program) -> Ended:
    """How a program ended, as the process that ran it says. Raises `NOT_ISOLATED` and `FILE_SYSTEM`."""
    if head.get("is") == Answer.REFUSED:
        message = f"programs cannot be confined: {head.get('reason')}"
        raise LcpError(
            ErrorCode.NOT_ISOLATED, message, advice="Run commands on a newer kernel (docs/commands.md)."
        )
    if head.get("is") == Answer.FAILED:
        message = f"{program.arguments[0]} ({program.path}) cannot be started: {head.get('reason')}"
        advice = "Correct the program, or the command; a script needs an interpreter that is installed."
        raise LcpError(ErrorCode.FILE_SYSTEM, message, advice=advice)
    at = number_of(head, "stdout")
    code, number, stopped = head.get("exit_code"), head.get("signal"), head.get("stopped")
    return Ended(
        exit_code=code if isinstance(code, int) else None,
        signal=number if isinstance(number, int) else None,
        stopped=None if stopped is None else str(stopped),
        is_out_of_memory=head.get("is_out_of_memory") is True,
        stdout=bytes(body[:at]),
        stderr=bytes(body[at:]),
    )
