"""A mission in every state answers its request with an envelope that the reference schemas accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from tests.engine.replies import DONE, FREE, ask, read, write

from lcp_engine.features.universal.agent_response import acting_kinds, respond_as_agent
from lcp_engine.features.universal.envelopes import AgentResponse, ErrorEnvelope
from lcp_engine.features.universal.structured import StructuredResponse, respond

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import JsonValue
    from tests.engine.conftest import Lab, Object

HERE = Path(__file__).parent
SEED_001 = json.loads((HERE.parent / "core" / "protocol" / "seed_001.json").read_text(encoding="utf-8"))
SEED_004 = json.loads((HERE.parents[1] / "reports" / "engine" / "seed_004.json").read_text(encoding="utf-8"))
CHECKER = Draft7Validator.FORMAT_CHECKER
LOST: Object = {
    "ok": False, "action": "error", "error": "no ticket", "error_code": "MISSING", "recovery_suggestion": "Name it.",
}  # fmt: skip
FOUND: Object = {"ok": True, "action": "analysis_result", "summary": "It is old.", "issues": ["old"]}
LISTS: Object = {"kind": "list_files", "params": {"patterns": ["*.md"]}}
QUESTION: Object = {"kind": "ask_user", "params": {"question": "Which?", "options": ["a", "b"]}}


def running(lab: Lab) -> None:
    lab.launch(DONE)


def waiting(lab: Lab) -> None:
    lab.run(ask(write("a", "x"), QUESTION, "look"), DONE)


def complete(lab: Lab) -> None:
    lab.run(ask(write("a", "x"), LISTS), DONE, policy=[FREE])


def complete_with_findings(lab: Lab) -> None:
    lab.run(FOUND)


def complete_without_jobs(lab: Lab) -> None:
    lab.run(ask())


def complete_and_unfulfilled(lab: Lab) -> None:
    lab.run(ask(write(".env", "x")), DONE, policy=[FREE])


def given_up(lab: Lab) -> None:
    lab.run(ask(write("a", "x"), LISTS), LOST, policy=[FREE])


def at_a_limit(lab: Lab) -> None:
    lab.run(ask("one"), ask("two"), limits={"max_turns": 1})


def without_progress(lab: Lab) -> None:
    lab.run(*[ask("one")] * 6)


def never_valid(lab: Lab) -> None:
    lab.run("no", "no", "no")


def with_a_failed_job(lab: Lab) -> None:
    lab.run(ask({"kind": "fail"}), on_job_failure="fail")


def cancelled(lab: Lab) -> None:
    lab.engine.cancel(lab.launch(DONE))


def without_reply(lab: Lab) -> None:
    lab.run()


FAILED = (given_up, at_a_limit, without_progress, never_valid, with_a_failed_job, without_reply)
OTHERS = (
    running, waiting, complete, complete_with_findings, complete_without_jobs, complete_and_unfulfilled, cancelled,
)  # fmt: skip


def answered(lab: Lab) -> AgentResponse | ErrorEnvelope:
    roles = {kind: worker.role for kind, worker in lab.engine.workers.items()}
    return respond_as_agent(*lab.engine.standing(1, acting=acting_kinds(roles)), roles)


def performed(actions: JsonValue) -> list[tuple[JsonValue, JsonValue]]:
    """The types of actions, each with the kind or the file that it names."""
    assert isinstance(actions, list)
    found: list[tuple[JsonValue, JsonValue]] = []
    for action in actions:
        assert isinstance(action, dict)
        details = action["details"]
        assert isinstance(details, dict)
        found.append((action["action_type"], details.get("kind", details.get("path"))))
    return found


@pytest.mark.parametrize("reach", OTHERS, ids=lambda reach: reach.__name__)
def test_a_mission_that_has_not_failed_answers_with_a_response(
    lab: Lab, reach: Callable[[Lab], None]
) -> None:
    reach(lab)
    response = answered(lab).as_json()
    Draft7Validator(SEED_001["AgentResponse"], format_checker=CHECKER).validate(response)
    Draft202012Validator(AgentResponse.model_json_schema()).validate(response)
    assert response["request_id"] == lab.mission().uid


@pytest.mark.parametrize("reach", FAILED, ids=lambda reach: reach.__name__)
def test_a_mission_that_has_failed_answers_with_its_error(lab: Lab, reach: Callable[[Lab], None]) -> None:
    reach(lab)
    mission, error = lab.mission(), answered(lab).as_json()
    Draft7Validator(SEED_001["AgentError"], format_checker=CHECKER).validate(error)
    Draft202012Validator(ErrorEnvelope.model_json_schema()).validate(error)
    assert (error["error_id"], error["request_id"]) == (mission.error["error_id"], mission.uid)
    assert lab.dig(error, "technical_details", "outcome") == mission.outcome
    assert str(lab.dig(error, "technical_details", "report")).startswith("# Mission 1")


@pytest.mark.parametrize("reach", [*OTHERS, *FAILED], ids=lambda reach: reach.__name__)
def test_a_mission_in_every_state_is_shown_as_the_reference_says(
    lab: Lab, reach: Callable[[Lab], None]
) -> None:
    reach(lab)
    for since in (None, 0):
        shown = respond(*lab.engine.standing(1, since=since)).as_json()
        Draft7Validator(SEED_004["schema"]).validate(shown)
        Draft202012Validator(StructuredResponse.model_json_schema()).validate(shown)


def test_searches_and_files_are_actions_in_the_order_of_time(lab: Lab) -> None:
    (lab.root / "a").write_text("a")
    find: Object = {"kind": "search_files", "params": {"text": "a"}}
    lab.run(ask(LISTS, write("b", "x")), ask(find, read("a"), "look"), DONE, policy=[FREE])
    response = answered(lab).as_json()
    assert performed(response["actions"]) == [
        ("search", "list_files"), ("file_create", "b"), ("search", "search_files"),
    ]  # fmt: skip
    assert lab.dig(response, "actions", 0, "details", "params") == {"patterns": ["*.md"]}
    assert lab.dig(response, "metadata", "tools_used") == [
        "do", "list_files", "read_file", "search_files", "write_file",
    ]  # fmt: skip


def test_what_a_failed_mission_did_is_in_the_details_of_its_error(lab: Lab) -> None:
    given_up(lab)
    error = answered(lab).as_json()
    assert performed(lab.dig(error, "technical_details", "actions")) == [
        ("file_create", "a"), ("search", "list_files"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reach", "first", "further"),
    [
        (given_up, "Name it.", ["lcp resume 1", "lcp show 1", "lcp undo 1 --dry-run"]),
        (at_a_limit, "with a higher max_turns", ["lcp show 1"]),
        (without_progress, "tell its planner what to do instead", ["lcp show 1"]),
        (never_valid, "correct the planner", ["lcp show 1"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_recommended_fits_the_outcome(
    lab: Lab, reach: Callable[[Lab], None], first: str, further: list[str]
) -> None:
    reach(lab)
    error = answered(lab)
    assert isinstance(error, ErrorEnvelope)
    head, *rest = error.recommended_actions
    assert first in head.description
    assert ("higher" in head.description) == (reach is at_a_limit)
    assert [action.details["command"] for action in rest] == further
