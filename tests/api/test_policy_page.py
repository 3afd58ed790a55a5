"""The recipes of docs/policy.md decide as their tables say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from pydantic import JsonValue

from lcp_engine import Engine, State

PAGE = Path(__file__).resolve().parents[2] / "docs" / "policy.md"
RECIPE = re.compile(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?^```yaml\n(.*?)^```\n\n\| job \| is \|\n\|---\|---\|\n((?:\|[^\n]*\n)+)",
    re.DOTALL | re.MULTILINE,
)
ROW = re.compile(r"\| `(\w+) ?([^`]*)`(?: to `([^`]+)`)? \| (\w+) \|")
MEANS = {
    "run": {State.SUCCEEDED, State.FAILED},  # it ran, whether or not there is such a file
    "held": {State.HELD},
    "denied": {State.REJECTED},
}


class Row(NamedTuple):
    kind: str
    path: str
    target: str
    verdict: str

    @property
    def params(self) -> dict[str, JsonValue]:
        own: dict[str, dict[str, JsonValue]] = {
            "write_file": {"content": "x"},
            "edit_file": {"old_text": "a", "new_text": "b"},
            "move_file": {"new_path": self.target or "elsewhere.txt"},
            "search_files": {"text": "a", "root": self.path},
            "ask_user": {"question": "Go on?"},
        }
        place: dict[str, JsonValue] = (
            {} if self.kind in ("search_files", "ask_user") else {"rel_path": self.path}
        )
        return {**place, **own.get(self.kind, {})}


RECIPES = [
    (title, yaml.safe_load(rules)["policy"], [Row(*row) for row in ROW.findall(table)])
    for title, rules, table in RECIPE.findall(PAGE.read_text(encoding="utf-8"))
]


def test_the_page_has_recipes() -> None:
    assert len(RECIPES) == 7
    assert all(len(rows) >= 3 for _, _, rows in RECIPES)


@pytest.mark.parametrize(("title", "rules", "rows"), RECIPES, ids=[title for title, _, _ in RECIPES])
def test_a_recipe_decides_as_its_table_says(
    tmp_path: Path, title: str, rules: list[JsonValue], rows: list[Row]
) -> None:
    root = tmp_path / "root"
    (root / "contracts").mkdir(parents=True)
    jobs: list[JsonValue] = [{"kind": row.kind, "params": row.params} for row in rows]
    reply: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    planner: JsonValue = {"type": "script", "replies": [reply]}
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        mission = engine.launch({"goal": title, "planner": planner, "policy": rules}, root=root)
        engine.work(until_idle=True)
        found = [job for job in engine.jobs(mission_id=mission.id) if job.kind != "agent_plan"]
    for row, job in zip(rows, found, strict=True):
        assert job.state in MEANS[row.verdict], (row, job.state, job.reason)
