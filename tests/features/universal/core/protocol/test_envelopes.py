"""Each envelope is accepted or refused alike by its model, by its published schema and by the reference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft7Validator, Draft202012Validator
from pydantic import BaseModel, JsonValue, ValidationError
from tests.shared_paths import ABSENT, SHARED
from tests.tables import table

from lcp_engine.core.protocol.actions import Findings
from lcp_engine.core.protocol.schema_model import schema_model
from lcp_engine.features.authoring.schema import _schemas
from lcp_engine.features.plans.execution_plan import ExecutionPlan
from lcp_engine.features.universal.envelopes import (
    AgentResponse,
    ErrorEnvelope,
    FileOperation,
    MemoryEntry,
    ToolDefinition,
)
from lcp_engine.features.universal.request import AgentRequest
from lcp_engine.features.universal.structured import StructuredResponse

Object = dict[str, JsonValue]
SEED = json.loads((Path(__file__).parent / "seed_001.json").read_text(encoding="utf-8"))
MODELS: dict[str, type[BaseModel]] = {
    "request": AgentRequest,
    "response": AgentResponse,
    "error": ErrorEnvelope,
    "tool_definition": ToolDefinition,
    "memory_entry": MemoryEntry,
    "execution_plan": ExecutionPlan,
}
UID = "00000000-0000-4000-8000-00000000000a"
AT = "2026-01-31T12:00:00Z"
MINIMAL: dict[str, Object] = {
    "request": {"id": f"req-{UID}", "timestamp": AT, "input": "Look."},
    "response": {"id": f"resp-{UID}", "request_id": f"req-{UID}", "timestamp": AT, "content": "Seen."},
    "error": {
        "error_id": f"err-{UID}", "request_id": f"req-{UID}", "timestamp": AT, "error_type": "input_error",
        "user_message": "It is not there.",
    },
    "tool_definition": {
        "id": "tool-find-lines", "name": "Find lines", "description": "Finds lines.", "parameters": {},
        "result_schema": {},
    },
    "memory_entry": {
        "id": f"mem-{UID}", "title": "Style", "content": "Tabs.", "created_at": AT, "tags": ["style"],
    },
    "execution_plan": {
        "id": f"plan-{UID}", "request_id": f"req-{UID}",
        "steps": [{"id": "step-001", "tool": "list_files", "parameters": {}}],
    },
}  # fmt: skip


def step(number: int, **more: JsonValue) -> Object:
    return {"id": f"step-{number:03}", "tool": "list_files", "parameters": {}, **more}


ACTION: Object = {"action_type": "search", "timestamp": AT}
ADVICE: Object = {"description": "Try again.", "action_type": "contact_support"}
PATTERN: Object = {"type": "string", "description": "What to find."}
VALID: list[tuple[str, Object]] = [
    *((name, {}) for name in MINIMAL),
    ("request", {"session_id": f"sess-{UID}", "user_id": "u", "metadata": {"project": {"root_directory": "/r"}}}),
    ("request", {"metadata": {"environment": {"open_files": ["a"], "cursor_position": {"line": 1}}}, "more": 1}),
    ("response", {"actions": [ACTION, {**ACTION, "details": {"of": 1}}]}),
    ("response", {"metadata": {"execution_time_ms": 5, "tools_used": ["a"]}}),
    ("error", {"error_code": "OF_ANOTHER", "technical_details": {"a": [1]}, "recommended_actions": [ADVICE]}),
    ("tool_definition", {"parameters": {"text": {**PATTERN, "required": True, "enum": ["a"], "default": None}}}),
    ("tool_definition", {"permission_level": "admin", "rate_limit": {"requests_per_minute": 9, "burst": 2}}),
    ("tool_definition", {"examples": [{"input": {"text": "a"}, "output": None}], "category": "search"}),
    ("memory_entry", {"metadata": {"source": "user_statement", "associated_files": ["a"], "importance": 10}}),
    ("memory_entry", {"updated_at": AT, "related_memories": [f"mem-{UID}"]}),
    ("execution_plan", {"created_at": AT, "metadata": {"a": 1}}),
    ("execution_plan", {"steps": [step(2, dependencies=["step-001"]), step(1)]}),
    ("execution_plan", {"steps": [step(1), step(2, parameters={"of": "$output.step-001"})]}),
    ("execution_plan", {"steps": [step(1, retry={"max_attempts": 1, "delay_ms": 0}, timeout_ms=0, name="n")]}),
    ("execution_plan", {"steps": [step(1), step(2, condition={"type": "step_failure", "step_id": "step-001"})]}),
    ("execution_plan", {"steps": [step(1, condition={"type": "expression", "expression": "a > 1"})]}),
    ("execution_plan", {"error_handling": {"on_step_failure": "execute_fallback", "fallback_plan_id": "other"}}),
    ("execution_plan", {"error_handling": {"on_step_failure": "continue_plan"}}),
]  # fmt: skip
INVALID: list[tuple[str, Object]] = [
    *((name, dict[str, JsonValue]({key: None})) for name, stated in MINIMAL.items() for key in stated),
    ("request", {"id": "req-2026-01-31-001"}),
    ("request", {"id": f"req-{UID.upper()}"}),
    ("request", {"session_id": "sess-1"}),
    ("request", {"input": ""}),
    ("request", {"metadata": []}),
    ("response", {"id": f"req-{UID}"}),
    ("response", {"actions": [{"action_type": "search"}]}),
    ("response", {"actions": [{**ACTION, "action_type": "file_delete"}]}),
    ("response", {"metadata": {"tools_used": "list_files"}}),
    ("error", {"error_type": "vcs_conflict"}),
    ("error", {"recommended_actions": [{**ADVICE, "action_type": "override"}]}),
    ("error", {"recommended_actions": [{"action_type": "user_action"}]}),
    ("tool_definition", {"id": "find_lines"}),
    ("tool_definition", {"parameters": {"text": {"type": "string"}}}),
    ("tool_definition", {"parameters": {"text": {**PATTERN, "type": "text"}}}),
    ("tool_definition", {"permission_level": "root"}),
    ("tool_definition", {"examples": [{"input": {}}]}),
    ("memory_entry", {"tags": []}),
    ("memory_entry", {"id": "mem-1"}),
    ("memory_entry", {"metadata": {"importance": 11}}),
    ("memory_entry", {"related_memories": ["mem-1"]}),
    ("execution_plan", {"steps": []}),
    ("execution_plan", {"steps": [{"id": "step-001", "tool": "a"}]}),
    ("execution_plan", {"steps": [{**step(1), "id": "step-1"}]}),
    ("execution_plan", {"steps": [step(1, retry={"max_attempts": 0})]}),
    ("execution_plan", {"steps": [step(1, timeout_ms=-1)]}),
    ("execution_plan", {"steps": [step(1, condition={"type": "on_success"})]}),
    ("execution_plan", {"error_handling": {"on_step_failure": "retry"}}),
]  # fmt: skip


def judged(name: str, changed: Object) -> list[bool]:
    """What the reference, the published schema and the model say of the smallest envelope with some keys changed."""
    stated: Object = {key: value for key, value in {**MINIMAL[name], **changed}.items() if value is not None}
    reference, model = SEED[MODELS[name].model_json_schema()["title"]], MODELS[name]
    published = Draft202012Validator(dict(_schemas()[name]()))
    return [Draft7Validator(reference).is_valid(stated), published.is_valid(stated), is_read(model, stated)]


def is_read(model: type[BaseModel], stated: JsonValue) -> bool:
    try:
        model.model_validate(stated)
    except ValidationError:
        return False
    return True


@table(("name", "changed"), VALID)
def test_what_the_reference_accepts_is_accepted(name: str, changed: Object) -> None:
    assert judged(name, changed) == [True, True, True]


@table(("name", "changed"), INVALID)
def test_what_the_reference_refuses_is_refused(name: str, changed: Object) -> None:
    assert judged(name, changed) == [False, False, False]


@table("name", MODELS)
def test_the_schema_of_an_envelope_has_the_id_that_the_reference_gives_it(name: str) -> None:
    published = _schemas()[name]()
    reference = SEED[str(published["title"])]
    assert published["$id"] == reference["$id"]
    assert set(reference["properties"]) <= set(published["properties"])  # type: ignore[arg-type]  # an object


def test_no_two_schemas_have_the_same_id() -> None:
    found = [schema().get("$id") for schema in _schemas().values()]
    ids = [uri for uri in found if uri is not None]
    assert len(ids) == len(set(ids)) == 15


@table(
    ("plan", "path", "message"),
    [
        ({"steps": [step(1), step(8), step(3), step(4, dependencies=["step-009"])]},
         "steps[3].dependencies[0]", "step-009 is not a step; did you mean 'step-008'?"),
        ({"steps": [step(1), step(2), step(1)]}, "steps[2].id", "step-001 is the id of steps[0], too"),
        ({"steps": [step(1, dependencies=["step-001"])]}, "steps[0].dependencies[0]", "step-001 waits for itself"),
        ({"steps": [step(1), step(2, dependencies=["step-001", "step-003"]), step(3, dependencies=["step-002"])]},
         "steps[1].dependencies[1]", "these steps wait for each other: step-002 -> step-003 -> step-002"),
        ({"steps": [step(1, dependencies=["step-002"]),
                    step(2, condition={"type": "step_success", "step_id": "step-001"})]},
         "steps[0].dependencies[0]", "these steps wait for each other: step-001 -> step-002 -> step-001"),
        ({"steps": [step(1, condition={"type": "step_success"})]},
         "steps[0].condition.step_id", "a condition of type step_success needs its step"),
        ({"steps": [step(1), step(2, condition={"type": "step_failure", "step_id": "step-01"})]},
         "steps[1].condition.step_id", "step-01 is not a step; did you mean 'step-001'?"),
        ({"steps": [step(1, condition={"type": "expression", "expression": " "})]},
         "steps[0].condition.expression", "a condition of type expression needs its text"),
        ({"steps": [step(1, condition={})]},
         "steps[0].condition.type", "type is step_success, step_failure or expression; it is missing"),
        ({"error_handling": {"on_step_failure": "execute_fallback"}},
         "error_handling.fallback_plan_id", "execute_fallback needs the id of the plan to execute"),
        ({"error_handling": {"fallback_plan_id": f"plan-{UID}"}},
         "error_handling.fallback_plan_id", f"plan-{UID} is this plan; a fallback is another one"),
    ],
)  # fmt: skip
def test_what_does_not_fit_in_a_plan_is_named_with_its_place(plan: Object, path: str, message: str) -> None:
    findings = Findings()
    stated = {**MINIMAL["execution_plan"], **plan}
    assert findings.validate(ExecutionPlan, stated, "plan", "a plan") is None
    assert [(problem.path, problem.message) for problem in findings.problems] == [(f"plan.{path}", message)]


def test_every_fault_of_a_plan_is_named_at_once() -> None:
    findings = Findings()
    steps: list[JsonValue] = [step(1, dependencies=["step-007"]), step(1), step(2, condition={})]
    findings.validate(ExecutionPlan, {**MINIMAL["execution_plan"], "steps": steps}, "plan", "a plan")
    assert [problem.path for problem in findings.problems] == [
        "plan.steps[1].id", "plan.steps[0].dependencies[0]", "plan.steps[2].condition.type",
    ]  # fmt: skip


def test_a_thousand_steps_in_a_row_fit() -> None:
    steps: list[JsonValue] = [step(n, dependencies=[f"step-{n - 1:03}"] if n else []) for n in range(1000)]
    assert is_read(ExecutionPlan, {**MINIMAL["execution_plan"], "steps": steps})


PEOPLE: Object = {
    "type": "array",
    "items": {"type": "object", "properties": {"person_id": {"type": "string"}, "name": {"type": "string"}}},
}
RESULTS: dict[str, tuple[str, ...]] = {
    "002-option-a": ("message", "people"),
    "002-report-results": ("people", "summary"),
}
"""What the final answers of the second reference have to hold."""


def result_of(*keys: str) -> type[BaseModel]:
    properties: Object = {key: PEOPLE if key == "people" else {"type": "string"} for key in keys}
    return schema_model("result", {"type": "object", "properties": properties, "required": [*keys]})


READ: dict[str, type[BaseModel]] = {
    "001-request": AgentRequest,
    "001-error": ErrorEnvelope,
    "001-tool-definition": ToolDefinition,
    "001-execution-plan": ExecutionPlan,
    "001-file-operation(book ch5)": FileOperation,
    "004": StructuredResponse,
}


def shared_cases() -> list[dict[str, JsonValue]]:
    path = SHARED / "cases" / "envelopes.jsonl"
    return (
        [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.is_file() else []
    )


@pytest.mark.skipif(not shared_cases(), reason=ABSENT)
@table("case", shared_cases(), ids=lambda case: str(case["id"]))
def test_every_shared_case_is_judged_as_it_says(case: dict[str, JsonValue]) -> None:
    schema, expected = str(case["schema"]), case["expected"] == "valid"
    model = READ[schema] if schema in READ else result_of(*RESULTS[schema])
    assert is_read(model, case["input"]) == expected
    assert Draft202012Validator(model.model_json_schema()).is_valid(case["input"]) == expected


@table(
    ("stated", "fits"),
    [
        ({"operation": "read_file", "id": "r", "parameters": {"file_path": "a"}, "timestamp": AT}, True),
        ({"operation": "bulk_operation", "id": "b", "parameters": {"operations": []}, "options": {}}, True),
        ({"operation": "read_file", "id": "r"}, False),
        ({"operation": "Read file", "id": "r", "parameters": {}}, False),
        ({"id": "r", "parameters": {}}, False),
    ],
)
def test_an_operation_on_files_names_itself_and_has_parameters(stated: JsonValue, fits: bool) -> None:
    assert is_read(FileOperation, stated) == fits
    assert Draft202012Validator(dict(_schemas()["file_operation"]())).is_valid(stated) == fits


@table(
    ("keys", "stated", "fits"),
    [
        (("message", "people"), {"message": "Two.", "people": [{"person_id": "a", "name": "Дима"}]}, True),
        (("message", "people"), {"message": "Nobody.", "people": []}, True),
        (("message", "people"), {"people": [], "total": 0}, False),
        (("message", "people"), {"assertions": []}, False),
        (("people", "summary"), {"summary": "One.", "people": [{"name": "a", "reason": "b"}]}, True),
    ],
)
def test_a_raw_result_of_a_tool_is_no_final_answer(
    keys: tuple[str, ...], stated: JsonValue, fits: bool
) -> None:
    assert is_read(result_of(*keys), stated) == fits
