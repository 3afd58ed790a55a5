"""A staged mission in a theatre: its root, its engine, what it is asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, JsonValue

from lcp_engine import Engine
from lcp_engine.core.job_states import State
from lcp_engine.core.programs.walls import Step
from lcp_engine.sandbox.system.landlock import Isolation
from lcp_engine.workers.base import Context, FileEffect, Outcome, Worker

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "done"}
BEFORE = {"a.txt": "one\n", "b.txt": "two\n", "deep/c.txt": "three\n"}


def ask(*jobs: JsonValue, why: str = "Improve it.") -> JsonValue:
    return {"ok": True, "action": "create_followup_jobs", "commentary": why, "new_jobs": [*jobs]}


def write(path: str, content: str, **more: JsonValue) -> JsonValue:
    return {"kind": "write_file", "params": {"rel_path": path, "content": content}, **more}


def edit(path: str, old: str, new: str) -> JsonValue:
    return {"kind": "edit_file", "params": {"rel_path": path, "old_text": old, "new_text": new}}


def delete(path: str) -> JsonValue:
    return {"kind": "delete_file", "params": {"rel_path": path}}


EDITS = ask(
    write("new/n.txt", "new\n"),
    edit("a.txt", "one", "ONE"),
    delete("b.txt"),
    {"kind": "move_file", "params": {"rel_path": "deep/c.txt", "new_path": "moved/c.txt"}},
    {"kind": "make_directory", "params": {"rel_path": "empty"}},
)
AFTER = {"a.txt": "ONE\n", "moved/c.txt": "three\n", "new/n.txt": "new\n"}


class Anything(BaseModel, extra="allow"):
    """Any params, any result."""


class Theatre:
    """A root with three files, and the mission that was launched last."""

    def __init__(self, engine: Engine, root: Path) -> None:
        self.engine = engine
        self.root = root
        for path, text in BEFORE.items():
            self.write(path, text)
        self.mission = 0

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def play(self, *replies: JsonValue, **more: JsonValue) -> int:
        """The id of a staged mission that was run as far as it goes."""
        planner: JsonValue = {"type": "script", "replies": [*replies]}
        spec: dict[str, JsonValue] = {"goal": "Improve it.", "planner": planner, "stage": True, **more}
        self.mission = self.engine.launch(spec, root=self.root).id
        self.work()
        return self.mission

    def work(self, mission: int | None = None) -> None:
        self.engine.work(until_idle=True, mission_id=mission or self.mission)

    def merge(self, mission: int | None = None) -> int:
        """The id of the merge that waits."""
        (job,) = self.engine.jobs(mission_id=mission or self.mission, states=[State.HELD])
        assert job.kind == "merge"
        return job.id

    def approve(self, job: int) -> None:
        self.engine.diff(job, by="ada")
        self.engine.approve(job, by="ada")
        self.work(self.engine.job(job).mission_id)

    def files(self) -> dict[str, str]:
        found = (path for path in self.root.rglob("*") if path.is_file() and not path.is_symlink())
        return {str(path.relative_to(self.root)): path.read_text() for path in found}

    def state(self, mission: int | None = None) -> tuple[str, str | None]:
        found = self.engine.mission(mission or self.mission)
        return found.status, found.outcome

    def reason(self, job: int) -> str:
        return str(self.engine.job(job).reason)

    def staged(self) -> list[Path]:
        """The stages that are on the disk."""
        directory = self.engine.instance.stages
        assert directory is not None
        return sorted(directory.glob("[0-9]*/*")) if directory.exists() else []


def open_theatre(url: str, isolation: Isolation, walls: Sequence[Step] | None = None) -> Engine:
    workers = [
        Worker("mail", Anything, Anything, _do),
        Worker("change", Anything, Anything, _change, writes=True),
    ]
    return Engine(
        url, workers=[one.for_any_params() for one in workers], isolation=isolation, commands_wall=walls
    )


def _do(params: Anything, context: Context) -> Outcome:
    return Anything()


def _change(params: Anything, context: Context) -> Outcome:
    """Write the file at `path`, if there is one."""
    path = (params.model_extra or {}).get("path")
    return FileEffect(str(path), "changed\n", "overwrite", lambda applied: Anything()) if path else Anything()
