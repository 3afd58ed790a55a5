"""One rule for the exit codes of all commands, whatever is wrong."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.conftest import Lcp
from tests.cli.in_process import run_in_process
from tests.tables import table

from lcp_engine.cli.app import all_commands
from lcp_engine.cli.console.exits import MEANINGS, Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import JsonValue

    Call = Callable[[str], tuple[int, str]]

PAGE = Path(__file__).parents[2] / "docs" / "interface.md"
COMMANDS = [name for commands in all_commands().values() for name in commands]

# Mission 1 waits, with a write (job 2) and a question (job 3); mission 2 is completed, and its job 5 succeeded.
CANNOT_BE_USED = """
    decisions --since nowhen
    mcp --http nowhere
    mcp --threads -1
    tokens add
    tokens add a --scope fly
    tokens add a --expires soon
    init
    run
    run m.yaml --threads 0
    run m.yaml --root root --set goal
    run m.yaml --root root --set nokey=1
    run m.yaml --root root --set limits.max_turns=many
    run m.yaml --root root --var a=1
    run m.yaml --root root --approve nothing
    work --kind nothing --until-idle
    do
    do " " --planner human
    do a b --planner human
    launch
    launch m.yaml --root root --set limits.max_turns=0
    validate
    validate m.yaml --root root --set nokey=1
    completion odd
    work --threads many
    work --root root
    missions --limit 0
    missions --db nowhere
    show one
    watch one
    report 1 --format odd
    report 1 --since 3
    changes one
    jobs --state odd
    jobs --limit 0
    job one
    held --mission one
    runners --odd
    diff
    diff 2 --mission 1
    approve
    approve two
    approve 2 --params {
    approve 2 --params '{"odd": 1}'
    approve 2 --params '{}' --edit
    reject 2
    reject 2 --reason ' '
    answer 3
    answer 3 ' '
    say 1
    say 1 ' '
    cancel one
    resume two
    resume 2 --set limits
    resume 2 --set limits.odd=1
    resume 2 --set limits.max_jobs=many
    retry one
    undo
    undo 1 --job 2
    replay one
    fork 2
    fork 2 --turn one
    policy explain one
    check --dialect odd
    try read_file {
    kinds --odd
    schema --odd
    schedule add t m.yaml --root root
    schedule add t m.yaml --root root --every often
    schedule add t m.yaml --root root --cron often
    memory odd
    memory add title
    memory show one
    plan odd
    shell one
    plan show one
    deliveries odd
    link one
    approvers odd
    eval odd
    serve --port many
    acp --mission -
    acp --threads -1
    acp --set goal
    top
    top --json
    db prune --older-than long
    db odd
    doctor --odd
    odd
"""
IS_NOT_THERE_OR_NOT_VALID = """
    tokens remove nope
    acp --mission nowhere.yaml
    run nothing.yaml
    run root
    run bad.yaml --root root
    run raw --root root
    run m.yaml --root nowhere
    run m.yaml --root root --planner nobody
    launch nothing.yaml
    launch bad.yaml --root root
    launch m.yaml --root nowhere
    validate nothing.yaml
    validate bad.yaml --root root
    work --root x=nowhere
    missions --schedule nothing
    missions --db sqlite:////nowhere/x.db
    show 99
    shell 99
    watch 99
    report 99
    changes 99
    jobs --mission 99
    job 99
    job 2 --prompt
    held --mission 99
    diff 99
    diff --mission 99
    approve 99
    approve --all --mission 99
    reject 99 --reason no
    answer 99 yes
    answer 3 --file nothing
    answer 3 --file root
    answer 3 --file raw
    say 99 hello
    say 1 --file nothing
    cancel 99
    resume 99
    retry 99
    undo 99
    undo --job 99
    replay 99
    fork 99 --turn 1
    fork 2 --turn 9
    fork 2 --turn 1 --reply nothing
    fork 2 --turn 1 --reply root
    fork 2 --turn 1 --planner nobody
    policy explain 99
    check nothing
    check raw
    try nothing {} --root root
    try read_file '{"path": "nothing"}' --root root
    try read_file '{"path": "nothing"}' --root nowhere
    kinds nothing
    schema nothing
    schedule add t nothing.yaml --every 1h
    schedule remove nothing
    schedule run-now nothing
    memory show 99
    memory forget 99
    memory import nothing
    plan check nothing
    plan check bad.yaml
    plan show 99
    db backup nowhere/x
    db backup root
    doctor --root nowhere
    doctor --mission nothing
    doctor --planner nobody
"""
IS_IN_ANOTHER_STATE = """
    approve 1
    approve 3
    approve 5 --edit
    reject 5 --reason no
    answer 1 yes
    answer 2 yes
    answer 5 yes
    say 2 hello
    cancel 2
    resume 1
    retry 1
    retry 2
    retry 5
    replay 1
    schedule add known m.yaml --root root --every 1h
    db backup raw
"""
WITHOUT_STATE = {"schema", "check", "try", "run", "launch", "work", "doctor", "serve"}


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Call:
    """Runs `lcp` over one prepared database; the exit code, and what it says on stderr."""
    home = tmp_path_factory.mktemp("home")
    (home / "root").mkdir()
    (home / "raw").write_bytes(b"\xff")
    (home / "bad.yaml").write_text("goal: [")
    names = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("DATA", "CONFIG", "STATE", "CACHE")}
    environment = {
        **names,
        "LCP_DATABASE_URL": f"sqlite:///{home / 'lcp.db'}",
        "NO_COLOR": "1",
        "PATH": "/bin:/usr/bin",
    }
    prepared = Lcp(home, environment)
    jobs: list[JsonValue] = [
        {"kind": "write_file", "params": {"path": "b", "content": "b"}},
        {"kind": "ask_user", "params": {"question": "Which?"}},
    ]
    held = prepared.mission({"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}, Lcp.complete)
    write = prepared.mission(
        {"ok": True, "action": "write_file", "rel_path": "c", "content": "c"}, Lcp.complete
    )
    assert prepared("run", held, "--root", "root").code == Exit.WAITING
    assert prepared("run", write, "--root", "root", "--approve", "all").code == Exit.DONE
    prepared.mission(Lcp.complete).rename(home / "m.yaml")
    assert prepared("schedule", "add", "known", "m.yaml", "--root", "root", "--every", "1h").code == Exit.DONE

    def run(line: str) -> tuple[int, str]:
        code, out, err = run_in_process(shlex.split(line), home=home, environment=environment, stdin="")
        assert "Traceback" not in err
        return code, err or out

    return run


@table(
    ("line", "expected"),
    [
        *[(line, Exit.USAGE) for line in lines(CANNOT_BE_USED)],
        *[(line, Exit.FAILED) for line in lines(IS_NOT_THERE_OR_NOT_VALID)],
        *[(line, Exit.CONFLICT) for line in lines(IS_IN_ANOTHER_STATE)],
    ],
)
def test_the_code_says_what_is_wrong(call: Call, line: str, expected: Exit) -> None:
    code, said = call(line)
    assert code == expected, said
    assert said


@table("name", COMMANDS)
def test_every_command_is_in_the_table(name: str) -> None:
    named = {line.split()[0] for line in lines(CANNOT_BE_USED)}
    assert name in named


def test_the_page_has_the_same_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {Exit(int(code)): meaning for code, meaning in rows} == MEANINGS
