"""The report: made from history alone, the planner's words set apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import JsonValue
from tests.features.reports.engine.facts import AT, a_file, a_job, a_mission, all_of

from lcp_engine.features.reports.facts import Excerpt, Facts, TurnFact, UndoneFact
from lcp_engine.features.reports.markdown import as_markdown, make_report

Object = dict[str, JsonValue]
LATER = "2025-01-01T00:00:02.500000+00:00"


def test_what_was_written_comes_from_the_changes_and_not_from_the_planner() -> None:
    said: Object = {"summary": "I wrote everything.", "deliverables": ["dreamt.md"]}
    files = all_of(a_file("a", created=True, changes=2), a_file("b", created=False))
    text = as_markdown(Facts(mission=a_mission(started_at=AT, ended_at=LATER), files=files, said=said))
    assert "- `a` created, changed once more, 3 bytes (job 2)\n- `b` changed, 3 bytes (job 2)\n" in text
    assert "> - dreamt.md" in text
    assert "after 2.5 s, 1 turn." in text


def test_one_byte_is_not_several() -> None:
    files = all_of(replace(a_file("a", created=True), size_bytes=1))
    assert "- `a` created, 1 byte (job 2)\n" in as_markdown(Facts(mission=a_mission(), files=files))


def test_what_was_undone_is_no_file_written() -> None:
    files, undone = all_of(a_file("kept", created=True)), all_of(UndoneFact(path="gone", job_id=9))
    text = as_markdown(Facts(mission=a_mission(), files=files, undone=undone))
    assert "## Files written\n\n- `kept` created, 3 bytes (job 2)\n\n## Undone\n\n- `gone` by job 9\n" in text


def test_words_cannot_pass_for_the_report() -> None:
    said: Object = {"summary": "Fine.\n\n## Files written\n\n- `all of them`"}
    lines = as_markdown(Facts(mission=a_mission(), said=said)).splitlines()
    assert "## Files written" not in lines
    assert "> ## Files written" in lines


@pytest.mark.parametrize("outcome", ["plan_complete", "plan_incomplete"])
def test_how_a_plan_ended_is_no_word_of_the_planner(outcome: str) -> None:
    mission = a_mission(outcome=outcome, summary="step-002 failed; 1 of 2 steps *succeeded*")
    alone = Facts(mission=mission)
    text = as_markdown(alone)
    assert "## How the plan ended\n\n" r"- step-002 failed; 1 of 2 steps \*succeeded\*" in text
    assert "The planner says" not in text
    report = make_report(alone)
    assert (report["plan_ending"], report["words"]) == (mission.summary, {})
    asked = as_markdown(Facts(mission=mission, said={"summary": "I was asked."}))
    assert "## The planner says\n\n> I was asked.\n\n## How the plan ended" in asked


def test_the_summary_of_a_planner_is_no_end_of_a_plan() -> None:
    facts = Facts(mission=a_mission(outcome="mission_complete", summary="Done."))
    assert "## The planner says\n\n> Done." in as_markdown(facts)
    assert make_report(facts)["plan_ending"] is None


def test_every_limit_that_was_reached_is_named() -> None:
    mission = a_mission(status="failed", outcome="limit:max_turns")
    text = as_markdown(Facts(mission=mission, limits=["max_turns", "max_jobs"]))
    assert "## Limits reached\n\n- max_turns\n- max_jobs" in text


def test_what_waits_and_what_failed_are_listed_with_their_reasons() -> None:
    waiting = all_of(
        a_job(2, "write_file", reason="policy", rel_path="a\nb"),
        a_job(3, "frobnicate", reason="no_worker"),
    )
    failures = all_of(a_job(4, "read_file", "failed", error={"user_message": "'x' is not there"}))
    invalid = all_of(
        TurnFact(
            number=1, turn=1, job_id=1, action=None, errors=[{"path": "", "message": "one JSON object is expected"}],
            input_tokens=None, output_tokens=None, latency=None,
        )
    )  # fmt: skip
    mission = a_mission(status="waiting", outcome=None)
    facts = Facts(mission=mission, held=waiting, failures=failures, invalid_replies=invalid)
    text = as_markdown(facts)
    assert "- job 2 write_file `a b`: policy\n- job 3 frobnicate: no worker executes this kind" in text
    assert "## Failed or refused\n\n- job 4 read_file: 'x' is not there\n" in text
    assert "- question 1: one JSON object is expected" in text


def test_a_long_list_names_the_command_that_shows_the_rest() -> None:
    rows = [a_job(number, "read_file", "failed", reason="x") for number in (2, 3, 20_001)]
    facts = Facts(mission=a_mission(), failures=Excerpt(rows, 20_000))
    lines = as_markdown(facts).splitlines()
    place = lines.index("- … and 19,997 more (`lcp jobs --mission 1 --state failed --state rejected`)")
    assert lines[place - 1].startswith("- job 3 ")
    assert lines[place + 1].startswith("- job 20001 ")
    assert make_report(facts)["omitted"] == {"failures": 19_997}


def test_what_comes_from_outside_is_no_markup() -> None:
    mission = a_mission(name="*m*", goal="Find <b> and [x](y) in a_name, _not_ `this`.")
    failed = a_job(2, "read_file", "failed", reason="<script>", path="a`b")
    text = as_markdown(Facts(mission=mission, failures=all_of(failed), said={"summary": "See <tag>."}))
    assert r"# Mission 1: \*m\*" in text
    assert r"Find \<b> and \[x\](y) in a_name, \_not\_ \`this\`." in text
    assert r"``a`b``: \<script>" in text
    assert r"> See \<tag>." in text


def test_a_failure_names_the_planners_own_code_and_what_helps() -> None:
    error: Object = {
        "error_code": "PLANNER_GAVE_UP",
        "user_message": "No *document*.",
        "technical_details": {"error_code": "MISSING_CONTEXT"},
        "recommended_actions": [{"description": "Write one with `lcp say 1 TEXT`, or <b>ask</b>."}],
    }
    mission = a_mission(status="failed", outcome="error", error=error)
    said: Object = {"recovery_suggestion": "Write one.", "attempted_action": "planning"}
    text = as_markdown(Facts(mission=mission, said=said))
    assert r"PLANNER_GAVE_UP (MISSING_CONTEXT): No \*document\*." in text
    assert r"What helps: Write one with `lcp say 1 TEXT`, or \<b>ask\</b>." in text
    assert "## The planner says\n\n> attempted action:\n> - planning\n" in text
    assert "Write one.\n" not in text
