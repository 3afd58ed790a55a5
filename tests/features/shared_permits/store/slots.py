"""Work until idle: `slots.py URL DIRECTORY`. Two jobs may run at once; each takes one of two slots, or fails."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path

from pydantic import BaseModel

from lcp_engine import Engine, Failed
from lcp_engine.errors import ErrorCode
from lcp_engine.workers.base import Context, Outcome, Worker


class Nothing(BaseModel):
    """No params."""


def main() -> None:
    url, directory = sys.argv[1], Path(sys.argv[2])

    def take(params: Nothing, context: Context) -> Outcome:
        for slot in range(2):
            descriptor = os.open(directory / str(slot), os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                time.sleep(0.002)  # what other processes would run meanwhile fails
            except BlockingIOError:
                continue
            else:
                return params
            finally:
                os.close(descriptor)
        return Failed(ErrorCode.INVALID_PARAMS, "more than two jobs run")

    worker = Worker("slot", Nothing, Nothing, take, has_effects=False, max_running=2).for_any_params()
    with Engine(url, workers=[worker]) as engine:
        engine.work(until_idle=True, threads=2)


if __name__ == "__main__":
    main()
