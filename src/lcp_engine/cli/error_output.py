"""Say what went wrong: one line on stderr, or an AgentError with `--json`; never a traceback."""

from __future__ import annotations

import errno
import sys
import traceback
from pathlib import Path

import click

from lcp_engine.cli.exit_codes import Exit, exit_of_error
from lcp_engine.core.safe_text import json_line, one_line
from lcp_engine.errors import AgentError, ErrorCode, Failed, LcpError

# What files and streams meet without anybody's fault, such as a full disk behind stdout.
_SURROUNDINGS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def explain(error: BaseException, *, as_json: bool) -> int:
    """Tell on stderr what ended the command; the exit code."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        tell("interrupted")
        return Exit.INTERRUPTED
    if isinstance(error, LcpError):
        return fail(error.failed, as_json=as_json)
    if isinstance(error, click.ClickException):
        return _refuse_usage(error, as_json=as_json)
    if isinstance(error, OSError) and error.errno in _SURROUNDINGS:
        where = f" {error.filename!r}" if error.filename else ""
        refused = Failed(ErrorCode.FILE_SYSTEM, f"the system refused{where}: {error.strerror}")
        return fail(refused, as_json=as_json)
    return fail(_defect(error), as_json=as_json)


def fail(failed: Failed, *, as_json: bool) -> int:
    """Print `failed` as a person or a program reads it; the exit code."""
    if as_json:
        tell(json_line({"error": agent_error(failed).as_json()}))
    else:
        tell(one_line(failed.message))
    return exit_of_error(failed.code)


def agent_error(failed: Failed) -> AgentError:
    """`failed` with ids of its own and the time."""
    from datetime import UTC, datetime
    from uuid import uuid4

    return AgentError.of(
        failed,
        error_id=f"err-{uuid4()}",
        request_id=f"req-{uuid4()}",
        timestamp=datetime.now(UTC).isoformat(timespec="microseconds"),
    )


def tell(line: str) -> None:
    """Write a line to stderr, if anybody reads it."""
    try:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        return


def _refuse_usage(error: click.ClickException, *, as_json: bool) -> int:
    message = error.format_message().rstrip(".")
    if not message[:2].isupper():  # a placeholder such as TEXT stays as the help writes it
        message = message[:1].lower() + message[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        message = f"{context.command_path}: {message} (see {context.command_path} --help)"
    fail(Failed(ErrorCode.INVALID_ARGUMENT, message), as_json=as_json)
    return error.exit_code


def _defect(error: BaseException) -> Failed:
    """A surprise: what it was, and where its traceback is."""
    fact = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    kept = _keep_traceback(error)
    where = f"; its traceback is in {kept}" if kept else ""
    return Failed(ErrorCode.WORKER_FAILED, f"lcp met a defect of its own, {fact}{where}")


def _keep_traceback(error: BaseException) -> Path | None:
    from platformdirs import user_state_path

    path = user_state_path("lcp-engine") / "last-defect.txt"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(
            "".join(traceback.format_exception(error)), encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        return None
    return path
