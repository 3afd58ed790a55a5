"""Define kinds of jobs that append a line to a file after a while, or beside children of their own."""

from __future__ import annotations

import os
import time
from multiprocessing import get_context

from pydantic import BaseModel
from tests.faults.program import FILE

from lcp_engine import worker
from lcp_engine.workers.base import Context, FileEffect, Outcome


class Line(BaseModel):
    """A line to append after so many seconds; `runs` is a file that records each execution."""

    text: str
    seconds: float = 0.0
    runs: str | None = None


@worker("test.line", params=Line, result=Line, max_attempts=3)
def append_line(params: Line, context: Context) -> Outcome:
    """Append a line to a file."""
    _note(params)
    time.sleep(params.seconds)
    return _append(params)


@worker("test.pooled_line", params=Line, result=Line, max_attempts=3)
def append_pooled_line(params: Line, context: Context) -> Outcome:
    """Append a line to a file; a child that was forked in between lives for two minutes longer."""
    _note(params)
    get_context("fork").Process(target=time.sleep, args=(120,), daemon=True).start()
    time.sleep(params.seconds)
    return _append(params)


def _note(params: Line) -> None:
    if params.runs is not None:
        file = os.open(params.runs, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
        os.write(file, f"{params.text}\n".encode())
        os.close(file)


def _append(params: Line) -> Outcome:
    return FileEffect(FILE, f"{params.text}\n", "append", lambda applied: params)


KINDS = (append_line, append_pooled_line)
