"""Every example of the protocol, word for word, in a mission whose root has the examples' Windows names (R22)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

SEED = json.loads(
    (Path(__file__).parent.parent / "core" / "protocol" / "seed_003.json").read_text(encoding="utf-8")
)
REPLIES = {str(reply["title"]).split(" (")[0]: str(reply["text"]) for reply in SEED["replies"]}
ALIASES: list[JsonValue] = ["C:\\Sheratan\\2_sheratan_core", "C:\\path\\to\\project"]
DONE: Object = {"ok": True, "action": "mission_complete", "summary": "all done"}

EXPECTED = {
    "1. CREATE FOLLOW-UP JOBS": ("completed", "mission_complete", ["list_files succeeded", "read_file held"]),
    "2. LIST FILES RESULT": ("completed", "mission_complete", []),
    "3. READ FILE RESULT": ("completed", "mission_complete", []),
    "4. WRITE FILE": ("completed", "mission_complete", ["write_file succeeded"]),
    "5. ANALYSIS RESULT": ("completed", "analysis_result", []),
    "6. MISSION COMPLETE": ("completed", "mission_complete", []),
    "7. ERROR RESPONSE": ("failed", "error", []),
}


@pytest.mark.parametrize("title", REPLIES)
def test_an_example_reply_does_what_the_protocol_says(lab: Lab, title: str) -> None:
    rule: Object = {"kinds": ["write_file"], "paths": ["docs/**"], "do": "auto"}
    mission = lab.run(REPLIES[title], DONE, root_aliases=ALIASES, policy=[rule])
    jobs = [f"{job.kind} {job.state}" for job in lab.jobs()]
    assert (mission.status, mission.outcome, jobs) == EXPECTED[title]
    corrected = [question.correction.reply for question in lab.questions if question.correction.reply]
    assert len(corrected) == (title in ("2. LIST FILES RESULT", "3. READ FILE RESULT"))


def test_the_example_params_reach_their_files(lab: Lab) -> None:
    (lab.root / "src").mkdir()
    (lab.root / "src" / "main.py").write_text("print(1)\n")
    examples: list[Object] = SEED["params"]
    jobs: list[JsonValue] = [{"kind": each["kind"], "params": each["params"]} for each in examples]
    ask: Object = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    rules: list[JsonValue] = [{"kinds": ["*"], "do": "auto"}]
    mission = lab.run(ask, DONE, root_aliases=ALIASES, policy=rules, limits={"max_followups": len(jobs)})
    assert mission.outcome == "mission_complete"
    assert [(job.kind, job.state) for job in lab.jobs() if job.state != "succeeded"] == []
    assert [question.prompt for question in lab.questions] == ["Find out.", "Analyze the database schema"]
