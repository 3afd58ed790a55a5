"""The engine works without a feature, also beside its rows: its modules are refused as if they were gone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.engine.replies import DONE, ask, write

from lcp_engine import Engine, Isolation
from lcp_engine.api.history import open_history
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.feature import shipped
from lcp_engine.features.check.store.examination import check_database

if TYPE_CHECKING:
    from pydantic import JsonValue

PROJECT = Path(__file__).parent.parent
SOURCE = PROJECT / "src" / "lcp_engine"
ROOMS = tomllib.loads((PROJECT / "tools" / "rooms.toml").read_text(encoding="utf-8"))["rooms"]
FEATURES = [one.name for one in shipped()]
PROGRAM = """
import sys
from pathlib import Path

url, root, *refused = sys.argv[1:]

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())

from lcp_engine import Engine, LcpError
from lcp_engine.cli.app import start
from lcp_engine.config_file import parse_config
from lcp_engine.core.mission.parse import build_mission

write = {"kind": "write_file", "params": {"rel_path": "new.md", "content": "new"}}
asks = {"ok": True, "action": "create_followup_jobs", "new_jobs": [write]}
done = {"ok": True, "action": "mission_complete", "summary": "done"}
with Engine(url) as engine:
    spec = {"goal": "write", "planner": {"type": "script", "replies": [asks, done]}}
    mission = engine.launch(spec, root=root)
    engine.work(until_idle=True, mission_id=mission.id)
    [held] = engine.jobs(mission_id=mission.id, states=["held"])
    engine.approve(held.id)
    engine.work(until_idle=True)
    assert engine.mission(mission.id).status == "completed"
    assert Path(root, "new.md").read_text() == "new"
    engine.undo(mission.id)
    assert not Path(root, "new.md").exists()
    assert len(engine.missions()) > 0
    try:
        engine.memory, engine.links, engine.schedules, engine.replay, engine.rules_for, engine.plan_graph
    except AttributeError as missing:
        print(missing)
for read in (
    lambda: build_mission({**spec, "stage": True, "memory": {}}, source="mission"),
    lambda: parse_config("webhook: {}", Path("config.yaml")),
):
    try:
        read()
    except LcpError as error:
        print(error)
print("checked", start(["--db", url, "db", "check"]))
"""


def _without(site: tuple[str, Path], *features: str) -> subprocess.CompletedProcess[str]:
    files = [path.relative_to(PROJECT / "src") for path in SOURCE.rglob("*.py")]
    refused = [
        ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        for file in files
        if any(
            fnmatchcase(str(file), f"lcp_engine/{one}") for room in features for one in ROOMS[room]["files"]
        )
    ]
    url, directory = site
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, url, str(directory), *refused],
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    for feature in {*features} & {*FEATURES}:
        assert f"feature {feature} is left out: ModuleNotFoundError" in ran.stderr
    return ran


@pytest.fixture
def lived(emptied_database_url: str, tmp_path: Path) -> tuple[str, Path]:
    """A database with rows of every feature, and the root of its missions."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.md").write_text("a\n")
    script: JsonValue = {"type": "script", "replies": [ask(write("a.md", "b\n")), DONE]}
    auto: JsonValue = [{"kinds": ["*"], "do": "auto"}]
    parameters: JsonValue = {"rel_path": "c.md", "content": "c\n"}
    step: JsonValue = {"id": "first", "tool": "write_file", "parameters": parameters}
    with Engine(emptied_database_url) as engine:
        engine.launch({"goal": "stage", "stage": True, "policy": auto, "planner": script}, root=root)
        engine.launch({"goal": "plan", "plan": {"id": "p", "steps": [step]}}, root=root)
        engine.launch(
            {"goal": "limit", "planner": script, "kinds": {"write_file": {"max_running": 1}}}, root=root
        )
        engine.work(until_idle=True)
        engine.memory.add("Title", "Content", root=root)
        engine.add_schedule("daily", {"goal": "again", "planner": script}, root=root, every="1h")
        assert {job.kind for job in engine.jobs(states=["held"])} >= {"merge", "write_file"}
    return emptied_database_url, root


def test_a_mission_an_approval_an_undo_and_a_check_work_without_any_feature(lived: tuple[str, Path]) -> None:
    ran = _without(lived, *FEATURES)
    assert "Engine has no 'memory': no installed feature adds it" in ran.stdout
    assert "mission: stage: the feature stages, which has this key, is not installed" in ran.stdout
    assert "config.yaml: webhook: the feature notices, which has this key, is not installed" in ran.stdout
    assert check_database(lived[0]) == []


@pytest.mark.both
def test_a_feature_that_is_installed_later_has_its_tables(new_database_url: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _without((new_database_url, root), *FEATURES)
    with open_history(
        new_database_url, busy_seconds=30.0, away_seconds=None, isolation=Isolation.OFF
    ) as history:
        assert history.plan_graphs(1) == []
    with Engine(new_database_url) as engine:
        engine.memory.add("Title", "Content", root=root)
        script: JsonValue = {"type": "script", "replies": [DONE]}
        engine.add_schedule("daily", {"goal": "again", "planner": script}, root=root, every="1h")
        engine.launch({"goal": "stage", "stage": True, "planner": script}, root=root)
        engine.work(until_idle=True)
        assert [mission.status for mission in engine.missions()] == ["completed"] * 2
    assert check_database(new_database_url) == []


@pytest.mark.proof
@pytest.mark.turns(3)
@pytest.mark.parametrize("feature", FEATURES)
def test_a_mission_an_approval_an_undo_and_a_check_work_without_a_feature(
    lived: tuple[str, Path], feature: str
) -> None:
    assert ("checked 0" in _without(lived, feature).stdout) == (feature != "check")
    assert check_database(lived[0]) == []


@pytest.mark.proof
def test_a_check_that_is_not_installed_says_so(lived: tuple[str, Path]) -> None:
    ran = _without(lived, "check")
    assert "checked 2" in ran.stdout
    assert "unknown command 'check'; " in ran.stderr
    assert "feature upkeep is left out: it needs 'check', which is not installed" in ran.stderr


def test_a_feature_states_the_needs_that_its_files_have() -> None:
    names = {one.name for one in shipped()}
    for one in shipped():
        assert {*one.needs} == names & {*ROOMS[one.name].get("needs", ())}, one.name


def test_a_call_that_no_feature_adds_is_refused_by_its_code(emptied_database_url: str) -> None:
    with Engine(emptied_database_url) as engine:
        assert not hasattr(engine, "graph_of_nothing")
        with pytest.raises(LcpError) as refused:
            engine.graph_of_nothing  # type: ignore[attr-defined] # noqa: B018
    assert refused.value.code is ErrorCode.NOT_INSTALLED
    assert refused.value.status == 501
