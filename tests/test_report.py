"""The report: made from history alone, the planner's words set apart."""

from __future__ import annotations

from pydantic import JsonValue

from lcp_engine.report import as_markdown, make_report

Object = dict[str, JsonValue]


def a_mission(**more: JsonValue) -> Object:
    return {
        "id": 1, "name": "m", "goal": "Do it.", "root": "/r", "status": "completed", "outcome": "mission_complete",
        "summary": None, "error": None, "turns": 1, "started_at": "2025-01-01T00:00:00+00:00",
        "ended_at": "2025-01-01T00:00:02.500000+00:00", **more,
    }  # fmt: skip


def a_job(number: int, kind: str, state: str, **more: JsonValue) -> Object:
    return {
        "id": number, "kind": kind, "state": state, "name": None, "params": {}, "reason": None, "result": None,
        "error": None, **more,
    }  # fmt: skip


def a_change(path: str, before: str | None, after: str, state: str = "applied") -> Object:
    return {
        "path": path, "state": state, "sha256_before": before, "sha256_after": after, "size_bytes": 3, "job_id": 2,
    }  # fmt: skip


def a_turn(**more: JsonValue) -> Object:
    return {
        "number": 1, "turn": 1, "job_id": 1, "action": None, "errors": None, "input_tokens": None,
        "output_tokens": None, "latency": None, "last_turn": None, **more,
    }  # fmt: skip


def test_what_was_written_comes_from_the_changes_and_not_from_the_planner() -> None:
    result: Object = {"summary": "I wrote everything.", "deliverables": ["dreamt.md"]}
    turn = a_job(1, "agent_plan", "succeeded", result=result)
    changes = [
        a_change("a", None, "1"),
        a_change("a", "1", "2"),
        a_change("b", "0", "1"),
        a_change("c", "0", "1", "void"),
    ]
    report = make_report(a_mission(), [turn], changes, [a_turn()])
    assert isinstance(report["files"], list)
    assert [
        (file["path"], file["created"], file["changes"]) for file in report["files"] if isinstance(file, dict)
    ] == [
        ("a", True, 2),
        ("b", False, 1),
    ]
    text = as_markdown(report)
    assert "`a` created, changed once more, 3 bytes" in text
    assert "> - dreamt.md" in text
    assert "after 2.5 s, 1 turn." in text


def test_what_was_undone_is_no_file_written() -> None:
    kept = a_change("kept", None, "1")
    gone = {**a_change("gone", None, "1"), "undone_by": 9, "undoes": None}
    undo = {**a_change("gone", "1", "0"), "undone_by": None, "undoes": 2, "job_id": 9}
    text = as_markdown(make_report(a_mission(), [], [kept, gone, undo], []))
    assert "## Files written\n\n- `kept` created, 3 bytes (job 2)\n\n## Undone\n\n- `gone` by job 9\n" in text


def test_words_cannot_pass_for_the_report() -> None:
    turn = a_job(
        1, "agent_plan", "succeeded", result={"summary": "Fine.\n\n## Files written\n\n- `all of them`"}
    )
    lines = as_markdown(make_report(a_mission(), [turn], [], [])).splitlines()
    assert "## Files written" not in lines
    assert "> ## Files written" in lines


def test_every_limit_that_was_reached_is_named_once() -> None:
    refused = a_job(3, "read_file", "rejected", reason="max_jobs", error={"error_code": "LIMIT_REACHED"})
    mission = a_mission(status="failed", outcome="limit:max_turns")
    report = make_report(mission, [refused], [], [a_turn(last_turn="max_turns")])
    assert report["limits"] == ["max_turns", "max_jobs"]
    assert "## Limits reached\n\n- max_turns\n- max_jobs" in as_markdown(report)


def test_what_waits_and_what_failed_are_listed_with_their_reasons() -> None:
    jobs = [
        a_job(2, "write_file", "held", params={"rel_path": "a\nb"}, reason="policy"),
        a_job(3, "frobnicate", "held", reason="no_worker"),
        a_job(4, "read_file", "failed", error={"user_message": "'x' is not there"}),
        a_job(5, "agent_plan", "failed", error={"user_message": "the reply is not valid"}),
    ]
    bad = a_turn(errors=[{"path": "", "message": "one JSON object is expected"}])
    text = as_markdown(make_report(a_mission(status="waiting", outcome=None, ended_at=None), jobs, [], [bad]))
    assert "- job 2 write_file `a b`: policy\n- job 3 frobnicate: no worker executes this kind" in text
    assert "## Failed or refused\n\n- job 4 read_file: 'x' is not there\n" in text
    assert "- question 1: one JSON object is expected" in text
