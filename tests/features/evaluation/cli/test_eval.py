"""`lcp eval`: a suite is run in copies, goes on after a kill, and is shown and compared."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest
import re2  # type: ignore[import-untyped]  # ships no types
from pydantic import JsonValue
from tests.patience import PATIENCE_SECONDS
from tests.walls import NEEDS_OVERLAY

from lcp_engine import Engine
from lcp_engine.features.evaluation.suite import parse_suite

if TYPE_CHECKING:
    from tests.cli.conftest import Done, Lcp

pytestmark = pytest.mark.usefixtures("forked_trials")

Object: TypeAlias = dict[str, JsonValue]

FOUND: JsonValue = {
    "ok": True,
    "action": "analysis_result",
    "summary": "A heading.",
    "issues": ["It prints 1."],
}
GUESSED: JsonValue = {"ok": True, "action": "mission_complete", "summary": "It prints 2."}


PRINTS: Object = {
    "name": "prints", "goal": "What does it print?", "root": "root",
    "expect": {"facts": ["prints 1"], "reads": ["main.py"]},
}  # fmt: skip
SAYS: Object = {"name": "says", "goal": "Say something.", "root": "root", "expect": {"facts": ["(?i)it"]}}


EVALS = Path(__file__).parents[4] / "evals"


def script(*replies: JsonValue) -> Object:
    return {"type": "script", "replies": [*replies]}


def suite_file(lcp: Lcp, **changed: JsonValue) -> Path:
    stated: Object = {
        "name": "small",
        "planners": {
            "reads": script(lcp.ask("read_file", path="main.py"), FOUND),
            "guesses": script("what?", GUESSED),
        },
        "missions": [PRINTS, SAYS],
        **changed,
    }
    file = lcp.home / "suite.yaml"
    file.write_text(json.dumps(stated))
    return file


def test_a_suite_is_run_with_each_planner_and_counted(lcp: Lcp) -> None:
    done = lcp("eval", "run", suite_file(lcp), "--to", "first", "--parallel", 2, LCP_DATABASE_URL="")
    assert done.code == 0, done.err
    head, reads, guesses, said, _, taken, *means = done.out.splitlines()
    assert head.split() == ["planner", "trials", "completed", "right", "(95%)", "facts", "files"]
    assert reads.split() == ["reads", "2", "2/2", "100%", "(34-100)", "2/2", "1/1"]
    assert guesses.split() == ["guesses", "2", "2/2", "50%", "(9-91)", "1/2", "0/1"]
    assert said == "not right with guesses: 1 unread"
    assert taken.split() == ["planner", "turns", "corr.", "tokens", "in", "out", "time", "CPU"]
    assert [line.split()[:5] for line in means] == [
        ["reads", "2.0", "0.0", "0", "0"],
        ["guesses", "1.0", "1.0", "0", "0"],
    ]
    assert sorted(line.split(",")[0] for line in done.err.splitlines()[:4]) == [
        "1/4 prints (reads): right", "2/4 prints (guesses): unread", "3/4 says (reads): right",
        "4/4 says (guesses): right",
    ]  # fmt: skip
    shown = lcp("eval", "show", "first").out.splitlines()
    assert [row.split() for row in shown[-4:-2]] == [
        ["prints", "guesses", "0/1", "0/1", "0/1", "unread"],
        ["prints", "reads", "1/1", "1/1", "1/1"],
    ]
    figures = lcp("eval", "show", "first", "--json").object
    runs = figures["trials"]
    assert isinstance(runs, list)
    assert {(str(run["mission"]), run["right"], run["turns"]) for run in runs if isinstance(run, dict)} == {
        ("prints", True, 2), ("prints", False, 1), ("says", True, 2), ("says", True, 1),
    }  # fmt: skip
    assert all(isinstance(run, dict) and isinstance(run["cpu_seconds"], float) for run in runs)
    assert not lcp.database.exists(), "an evaluation has a database of its own"


def test_each_run_has_a_copy_of_the_root_under_its_own_name(lcp: Lcp) -> None:
    write: JsonValue = {"ok": True, "action": "write_file", "rel_path": "out.md", "content": "x"}
    auto: JsonValue = [{"kinds": ["write_file"], "do": "auto"}]
    file = suite_file(
        lcp, planners={"writes": script(write, GUESSED)}, defaults={"policy": auto}, missions=[SAYS], repeat=2
    )
    assert lcp("eval", "run", file).code == 0
    copies = sorted((lcp.home / "suite.eval" / "roots").glob("*/root/out.md"))
    assert len(copies) == 2
    assert not (lcp.root / "out.md").exists()


@pytest.mark.proof
def test_a_killed_evaluation_goes_on_and_runs_nothing_twice(lcp: Lcp) -> None:
    file = suite_file(lcp)
    with lcp.start("eval", "run", file, "--to", "it", "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["mission"] == "prints"
        process.send_signal(signal.SIGKILL)
    done = lcp("eval", "run", file, "--to", "it")
    assert done.code == 0, done.err
    assert [line.split()[1] for line in done.out.splitlines()[1:3]] == ["2", "2"]
    with Engine(f"sqlite:///{lcp.home / 'it' / 'lcp.db'}") as engine:
        missions = engine.missions()
        assert len({mission.name for mission in missions}) == len(missions) == 4
        assert {mission.status.value for mission in missions} == {"completed"}
        assert {engine.mission(mission.id).turns for mission in missions} == {1, 2}


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.proof)])
def test_an_interrupt_leaves_what_the_same_command_goes_on_with(lcp: Lcp, number: int) -> None:
    file = suite_file(lcp, missions=[PRINTS])
    with lcp.start("eval", "run", file, "--to", "it", "--json") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, err) == (
        130,
        "interrupted; nothing is lost, and the same command continues\n",
    )
    assert lcp("eval", "run", file, "--to", "it").out.splitlines()[1].split()[1] == "1"


def test_two_evaluations_are_compared(lcp: Lcp) -> None:
    file = suite_file(lcp)
    assert lcp("eval", "run", file, "--to", "old", "--planner", "guesses").code == 0
    assert lcp("eval", "run", file, "--to", "new", "--planner", "reads").code == 0
    compared = lcp("eval", "compare", "old", "new")
    head, right, completed, facts, files, *rest = compared.out.splitlines()
    assert head.split() == ["figure", "old", "new", "better", "worse", "by", "chance"]
    assert right.split() == ["right", "50%", "100%", "1", "0", "100.0%"]
    assert completed.split() == ["completed", "100%", "100%", "0", "0", "-"]
    assert facts.split()[-5:] == ["50%", "100%", "1", "0", "100.0%"]
    assert files.split()[-5:] == ["0%", "100%", "1", "0", "100.0%"]
    assert rest[-1] == "right now: prints"
    values = lcp("eval", "compare", "old", "new", "--json").json
    assert isinstance(values, list)
    assert isinstance(values[0], dict)
    assert (values[0]["figure"], values[0]["better"], values[0]["odds"]) == ("right", ["prints"], 1.0)


@pytest.mark.parametrize(
    ("changed", "arguments", "said"),
    [
        ({}, ["--planner", "reader"], "no planner is named 'reader'"),
        ({"planners": {}}, [], "no planner is named; list some under `planners`, or name one with --planner"),
        ({"missions": [{"name": "a", "goal": "x", "root": "gone"}]}, [], "missions.0.root: "),
        ({"missions": [{"name": "a", "goal": "x", "root": "suite.yaml"}]}, [], "is not a directory"),
        ({"defaults": {"kinds": {"read_fil": {"timeout": 1}}}}, [], "kinds.read_fil: no worker executes this kind"),
        ({}, ["--to", "suite.yaml"], "'suite.yaml' is a file; a directory is expected"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_one_line_and_stores_nothing(
    lcp: Lcp, changed: Object, arguments: list[str], said: str
) -> None:
    refused = lcp("eval", "run", suite_file(lcp, **changed), *arguments)
    assert refused.code in (1, 2, 5)
    assert said in refused.err
    assert len(refused.err.splitlines()) == 1
    assert not (lcp.home / "suite.eval" / "suite.json").exists()


def test_a_directory_keeps_to_what_was_begun_in_it(lcp: Lcp) -> None:
    def run(*options: object, **changed: JsonValue) -> Done:
        return lcp("eval", "run", suite_file(lcp, missions=[SAYS], **changed), "--planner", "reads", *options)

    assert run().code == 0
    assert run("--mission", "s*").out.splitlines()[1].split()[:2] == ["reads", "1"]
    unknown = run("--mission", "say")
    assert "--mission 'say' matches no mission of the suite; did you mean 'says'?" in unknown.err
    refused = run(name="other")
    assert (refused.code, refused.out) == (5, "")
    assert "'suite.eval' has another suite, or other planners" in refused.err
    assert run("--repeat", 2).out.splitlines()[1].split()[:2] == ["reads", "2"]


def test_what_is_no_evaluation_is_said(lcp: Lcp) -> None:
    for arguments in (["show", "gone"], ["compare", "gone", "root"]):
        refused = lcp("eval", *arguments)
        assert refused.code == 1
        assert refused.err.startswith("'gone' is not an evaluation; ")
    assert lcp("--db", "sqlite:///x.db", "eval", "run", suite_file(lcp)).code == 2
    missing = lcp("eval", "run", "gone.yaml")
    assert (missing.code, missing.err) == (1, "suite 'gone.yaml' does not exist; a file is expected\n")


def test_each_fact_of_the_shipped_suite_stands_in_its_files_and_not_in_its_goal() -> None:
    suite = parse_suite((EVALS / "small.yaml").read_text(), source="small.yaml")
    assert (len(suite.missions), len({case.root for case in suite.missions})) == (50, 6)
    for case in suite.missions:
        texts = [(EVALS / case.root / path).read_text() for path in case.expect.reads]
        assert texts or case.expect.uses, case.name
        for fact in case.expect.facts:
            assert not re2.search(fact, str(case.stated["goal"])), (case.name, fact)
            assert case.expect.uses or re2.search(fact, "\n".join(texts)), (case.name, fact)


def test_what_a_kind_of_the_shipped_suite_says_stands_in_no_file_and_no_example() -> None:
    suite = parse_suite((EVALS / "small.yaml").read_text(), source="small.yaml")
    needed = [case for case in suite.missions if case.expect.uses]
    assert len(needed) == 10
    kinds = (EVALS / "kinds.yaml").read_text()
    for case in needed:
        with_params = "params: {}" not in kinds.split(f"{case.expect.uses[0]}:")[1].split("\n\n")[0][:700]
        files = [file.read_text() for file in (EVALS / case.root).rglob("*") if file.is_file()]
        fact = case.expect.facts[-1]
        assert not re2.search(fact, "\n".join([*files, kinds if with_params else ""])), (case.name, fact)


PASSES = "#!/bin/sh\ngrep -q 'A heading' \"$LCP_MISSION_JSON\" && test -e main.py\n"
CHECKED: Object = {
    "name": "checked",
    "goal": "What does it print?",
    "root": "root",
    "expect": {"check": ["./check.sh"]},
}


def check_program(lcp: Lcp, text: str) -> None:
    file = lcp.home / "check.sh"
    file.write_text(text)
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PASSES, None),
        ("#!/bin/sh\necho 'no heading' >&2; exit 1\n", "exit code 1: no heading"),
        ("#!/bin/sh\nkill -9 $$\n", "signal 9"),
        ("#!/bin/sh\nhead -c 10000000 /dev/zero | tr '\\0' x; exit 1\n", "exit code 1: " + "x" * 100),
        ("#!/bin/sh\necho x > ../outside; echo x > main.py; exit 3\n", "exit code 3"),
    ],
)
def test_a_check_program_judges_what_came_of_a_mission(lcp: Lcp, text: str, said: str | None) -> None:
    check_program(lcp, text)
    file = suite_file(lcp, planners={"finds": script(FOUND)}, missions=[CHECKED])
    done = lcp("eval", "run", file, "--to", "it", "--json")
    assert done.code == 0, done.err
    check = json.loads(done.out)["check"]
    assert check["passes"] == (said is None)
    assert check["said"].startswith(said or "")
    assert len(check["said"]) < 2000
    assert lcp("eval", "show", "it").out.splitlines()[1].split()[-1] == ("1/1" if said is None else "0/1")
    roots = lcp.home / "it" / "roots" / "1"
    assert [path.name for path in roots.iterdir()] == ["root"]
    assert (roots / "root" / "main.py").read_text() == (lcp.home / "root" / "main.py").read_text()


@NEEDS_OVERLAY
def test_a_check_program_sees_what_a_command_of_the_mission_sees(lcp: Lcp) -> None:
    (lcp.home / "root" / "link.py").symlink_to("main.py")
    (lcp.home / "root" / ".env").write_text("")
    check_program(
        lcp,
        "#!/bin/sh\ntest -L link.py && test -e .env && test $WORD = hello && pwd > pwd && grep /it/roots/1/root$ pwd\n",
    )
    checked: Object = {**CHECKED, "commands": {"allow": ["make"], "environment": {"WORD": "hello"}}}
    file = suite_file(lcp, planners={"finds": script(FOUND)}, missions=[checked])
    done = lcp("eval", "run", file, "--to", "it", "--json")
    assert json.loads(done.out)["check"] == {"passes": True, "said": ""}


def test_a_check_that_could_not_be_run_is_run_by_the_next_call(lcp: Lcp) -> None:
    check_program(lcp, "#!/no/interpreter\n")
    file = suite_file(lcp, planners={"finds": script(FOUND)}, missions=[CHECKED])
    done = lcp("eval", "run", file, "--to", "it")
    assert done.code == 0
    first, *_ = done.err.splitlines()
    assert first.startswith("1/1 checked (finds): unchecked, 1 turn")
    assert "cannot be started" in first
    assert "not right with finds: 1 unchecked" in done.out
    check_program(lcp, PASSES)
    assert "1/1 checked (finds): right" in lcp("eval", "run", file, "--to", "it").err


def test_a_check_that_hangs_is_stopped(lcp: Lcp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lcp_engine.features.evaluation.trial_checks.CHECK_SECONDS", 0.5)
    check_program(lcp, "#!/bin/sh\nsleep 1000\n")
    file = suite_file(lcp, planners={"finds": script(FOUND)}, missions=[CHECKED])
    done = lcp("eval", "run", file, "--to", "it", "--json")
    assert "it ran for more than 0.5 s, and was stopped" in json.loads(done.out)["check"]["said"]


def test_a_missing_check_program_and_an_unknown_kind_are_said_before_anything_runs(lcp: Lcp) -> None:
    missing = lcp("eval", "run", suite_file(lcp, missions=[CHECKED]))
    assert missing.code in (1, 2)
    assert "missions.0.expect.check: its program " in missing.err
    assert "there is no such file" in missing.err
    unknown = lcp("eval", "run", suite_file(lcp, missions=[{**SAYS, "expect": {"uses": ["read_fil"]}}]))
    assert (
        "missions.0.expect.uses: no worker executes kind 'read_fil'; did you mean 'read_file'?" in unknown.err
    )
    assert not (lcp.home / "suite.eval" / "suite.json").exists()
