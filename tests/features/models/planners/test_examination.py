"""An examination says of a model whether it is there, what it honours, how well it answers and how fast."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from lcp_engine import read_reply
from lcp_engine.core.health import Finding, Grade
from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.features.models.endpoints.complete import Times
from lcp_engine.features.models.endpoints.probe import examine
from lcp_engine.features.models.factories import openai_planner
from lcp_engine.features.models.options import OpenAIOptions
from lcp_engine.planners.base import Question
from lcp_engine.planners.environment import MemoryProbeCache

if TYPE_CHECKING:
    from tests.features.models.planners.conftest import FaultServer

CANARY = "sk-canary-0123456789abcdef"
ACTION = '{"ok": true, "action": "mission_complete", "summary": "done"}'
QUESTIONS = [Question(0, 1, 1, "goal", "/", "goal")] * 10


def examined(
    faults: FaultServer, *, model: str = "tiny", context_tokens: int | None = 8192
) -> dict[str, Finding]:
    """What an examination finds, by what it is about; it sleeps for nothing."""
    options = OpenAIOptions(
        base_url=faults.url, model=model or None, context_tokens=context_tokens, first_byte_seconds=2
    )
    made = openai_planner(options, {"LCP_PLANNER_KEY": CANARY, "LCP_PLANNER_ENDPOINT": faults.url})
    answering = replace(made.answering, memory=MemoryProbeCache(), times=Times(sleep=lambda seconds: None))
    found = list(examine(replace(made, answering=answering), QUESTIONS, _is_valid, seconds=20.0))
    assert CANARY not in repr(found)
    return {finding.about: finding for finding in found}


def _is_valid(text: str) -> bool:
    return not isinstance(read_reply(text), Malformed)


def test_a_healthy_model_is_well_in_everything(faults: FaultServer) -> None:
    faults.play(faults.says(ACTION))
    found = examined(faults)
    assert {finding.grade for finding in found.values()} == {Grade.OK}
    assert [*found] == ["endpoint", "model", "context", "rung", "reply", "validity", "guidance", "speed"]
    assert found["rung"].fact == "json_schema"
    assert found["validity"].fact == "10 of 10 replies are valid actions"
    assert len(faults.requests) == len(QUESTIONS)


def test_what_could_be_better_is_said_with_what_to_do(faults: FaultServer) -> None:
    faults.models = ("tinny",)
    faults.play(
        *[faults.refuses(400)] * 4,
        faults.says(ACTION, key="reasoning_content"),
        *[faults.says("no")] * 3,
        faults.says(ACTION),
    )
    found = examined(faults, context_tokens=None)
    assert {finding.about for finding in found.values() if finding.grade is Grade.WARN} == {
        "model", "context", "rung", "reply", "validity", "guidance",
    }  # fmt: skip
    assert "did you mean 'tinny'?" in found["model"].fact
    assert "8,192 tokens are assumed" in found["context"].fact
    assert found["rung"].fact == "prompt"
    assert found["reply"].fact == "in reasoning_content for 1 of 10"
    assert found["validity"].fact == "7 of 10 replies are valid actions"
    assert all(finding.advice for finding in found.values() if finding.grade is Grade.WARN)


def test_guidance_is_advised_where_replies_are_not_valid_without_it(faults: FaultServer) -> None:
    faults.play(faults.says(ACTION), faults.says("no"))
    without = examined(faults)["guidance"]
    assert (without.grade, without.fact) == (Grade.WARN, "off, and not every reply is a valid action")
    assert "guidance: on" in str(without.advice)
    narrow = examined(faults, context_tokens=4096)["guidance"]
    assert (narrow.grade, narrow.fact) == (Grade.OK, "on: each turn offers the one thing that comes next")


def test_a_model_that_only_thinks_is_told_apart(faults: FaultServer) -> None:
    faults.play(faults.says(f"I could say {ACTION}", key="reasoning"), faults.says(ACTION))
    reply = examined(faults)["reply"]
    assert (reply.grade, reply.fact) == (Grade.WARN, "none, only thoughts, for 1 of 10")
    assert "not executed" in str(reply.advice)


@pytest.mark.parametrize(
    ("status", "said"),
    [(401, "a key that the server accepts is expected"), (404, "a model and a path that the server knows")],
)
def test_what_does_not_work_ends_the_examination(faults: FaultServer, status: int, said: str) -> None:
    faults.play(faults.refuses(status, f"no {CANARY}"))
    found = examined(faults)
    assert found["question"].grade is Grade.FAIL
    assert said in found["question"].fact
    assert "validity" not in found


def test_a_model_that_never_answers_in_lcp_fails(faults: FaultServer) -> None:
    faults.play(faults.says("hello"))
    validity = examined(faults)["validity"]
    assert (validity.grade, validity.fact) == (Grade.FAIL, "0 of 10 replies are valid actions")


def test_of_several_models_one_has_to_be_named(faults: FaultServer) -> None:
    faults.models = ("one", "two")
    faults.play(faults.says(ACTION))
    found = examined(faults, model="", context_tokens=None)
    assert found["model"].grade is Grade.FAIL
    assert "one, two" in found["model"].fact
    assert not faults.requests
