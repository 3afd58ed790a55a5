"""Values that a file states wrongly are refused in the words of a person who writes such files."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ValidationError
from tests.tables import table

from lcp_engine import LcpError
from lcp_engine.config_file import ConfigFile, parse_config
from lcp_engine.core.mission.parse import mission_file
from lcp_engine.core.refused_values import explain_first, keys_at

SECRET = "hunter2-of-ada"

STATED = {
    "prices: 3": "prices: should be a mapping, not 3",
    "policy: {a: 1}": 'policy: should be a list, not {"a": 1}',
    "caps: {read_bytes: many}": 'caps.read_bytes: should be a whole number, not "many"',
    "caps: {read_bites: 1}": "caps.read_bites: is not a known key; did you mean 'read_bytes'?",
    "prices: {currency: EUR, models: {m: {input: .nan}}}": 'prices.models.m.input: should be a number, not ".nan"',
    "prices: {currency: EUR, models: {m: {input: -1, output: 1}}}": (
        "prices.models.m.input: should be greater than or equal to 0, not -1"
    ),
    "prices: {currency: EUR, models: {m: {inptu: 1, output: 1}}}": (
        "prices.models.m.inptu: is not a known key; did you mean 'input'?"
    ),
    "prices: {currency: euro}": 'prices.currency: should match ^[A-Z]{3}$, not "euro"',
    "policy: [{kinds: [write_file]}]": "policy.0.do: is required and missing",
    "policy: [{kinds: [write_file], does: hold}]": "policy.0.does: is not a known key; did you mean 'do'?",
}


@table(("text", "said"), STATED.items())
def test_a_configuration_says_what_is_expected_and_what_is_there(text: str, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        parse_config(text, Path("config.yaml"))
    assert said in str(refused.value)


@table(
    "text",
    [
        f"database_url: [postgresql://ada:{SECRET}@db/lcp]",
        f"webhook: {{url: [https://hooks/{SECRET}]}}",
        f"approvers: {{ada: [{SECRET}]}}",
        f"approvers: {{ada: {SECRET}}}",
    ],
)
def test_a_value_that_may_be_a_secret_is_not_repeated(text: str) -> None:
    with pytest.raises(LcpError) as refused:
        parse_config(text, Path("config.yaml"))
    assert SECRET not in str(refused.value)


@table(
    ("model", "place", "key"),
    [
        (ConfigFile, (), "prices"),
        (ConfigFile, ("policy", 0), "kinds"),
        (ConfigFile, ("prices", "models", "gpt-*"), "cached_input"),
        (mission_file(), ("accept", 0, "file_matches"), "path"),
        (mission_file(), ("kinds", "write_file", "retry"), "max_attempts"),
        (mission_file(), ("plan", "steps", 0), "dependencies"),
        (mission_file(), (), "continue"),
    ],
)
def test_the_keys_of_a_place_are_those_of_the_model_there(
    model: type[BaseModel], place: tuple[str | int, ...], key: str
) -> None:
    known = keys_at(model, place)
    assert key in known
    assert place == () or "goal" not in known


def test_what_only_the_engine_sets_is_no_key() -> None:
    assert "allow_admin" not in keys_at(mission_file(), ())


def test_a_place_begins_with_what_is_above_the_model() -> None:
    with pytest.raises(ValidationError) as refused:
        mission_file().model_validate({"goal": "x", "planner": {"type": "human"}, "stage": 7})
    assert (
        explain_first(refused.value, mission_file(), "a", "b") == "a.b.stage: should be true or false, not 7"
    )
