"""`lcp missions`, `show`, `watch`, `report`, `jobs`, `job`: tables for people, JSON for programs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from jsonschema import Draft202012Validator
from tests.cli.terminal import Terminal
from tests.features.models.planners.conftest import faults, work_until_waiting

from lcp_engine import Engine
from lcp_engine.cli.tables import end_of
from lcp_engine.features.top.missions_view import tree_of
from lcp_engine.features.top.watch import Snapshot
from lcp_engine.features.universal.structured import StructuredResponse

if TYPE_CHECKING:
    from http.server import BaseHTTPRequestHandler

    from pydantic import JsonValue
    from tests.cli.conftest import Lcp
    from tests.features.models.planners.conftest import FaultServer

__all__ = ["faults"]  # the fixture

MISSION = {
    "id", "uid", "name", "goal", "root", "planner", "status", "outcome", "summary", "deliverables", "metrics", "error",
    "limits", "turns", "jobs", "unfulfilled", "open", "tokens", "created_at", "started_at", "ended_at", "session_id",
    "user_id", "result", "target_file", "issues", "recommendations", "cost", "waits_for", "assessment",
}  # fmt: skip
JOB = {
    "id", "mission_id", "turn", "parent_id", "name", "kind", "params", "auto_dispatch", "state", "reason", "priority",
    "attempt", "max_attempts", "run_after", "created_at", "started_at", "ended_at", "result", "error", "attempts",
    "limited_by",
}  # fmt: skip
EVIL = "\x1b]0;owned\x07\x1b[31m\u202egpj.txt"


@pytest.fixture
def done(lcp: Lcp) -> Lcp:
    """One mission that has read a file and a missing one with control characters in its name."""
    (lcp.root / EVIL).write_text("x")
    jobs = [{"kind": "list_files", "params": {}}, {"kind": "read_file", "params": {"rel_path": "a.md"}},
            {"kind": "read_file", "name": EVIL, "params": {"rel_path": "not there"}}]  # fmt: skip
    ask = {"ok": True, "action": "create_followup_jobs", "commentary": EVIL, "new_jobs": jobs}
    complete = {"ok": True, "action": "mission_complete", "summary": f"Read it.\n## {EVIL}"}
    assert lcp("run", lcp.mission(json.dumps(ask), json.dumps(complete)), "--root", "root", "-q").code == 0
    return lcp


def test_json_has_the_fields_of_the_contract(done: Lcp) -> None:
    assert [set(mission) for mission in json.loads(done("missions", "--json").out)] == [MISSION]
    assert set(done("show", 1, "--json").object) == MISSION
    assert {frozenset(job) for job in json.loads(done("jobs", "--mission", 1, "--json").out)} == {
        frozenset(JOB)
    }
    assert set(done("job", 3, "--json").object) == {*JOB, "events"}


def test_filters_of_jobs_combine(done: Lcp) -> None:
    failed = json.loads(done("jobs", "--kind", "read_file", "--state", "failed", "--json").out)
    assert [job["error"]["error_code"] for job in failed] == ["PATH_NOT_FOUND"]
    newest = json.loads(done("jobs", "--limit", 2, "--json").out)
    assert [job["id"] for job in newest] == [4, 5]


def test_nothing_that_a_file_or_a_planner_is_named_reaches_the_terminal_raw(done: Lcp) -> None:
    for command in (
        "missions",
        "show 1",
        "report 1",
        "jobs",
        "job 1",
        "job 2",
        "watch 1 --verbose",
        "job 2 --json",
    ):
        shown = done(*command.split())
        assert shown.code == 0
        assert shown.out
        unseen = {char for char in shown.out + shown.err if not char.isprintable() and char != "\n"}
        assert unseen == set(), command


def test_the_report_sets_the_planners_words_apart(done: Lcp) -> None:
    text = done("report", 1).out
    assert "> Read it.\n> ## <U+001B>" in text
    assert "job 4 read_file `not there`" in text
    report = done("report", 1, "--format", "json").object
    assert report["done"] == {"list_files": 1, "read_file": 1}
    assert report["files"] == []


def test_watch_tells_all_events_of_a_mission_that_has_ended(done: Lcp) -> None:
    watched = done("watch", 1, "--json")
    events = [json.loads(line) for line in watched.out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["event"] == "mission_completed"
    assert watched.code == 0


def test_an_unknown_id_is_one_line(lcp: Lcp) -> None:
    for command in ("show 9", "watch 9", "job 99", "jobs --mission 9"):
        done = lcp(*command.split())
        assert done.code == 1
        assert done.err.endswith("is not in the database\n")
        assert done.err.count("\n") == 1


def test_a_report_comes_in_every_form(lcp: Lcp) -> None:
    lcp(
        "run",
        lcp.mission(lcp.ask("read_file", path="a.md"), lcp.ask("write_file", path="b.md", content="x")),
        "--root",
        lcp.root,
    )
    for form in ("structured", "agent"):
        done = lcp("report", 1, "--format", form)
        assert done.code == 0
        Draft202012Validator(lcp("schema", form).object).validate(done.json)
    assert lcp("report", 1, "--format", "json").json == lcp("--json", "report", 1).json
    refused = lcp("report", 1, "--since", 3)
    assert (refused.code, refused.out) == (2, "")
    assert "--since needs --format structured" in refused.err


def test_each_suggested_command_is_one(lcp: Lcp) -> None:
    lcp("run", lcp.mission(lcp.ask("write_file", path="b.md", content="x"), lcp.complete), "--root", lcp.root)
    seen: set[str] = set()
    for command in ("approve 2", "work --until-idle", "cancel 1"):
        seen.update(_suggested(lcp))
        lcp(*command.split())
    seen.update(_suggested(lcp))
    assert {"approve", "reject", "say", "watch", "undo", "resume"} <= seen
    for name in seen:
        assert lcp(name, "--help").code == 0


def _suggested(lcp: Lcp) -> list[str]:
    response = StructuredResponse.model_validate(lcp("report", 1, "--format", "structured").json)
    step = response.content.next_step
    assert step is not None
    return [command.split()[1] for command in step.commands or []]


SAYS_UNTIL = re.compile(r"the model's server asks to wait until ([0-9-]{10} )?[0-9]{2}:[0-9]{2}:[0-9]{2}")


def test_a_mission_says_until_when_its_server_asks_to_wait(lcp: Lcp, faults: FaultServer) -> None:
    planner = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096}
    mission = lcp.home / "asking.yaml"
    mission.write_text(json.dumps({"goal": "g", "planner": planner}))
    faults.play(faults.refuses(429, "slow down", Retry_After="1"), faults.says(json.dumps(lcp.complete)))
    ran = lcp("run", mission, "--root", "root")
    assert ran.code == 0
    assert SAYS_UNTIL.search(ran.err)
    faults.play(*[faults.refuses(429, "slow down", Retry_After="90")] * 3)
    assert lcp("launch", mission, "--root", "root").code == 0
    with Engine(f"sqlite:///{lcp.database}") as engine:
        work_until_waiting(engine)
        found = engine.mission(2)
    assert SAYS_UNTIL.search(lcp("show", 2).out)
    assert lcp("show", 2, "--json").object["waits_for"] == found.waits_for
    rows = tree_of(Snapshot(mission=found))(80).rows
    assert any(SAYS_UNTIL.search(row.text.plain) for row in rows)


def test_a_mission_that_left_jobs_open_does_not_look_done(lcp: Lcp) -> None:
    jobs: list[JsonValue] = [
        {"kind": "list_files", "params": {}},
        {"kind": "write_file", "params": {"rel_path": "b", "content": ""}},
    ]
    asked: JsonValue = {"ok": True, "action": "create_followup_jobs", "new_jobs": jobs}
    mission = lcp.mission(asked, {"ok": True, "action": "mission_complete", "summary": "Done."})
    ran = lcp("run", mission, "--root", lcp.root)
    assert ran.code == 3
    assert "mission 1 ended, 1 open  mission_complete" in ran.err
    assert "ended, 1 open" in lcp("missions").out
    assert "ended, 1 open" in lcp("show", 1).out
    assert lcp("--json", "show", 1).object["open"] == 1
    held = lcp("held").out
    assert "its mission has ended: approved, it still runs" in " ".join(held.split())
    (job,) = json.loads(lcp("--json", "held").out)
    assert "its mission has ended" in lcp("job", job["id"]).out


def test_words_of_a_model_are_seen_while_it_writes(lcp: Lcp, faults: FaultServer) -> None:
    planner: JsonValue = {"type": "openai", "base_url": faults.url, "model": "tiny", "context_tokens": 4096}
    mission = lcp.home / "asking.yaml"
    mission.write_text(json.dumps({"goal": "g", "planner": planner}))

    def writes(to: BaseHTTPRequestHandler) -> None:
        to.send_response(200)
        to.end_headers()
        while not faults.hung.wait(0.2):
            to.wfile.write(faults.event({"choices": [{"delta": {"content": "and it goes on"}}]}))
            to.wfile.flush()

    faults.play(writes)
    with Terminal(lcp, "run", mission, "--root", "root") as terminal:
        terminal.expect("goes on")
        with Engine(f"sqlite:///{lcp.database}") as engine:
            (draft,) = engine.drafts(1).values()
            rows = tree_of(Snapshot(mission=engine.mission(1), drafts={1: draft}))(30).rows
    assert any(row.text.plain.startswith("…") and row.text.plain.endswith("goes on") for row in rows)


def test_the_end_of_a_text_fits_into_its_cells() -> None:
    assert end_of("one\n two", 20) == "one two"
    assert end_of("one two", 4) == "…two"
    assert end_of("一二三", 4) == "…三"
    assert (end_of("text", 0), end_of("", 9)) == ("", "")
