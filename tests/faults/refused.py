"""Enqueue or work until the disk refuses some calls: `refused.py enqueue|work URL FILE CODE CALL...`.

FILE is the database's ending: nothing for itself, `-wal` for its log. It says on stdout what was acknowledged and what
was refused with which words, and ends as `kill -9` would, so that nothing is put right at the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pydantic import BaseModel
from sqlalchemy import make_url
from tests.faults.refusing import descriptors_of, refuse

from lcp_engine import Engine
from lcp_engine.errors import LcpError
from lcp_engine.workers.base import Context, FileEffect, Outcome, Worker

WELL, COUNT = 5, 400


class Line(BaseModel):
    """`n` identifies the job, `text` makes it large."""

    n: int
    text: str = ""


def break_disk() -> None:
    url, ending, code, *calls = sys.argv[2:]
    path = Path(f"{make_url(url).database}{ending}").resolve()
    descriptors = descriptors_of(path)
    assert descriptors, f"{path} is not open"
    refuse(calls, descriptors, int(code))


def line(params: Line, context: Context) -> Outcome:
    """Append a line to a file; after the first few jobs the disk breaks before that."""
    if params.n == WELL and sys.argv[1:2] == ["work"]:
        break_disk()
    return FileEffect("log.txt", f"{params.n}\n", "append", lambda applied: params)


WORKERS = [Worker(kind="line", params=Line, result=Line, execute=line).for_any_params()]


def enqueue(engine: Engine) -> None:
    refused = 0
    for n in range(COUNT):
        if n == WELL:
            break_disk()
        try:
            engine.enqueue("line", {"n": n, "text": "x" * 80_000})
            sys.stdout.write(f"acknowledged {n}\n")
        except LcpError as error:
            sys.stdout.write(f"refused {n} {error}\n")
            refused += 1
        if refused == 3:
            return


def work(engine: Engine) -> None:
    try:
        engine.work(until_idle=True)
    except LcpError as error:
        sys.stdout.write(f"refused 0 {error}\n")


def main() -> None:
    engine = Engine(sys.argv[2], workers=WORKERS)
    {"enqueue": enqueue, "work": work}[sys.argv[1]](engine)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
