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

# One place a line, sorted, so that two changes seldom meet.
# `*` stands for a code that is a variable: its advice comes with it, or is that of the code.
GENERAL = """
* changes/recovery:_outcome
* cli/check:_read
* cli/check:_text
* cli/decide:_read
* cli/replay:_text
* core/decide:_correct
* core/policy:_named
* engine/failure:malformed_error
* engine/outcome:failure_from_exception
* planners/llm/planner:ModelPlanner._error
* replay/reenact:_failure
* runner/confined/external:_Job._error
* runner/undo:_done
* workers/external:_model
BINARY cli/decide:_read
BINARY sandbox/new_content:compose
BINARY sandbox/new_content:edit
BINARY sandbox/read_text:_binary
CLARIFICATION_EXHAUSTED core/decide:_go_on
CONFLICT changes/merge:_Wanted.before
CONFLICT changes/merge:_Wanted.new
CONFLICT changes/merge_contents:merged_content
CONFLICT cli/decide:seen_with
CONFLICT engine/approvals:_conflict
CONFLICT sandbox/atomic_write:LocalFile._conflict
CONFLICT sandbox/entries:LocalDirectory.put
CONFLICT sandbox/entries:LocalDirectory.remove
CONFLICT web/actions:remove_rule
CONFLICT web/undo:undo
DATABASE_BUSY store/db/postgres:Postgres.explain
DATABASE_BUSY store/db/sqlite:Sqlite.explain
DATABASE_FAILED store/db/database:_unknown
DATABASE_FAILED store/db/postgres:Postgres.explain
DATABASE_FAILED store/db/sqlite:Sqlite.connect
DATABASE_FAILED store/db/sqlite:Sqlite.explain
DATABASE_VERSION cli/doctor:_database
DATABASE_VERSION store/db/create:upgrade
FILE_SYSTEM api/config_text:Edit.write
FILE_SYSTEM api/config_text:_text_of
FILE_SYSTEM api/evaluation:Evaluation._copy_of
FILE_SYSTEM api/mcp_tools:keep_tools
FILE_SYSTEM sandbox/locks:_LocalFiles._lock_existing
FILE_SYSTEM sandbox/locks:_LocalFiles._lock_parent
FILE_SYSTEM settings:make_room
FILE_SYSTEM store/maintenance/backup:back_up
FILE_SYSTEM store/maintenance/backups:keep_backups
INVALID_ARGUMENT api/arguments:check_delay
INVALID_ARGUMENT api/arguments:check_priority
INVALID_ARGUMENT api/arguments:fork_point
INVALID_ARGUMENT api/decision_links:DecisionLinks._stated
INVALID_ARGUMENT api/decision_links:DecisionLinks.make
INVALID_ARGUMENT api/engine:Engine.undo
INVALID_ARGUMENT api/engine:Engine.undo_diffs
INVALID_ARGUMENT api/evaluation:_chosen
INVALID_ARGUMENT api/evaluation:_times
INVALID_ARGUMENT api/history:check_states
INVALID_ARGUMENT api/memory:_given
INVALID_ARGUMENT api/run_job:_opened
INVALID_ARGUMENT cli/approvers:approver
INVALID_ARGUMENT cli/base:read_object.refusal
INVALID_ARGUMENT cli/check:_lines
INVALID_ARGUMENT cli/decide:_check_limits
INVALID_ARGUMENT cli/decide:_limit
INVALID_ARGUMENT cli/editor:Draft._read
INVALID_ARGUMENT cli/editor:_editor
INVALID_ARGUMENT cli/editor:_run
INVALID_ARGUMENT cli/eval:_matching
INVALID_ARGUMENT cli/eval:compare_command
INVALID_ARGUMENT cli/load_mission:_parse
INVALID_ARGUMENT cli/load_mission:_read
INVALID_ARGUMENT cli/memory:_expiry
INVALID_ARGUMENT cli/output:_refuse_usage
INVALID_ARGUMENT cli/schema:schema_command
INVALID_ARGUMENT config_file:_value_in
INVALID_ARGUMENT config_file:parse_config
INVALID_ARGUMENT config_file:parse_upkeep
INVALID_ARGUMENT core/local_times:refuse
INVALID_ARGUMENT core/memory:_Check.refuse
INVALID_ARGUMENT core/mission/parse:parse_mission
INVALID_ARGUMENT core/protocol/read_reply:reader_of
INVALID_ARGUMENT core/protocol/schema_model:schema_model
INVALID_ARGUMENT engine/approvals:_filled
INVALID_ARGUMENT engine/approvals:answer
INVALID_ARGUMENT engine/limit_holds:check_more
INVALID_ARGUMENT engine/messages:_plan
INVALID_ARGUMENT engine/messages:spoken
INVALID_ARGUMENT engine/missions:enqueue
INVALID_ARGUMENT engine/question:_check_reply
INVALID_ARGUMENT engine/schedules:add_schedule
INVALID_ARGUMENT engine/secret_keys:_read
INVALID_ARGUMENT planners/llm/keys:read_variables
INVALID_ARGUMENT planners/llm/options:_key
INVALID_ARGUMENT planners/llm/options:_parse
INVALID_ARGUMENT planners/llm/options:require_key
INVALID_ARGUMENT replay/replay:_directory
INVALID_ARGUMENT runner/runner:Runner.__init__
INVALID_ARGUMENT sandbox/landlock:isolation_named
INVALID_ARGUMENT settings:_read_config
INVALID_ARGUMENT settings:_seconds
INVALID_ARGUMENT settings:read_url
INVALID_ARGUMENT store/db/open:make_backend
INVALID_ARGUMENT store/db/postgres:_unreadable
INVALID_ARGUMENT store/maintenance/backup:_check_target
INVALID_ARGUMENT web/actions:_option
INVALID_ARGUMENT web/actions:_rule_in
INVALID_ARGUMENT web/actions:approve_always
INVALID_ARGUMENT web/launch:_directory
INVALID_ARGUMENT web/launch:_load_own
INVALID_ARGUMENT web/replay:fork
INVALID_ARGUMENT web/server:_listen
INVALID_ARGUMENT web/server:_read_name
INVALID_ARGUMENT workers/external:_readable
INVALID_ARGUMENT workers/external:kinds_in
INVALID_ARGUMENT workers/external:worker_of
INVALID_ARGUMENT workers/mcp:servers_in
INVALID_ARGUMENT workers/mcp:tool_kinds
INVALID_ARGUMENT workers/registry:_offered
INVALID_ARGUMENT workers/registry:check_kind
INVALID_MISSION core/evaluation/suite:_refuse
INVALID_MISSION core/mission/parse:_refuse
INVALID_MISSION engine/plan_steps:check_plans
INVALID_MISSION planners/llm/planner:ModelPlanner._chosen
INVALID_MISSION planners/registry:_check_names
INVALID_MISSION planners/registry:_speaking
INVALID_MISSION planners/registry:make_planner
INVALID_MISSION planners/simple:check_script
INVALID_MISSION settings:resolve_root
INVALID_MISSION web/actions:_limit
INVALID_MISSION web/launch:_load_own
INVALID_PARAMS api/run_job:_read_params
INVALID_PARAMS changes/preview:Previews._of_merge
INVALID_PARAMS cli/decide:revised_params
INVALID_PARAMS cli/merge_choice:approve_part
INVALID_PARAMS replay/fork:_result
INVALID_PARAMS sandbox/atomic_write:check_name
INVALID_PARAMS sandbox/directories:open_parent
INVALID_PARAMS sandbox/new_content:_check
INVALID_PARAMS sandbox/new_content:_compose
INVALID_PARAMS sandbox/new_content:edit
INVALID_PARAMS sandbox/paths:_checked
INVALID_PARAMS sandbox/paths:_collapse
INVALID_PARAMS sandbox/root:refusal
INVALID_PARAMS web/edit:read_value
INVALID_PARAMS workers/base:Worker.read
INVALID_PARAMS workers/move_file:execute
INVALID_PATTERN core/patterns:_check_size
INVALID_PATTERN core/patterns:_invalid
INVALID_PATTERN sandbox/list_tree:Effort.pieces
LINK_REFUSED engine/link_decisions:refused
NOT_ALLOWED replay/fork:_result
NOT_A_FILE cli/init:_check_target
NOT_A_FILE sandbox/atomic_write:check_name
NOT_A_FILE sandbox/root:not_a_file
NOT_A_FILE sandbox/root:refusal
NOT_A_FILE store/maintenance/backup:_check_target
NOT_A_FILE workers/base:Context.to_change
NOT_A_FILE workers/read_file:_read
NOT_FOUND changes/staged_files:_known_stage
NOT_FOUND cli/approvers:remove_command
NOT_FOUND cli/kinds:kinds_command
NOT_FOUND cli/load_mission:_read
NOT_FOUND cli/memory:_entries
NOT_FOUND cli/schema:schema_command
NOT_FOUND core/memory:unknown_root
NOT_FOUND engine/always:remove_rule
NOT_FOUND engine/messages:_plan
NOT_FOUND engine/schedules:unknown_schedule
NOT_FOUND replay/fork:_find_step
NOT_FOUND replay/fork:_find_turn
NOT_FOUND runner/undo:find_scope
NOT_FOUND shipped_missions:find_mission
NOT_FOUND store/ledger:Ledger._job
NOT_FOUND store/ledger:Ledger.plan
NOT_FOUND store/queries/history:find_job
NOT_FOUND store/queries/history:known_id
NOT_FOUND store/queries/mission_spec:missing_mission
NOT_FOUND store/queries/pages:find_turn
NOT_FOUND web/kinds:_asked
NOT_ISOLATED runner/confined/process:ConfinedProcess.wait_until_confined
NOT_ISOLATED sandbox/file_access:_confined_thread
NOT_ISOLATED sandbox/landlock:examine_isolation
NOT_ISOLATED sandbox/landlock:isolates
NOT_SHOWN cli/approve_all:Candidate.why_left_out
NOT_ALLOWED web/actions:_rule_in
NOT_SHOWN web/actions:approve_shown
NOT_SHOWN web/links:_decide
NO_PLANNER planners/registry:make_planner
NO_PLANNER planners/registry:usual_planner
NO_WORKER engine/approvals:worker_of
OUTPUT_NOT_FOUND engine/plan_steps:resolved_params
OUT_OF_MEMORY runner/confined/pool:_death
PATH_DENIED engine/acceptance:_open
PATH_EXISTS sandbox/entries:check_directory
PATH_EXISTS workers/base:FileEffect.check_free
PATH_NOT_FOUND api/arguments:existing_directory
PATH_NOT_FOUND cli/init:_check_target
PATH_NOT_FOUND cli/run:_directory
PATH_NOT_FOUND sandbox/new_content:edit
PATH_NOT_FOUND sandbox/root:refusal
PATH_NOT_FOUND settings:resolve_root
PATH_NOT_FOUND store/maintenance/backup:_check_target
PATH_NOT_FOUND web/launch:_directory
PATH_NOT_FOUND workers/base:FileEffect.compose
PATH_OUTSIDE_ROOT sandbox/paths:_outside
PATH_OUTSIDE_ROOT sandbox/root:_outside
RUNNER_DIED engine/settle:rescue
TIMEOUT runner/confined/pool:_timeout
TIMEOUT runner/confined/remote_files:Steps.take
TIMEOUT runner/runner:Runner._check_lanes
TIMEOUT sandbox/atomic_write:Local._check_time
WEBHOOK_FAILED cli/deliveries:_send_test
WORKER_DIED runner/confined/external:_Running.__init__
WORKER_DIED runner/confined/pool:_death
WORKER_DIED runner/confined/pool:_result
WORKER_DIED runner/confined/process:Spawner.spawn
WORKER_DIED runner/confined/programs:run_program
WORKER_DIED runner/confined/remote_files:RemoteBatch.__init__
WORKER_DIED runner/confined/remote_files:Steps.take
WORKER_DIED runner/confined/remote_files:_error_of
WRONG_STATE changes/merge:_Merge._decide
WRONG_STATE changes/show:merged_text
WRONG_STATE cli/decide:_approve_edited
WRONG_STATE engine/approvals:_is_known
WRONG_STATE engine/approvals:answer
WRONG_STATE engine/approvals:approve
WRONG_STATE engine/approvals:decided_before
WRONG_STATE engine/link_decisions:check_linkable
WRONG_STATE engine/messages:_check_is_open
WRONG_STATE engine/missions:_check_step_may_run
WRONG_STATE engine/missions:accept_root
WRONG_STATE engine/missions:cancel
WRONG_STATE engine/missions:enqueue
WRONG_STATE engine/missions:resume
WRONG_STATE engine/missions:retry
WRONG_STATE engine/question:bring_reply
WRONG_STATE engine/question:refuse_relayed
WRONG_STATE replay/fork:_find_turn
WRONG_STATE replay/replay:_refuse
WRONG_STATE web/edit:_job
WRONG_STATE workers/recall:_refusal
"""
OWN = """
* api/mcp_tools:_about
* changes/stages:open_stage
* cli/base:naming
* cli/editor:Draft.kept_after
* engine/admission:_failure
* engine/admission:refuse_step
* engine/approvals:_check_policy
* engine/failure:failure_of
* engine/outcome:storable_failure
* engine/plan_steps:admit
* planners/llm/probe:_failed
* runner/confined/channel:failure_of
* runner/confined/external:_Job.failed
* runner/executor:_not_waited_for
* sandbox/root_identity:open_known
* workers/load_files:_naming
CONFLICT changes/merge_parts:part_of
CONFLICT engine/approvals:answer
CONFLICT engine/approvals:decided_before
CONFLICT engine/link_decisions:_changed
CONFLICT engine/link_decisions:approve_by_link
CONFLICT engine/memory:edit
CONFLICT engine/memory:take_in
CONFLICT runner/executor:Executor._work
CONFLICT runner/undo:_refusal
DATABASE_FAILED store/db/database:Database.write
DATABASE_FAILED store/db/open:_check_owner
DATABASE_FAILED store/db/open:_check_place
DATABASE_FAILED store/db/postgres:Postgres._prepare
DATABASE_FAILED store/host/liveness:_make_private
DATABASE_FAILED store/host/liveness:_open_full
DATABASE_FAILED store/maintenance/backup:_dump
DATABASE_FAILED store/maintenance/backup:_pg_dump
DATABASE_FAILED store/maintenance/check:opened
DATABASE_VERSION store/db/open:version_of
DATABASE_VERSION store/db/sqlite:Sqlite.explain
DATABASE_VERSION store/maintenance/backup:back_up
DATABASE_VERSION store/maintenance/check:_sizes
FILE_SYSTEM api/run_job:_apply
FILE_SYSTEM changes/stages:_make_private
FILE_SYSTEM cli/doctor:_new_database
FILE_SYSTEM cli/doctor:_upkeep
FILE_SYSTEM cli/init:_write
FILE_SYSTEM runner/confined/programs:ended_of
FILE_SYSTEM sandbox/private_copy:copy_privately
FILE_SYSTEM sandbox/root:refusal
FILE_SYSTEM store/maintenance/backup:_naming_target
FILE_SYSTEM workers/list_files:execute
FILE_SYSTEM workers/read_file:execute
FILE_SYSTEM workers/search_files:execute
INVALID_ARGUMENT cli/approvers:approver
INVALID_ARGUMENT cli/deliveries:_send_test
INVALID_ARGUMENT cli/kinds:_update
INVALID_ARGUMENT cli/load_mission:_check_root
INVALID_ARGUMENT cli/memory:_entries
INVALID_ARGUMENT cli/memory:_from_stdin
INVALID_ARGUMENT cli/memory:_objects
INVALID_ARGUMENT cli/merge_choice:_read
INVALID_ARGUMENT cli/merge_choice:_unknown
INVALID_ARGUMENT cli/merge_choice:approve_part
INVALID_ARGUMENT cli/serve:_load
INVALID_ARGUMENT cli/top/command:_load
INVALID_ARGUMENT core/memory:entry_key
INVALID_ARGUMENT engine/secret_keys:_read
INVALID_ARGUMENT engine/secret_keys:read_key
INVALID_ARGUMENT sandbox/installed_programs:readable_place
INVALID_ARGUMENT store/db/open:_postgres
INVALID_ARGUMENT web/links:_decide
INVALID_ARGUMENT workers/external:_path
INVALID_ARGUMENT workers/external:python_program
INVALID_ARGUMENT workers/load_files:_refusal
INVALID_ARGUMENT workers/mcp:bridge_to
INVALID_ARGUMENT workers/mcp:read_tools
INVALID_ARGUMENT workers/mcp:tool_kinds
INVALID_ARGUMENT workers/merge:nothing_taken
INVALID_ARGUMENT workers/registry:check_description
INVALID_MISSION api/evaluation:Evaluation._begin
INVALID_MISSION api/evaluation:_text_of
INVALID_MISSION changes/stages:_check_is_outside
INVALID_MISSION cli/load_mission:_decoded
INVALID_MISSION cli/load_mission:_not_readable
INVALID_MISSION cli/load_mission:load_plans
INVALID_MISSION cli/schedule:add_command
INVALID_MISSION engine/admission:check_kinds
INVALID_MISSION planners/environment:refuse_without_price
INVALID_PARAMS changes/merge_parts:_without_hunks
INVALID_PARAMS changes/merge_parts:text_of
INVALID_PARAMS changes/merge_view:unknown_file
INVALID_PARAMS workers/base:Context.root
INVALID_PATTERN sandbox/search_text:_find
LIMIT_REACHED api/memory:Memory.take_in
LIMIT_REACHED engine/memory:_full
LIMIT_REACHED replay/fork:_answer
NOT_ALLOWED api/run_job:_answer
NOT_ALLOWED changes/preview:preview_of
NOT_ALLOWED cli/always:chosen_rule
NOT_ALLOWED engine/always:_check_can
NOT_ALLOWED engine/approvals:_reject_expired
NOT_ALLOWED engine/approvals:_rejection
NOT_ALLOWED engine/consents:check_person
NOT_ALLOWED engine/lessons:keep_proposal
NOT_ALLOWED engine/merges:end_of_merge
NOT_ALLOWED workers/base:Context.judge
NOT_ALLOWED workers/base:refuse_to_execute.execute
NOT_ALLOWED workers/recall:execute
NOT_ALLOWED workers/remember:execute
NOT_ALLOWED workers/run_command:run_allowed
NOT_A_FILE api/arguments:existing_directory
NOT_A_FILE api/evaluation:_read_begun
NOT_FOUND api/evaluation:Evaluation.open
NOT_FOUND api/evaluation:_text_of
NOT_FOUND changes/recovery:_content_of
NOT_FOUND cli/jobs:job_command
NOT_FOUND engine/question:earlier_job
NOT_FOUND store/queries/memories:find_entry
NOT_FOUND store/queries/mission_spec:was_pruned
NOT_FOUND web/evals:evals
NOT_FOUND workers/recall:execute
NOT_ISOLATED runner/confined/programs:ended_of
NO_PLANNER planners/llm/factories:require
NO_PLANNER planners/llm/local:shipped_weights
NO_PLANNER planners/registry:_load
NO_PLANNER planners/registry:make_planner
NO_PLANNER web/launch:_default_planner
NO_SINGLE_MATCH sandbox/new_content:_check_matches
NO_WORKER api/arguments:known_worker
NO_WORKER api/run_job:_worker
NO_WORKER cli/jobs:_check_kinds
NO_WORKER cli/run:_check_kinds
NO_WORKER engine/plan_steps:_prepare
NO_WORKER runner/runner:Runner.__init__
PATH_DENIED engine/memory:clean
PATH_DENIED sandbox/database_files:refusal_of_own
PATH_DENIED sandbox/locks:_check_target
PATH_DENIED sandbox/root:refusal
PATH_DENIED workers/base:Context.judge
PATH_NOT_FOUND api/evaluation:_source
PATH_NOT_FOUND planners/llm/local:_check_file
PATH_NOT_FOUND sandbox/installed_programs:found_program
PATH_OUTSIDE_ROOT sandbox/root:_outside
PLANNER_FAILED engine/progress:_end_without_reply
PLANNER_FAILED planners/llm/planner:ModelPlanner._slot
PLANNER_FAILED planners/simple:NoPlanner.answer
PLANNER_FAILED runner/executor:Turns._ask
PLANNER_FAILED runner/executor:_storable_reply
PLANNER_REFUSED planners/llm/local:_check_file
PLANNER_REFUSED planners/llm/local:_start
PLANNER_REFUSED runner/executor:Turns._check_prices
ROOT_CHANGED changes/stages:open_stage
ROOT_CHANGED sandbox/root_identity:check_same
ROOT_CHANGED sandbox/root_identity:open_known
SCRIPT_EXHAUSTED planners/simple:ReplayPlanner.answer
TOO_LARGE changes/merge_parts:part_of
TOO_LARGE changes/merge_view:merged_text
TOO_LARGE cli/decide:_read
TOO_LARGE cli/replay:_text
TOO_LARGE engine/outcome:_stored
TOO_LARGE engine/plan_steps:resolved_params
TOO_LARGE sandbox/read_text:_too_large
TOO_LARGE sandbox/working_copy:_check_size
TOO_LARGE web/edit:_job
TOO_LARGE workers/base:_too_large_to_write
TOO_LARGE workers/base:too_large_to_change
TOO_LARGE workers/edit_file:execute
TOO_LARGE workers/recall:execute
TOO_LARGE workers/write_file:execute
WORKER_FAILED api/run_job:_answer
WORKER_FAILED cli/output:_defect
WORKER_FAILED engine/outcome:_stored
WORKER_FAILED engine/plan_course:end_by_rule
WORKER_FAILED runner/confined/external:_Job._error
WORKER_FAILED runner/confined/external:_environment
WRONG_STATE api/arguments:new_root
WRONG_STATE api/config_text:_edit
WRONG_STATE api/evaluation:Evaluation.begin
WRONG_STATE api/evaluation:_only_one
WRONG_STATE api/evaluation:_read_begun
WRONG_STATE changes/stages:_make
WRONG_STATE cli/approvers:add_command
WRONG_STATE cli/init:_there_already
WRONG_STATE engine/always:_placed
WRONG_STATE engine/always:remove_rule
WRONG_STATE engine/consents:check_person
WRONG_STATE engine/schedules:add_schedule
WRONG_STATE replay/fork:_check_not_held
WRONG_STATE replay/fork:_find_step
WRONG_STATE runner/undo:_still_written
WRONG_STATE runner/undo:check_quiet
WRONG_STATE runner/undo:undo
WRONG_STATE store/maintenance/backup:_there_already
WRONG_STATE workers/recall:_refusal
"""


def entries(table: str, *, has_advice: bool) -> Iterator[Made]:
    for line in table.strip().splitlines():
        code, place = line.split()
        yield Made(code, place, has_advice)


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
    ReasonCode.SAME_REPLY, ReasonCode.ASKED_TO_WAIT,
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
