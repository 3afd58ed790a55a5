"""The page of evaluations: a chart with a table beside it, from the summaries that `lcp eval run` stores."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tests.web.conftest import ADDRESS, HOME

from lcp_engine import Engine
from lcp_engine.evaluation import Evaluation
from lcp_engine.web.access import Secrets
from lcp_engine.web.app import make_app
from lcp_engine.web.context import PageContext, make_templates

pytestmark = pytest.mark.usefixtures("forked_trials")

SAYS = {"ok": True, "action": "mission_complete", "summary": "It is 1."}
SUITE = {
    "name": "s",
    "planners": {"plays": {"type": "script", "replies": [SAYS]}},
    "missions": [
        {"name": "right", "goal": "What is it?", "root": "root", "expect": {"facts": ["1"]}},
        {"name": "wrong", "goal": "What is it?", "root": "root", "expect": {"facts": ["2"]}},
    ],
}  # fmt: skip


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[TestClient]:
    keys = Secrets()
    with Engine(f"sqlite:///{tmp_path / 'page.db'}") as engine:
        context = PageContext(engine, make_templates(), keys.csrf, evals=tmp_path / "evals")
        with TestClient(make_app(context, keys, ADDRESS), base_url=HOME) as browser:
            assert browser.get("/", params={"token": keys.token}).status_code == 200
            yield browser


def evaluate(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "suite.json").write_text(json.dumps(SUITE))
    evaluation = Evaluation.begin(tmp_path / "suite.json", tmp_path / "evals" / "first")
    with Engine(evaluation.url) as engine:
        evaluation.run(engine)


def test_each_planner_has_a_bar_and_a_row(browser: TestClient, tmp_path: Path) -> None:
    assert "No evaluation is there yet." in browser.get("/evals").text
    evaluate(tmp_path)
    text = browser.get("/evals").text
    assert 'aria-label="plays: 1 of 2 right, 9% to 91%"' in text
    assert [float(width) for width in re.findall(r'width="([0-9.]+)" height="20"', text)] == [1000, 500]
    assert '<td data-label="Right">1 of 2</td>' in text
    assert '<th scope="col">Cost</th>' not in text
    assert "1 wrong" in text
    assert 'href="/evals" aria-current="page"' in text


def test_missions_are_graded_by_planner_and_earlier_runs_are_beside(
    browser: TestClient, tmp_path: Path
) -> None:
    evaluate(tmp_path)
    now = tmp_path / "evals" / "first" / "summary.json"
    then = tmp_path / "evals" / "older"
    then.mkdir()
    stored = json.loads(now.read_text())
    assert stored["planners"][0].pop("missions") == {"right": [1, 1], "wrong": [0, 1]}
    stored["planners"][0]["right"]["count"] = 0
    (then / "summary.json").write_text(json.dumps(stored))
    os.utime(then / "summary.json", (1, 1))
    text = browser.get("/evals").text
    assert '<path class="then" d="M0.0 12h0"><title>older: 0 of 2 right' in text
    assert '<path class="now" d="M500.0 12h0"' in text
    assert re.findall(r'<th scope="row">(\w+)</th><td class="(\w+)">(\d of \d)', text) == [
        ("right", "succeeded", "1 of 1"), ("wrong", "failed", "0 of 1"),
    ]  # fmt: skip


def test_text_of_a_summary_is_shown_as_text(browser: TestClient, tmp_path: Path) -> None:
    evaluate(tmp_path)
    file = tmp_path / "evals" / "first" / "summary.json"
    file.write_text(file.read_text().replace("plays", "<b>plays"))
    text = browser.get("/evals").text
    assert "&lt;b&gt;plays: 50% right" in text
    assert "<b>" not in text


@pytest.mark.parametrize("stored", ["", "[]", '{"planners": [1]}', "{" * 100_000, "\x00" * 2_000_000])
def test_what_is_no_summary_is_said(browser: TestClient, tmp_path: Path, stored: str) -> None:
    place = tmp_path / "evals" / "it"
    place.mkdir(parents=True)
    (place / "summary.json").write_text(stored)
    answer = browser.get("/evals")
    assert (answer.status_code, "Its summary cannot be read" in answer.text) == (200, True)
