"""The schema of a mission's result in prompts and for constrained decoders: never narrower than it is."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import JsonValue
from tests.features.models.planners.test_prompt import asked as prompted
from tests.features.models.planners.test_wire import CALM, MODELS, Schema, actions, asked, at, reading, values
from tests.tables import table

from lcp_engine.core.protocol.actions import Malformed
from lcp_engine.core.protocol.read_reply import Dialect, read_reply
from lcp_engine.core.protocol.result_schema import ResultSchema
from lcp_engine.features.models.endpoints.chat import about_tokens
from lcp_engine.features.models.prompts.offered_result import offered_result
from lcp_engine.features.models.prompts.prompt import write_prompt
from lcp_engine.features.models.prompts.reply_schema import reply_schema
from lcp_engine.features.universal.dialect import read_universal

PEOPLE: Schema = {
    "type": "object",
    "required": ["people"],
    "properties": {
        "people": {
            "type": "array",
            "description": "Everyone who is named.",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
                    "age": {"type": ["integer", "null"], "minimum": 0},
                    "role": {"enum": ["author", "reader"]},
                },
            },
        }
    },
}
TREE: Schema = {
    "type": "object",
    "required": ["of"],
    "properties": {"of": {"type": "array", "items": {"$ref": "#"}}},
}
LOOSE = replace(
    asked(reading(1, "README.md")), result={"type": "object", "properties": {"n": {"type": "integer"}}}
)

SCHEMAS: list[tuple[Schema, JsonValue]] = [
    (PEOPLE, {"people": [{"name": 'The "Ada" of\n1815', "age": None, "role": "author"}]}),
    (TREE, {"of": [{"of": []}]}),
    ({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}, ["a", 1]),
    ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]}, {"a": "x", "b": "y"}),
    (
        {
            "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        {"a": "x", "b": None},
    ),
    (
        {
            "allOf": [{"$ref": "#/$defs/named"}, {"properties": {"age": {"type": "integer"}}, "required": ["age"]}],
            "$defs": {"named": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
        },
        {"name": "Ada", "age": 36},
    ),
    ({"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}, [1, 2]),
    ({"const": {"a": 1}}, {"a": 1}),
    ({}, "anything"),
    ({"$dynamicRef": "#nowhere"}, "anything"),
]  # fmt: skip


@table(("schema", "fits"), SCHEMAS)
def test_what_is_offered_allows_what_fits(schema: Schema, fits: JsonValue) -> None:
    offered: Schema = {"$ref": "#/$defs/result", "$defs": {**offered_result(schema)}}
    Draft202012Validator.check_schema(offered)
    Draft202012Validator(offered).validate(fits)
    assert "pattern" not in json.dumps(offered)


@pytest.mark.parametrize("dialect", ["lcp", "universal"])
@pytest.mark.parametrize("narrow", [True, False])
def test_each_reply_that_completes_the_mission_carries_it(dialect: Dialect, narrow: bool) -> None:
    question = asked(reading(1, "README.md"), result=PEOPLE)
    schema = reply_schema(question, dialect, narrow=narrow)
    Draft202012Validator.check_schema(schema)
    assert list(at(at(schema, "$defs"), "result", "properties")) == ["people"]
    text = json.dumps(schema)
    assert text.count('{"$ref": "#/$defs/result"}') == 2
    assert ('"verification"' in text) is False


def test_the_last_turn_offers_it_and_says_so() -> None:
    question = asked(reading(1, "README.md"), result=PEOPLE, last_turn="max_turns")
    offered = actions(reply_schema(question))
    assert set(offered) == {"analysis_result", "mission_complete", "error"}
    assert at(offered["mission_complete"], "properties", "result") == {"$ref": "#/$defs/result"}
    assert "result" not in at(offered["error"], "properties")
    prompt = write_prompt(question, budget_tokens=8000)
    assert (
        "this is the last turn. Answer with mission_complete, analysis_result or error. Carry the result"
        in prompt.text
    )


@CALM
@given(st.data(), st.sampled_from(["lcp", "universal"]))
def test_whatever_the_schema_allows_is_read(data: st.DataObject, dialect: Dialect) -> None:
    schema = reply_schema(LOOSE, dialect)
    plain = _inlined(schema, at(at(schema, "$defs"), "result"))
    assert isinstance(plain, dict)
    reply = json.dumps(data.draw(values(plain)))
    read = read_reply if dialect == "lcp" else read_universal
    assert LOOSE.result is not None
    action = read(reply, MODELS, ResultSchema(LOOSE.result))
    assert not isinstance(action, Malformed), action.errors


def _inlined(part: JsonValue, result: Schema) -> JsonValue:
    if isinstance(part, list):
        return [_inlined(each, result) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("$ref") == "#/$defs/result":
        return result
    return {key: _inlined(each, result) for key, each in part.items() if key != "$defs"}


@pytest.mark.parametrize("dialect", ["lcp", "universal"])
def test_the_prompt_states_the_schema_and_where_it_goes(dialect: Dialect) -> None:
    plain = write_prompt(prompted(), budget_tokens=8000, dialect=dialect).text
    text = write_prompt(prompted(result=PEOPLE), budget_tokens=8000, dialect=dialect).text
    assert json.dumps(PEOPLE, separators=(",", ":")) in text
    place = '"result": <result>}' if dialect == "lcp" else '"custom_fields": {"result": <result>}}'
    assert text.count(place) == 2
    assert "result" not in [line for line in plain.splitlines() if line.startswith("# The")]
    assert "<result>" not in plain


def test_where_there_is_little_room_the_schema_is_shown_without_explanations_or_in_part() -> None:
    long: Schema = {**PEOPLE, "description": "All of them. " * 200}
    text = write_prompt(prompted(result=long), budget_tokens=1500).text
    assert "All of them." not in text
    assert '"pattern":"^[A-Z]"' in text
    many: Schema = {"type": "object", "properties": {f"property_{n}": {"type": "string"} for n in range(500)}}
    prompt = write_prompt(prompted(result=many), budget_tokens=2000)
    assert "[cut; what does not fit is sent back to you]" in prompt.text
    assert about_tokens(prompt.text) <= 2000
