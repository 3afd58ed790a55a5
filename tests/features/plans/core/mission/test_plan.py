"""The plan of a mission file is checked when it is loaded: every fault is named with its place."""

from __future__ import annotations

import json

import pytest
from pydantic import JsonValue
from tests.tables import table

from lcp_engine.core.mission.parse import parse_mission
from lcp_engine.core.mission.spec import MissionSpec
from lcp_engine.errors import ErrorCode, LcpError
from lcp_engine.features.plans.stated_plan import MOST_STEPS, PlanKeys

Object = dict[str, JsonValue]
ONE = "plan-00000000-0000-4000-8000-00000000000a"
OTHER = "plan-00000000-0000-4000-8000-00000000000b"


def step(number: int, **more: JsonValue) -> Object:
    return {"id": f"step-{number:03}", "tool": "do", "parameters": {}, **more}


def read(plan: JsonValue, **more: JsonValue) -> MissionSpec:
    return parse_mission(json.dumps({"goal": "Do it.", "plan": plan, **more}), source="m.yaml")


def steps(*stated: Object) -> Object:
    return {"steps": [*stated]}


def expression(text: str) -> Object:
    return {"type": "expression", "expression": text}


FAULTS: list[tuple[JsonValue, str]] = [
    (steps(step(1), step(2), step(3), step(4, dependencies=["step-009"])),
     "plan.steps[3].dependencies[0]: step-009 is not a step; did you mean 'step-004'?"),
    (steps(step(1, dependencies=["step-002"]), step(2, dependencies=["step-003"]), step(3, dependencies=["step-001"])),
     "these steps wait for each other: step-001 -> step-002 -> step-003 -> step-001"),
    (steps(step(1, dependencies=["step-001"])), "plan.steps[0].dependencies[0]: step-001 waits for itself"),
    (steps(step(1), step(1)), "plan.steps[1].id: step-001 is the id of steps[0], too"),
    (steps({**step(1), "id": "1st"}), "plan.steps[0].id: should be a name that begins with a letter and has letters"),
    (steps({**step(1), "id": "step-001-b"}),
     'plan.steps[0].id: should end after `step-` and three to six digits, not "step-001-b"'),
    (steps(step(1, dependencies=["o ne"])), "plan.steps[0].dependencies[0]: should be a name that begins with"),
    (steps(step(1, condtion={})), "plan.steps[0].condtion: is not a known key; did you mean 'condition'?"),
    (steps(step(1, retry={"max_attempt": 1})),
     "plan.steps[0].retry.max_attempt: is not a known key; did you mean 'max_attempts'?"),
    (steps(step(1), step(2, condition={"type": "step_failure"})),
     "plan.steps[1].condition.step_id: a condition of type step_failure needs its step"),
    (steps(step(1, condition={"step_id": "step-001"})),
     "plan.steps[0].condition.type: step_success, step_failure or expression is expected; it is missing"),
    (steps(step(1), step(2, condition={"type": "step_success", "step_id": "step-003"})),
     "plan.steps[1].condition.step_id: step-003 is not a step"),
    (steps(step(1), step(2, condition=expression("step-001.status == "))),
     "plan.steps[1].condition.expression: character 20: "),
    (steps(step(1), step(2, condition=expression("step-007.status == 'failed'"))),
     "plan.steps[1].condition.expression: step-007 is not a step"),
    (steps(step(1, condition=expression("true"))),
     "plan.steps[0].condition.expression: it names no step, so it is always the same"),
    (steps(step(1), step(2, parameters={"a": ["$output.step-003.b"]})),
     "plan.steps[1].parameters.a[0]: step-003 is not a step"),
    (steps(step(1), step(2, parameters={"a": "$output.step-1.b"})),
     "plan.steps[1].parameters.a: step-1 is not a step; did you mean 'step-001'?; $$output. stands for"),
    (steps(step(1), step(2, parameters={"a": "$output.1.b"})),
     "plan.steps[1].parameters.a: '$output.1.b' is not a reference such as $output.step-001.key[0]"),
    (steps(step(1), step(2, parameters={"a": "$output.step-001"},
                         condition={"type": "step_failure", "step_id": "step-001"})),
     "plan.steps[1].parameters.a: step-001 has no output if it fails, and only then this step is executed"),
    (steps(step(1, parameters={"a": "$output.step-001.b"})), "step-001 waits for itself"),
    (steps(step(1, retry={"max_attempts": 0})),
     "plan.steps[0].retry.max_attempts: should be greater than or equal to 1, not 0"),
    (steps(step(1, timeout_ms=-1)), "plan.steps[0].timeout_ms: should be greater than or equal to 0, not -1"),
    (steps(), "plan.steps: should be a list that is not empty, not []"),
    ({**steps(step(1)), "id": "a b"}, "plan.id: should be a name that begins with a letter"),
    ({**steps(step(1)), "error_handling": {"on_step_failure": "stop"}},
     "plan.error_handling.on_step_failure: should be 'abort_plan', 'continue_plan' or 'execute_fallback'"),
    ({**steps(step(1)), "error_handling": {"on_step_failure": "execute_fallback"}},
     "plan.error_handling.fallback_plan_id: execute_fallback needs the id of the plan to execute"),
    ({**steps(step(1)), "error_handling": {"on_step_failure": "execute_fallback", "fallback_plan_id": OTHER}},
     f"plan.error_handling.fallback_plan_id: {OTHER} is not one of fallback_plans; there are none"),
    ({**steps(step(1)), "id": ONE, "error_handling": {"on_step_failure": "execute_fallback", "fallback_plan_id": ONE}},
     f"plan.error_handling.fallback_plan_id: {ONE} is this plan; a fallback is another one"),
    (steps(*(step(number) for number in range(1, MOST_STEPS + 2))),
     "plan.steps: at most 10,000 are read; there are 10,001"),
]  # fmt: skip


@table(("plan", "said"), FAULTS)
def test_a_fault_of_a_plan_is_named_with_its_place(plan: JsonValue, said: str) -> None:
    with pytest.raises(LcpError) as refused:
        read(plan)
    assert refused.value.code is ErrorCode.INVALID_MISSION
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@table(
    ("fallbacks", "said"),
    [
        ([steps(step(1))], "fallback_plans[0].id: is required"),
        ([{**steps(step(1)), "id": OTHER}] * 2, f"fallback_plans[1].id: {OTHER} is the id of another plan, too"),
        ([{**steps(step(1)), "id": OTHER, "error_handling": {"on_step_failure": "execute_fallback"}}],
         "fallback_plans[0].error_handling.on_step_failure: a fallback has none"),
    ],
)  # fmt: skip
def test_a_fault_of_a_fallback_is_named_with_its_place(fallbacks: JsonValue, said: str) -> None:
    handling: Object = {"on_step_failure": "execute_fallback", "fallback_plan_id": OTHER}
    with pytest.raises(LcpError) as refused:
        read({**steps(step(1)), "error_handling": handling}, fallback_plans=fallbacks)
    assert said in str(refused.value)


def test_a_plan_needs_no_planner_and_is_put_into_an_order() -> None:
    spec = read(
        steps(
            step(3, parameters={"a": "$output.step-1000.b"}), step(2, dependencies=["step-003"]), step(1000)
        )
    )
    assert spec.planner.type == "none"
    assert (plan := PlanKeys.of(spec).plan) is not None
    assert [one.id for one in plan.in_order] == ["step-1000", "step-003", "step-002"]
