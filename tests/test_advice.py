"""Every error gives advice that helps where it is made.

The advice of some codes (docs/errors.md) helps everywhere. With any other code, a new place fails the first test until
it states advice of its own, or `advice=GENERAL`: that of its code was judged to help the person or planner there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pydantic import JsonValue
from tests.conftest import sqlite_url
from tests.errors_by_place import SOURCE, Made, made_errors, made_in
from tests.tables import row

from lcp_engine import Engine, run_job
from lcp_engine.cli.app import lcp
from lcp_engine.core.reasons import ReasonCode, because
from lcp_engine.errors import ErrorCode
from lcp_engine.feature import all_codes
from lcp_engine.store.queries.records import Mission

EVERYWHERE = {
    ErrorCode.BINARY, ErrorCode.CLARIFICATION_EXHAUSTED, ErrorCode.DATABASE_BUSY, "ECHO",
    ErrorCode.INVALID_PATTERN, "LINK_REFUSED", ErrorCode.NOT_A_FILE, ErrorCode.NOT_FOUND,
    ErrorCode.NOT_INSTALLED, ErrorCode.NOT_ISOLATED, ErrorCode.NOT_SHOWN, "OUTPUT_NOT_FOUND",
    ErrorCode.OUT_OF_MEMORY, ErrorCode.PATH_EXISTS, ErrorCode.PATH_NOT_FOUND, ErrorCode.PATH_OUTSIDE_ROOT,
    ErrorCode.RUNNER_DIED, ErrorCode.TIMEOUT, "WEBHOOK_FAILED", ErrorCode.WORKER_DIED,
}  # fmt: skip
"""Codes whose advice follows from their meaning: it helps wherever a place does not know better."""

WHERE_NAMED = {ErrorCode.INVALID_ARGUMENT, ErrorCode.INVALID_MISSION, ErrorCode.INVALID_PARAMS}
"""Codes that advise to correct what the message names: that helps unless the message is nothing but fixed words."""


PASSED_ON = {"malformed.code"}
"""Expressions whose codes are judged where they come from."""


def is_judged(made: Made) -> bool:
    helps = made.code in EVERYWHERE or (made.code in WHERE_NAMED and made.names_something)
    return made.states_advice or helps or made.code in PASSED_ON


def test_the_advice_of_every_place_has_been_judged() -> None:
    unjudged = [made for made in made_errors() if not is_judged(made)]
    assert unjudged == [], "state advice there, or `advice=GENERAL` if that of the code helps"


JUDGED = [
    'LcpError(ErrorCode.CONFLICT, "it changed", advice="Look again.")',
    'LcpError(ErrorCode.CONFLICT, "it changed", {}, "Look again.")',
    "LcpError(ErrorCode.CONFLICT, message, advice=GENERAL)",
    "LcpError(ErrorCode.BINARY, message)",
    'LcpError(ErrorCode.INVALID_PARAMS, f"{name} is blank")',
    "def check(message): LcpError(ErrorCode.INVALID_PARAMS, message)",
    "def check(name):\n message = f'{name} is blank'\n raise LcpError(ErrorCode.INVALID_PARAMS, message)",
]
UNJUDGED = [
    'LcpError(ErrorCode.CONFLICT, f"{path} changed")',
    'errors.LcpError(ErrorCode.CONFLICT, f"{path} changed")',
    "LcpError(ErrorCode.OF_TOMORROW, message)",
    "Failed(code, message, {})",
    'PlannerError("no answer", code=ErrorCode.PLANNER_FAILED)',
    "End(Outcome.ERROR, succeeded=False, message=message, code=ErrorCode.NO_PROGRESS)",
    'Problem(path="", message="changed", code=ErrorCode.CONFLICT)',
    'LcpError(ErrorCode.INVALID_PARAMS, "nothing has changed")',
    "def check():\n message = 'nothing has changed'\n raise LcpError(ErrorCode.INVALID_PARAMS, message)",
]


def test_a_place_that_was_not_judged_is_found(subtests: pytest.Subtests) -> None:
    for place in JUDGED + UNJUDGED:
        with row(subtests, place):
            assert [is_judged(made) for made in made_in(place, "some.py")] == [place in JUDGED]


NO_REFUSALS = {
    ReasonCode.ALWAYS_HELD, ReasonCode.CANCELLED_BY, ReasonCode.DEFAULT_AUTO, ReasonCode.DEFAULT_HOLD,
    ReasonCode.HELD_BEFORE, ReasonCode.IRREVERSIBLE, ReasonCode.LIMIT_REACHED, ReasonCode.MAX_FOLLOWUPS,
    ReasonCode.MISSION_ENDED, ReasonCode.NOT_JUDGED, ReasonCode.NOT_STARTED, ReasonCode.PLAN_ENDED,
    ReasonCode.PLANNER_REVIEW, ReasonCode.QUESTION, ReasonCode.REPLY_WANTED, ReasonCode.RUNNER_DIED,
    ReasonCode.STEP_ENDED, ReasonCode.CONFLICT, ReasonCode.DRIFT, ReasonCode.NO_WORKER, ReasonCode.STEP_ORDER,
    ReasonCode.CONDITION_UNMET, ReasonCode.PLAN_ABORTED, ReasonCode.TURN_ORDER, ReasonCode.ELSEWHERE,
    ReasonCode.APPLY, ReasonCode.APPLY_CONFLICT, ReasonCode.APPLY_REFUSED,
    ReasonCode.MERGE, ReasonCode.MERGE_CONFLICT, ReasonCode.MERGE_REFUSED, ReasonCode.STAGED,
    ReasonCode.FILE_BUSY, ReasonCode.NETWORK_ROOT, ReasonCode.MAX_RUNNING, ReasonCode.RATE_LIMIT,
    ReasonCode.SAME_REPLY, ReasonCode.ASKED_TO_WAIT, ReasonCode.SHORTAGE,
}  # fmt: skip
"""Reasons to hold, cancel or queue a job, which make no error."""


def test_every_reason_to_refuse_a_job_has_its_own_advice(subtests: pytest.Subtests) -> None:
    for code in sorted(set(ReasonCode) - NO_REFUSALS):
        with row(subtests, code):
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


def test_a_command_that_is_advised_exists_with_its_options(subtests: pytest.Subtests) -> None:
    for file, command, rest in sorted(set(_texts())):
        with row(subtests, f"{file}-{command}-{rest}"):
            _check_command(file, command, rest)


def _check_command(file: str, command: str, rest: str) -> None:
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
    for code in all_codes():
        advice = code.meaning.advice
        assert advice.endswith("."), code
        assert "with that permission" not in advice
