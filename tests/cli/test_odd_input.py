"""Odd input is refused in one line, and never shows up as a defect of `lcp`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.tables import table

from lcp_engine.api.engine import Engine
from lcp_engine.errors import ErrorCode, LcpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Lcp

HUGE = 10**30
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    "command",
    [
        "show",
        "report",
        "watch",
        "job",
        "approve",
        "retry",
        "cancel",
        "resume",
        "jobs --mission",
        "held --mission",
    ],
)
@pytest.mark.parametrize("number", [HUGE, 2**63, 0])
def test_an_id_that_no_row_can_have_is_not_in_the_database(lcp: Lcp, command: str, number: int) -> None:
    done = lcp(*command.split(), number)
    assert done.code == 1
    assert done.err.endswith(f" {number} is not in the database\n")
    assert done.err.count("\n") == 1


def test_a_limit_may_be_as_large_as_one_likes(lcp: Lcp) -> None:
    assert lcp("missions", "--limit", HUGE, "--json").json == []


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        (DEEP, "it is nested too deeply"),
        ('{"id": NaN, "text": ""}', "it has NaN"),
        ('{"id": 1e999, "text": ""}', "outside the range of floats"),
        ("\xff", "is not a JSON object"),
        ("[]", "it is []"),
        ('{"id": 1,\n', "invalid from line 1, column 10"),
        ('{"id": 1, }', "invalid from line 1, column 9"),
        ('{"id": 1}', '"text"'),
    ],
)
def test_a_line_that_cannot_be_read_is_named(lcp: Lcp, line: str, fact: str) -> None:
    path = lcp.home / "replies.jsonl"
    path.write_bytes(line.encode("latin-1"))
    done = lcp("check", "--jsonl", path)
    assert done.code == 2
    assert done.err.startswith(f"{path}: line 1 ")
    assert fact in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("params", [DEEP, '{"a": NaN}', "[]", "{"])
def test_params_are_a_json_object(lcp: Lcp, params: str) -> None:
    for arguments in (["approve", 1, "--params", params], ["try", "list_files", params, "--root", "root"]):
        done = lcp(*arguments)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "is not a JSON object" in done.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("diff 1 --mission 1", "lcp diff: exactly one of J and --mission M is expected"),
        ("diff", "lcp diff: exactly one of J and --mission M is expected"),
        ("undo 1 --job 1", "lcp undo: exactly one of M and --job J is expected"),
        ("approve 1 --mission 1", "lcp approve: --mission needs --all"),
        ("reject 1 --reason", "lcp reject: option '--reason' requires an argument"),
        ("reject 1 --reason=", "lcp reject: --reason is blank; a reason is needed"),
        ("answer 1", "lcp answer: TEXT or --file FILE is needed"),
        ("jobs --limit x", "lcp jobs: invalid value for '--limit': 'x' is not a valid integer"),
    ],
)
def test_a_usage_error_uses_the_words_of_its_command(lcp: Lcp, command: str, said: str) -> None:
    done = lcp(*command.split())
    name = command.split(maxsplit=1)[0]
    assert (done.code, done.err) == (2, f"{said} (see `lcp {name} --help`)\n")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("missions", "No missions.\n"),
        ("jobs --kind read_file", "No jobs.\n"),
        ("held", "No jobs wait for a person.\n"),
        ("schedule list", "No schedules; `lcp schedule add` creates one.\n"),
    ],
)
def test_an_empty_list_is_one_line(lcp: Lcp, command: str, said: str) -> None:
    assert lcp(*command.split()).err == said
    assert lcp(*command.split(), "--quiet").err == ""
    assert lcp(*command.split(), "--json").json == []


def test_a_variable_that_a_mission_does_not_have_is_refused(lcp: Lcp) -> None:
    done = lcp("launch", lcp.mission(lcp.complete), "--root", "root", "--var", "module=x")
    assert done.code == 2
    assert done.err.endswith("--var module: no variable is named so; known: none\n")
    mission = lcp.home / "declares.yaml"
    mission.write_text("goal: ${what}\nplanner: {type: script, replies: []}\nvariables: {what: What.}\n")
    misspelt = lcp("launch", mission, "--root", "root", "--var", "whta=x")
    assert (misspelt.code, "did you mean 'what'?" in misspelt.err) == (2, True)


def test_a_kind_that_no_job_can_have_is_refused(lcp: Lcp) -> None:
    for command in ("jobs", "work"):
        done = lcp(command, "--kind", "read_fil")
        assert (done.code, done.err.startswith("--kind: "), "did you mean 'read_file'?" in done.err) == (
            2,
            True,
            True,
        )


def test_a_mission_without_a_name_is_refused(lcp: Lcp) -> None:
    done = lcp("run", "", "--root", "root")
    assert (done.code, "the name of the mission is blank" in done.err) == (2, True)


def test_an_unknown_planner_is_told_which_there_are(lcp: Lcp) -> None:
    told = lcp("doctor", "--planner", "nope").out.partition("known: ")[2].partition("\n")[0]
    known = {
        "acp",
        "anthropic",
        "human",
        "local",
        "none",
        "openai",
        "program",
        "replay",
        "script",
        "surveyor",
    }
    # Tests before in the same process may have installed a planner of their own.
    assert known <= {*told.split(", ")}


def test_all_without_held_jobs_is_one_line(lcp: Lcp) -> None:
    assert lcp("launch", lcp.mission(lcp.complete), "--root", "root").code == 0
    assert lcp("approve", "--all", "--mission", 1).out == "No held jobs in mission 1.\n"
    assert lcp("approve", "--all", "--mission", 1, "--json").json == []


def test_programs_get_one_error_if_nothing_was_decided(lcp: Lcp) -> None:
    done = lcp("approve", 998, 999, "--json")
    assert (done.code, done.out) == (1, "")
    assert done.error["user_message"] == "job 998 is not in the database; job 999 is not in the database"


def test_a_kind_that_nothing_executes_cannot_be_named_for_approval(lcp: Lcp) -> None:
    done = lcp("run", lcp.mission(lcp.complete), "--root", "root", "--approve", "all,write_fil")
    assert done.code == 2
    assert "not 'write_fil'; did you mean 'write_file'?" in done.err
    assert lcp("missions", "--json").json == []


def test_limits_are_refused_in_the_words_of_the_mission_file(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q")
    for value, fact in (
        ("many", 'should be a whole number, not "many"'),
        ("true", "should be a number, not true"),
    ):
        assert lcp("resume", 1, "--set", f"limits.max_turns={value}").err == f"limits.max_turns: {fact}\n"


def test_an_unknown_planner_is_refused_at_the_launch(lcp: Lcp) -> None:
    with Engine(f"sqlite:///{lcp.database}") as engine:
        with pytest.raises(LcpError, match="did you mean 'script'") as unknown:
            engine.launch({"goal": "Try it.", "planner": "scrpt"}, root=lcp.root)
        with pytest.raises(LcpError, match=r"planner\.replys: is not an option") as option:
            engine.launch({"goal": "Try it.", "planner": {"type": "script", "replys": []}}, root=lcp.root)
        assert engine.missions() == []
    assert (unknown.value.code, option.value.code) == (ErrorCode.NO_PLANNER, ErrorCode.INVALID_MISSION)


def test_programs_get_usage_errors_as_json(lcp: Lcp) -> None:
    with Engine(f"sqlite:///{lcp.database}") as engine:
        wrong: list[Callable[[], object]] = [
            lambda: engine.jobs(states=["faild"]),
            *(lambda delay=delay: engine.enqueue("list_files", delay=delay) for delay in
              (float("inf"), float("nan"), -1e30, 1e30)),
            lambda: engine.enqueue("list_files", priority=HUGE),
        ]  # fmt: skip
        for ask in wrong:
            with pytest.raises(LcpError) as refused:
                ask()
            assert refused.value.code is ErrorCode.INVALID_ARGUMENT
        with pytest.raises(LcpError, match="did you mean 'failed'"):
            engine.jobs(states=["faild"])
        for look in (engine.events, engine.turns, engine.changes):
            assert look(HUGE) == []
        with pytest.raises(LcpError) as refused:
            engine.enqueue("list_files", mission_id=HUGE)
        assert refused.value.code is ErrorCode.NOT_FOUND


def test_show_is_as_wide_as_it_needs_to_be_and_puts_a_plan_under_its_step(
    lcp: Lcp,
) -> None:
    jobs = [
        {
            "kind": "agent_plan",
            "params": {"scope": "step", "user_prompt": "Do a part that takes more than forty columns."},
        },
        {"kind": "list_files", "params": {}},
    ]
    ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    inner = {"ok": True, "action": "create_followup_jobs", "new_jobs": [{"kind": "list_files", "params": {}}]}
    mission = lcp.mission("no JSON", json.dumps(ask), json.dumps(inner), *[lcp.complete] * 3)
    told = lcp("run", mission, "--root", "root").err
    assert "turn 1  failed; a correction follows  " in told
    assert "turn 1  corrected  2 jobs" in told
    lines = lcp("show", 1, COLUMNS="40").out.splitlines()
    step = next(n for n, line in enumerate(lines) if "more than forty columns." in line)
    later = next(n for n, line in enumerate(lines) if n > step and "turn 3  agent_plan" in line)
    assert all(line.startswith(("│       ", "│   │   ")) for line in lines[step + 1 : later + 1])
    assert "list_files" in lines[step + 1]
    with Engine(f"sqlite:///{lcp.database}") as engine:
        (began,) = engine.steps(1).values()
        assert f" {began} turn 2 " in lines[step]


@table(
    ("arguments", "code"),
    [
        (("run", "m.yaml", "--root"), 2),
        (("validate", "m.yaml", "--root"), 2),
        (("schedule", "add", "n", "m.yaml", "--every", "1h", "--root"), 2),
        (("try", "list_files", "{}", "--root"), 1),
        (("memory", "add", "title", "text", "--root"), 2),
        (("work", "--until-idle", "--root"), 2),
        (("doctor", "--root"), 1),
    ],
)
def test_a_root_that_no_mission_can_have_is_refused_in_words(
    lcp: Lcp, arguments: tuple[str, ...], code: int
) -> None:
    (lcp.home / "m.yaml").write_text("{goal: x, planner: human}")
    name = "site=" if arguments[0] == "work" else ""
    whole = lcp(*arguments, f"{name}/")
    assert (whole.code, "'/' is the whole file system" in whole.out + whole.err) == (code, True)
    foreign = lcp(*arguments, f"{name}C:\\Sheratan\\core")
    assert (foreign.code, "`root_aliases`" in foreign.out + foreign.err) == (1, True)
    (lcp.home / "m.yaml").write_text("{goal: x, planner: human, root: /}")
    assert (lcp("run", "m.yaml").code, lcp("run", "m.yaml", "--root", "root").code) == (1, 3)


def test_spaces_in_errors_stay_spaces(lcp: Lcp) -> None:
    done = lcp("run", "two  words ")
    assert done.err.startswith("mission 'two  words ' does not exist; ")
    assert lcp("launch", lcp.mission(goal="Say  two\nwords "), "--root", "root").code == 0
    assert "Say  two words\n" in lcp("show", 1).out


def test_an_import_of_memories_in_one_object_names_what_is_expected(lcp: Lcp) -> None:
    for text in ('{"memories": null}', '{"memories": []}'):
        done = lcp("memory", "import", "-", stdin=text)
        said = "stdin: line 1 is a mapping with the key 'memories'; a MemoryEntry is expected, one a line\n"
        assert (done.code, done.err) == (2, said)
