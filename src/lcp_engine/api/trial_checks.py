"""Run the check programs of a suite, confined, on copies of what trials left, and keep what they said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lcp_engine.api.json_lines import JsonLines
from lcp_engine.core.evaluation.scores import CheckResult
from lcp_engine.core.mission.spec import Commands
from lcp_engine.core.safe_text import json_line
from lcp_engine.runner.confined.programs import ProgramsUnderWay, run_program
from lcp_engine.sandbox.root import Root
from lcp_engine.store.queries.records import Mission
from lcp_engine.wall.programs import Ended, Program
from lcp_engine.wall.seen_root import RootAccess
from lcp_engine.workers.external import FoundCommand, found_command
from lcp_engine.workers.run_command import Surroundings, run_behind_wall

CHECK_SECONDS = 60.0
"""The most that a check program may take."""
MISSION_VARIABLE = "LCP_MISSION_JSON"
"""Names the file in which a check program finds the mission, as `lcp show M --json` prints it."""


class TrialChecks:
    """What check programs said of the trials of an evaluation, in a file with a line for each. Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._lines = JsonLines(file)
        self._under_way = ProgramsUnderWay()

    def run(self, command: FoundCommand, mission: Mission, trial: str) -> None:
        """Let a program judge what a mission has done, in a copy of its root, and keep its verdict.

        Raises `NOT_ISOLATED`, `FILE_SYSTEM` if it cannot be started, `PATH_NOT_FOUND`, `TOO_LARGE`, `WORKER_DIED`.
        """

        def run(root: Root, program: Program) -> Ended:
            return run_program(root, program, (mission.id, 1), self._under_way)

        with Root(str(mission.root)) as root:
            # The root is a copy that the user had made, and the program has no network.
            access = RootAccess(root, lambda path: True)
            around = Surroundings(
                access,
                commands=Commands(seconds=CHECK_SECONDS),
                readable=command.files,
                run=run,
                texts={MISSION_VARIABLE: json_line(mission.json)},
            )
            result = run_behind_wall([command.path, *command.arguments], around)
        passes = result.exit_code == 0
        self._lines.add({"trial": trial, "passes": passes, "said": "" if passes else result.how})

    def results(self) -> dict[str, CheckResult]:
        """What was said of each trial."""
        return {
            str(line["trial"]): CheckResult(line["passes"] is True, str(line["said"]))
            for line in self._lines.read()
        }


def found_check(command: Sequence[str], place: str, beside: Path) -> FoundCommand:
    """The program of a check; relative paths begin at `beside`. Raises `INVALID_ARGUMENT`, about `place`."""
    return found_command(f"{place}.expect.check", command, beside)
