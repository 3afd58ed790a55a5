"""Features of other packages work; whatever is wrong with one is said in a line and stops nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from lcp_engine import feature as features
from lcp_engine.cli.app import SECTIONS
from lcp_engine.config_file import ConfigFile
from lcp_engine.core.mission.parse import MissionFile
from lcp_engine.core.mission.spec import MissionSpec, mission_model, spec_of
from lcp_engine.core.settings.feature_settings import FeatureSettings, models_of
from lcp_engine.feature import KERNEL, Feature
from lcp_engine.features import KEYS
from lcp_engine.features.check.store.examination import check_database
from lcp_engine.planners import registry as planners
from lcp_engine.store.db.open import open_database, tables_of
from lcp_engine.store.schema import metadata

if TYPE_CHECKING:
    from pathlib import Path

GUEST = '''
import click
import sqlalchemy
from pydantic import BaseModel
from lcp_engine.api.kernel_engine import KernelEngine
from lcp_engine.core.kinds import KindRole
from lcp_engine.core.protocol.actions import MissionComplete
from lcp_engine.core.protocol.read_reply import Reader
from lcp_engine.engine.points import Chore, DecisionGate, EndGate, Observer
from lcp_engine.errors import Code, ErrorType, Failed, LimitReached, Meaning
from lcp_engine.feature import Feature
from lcp_engine.store.schema import metadata
from lcp_engine.workers.base import Worker
from starlette.responses import PlainTextResponse

class Count(BaseModel):
    words: str = ""

class Counted(BaseModel):
    count: int

NO_WORDS = Code(Meaning("NO_WORDS", LimitReached, ErrorType.INPUT, "There are no words.", "Say something."))

def count(params, context):
    found = len(params.words.split())
    return Counted(count=found) if found else Failed(NO_WORDS, "nothing is said")

WORKER = Worker(
    kind="count", params=Count, result=Counted, description="Counts words.", has_effects=False, reads_files=False,
    execute=count,
)

PLAIN = Reader(
    read=lambda text, kinds, result: MissionComplete(summary=text), key="", ends={"mission_complete": "any text"},
    to_verify="Say yes or no.", give_up=lambda error, code: {"text": error},
)

def heard(ledger, mission, end, error):
    ledger.note(mission, "heard", None, {"outcome": str(end.outcome)})
    ledger.tx.plain(f"INSERT INTO guest_heard (mission_id) VALUES ({mission.id})")

def heard_badly(ledger, mission, end, error):
    ledger.note(mission, "half-heard", None, None)
    ledger.tx.plain("INSERT INTO no_such_table VALUES (1)")

def overheard_badly(ledger, job, reply, end):
    raise ValueError("two\\nlines")

OBSERVER = Observer(ended=heard)
DEAF = Observer(ended=heard_badly, replied=overheard_badly)
HARD = Observer(ended=heard_badly)

def raises(*event):
    raise KeyError("nothing works here")

GATE = EndGate(concerns=lambda mission: True, ask=raises)

def chores(instance, runner_id, is_stopping):
    yield Chore(name="count", do=raises, is_first=True)

def worse_chores(instance, runner_id, is_stopping):
    raise RuntimeError("no chores today")

class Calls(KernelEngine):
    def dance(self):
        return "dancing"

@click.command("dance")
def dance():
    """Dance."""
    click.echo("dancing")

def page(request):
    return PlainTextResponse("dancing")

HEARD = sqlalchemy.Table(
    "guest_heard", metadata, sqlalchemy.Column("mission_id", sqlalchemy.Integer, primary_key=True)
)
HALF = sqlalchemy.Table(
    "guest_half", metadata, sqlalchemy.Column("job_id", sqlalchemy.Integer, primary_key=True),
    info=dict.fromkeys(("sqlite", "postgresql"), ("CREATE no table",)),
)
LOST = sqlalchemy.Table(
    "guest_lost", metadata, sqlalchemy.Column("lost_id", sqlalchemy.Integer, sqlalchemy.ForeignKey("no_such_table.id"))
)

FEATURE = Feature(
    "guest", kinds={"count": "guest:WORKER"}, observers=("guest:OBSERVER",), engine_calls=("guest:Calls",),
    commands={"dance": ("Inspect", "guest:dance", "Dance.")}, pages={"/dance": "guest:page"},
    codes={"NO_WORDS": "guest:NO_WORDS"}, readers={"plain": "guest:PLAIN"},
    tables={
        "guest_heard": ("guest:HEARD", "mission_id"), "guest_half": ("guest:HALF", "job_id"),
        "guest_lost": ("guest:LOST", ""), "guest_gone": ("guest:GONE", "job_id"),
    },
)
SHOWN_ABSENT = Feature("absent", kinds={"absent": "no_such_module:WORKER"}, engine_calls=("guest:NOTHING",))
DEAF_FEATURE = Feature("deaf", observers=("guest:DEAF", "guest:HARD"))
GATE_FEATURE = Feature("gate", end_gates=("guest:GATE",))
CHORES = Feature("chores", chores=("guest:chores", "guest:worse_chores"))
COMMAND = Feature("command", commands={"run": ("Inspect", "guest:dance", "Dance.")}, kinds={"never": "guest:WORKER"})
CODE = Feature("code", codes={"CONFLICT": "guest:NO_WORDS"})
KIND = Feature("kind", kinds={"write_file": "guest:WORKER"})
TABLE = Feature("table", tables={"jobs": ("guest:TABLE", "")})
PAGE = Feature("page", pages={"/jobs/{job}": "guest:Counted"}, actions={"/jobs/{job}/say": "guest:dance"})
TWICE = Feature("twice", kinds={"run_command": "guest:WORKER"})
NEWER = Feature("newer", kernel=1000)
NEEDY = Feature("needy", needs=("twice",))
NOTHING_NEW = Feature("memory")
FIELD = Feature("field", kinds="count")
NO_FEATURE = "a text"
'''
ENTRIES = {
    "guest": "guest:FEATURE", "absent": "guest:SHOWN_ABSENT", "deaf": "guest:DEAF_FEATURE",
    "gate": "guest:GATE_FEATURE", "chores": "guest:CHORES", "command": "guest:COMMAND", "kind": "guest:KIND",
    "code": "guest:CODE",
    "table": "guest:TABLE", "page": "guest:PAGE", "twice": "guest:TWICE", "newer": "guest:NEWER",
    "needy": "guest:NEEDY", "same": "guest:NOTHING_NEW", "field": "guest:FIELD", "text": "guest:NO_FEATURE",
    "gone": "guest:GONE", "broken": "broken_guest:FEATURE",
}  # fmt: skip
LEFT_OUT = {
    "absent's kind": "feature no_such_module:WORKER is left out: no_such_module:WORKER cannot be loaded: "
    "ModuleNotFoundError: No module named 'no_such_module'",
    "absent's calls": "feature guest:NOTHING is left out: guest:NOTHING cannot be loaded: AttributeError: "
    "module 'guest' has no attribute 'NOTHING'",
    "deaf": "feature guest:DEAF is left out: ValueError: two lines",
    "gate": "feature guest:GATE is left out: KeyError: 'nothing works here'",
    "chores": "feature guest:chores is left out: KeyError: 'nothing works here'",
    "worse chores": "feature guest:worse_chores is left out: RuntimeError: no chores today",
    "command": "feature command is left out: 'run' of its commands is taken",
    "code": "feature code is left out: 'CONFLICT' of its codes is taken",
    "kind": "feature kind is left out: 'write_file' of its kinds is taken",
    "table": "feature table is left out: 'jobs' of its tables is taken",
    "page": "feature guest:Counted is left out: there is a page at /jobs/{job} already",
    "action": "feature guest:dance is left out: there is a page at /jobs/{job}/say already",
    "twice": "feature twice is left out: 'run_command' of its kinds is taken",
    "newer": f"feature newer is left out: it needs kernel 1000, this is {KERNEL}",
    "needy": "feature needy is left out: it needs 'twice', which is not installed",
    "same": "feature memory is left out: another one has its name",
    "field": "feature field is left out: its kinds is 'count'",
    "text": "feature text (guest:NO_FEATURE) is left out: a Feature is expected, it is a str",
    "gone": "feature gone (guest:GONE) is left out: AttributeError: module 'guest' has no attribute 'GONE'",
    "table that is gone": "feature guest:GONE is left out: guest:GONE cannot be loaded: AttributeError: "
    "module 'guest' has no attribute 'GONE'",
    "broken": "feature broken (broken_guest:FEATURE) is left out: ZeroDivisionError: division by zero",
}
PROGRAM = """
import json, sys
from lcp_engine import Engine
from lcp_engine.features.upkeep.store.prune import prune
from lcp_engine.web.app import all_actions, all_pages

count = {"kind": "count", "params": {"words": "one two"}}
write = {"kind": "write_file", "params": {"rel_path": "a.md", "content": "a"}}
ask = {"ok": True, "action": "create_followup_jobs", "new_jobs": [count, write, {"kind": "count", "params": {}}]}
done = {"ok": True, "action": "mission_complete", "summary": "done"}
with Engine(sys.argv[1]) as engine:
    spec = {"goal": "count", "planner": {"type": "script", "replies": [ask, done]}}
    mission = engine.launch(spec, root=sys.argv[2])
    engine.work(until_idle=True)
    [held] = engine.jobs(states=["held"])
    engine.approve(held.id)
    engine.work(until_idle=True)
    engine.undo(mission.id)
    engine.launch({**spec, "planner": {"type": "script", "replies": [done]}}, root=sys.argv[2])
    plain = {"type": "script", "dialect": "plain", "replies": ["all is well"]}
    plain = engine.launch({"goal": "say it", "planner": plain}, root=sys.argv[2])
    engine.work(until_idle=True)
    print(json.dumps({
        "plain": engine.mission(plain.id).summary,
        "dance": engine.dance(),
        "pages": [path for path, _ in all_pages() + all_actions() if path in ("/dance", "/jobs/{job}/say")],
        "status": engine.mission(mission.id).status, "counted": engine.jobs(kinds=["count"])[0].result,
        "failed": engine.jobs(kinds=["count"])[1].error,
        "heard": [event["event"] for event in engine.events(mission.id) if "heard" in event["event"]],
    }))
    prune(engine.instance.database, ended_before=2**60, preimages=True)
"""


@pytest.fixture
def site(tmp_path: Path) -> dict[str, str]:
    """Environment of programs with installed packages that have features, good and bad ones."""
    site = tmp_path / "site"
    metadata = site / "guest-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "guest.py").write_text(GUEST)
    (site / "broken_guest.py").write_text("1 / 0\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: guest\nVersion: 1.0\n")
    stated = "\n".join(f"{name} = {place}" for name, place in ENTRIES.items())
    (metadata / "entry_points.txt").write_text(f"[{features.GROUP}]\n{stated}\n")
    return {**os.environ, "PYTHONPATH": str(site)}


def _run(site: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], env=site, capture_output=True, text=True, check=True)


@pytest.mark.both
def test_a_feature_of_a_package_works_and_a_bad_one_stops_nothing(
    site: dict[str, str], database_url: str, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    ran = _run(site, "-c", PROGRAM, database_url, str(root))
    printed = json.loads(ran.stdout)
    failed = printed.pop("failed")
    assert (failed["error_code"], failed["error_type"]) == ("NO_WORDS", "input_error")
    assert failed["recommended_actions"] == [{"description": "Say something.", "action_type": "user_action"}]
    assert printed == {
        "plain": "all is well",
        "dance": "dancing",
        "pages": ["/dance", "/jobs/{job}/say"],
        "status": "completed",
        "counted": {"count": 2},
        "heard": ["heard"],
    }
    told = ran.stderr.splitlines()
    # The second observer of `deaf`, and two tables, are heard of in the words of the database and of SQLAlchemy.
    theirs = [line for line in told if line.startswith(("feature guest:H", "feature guest:LOST"))]
    assert [line.partition(" is left out: ")[0] for line in sorted(theirs)] == [
        "feature guest:HALF", "feature guest:HARD", "feature guest:LOST"
    ]  # fmt: skip
    assert all("no_such_table" in line for line in sorted(theirs)[1:])
    assert sorted(told) == sorted([*LEFT_OUT.values(), *theirs])
    # Without the package its table stays; the rows of earlier missions were pruned with them.
    with closing(open_database(database_url)) as database:
        assert database.read(lambda tx: tx.query_plain("SELECT mission_id FROM guest_heard")) == [(3,)]
        assert "guest_half" not in database.read(tables_of)
        [(spec,)] = database.read(lambda tx: tx.query_plain("SELECT spec FROM missions WHERE id = 3"))
    assert spec_of(str(spec)).planner.dialect == "plain"
    with pytest.raises(ValidationError, match="'lcp' or 'universal'"):
        MissionSpec.model_validate_json(str(spec))
    assert check_database(database_url) == []


def test_a_command_of_a_package_is_found_once_it_is_called(site: dict[str, str]) -> None:
    ran = _run(site, "-m", "lcp_engine", "dance")
    assert ran.stdout == "dancing\n"


def test_the_names_that_no_feature_may_take_are_those_of_the_kernel() -> None:
    own = features._OWN
    assert {*own.tables} == {*metadata.tables} - {*features.added().tables}
    listed = {name for section in SECTIONS.values() for name in section}
    assert {*own.commands} == listed | {"help", "version"}
    assert {*own.planners} == {*planners.BUILT_IN}
    assert {*own.settings} == {*ConfigFile.model_fields}
    assert {*own.mission_keys} == {one.alias or key for key, one in MissionFile.model_fields.items()}


def test_the_feature_of_each_key_is_known_where_it_is_not_there() -> None:
    stated = {key: one.name for one in features.shipped() for key in (*one.settings, *one.mission_keys)}
    assert stated == KEYS
    settings = models_of(features.added().settings, FeatureSettings)
    assert {key for model in settings for key in model.model_fields} == features.added().settings.keys()
    assert features.added().mission_keys.keys() == {*mission_model().model_fields} - {
        *MissionSpec.model_fields
    }


def test_a_stored_mission_goes_on_without_the_keys_of_a_package_that_is_gone() -> None:
    stated = {"goal": "go", "planner": {"type": "human"}, "gone": {"a": 1}, "continue": "per_result"}
    assert spec_of(json.dumps(stated)).continue_ == "per_result"


def test_a_feature_without_what_it_needs_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (
        Feature("a", needs=("b",), chores=("x:a",)),
        Feature("b", needs=("gone",), chores=("x:b",)),
    )
    third = Feature("c", chores=("x:c",))
    assert features._joined(Feature("all"), [first, second, third], Feature("own")).chores == ("x:c",)
    assert [record.getMessage() for record in caplog.records] == [
        "feature b is left out: it needs 'gone', which is not installed",
        "feature a is left out: it needs 'b', which is not installed",
    ]
