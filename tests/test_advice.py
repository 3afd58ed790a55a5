"""Every error gives advice that helps where it is made.

The tables list every place in the source that makes an error. A new place fails the first test until somebody has
judged it: if the advice of its code (docs/errors.md) helps the person or planner who reads it there, it belongs into
`GENERAL`; if not, the place states its own, and belongs into `OWN`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.errors_by_place import SOURCE, Made, made_errors

from lcp_engine import Engine, run_job
from lcp_engine.cli.app import lcp
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import MEANINGS, ErrorCode
from lcp_engine.store.queries.records import Mission

# `*` stands for a code that is a variable: its advice comes with it, or is that of the code.
GENERAL = """
*: workers/external:_model runner/confined/external:_Job._error
    core/policy:_named changes/recovery:_outcome cli/check:_read cli/check:_text cli/decide:_read cli/replay:_text
    engine/outcome:failure_from_exception planners/llm/planner:ModelPlanner._error
    replay/reenact:_failure runner/undo:_done
BINARY: cli/decide:_read sandbox/new_content:compose sandbox/new_content:edit sandbox/read_text:_binary
CLARIFICATION_EXHAUSTED: core/decide:_go_on
CONFLICT: changes/recovery:staged_content changes/merge:_Wanted.before cli/decide:_seen_with engine/approvals:_conflict
    sandbox/atomic_write:LocalFile._conflict
    sandbox/entries:LocalDirectory.put sandbox/entries:LocalDirectory.remove web/undo:undo
DATABASE_BUSY: store/db/postgres:Postgres.explain store/db/sqlite:Sqlite.explain
DATABASE_FAILED: store/db/database:_unknown store/db/postgres:Postgres.explain
    store/db/sqlite:Sqlite.connect store/db/sqlite:Sqlite.explain
DATABASE_VERSION: cli/doctor:_database store/db/create:upgrade
FILE_SYSTEM: api/config_text:_replace api/config_text:_text_of api/evaluation:Evaluation._copy_of
    api/mcp_tools:keep_tools
    sandbox/locks:_LocalFiles._lock_existing sandbox/locks:_LocalFiles._lock_parent settings:make_room
    store/maintenance/backup:back_up store/maintenance/backups:keep_backups
INVALID_ARGUMENT: cli/approvers:approver
    api/decision_links:DecisionLinks._stated api/decision_links:DecisionLinks.make
    api/evaluation:_chosen api/evaluation:_times cli/eval:compare_command cli/eval:_matching
    engine/secret_keys:_read api/memory:_given cli/memory:_expiry core/memory:_Check.refuse
    workers/mcp:servers_in workers/mcp:tool_kinds
    workers/external:worker_of core/protocol/schema_model:schema_model workers/external:kinds_in
    workers/external:_readable
    api/arguments:check_delay api/arguments:check_priority api/arguments:fork_point api/engine:Engine.undo
    api/engine:Engine.undo_diffs
    api/history:check_states cli/base:read_object.refusal cli/check:_lines cli/decide:_check_limits
    cli/decide:_limit cli/editor:Draft._read cli/editor:_editor cli/editor:_run cli/load_mission:_parse
    cli/load_mission:_read
    cli/output:_refuse_usage cli/schema:schema_command config_file:parse_config
    config_file:_value_in config_file:parse_upkeep
    core/mission/parse:parse_mission
    core/protocol/read_reply:reader_of core/local_times:refuse
    engine/approvals:answer engine/approvals:_filled engine/messages:_plan
    engine/messages:spoken engine/missions:enqueue engine/question:_check_reply api/run_job:_opened
    engine/schedules:add_schedule planners/llm/keys:read_variables planners/llm/options:_key planners/llm/options:_parse
    planners/llm/options:require_key replay/replay:_directory runner/runner:Runner.__init__
    sandbox/landlock:isolation_named settings:_read_config settings:_seconds settings:read_url
    store/db/open:make_backend store/db/postgres:_unreadable store/maintenance/backup:_check_target web/actions:_option
    web/launch:_directory web/replay:fork
    web/server:_listen web/server:_read_name workers/registry:_offered workers/registry:check_kind
OUTPUT_NOT_FOUND: engine/plan_steps:resolved_params
INVALID_MISSION: core/evaluation/suite:_refuse
    core/mission/parse:_refuse engine/plan_steps:check_plans planners/llm/planner:ModelPlanner._chosen
    planners/registry:_check_names planners/registry:_speaking planners/registry:make_planner
    planners/simple:check_script settings:resolve_root web/actions:_limit
INVALID_PARAMS: changes/preview:Previews._of_merge cli/decide:_revised api/run_job:_read_params replay/fork:_result
    sandbox/atomic_write:check_name sandbox/directories:open_parent sandbox/new_content:_check
    sandbox/new_content:_compose sandbox/new_content:edit sandbox/paths:_checked sandbox/paths:_collapse
    sandbox/root:refusal
    web/edit:read_value workers/base:Worker.read workers/move_file:execute
INVALID_PATTERN: core/patterns:_check_size core/patterns:_invalid sandbox/list_tree:Effort.pieces
INVALID_REPLY: engine/failure:malformed_error
NOT_ALLOWED: replay/fork:_result
NOT_A_FILE: cli/init:_check_target sandbox/atomic_write:check_name sandbox/root:not_a_file sandbox/root:refusal
    store/maintenance/backup:_check_target workers/base:Context.to_change workers/read_file:_read
NOT_FOUND: replay/fork:_find_step
    cli/approvers:remove_command cli/memory:_entries core/memory:unknown_root changes/recovery:_staged_content
    changes/merge:known_stage
    cli/kinds:kinds_command cli/load_mission:_read cli/schema:schema_command engine/messages:_plan
    engine/schedules:unknown_schedule replay/fork:_find_turn runner/undo:find_scope
    shipped_missions:find_mission store/ledger:Ledger._job store/ledger:Ledger.plan
    store/queries/history:find_job store/queries/history:known_id store/queries/mission_spec:missing_mission
    store/queries/pages:find_turn web/kinds:_asked
NOT_ISOLATED: runner/confined/process:ConfinedProcess.wait_until_confined
    sandbox/file_access:_confined_thread sandbox/landlock:examine_isolation sandbox/landlock:isolates
LINK_REFUSED: engine/link_decisions:refused
NOT_SHOWN: web/links:_decide cli/approve_all:Candidate.why_left_out web/actions:approve_shown
NO_PLANNER: planners/registry:make_planner planners/registry:usual_planner
NO_WORKER: engine/approvals:worker_of
OUT_OF_MEMORY: runner/confined/pool:_death
PATH_DENIED: engine/acceptance:_open
PATH_EXISTS: sandbox/entries:check_directory workers/base:FileEffect.check_free
PATH_NOT_FOUND: api/arguments:existing_directory cli/init:_check_target cli/run:_directory
    sandbox/new_content:edit sandbox/root:refusal
    settings:resolve_root
    store/maintenance/backup:_check_target web/launch:_directory workers/base:FileEffect.compose
PATH_OUTSIDE_ROOT: sandbox/paths:_outside sandbox/root:_outside
RUNNER_DIED: engine/settle:rescue
TIMEOUT: runner/confined/pool:_timeout runner/confined/remote_files:Steps.take runner/runner:Runner._check_lanes
    sandbox/atomic_write:Local._check_time
WORKER_DIED: runner/confined/external:_Running.__init__
    runner/confined/pool:_death runner/confined/pool:_result runner/confined/programs:run_program
    runner/confined/process:Spawner.spawn runner/confined/remote_files:RemoteBatch.__init__
    runner/confined/remote_files:Steps.take runner/confined/remote_files:_error_of
WRONG_STATE: changes/merge:_Merge._decide
    engine/link_decisions:check_linkable
    workers/recall:_refusal cli/decide:_approve_edited engine/approvals:decided_before engine/approvals:_is_known
    engine/approvals:answer engine/approvals:approve engine/messages:_check_is_open engine/missions:_check_step_may_run
    engine/missions:accept_root engine/missions:cancel engine/missions:enqueue engine/missions:resume
    engine/missions:retry engine/question:bring_reply engine/question:refuse_relayed replay/fork:_find_turn
    replay/replay:_refuse web/edit:_job
"""
OWN = """
*: planners/llm/probe:_failed engine/plan_steps:admit workers/load_files:_naming api/mcp_tools:_about
    runner/confined/external:_Job.failed changes/stages:open_stage
    cli/base:naming cli/editor:Draft.kept_after engine/admission:_failure engine/admission:refuse_step
    engine/approvals:_check_policy engine/failure:failure_of engine/outcome:storable_failure
    runner/confined/channel:failure_of
    sandbox/root_identity:open_known
CONFLICT: engine/link_decisions:approve_by_link
    engine/memory:edit engine/memory:take_in engine/approvals:answer
    engine/link_decisions:_changed engine/approvals:decided_before runner/undo:_refusal
DATABASE_FAILED: store/db/database:Database.write store/db/open:_check_owner store/db/open:_check_place
    store/db/postgres:Postgres._prepare store/host/liveness:_make_private store/host/liveness:_open_full
    store/maintenance/backup:_dump
    store/maintenance/backup:_pg_dump store/maintenance/check:opened
DATABASE_VERSION: store/db/open:version_of store/db/sqlite:Sqlite.explain store/maintenance/backup:back_up
    store/maintenance/check:_sizes
FILE_SYSTEM: sandbox/private_copy:copy_privately
    changes/stages:_make_private
    store/maintenance/backup:_naming_target cli/init:_write
    runner/confined/programs:ended_of cli/doctor:_new_database cli/doctor:_upkeep
    api/run_job:_apply sandbox/root:refusal
    workers/list_files:execute
    workers/read_file:execute workers/search_files:execute
INVALID_ARGUMENT: cli/decide:_taken web/actions:_taken
    cli/approvers:approver engine/secret_keys:read_key engine/secret_keys:_read
    cli/memory:_entries cli/memory:_from_stdin cli/memory:_objects core/memory:entry_key
    workers/mcp:read_tools workers/mcp:tool_kinds workers/mcp:bridge_to
    cli/kinds:_update workers/external:_path workers/external:python_program sandbox/installed_programs:readable_place
    cli/load_mission:_check_root cli/serve:_load cli/top/command:_load store/db/open:_postgres
    workers/load_files:_refusal
    workers/registry:check_description
INVALID_MISSION: api/evaluation:_text_of cli/load_mission:load_plans engine/admission:check_kinds
    changes/stages:_check_is_outside
    cli/load_mission:_decoded cli/load_mission:_not_readable cli/schedule:add_command
INVALID_PARAMS: workers/base:Context.root
INVALID_PATTERN: sandbox/search_text:_find
LIMIT_REACHED: api/memory:Memory.take_in engine/memory:_full
    replay/fork:_answer
NOT_ALLOWED: engine/consents:check_person engine/merges:end_of_merge engine/lessons:keep_proposal
    workers/remember:execute workers/recall:execute
    workers/run_command:run_allowed changes/preview:preview_of engine/approvals:_reject_expired
    engine/approvals:_rejection
    api/run_job:_answer workers/base:refuse_to_execute.execute
NOT_A_FILE: api/evaluation:_read_begun
    api/arguments:existing_directory
NOT_FOUND: api/evaluation:_text_of api/evaluation:Evaluation.open
    engine/question:earlier_job workers/recall:execute
    store/queries/memories:find_entry
    changes/recovery:_content_of cli/jobs:job_command store/queries/mission_spec:was_pruned
NO_PLANNER: planners/llm/factories:require planners/llm/local:shipped_weights planners/registry:_load
    planners/registry:make_planner
NO_SINGLE_MATCH: sandbox/new_content:_check_matches
NO_WORKER: engine/plan_steps:_prepare
    api/arguments:known_worker cli/jobs:_check_kinds cli/run:_check_kinds api/run_job:_worker
    runner/runner:Runner.__init__
PATH_DENIED: engine/memory:clean
    sandbox/database_files:refusal_of_own sandbox/locks:_check_target sandbox/root:refusal
    workers/base:Context.judge
PATH_NOT_FOUND: api/evaluation:_source
    sandbox/installed_programs:found_program planners/llm/local:_start
PATH_OUTSIDE_ROOT: sandbox/root:_outside
PLANNER_FAILED: engine/progress:_end_without_reply planners/simple:NoPlanner.answer
    planners/llm/local:_start
    planners/llm/planner:ModelPlanner._slot runner/executor:_storable_reply
ROOT_CHANGED: changes/stages:open_stage sandbox/root_identity:check_same sandbox/root_identity:open_known
SCRIPT_EXHAUSTED: planners/simple:ReplayPlanner.answer
TOO_LARGE: engine/plan_steps:resolved_params workers/recall:execute
    sandbox/working_copy:_check_size cli/decide:_read cli/replay:_text engine/outcome:_stored
    sandbox/read_text:_too_large web/edit:_job
    workers/base:too_large_to_change workers/base:_too_large_to_write workers/edit_file:execute
    workers/write_file:execute
WORKER_FAILED: engine/plan_course:end_by_rule runner/confined/external:_environment
    runner/confined/external:_Job._error
    cli/output:_defect engine/outcome:_stored api/run_job:_answer
WRONG_STATE: replay/fork:_check_not_held replay/fork:_find_step api/config_text:_replace cli/approvers:add_command
    api/evaluation:Evaluation.begin engine/consents:check_person
    api/evaluation:_only_one api/evaluation:_read_begun changes/stages:_make
    workers/recall:_refusal api/arguments:new_root cli/init:_there_already engine/schedules:add_schedule
    runner/undo:_still_written runner/undo:check_quiet
    runner/undo:undo store/maintenance/backup:_there_already
NOT_ISOLATED: runner/confined/programs:ended_of
"""


def entries(table: str, *, has_advice: bool) -> Iterator[Made]:
    code = ""
    for word in table.split():
        if word.endswith(":"):
            code = word.removesuffix(":")
        else:
            yield Made(code, word, has_advice)


def test_the_advice_of_every_place_has_been_judged() -> None:
    judged = {*entries(GENERAL, has_advice=False), *entries(OWN, has_advice=True)}
    found = made_errors()
    assert sorted(found - judged) == [], "judge whether the advice helps there, then enter the place"
    assert sorted(judged - found) == [], "these places are gone"


NO_REFUSALS = {
    ReasonCode.ALWAYS_HELD, ReasonCode.CANCELLED_BY, ReasonCode.DEFAULT_AUTO, ReasonCode.DEFAULT_HOLD,
    ReasonCode.HELD_BEFORE, ReasonCode.IRREVERSIBLE, ReasonCode.LIMIT_REACHED, ReasonCode.MAX_FOLLOWUPS,
    ReasonCode.MISSION_ENDED, ReasonCode.NOT_JUDGED, ReasonCode.NOT_STARTED, ReasonCode.PLAN_ENDED,
    ReasonCode.PLANNER_REVIEW, ReasonCode.QUESTION, ReasonCode.REPLY_WANTED, ReasonCode.RUNNER_DIED,
    ReasonCode.STEP_ENDED, ReasonCode.CONFLICT, ReasonCode.DRIFT, ReasonCode.NO_WORKER, ReasonCode.STEP_ORDER,
    ReasonCode.CONDITION_UNMET, ReasonCode.PLAN_ABORTED, ReasonCode.TURN_ORDER, ReasonCode.ELSEWHERE,
    ReasonCode.MERGE, ReasonCode.MERGE_CONFLICT, ReasonCode.MERGE_REFUSED, ReasonCode.STAGED,
    ReasonCode.FILE_BUSY, ReasonCode.NETWORK_ROOT, ReasonCode.MAX_RUNNING, ReasonCode.RATE_LIMIT,
}  # fmt: skip
"""Reasons to hold, cancel or queue a job, which make no error."""


@pytest.mark.parametrize("code", sorted(set(ReasonCode) - NO_REFUSALS))
def test_every_reason_to_refuse_a_job_has_its_own_advice(code: ReasonCode) -> None:
    assert because(code).advice


WRITE: JsonValue = {"ok": True, "action": "write_file", "rel_path": "a.txt", "content": "x"}
DONE: JsonValue = {"ok": True, "action": "mission_complete", "summary": "Done."}
LOST: dict[str, JsonValue] = {
    "ok": False, "action": "error", "error": "no ticket is named", "error_code": "MISSING_CONTEXT",
}  # fmt: skip
LIST: JsonValue = {
    "ok": True,
    "action": "create_followup_jobs",
    "new_jobs": [{"kind": "list_files", "params": {}}],
}


def stated(error: object) -> tuple[str, str, str]:
    """Code, advice and the kind of action of an error."""
    assert isinstance(error, dict)
    actions = error["recommended_actions"]
    assert isinstance(actions, list)
    (action,) = actions
    assert isinstance(action, dict)
    return str(error["error_code"]), str(action["description"]), str(action["action_type"])


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(sqlite_url(tmp_path)) as engine:
        yield engine


def ended(engine: Engine, root: Path, *replies: JsonValue, **keys: JsonValue) -> Mission:
    planner: dict[str, JsonValue] = {"type": "script", "replies": [*replies]}
    if "dialect" in keys:
        planner["dialect"] = keys.pop("dialect")
    (root / "root").mkdir(exist_ok=True)
    launched = engine.launch({"goal": "Try.", "planner": planner, **keys}, root=root / "root")
    engine.work(until_idle=True)
    return engine.mission(launched.id)


UNIVERSAL: dict[str, JsonValue] = {
    "response_type": "error",
    "status": "error",
    "message": "no document",
    "error_details": {"error_code": "NO_PRD", "suggested_action": "Write one."},
}


@pytest.mark.parametrize(
    ("replies", "keys", "said"),
    [
        (
            [LOST],
            {},
            ("PLANNER_GAVE_UP", "Correct what the message names, then resume mission 1 (`lcp resume 1`)."),
        ),
        ([{**LOST, "recovery_suggestion": "Name the ticket."}], {}, ("PLANNER_GAVE_UP", "Name the ticket.")),
        (
            [{**LOST, "attempted_action": "list_files"}],
            {},
            (
                "PLANNER_GAVE_UP",
                "Correct what stood in the way of this: list_files; then resume mission 1 (`lcp resume 1`).",
            ),
        ),
        ([UNIVERSAL], {"dialect": "universal"}, ("PLANNER_GAVE_UP", "Write one.")),
        (
            [LIST] * 6,
            {},
            (
                "NO_PROGRESS",
                "Resume mission 1 and tell its planner what to do instead (`lcp resume 1`, `lcp say 1 TEXT`).",
            ),
        ),
        (
            [LIST, LIST],
            {"limits": {"max_turns": 1}},
            (
                "LIMIT_REACHED",
                "Resume mission 1 with a higher max_turns (`lcp resume 1 --set limits.max_turns=N`).",
            ),
        ),
        (
            ["no"] * 3,
            {},
            (
                "INVALID_REPLY",
                "Read the errors of its last turns, correct the planner, then resume mission 1 (`lcp resume 1`).",
            ),
        ),
        (
            [],
            {},
            ("SCRIPT_EXHAUSTED", "Correct what the message names, then resume mission 1 (`lcp resume 1`)."),
        ),
    ],
)
def test_a_mission_that_fails_advises_what_helps_it(
    engine: Engine,
    tmp_path: Path,
    replies: list[JsonValue],
    keys: dict[str, JsonValue],
    said: tuple[str, str],
) -> None:
    mission = ended(engine, tmp_path, *replies, **keys)
    assert mission.error is not None
    assert stated(mission.error) == (*said, "user_action")


def test_a_rejected_job_advises_nothing_about_permissions(engine: Engine, tmp_path: Path) -> None:
    ended(engine, tmp_path, WRITE, DONE)
    (held,) = engine.jobs(states=["held"])
    engine.reject(held.id, "not now")
    error = engine.job(held.id).error
    assert error is not None
    code, advice, _ = stated(error)
    assert (code, advice) == (
        "NOT_ALLOWED",
        "Read the person's reason, and propose something else or nothing.",
    )


@pytest.mark.parametrize(
    ("kind", "params", "code", "advice"),
    [
        ("ask_user", {"question": "Which?"}, "NOT_ALLOWED", "Use it in a mission"),
        ("agent_plan", {"user_prompt": "x"}, "NOT_ALLOWED", "Use it in a mission"),
        ("read_file", {"rel_path": "../x"}, "PATH_OUTSIDE_ROOT", "`root_aliases` of the mission"),
        ("read_file", {"rel_path": "out"}, "PATH_OUTSIDE_ROOT", "Name the file that the link leads to"),
        ("read_file", {"rel_path": "gone"}, "PATH_NOT_FOUND", "list its directory"),
        ("read_file", {"rel_path": ".env"}, "PATH_DENIED", "only a rule in the user's configuration"),
        ("write_file", {"rel_path": ".git/x", "content": "x"}, "PATH_DENIED", "only a rule in the user's"),
    ],
)
def test_a_job_that_is_refused_advises_what_helps_it(
    tmp_path: Path, kind: str, params: dict[str, JsonValue], code: str, advice: str
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text("x")
    (tmp_path / "root" / "out").symlink_to(tmp_path / "outside")
    done = run_job(kind, params, root=tmp_path / "root")
    assert done.error is not None
    found, words, _ = stated(done.error.as_json())
    assert (found, advice in words) == (code, True), words


COMMAND = re.compile(r"`lcp ([a-z][a-z-]*)([^`]*)`")


def _texts() -> Iterator[tuple[str, str, str]]:
    """Every `lcp …` in backticks in the source: the file, the command and the rest."""
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in {".py", ".html", ".js"}:
            for found in COMMAND.finditer(path.read_text(encoding="utf-8")):
                yield path.name, found[1], found[2]


@pytest.mark.parametrize(("file", "command", "rest"), sorted(set(_texts())))
def test_a_command_that_is_advised_exists_with_its_options(file: str, command: str, rest: str) -> None:
    context = click.Context(lcp)
    found = lcp.get_command(context, command)
    assert found is not None, f"{file} names `lcp {command}`"
    if isinstance(found, click.Group) and (inner := re.match(r" ([a-z][a-z-]*)", rest)) is not None:
        found = found.get_command(context, inner[1])
        assert found is not None, f"{file} names `lcp {command}{rest}`"
    known = {name for parameter in found.params for name in parameter.opts}
    for option in re.findall(r"--[a-z][a-z-]*", rest):
        assert option in known, f"{file} names `lcp {command}{rest}`"


def test_no_code_advises_what_a_person_cannot_do() -> None:
    for code in ErrorCode:
        advice = MEANINGS[code].advice
        assert advice.endswith("."), code
        assert "with that permission" not in advice
