"""Run a command over 20,000 files in git, behind the wall and without: the first of a mission, and later ones."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.figures import Contender, Figure, Goal, race
from benchmarks.setting import Setting
from lcp_engine.core.mission.spec import Commands
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import Surroundings, run_behind_wall
from lcp_engine.features.programs.wall.programs import Ended, Program
from lcp_engine.features.programs.wall.steps import Found, step_here
from lcp_engine.features.programs.wall.views.masks import Rights
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.features.programs.wall.workspace import Ground
from lcp_engine.sandbox.root import Root

DIRECTORIES, FILES = 200, 100
COMMAND = ("sh", "-c", "find . -name '*.txt' | sort > found && git status --short > status")
BARE, FIRST, LATER = "bare", "first", "later"
COARSE_SECONDS = 3.0
"""After this, times tell that files have not changed since."""
MOST_MS, MOST_FIRST_MS = 50.0, 1000.0
RATIO = 1.5


def run(setting: Setting) -> list[Figure]:
    """The command lists all files, asks git, and changes two files, which are dropped."""
    with TemporaryDirectory(dir=setting.place) as directory:
        place = Path(directory)
        _make(place / "root")
        time.sleep(COARSE_SECONDS)
        found, numbers = step_here(place / "state", place / "root"), count(1)
        behind = partial(_behind, place, found, numbers)
        behind("later")
        contenders: dict[str, Contender] = {
            BARE: partial(_milliseconds, lambda: subprocess.run(COMMAND, cwd=place / "root", check=True)),
            FIRST: partial(_milliseconds, lambda: behind(f"first-{next(numbers)}")),
            LATER: partial(_milliseconds, lambda: behind("later")),
        }
        measured = race(contenders, setting.rounds)
    bare, first, later = (measured[name] for name in (BARE, FIRST, LATER))
    above = statistics.median(one - RATIO * other for one, other in zip(later, bare, strict=True))
    what, cold = "a command over 20,000 files in git", statistics.median(first)
    most, most_cold = Goal(MOST_MS, at_least=False, unit="ms"), Goal(MOST_FIRST_MS, at_least=False, unit="ms")
    return [
        Figure(
            f"{what}, from the second on", "ms", statistics.median(later), "no wall", statistics.median(bare)
        ),
        Figure(f"{what}: more than {RATIO:g} times the bare one", "ms", above, value=above, goal=most),
        Figure(f"{what}, the first", "ms", cold, value=cold, goal=most_cold, note=f"wall: {found.step}"),
    ]


def _make(root: Path) -> None:
    for number in range(DIRECTORIES):
        (root / f"d{number}").mkdir(parents=True)
        for nth in range(FILES):
            (root / f"d{number}" / f"{nth}.txt").write_text(f"{number} {nth}\n")
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "all")):
        subprocess.run(("git", *command), cwd=root, check=True)
    time.sleep(COARSE_SECONDS)
    # It notes the times of all files in the index, which nothing does inside.
    subprocess.run(("git", "status"), cwd=root, check=True, stdout=subprocess.DEVNULL)


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def _behind(place: Path, found: Found, numbers: count[int], mission: str) -> None:
    run_id = f"{next(numbers)}-1"

    def run_here(root: Root, program: Program) -> Ended:
        return run_program(root, program, (0, 1), ProgramsUnderWay())

    with Root(str(place / "root")) as root:
        rights = Rights(lambda path: not path.endswith(".pem"), "no keys")
        ground = Ground(place / "state" / mission, mission, run_id, found)
        access = RootAccess(root, rights.may_read, rights, ground)
        result = run_behind_wall(COMMAND, Surroundings(access, Commands(), (), run_here))
    if result.exit_code != 0:
        raise SystemExit(f"the command ended with {result.how}")
