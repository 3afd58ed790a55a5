"""What holds for every command: help, global options, errors in one line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest
from tests.tables import table

from lcp_engine.cli.app import all_commands, start
from lcp_engine.cli.console.output import explain
from lcp_engine.feature import load

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

COMMANDS = [name for commands in all_commands().values() for name in commands]


@table("name", COMMANDS)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert start([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: lcp {name}")
    assert len(text.splitlines()[2]) > 20, "it says what the command is for"


@table(
    ("name", "place"),
    [(name, entry[0]) for commands in all_commands().values() for name, entry in commands.items()],
)
def test_every_entry_of_the_table_of_commands_can_be_imported(name: str, place: str) -> None:
    command = load(place, click.Command)
    assert command.name == name


def test_help_loads_click_and_nothing_slow(lcp: Lcp) -> None:
    program = (
        "import sys; from lcp_engine.cli.app import start; start(['--help'])\n"
        "slow = {'sqlalchemy', 'alembic', 'pydantic', 'rich', 'yaml', 'platformdirs', 'importlib.metadata'}\n"
        "print(slow & set(sys.modules), file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], env=lcp.environment, capture_output=True, check=True
    )
    assert ran.stderr == b"set()\n"
    assert all(f"\n  {name} " in ran.stdout.decode() for name in COMMANDS)


def test_global_options_stand_before_or_after_the_command(lcp: Lcp) -> None:
    url = f"sqlite:///{lcp.home / 'other.db'}"
    before = lcp("--db", url, "--json", "db", "path")
    after = lcp("db", "path", "--db", url, "--json")
    between = lcp("db", "--db", url, "path", "--json")
    assert before.object == after.object == between.object == {"url": url}


@table(
    ("arguments", "fact"),
    [
        ("runn", "unknown command 'runn'; did you mean 'run'?"),
        ("db chek", "did you mean 'check'?"),
        ("run", "missing argument 'MISSION'"),
        ("missions --limits 3", "--limit"),
        ("show one", "is not a valid integer"),
        ("run survey --set x", "--set expects name=value, not 'x'"),
    ],
)
def test_usage_errors_take_one_line_and_exit_with_2(
    capsys: pytest.CaptureFixture[str], arguments: str, fact: str
) -> None:
    assert start(arguments.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert fact in shown.err
    assert shown.err.count("\n") == 1


def test_errors_are_objects_for_programs(lcp: Lcp) -> None:
    assert lcp("show", 7, "--json").error["error_code"] == "NOT_FOUND"
    usage = lcp("--json", "runn").error
    assert (usage["error_type"], usage["error_code"]) == ("input_error", "INVALID_ARGUMENT")


def test_an_internal_error_is_one_line_with_the_path_of_the_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert explain(RuntimeError("a surprise"), as_json=False) == 1
    told = capsys.readouterr().err
    kept = tmp_path / "lcp-engine" / "last-defect.txt"
    assert told.count("\n") == 1
    assert str(kept) in told
    assert "a surprise" in kept.read_text()
    assert _mode(kept) == 0o600


def test_what_it_makes_for_itself_is_private_whatever_the_umask_is(lcp: Lcp) -> None:
    own = [lcp.home / "own" / name for name in ("data", "state", "config")]
    places = {f"XDG_{place.name.upper()}_HOME": str(place / "deep") for place in own}
    mission = lcp.mission(lcp.ask("write_file", rel_path="b", content="x"), lcp.complete)
    before = os.umask(0)
    try:
        assert lcp("run", mission, "--root", lcp.root, "--stage", LCP_DATABASE_URL="", **places).code == 3
    finally:
        os.umask(before)
    made = [*(lcp.home / "own").rglob("*")]
    assert {"lcp.db", "b", "database"} <= {one.name for one in made}, "a database and a stage"
    assert [one for one in made if one.is_dir() and _mode(one) != 0o700] == []
    of_stage = [one for one in made if "lcp-engine-stages" in one.parts and one.name != "database"]
    files = [one for one in made if one.is_file() and one not in of_stage]
    assert [one for one in files if _mode(one) & 0o077] == []


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_reader_that_leaves_is_no_error(lcp: Lcp) -> None:
    with lcp.start("schema") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""


@pytest.mark.parametrize("buffered", ["", pytest.param("1", marks=pytest.mark.proof)])
def test_a_full_disk_behind_stdout_is_not_an_internal_error(lcp: Lcp, buffered: str) -> None:
    environment = {**lcp.environment, "PYTHONUNBUFFERED": buffered}
    with Path("/dev/full").open("w") as full:
        out = subprocess.run(
            lcp.command("schema"),
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        err = subprocess.run(lcp.command("show", 1), env=environment, stderr=full, check=False)
    assert (out.returncode, out.stderr) == (
        1,
        "the operating system reported an error: No space left on device\n",
    )
    assert err.returncode == 1


@pytest.mark.parametrize(
    "closed",
    ["<&- >&- 2>&-", *(pytest.param(one, marks=pytest.mark.proof) for one in ("<&-", ">&-", "2>&-"))],
)
def test_closed_streams_are_like_empty_ones(lcp: Lcp, closed: str) -> None:
    mission = lcp.mission(lcp.complete)
    command = lcp.command("run", mission, "--root", lcp.root)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *command],
        env=lcp.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert ("All done." in done.stdout) == (">&-" not in closed.split())


def test_the_configuration_file_is_checked(lcp: Lcp) -> None:
    directory = lcp.home / "config" / "lcp-engine"
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text("polcy: []\n")
    done = lcp("missions")
    assert done.code == 2
    assert done.err == f"{directory / 'config.yaml'}: polcy: is not a known key; did you mean 'policy'?\n"


def test_rules_and_caps_of_the_user_hold(lcp: Lcp) -> None:
    directory = lcp.home / "config" / "lcp-engine"
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text(
        "caps: {read_bytes: 3}\npolicy: [{kinds: [write_file], paths: ['notes/**'], do: auto}]\n"
    )
    mission = lcp.mission(
        lcp.ask("write_file", rel_path="notes/b.md", content="b"),
        lcp.ask("read_file", rel_path="a.md"),
        lcp.complete,
    )
    assert lcp("run", mission, "--root", "root", "-q").code == 0
    assert (lcp.root / "notes" / "b.md").exists()
    failed = lcp("jobs", "--state", "failed", "--json").json
    assert isinstance(failed, list)
    assert [
        job["error"]["error_code"]
        for job in failed
        if isinstance(job, dict) and isinstance(job["error"], dict)
    ] == ["TOO_LARGE"]


def test_the_commands_that_people_try_first_help(lcp: Lcp) -> None:
    assert lcp("version").out == lcp("-V").out == lcp("--version").out
    assert lcp("help").out == lcp("--help").out
    assert lcp("help", "db", "check").out == lcp("db", "check", "--help").out
    for words in (["runn"], ["db", "chek"], ["run", "x"]):
        done = lcp("help", *words)
        assert (done.code, f"unknown command {words[-1]!r}; " in done.err) == (2, True)
