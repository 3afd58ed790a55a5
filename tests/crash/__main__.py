"""Run the whole crash matrix on SQLite and on PostgreSQL: `make crash`.

Usage: python -m tests.crash [--step K]. PostgreSQL is the server of LCP_TEST_POSTGRES_URL. Ends with 1 when a
point was not survived.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.conftest import SERVER, postgres_database, sqlite_url

SIDE_BY_SIDE = 2
PROJECT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make crash")
    parser.add_argument("--step", type=int, default=1, help="kill at each STEP-th point alone")
    given = parser.parse_args()
    kinds = ["sqlite", *(["postgresql"] if SERVER else [])]
    survived = [_survives(kind, given.step) for kind in kinds]
    if SERVER is None:
        print("postgresql: LCP_TEST_POSTGRES_URL is not set; nothing was tried")
    return 0 if all(survived) else 1


def _survives(kind: str, step: int) -> bool:
    """Print what was survived on one kind of database."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lcp-crash-")))
        processes = []
        for n in range(SIDE_BY_SIDE):
            place = directory / str(n)
            place.mkdir()
            url = stack.enter_context(_database(kind, place))
            options = [url, place, "--first", 1 + n * step, "--step", SIDE_BY_SIDE * step]
            command = [sys.executable, "-m", "tests.crash.matrix", *map(str, options)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=PROJECT))
        lines = [line for process in processes for line in process.communicate()[0].splitlines()]
        ended = [process.returncode for process in processes]
    runs = [json.loads(line) for line in lines]
    killed = [run for run in runs if run["point"] != "undisturbed"]
    failed = [run for run in runs if run["problems"]]
    for run in failed:
        print(f"{kind}: {run['story']}: {run['point']}", *run["problems"], sep="\n    ")
    points, lost = len(killed), len([run for run in killed if run["problems"]])
    print(f"{kind}: {points - lost} of {points} points survived", flush=True)
    return not failed and not any(ended) and points > 0


@contextmanager
def _database(kind: str, directory: Path) -> Iterator[str]:
    if kind == "sqlite":
        yield sqlite_url(directory)
    else:
        yield from postgres_database()


if __name__ == "__main__":
    sys.exit(main())
