"""The step of the wall that commands run behind on this machine, as a command itself sees it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, TypeAlias

from pydantic import JsonValue

from lcp_engine import Engine

Step: TypeAlias = Literal["overlay", "copy", "landlock"]
NEEDS_OVERLAY = "needs the overlay wall"
_LOOK = ["sh", "-c", "pwd; stat -f -c %T ."]


def has_overlay_wall() -> bool:
    """True if a command sees the root at its own path, over an overlay."""
    return step() == "overlay"


@cache
def step() -> Step:
    """An overlay, a working copy at the path of the root, or Landlock and seccomp alone: found once, by one command."""
    with TemporaryDirectory(prefix="lcp-step-") as made:
        root = Path(made).resolve() / "root"
        root.mkdir()
        result = run_inside(root, _LOOK, Path(made) / "lcp.db")
    where, _, kind = str(result.get("stdout", "")).strip().partition("\n")
    # Before a root is seen at its path, its copy is told as ".".
    return "overlay" if "overlay" in kind else "copy" if where == str(root) else "landlock"


def run_inside(
    root: Path,
    words: list[str],
    database: Path,
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
    with Engine(f"sqlite:///{database}") as engine:
        mission = engine.launch(spec, root=root)
        engine.work(until_idle=True)
        (ran,) = engine.jobs(mission_id=mission.id, kinds=["run_command"])
        return ran.result or {"ended": str(ran.error)}
