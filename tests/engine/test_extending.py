"""The package of docs/extending.md is installed as it is printed, and does what the page says."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "extending.md"
FILES = dict(re.findall(r"^`([\w./]+)`\n\n```\w+\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE))
REPLIES = [
    {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "count_words", "params": {"path": "notes.txt"}}],
    },
    {"ok": True, "action": "mission_complete", "summary": "Counted."},
]
PAGES = """
import sys
from starlette.testclient import TestClient
from lcp_engine import Engine
from lcp_engine.web.access import Address, Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates
with Engine(sys.argv[1]) as engine:
    keys = Secrets()
    app = make_app(PageContext(engine, make_templates(), keys.csrf), keys, Address(80, frozenset({"127.0.0.1"})))
    client = TestClient(app, base_url="http://127.0.0.1")
    client.get("/", params={"token": keys.token})
    print(client.get("/standup").text)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment of programs where the package is installed, with a database of their own."""
    for name, text in FILES.items():
        (tmp_path / "standup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "standup" / name).write_text(text)
    target = tmp_path / "site"
    install = [
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        f"--target={target}",
    ]
    subprocess.run([sys.executable, "-m", *install, str(tmp_path / "standup")], check=True)
    return {
        **os.environ,
        "PYTHONPATH": str(target),
        "LCP_DATABASE_URL": f"sqlite:///{tmp_path / 'lcp.db'}",
        "LCP_STANDUP_FILE": str(tmp_path / "standup.txt"),
    }


@pytest.mark.proof
def test_the_package_of_the_page_does_what_the_page_says(environment: dict[str, str], tmp_path: Path) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "left out" not in done.stderr
        return done.stdout

    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "notes.txt").write_text("Buy milk today.\n")
    mission = {
        "name": "count",
        "goal": "Count the words.",
        "root": "root",
        "planner": {"type": "script", "replies": REPLIES},
    }
    (tmp_path / "count.json").write_text(json.dumps(mission))
    assert "Count the words of a text file." in run("-m", "lcp_engine", "kinds", "count_words")
    for _ in range(2):
        run("-m", "lcp_engine", "run", "count.json")
    assert run("-m", "lcp_engine", "standup") == "count: mission_complete\ncount: mission_complete\n"
    assert json.loads(run("-m", "lcp_engine", "standup", "--json")) == ["count: mission_complete"] * 2
    assert (tmp_path / "standup.txt").read_text() == "count: mission_complete\ncount: mission_complete\n"
    jobs = json.loads(run("-m", "lcp_engine", "jobs", "--kind", "count_words", "--json"))
    assert [job["result"] for job in jobs] == [{"words": 3}] * 2
    url = environment["LCP_DATABASE_URL"]
    assert run("-c", PAGES, url).count("<li>count: mission_complete</li>") == 2
    with closing(sqlite3.connect(tmp_path / "lcp.db")) as database:
        asked = "SELECT memories FROM turns WHERE mission_id = 2 AND number = 1"
        [(shown,)] = database.execute(asked).fetchall()
    assert [entry["content"] for entry in json.loads(shown) if entry["source"] == "standup"] == [
        "count: mission_complete"
    ]
    assert "standup" in run("-m", "lcp_engine", "standup", "--help")
    assert '"standup_file"' in run("-m", "lcp_engine", "schema", "config")
    assert sum(len(text.splitlines()) for text in FILES.values()) < 160
