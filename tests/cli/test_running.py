"""`lcp run`, `lcp launch`, `lcp work`: missions from the command line, and how they end."""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING

import pytest
from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.cli.conftest import Lcp


def test_a_no_to_the_survey_ends_it_and_can_be_taken_back(lcp: Lcp) -> None:
    assert lcp("run", "survey", "--root", lcp.root).code == 3
    assert lcp("reject", "--all", "--reason", "not now").code == 0
    worked = lcp("work", "--until-idle")
    assert "[1] unfulfilled: job" in worked.err
    assert lcp("held").out == ""
    assert lcp("watch", 1).code == 4
    mission = lcp("show", 1, "--json").object
    (job,) = ids_in(mission["unfulfilled"])
    assert (mission["status"], mission["turns"]) == ("completed", 4)
    assert "not now" in str(mission["summary"])
    assert lcp("show", 1).out.endswith(f"unfulfilled: job {job} was refused or failed\n")
    retried = lcp("retry", job)
    assert (retried.out, retried.err) == (f"job {job} held\n", f"`lcp approve {job}` lets it run\n")
    lcp("approve", job)
    lcp("work", "--until-idle")
    assert (lcp.root / "SURVEY.md").exists()
    assert (lcp("watch", 1).code, lcp("show", 1, "--json").object["unfulfilled"]) == (0, [])


def test_a_narrow_terminal_breaks_what_happens_between_words(lcp: Lcp) -> None:
    write = lcp.ask("write_file", rel_path="notes.md", content="x")
    mission = lcp.mission(write, lcp.complete)
    with Terminal(lcp, "run", "-v", mission, "--root", "root", size=(24, 60)) as terminal:
        shown = terminal.expect("run it?")
        terminal.answer("q")
        terminal.end()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "worst case: 26 turns, 76 questions, 100 jobs, 33 min, 104.9\r\n    MB written\r\n" in plain
    assert "  held         2  write_file notes.md  default policy: kinds\r\n" in plain
    assert f"{' ' * 18}with effects wait for a person\r\n" in plain


def test_a_port_for_health_that_is_taken_launches_nothing(lcp: Lcp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = lcp("run", lcp.mission(lcp.complete), "--root", lcp.root, "--health", port)
    assert (done.code, f"port {port}" in done.err) == (2, True)
    assert "mission 1 is not in the database" in lcp("show", 1).err


def ids_in(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_the_shipped_survey_runs_from_a_file_tree_to_a_report(lcp: Lcp) -> None:
    done = lcp("run", "survey", "--root", lcp.root, "--approve", "write_file")
    assert done.code == 0
    assert done.out.startswith("# Mission 1: survey\n\n**completed** (mission_complete)")
    assert "`SURVEY.md` created" in done.out
    assert (lcp.root / "SURVEY.md").read_text().startswith("# Survey of root")
    assert "read_file main.py" in done.err, "progress is told on stderr"


def test_without_a_terminal_held_jobs_wait_and_the_commands_that_decide_are_named(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("write_file", rel_path="b.md", content="b"), lcp.complete)
    done = lcp("run", mission, "--root", "root", stdin="y\ny\ny\n")
    assert done.code == 3
    assert "`lcp approve 2`" in done.err
    assert not (lcp.root / "b.md").exists()
    assert lcp("approve", 2).out == "job 2 approved\n"
    assert lcp("work", "--until-idle").code == 0
    assert (lcp.root / "b.md").read_text() == "b"
    assert lcp("show", 1, "--json").object["outcome"] == "mission_complete"
    assert lcp("db", "check").out == "ok\n"


def test_what_a_mission_leaves_held_at_its_end_is_pointed_out(lcp: Lcp) -> None:
    jobs = [
        {"kind": "list_files", "params": {}},
        {"kind": "write_file", "params": {"path": "b", "content": "b"}},
    ]
    ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": [*jobs]}
    done = lcp("run", lcp.mission(json.dumps(ask), lcp.complete), "--root", "root")
    assert done.code == 3
    assert done.err.endswith("\nunfulfilled: job 3 waits for a person (`lcp held --mission 1`)\n")


def test_approve_covers_the_named_kinds_only(lcp: Lcp) -> None:
    replies = (
        lcp.ask("write_file", rel_path="b", content="b"),
        lcp.ask("rewrite_file", rel_path="c", content="c"),
    )
    done = lcp("run", lcp.mission(*replies, lcp.complete), "--root", "root", "--approve", "write_file", "-q")
    assert done.code == 3
    assert ((lcp.root / "b").exists(), (lcp.root / "c").exists()) == (True, False)


@pytest.mark.parametrize(
    ("case", "code", "outcome"),
    [
        ("ends well", 0, "mission_complete"),
        ("is an error", 1, "error"),
        ("is not LCP", 1, "invalid_reply"),
        ("uses up its turns", 4, "limit:max_turns"),
        ("repeats itself", 4, "no_progress"),
        ("has an unknown kind", 3, None),
    ],
)
def test_the_exit_code_says_how_the_mission_ended(
    lcp: Lcp, case: str, code: int, outcome: str | None
) -> None:
    look = lcp.ask("list_files")
    mission = {
        "ends well": lcp.mission(look, lcp.complete),
        "is an error": lcp.mission(lcp.fail),
        "is not LCP": lcp.mission("hello", "{", "[]"),
        "uses up its turns": lcp.mission(look, look, limits={"max_turns": 1}),
        "repeats itself": lcp.mission(*[look] * 9),
        "has an unknown kind": lcp.mission(lcp.ask("frobnicate")),
    }[case]
    done = lcp("run", mission, "--root", "root", "--json")
    assert done.code == code
    *events, ended = map(json.loads, done.out.splitlines())
    assert ended["outcome"] == outcome
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert set(events[0]) == {"seq", "mission_id", "job_id", "at", "event", "data"}


def test_a_mission_may_come_from_stdin_with_variables_and_settings(lcp: Lcp) -> None:
    text = json.dumps({"goal": "Say ${word}.", "planner": {"type": "script", "replies": [lcp.fail]}})
    done = lcp(
        "run", "-", "--root", "root", "--var", "word=no", "--set", "name=from-stdin", "--json", stdin=text
    )
    ended = json.loads(done.out.splitlines()[-1])
    assert (done.code, ended["name"], ended["goal"]) == (1, "from-stdin", "Say no.")
    assert lcp("report", 1).out.count("cannot go on") == 1


def test_a_key_launches_once(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    first = lcp("launch", mission, "--root", "root", "--key", "nightly")
    second = lcp("launch", mission, "--root", "root", "--key", "nightly", "--json")
    assert (first.out, second.object["id"]) == ("1\n", 1)


def test_the_worst_case_is_one_line_on_request_before_anything_is_spent(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.complete)
    three = ("--root", "root", "--set", "limits.max_turns=3")
    worst = "worst case: 4 turns, 10 questions, 100 jobs, 33 min, 104.9 MB written"
    for command in ("run", "launch", "validate"):
        assert "worst case" not in (plain := lcp(command, mission, *three)).err + plain.out
        told = lcp(command, mission, *three, "-v")
        lines = [" ".join(line.split()) for line in (told.err + told.out).splitlines()]
        assert [line for line in lines if line.startswith("worst")] == [
            worst.replace(":", "") if command == "validate" else worst
        ]
    assert lcp("launch", mission, "--root", "root", "--quiet").err == ""
    model = [
        "--planner",
        "openai",
        "--set",
        "planner.base_url=http://127.0.0.1:9",
        "--set",
        "planner.model=m",
    ]
    unbounded = lcp("launch", "-v", mission, "--root", "root", *model)
    assert "104.9 MB written, any tokens (limits.max_tokens)\n" in unbounded.err
    known = lcp("launch", mission, "--root", "root", *model, "--set", "planner.context_tokens=1000", "--json")
    assert (known.object["worst_case"], known.err) == (
        {
            "turns": 26, "questions": 76, "jobs": 100, "seconds": 1980, "bytes_written": 104_857_600,
            "tokens": 76 * 3 * 3 * 1000,
        },
        "",
    )  # fmt: skip


def test_run_leaves_other_missions_alone(lcp: Lcp) -> None:
    lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    assert lcp("run", lcp.mission(lcp.complete), "--root", "root", "-q").code == 0
    statuses = {job["mission_id"]: job["state"] for job in json.loads(lcp("jobs", "--json").out)}
    assert statuses == {1: "queued", 2: "succeeded"}


BAD_MISSIONS = {
    "goal: [": "line 1, column 8",
    "gaol: x\nplanner: surveyor": "gaol: is not a known key; did you mean 'goal'?",
    "planner: surveyor": "goal: is required and missing",
    "goal: x\nplanner: surveyer": "no planner is named 'surveyer'; did you mean 'surveyor'?",
    "goal: x\nplanner: surveyor\nlimits: {max_turns: many}": "limits.max_turns: should be a whole number, not",
    "goal: x\nplanner: surveyor\nroot: nowhere": "does not exist",
    "goal: x\nplanner: surveyor\nroot: root/a.md": "a directory is expected",
    "goal: x ${y}\nplanner: surveyor": "give it with --var y=VALUE",
}


@pytest.mark.parametrize("text", BAD_MISSIONS)
def test_a_bad_mission_is_refused_in_one_line_before_anything_is_stored(lcp: Lcp, text: str) -> None:
    (lcp.home / "bad.yaml").write_text(text)
    done = lcp("run", "bad.yaml")
    assert (done.code, done.out) == (1, "")
    assert BAD_MISSIONS[text] in done.err
    assert done.err.count("\n") == 1
    assert not lcp.database.exists()


def test_an_unknown_mission_lists_the_shipped_ones(lcp: Lcp) -> None:
    done = lcp("run", "surwey")
    assert done.code == 1
    assert (
        "mission 'surwey' does not exist; a file or the name of a shipped mission (document, fix-tests,"
        in done.err
    )


def test_the_command_of_fix_tests_is_taken_from_the_root(lcp: Lcp) -> None:
    (lcp.root / "Makefile").write_text("test:\n\ttrue\n")
    assert lcp("launch", "fix-tests", "--root", "root", "--planner", "human").code == 0
    assert "This command runs them: make test" in str(lcp("show", 1, "--json").object["goal"])


def test_a_root_whose_tests_are_not_recognised_needs_the_command(lcp: Lcp) -> None:
    (lcp.root / "main.py").unlink()
    done = lcp("launch", "fix-tests", "--root", "root", "--planner", "human")
    assert done.code == 1
    assert "the variable 'command' has no value: the command that runs the tests" in done.err
    assert "--var command=VALUE" in done.err


def test_a_root_that_disappears_fails_jobs_and_leaves_the_database_whole(lcp: Lcp) -> None:
    mission = lcp.mission(lcp.ask("read_file", rel_path="a.md"), lcp.complete)
    lcp("launch", mission, "--root", "root")
    lcp.root.rename(lcp.home / "elsewhere")
    assert lcp("work", "--until-idle", "-q").code == 0
    assert lcp("db", "check").code == 0
    shown = lcp("show", 1, "--json").object
    assert shown["status"] == "failed"


def test_a_mission_that_names_no_planner_says_how_to_choose_one(lcp: Lcp) -> None:
    done = lcp("run", "review", "--root", "root")
    assert done.code == 1
    assert done.err.count("\n") == 1
    assert "`--planner NAME` (acp, anthropic, " in done.err


def test_the_environment_chooses_the_planner_of_a_mission_that_names_none(lcp: Lcp) -> None:
    launched = lcp("launch", "review", "--root", "root", LCP_PLANNER="surveyor")
    assert launched.code == 0, launched.err
    assert lcp("show", 1, "--json").object["planner"] == "surveyor"
    lcp("launch", "review", "--root", "root", "--planner", "script", "--set", "planner.replies=[]")
    assert lcp("show", 2, "--json").object["planner"] == "script"
    lcp("launch", "review", "--root", "root", LCP_PLANNER_SERVER="ollama")
    assert lcp("show", 3, "--json").object["planner"] == "openai"


def test_shipped_missions_are_listed_with_their_variables(lcp: Lcp) -> None:
    told = lcp("missions", "--shipped").out
    assert "lcp run document --root DIR --var module=MODULE --planner NAME" in told
    shown = json.loads(lcp("missions", "--shipped", "--json").out)
    assert [mission["name"] for mission in shown] == sorted(mission["name"] for mission in shown)
    assert shown[0]["variables"]["output"]["default"] == "docs/${module}.md"


def test_a_runner_serves_only_the_roots_given_by_name_and_directory(lcp: Lcp) -> None:
    write = lcp.ask("write_file", rel_path="b.md", content="b")
    mission = lcp.mission(write, lcp.complete, policy=[{"kinds": ["write_file"], "do": "auto"}])
    lcp("launch", mission, "--root", "root")
    place = lcp.root.rename(lcp.home / "checkout")
    done = lcp("work", "--until-idle", "--root", f"other={place}")
    assert done.code == 0
    assert (
        f"left to other runners: 1 queued job under {lcp.root}, a root that this runner does not serve"
        in done.err
    )
    assert lcp("work", "--until-idle", "--root", f"root={place}").code == 0
    assert (place / "b.md").read_text() == "b"
    assert lcp("show", 1, "--json").object["status"] == "completed"


def test_the_root_of_a_runner_must_be_a_directory(lcp: Lcp) -> None:
    assert "--root site: 'nowhere' is not a directory" in lcp("work", "--root", "site=nowhere").err
    assert "--root expects name=value" in lcp("work", "--root", "site").err


def test_the_live_line_fits_a_narrow_terminal(lcp_with_plugin: Lcp) -> None:
    path = lcp_with_plugin.root / ("日本語" * 20)
    mission = lcp_with_plugin.mission(
        lcp_with_plugin.ask("wait_for", path=str(path)), lcp_with_plugin.complete
    )
    arguments = ("run", mission, "--root", "root", "--approve", "all")
    with Terminal(lcp_with_plugin, *arguments, size=(24, 35)) as terminal:
        before = terminal.expect("wait_for /")
        shown = "wait_for /" + terminal.expect("…")
        path.touch()
        assert terminal.end() == 0
    assert before.endswith("  16%  1 done\x1b[0m  "), "1 of 1 and 5 more"
    assert len("⠙ 0:00  16%  1 done  " + shown + "…") == 35


def test_each_milestone_is_told_once_by_the_line_that_reached_it(lcp: Lcp) -> None:
    look: list[JsonValue] = [
        {"kind": "list_files", "params": {"patterns": [f"*.{end}"]}} for end in ("a", "b", "c", "d")
    ]
    asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": look}
    mission = lcp.mission(asked, lcp.complete)
    told = lcp("run", mission, "--root", "root").err
    watched = lcp("watch", 1).out
    for lines in (told.splitlines(), watched.splitlines()):
        ends = [(line.split()[0], line.split()[-1]) for line in lines if line.endswith("%")]
        assert ends == [("succeeded", "25%"), ("succeeded", "50%")]
    assert "%" not in lcp("--json", "watch", 1).out
    assert lcp("--quiet", "run", mission, "--root", "root").err == ""
    lcp("resume", 1)
    lcp("work", "--until-idle")
    assert lcp("watch", 1).out.count("%\n") == 2, "none is reached again"


def test_a_runner_may_work_on_one_mission_only(lcp: Lcp) -> None:
    for _ in range(2):
        lcp("launch", lcp.mission(lcp.complete), "--root", "root")
    assert lcp("work", "--until-idle", "--mission", 2).code == 0
    assert [lcp("show", number, "--json").object["status"] for number in (1, 2)] == ["running", "completed"]
    refused = lcp("work", "--until-idle", "--mission", 9)
    assert (refused.code, refused.err.splitlines()[-1]) == (1, "mission 9 is not in the database")


def test_acceptance_checks_that_do_not_pass_are_shown(lcp: Lcp) -> None:
    write = lcp.ask("write_file", rel_path="b.md", content="x")
    rule: JsonValue = {"kinds": ["write_file"], "do": "auto"}
    mission = lcp.mission(lcp.complete, write, lcp.complete, accept=[{"file_exists": "b.md"}], policy=[rule])
    ran = lcp("run", mission, "--root", "root")
    assert ran.code == 0
    assert "  unmet     the file b.md exists: 'b.md' does not exist\n" in ran.err
