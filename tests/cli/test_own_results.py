"""A mission file states the schema of its result; the command line reads it, shows the result, and names bad input."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lcp_engine.core.json_values import object_in

if TYPE_CHECKING:
    from tests.cli.conftest import Lcp

SCHEMA = {
    "type": "object",
    "required": ["people"],
    "properties": {"people": {"type": "array", "items": {"type": "string"}}},
}
REPLY = {
    "ok": True, "action": "analysis_result", "summary": "Found them.", "issues": ["a letter is missing"],
    "result": {"people": ["Ada <1815>", "Bob"]},
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a mission file, and beside it the schema that it names."""
    place = tmp_path / "letters"
    (place / "schemas").mkdir(parents=True)
    (place / "schemas" / "people.json").write_text(json.dumps(SCHEMA))
    write_mission(place)
    return place


def write_mission(place: Path, schema: str = "schemas/people.json", reply: object = REPLY) -> None:
    mission = {
        "goal": "Find everyone.", "result": {"schema": schema}, "planner": {"type": "script", "replies": [reply]},
    }  # fmt: skip
    (place / "m.yaml").write_text(json.dumps(mission))


def test_the_schema_is_found_beside_the_mission_file_and_stored(lcp: Lcp, place: Path) -> None:
    lcp("launch", str(place / "m.yaml"), "--root", str(place))
    (place / "schemas" / "people.json").unlink()
    assert lcp("work", "--until-idle").code == 0
    shown = lcp("--json", "show", "1").object
    assert (shown["result"], shown["issues"]) == (REPLY["result"], REPLY["issues"])
    assert lcp("--json", "missions").json == [shown]


def test_the_result_is_shown_and_reported_in_every_format(lcp: Lcp, place: Path) -> None:
    assert '>     "Ada <1815>",' in lcp("run", str(place / "m.yaml")).out
    shown = lcp("show", "1").out
    assert '"Ada <1815>"' in shown
    assert "a letter is missing" in shown
    assert object_in(lcp("report", "1", "--format", "json").object["words"])["result"] == REPLY["result"]
    assert object_in(lcp("report", "1", "--format", "agent").object["metadata"])["result"] == REPLY["result"]
    assert "Ada <1815>" in lcp("report", "1", "--format", "structured").out


def test_a_long_result_is_cut_where_people_read_it(lcp: Lcp, place: Path) -> None:
    write_mission(place, reply={**REPLY, "result": {"people": [f"person {n}" for n in range(200)]}})
    assert "… and 144 more lines (`lcp --json show 1`)" in lcp("run", str(place / "m.yaml")).out
    assert "… and 184 more lines (lcp --json show 1)" in lcp("show", "1").out


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("nobody.json", None, "it does not exist"),
        (".", None, "it is not a file"),
        ("fifo", None, "it is not a file"),
        ("bytes.json", b"\xff\xfe", "byte 0 is not UTF-8"),
        ("list.json", b"[1]", "should hold a JSON Schema, an object, not [1]"),
        ("twice.json", b'{"type": "array", "type": "object"}', "type"),
        ("type.json", b'{"type": "strin"}', 'should be a JSON Schema: "strin" is not valid'),
        ("away.json", b'{"$ref": "https://example.org/a"}', "Retrieval is disabled"),
        ("large.json", json.dumps({"enum": ["x" * 70_000]}).encode(), "at most 65,536 characters"),
    ],
)
def test_a_schema_that_cannot_be_used_is_one_line(
    lcp: Lcp, place: Path, name: str, content: bytes | None, said: str
) -> None:
    os.mkfifo(place / "fifo")
    if content is not None:
        (place / name).write_bytes(content)
    write_mission(place, name)
    refused = lcp("validate", str(place / "m.yaml"))
    assert refused.code == 1
    assert said in refused.err
    assert "result.schema: " in refused.err
    assert refused.err.count("\n") <= 2


def test_a_reply_of_a_script_that_does_not_fit_is_refused_before_it_runs(lcp: Lcp, place: Path) -> None:
    write_mission(place, reply={**REPLY, "result": {"people": [1]}})
    refused = lcp("run", str(place / "m.yaml"))
    assert 'reply 1 is not valid: result.people[0]: 1 is not of type "string"' in refused.err


@pytest.mark.parametrize(
    ("reply", "path"),
    [
        (REPLY, None),
        ({**REPLY, "result": {"people": [1]}}, "result.people[0]"),
        ({"ok": True, "action": "mission_complete", "summary": "s"}, "result"),
    ],
)
def test_a_reply_is_checked_against_a_mission(lcp: Lcp, place: Path, reply: object, path: str | None) -> None:
    checked = lcp("check", "--mission", str(place / "m.yaml"), stdin=json.dumps(reply))
    errors = checked.object["errors"]
    assert isinstance(errors, list)
    assert [object_in(error)["path"] for error in errors] == ([] if path is None else [path])
    assert checked.code == (0 if path is None else 1)


def test_a_check_takes_dialect_limits_and_variables_of_the_mission(lcp: Lcp, tmp_path: Path) -> None:
    mission = tmp_path / "m.yaml"
    mission.write_text(
        "goal: Find ${what}.\nplanner: {type: human, dialect: universal}\nlimits: {max_followups: 1}\n"
        "result: {schema: {type: string}}\n"
    )
    reply = json.dumps(
        {"response_type": "answer", "status": "success", "message": "m", "custom_fields": {"result": "Ada"}}
    )
    assert lcp("check", "--mission", str(mission), "--var", "what=her", stdin=reply).code == 0
    assert "--var what=VALUE" in lcp("check", "--mission", str(mission), stdin=reply).err
    job = {"kind": "list_files", "params": {}}
    two = json.dumps({"ok": True, "action": "create_followup_jobs", "new_jobs": [job, job]})
    refused = lcp("check", "--mission", str(mission), "--var", "what=her", "--dialect", "lcp", stdin=two)
    assert "at most 1 jobs" in refused.out
