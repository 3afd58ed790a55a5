"""Commands that only read start quickly: they load neither SQLAlchemy nor pydantic, and print the same."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from lcp_engine.core.job_states import State
from lcp_engine.store.conditions import STATUSES

if TYPE_CHECKING:
    from pydantic import JsonValue
    from tests.cli.conftest import Lcp

SLOW = {
    "sqlalchemy",
    "alembic",
    "pydantic",
    "pydantic_core",
    "psycopg",
    "lcp_engine.api.engine",
    "chardetng_py",
}
TIMING = {"apscheduler", "tzlocal"}
"""Only a runner that has worked for a second loads them."""
LOADED = """
import sys
from lcp_engine.cli.app import start
try:
    for command in sys.argv[1:] or [""]:
        start(command.split())
finally:
    print(*sys.modules, file=sys.stderr)
"""
PRINTED = """
import io, json, sys
from contextlib import contextmanager, redirect_stdout
from lcp_engine.cli.app import lcp
from lcp_engine.cli.base import Invocation

class ThroughEngine(Invocation):
    @contextmanager
    def history(self):
        with self.engine() as engine:
            yield engine

def printed(command):
    with redirect_stdout(io.StringIO()) as out:
        lcp.main(command.split(), standalone_mode=False, obj=way())
    return out.getvalue()

way = {"history": Invocation, "engine": ThroughEngine}[sys.argv[1]]
print(json.dumps([printed(command) for command in sys.argv[2:]]))
"""
READING = [
    "jobs", "jobs --mission 2", "jobs --state failed --kind read_file", "held", "held --mission 2", "missions",
    *(f"{command} {mission}" for command in ("show", "report", "changes") for mission in range(1, 6)),
    *(f"report {mission} --format {form}" for form in ("structured", "agent") for mission in range(1, 6)),
    *(f"job {job}" for job in range(1, 13)), "watch 1", "watch 2", "watch 3 -v",
]  # fmt: skip


@pytest.fixture
def lived(lcp: Lcp) -> Lcp:
    """A database with missions in every state and jobs in nearly every one."""
    mixed = [lcp.ask("read_file", rel_path="a.md"), lcp.ask("read_file", rel_path="not there"),
             lcp.ask("write_file", rel_path="b.md", content="b\n"), lcp.complete]  # fmt: skip
    lets_write: list[JsonValue] = [{"do": "auto", "kinds": ["write_file"]}]
    assert lcp("run", lcp.mission(*mixed, policy=lets_write), "--root", "root", "-q").code == 0
    held: JsonValue = {"kind": "write_file", "params": {"rel_path": "c.md", "content": "c\n"}}
    other: JsonValue = {"kind": "write_file", "params": {"rel_path": "d.md", "content": "d\n"}}
    asked: JsonValue = {"kind": "ask_user", "params": {"question": "Which one?", "options": ["a", "b"]}}
    reply: dict[str, JsonValue] = {
        "ok": True,
        "action": "create_followup_jobs",
        "new_jobs": [held, other, asked],
    }
    assert lcp("run", lcp.mission(reply, lcp.complete, hold_timeout=86_400), "--root", "root", "-q").code == 3
    assert lcp("run", lcp.mission(lcp.fail), "--root", "root", "-q").code == 1
    assert lcp("launch", lcp.mission(lcp.complete), "--root", "root").code == 0
    assert lcp("launch", lcp.mission(lcp.complete), "--root", "root").code == 0
    assert lcp("cancel", 4).code == 0
    assert lcp("undo", 1).code == 0
    rejected = json.loads(lcp("held", "--json").out)[1]["id"]
    assert lcp("reject", rejected, "--reason", "not\nthis").code == 0
    return lcp


def _python(lcp: Lcp, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**lcp.environment, **environment}, cwd=lcp.home, capture_output=True, text=True, check=True,
    )  # fmt: skip


READERS = ["jobs", "held", "missions", "show 1", "report 1", "changes 1", "job 1", "watch 1"]


def test_commands_that_read_load_nothing_slow(lived: Lcp) -> None:
    done = _python(lived, LOADED, *READERS, *(f"{command} --json" for command in READERS))
    assert len(done.stdout.splitlines()) > len(READERS)
    assert set(done.stderr.split()) & SLOW == set()


@pytest.mark.proof
def test_only_a_runner_that_goes_on_loads_apscheduler(lived: Lcp) -> None:
    add = f"schedule add hourly {lived.mission(lived.complete)} --root root --every 1h"
    commands = [*READERS, add, "schedule list", "work --until-idle", "db stats"]
    done = _python(lived, LOADED, *commands)
    assert "lcp_engine.runner.runner" in done.stderr.split()
    assert set(done.stderr.split()) & TIMING == set()


def test_the_completion_of_a_command_that_reads_loads_nothing_slow(lcp: Lcp) -> None:
    words = {"_LCP_COMPLETE": "bash_complete", "COMP_WORDS": "lcp jobs --state ", "COMP_CWORD": "3"}
    done = _python(lcp, LOADED, **words)
    assert "plain,held" in done.stdout
    assert set(done.stderr.split()) & SLOW == set()


def test_a_new_and_an_older_database_are_brought_to_the_newest_schema_first(lcp: Lcp) -> None:
    assert lcp.run("jobs", "--json").json == []
    engine = create_engine(f"sqlite:///{lcp.database}")
    with engine.begin() as connection:
        version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    refused = lcp.run("jobs")
    assert (refused.code, "9999" in refused.err) == (1, True)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :it"), {"it": version})
    engine.dispose()
    assert lcp.run("jobs", "--json").json == []


@pytest.mark.proof
def test_history_and_engine_print_the_same(lived: Lcp) -> None:
    commands = [f"{command}{form}" for command in READING for form in ("", " --json")]
    through_history = _python(lived, PRINTED, "history", *commands)
    assert through_history.stdout == _python(lived, PRINTED, "engine", *commands).stdout
    assert all(json.loads(through_history.stdout))


def test_what_is_printed_is_what_sqlalchemy_reads_through_the_views(lived: Lcp) -> None:
    missions, jobs = _objects(lived, "missions"), _objects(lived, "jobs")
    assert {mission["status"] for mission in missions} == {*STATUSES}
    states = {State.HELD, State.SUCCEEDED, State.FAILED, State.REJECTED, State.CANCELLED, State.QUEUED}
    assert states <= {job["state"] for job in jobs}
    engine = create_engine(f"sqlite:///{lived.database}")
    with engine.connect() as connection:
        for view, order, printed in (("mission_overview", "id DESC", missions), ("job_history", "id", jobs)):
            rows = connection.execute(text(f"SELECT * FROM {view} ORDER BY {order}")).mappings()
            for row, found in zip(rows, printed, strict=True):
                assert {name: _like(row[name], value) for name, value in found.items()} == found
    engine.dispose()


def _objects(lcp: Lcp, command: str) -> list[dict[str, JsonValue]]:
    printed: list[dict[str, JsonValue]] = json.loads(lcp(command, "--json").out)
    return printed


def _like(stored: JsonValue, printed: JsonValue) -> JsonValue:
    """A column of a view, read as what was printed."""
    if isinstance(printed, (dict, list)):
        value: JsonValue = json.loads(str(stored))
        return value
    return bool(stored) if isinstance(printed, bool) else stored


def test_file_names_are_utf_8_in_the_c_locale(lcp: Lcp) -> None:
    held = lcp.ask("write_file", rel_path="\u00f1.md", content="b\n")
    assert lcp("run", lcp.mission(held, lcp.complete, lcp.complete), "--root", "root", "-q").code == 3
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "lcp_engine", "diff", "2"]
    environment = {**lcp.environment, **plain}
    done = subprocess.run(command, capture_output=True, env=environment, cwd=lcp.home, check=True)
    assert "+++ b/\u00f1.md\n" in done.stdout.decode()
