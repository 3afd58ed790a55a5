"""An evaluation of a model behind a server: what it is asked costs tokens, and what the server refuses is a cause."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcp_engine import Engine
from lcp_engine.evaluation import Evaluation, summarize_scores

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

pytestmark = pytest.mark.usefixtures("forked_trials")

FOUND = json.dumps({"ok": True, "action": "analysis_result", "summary": "It is version 1.3.0."})
REFUSED = 400


def test_each_run_has_its_tokens_and_what_a_server_refuses_is_the_cause(
    faults: FaultServer, tmp_path: Path
) -> None:
    (tmp_path / "root").mkdir()
    planner = {"type": "openai", "base_url": faults.url, "model": "tiny"}
    expect = {"facts": [r"1\.3\.0"]}
    suite = tmp_path / "suite.json"
    case = {"goal": "Which version is it?", "root": "root", "expect": expect}
    stated = {
        "name": "s",
        "planners": {"model": planner},
        "missions": [{"name": name, **case} for name in ("a", "b")],
    }
    suite.write_text(json.dumps(stated))
    evaluation = Evaluation.begin(suite, tmp_path / "it")
    faults.play(faults.says(FOUND), faults.refuses(REFUSED, "the model is gone"))
    with Engine(evaluation.url) as engine:
        evaluation.run(engine)
        first, second = evaluation.scores(engine)
    assert (first.is_right, first.record.input_tokens, first.record.output_tokens, first.record.turns) == (
        True,
        11,
        7,
        1,
    )
    assert first.record.cpu_seconds is not None
    assert first.record.cpu_seconds > 0
    assert (second.is_right, second.cause, second.facts) == (False, "PLANNER_REFUSED", 0)
    assert str(tmp_path / "it" / "roots" / "1" / "root") in str(faults.requests[0].body)


def test_money_and_prompts_over_the_context_are_counted(
    faults: FaultServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "lcp-engine" / "config.yaml"
    config.parent.mkdir()
    config.write_text("prices: {currency: EUR, models: {tiny: {input: 1000, output: 2000}}}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "root").mkdir()
    planner = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096}
    mission = {"name": "a", "goal": "Which version is it?", "root": "root"}
    stated = {"name": "s", "planners": {"model": planner}, "missions": [mission, {**mission, "name": "b"}]}
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps(stated))
    evaluation = Evaluation.begin(suite, tmp_path / "it")
    too_long = faults.refuses(REFUSED, "the maximum context length is 4096 tokens")
    faults.play(faults.says(FOUND), too_long, faults.says(FOUND))
    with Engine(evaluation.url) as engine:
        evaluation.run(engine)
        first, second = evaluation.scores(engine)
    assert (first.record.cost, first.record.currency) == (Decimal("0.025"), "EUR")
    assert (first.record.prompts, first.record.over_context) == (1, 0)
    assert (second.record.prompts, second.record.over_context) == (2, 1)
    (summary,) = summarize_scores([first, second])
    assert summary.json["cost"] == "0.05"
    assert summary.json["over_context"] == {"count": 1, "of": 3, "low": 0.0615, "high": 0.7923}
