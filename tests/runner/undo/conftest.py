"""A directory that missions write into, compared byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine


@dataclass
class Scene:
    """An engine and the root of its missions."""

    engine: Engine
    root: Path

    def write(self, *writes: tuple[str, str, str]) -> int:
        """A mission that has done `writes` (path, mode, content) one after the other; its id."""
        replies: list[JsonValue] = [
            {"ok": True, "action": "write_file", "rel_path": path, "content": content, "mode": mode}
            for path, mode, content in writes
        ]
        replies.append({"ok": True, "action": "mission_complete", "summary": "done"})
        return self.launch(replies)

    def launch(self, replies: Sequence[JsonValue]) -> int:
        limits: JsonValue = {"max_turns": 100, "max_stalled": 100}
        mission = self.engine.launch(
            {
                "goal": "Write.",
                "planner": {"type": "script", "replies": [*replies]},
                "policy": [{"kinds": ["*"], "do": "auto"}],
                "limits": limits,
            },
            root=self.root,
        )
        self.engine.work(until_idle=True, mission_id=mission.id)
        return mission.id

    def tree(self) -> dict[str, tuple[bytes, int] | None]:
        """Every file with its bytes and its mode bits; None for a directory."""
        return {
            str(path.relative_to(self.root)): (path.read_bytes(), path.stat().st_mode & 0o7777)
            if path.is_file()
            else None
            for path in sorted(self.root.rglob("*"))
        }

    def jobs(self, mission: int) -> list[int]:
        """The jobs of a mission that wrote."""
        return [job.id for job in self.engine.jobs(mission_id=mission, kinds=["write_file"])]


@pytest.fixture
def scene(emptied_database_url: str, tmp_path: Path) -> Iterator[Scene]:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("a\n")
    (root / "a").chmod(0o640)
    (root / "b").write_bytes(b"\xff\xfeb\x00\n\x00")
    (root / "sub").mkdir()
    (root / "sub" / "c").write_text("c\r\n")
    with Engine(emptied_database_url, isolation="off") as engine:
        yield Scene(engine, root)
