"""A mission as the answer to a request: what follows from its history."""

from __future__ import annotations

from pydantic import JsonValue
from tests.features.reports.engine.facts import AT, a_file, a_mission

from lcp_engine.features.reports.facts import Course, Excerpt, Facts
from lcp_engine.features.universal.agent_response import respond_as_agent

UID = "req-0b6ecf5e-9c1a-4f0b-8a55-3d8e3c2f7a10"
ERROR: JsonValue = {
    "error_id": UID.replace("req-", "err-"), "request_id": UID, "timestamp": AT, "error_type": "resource_error",
    "error_code": "LIMIT_REACHED", "user_message": "no turn is left",
}  # fmt: skip


def answer(more: dict[str, JsonValue] | None = None, event: int = 9) -> dict[str, JsonValue]:
    files = Excerpt([a_file("a.md", created=True), a_file("a.md", created=False)], 7)
    facts = Facts(mission=a_mission(uid=UID, **(more or {})), files=files, done={"read_file": 2})
    course = Course(
        event=event, at="2025-01-01T00:00:01+00:00", since=0, percentage=100, before=0, seconds=1.5
    )
    return respond_as_agent(facts, course, {}).as_json()


def test_a_failed_mission_without_an_error_is_a_response() -> None:
    assert "error_id" in answer({"status": "failed", "outcome": "limit:max_turns", "error": ERROR})
    assert "id" in answer({"status": "failed", "outcome": "limit:max_turns", "error": None})


def test_the_id_follows_from_the_request_and_the_history() -> None:
    assert answer()["id"] == answer()["id"] != answer(event=10)["id"]
    assert answer()["request_id"] == UID


def test_files_are_the_actions_that_were_taken() -> None:
    actions, metadata = answer()["actions"], answer()["metadata"]
    assert isinstance(actions, list)
    assert isinstance(metadata, dict)
    assert [action["action_type"] for action in actions if isinstance(action, dict)] == [
        "file_create",
        "file_edit",
    ]
    assert (metadata["execution_time_ms"], metadata["tools_used"], metadata["omitted_actions"]) == (
        1500,
        ["read_file"],
        5,
    )
