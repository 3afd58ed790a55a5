"""Run every race in every way, as this user and, where this is root, as an ordinary one."""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence

from tests.attack.races import RACES
from tests.attack.running import Tally, for_seconds, run
from tests.attack.uses import SPARE, USES, Use
from tests.ways import CONFINED, OPENAT2, WALK, Way

WAYS = (OPENAT2, WALK, CONFINED)
NOBODY = 65534
"""The user id and the group id of an ordinary user."""


def attack(seconds: float, _: int) -> bool:
    """Prints a line for each race in each way; whether nothing escaped, hung or was left open."""
    print(f"{'attempts':>9} {'done':>9} {'refused':>9}  leaks  changes  descriptors")
    held = _held_by_this_user(seconds, USES)
    return (held_by_an_ordinary_user(seconds, USES) and held) if os.getuid() == 0 else held


def _held_by_this_user(seconds: float, uses: Sequence[Use], user: str = "") -> bool:
    tallies: list[Tally] = []
    for tally in _tallies(seconds, uses):
        tallies.append(tally)
        _tell(tally, user)
    _sum_up(tallies, user)
    return bool(tallies) and all(tally.is_well for tally in tallies)


def _tallies(seconds: float, uses: Sequence[Use]) -> Iterator[Tally]:
    for way in WAYS:
        if _is_there(way):
            for race in RACES:
                yield run(race, way, for_seconds(seconds))
    for use in uses:
        if _is_there(use.way):
            for race in filter(use.applies_to, RACES):
                yield run(race, use.way, for_seconds(seconds), spare=SPARE)


def _is_there(way: Way) -> bool:
    """An ordinary user may not be allowed to start the interpreter again, which confined processes need."""
    starts = "confined" in way.name or "acceptance" in way.name
    return way.is_there and (not starts or os.access(sys.executable, os.X_OK))


def held_by_an_ordinary_user(seconds: float, uses: Sequence[Use]) -> bool:
    """In a child that has given up its privileges; what it needs of the interpreter is loaded by now."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        held = False
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            with tempfile.TemporaryDirectory(prefix="lcp-nobody-") as home:
                os.environ.update({"HOME": home, "XDG_RUNTIME_DIR": home})
                held = _held_by_this_user(seconds, uses, f"uid {NOBODY}, ")
            sys.stdout.flush()
        except Exception:  # noqa: BLE001 -- the top of a process: the child must not go on as if it were the parent
            traceback.print_exc()
        finally:
            os._exit(0 if held else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _tell(tally: Tally, user: str) -> None:
    fault = "" if tally.is_well else "  <- "
    counts = f"{tally.attempts:>9,} {tally.succeeded:>9,} {tally.refused:>9,}  {tally.leaks:>5}  {tally.changes:>7}"
    print(
        f"{counts}  {tally.before:>4} → {tally.after:<4}  {user}{tally.way}: {tally.race}{fault}", flush=True
    )


def _sum_up(tallies: list[Tally], user: str) -> None:
    for way in dict.fromkeys(tally.way for tally in tallies):
        of_way = [tally for tally in tallies if tally.way == way]
        attempts, leaks = sum(tally.attempts for tally in of_way), sum(tally.leaks for tally in of_way)
        changes = sum(tally.changes for tally in of_way)
        left = sum(tally.after > tally.before for tally in of_way)
        print(
            f"{user}{way}: {len(of_way)} races, {attempts:,} attempts, {leaks} leaks, {changes} changes outside, "
            f"{left} with a descriptor left open"
        )
