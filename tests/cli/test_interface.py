"""docs/interface.md names the keys that the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url

from lcp_engine import Engine
from lcp_engine.cli.app import start

PAGE = Path(__file__).parents[2] / "docs" / "interface.md"
MISSION: dict[str, JsonValue] = {
    "goal": "Nothing.",
    "planner": {
        "type": "script",
        "replies": [{"ok": True, "action": "mission_complete", "summary": "Done."}],
    },
}


def documented(thing: str) -> set[str]:
    rows = PAGE.read_text(encoding="utf-8").splitlines()
    return set(re.findall(r"`(\w+)`", next(row for row in rows if row.startswith(f"| {thing} |"))))


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A database with one mission that has ended."""
    with Engine(sqlite_url(tmp_path)) as engine:
        engine.launch(MISSION, root=tmp_path)
        engine.work(until_idle=True)
    return sqlite_url(tmp_path)


@pytest.mark.parametrize(
    ("thing", "arguments"), [("mission", ["show", "1"]), ("job", ["job", "1"]), ("event", ["watch", "1"])]
)
def test_an_object_has_the_keys_that_the_page_names(
    thing: str, arguments: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start(["--db", url, "--json", *arguments]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[0])
    # `lcp show` and `lcp job` print those with it.
    added = {"completions", "events", "prompt", "warnings", "context_tokens", "left_out"}
    assert set(printed) - added == documented(thing)


def test_a_check_has_the_keys_that_the_page_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "reply.json").write_text("{}")
    assert start(["--json", "check", str(tmp_path / "reply.json")]) == 1
    assert set(json.loads(capsys.readouterr().out)) == documented("check")


def test_a_validation_has_the_keys_that_the_page_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mission.json").write_text(json.dumps(MISSION))
    arguments = ["--json", "--db", sqlite_url(tmp_path), "validate", str(tmp_path / "mission.json")]
    assert start(arguments) == 0
    assert set(json.loads(capsys.readouterr().out)) == documented("validation")


def test_an_error_has_the_keys_that_the_page_names(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert start(["--db", url, "--json", "show", "9"]) == 1
    assert set(json.loads(capsys.readouterr().err)["error"]) == documented("error")


@pytest.mark.parametrize(("thing", "view"), [("mission", "mission_overview"), ("job", "job_history")])
def test_a_view_has_the_columns_that_the_page_names(thing: str, view: str, url: str) -> None:
    import sqlite3

    with sqlite3.connect(url.removeprefix("sqlite:///")) as database:
        columns = {column[0] for column in database.execute(f"SELECT * FROM {view}").description}
    database.close()
    assert documented(thing) <= columns
