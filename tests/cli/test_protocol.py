"""`lcp check`, `try`, `schema`: the protocol without a mission."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml
from pydantic import JsonValue

from lcp_engine.shipped_missions import shipped_missions
from lcp_engine.workers.registry import BUILT_IN

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

CASES = Path(__file__).parents[3] / "shared" / "cases" / "replies.jsonl"


def test_check_says_what_the_reply_is(lcp: Lcp) -> None:
    done = lcp(
        "check", stdin='```json\n{"ok": true, "action": "mission_complete", "summary": "x", "mood": 1}\n```'
    )
    assert done.code == 0
    assert done.object["valid"] is True
    assert done.object["action"] == {"ok": True, "action": "mission_complete", "summary": "x"}
    assert done.object["recovered"]
    assert done.object["warnings"]


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b'{"ok": true, "action": "list_files_result"}'])
def test_check_gives_every_reason(lcp: Lcp, data: bytes) -> None:
    (lcp.home / "reply").write_bytes(data)
    done = lcp("check", "reply")
    assert (done.code, done.object["valid"], done.object["action"]) == (1, False, None)
    assert done.object["errors"]


def test_check_holds_a_reply_to_the_default_cap(lcp: Lcp) -> None:
    six = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [{"kind": "list_files", "params": {}}] * 6,
    }
    done = lcp("check", stdin=json.dumps(six))
    assert done.object["errors"] == [
        {"path": "new_jobs", "message": "at most 5 jobs in one reply; this one has 6"}
    ]


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not beside this repository")
@pytest.mark.parametrize("dialect", ["lcp", "universal"])
def test_check_agrees_with_the_shared_cases(lcp: Lcp, dialect: str) -> None:
    cases = [case for case in map(json.loads, CASES.read_text().splitlines()) if case["dialect"] == dialect]
    lines = "\n".join(json.dumps({"id": case["id"], "text": case["text"]}) for case in cases)
    done = lcp("check", "--dialect", dialect, "--jsonl", stdin=lines)
    found = [(line["id"], line["valid"]) for line in map(json.loads, done.out.splitlines())]
    assert found == [(case["id"], case["valid"]) for case in cases]
    assert done.code == 1


def test_check_does_not_load_what_it_does_not_need(lcp: Lcp) -> None:
    program = (
        "import sys; from lcp_engine.cli.app import start; start(['check', '/dev/null'])\n"
        "sys.exit(' '.join({'sqlalchemy', 'rich', 'alembic'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=lcp.environment, capture_output=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (1, b"\n")


def test_check_reads_the_plan_of_a_universal_reply(lcp: Lcp) -> None:
    def check(*steps: dict[str, object]) -> dict[str, object]:
        fields = {"execution_plan": {"steps": steps}}
        answer = {"response_type": "custom", "status": "success", "message": "x", "custom_fields": fields}
        checked: dict[str, object] = json.loads(
            lcp("check", "--dialect", "universal", stdin=json.dumps(answer)).out
        )
        return checked

    step: dict[str, object] = {"id": "step-001", "tool": "read_file", "parameters": {"path": "a.txt"}}
    assert check(step)["errors"] == []
    place = "custom_fields.execution_plan.steps"
    assert check({**step, "tool": "read_fil"})["errors"] == [
        {
            "path": f"{place}[0].tool",
            "message": "no worker executes the kind 'read_fil'; did you mean 'read_file'?",
        }
    ]
    many = [{**step, "id": f"step-{number:03}"} for number in range(101)]
    assert check(*many)["errors"] == [
        {"path": place, "message": "the plan has 101 steps, and max_jobs = 100 leaves 100"}
    ]
    assert check(*many * 100)["errors"] == [
        {"path": place, "message": "steps has at most 10,000 entries; found 10,100"}
    ]
    assert check()["errors"] == [{"path": place, "message": "steps is not empty; found []"}]


def test_check_shows_the_action_that_a_universal_reply_is_translated_to(lcp: Lcp) -> None:
    answer = '{"response_type": "answer", "status": "success", "message": "It is done."}'
    done = lcp("check", "--dialect", "universal", stdin=answer)
    assert (done.code, done.object["action"]) == (
        0,
        {"ok": True, "action": "mission_complete", "summary": "It is done."},
    )
    assert lcp("check", stdin=answer).code == 1


def test_an_unknown_dialect_is_a_usage_error(lcp: Lcp) -> None:
    done = lcp("check", "--dialect", "esperanto")
    assert (done.code, "'lcp', 'universal'" in done.err) == (2, True)


def test_try_runs_one_job(lcp: Lcp) -> None:
    (lcp.home / "params.json").write_text('{"rel_path": "b.md", "content": "b"}')
    written = lcp("try", "write_file", "@params.json", "--root", "root")
    assert (written.code, (lcp.root / "b.md").read_text()) == (0, "b")
    read = lcp("try", "read_file", "-", "--root", "root", stdin='{"rel_path": "b.md"}').object
    assert isinstance(read["result"], dict)
    assert (read["ok"], read["result"]["content"], read["error"]) == (True, "b", None)
    assert not lcp.database.exists()


@pytest.mark.parametrize(
    ("kind", "params", "code", "error"),
    [
        ("read_file", '{"rel_path": "../x"}', 1, "PATH_OUTSIDE_ROOT"),
        ("read_file", '{"rel_path": "x"}', 1, "PATH_NOT_FOUND"),
        ("read_file", '{"rel_paht": "x"}', 1, "INVALID_PARAMS"),
        ("frobnicate", "{}", 1, "NO_WORKER"),
        ("read_file", "nonsense", 2, None),
        ("read_file", "@nowhere", 1, None),
    ],
)
def test_try_fails_with_a_code(lcp: Lcp, kind: str, params: str, code: int, error: str | None) -> None:
    done = lcp("try", kind, params, "--root", "root")
    assert done.code == code
    if error is None:
        assert done.err.count("\n") == 1
    else:
        assert isinstance(done.object["error"], dict)
        assert done.object["error"]["error_code"] == error


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mission",
        "request",
        "response",
        "error",
        "agent",
        "structured",
        "check",
        "config",
        "list_files",
        "write_file_result",
        "universal",
        "tool_definition",
        "memory_entry",
        "execution_plan",
        "file_operation",
        "notice",
    ],
)
def test_every_schema_is_one(lcp: Lcp, name: str) -> None:
    done = lcp("schema", *filter(None, [name]))
    jsonschema.Draft202012Validator.check_schema(done.object)
    assert done.object["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert ("$id" in done.object) == (name not in ("list_files", "write_file_result"))


@pytest.mark.parametrize("shipped", shipped_missions().values(), ids=lambda path: str(path.name))
def test_the_schema_of_a_mission_accepts_what_ships(lcp: Lcp, shipped: Path) -> None:
    schema = jsonschema.Draft202012Validator(lcp("schema", "mission").object)
    stated = yaml.safe_load(shipped.read_text(encoding="utf-8"))
    schema.validate(stated)
    schema.validate(
        {**stated, "planner": "human", "variables": {"a": {"description": "what", "default": "b"}}}
    )
    assert not schema.is_valid({**stated, "allow_admin": True})


@pytest.mark.parametrize("kind", sorted(BUILT_IN))
def test_the_schema_of_a_kind_has_examples_that_it_accepts(lcp: Lcp, kind: str) -> None:
    schema = lcp("schema", kind).object
    assert schema["title"] == kind
    assert isinstance(schema["examples"], list)
    assert schema["examples"]
    for example in schema["examples"]:
        jsonschema.Draft202012Validator(schema).validate(example)


@pytest.mark.parametrize("name", ["lcp", "universal"])
def test_a_strict_schema_closes_every_object_and_needs_every_key(lcp: Lcp, name: str) -> None:
    schema = lcp("schema", name, "--strict").object
    jsonschema.Draft202012Validator.check_schema(schema)
    objects = [part for part in _parts(schema) if "properties" in part]
    assert len(objects) > 5
    for part in objects:
        properties = part["properties"]
        assert isinstance(properties, dict)
        assert (part["required"], part["additionalProperties"]) == ([*properties], False)


def test_only_a_dialect_has_a_strict_schema(lcp: Lcp) -> None:
    done = lcp("schema", "mission", "--strict")
    assert done.code == 2
    assert done.err == "--strict is only for the schemas lcp and universal, not 'mission'\n"


def _parts(schema: object) -> list[dict[str, JsonValue]]:
    if isinstance(schema, list):
        return list(chain.from_iterable(map(_parts, schema)))
    if not isinstance(schema, dict):
        return []
    return [schema, *chain.from_iterable(map(_parts, schema.values()))]


def test_an_unknown_schema_is_answered_with_the_nearest(lcp: Lcp) -> None:
    done = lcp("schema", "list_fils")
    assert (done.code, done.err) == (1, "unknown schema 'list_fils'; did you mean 'list_files'?\n")
