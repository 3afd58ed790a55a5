"""A mission that did a bit of everything, over a clock that a test sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine
from lcp_engine.clock import SECOND, Micros, system_clock

DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}


@dataclass
class Site:
    """An engine over a root; `shift` is how far its clock is ahead."""

    url: str
    root: Path
    shift: list[Micros] = field(default_factory=lambda: [0])

    def __post_init__(self) -> None:
        self.root.mkdir(exist_ok=True)
        (self.root / "a.md").write_text("a\n")
        self.engine = Engine(self.url, clock=self.now)

    def now(self) -> Micros:
        return system_clock() + self.shift[0]

    def pass_time(self, seconds: float) -> None:
        self.shift[0] += int(seconds * SECOND)

    def run(self, *jobs: tuple[str, dict[str, JsonValue]], **spec: JsonValue) -> int:
        """A mission that requests jobs and is done then, as far as it may run; its id."""
        asked: JsonValue = [{"kind": kind, "params": params} for kind, params in jobs]
        replies: JsonValue = [{"ok": True, "action": "create_followup_jobs", "new_jobs": asked}, DONE]
        planner: JsonValue = {"type": "script", "replies": replies}
        launched = self.engine.launch({"goal": "Look.", "planner": planner, **spec}, root=self.root)
        self.engine.work(until_idle=True)
        return launched.id


@pytest.fixture
def site(emptied_database_url: str, tmp_path: Path) -> Iterator[Site]:
    site = Site(emptied_database_url, tmp_path / "root")
    with site.engine:
        yield site
