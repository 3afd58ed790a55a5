"""Prove on SQLite and PostgreSQL that nothing is lost and nothing is done twice: `make crash`, `make soak`.

Usage: python -m tests.crash [--step K] [--kills N] [--images N] | --soak SECONDS

PostgreSQL is the server of LCP_TEST_POSTGRES_URL. Ends with 1 when something was not survived.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import SERVER, postgres_database, sqlite_url
from tests.crash.matrix import MISSED

SIDE_BY_SIDE = 2
MEMORY = Path("/dev/shm")
"""Files in memory: the tests kill processes, never the machine, and prove the same in a third of the time."""
PROJECT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("--step", type=int, default=1, help="kill at each STEP-th point alone")
    parser.add_argument("--kills", type=int, default=200, help="how many runners to kill at random instants")
    parser.add_argument("--images", type=int, default=40, help="how many images of a SQLite database to tear")
    parser.add_argument("--soak", type=int, metavar="SECONDS", help="only let 16 runners share a database")
    given = parser.parse_args()
    kinds = ["sqlite", *(["postgresql"] if SERVER else [])]
    if SERVER is None:
        print("postgresql: LCP_TEST_POSTGRES_URL is not set; nothing is tried")
    if given.soak:
        soak = ("--kills", str(given.soak), "--runners", "16", "--every", "1")
        stood = [_stands(kind, "kills", *soak) for kind in kinds]
        return 0 if all(stood) else 1
    with ThreadPoolExecutor(len(kinds)) as threads:
        # Most of the time is spent waiting for the disk, so both databases are tried at once.
        stood = list(threads.map(lambda kind: _survives(kind, given.step), kinds))
        stood.append(_survives("sqlite", given.step, "--confined"))
        stood.append(_survives("sqlite", given.step, "--walls"))
        stood += threads.map(lambda kind: _survives(kind, given.step, tool="requests"), kinds)
        if given.kills:
            kills = ("--kills", str(given.kills))
            stood += threads.map(lambda kind: _stands(kind, "kills", *kills), kinds)
            stood += threads.map(lambda kind: _stands(kind, "kills", *kills, "--helpers"), kinds)
    if given.images:
        stood.append(_stands(None, "torn", "--images", str(given.images)))
    return 0 if all(stood) else 1


def _stands(kind: str | None, tool: str, *options: str) -> bool:
    """Print the findings of a tool."""
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lcp-crash-")))
        url = [] if kind is None else [stack.enter_context(_database(kind, place))]
        command = [sys.executable, "-m", f"tests.crash.{tool}", *url, str(place), *options]
        said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=PROJECT)
    found = json.loads(said.stdout or '{"problems": ["it said nothing"]}')
    problems = found.pop("problems")
    print(f"{kind or 'sqlite'}: {', '.join(f'{count} {what}' for what, count in found.items())}", *problems,
          sep="\n    ", flush=True)  # fmt: skip
    return said.returncode == 0 and not problems


def _survives(kind: str, step: int, *how: str, tool: str = "matrix") -> bool:
    """Print which points one kind of database survived; `how` are options of a `tool` that kills at each point."""
    began = time.monotonic()
    with ExitStack() as stack:
        place = MEMORY if os.access(MEMORY, os.W_OK) else None
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lcp-crash-", dir=place)))
        processes = []
        for n in range(SIDE_BY_SIDE):
            place = directory / str(n)
            place.mkdir()
            url = stack.enter_context(_database(kind, place))
            options = [url, place, "--first", 1 + n * step, "--step", SIDE_BY_SIDE * step]
            command = [sys.executable, "-m", f"tests.crash.{tool}", *map(str, options), *how]
            own = {**os.environ, "XDG_STATE_HOME": str(place)}
            processes.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT, env=own)
            )
        lines = [line for process in processes for line in process.communicate()[0].splitlines()]
        ended = [process.returncode for process in processes]
    runs = [json.loads(line) for line in lines]
    killed = [run for run in runs if run["point"] not in ("undisturbed", MISSED)]
    missed = len([run for run in runs if run["point"] == MISSED])
    failed = [run for run in runs if run["problems"]]
    for run in failed:
        print(f"{kind}: {run['story']}: {run['point']}", *run["problems"], sep="\n    ")
    points, lost = len(killed), len([run for run in killed if run["problems"]])
    seconds = time.monotonic() - began
    beside = f", {missed} did not come again" if missed else ""
    kind = " ".join([kind, *how, *([] if tool == "matrix" else [tool])])
    print(f"{kind}: {points - lost} of {points} points survived{beside}, {seconds:.0f} s", flush=True)
    return not failed and not any(ended) and points > 0


@contextmanager
def _database(kind: str, directory: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield sqlite_url(directory)
    else:
        yield from postgres_database()


if __name__ == "__main__":
    sys.exit(main())
