"""What docs/actions.md shows as a reply is one, what it shows as a mistake is one, and its planner runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import JsonValue

from lcp_engine import Engine, Malformed, read_reply

PAGE = Path(__file__).resolve().parents[2] / "docs" / "actions.md"
BLOCKS = re.findall(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', PAGE.read_text(), re.DOTALL | re.MULTILINE)
REPLIES = [text for language, title, text in BLOCKS if language == "json" and not title]
MISTAKES = [(title, text) for language, title, text in BLOCKS if language == "json" and " " in title]


def test_the_page_shows_every_action() -> None:
    shown = {name for text in REPLIES for name in re.findall(r'"action": "(\w+)"', text)}
    assert shown == {"create_followup_jobs", "write_file", "mission_complete", "analysis_result", "error"}
    assert len(MISTAKES) == 4


@pytest.mark.parametrize("reply", REPLIES)
def test_a_reply_of_the_page_is_valid(reply: str) -> None:
    read = read_reply(reply)
    assert not isinstance(read, Malformed), read
    assert read.warnings == ()


@pytest.mark.parametrize(("title", "reply"), MISTAKES, ids=[title for title, _ in MISTAKES])
def test_a_mistake_of_the_page_is_one(title: str, reply: str) -> None:
    assert isinstance(read_reply(reply), Malformed)


def test_the_response_in_the_other_dialect_is_valid() -> None:
    [reply] = [text for _, title, text in BLOCKS if title == "universal.json"]
    assert not isinstance(read_reply(reply, "universal"), Malformed)


def test_the_planner_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = [text for _, title, text in BLOCKS if title == "readme_planner.py"]
    site, root = tmp_path / "site", tmp_path / "root"
    metadata = site / "readme_planner-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "readme_planner.py").write_text(code)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: readme_planner\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[lcp_engine.planners]\nreadme = readme_planner:ReadmePlanner\n"
    )
    monkeypatch.syspath_prepend(site)
    root.mkdir()
    (root / "README.md").write_text("# Shop\n\nA tiny shop.\n")
    with Engine(f"sqlite:///{tmp_path / 'lcp.db'}") as engine:
        planner: JsonValue = {"type": "readme", "path": "README.md"}
        mission = engine.launch({"goal": "What is this?", "planner": planner}, root=root)
        engine.work(until_idle=True)
        done = engine.mission(mission.id)
    assert (done.outcome, done.summary) == ("analysis_result", "# Shop")
