"""The published schema of actions accepts the reference, and nothing that `read_reply` refuses for its shape."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.features.universal.json_schema import action_schema
from lcp_engine.workers.registry import BUILT_IN

SCHEMA = action_schema({kind: worker.params for kind, worker in BUILT_IN.items()})
VALIDATOR = Draft202012Validator(SCHEMA)
SEED = json.loads((Path(__file__).parent / "seed_003.json").read_text(encoding="utf-8"))


def ask(job: JsonValue) -> dict[str, JsonValue]:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": [job]}


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


def test_the_action_comes_first_in_each_branch() -> None:
    definitions = SCHEMA["$defs"]
    assert isinstance(definitions, dict)
    for name in ("CreateFollowupJobs", "WriteFile", "AnalysisResult", "MissionComplete", "ErrorAction"):
        branch = definitions[name]
        assert isinstance(branch, dict)
        assert isinstance(branch["properties"], dict)
        assert next(iter(branch["properties"])) == "action"


@table("reply", SEED["replies"], ids=lambda reply: reply["title"])
def test_every_action_of_the_reference_fits_and_no_result_does(reply: dict[str, str]) -> None:
    assert VALIDATOR.is_valid(json.loads(reply["text"])) == ("Worker Response" not in reply["title"])


@table("job", SEED["params"])
def test_all_params_of_the_reference_fit(job: JsonValue) -> None:
    VALIDATOR.validate(ask(job))


@pytest.mark.parametrize(
    "job", [{"kind": "custom.kind", "params": {"a": 1}}, {"kind": "x", "params": {}, "name": None}]
)
def test_a_custom_kind_fits(job: JsonValue) -> None:
    VALIDATOR.validate(ask(job))


@table(
    "body",
    [
        {"ok": True},
        {"ok": True, "action": "list_files_result", "files": []},
        {"ok": True, "action": "error", "error": "x"},
        {"ok": False, "action": "mission_complete", "summary": "s"},
        {"ok": True, "action": "mission_complete"},
        {"ok": True, "action": "mission_complete", "summary": "s", "new_jobs": []},
        {"ok": True, "action": "write_file", "rel_path": "a"},
        {"ok": True, "action": "write_file", "rel_path": "a", "content": "", "mode": "w"},
        ask({"kind": "a b", "params": {}}),
        ask({"kind": "analysis_result", "params": {}}),
        ask({"kind": "x"}),
        ask({"kind": "x", "params": None}),
        ask({"kind": "list_files"}),
        ask({"kind": "x", "params": {}, "autoDispatch": False}),
        ask({"kind": "list_files", "params": {"pattern": []}}),
        ask({"task": "x"}),
    ],
)
def test_what_is_no_action_does_not_fit(body: JsonValue) -> None:
    assert not VALIDATOR.is_valid(body)
