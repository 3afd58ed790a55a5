"""Missions whose planner answers in the dialect `universal`: the same loop, reply by reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

from lcp_engine.api import read_reply
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.protocol.actions import Malformed, MissionComplete

if TYPE_CHECKING:
    from tests.engine.conftest import Lab, Object

UNIVERSAL: Object = {"dialect": "universal"}


def respond(kind: str, status: str = "success", message: str = "m", **parts: JsonValue) -> Object:
    return {"response_type": kind, "status": status, "message": message, **parts}


def lcp(action: str, **fields: JsonValue) -> Object:
    """A custom response that holds an LCP action."""
    return respond("custom", custom_fields={"lcp": {"ok": True, "action": action, **fields}})


ANSWER = respond("answer", message="It is a library.")


def test_a_mission_in_the_dialect_universal_runs_to_its_end(lab: Lab) -> None:
    jobs: JsonValue = [{"kind": "do", "params": {"of": "a"}}]
    mission = lab.run(lcp("create_followup_jobs", new_jobs=jobs), ANSWER, planner=UNIVERSAL)
    assert (mission.outcome, mission.summary) == ("mission_complete", "It is a library.")
    assert lab.states() == ["succeeded"]
    assert [question.dialect for question in lab.questions] == ["universal", "universal"]


def test_a_reply_in_another_dialect_is_corrected_in_the_words_of_this_one(lab: Lab) -> None:
    mission = lab.run({"ok": True, "action": "mission_complete", "summary": "x"}, ANSWER, planner=UNIVERSAL)
    assert mission.outcome == "mission_complete"
    assert "response_type" in {error["path"] for error in lab.questions[1].correction.errors}


def test_a_script_that_has_run_out_says_so_in_its_dialect(lab: Lab) -> None:
    mission_id = lab.engine.launch(
        {"goal": "Find out.", "planner": {"type": "script", "replies": [], "dialect": "universal"}},
        root=lab.root,
    ).id
    lab.work()
    mission = lab.mission(mission_id)
    assert (mission.outcome, mission.error["error_code"]) == ("error", "SCRIPT_EXHAUSTED")


@pytest.mark.parametrize(
    ("planner", "said"),
    [
        ({"type": "script", "replies": [], "dialect": "esperanto"}, "'lcp' or 'universal'"),
        ({"type": "surveyor", "dialect": "universal"}, "'surveyor' answers in 'lcp' alone"),
    ],
)
def test_a_dialect_that_the_planner_does_not_speak_is_refused_at_launch(
    lab: Lab, planner: Object, said: str
) -> None:
    with pytest.raises(LcpError, match=said) as refused:
        lab.engine.launch({"goal": "Find out.", "planner": planner}, root=lab.root)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert lab.engine.missions() == []


def test_a_program_reads_a_reply_in_the_dialect_that_it_names() -> None:
    text = '{"response_type": "answer", "status": "success", "message": "m"}'
    assert isinstance(read_reply(text, dialect="universal"), MissionComplete)
    assert isinstance(read_reply(text), Malformed)
    with pytest.raises(LcpError, match="'lcp' or 'universal'; there is no 'esperanto'"):
        read_reply(text, dialect="esperanto")
