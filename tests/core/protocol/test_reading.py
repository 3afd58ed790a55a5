"""R2 and R3: one of five actions with all it needs and nothing of another, or every reason why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue
from tests.tables import table

from lcp_engine.core.protocol.actions import Action, CreateFollowupJobs, ErrorAction, Malformed, WriteFile
from lcp_engine.core.protocol.read_reply import NO_REASON, read_reply
from lcp_engine.features.plans.answered_plan import ExecutePlan
from lcp_engine.workers.registry import BUILT_IN

Body: TypeAlias = dict[str, JsonValue]

KINDS: dict[str, type[BaseModel]] = {kind: worker.params for kind, worker in BUILT_IN.items()}
SEED = json.loads((Path(__file__).parent / "seed_003.json").read_text(encoding="utf-8"))
CASES = Path(__file__).parents[4] / "shared" / "cases" / "replies.jsonl"

WRITE: Body = {"ok": True, "action": "write_file", "rel_path": "a.md", "content": "x"}
COMPLETE: Body = {"ok": True, "action": "mission_complete", "summary": "s"}
ANALYSIS: Body = {"ok": True, "action": "analysis_result", "summary": "s"}
RESULTS = {"LIST FILES RESULT", "READ FILE RESULT"}


def read(body: Body) -> Action | Malformed:
    return read_reply(json.dumps(body), KINDS)


def ask(*jobs: JsonValue) -> Body:
    return {"ok": True, "action": "create_followup_jobs", "new_jobs": list(jobs)}


def read_job(job: Body) -> Body:
    action = read(ask(job))
    assert isinstance(action, CreateFollowupJobs), action
    return action.new_jobs[0].model_dump()


def errors(body: Body) -> dict[str, str]:
    malformed = read(body)
    assert isinstance(malformed, Malformed)
    return {problem.path: problem.message for problem in malformed.errors}


@table("reply", SEED["replies"], ids=lambda reply: reply["title"])
def test_every_reply_of_the_reference_is_read_as_it_is_labelled(reply: dict[str, str]) -> None:
    read_as = read_reply(reply["text"], KINDS)
    if any(title in reply["title"] for title in RESULTS):
        assert isinstance(read_as, Malformed)
        assert "a planner does not invent results" in read_as.errors[0].message
        return
    assert not isinstance(read_as, Malformed)
    assert read_as.recovered == read_as.warnings == ()
    given_fields = json.loads(reply["text"])
    assert {
        key: value for key, value in read_as.model_dump(mode="json").items() if key in given_fields
    } == given_fields


@table("job", SEED["params"])
def test_all_params_of_the_reference_fit_their_kind(job: Body) -> None:
    assert read_job(job)["params"] == job["params"]


def _cases() -> list[dict[str, JsonValue]]:
    if not CASES.exists():
        return []
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return [case for case in map(json.loads, lines) if case["dialect"] == "lcp"]


@pytest.mark.skipif(not CASES.exists(), reason="the collected replies are not beside this checkout")
@table("case", _cases(), ids=lambda case: str(case["id"]))
def test_every_collected_reply_is_read_as_it_is_labelled(case: dict[str, JsonValue]) -> None:
    reply = read_reply(str(case["text"]), KINDS)
    if isinstance(reply, Malformed):
        assert not case["valid"], reply.errors
    else:
        assert case["valid"], case["why"]
        assert reply.action == case["action"]


@table("commentary", ["why", None])
@table("body", [ask(), WRITE, COMPLETE, ANALYSIS])
def test_commentary_is_welcome_everywhere(body: Body, commentary: str | None) -> None:
    action = read({**body, "commentary": commentary})
    assert not isinstance(action, Malformed)
    assert action.commentary == commentary
    assert action.warnings == ()


@table(
    ("body", "expected"),
    [
        ({}, {"ok": "ok is missing", "action": "action is missing"}),
        ({"ok": None, **{k: v for k, v in COMPLETE.items() if k != "ok"}}, {"ok": "ok is missing"}),
        ({**COMPLETE, "ok": "true"}, {"ok": 'ok is true or false; found "true"'}),
        ({**COMPLETE, "ok": 1}, {"ok": "ok is true or false; found 1"}),
        ({"ok": True, "action": 7}, {"action": "found 7"}),
        ({"ok": True, "action": "mission_completed"}, {"action": "did you mean 'mission_complete'?"}),
        (
            {"ok": True, "action": "noop"},
            {"action": "unknown action 'noop'; known are create_followup_jobs, "},
        ),
        ({"ok": True, "action": "list_files_result", "files": []}, {"action": "does not invent results"}),
        (
            {"tool_calls": [{"name": "ls", "arguments": ""}]},
            {"": 'no tools are offered; found a call of "ls"'},
        ),
        (
            {"tool_calls": [{"function": {"name": "ls", "arguments": {}}}]},
            {"": 'one JSON object that has "action"'},
        ),
        ({"name": "read_file", "parameters": {"rel_path": "a"}}, {"": 'found a call of "read_file"'}),
        ({"ok": True, "action": "read_file_result"}, {"action": "does not invent results"}),
        ({"ok": True, "action": "error", "error": "x"}, {"ok": "the action error needs ok: false"}),
        ({**COMPLETE, "error": "x"}, {"error": "ok: true does not go with error"}),
        ({**COMPLETE, "error": ""}, {"error": "ok: true does not go with error"}),
        ({**COMPLETE, "new_jobs": []}, {"new_jobs": "new_jobs belongs to create_followup_jobs"}),
        ({**ANALYSIS, "new_jobs": [{"kind": "x"}]}, {"new_jobs": "never mix actions"}),
        ({**ANALYSIS, "deliverables": []}, {"deliverables": "deliverables belongs to mission_complete"}),
        ({**ANALYSIS, "content": "x"}, {"content": "content belongs to write_file"}),
        ({**COMPLETE, "issues": []}, {"issues": "issues belongs to analysis_result"}),
        ({**COMPLETE, "error_code": "X"}, {"error_code": "error_code belongs to error"}),
        ({**COMPLETE, "root": "."}, {"root": "root belongs to write_file"}),
        ({**ask(), "rel_path": "a"}, {"rel_path": "never mix actions"}),
        ({**ask(), "summary": "s"}, {"summary": "summary belongs to analysis_result and mission_complete"}),
        ({**WRITE, "new_jobs": []}, {"new_jobs": "never mix actions"}),
        (
            {"ok": True, "action": "mission_complete"},
            {"summary": "mission_complete needs summary; it is missing"},
        ),
        ({**COMPLETE, "summary": None}, {"summary": "mission_complete needs summary; it is missing"}),
        ({**COMPLETE, "summary": 3}, {"summary": "summary is a string; found 3"}),
        ({**COMPLETE, "deliverables": "x"}, {"deliverables": 'deliverables is a list; found "x"'}),
        ({**COMPLETE, "metrics": [1]}, {"metrics": "metrics is an object; found a list of 1"}),
        ({"ok": True, "action": "create_followup_jobs"}, {"new_jobs": "needs new_jobs"}),
        ({"ok": True, "action": "create_followup_jobs", "new_jobs": None}, {"new_jobs": "needs new_jobs"}),
        (
            {"ok": True, "action": "create_followup_jobs", "new_jobs": {}},
            {"new_jobs": "is a list of jobs; found {}"},
        ),
        ({"ok": True, "action": "write_file"}, {"rel_path": "it is missing", "content": "it is missing"}),
        ({**WRITE, "content": None}, {"content": "write_file needs content; it is missing"}),
        ({**WRITE, "rel_path": "a\tb"}, {"rel_path": "control character"}),
        ({**WRITE, "root": "C:\temp\new", "mode": "w"}, {"root": "control character", "mode": 'found "w"'}),
        ({**WRITE, "rel_path": ""}, {"rel_path": "rel_path is not empty"}),
        ({**WRITE, "path": "a.md"}, {"path": "write_file names its file with rel_path"}),
        ({**WRITE, "new_content": "y"}, {"new_content": "content and new_content are one field"}),
    ],
)
def test_what_is_wrong_with_an_action_is_said_where_it_is(body: Body, expected: dict[str, str]) -> None:
    found = errors(body)
    assert found.keys() == expected.keys()
    for path, message in expected.items():
        assert message in found[path]


@table(
    ("body", "text"),
    [
        ({"ok": False}, NO_REASON),
        ({"ok": False, "error": " ", "message": "", "summary": "\t"}, NO_REASON),
        ({"ok": False, "error": "e", "message": "m", "summary": "s"}, "e"),
        ({"ok": False, "error": " \n", "message": "m", "summary": "s"}, "m"),
        ({"ok": False, "error": {"code": 1}, "message": None, "summary": "s"}, "s"),
        ({"ok": False, "action": 5, "error": "e"}, "e"),
        ({**COMPLETE, "ok": False}, "s"),
        ({**ask({"kind": 5}), "ok": False, "error": "e"}, "e"),
        ({"ok": False, "action": "read_file_result", "error": "e", "error_code": 4, "commentary": []}, "e"),
    ],
)
def test_ok_false_reads_as_error_and_nothing_else_is_looked_at(body: Body, text: str) -> None:
    action = read(body)
    assert isinstance(action, ErrorAction)
    assert action.error == text


@table(
    ("body", "warnings"),
    [
        ({**COMPLETE, "meta": {"a": 1}}, ["meta: unknown key, ignored"]),
        ({**COMPLETE, "deliverable": []}, ["deliverable: unknown key, ignored; did you mean 'deliverables'?"]),
        ({**COMPLETE, "message": "m", "new_jobs": None, "error": None}, ["message: unknown key, ignored"]),
        ({**COMPLETE, "commentary": 5}, ["commentary: not a string, ignored: 5"]),
        (ask({"kind": "x", "params": {}, "description": 1}), ["new_jobs[0].description: unknown key, ignored"]),
        (ask({"kind": "x", "params": {}, "task": "y"}), ["new_jobs[0].task: unknown key, ignored"]),
        ({"ok": False, "action": "x", "details": 1}, ['action: ok: false reads as error; "x" is ignored',
                                                      "details: ignored beside ok: false"]),
        ({**COMPLETE, **{f"k{n}": n for n in range(25)}}, [*(f"k{n}: unknown key, ignored" for n in range(20)),
                                                           "… and 5 more"]),
    ],
)  # fmt: skip
def test_what_is_ignored_is_named(body: Body, warnings: list[str]) -> None:
    action = read(body)
    assert not isinstance(action, Malformed)
    assert list(action.warnings) == warnings


@table(
    ("fields", "content"),
    [
        ({"content": "x"}, "x"),
        ({"new_content": "x"}, "x"),
        ({"content": "x", "new_content": "x"}, "x"),
        ({"content": None, "new_content": ""}, ""),
    ],
)
def test_content_and_new_content_are_one_field(fields: Body, content: str) -> None:
    action = read({"ok": True, "action": "write_file", "rel_path": "a", "root": None, "mode": None, **fields})
    assert isinstance(action, WriteFile)
    assert (action.content, action.mode, action.root) == (content, "overwrite", None)


@table(
    ("job", "expected"),
    [
        (3, {"": "a job is an object with kind and params; found 3"}),
        ({}, {".kind": "a job needs kind; it is missing", ".params": "a job needs params; it is missing"}),
        ({"kind": None, "params": {}}, {".kind": "a job needs kind; it is missing"}),
        ({"task": "read_file", "params": {}}, {".task": "task is not read", ".kind": "it is missing"}),
        ({"kind": 5, "params": {}}, {".kind": "kind is a string; found 5"}),
        ({"kind": "", "params": {}}, {".kind": "kind is 1 to 64 of the characters"}),
        ({"kind": "a b", "params": {}}, {".kind": 'found "a b"'}),
        ({"kind": "x\n", "params": {}}, {".kind": "kind is 1 to 64 of the characters"}),
        ({"kind": "x" * 65, "params": {}}, {".kind": "kind is 1 to 64 of the characters"}),
        ({"kind": "mission_complete", "params": {}}, {".kind": "is an action or a result, not a kind of job"}),
        ({"kind": "read_file_result", "params": {}}, {".kind": "is an action or a result, not a kind of job"}),
        ({"kind": "x", "params": {}, "name": "n" * 201}, {".name": "name has at most 200 characters; found 201"}),
        ({"kind": "x", "params": {}, "name": 5, "auto_dispatch": "no"},
         {".name": "found 5", ".auto_dispatch": 'found "no"'}),
        ({"kind": "x", "params": []}, {".params": "params is an object; found []"}),
        ({"kind": "read_file"}, {".params": "a job needs params; it is missing"}),
        ({"kind": "read_file", "params": None}, {".params": "a job needs params; it is missing"}),
        ({"kind": "read_file", "params": {}}, {".params": "rel_path or path is missing"}),
        ({"kind": "read_file", "params": {"rel_path": None}}, {".params": "rel_path or path is missing"}),
        ({"kind": "read_file", "params": {"rel_path": "a", "path": "b"}}, {".params": "rel_path and path"}),
        ({"kind": "list_files", "params": {"pattern": ["x"]}},
         {".params.pattern": "unknown param 'pattern'; did you mean 'patterns'?"}),
        ({"kind": "list_files", "params": {"zzz": None}}, {".params.zzz": "unknown param 'zzz'; known are root, "}),
        ({"kind": "list_files", "params": {"patterns": "*.py"}}, {".params.patterns": "patterns is a list; found"}),
        ({"kind": "list_files", "params": {"patterns": ["a", 1, "b\n"]}},
         {".params.patterns[1]": "a string; found 1", ".params.patterns[2]": "control character"}),
        ({"kind": "read_file", "params": {"path": "C:\temp"}}, {".params.path": "control character"}),
        ({"kind": "agent_plan", "params": {"user_prompt": "p", "project_root": "\n"}},
         {".params.project_root": "control character"}),
        ({"kind": "agent_plan", "params": {}}, {".params.user_prompt": "agent_plan needs user_prompt"}),
        ({"kind": "write_file", "params": {"rel_path": "a"}}, {".params": "content or new_content is missing"}),
        ({"kind": "write_file", "params": {"rel_path": "a", "content": "x", "new_content": "y"}},
         {".params": "content and new_content"}),
        ({"kind": "list_files", "params": {"patterns": ["x"] * 10_001}}, {".params.patterns": "at most 10,000"}),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_job_is_said_where_it_is(job: JsonValue, expected: dict[str, str]) -> None:
    found = errors(ask({"kind": "x", "params": {}}, job))
    assert found.keys() == {f"new_jobs[1]{path}" for path in expected}
    for path, message in expected.items():
        assert message in found[f"new_jobs[1]{path}"]


LIST: Body = {"kind": "list_files", "params": {}}
READ: Body = {"kind": "read_file", "params": {"rel_path": "a"}}


@table(
    "key",
    ["autoDispatch", "auto-dispatch", "AutoDispatch", "AUTO_DISPATCH", "autodispatch", "auto dispatch", "auto.dispatch",
     "auto_dispatched", "auto_dispach", "auto_dipsatch", "audo_dispatch", "auto_dispatch ", "_auto_dispatch",
     "dispatch", "Dispatch", "auto_run", "autoRun", "auto_execute", "auto", "hold", "requires_approval",
     "needsApproval", "require_confirmation", "requires_human_review", "approval_required", "userApproval", "manual",
     "review", "should_auto_dispatch", "autoDispatchEnabled", "\uff41uto_dispatch"],
)  # fmt: skip
def test_a_near_miss_of_auto_dispatch_is_an_error_that_names_it(key: str) -> None:
    # Ignored, the job would run although its planner said that it must not.
    assert "auto_dispatch" in errors(ask({**LIST, key: False}))[f"new_jobs[0].{key}"]


@table(
    "more",
    [{"approval": "required"}, {"approval": "manual"}, {"review": "required"},
     {"confirmation": "needs_approval"}, {"hold": "user"}, {"execute": "manually"}],
    ids=str,
)  # fmt: skip
def test_a_wish_for_review_in_words_is_an_error(more: Body) -> None:
    (key,) = more
    assert "auto_dispatch" in errors(ask({**LIST, **more}))[f"new_jobs[0].{key}"]
    assert "auto_dispatch" in errors({**WRITE, **more})[key]


@table(
    "more",
    [{"append": True}, {"Append": "true"}, {"is_append": 1}, {"overwrite": False}, {"write_mode": "append"},
     {"file_mode": "a"}],
    ids=str,
)  # fmt: skip
def test_a_wish_to_append_in_other_words_is_an_error(more: Body) -> None:
    # Ignored, the file would be replaced.
    (key,) = more
    assert "mode: append" in errors({**WRITE, **more})[key]
    job: Body = {"kind": "write_file", "params": {"rel_path": "a", "content": "x"}}
    assert "mode: append" in errors(ask({**job, **more}))[f"new_jobs[0].{key}"]


@table(
    "more", [{"append": False}, {"overwrite": True}, {"approval": "none"}, {"status": "pending"}, {"mode_": None}],
    ids=str,
)  # fmt: skip
def test_what_asks_for_nothing_else_stays_a_warning(more: Body) -> None:
    assert not isinstance(read({**WRITE, **more}), Malformed)
    job: Body = {"kind": "write_file", "params": {"rel_path": "a", "content": "x"}}
    assert not isinstance(read(ask({**job, **more})), Malformed)


@table(
    "key",
    ["Params", "PARAMS", "params ", "_params", "param", "parms", "prams", "parmas", "paramss", "args", "Args", "arg",
     "arguments", "argument", "argumnets", "parameters", "parameter", "Parameters", "paramaters", "paramters", "kwargs",
     "input", "inputs", "payload", "tool_input", "toolArgs", "job_params", "function_args"],
)  # fmt: skip
@table("job", [LIST, {"kind": "list_files"}, {"kind": "no.worker", "params": {}}, {"kind": "x"}])
def test_a_near_miss_of_params_is_an_error_that_names_it(key: str, job: Body) -> None:
    # Ignored, list_files would list the whole root.
    found = errors(ask({**job, key: {"patterns": ["*.md"]}}))
    assert "params" in found[f"new_jobs[0].{key}"].partition(";")[0]
    assert ("new_jobs[0].params" in found) is ("params" not in job)


@table("key", ["Kind", "KIND", "kind ", "kinds", "knid", "kin", "_kind"])
@table("job", [LIST, {"params": {}}])
def test_a_near_miss_of_kind_is_an_error_that_names_it(key: str, job: Body) -> None:
    assert "with kind" in errors(ask({**job, key: "read_file"}))[f"new_jobs[0].{key}"]


@table(
    "key",
    ["type", "tool", "task", "Tool", "tool_name", "toolName", "worker", "function", "action", "job_type"],
)
def test_another_word_for_kind_is_an_error_where_kind_is_missing_or_another(key: str) -> None:
    jobs: list[Body] = [{"params": {}, key: "list_files"}, {**LIST, key: "write_file"}]
    for job in jobs:
        assert "with kind" in errors(ask(job))[f"new_jobs[0].{key}"]


@table(
    ("job", "key", "right"),
    [
        ({"kind": "read_file", "rel_path": "a"}, "rel_path", "rel_path is a param of read_file and belongs in params"),
        ({"kind": "read_file", "path": "a"}, "path", "path is a param of read_file"),
        ({**READ, "rel_path": "b"}, "rel_path", "rel_path is a param of read_file"),
        ({**READ, "limit": 5}, "limit", "limit is a param of read_file"),
        ({**READ, "Limit": 5}, "Limit", "limit is a param of read_file"),
        ({"kind": "read_file", "params": {}, "relPath": "a"}, "relPath", "rel_path is a param of read_file"),
        ({**LIST, "patterns": ["*.py"]}, "patterns", "patterns is a param of list_files"),
        ({**LIST, "pattern": ["*.py"]}, "pattern", "patterns is a param of list_files"),
        ({**LIST, "options": {"patterns": ["*.py"]}}, "options", "the object params"),
        ({**LIST, "query": {"patterns": ["*.md"]}}, "query", "the object params"),
        ({"kind": "write_file", "rel_path": "a", "params": {"content": "x"}}, "rel_path", "a param of write_file"),
        ({"kind": "agent_plan", "params": {"user_prompt": "p"}, "context": "c"}, "context", "a param of agent_plan"),
        ({"kind": "custom", "data": {"a": 1}}, "data", "the object params"),
    ],
)  # fmt: skip
def test_params_lifted_to_the_level_of_the_job_are_an_error(job: Body, key: str, right: str) -> None:
    assert right in errors(ask(job))[f"new_jobs[0].{key}"]


@table(
    "more",
    [
        {"comment": "c"}, {"reason": "r"}, {"priority": 1}, {"description": "d"}, {"id": "job-1"}, {"depends_on": []},
        {"timeout": 5}, {"metadata": {"a": 1}}, {"tags": ["a"]}, {"title": "t"}, {"notes": "n"}, {"note": "run it"},
        {"retries": 3}, {"parallel": True}, {"optional": True}, {"done": False}, {"blocking": False}, {"order": 1},
        {"expected_output": {"a": 1}}, {"purpose": "hold"}, {"status": "held"}, {"find": "x"}, {"mind": "x"},
        {"parent": 1}, {"path_hint": "a"}, {"paths": ["a"]}, {"parts": []}, {"context": "why"}, {"child": "c"},
        {"type": "job"}, {"task": "list the files"}, {"function": "look"},
        {"review": "looked at it"}, {"hold": "your horses"}, {"run": 7}, {"auto_dispatch_reason": "it only reads"},
        {"options": {"retries": 1}}, {"data": {}}, {"config": "x"}, {"argues": 1}, {"kindness": 1},
        {"dispatched_at": 1}, {"autoDispatch": None}, {"args": None}, {"patterns": None}, {"Kind": None},
        {"x" * 10_000: True}, {"": True},
        {"__": False},
    ],
    ids=str,
)  # fmt: skip
def test_a_key_of_another_meaning_stays_a_warning(more: Body) -> None:
    custom: Body = {"kind": "no.worker", "params": {"a": 1}}
    for job in (LIST, custom):
        action = read(ask({**job, **more}))
        assert isinstance(action, CreateFollowupJobs), action
        assert len(action.warnings) == 1
        assert "unknown key, ignored" in action.warnings[0]


@table("more", [{"rel_path": "a"}, {"tool": "read_file"}, {"action": "read_file"}])
def test_what_is_said_twice_alike_is_a_warning(more: Body) -> None:
    assert isinstance(read(ask({**READ, **more})), CreateFollowupJobs)


def test_a_job_of_countless_unknown_keys_is_read() -> None:
    action = read(ask({**LIST, **{f"k{n}": n for n in range(40_000)}}))
    assert isinstance(action, CreateFollowupJobs)
    assert action.warnings[-1] == "… and 39,980 more"
    malformed = read(ask({**LIST, **{f"a{'_' * n}r_g_s": n for n in range(1, 30)}}, LIST))
    assert isinstance(malformed, Malformed)
    assert len(malformed.errors) == 29


@table("more", [{"auto_dispatch": False}, {"autoDispatch": "no"}, {"requires_approval": True}], ids=str)
def test_a_wish_to_hold_that_no_job_has_is_an_error(more: Body) -> None:
    (key,) = more
    assert "auto_dispatch belongs to a job" in errors({**ask(LIST), **more})[key]
    assert "write_file has no auto_dispatch" in errors({**WRITE, **more})[key]


@table("more", [{"auto_dispatch": True}, {"auto_dispatch": None}, {"review": "done"}], ids=str)
def test_other_unknown_keys_of_an_action_stay_a_warning(more: Body) -> None:
    for body in ({**ask(LIST), **more}, {**WRITE, **more}):
        action = read(body)
        assert not isinstance(action, Malformed)
        assert len(action.warnings) == 1
    assert not isinstance(read({**COMPLETE, "auto_dispatch": False}), Malformed)


@table(
    "key",
    [
        "execution_plan", "error_handling", "dependencies", "depends_on", "wait_for", "condition", "conditions",
        "run_if", "dependsOn", "after", "needs", "if", "when", "on-failure", "fallback_plans", "dry_run",
    ],
)  # fmt: skip
def test_a_key_that_would_change_the_course_is_never_ignored(key: str) -> None:
    job: Body = {"kind": "list_files", "params": {}}
    in_job = f"new_jobs[0].{key}{'[0]' if key == 'dependencies' else ''}"
    beside: Body = {**ask(job), key: ["a"]}
    ending: Body = {**COMPLETE, key: ["a"]}
    for body, path in ((ask({**job, key: ["a"]}), in_job), (beside, key), (ending, key)):
        malformed = read(body)
        assert isinstance(malformed, Malformed)
        assert path in [problem.path for problem in malformed.errors]
    empty = read({**ask({**job, key: []}), key: None})
    assert isinstance(empty, CreateFollowupJobs)
    assert len(empty.warnings) == 2


STEPS: Body = {
    "steps": [
        {"id": "step-001", "tool": "tool-list-files", "parameters": {}},
        {"id": "keep", "tool": "write_file", "dependencies": ["step-001"],
         "parameters": {"path": "a", "content": "$output.step-001.total"}},
    ]
}  # fmt: skip


@table(
    "body",
    [
        {"ok": True, "action": "create_followup_jobs", "commentary": "In steps.", "execution_plan": STEPS},
        {**ask(), "commentary": "In steps.", "execution_plan": STEPS},
        {
            **ask(
                {"kind": "tool-list-files", "params": {}},
                {"id": "keep", "kind": "write_file", "dependencies": ["step-001"],
                 "params": {"path": "a", "content": "$output.step-001.total"}},
            ),
            "commentary": "In steps.",
        },
    ],
    ids=str,
)  # fmt: skip
def test_a_plan_beside_jobs_and_jobs_with_dependencies_are_read(body: Body) -> None:
    action = read(body)
    assert isinstance(action, ExecutePlan)
    assert action.commentary == "In steps."
    assert [job.kind for job in action.new_jobs] == ["list_files", "write_file"]
    assert [(step.id, step.dependencies) for step in action.plan.steps] == [
        ("step-001", []), ("keep", ["step-001"]),
    ]  # fmt: skip


LAST: Body = {"kind": "list_files", "params": {}, "dependencies": ["first"]}


@table(
    ("body", "path", "said"),
    [
        ({**ask(LIST), "execution_plan": STEPS}, "execution_plan", "a reply requests jobs (new_jobs) or a plan"),
        ({**COMPLETE, "execution_plan": STEPS}, "execution_plan", "execution_plan of create_followup_jobs"),
        (ask(LIST, LAST), "new_jobs[1].dependencies[0]", "first is not a step; known: step-001, step-002"),
        (ask({**LIST, "id": 1}, LAST), "new_jobs[0].id", "id is a string; found 1"),
        (ask({**LIST, "name": "first"}, {**LIST, "name": "first"}, LAST), "new_jobs[2].dependencies[0]", "first is"),
        (ask({**LIST, "id": "first", "auto_dispatch": False}, LAST), "new_jobs[0].auto_dispatch", "is held by policy"),
        (ask({**LIST, "id": "first", "review": True}, LAST), "new_jobs[0].review", "auto_dispatch: false holds a job"),
        (ask({"id": "first", "kind": "lst_files", "params": {}}, LAST), "new_jobs[0].kind", "no worker executes"),
        (ask({"id": "first", "kind": "list_files", "params": {"a": 1}}, LAST), "new_jobs[0].params.a", "unknown param"),
        (ask({"id": "first", "kind": "read_file", "params": {"path": "$output.x"}}, LAST), "new_jobs[0].params.path",
         "x is not a step"),
        (ask(5, LAST, {"name": "first", **LIST}), "new_jobs[0]", "a job is an object"),
        (ask({**LAST, "id": "first"}), "new_jobs[0].dependencies[0]", "first waits for itself"),
    ],
)  # fmt: skip
def test_a_fault_of_jobs_that_wait_is_named_with_its_place(body: Body, path: str, said: str) -> None:
    assert said in errors(body)[path]


def test_a_job_is_named_in_dependencies_by_its_name_too() -> None:
    action = read(ask({**LIST, "name": "first"}, LAST))
    assert isinstance(action, ExecutePlan)
    assert action.plan.steps[1].dependencies == ["step-001"]


def test_every_error_of_every_job_is_listed() -> None:
    found = errors(
        ask(
            {"kind": "a b", "params": {}, "name": 1},
            {"kind": "x", "params": {}},
            {"kind": "list_files", "params": {"root": 1}},
            5,
        )
    )
    assert list(found) == ["new_jobs[0].name", "new_jobs[0].kind", "new_jobs[2].params.root", "new_jobs[3]"]


@pytest.mark.parametrize("kind", ["write_file", "rewrite_file"])
def test_an_empty_file_is_a_choice(kind: str) -> None:
    params: Body = {"rel_path": "a", "content": ""}
    assert read_job({"kind": kind, "params": params})["params"] == params


def test_params_of_a_custom_kind_are_any_object() -> None:
    params: Body = {"a": None, "b": [1, {"c": 1.5}], "root": "\t", "n": 10**999}
    job = read_job({"kind": "Any.custom-kind_1", "params": params})
    assert job == {"name": None, "kind": "Any.custom-kind_1", "params": params, "auto_dispatch": None}


def test_a_null_in_an_optional_place_reads_as_absent() -> None:
    job = read_job({"kind": "list_files", "name": None, "params": {"patterns": None}, "auto_dispatch": None})
    assert job == {"name": None, "kind": "list_files", "params": {}, "auto_dispatch": None}


def test_jobs_are_not_counted() -> None:
    action = read({**ask(), "new_jobs": [{"kind": "x", "params": {}} for _ in range(1000)]})
    assert isinstance(action, CreateFollowupJobs)
    assert len(action.new_jobs) == 1000


def test_a_reply_of_errors_only_does_not_list_them_without_end() -> None:
    malformed = read(ask(*(5 for _ in range(5000))))
    assert isinstance(malformed, Malformed)
    assert len(malformed.errors) == 1001
    assert malformed.errors[-1].message == "the jobs from number 1000 on were not checked"


def test_what_was_removed_is_told_with_the_action_and_with_the_errors() -> None:
    for body in (COMPLETE, {"ok": True}):
        reply = read_reply(f"Here:\n```json\n{json.dumps(body)}\n```", KINDS)
        assert reply.recovered == ("Markdown fence", "prose before the object")


# U+0000 is Malformed wherever it stands, before any key is looked at (R1); it has tests of its own.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), TEXTS, st.sampled_from(["list_files", "write_file", "a"]),
    st.just([]), st.just({}), st.just([{"kind": "list_files", "params": {"patterns": [1]}}]),
)  # fmt: skip
NAMES = [
    "create_followup_jobs",
    "write_file",
    "analysis_result",
    "mission_complete",
    "error",
    "list_files_result",
]
KEYS = ["new_jobs", "rel_path", "path", "root", "content", "new_content", "mode", "summary", "issues", "error",
        "error_code", "message", "commentary", "metrics", "x"]  # fmt: skip


@given(
    st.fixed_dictionaries(
        {"ok": st.sampled_from([True, True, True, False, None])},
        optional={"action": st.sampled_from(NAMES) | VALUES, **dict.fromkeys(KEYS, VALUES)},
    )
)
def test_any_object_gives_an_action_or_the_reasons_why_not(body: Body) -> None:
    reply = read(body)
    if isinstance(reply, Malformed):
        assert reply.errors
        assert body["ok"] is not False
    else:
        assert reply.ok is body["ok"]
        assert type(reply).model_validate(reply.model_dump()) == reply.note((), ())


def test_u0000_is_malformed_even_where_the_reply_says_that_it_failed() -> None:
    assert isinstance(read({"ok": False, "error": "a\0b"}), Malformed)


@given(st.text())
def test_any_text_gives_an_action_or_the_reasons_why_not(text: str) -> None:
    reply = read_reply(text, KINDS)
    assert not isinstance(reply, Malformed) or reply.errors


@table(
    "text",
    [
        '<tool_call>\n{"name": "ls", "arguments": {}}\n</tool_call>',
        '[TOOL_CALLS][{"name": "ls", "arguments": {}}]',
        '<|channel|>commentary to=functions.ls <|constrain|>json<|message|>{"a": 1}<|call|>',
        "<function=ls><parameter=a>1</parameter></function>",
        "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>ls",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.ls:0",
    ],
)
def test_a_call_of_a_tool_in_a_models_own_marks_is_told_that_no_tools_are_offered(text: str) -> None:
    found = read_reply(text, {})
    assert isinstance(found, Malformed)
    assert found.errors[0].message.startswith("no tools are offered; found a call of ")
