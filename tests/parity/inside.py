"""Run a command of a mission behind a wall, as the suites of the parity list do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.core.programs.walls import Step


def run_inside(
    root: Path,
    words: Sequence[str],
    database: Path,
    wall: Step,
    *,
    environment: dict[str, str] | None = None,
    seconds: int = 300,
) -> dict[str, JsonValue]:
    """The result of a command that a planner asks for in a mission over `root`; its error as `ended` if it failed."""
    job: JsonValue = {"kind": "run_command", "params": {"command": [*words]}}
    replies: JsonValue = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]},
        {"ok": True, "action": "mission_complete", "summary": "It ran."},
    ]
    spec: dict[str, JsonValue] = {
        "goal": "Run a command.",
        "planner": {"type": "script", "replies": replies},
        "commands": {"allow": [[*words]], "environment": {**(environment or {})}, "seconds": seconds},
        "policy": [{"kinds": ["run_command"], "do": "auto"}],
    }
    with Engine(f"sqlite:///{database}", commands_wall=[wall]) as engine:
        mission = engine.launch(spec, root=root)
        engine.work(until_idle=True)
        (ran,) = engine.jobs(mission_id=mission.id, kinds=["run_command"])
        return ran.result or {"ended": str(ran.error)}
