"""The schema of a mission's own result: what fits it, and what a reply that completes the mission has to carry."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.tables import table

from lcp_engine.core.protocol.actions import AnalysisResult, Malformed, MissionComplete
from lcp_engine.core.protocol.read_reply import read_reply
from lcp_engine.core.protocol.result_schema import MOST_RESULT, ResultSchema, check_schema
from lcp_engine.features.universal.dialect import read_universal

if TYPE_CHECKING:
    from pydantic import JsonValue

PEOPLE: dict[str, JsonValue] = {
    "type": "object",
    "required": ["people"],
    "additionalProperties": False,
    "properties": {
        "people": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            },
        }
    },
}
EXPECTED = ResultSchema(PEOPLE)
ADA: JsonValue = {"people": [{"name": "Ada", "age": 36}]}


def reply(action: str = "mission_complete", **fields: JsonValue) -> str:
    return json.dumps({"ok": True, "action": action, "summary": "s", **fields})


def errors(text: str, expected: ResultSchema | None = EXPECTED) -> dict[str, str]:
    action = read_reply(text, {}, expected)
    return {error.path: error.message for error in action.errors} if isinstance(action, Malformed) else {}


def test_a_plan_beside_empty_new_jobs_ends_nothing_and_needs_no_result() -> None:
    plan: JsonValue = {"steps": [{"id": "a", "tool": "x", "parameters": {}}]}
    found = errors(reply("create_followup_jobs", new_jobs=[], execution_plan=plan))
    assert "execution_plan.steps[0].tool" in found
    assert "new_jobs" not in found


@pytest.mark.parametrize("action", ["mission_complete", "analysis_result"])
def test_an_action_that_completes_the_mission_carries_the_result(action: str) -> None:
    read = read_reply(reply(action, result=ADA), {}, EXPECTED)
    assert isinstance(read, MissionComplete | AnalysisResult)
    assert read.result == ADA
    assert not read.warnings


@table(
    ("result", "path", "said"),
    [
        ({"people": [{"name": "Ada", "age": "old"}]}, "result.people[0].age", 'not of type "integer"'),
        ({"people": [{}]}, "result.people[0]", '"name" is a required property'),
        ({"people": [], "more": 1}, "result", "'more' was unexpected"),
        ("people", "result", 'not of type "object"'),
        (None, "result", "it is missing"),
    ],
)
def test_a_result_that_does_not_fit_is_named_with_its_path(result: JsonValue, path: str, said: str) -> None:
    assert said in errors(reply(result=result))[path]


def test_a_missing_result_is_said() -> None:
    assert errors(reply()) == {
        "result": "mission_complete needs result, which fits the schema that the mission states; it is missing"
    }


def test_every_problem_is_found_and_many_are_counted() -> None:
    action = read_reply(reply(result={"people": [{"name": n} for n in range(50)]}), {}, EXPECTED)
    assert isinstance(action, Malformed)
    assert [error.path for error in action.errors[:2]] == ["result.people[0].name", "result.people[1].name"]
    assert action.errors[-1].message == "and 30 more problems"


def test_a_result_that_is_too_long_is_not_checked_further() -> None:
    assert errors(reply(result={"people": "x" * MOST_RESULT})) == {
        "result": "a result has at most 262,144 characters as JSON; found 262,157"
    }


def test_an_action_that_goes_on_carries_no_result() -> None:
    job: JsonValue = {"kind": "do", "params": {}}
    going_on = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [job], "result": ADA})
    assert "never mix actions" in errors(going_on)["result"]
    without = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [job], "result": None})
    assert errors(without) == {}


def test_no_jobs_at_all_would_end_the_mission_without_its_result() -> None:
    text = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": []})
    assert "without its result" in errors(text)["new_jobs"]
    assert errors(text, None) == {}


def test_an_error_needs_no_result() -> None:
    assert errors(json.dumps({"ok": False, "action": "error", "error": "no letters"})) == {}


@pytest.mark.parametrize("action", ["mission_complete", "create_followup_jobs"])
def test_without_a_schema_it_is_a_key_like_any_unknown_one(action: str) -> None:
    fields: dict[str, JsonValue] = {"new_jobs": []} if action == "create_followup_jobs" else {"summary": "s"}
    read = read_reply(json.dumps({"ok": True, "action": action, **fields, "result": ADA}), {})
    assert not isinstance(read, Malformed)
    assert read.warnings == ("result: unknown key, ignored",)
    assert getattr(read, "result", None) is None


@table(
    ("schema", "result", "read"),
    [
        (PEOPLE, {"people": [{"name": "Ada", "age": None}]}, {"people": [{"name": "Ada"}]}),
        ({"properties": {"n": {"type": ["integer", "null"]}}}, {"n": None}, {"n": None}),
        ({"anyOf": [{"properties": {"n": {"type": "integer"}}}]}, {"n": None}, {}),
    ],
)
def test_a_null_that_does_not_fit_reads_as_absent(
    schema: dict[str, JsonValue], result: JsonValue, read: JsonValue
) -> None:
    action = read_reply(reply(result=result), {}, ResultSchema(schema))
    assert isinstance(action, MissionComplete)
    assert action.result == read


def test_a_null_that_is_required_reads_as_missing() -> None:
    assert errors(reply(result={"people": [{"name": None}]})) == {
        "result.people[0]": '"name" is a required property'
    }


def test_a_result_may_be_any_json() -> None:
    assert errors(reply(result=["a"]), ResultSchema({"type": "array"})) == {}
    assert errors(reply(result=0), ResultSchema({"type": "integer"})) == {}
    assert errors(reply(result=False), ResultSchema({"const": False})) == {}


def universal(kind: str, **more: JsonValue) -> str:
    return json.dumps({"response_type": kind, "status": "success", "message": "m", **more})


@table("kind", ["answer", "research", "custom"])
def test_a_universal_response_carries_it_in_its_custom_fields(kind: str) -> None:
    read = read_universal(universal(kind, custom_fields={"result": ADA}), {}, EXPECTED)
    assert isinstance(read, MissionComplete | AnalysisResult)
    assert read.result == ADA
    assert getattr(read, "issues", None) is None


@table(
    ("fields", "path"),
    [
        ({}, "custom_fields.result"),
        ({"custom_fields": {"result": {"people": [{}]}}}, "custom_fields.result.people[0]"),
        (
            {"custom_fields": {"lcp": {"ok": True, "action": "mission_complete", "summary": "s"}}},
            "custom_fields.lcp.result",
        ),
    ],
)
def test_a_universal_response_without_a_result_that_fits_is_malformed(
    fields: dict[str, JsonValue], path: str
) -> None:
    read = read_universal(universal("custom", **fields), {}, EXPECTED)
    assert isinstance(read, Malformed)
    assert [error.path for error in read.errors] == [path]


def test_an_action_within_a_universal_response_carries_it_itself() -> None:
    inner: JsonValue = {"ok": True, "action": "mission_complete", "summary": "s", "result": ADA}
    read = read_universal(universal("custom", custom_fields={"lcp": inner}), {}, EXPECTED)
    assert isinstance(read, MissionComplete)
    assert read.result == ADA


@table(
    ("schema", "said"),
    [
        ({"type": "strin"}, 'should be a JSON Schema: "strin" is not valid'),
        ({"$ref": "https://example.org/people.json"}, "Retrieval is disabled"),
        ({"$ref": "#/$defs/nobody"}, "Pointer '/$defs/nobody' does not exist"),
        ({"pattern": "(?=a)b"}, 'is not a "regex"'),
        ({"$schema": "https://example.org/draft"}, "Unknown meta-schema"),
        ({"enum": ["x" * 70_000]}, "at most 65,536 characters; it has 70,"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, JsonValue], said: str) -> None:
    with pytest.raises(ValueError, match="should be a JSON Schema") as refused:
        check_schema(schema)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_schema_of_endless_depth_is_refused() -> None:
    schema: dict[str, JsonValue] = {}
    for _ in range(100_000):
        schema = {"items": schema}
    with pytest.raises(ValueError, match="nested less deeply"):
        check_schema(schema)


def test_a_schema_that_refers_to_itself_is_checked() -> None:
    tree: dict[str, JsonValue] = {
        "type": "object", "required": ["name"], "properties": {"of": {"type": "array", "items": {"$ref": "#"}}},
    }  # fmt: skip
    fits: JsonValue = {"name": "a", "of": [{"name": "b"}]}
    assert errors(reply(result=fits), ResultSchema(tree)) == {}
    astray: JsonValue = {"name": "a", "of": [{"name": "b", "of": [{}]}]}
    assert list(errors(reply(result=astray), ResultSchema(tree))) == ["result.of[0].of[0]"]


def test_a_pattern_that_takes_others_forever_is_matched_at_once() -> None:
    expected = ResultSchema({"type": "string", "pattern": "^(a+)+$"})
    assert "does not match" in errors(reply(result="a" * 5000 + "b"), expected)["result"]
