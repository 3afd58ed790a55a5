"""Prove that nothing is lost, done twice or told wrongly when clocks, machines, disks and servers fail: `make faults`.

Usage: python -m tests.faults [--only NAME]… [--short] [--seed N] [--list]

Prints each scenario on each database, and ends with 1 if one did not hold.
"""

from __future__ import annotations

import argparse
import random
import time
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch

from tests.faults.scenarios import SCENARIOS, Scenario

SIDE_BY_SIDE = 2


def main() -> int:
    parser = argparse.ArgumentParser(prog="make faults")
    parser.add_argument("--only", action="append", metavar="NAME", help="only these; * stands for anything")
    parser.add_argument("--short", action="store_true", help="only the short ones, which every CI run tries")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="repeats an earlier run")
    parser.add_argument("--list", action="store_true", help="print the scenarios and try none")
    given = parser.parse_args()
    wanted = [
        (scenario, database)
        for scenario in SCENARIOS
        for database in (scenario.short if given.short else scenario.databases)
        if not given.only or any(fnmatch(scenario.name, name) for name in given.only)
    ]
    if given.list:
        print(*(f"{database}: {scenario.name}" for scenario, database in wanted), sep="\n")
        return 0
    print(f"seed {given.seed}", flush=True)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        held = list(threads.map(lambda pair: _holds(pair[0], pair[1], given.seed), wanted))
    tried = [answer for answer in held if answer is not None]
    skipped = len(held) - len(tried)
    print(f"{sum(tried)} of {len(tried)} scenarios held" + (f", {skipped} skipped" if skipped else ""))
    return 0 if tried and all(tried) else 1


def _holds(scenario: Scenario, database: str, seed: int) -> bool | None:
    """Print how one ended; None if this machine cannot try it."""
    title = f"{database}: {scenario.name.replace('_', ' ')}"
    if missing := scenario.missing(database):
        print(f"{title}: skipped, {missing}", flush=True)
        return None
    began = time.monotonic()
    problems = scenario.problems(database, seed)
    how = "did not hold" if problems else "held"
    print(f"{title}: {how}, {time.monotonic() - began:.0f} s", *problems, sep="\n    ", flush=True)
    return not problems


if __name__ == "__main__":
    raise SystemExit(main())
