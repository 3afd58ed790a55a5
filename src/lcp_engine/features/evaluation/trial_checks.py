"""Run the check programs of a suite over what trials left, behind the wall of commands, and keep what they said."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.core.safe_text import json_line
from lcp_engine.engine.instance import Instance
from lcp_engine.features.evaluation.json_lines import JsonLines
from lcp_engine.features.evaluation.scores import CheckResult
from lcp_engine.features.programs.execution import ground_of
from lcp_engine.features.programs.programs import ProgramsUnderWay, run_program
from lcp_engine.features.programs.run_command import Surroundings, run_behind_wall
from lcp_engine.features.programs.servers.external_worker import FoundCommand, found_command
from lcp_engine.features.programs.settings import ProgramSettings
from lcp_engine.features.programs.wall.views.seen_root import RootAccess
from lcp_engine.sandbox.root import Root
from lcp_engine.store.queries.records import Mission

CHECK_SECONDS = 60.0
"""The most that a check program may take."""
MISSION_VARIABLE = "LCP_MISSION_JSON"
"""Names the file in which a check program finds the mission, as `lcp show M --json` prints it."""


class TrialChecks:
    """What check programs said of the trials of an evaluation, in a file with a line for each. Any thread may call."""

    def __init__(self, file: Path) -> None:
        self._lines = JsonLines(file)

    def run(
        self, instance: Instance, spec: MissionSpec, command: FoundCommand, mission: Mission, trial: str
    ) -> None:
        """Let a program judge what a mission has done, as one of its commands sees it, and keep its verdict.

        Nothing of the root is hidden from it, and what it changes is dropped. Raises `NOT_ISOLATED`, `FILE_SYSTEM`
        if it cannot be started, `PATH_NOT_FOUND`, `TOO_LARGE`, `WORKER_DIED`.
        """
        attempt = (0, os.getpid())
        with Root(str(mission.root)) as root:
            ground = ground_of(instance, root, mission.id, attempt)
            around = Surroundings(
                # The root is a copy that the user had made.
                RootAccess(root, lambda path: True, ground=ground),
                spec.commands.model_copy(update={"seconds": CHECK_SECONDS}),
                (*command.files, *instance.settings(ProgramSettings).places),
                partial(run_program, attempt=attempt, under_way=ProgramsUnderWay()),
                {MISSION_VARIABLE: json_line(mission.json)},
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
