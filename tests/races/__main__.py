"""Race every job against a process that changes the paths it uses: `make races`.

Usage: python -m tests.races [--seconds N] [--way openat2|walk|confined]…

Ends with 1 when a job escaped, hung, or left a descriptor open.
"""

from __future__ import annotations

import argparse

from tests.races.races import RACES
from tests.races.running import Tally, for_seconds, run
from tests.ways import CONFINED, OPENAT2, WALK

WAYS = (OPENAT2, WALK, CONFINED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make races")
    parser.add_argument("--seconds", type=float, default=10, help="how long each race lasts in each way")
    parser.add_argument("--way", action="append", choices=[way.name for way in WAYS], help="only this way")
    given = parser.parse_args()
    tallies: list[Tally] = []
    print(f"{'jobs':>9} {'done':>9} {'refused':>9}  escapes  descriptors")
    for way in (way for way in WAYS if not given.way or way.name in given.way):
        if not way.is_there:
            print(f"{way.name}: not supported by this kernel")
            continue
        for race in RACES:
            tally = run(race, way, for_seconds(given.seconds))
            tallies.append(tally)
            _tell(tally, f"{tally.way}: {tally.race}")
    _sum_up(tallies)
    return 0 if tallies and all(tally.is_well for tally in tallies) else 1


def _tell(tally: Tally, name: str) -> None:
    fault = "" if tally.is_well else "  <- "
    counts = f"{tally.jobs:>9,} {tally.succeeded:>9,} {tally.refused:>9,}  {tally.escapes:>7}"
    print(f"{counts}  {tally.before:>4} → {tally.after:<4}  {name}{fault}", flush=True)


def _sum_up(tallies: list[Tally]) -> None:
    for way in dict.fromkeys(tally.way for tally in tallies):
        of_way = [tally for tally in tallies if tally.way == way]
        jobs, escapes = sum(tally.jobs for tally in of_way), sum(tally.escapes for tally in of_way)
        leaked = sum(tally.after > tally.before for tally in of_way)
        print(
            f"{way}: {len(of_way)} races, {jobs:,} jobs, {escapes} escapes, {leaked} with a descriptor leaked"
        )


if __name__ == "__main__":
    raise SystemExit(main())
