"""A model is told which results have no room in its prompt, and recalls one of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from tests.walls import NEEDS_LANDLOCK

from lcp_engine import Engine

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pydantic import JsonValue
    from tests.features.models.planners.conftest import FaultServer


def reply(kind: str, **params: JsonValue) -> str:
    jobs: JsonValue = [{"kind": kind, "params": params}]
    return json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": jobs})


DONE = json.dumps({"ok": True, "action": "mission_complete", "summary": "done"})


def test_a_model_reads_again_what_its_prompt_left_out(
    new_database_url: str, tmp_path: Path, faults: FaultServer
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("".join(f"{name} {line}\n" for line in range(900)))
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 5120, "max_tokens": 512,
    }  # fmt: skip
    looks = [reply("read_file", root=".", rel_path=f"{name}.txt") for name in "ab"]
    faults.play(*map(faults.says, (reply("list_files", root="."), *looks, reply("recall", number=4), DONE)))
    faults.tokenize = faults.counts
    with Engine(new_database_url) as engine:
        mission = engine.launch({"goal": "Find out.", "planner": planner}, root=tmp_path)
        engine.work(until_idle=True)
        assert engine.mission(mission.id).outcome == "mission_complete"
        assert engine.jobs(mission_id=mission.id, kinds=["recall"])[0].state == "succeeded"
    prompts = [json.dumps(request.body["messages"]) for request in faults.requests]
    assert ["- recall: " in prompt for prompt in prompts] == [False, False, False, True, True]
    assert re.search(r"left out here: number 4, read_file [^:]*a.txt", prompts[3])
    assert "a 899" not in prompts[3]
    assert "a 899" in prompts[4]
    schemas = [json.dumps(request.body["response_format"]) for request in faults.requests]
    assert '"number": {"type": "integer", "enum": [4]}' in schemas[3]
    assert '"enum": [6]' in schemas[4], "now the other one has no room"


@NEEDS_LANDLOCK
def test_of_the_output_of_a_command_both_ends_are_shown_and_the_rest_is_recalled(
    new_database_url: str, tmp_path: Path, faults: FaultServer
) -> None:
    script = "seq -f 'line %g of the log' 1 9000; echo '1 failed, 8 passed in 0.1s'; exit 1"
    planner: JsonValue = {
        "type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 5120, "max_tokens": 512,
    }  # fmt: skip
    run = reply("run_command", command=["sh", "-c", script])
    faults.play(*map(faults.says, (run, reply("recall", number=2, offset=5000, limit=20), DONE)))
    faults.tokenize = faults.counts
    with Engine(new_database_url) as engine:
        allow: JsonValue = {"allow": [["sh", "-c", "*"]]}
        policy: JsonValue = [{"kinds": ["run_command"], "do": "auto"}]
        spec: dict[str, JsonValue] = {"goal": "Run.", "planner": planner, "commands": allow, "policy": policy}
        mission = engine.launch(spec, root=tmp_path)
        engine.work(until_idle=True)
        assert engine.mission(mission.id).outcome == "mission_complete"
    first, second, third = ["".join(map(str, _contents(request.body))) for request in faults.requests]
    assert "run_command" in first
    assert 'done, "1 failed, 8 passed"' in second
    assert "  line 1 of the log\n" in second
    assert "  line 9000 of the log\n  1 failed, 8 passed in 0.1s\n" in second
    assert "line 5000 of the log\n" not in second
    said = re.search(
        r"\[left out here: ([\d,]+) lines of 9,\d+, [\d,]+ bytes; read on with recall, number 2, ", second
    )
    assert said is not None
    assert "line 5000 of the log\n" in third


def _contents(body: Mapping[str, JsonValue]) -> list[JsonValue]:
    messages = body["messages"]
    assert isinstance(messages, list)
    return [message["content"] for message in messages if isinstance(message, dict)]
