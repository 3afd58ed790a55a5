"""`lcp show` lists the instructions of a mission's root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp


def test_the_instructions_of_a_mission_are_listed(lcp: Lcp) -> None:
    (lcp.root / "AGENTS.md").write_text("Run make.\n")
    place = lcp.root / ".agents" / "skills" / "none"
    place.mkdir(parents=True)
    (place / "SKILL.md").write_text("None.\n")
    assert lcp("run", lcp.mission(lcp.complete), "--root", "root").code == 0
    shown = lcp("show", 1).out
    assert "instructions: AGENTS.md\n" in shown
    assert "'.agents/skills/none/SKILL.md' does not begin with front matter" in " ".join(shown.split())
    [file] = json.loads(lcp("--json", "show", 1).out)["instructions"]["files"]
    assert file["text"] == "Run make.\n"
