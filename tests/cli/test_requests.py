"""A request (AgentRequest) is launched like a mission, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pydantic import JsonValue

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp

ID = "req-3f2b8c1a-0d4e-4a6b-9c7d-1e2f3a4b5c6d"
SESSION = "sess-3f2b8c1a-0d4e-4a6b-9c7d-1e2f3a4b5c6d"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "envelopes.jsonl"


def stated(**changed: JsonValue) -> str:
    request: dict[str, JsonValue] = {
        "id": ID, "timestamp": "2026-01-31T12:00:00Z", "input": "Tell ${what} it is.", "session_id": SESSION,
        "user_id": "dev-4291", **changed,
    }  # fmt: skip
    return json.dumps({key: value for key, value in request.items() if value is not None})


@pytest.fixture
def root(tmp_path: Path) -> str:
    place = tmp_path / "site"
    place.mkdir()
    return str(place)


def test_a_request_is_launched_once(lcp: Lcp, root: str) -> None:
    first = lcp("launch", "-", "--root", root, "--planner", "human", stdin=stated())
    assert (first.code, first.out) == (0, "1\n")
    again = lcp("launch", "-", "--root", root, "--planner", "human", stdin=stated())
    assert again.out == "1\n"
    mission = lcp("--json", "show", "1").object
    assert (mission["uid"], mission["goal"]) == (ID, "Tell ${what} it is.")
    assert (mission["session_id"], mission["user_id"]) == (SESSION, "dev-4291")
    assert f"requested by dev-4291 in session {SESSION}" in lcp("show", "1").out
    response = lcp("report", "1", "--format", "agent").object
    assert response["request_id"] == ID


def test_a_request_with_other_content_and_the_same_id_is_a_conflict(lcp: Lcp, root: str) -> None:
    def sent(**changed: JsonValue) -> Done:
        return lcp("launch", "-", "--root", root, "--planner", "human", stdin=stated(**changed))

    project: JsonValue = {"project": {"language": "python"}}
    assert sent(metadata=project).out == "1\n"
    for other in ({}, {"input": "Go."}, {"user_id": "x"}, {"session_id": None}):
        done = sent(**{"metadata": project if other else None, **other})
        assert (done.code, done.err.count("\n"), done.out) == (5, 1, "")
        assert f"request {ID} was launched as mission 1 with other content" in done.err
    assert sent(metadata=project, timestamp="2026-02-01T12:00:00Z").out == "1\n"


def test_a_session_groups_missions(lcp: Lcp, root: str) -> None:
    for last in "12":
        lcp("launch", "-", "--root", root, "--planner", "human", stdin=stated(id=ID[:-1] + last))
    lcp("launch", "-", "--root", root, "--planner", "human", stdin=stated(session_id=None))
    found = lcp("--json", "missions", "--session", SESSION).json
    assert isinstance(found, list)
    assert [mission["id"] for mission in found if isinstance(mission, dict)] == [2, 1]
    assert lcp("missions", "--session", "sess-x").err == "No missions of session sess-x.\n"


def test_a_request_does_not_choose_the_root(lcp: Lcp, root: str) -> None:
    def named(directory: str) -> str:
        return stated(metadata={"project": {"root_directory": directory, "language": "python"}})

    done = lcp("launch", "-", "--root", root, "--planner", "human", stdin=named("/"))
    assert done.code == 2
    assert f"metadata.project.root_directory is '/', but the mission's root is {root!r}" in done.err
    assert lcp("launch", "-", "--root", root, "--planner", "human", stdin=named(f"{root}/.")).code == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": "req-1"}, 'stdin: id: should be req- and a UUID in lower case, not "req-1"'),
        ({"session_id": "x"}, 'stdin: session_id: should be sess- and a UUID in lower case, not "x"'),
        ({"timestamp": "soon"}, "stdin: timestamp: should be a time in ISO 8601"),
        ({"timestamp": None}, "stdin: timestamp: is required and missing"),
        ({"input": " "}, "stdin: input: should be text that is not empty"),
        ({"metadata": {"project": []}}, "stdin: metadata.project: should be a mapping"),
    ],
)
def test_what_is_wrong_with_a_request_is_named(
    lcp: Lcp, root: str, changed: dict[str, JsonValue], message: str
) -> None:
    done = lcp("launch", "-", "--root", root, stdin=stated(**changed))
    assert done.code == 1
    assert message in done.err


def test_a_schedule_needs_a_mission_file(lcp: Lcp, root: str) -> None:
    done = lcp(
        "schedule",
        "add",
        "nightly",
        "-",
        "--every",
        "1h",
        "--root",
        root,
        "--planner",
        "human",
        stdin=stated(),
    )
    assert (done.code, "a schedule needs a mission file" in done.err) == (1, True)


@pytest.mark.skipif(not CASES.is_file(), reason="the shared cases are not there")
def test_the_shared_cases_of_requests(lcp: Lcp, root: str) -> None:
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    requests = [case for case in cases if case["schema"] == "001-request"]
    assert requests
    for case in requests:
        done = lcp("launch", "-", "--root", root, "--planner", "human", stdin=json.dumps(case["input"]))
        assert (done.code == 0) == (case["expected"] == "valid"), case["id"]
