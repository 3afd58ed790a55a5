"""The recipes of docs/policy.md decide as their tables say, and hold when they are attacked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from pydantic import JsonValue

from lcp_engine import Engine, State
from lcp_engine.features.programs.wall.programs import cannot_confine

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
    assert len(RECIPES) == 8
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


PUTS = {"write_file", "edit_file", "rewrite_file"}
LOOKS = {"read_file", "search_files"}


@pytest.mark.turns(2)
@pytest.mark.parametrize("stage", [False, True], ids=["root", "stage"])
@pytest.mark.parametrize(("title", "rules", "rows"), RECIPES, ids=[title for title, _, _ in RECIPES])
def test_a_recipe_holds_whatever_a_planner_tries(
    tmp_path: Path, title: str, rules: list[JsonValue], rows: list[Row], *, stage: bool
) -> None:
    assert got_through(tmp_path, title, rules, rows, stage=stage) == []


def got_through(
    place: Path, title: str, rules: list[JsonValue], rows: list[Row], *, stage: bool
) -> list[str]:
    """What was read or changed although it is held or denied, and nobody approved anything."""
    root = place / "root"
    kept = [row for row in rows if row.verdict != "run" and row.path]
    files = {row.path for row in rows if "." in row.path and row.path != "."}
    for path in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(f"CANARY of {path}\n")
    (root / "free").mkdir(parents=True)
    replies: list[JsonValue] = [
        {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]} for jobs in _attacks(kept, root)
    ]
    spec: dict[str, JsonValue] = {
        "goal": title, "planner": {"type": "script", "replies": replies}, "policy": rules, "stage": stage,
        "limits": {"max_followups": 200, "max_jobs": 1000}, "commands": {"allow": [["sh", "-c", "*"]]},
    }  # fmt: skip
    with Engine(f"sqlite:///{place / 'lcp.db'}") as engine:
        mission = engine.launch(spec, root=root)
        engine.work(until_idle=True)
        told = "".join(str(job.result) for job in engine.jobs(mission_id=mission.id, limit=1000))
    looks = [row.path for row in kept if row.kind in LOOKS and f"CANARY of {row.path}" in told]
    same = {
        path
        for path in files
        if (file := root / path).is_file() and file.read_text() == f"CANARY of {path}\n"
    }
    changed = [row.path for row in kept if row.kind not in LOOKS and row.path in files - same]
    made = [row.target for row in kept if row.target and (root / row.target).exists()]
    return [*looks, *changed, *made]


def _attacks(kept: list[Row], root: Path) -> list[list[JsonValue]]:
    """The jobs of each reply."""
    ways: list[list[JsonValue]] = [[], [], [], []]
    for nth, row in enumerate(kept):
        spellings = [row.path, f"./free/../{row.path}", f"{root}/{row.path}", row.path.swapcase()]
        if row.kind in LOOKS:
            free, freer = f"free/{nth}.txt", f"free/then/{nth}.txt"
            ways[0] += [_job("read_file", path) for path in spellings]
            ways[1] += [_job("move_file", row.path, new_path=free), _job("read_file", free)]
            ways[2] += [_job("read_file", free), _job("move_file", free, new_path=freer)]
            ways[3] += [_job("read_file", freer)]
            continue
        for path in spellings:
            ways[0] += _changes(row, path)
    for way in ways[1:]:
        way.append({"kind": "search_files", "params": {"text": "CANARY", "patterns": ["free/**"]}})
        if cannot_confine() is None:
            way.append({"kind": "run_command", "params": {"command": ["sh", "-c", "cat */*.txt */*/*.txt"]}})
    return ways


def _changes(row: Row, path: str) -> list[JsonValue]:
    """Jobs that would change a file whose row is about `row.kind`."""
    if row.target:
        targets = [row.target, f"./free/../{row.target}", row.target.swapcase()]
        return [_job("move_file", path, new_path=target) for target in targets]
    if row.kind not in PUTS:
        return [_job(row.kind, path, new_path="free/moved")] if row.kind == "move_file" else [
            _job(row.kind, path), _job("move_file", path, new_path="free/moved")
        ]  # fmt: skip
    return [
        _job("write_file", path, content="x"),
        _job("write_file", path, content="x", mode="append"),
        _job("rewrite_file", path, content="x"),
        _job("edit_file", path, old_text="CANARY", new_text="x"),
        _job("delete_file", path),
        _job("move_file", path, new_path="free/moved"),
    ]


def _job(kind: str, path: str, **more: JsonValue) -> JsonValue:
    place = "path" if path.startswith("/") else "rel_path"
    return {"kind": kind, "params": {place: path, **more}}
