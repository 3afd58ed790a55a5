"""An evaluation of a model behind a server: what it is asked costs tokens, and what the server refuses is a cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lcp_engine import Engine
from lcp_engine.api.evaluation import Evaluation

if TYPE_CHECKING:
    from tests.planners.llm.conftest import FaultServer

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
    assert (first.is_right, first.run.input_tokens, first.run.output_tokens, first.run.turns) == (
        True,
        11,
        7,
        1,
    )
    assert first.run.cpu_seconds is not None
    assert first.run.cpu_seconds > 0
    assert (second.is_right, second.cause, second.facts) == (False, "PLANNER_REFUSED", 0)
    assert str(tmp_path / "it" / "roots" / "1" / "root") in str(faults.requests[0].body)
