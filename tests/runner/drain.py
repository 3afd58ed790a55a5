"""Be a runner process of a test: `drain.py URL OPTIONS`, OPTIONS in JSON; says on stdout which job it executed."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from pydantic import BaseModel

import lcp_engine.runner.runner as watch
from lcp_engine import Engine
from lcp_engine.runner.runner import Runner
from lcp_engine.store.host.roots import Roots
from lcp_engine.workers.base import Context, FileEffect, Outcome, Worker


class Mark(BaseModel):
    """`n` names the job; `seconds` is how long it takes."""

    n: int
    seconds: float = 0.0


class Line(BaseModel):
    """A line for the end of a file."""

    path: str
    text: str


def mark(params: Mark, context: Context) -> Outcome:
    os.write(1, f"{params.n} {os.getpid()} {time.monotonic_ns()}\n".encode())
    if params.seconds:
        time.sleep(params.seconds)
    return params


def append(params: Line, context: Context) -> Outcome:
    return FileEffect(params.path, f"{params.text}\n", "append", lambda applied: params)


WORKERS = [
    Worker(kind="mark", params=Mark, result=Mark, execute=mark, has_effects=False).for_any_params(),
    Worker(kind="line", params=Line, result=Line, execute=append).for_any_params(),
]


def main() -> None:
    options = json.loads(sys.argv[2])
    with Engine(sys.argv[1], workers=WORKERS) as engine:
        watch.WATCH_SECONDS = options.pop("watch_seconds", watch.WATCH_SECONDS)
        named = {name: Path(place) for name, place in options.pop("roots", {}).items()}
        runner = Runner(engine.instance, roots=Roots(named) if named else None, **options)
        signal.signal(signal.SIGTERM, lambda number, frame: runner.stop())
        os.write(1, b"ready\n")
        runner.run()


if __name__ == "__main__":
    main()
