"""Copy a SQLite database at random instants while it is written, tear the copies as a power cut would, and open them.

Usage: python -m tests.crash.torn [--images N] [--seed N] DIRECTORY

The writer is stopped for the copy. An image with its whole write-ahead log has to hold every commit that was
acknowledged; one whose log is torn behind the last acknowledged commit as well; one that is torn anywhere a
beginning of them without holes. Prints one JSON object: what was done, and what was found wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import struct
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from pydantic import BaseModel
from tests.crash.processes import ask, begin, do, end_of, import_all

from lcp_engine import Engine
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.workers.base import Context, Outcome, Worker

HEADER, FRAME_HEADER = 32, 24  # of a write-ahead log (sqlite.org/fileformat2.html#walformat)
SOON = 0.03


class Number(BaseModel):
    """`n` is the number of acknowledged commits."""

    n: int


def _never(params: Number, context: Context) -> Outcome:
    raise AssertionError("nothing is executed here")


WORKERS = [
    Worker(kind="number", params=Number, result=Number, execute=_never, has_effects=False).for_any_params()
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--seed", type=int, default=20)
    given = parser.parse_args()
    import_all(_url(given.directory / "live.db"))
    problems = list(_tear(given.directory, given.images, random.Random(given.seed)))
    print(json.dumps({"images": given.images * len(TEARS), "problems": problems}))
    sys.exit(bool(problems))


def _tear(directory: Path, images: int, chance: random.Random) -> Iterator[str]:
    live, acknowledged = directory / "live.db", directory / "acknowledged"
    assert do(partial(_open, _url(live))) == 0
    writer = begin(partial(_write, _url(live), acknowledged))
    until = time.monotonic() + 60
    while not acknowledged.exists():
        assert time.monotonic() < until, "nothing was written"
        os.sched_yield()
    for image in range(images):
        time.sleep(chance.random() * SOON)
        os.kill(writer, signal.SIGSTOP)
        os.waitid(os.P_PID, writer, os.WSTOPPED)
        count = acknowledged.stat().st_size
        for tear in TEARS:
            copy = directory / f"{image}-{tear}.db"
            shutil.copy(live, copy)
            shutil.copy(f"{live}-wal", f"{copy}-wal")
        for tear in TEARS:
            yield from (
                f"image {image}, {tear}: {problem}"
                for problem in _check(directory / f"{image}-{tear}.db", tear, count, chance)
            )
        os.kill(writer, signal.SIGCONT)
    os.kill(writer, signal.SIGKILL)
    end_of(writer)


def _check(copy: Path, tear: str, count: int, chance: random.Random) -> Iterator[str]:
    log = Path(f"{copy}-wal")
    commits = _commits(log.read_bytes())
    # The last commit of the log may not be acknowledged yet; those before it are.
    (there, _) = ask(partial(_look, _url(_again(copy))), copy.with_suffix(".json"))
    last = len(commits) - 1 if there > count else len(commits)
    kept = commits[last - 1] if last > 0 else HEADER
    if tear != "whole":
        size = log.stat().st_size
        offset = chance.randrange(0 if "anywhere" in tear else min(kept, size), size + 1)
        with log.open("r+b") as file:
            if "cut" in tear:
                file.truncate(offset)
            else:
                file.seek(offset)
                file.write(chance.randbytes(size - offset))
    found, faults = ask(partial(_look, _url(copy)), copy.with_suffix(".json"))
    yield from faults
    if "anywhere" not in tear and not count <= found <= count + 1:
        yield f"{count} commits were acknowledged, {found} are there"


TEARS = ("whole", "cut behind", "scrambled behind", "cut anywhere", "scrambled anywhere")


def _again(copy: Path) -> Path:
    """A second copy: opening an image changes it."""
    again = copy.with_suffix(".again.db")
    shutil.copy(copy, again)
    shutil.copy(f"{copy}-wal", f"{again}-wal")
    return again


def _commits(log: bytes) -> list[int]:
    """Where each commit of the log ends: frames with the log's own salts, up to the first without."""
    ends: list[int] = []
    if len(log) < HEADER:
        return ends
    page, salts = struct.unpack(">I", log[8:12])[0], log[16:24]
    for start in range(HEADER, len(log) - FRAME_HEADER - page + 1, FRAME_HEADER + page):
        if log[start + 8 : start + 16] != salts:
            break
        if struct.unpack(">I", log[start + 4 : start + 8])[0]:
            ends.append(start + FRAME_HEADER + page)
    return ends


def _url(path: Path) -> str:
    return f"sqlite:///{path}"


def _open(url: str) -> None:
    Engine(url).close()


def _write(url: str, acknowledged: Path) -> None:
    """Queue jobs, one commit each, and append a byte to the file for each acknowledgement."""
    signal.alarm(600)  # it has been killed long before, unless its parent was
    with (
        Engine(url, workers=WORKERS, isolation="off") as engine,
        acknowledged.open("ab", buffering=0) as file,
    ):
        for n in count():
            engine.enqueue("number", {"n": n})
            file.write(b".")


def _look(url: str) -> tuple[int, list[str]]:
    """How many commits an image holds, and its faults."""
    with Engine(url, workers=WORKERS, isolation="off") as engine:
        numbers = [job.params["n"] for job in engine.jobs()]
    faults = check_database(url)
    if numbers != list(range(len(numbers))):
        faults.append(f"the commits have holes: {numbers}")
    return len(numbers), faults


if __name__ == "__main__":
    main()
