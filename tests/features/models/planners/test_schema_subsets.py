"""The schemas that are sent keep to what the providers document of JSON Schema for strict output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.json_values import list_in, object_in
from lcp_engine.core.protocol.read_reply import Dialect
from lcp_engine.engine.admission import kind_of
from lcp_engine.features.models.endpoints import anthropic_messages, openai_chat
from lcp_engine.features.models.endpoints.chat import Ask, Message, ModelSettings
from lcp_engine.features.models.endpoints.deadline import Deadline
from lcp_engine.features.models.prompts.output_modes import Probe, Rung, Step
from lcp_engine.features.models.prompts.reply_schema import reply_schema
from lcp_engine.planners.base import Question
from lcp_engine.workers.registry import BUILT_IN

COMMON = {
    "type", "properties", "required", "additionalProperties", "items", "anyOf", "enum", "const", "$defs", "$ref",
    "description", "title", "pattern", "format", "minItems",
}  # fmt: skip
OPENAI = COMMON | {"maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
ANTHROPIC = COMMON | {"default"}


def schema_sent(dialect: Dialect, *, narrow: bool, last_turn: str | None, anthropic: bool) -> JsonValue:
    """The schema in the body of a request, in its envelope."""
    workers = [worker for worker in BUILT_IN.values() if worker.command is None]
    kinds = tuple(kind_of(worker, is_held=worker.has_effects) for worker in workers)
    question = Question(1, 1, 1, "g", "/r", "g", kinds=kinds, dialect=dialect, last_turn=last_turn)
    probe = Probe("http://x", "m", Step(Rung.JSON_SCHEMA, in_envelope=True))
    schema = reply_schema(question, dialect, narrow=narrow)
    ask = Ask([Message("user", "g")], schema, probe, 100, Deadline(0, 1))
    settings = ModelSettings("http://x")
    if anthropic:
        output = object_in(anthropic_messages.request_body(ask, settings)["output_config"])
        return object_in(output["format"])["schema"]
    stated = object_in(openai_chat.request_body(ask, settings)["response_format"])
    return object_in(stated["json_schema"])["schema"]


def parts_of(schema: JsonValue) -> Iterator[Mapping[str, JsonValue]]:
    """A schema with all that are in it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ("properties", "$defs"):
        for part in object_in(schema.get(keyword)).values():
            yield from parts_of(part)
    for part in (schema.get("items"), *list_in(schema.get("anyOf"))):
        yield from parts_of(part)


def depth_of(schema: JsonValue) -> int:
    """How many objects are in each other."""
    if not isinstance(schema, dict):
        return 0
    inner = [
        *object_in(schema.get("properties")).values(),
        schema.get("items"),
        *list_in(schema.get("anyOf")),
    ]
    return ("properties" in schema) + max(map(depth_of, inner), default=0)


def first_key(branch: JsonValue) -> str | None:
    properties = object_in(object_in(branch).get("properties"))
    return next((json.dumps([name, part]) for name, part in properties.items()), None)


@table("anthropic", [False, True], ids=["openai", "anthropic"])
@table("dialect", ["lcp", "universal"])
@table("narrow", [True, False], ids=["narrow", "wide"])
@table("last_turn", [None, "max_turns"])
def test_a_schema_keeps_to_the_documented_subset(
    anthropic: bool, dialect: Dialect, narrow: bool, last_turn: str | None
) -> None:
    schema = schema_sent(dialect, narrow=narrow, last_turn=last_turn, anthropic=anthropic)
    parts = [*parts_of(schema)]
    known = ANTHROPIC if anthropic else OPENAI
    assert {keyword for part in parts for keyword in part} <= known
    assert object_in(schema).get("type") == "object"
    assert "anyOf" not in object_in(schema)
    for part in parts:
        if part.get("type") == "object":
            assert part["additionalProperties"] is False
            assert sorted(map(str, list_in(part["required"]))) == sorted(object_in(part["properties"]))
        branches = [key for branch in list_in(part.get("anyOf")) if (key := first_key(branch)) is not None]
        assert len(branches) == len(set(branches)), (
            "a decoder that looks at the first key cannot tell them apart"
        )
        if anthropic:
            assert part.get("minItems", 0) in (0, 1)
        assert "(?" not in str(part.get("pattern", "")), "no assertion that looks ahead or back"
    assert depth_of(schema) <= 10
    assert sum(len(object_in(part.get("properties"))) for part in parts) <= 5000
